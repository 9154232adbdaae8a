"""LedgerReader: reads a ledger, closed or open; it never fences by itself.

Agrees with BookKeeper 4.18.0, ReadOnlyLedgerHandle and LedgerHandle's reads. Every reader follows
the ledger's metadata, so that it finds entries after they were re-replicated.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from bkclient.connection.add_frames import LedgerKeys
from bkclient.errors import NoSuchEntryInLedgerError
from bkclient.ledger.cluster import Cluster
from bkclient.ledger.reads.range_read import read_range
from bkclient.ledger.reads.tail import POLL_WAIT_S, ConfirmedEnd, LedgerTail, MetadataFollower
from bkclient.metadata.ledger_metadata_updates import LocalMetadata
from wire.digest import Entry, VerifiedEntries
from wire.entry_batch import EntryBatch, batches
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata


class LedgerReader:
    """A reader of one ledger.

    Entries of an open ledger can be read up to ``last_add_confirmed``. ``read_last_confirmed`` and
    ``poll_lac`` raise it to the bookies' answers; it never falls.
    """

    def __init__(self, cluster: Cluster, local: LocalMetadata, keys: LedgerKeys) -> None:
        self.ledger_id: LedgerId = keys.ledger_id
        self._cluster, self._local = cluster, local
        self._fetcher = cluster.fetcher(keys, cluster.rate_limit())
        self._end = ConfirmedEnd(self.ledger_id, local, self._fetcher)
        self._follower = MetadataFollower(cluster, local, self.ledger_id)

    def __repr__(self) -> str:
        return f"<LedgerReader {self.ledger_id} LAC {self.last_add_confirmed}>"

    # What is known

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as last read."""
        return self._local.value

    @property
    def is_closed(self) -> bool:
        """True if the ledger is closed, and so never grows."""
        return self.metadata.is_closed

    @property
    def last_add_confirmed(self) -> EntryId:
        """The highest entry known to be confirmed; the last entry of a closed ledger."""
        return self._end.lac

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; 0 while it is open (an entry's header says more)."""
        return self.metadata.length

    # Following the metadata

    async def follow(self) -> None:
        """Start to follow the metadata; ``Client.open_ledger`` calls this."""
        await self._follower.start()

    def close(self) -> None:
        """Stop following. Reads in progress continue."""
        self._follower.stop()
        self._fetcher.close()

    async def refresh(self) -> LedgerMetadata:
        """Read the metadata now."""
        return await self._follower.refresh()

    # Entries

    async def read_entry(self, entry_id: int, *, unconfirmed: bool = False) -> Entry:
        """Return one entry.

        Raises:
            ReadFailedError: the entry is not confirmed, and ``unconfirmed`` is false.
            ClientError: no bookie of the write set returned the entry.
        """
        self._end.check(entry_id, entry_id, unconfirmed=unconfirmed)
        await self._fetcher.turn()
        return await self._fetcher.entry(self.metadata, EntryId(entry_id))

    async def read(
        self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False
    ) -> AsyncGenerator[Entry, None]:
        """Yield entries in order, reading ahead in bounded memory; by default all confirmed ones.

        With ``unconfirmed`` the call also reads entries beyond the LAC, which may disappear again.

        Raises:
            ReadFailedError: ``last`` is not confirmed.
            ClientError: an entry cannot be read; those before it have been yielded.
        """
        async with aclosing(self.read_chunks(first, last, unconfirmed=unconfirmed)) as chunks:
            async for entries in chunks:
                for entry in entries:
                    yield entry

    async def read_chunks(
        self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False
    ) -> AsyncGenerator[list[Entry], None]:
        """Yield the entries of ``read`` as lists; faster for many entries."""
        async with aclosing(self._read_range(first, last, unconfirmed=unconfirmed)) as chunks:
            async for found in chunks:
                yield found.entries()

    async def read_batches(
        self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False
    ) -> AsyncGenerator[EntryBatch, None]:
        """Yield the entries of ``read`` as batches, each in one buffer.

        A batch has about half a megabyte of consecutive entries, or one larger entry.

        Raises:
            ReadFailedError: ``last`` is not confirmed.
            ClientError: an entry cannot be read; those before it have been yielded.
        """
        async with aclosing(self._read_range(first, last, unconfirmed=unconfirmed)) as chunks:
            async for found in chunks:
                for batch in batches(self.ledger_id, first, found):
                    yield batch
                first += len(found.payloads)

    def _read_range(
        self, first: int, last: int | None, *, unconfirmed: bool
    ) -> AsyncGenerator[VerifiedEntries, None]:
        if last is None:
            last = self.last_add_confirmed
            if first > last:
                return _nothing()
        self._end.check(first, last, unconfirmed=unconfirmed)
        return read_range(self._cluster, self._fetcher, self._local, first, last)

    async def read_last_entry(self) -> Entry:
        """Ask the bookies for the LAC, and return the last confirmed entry.

        Raises:
            NoSuchEntryInLedgerError: the ledger is empty.
        """
        last = await self.read_last_confirmed()
        if last < 0:
            raise NoSuchEntryInLedgerError(f"ledger {self.ledger_id} has no confirmed entry")
        return await self.read_entry(last)

    # The last add confirmed

    async def read_last_confirmed(self) -> EntryId:
        """Ask the bookies for the LAC; return the last confirmed entry.

        Raises:
            ClientError: too few bookies answered to be sure.
        """
        return await self._end.read()

    read_lac = read_last_confirmed

    async def try_read_last_confirmed(self) -> EntryId:
        """Ask the bookies for a LAC above the known one; return the last confirmed entry.

        The first bookie with a higher LAC decides, so one live bookie is enough; the true LAC may
        be higher.

        Raises:
            LedgerRecoveryError: no bookie answered.
            ClientError: the ledger has another password.
        """
        return await self._end.read_any()

    async def poll_lac(self, previous: int, *, wait_s: float = POLL_WAIT_S) -> EntryId:
        """Wait at the bookies until the LAC is above ``previous``; return the LAC.

        Returns the unchanged LAC after about ``wait_s``, or at once if the ledger is closed.

        Raises:
            ClientError: no bookie could be asked.
        """
        return await self._end.wait_beyond(previous, wait_s)

    def tail(self, first: int = 0) -> AsyncGenerator[Entry, None]:
        """Yield entries from ``first`` on as they are confirmed, until the ledger is closed.

        The reader retries while bookies do not answer (for a closed ledger at most
        ``SILENT_S_MAX``), after ensemble changes, and while the metadata service is unreachable. It
        keeps no more entries in memory than ``read``. Cancelling the wait for the next entry ends
        the iteration.

        Raises:
            NoSuchLedgerError: the ledger was deleted.
            ClientClosedError: the client was closed.
            ClientError: a confirmed entry cannot be read although bookies answer; or the ledger is
                closed and no bookie answers.
        """
        tail = LedgerTail(self.ledger_id, self._end, self._follower, self._cluster.clock, self.read)
        return tail.entries(first)


async def _nothing() -> AsyncGenerator[VerifiedEntries, None]:
    return
    yield
