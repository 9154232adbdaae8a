"""LedgerReader: reads a ledger, closed or still growing; never fences by itself.

Agrees with BookKeeper 4.18.0, ReadOnlyLedgerHandle and LedgerHandle's reads. Every reader follows
the ledger's metadata, so that it finds entries also after they were replicated elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from bkclient.connection.ledger_keys import LedgerKeys
from bkclient.errors import (
    BookieUnavailableError,
    ClientClosedError,
    ClientError,
    ClientUnauthorizedError,
    NoSuchEntryInLedgerError,
    NoSuchLedgerError,
    ReadFailedError,
    RequestTimeoutError,
    TooManyRequestsClientError,
)
from bkclient.ledger.context import Cluster
from bkclient.ledger.handed_over import confirmed_by_handover
from bkclient.ledger.range_read import read_range
from bkclient.metadata.api import MetadataUnavailableError, Versioned, Watch
from bkclient.metadata.update import LocalMetadata
from bkclient.quorum.read import Polled
from wire.digest import Entry, VerifiedEntries
from wire.entry_batch import EntryBatch, batches
from wire.errors import BookKeeperError
from wire.ids import NO_ENTRY, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()

POLL_WAIT_S: Final = 3.0
"""How long a bookie holds a long poll; shorter than the read time-out of Java's client."""

RETRY_S: Final = 0.5
"""Between tries at what failed, or came back sooner than it should."""

SILENT_S_MAX: Final = 10.0
"""How long a tail of a closed ledger tries on without reading anything."""

PASSING: Final = (
    BookieUnavailableError,
    RequestTimeoutError,
    TooManyRequestsClientError,
    MetadataUnavailableError,
)
"""What says nothing about an entry, only that bookies do not answer now, or cannot be found."""

NOT_WITH_TIME: Final = (ClientClosedError, ClientUnauthorizedError)
"""What no later try will change."""


class LedgerReader:
    """Reads entries of one ledger.

    On an open ledger entries up to ``last_add_confirmed`` can be read. It moves when bookies say
    so, by ``read_last_confirmed`` or ``poll_lac``, and never back.
    """

    def __init__(
        self, cluster: Cluster, local: LocalMetadata, keys: LedgerKeys, *, last_confirmed: int = -1
    ) -> None:
        self.ledger_id: LedgerId = keys.ledger_id
        self._cluster, self._local = cluster, local
        self._fetcher = cluster.fetcher(keys, cluster.rate_limit())
        self._fetcher.saw_lac = self._saw_lac
        self._lac = last_confirmed
        self._watch: Watch | None = None
        self._reading_metadata = False
        self._read_again = False
        self._on_change: list[Deferred[None]] = []
        local.on_change(lambda _metadata: self._metadata_changed())
        self._saw_lac(confirmed_by_handover(self.ledger_id, self.metadata))

    def __repr__(self) -> str:
        return f"<LedgerReader {self.ledger_id} LAC {self.last_add_confirmed}>"

    # What is known

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as last read."""
        return self._local.value

    @property
    def is_closed(self) -> bool:
        """Whether the ledger will not grow any more."""
        return self.metadata.is_closed

    @property
    def last_add_confirmed(self) -> EntryId:
        """The highest entry known to be confirmed; of a closed ledger the last one."""
        if self.metadata.is_closed:
            return EntryId(NO_ENTRY if self.metadata.last_entry_id is None else self._closed_at)
        return EntryId(self._lac)

    @property
    def _closed_at(self) -> int:
        last = self.metadata.last_entry_id
        assert last is not None, "closed metadata has a last entry"
        return last

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; 0 while it is open (an entry's header says more)."""
        return self.metadata.length

    def _saw_lac(self, lac: int) -> None:
        self._lac = max(self._lac, lac)

    # Following the metadata

    async def follow(self) -> None:
        """Begin to follow the metadata; ``Client.open_ledger`` calls it."""
        self._watch = await self._cluster.store.watch_ledger(self.ledger_id, self._changed)
        await self._cluster.learn_near(self.metadata)

    def close(self) -> None:
        """Stop following. Reads under way go on."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._fetcher.close()

    def _changed(self) -> None:
        """The store says that the metadata changed: read it, once more if it changes meanwhile."""
        if self._reading_metadata:
            self._read_again = True
            return
        self._reading_metadata = True
        reading = Deferred.fromCoroutine(self._read_metadata())
        reading.addErrback(lambda failure: log.failure("reading metadata", failure))

    async def _read_metadata(self) -> None:
        try:
            while True:
                self._read_again = False
                await self.refresh()
                if not self._read_again:
                    return
        except NoSuchLedgerError:
            log.info("ledger {ledger_id} was deleted", ledger_id=self.ledger_id)
            self._wake_all()
        except BookKeeperError as error:
            log.warn(
                "ledger {ledger_id}: metadata not read: {error}",
                ledger_id=self.ledger_id,
                error=error,
            )
        finally:
            self._reading_metadata = False

    async def refresh(self) -> LedgerMetadata:
        """Read the metadata now."""
        found: Versioned[LedgerMetadata] = await self._cluster.store.read_ledger(self.ledger_id)
        self._local.install(found)
        await self._cluster.learn_near(self._local.value)
        return self._local.value

    def _metadata_changed(self) -> None:
        self._saw_lac(confirmed_by_handover(self.ledger_id, self.metadata))
        self._wake_all()

    def _wake_all(self) -> None:
        waiting, self._on_change = self._on_change, []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(None)

    # Entries

    async def read_entry(self, entry_id: int, *, unconfirmed: bool = False) -> Entry:
        """Return one entry.

        Raises:
            ReadFailedError: it is not confirmed (and ``unconfirmed`` was not asked for).
            ClientError: no bookie of its write set gave it.
        """
        self._check(entry_id, entry_id, unconfirmed=unconfirmed)
        await self._fetcher.turn()
        return await self._fetcher.entry(self.metadata, EntryId(entry_id))

    async def read(
        self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False
    ) -> AsyncGenerator[Entry, None]:
        """Yield entries in order, reading ahead in bounded memory; by default all confirmed ones.

        With ``unconfirmed`` entries beyond the LAC are asked for too: they may vanish again.

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
        """Yield the same as ``read``, but lists of consecutive entries: faster where many."""
        async with aclosing(self._read_range(first, last, unconfirmed=unconfirmed)) as chunks:
            async for found in chunks:
                yield found.entries()

    async def read_batches(
        self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False
    ) -> AsyncGenerator[EntryBatch, None]:
        """Yield the same as ``read``, but batches in one buffer each, without an object an entry.

        A batch holds about half a megabyte of consecutive entries, or one larger entry.

        Raises:
            ReadFailedError: ``last`` is not confirmed.
            ClientError: an entry cannot be read; those before it have been yielded.
        """
        async with aclosing(self._read_range(first, last, unconfirmed=unconfirmed)) as chunks:
            async for found in chunks:
                for batch in batches(self.ledger_id, first, found):
                    yield batch
                first += len(found.payloads)

    async def _read_range(
        self, first: int, last: int | None, *, unconfirmed: bool
    ) -> AsyncGenerator[VerifiedEntries, None]:
        if last is None:
            last = self.last_add_confirmed
            if first > last:
                return
        self._check(first, last, unconfirmed=unconfirmed)
        chunks = read_range(self._cluster, self._fetcher, self._local, first, last)
        async with aclosing(chunks):
            async for found in chunks:
                yield found

    def _check(self, first: int, last: int, *, unconfirmed: bool) -> None:
        """Refuse what is beyond the LAC; beyond the end of a closed ledger there is nothing."""
        lac = self.last_add_confirmed
        if last <= lac or first > last:
            return
        if self.is_closed:
            raise NoSuchEntryInLedgerError(
                f"ledger {self.ledger_id} has no entry {last}: "
                + (f"it ends with {lac}" if lac >= 0 else "it is empty")
            )
        if not unconfirmed:
            raise ReadFailedError(
                f"entry {last} of ledger {self.ledger_id} is not confirmed yet: "
                + (f"the last one that is, is {lac}" if lac >= 0 else "none is")
            )

    async def read_last_entry(self) -> Entry:
        """Return the last confirmed entry, after asking how far that is.

        Raises:
            NoSuchEntryInLedgerError: the ledger is empty.
        """
        last = await self.read_last_confirmed()
        if last < 0:
            raise NoSuchEntryInLedgerError(f"ledger {self.ledger_id} has no confirmed entry")
        return await self.read_entry(last)

    # The last add confirmed

    async def read_last_confirmed(self) -> EntryId:
        """Ask the bookies for the LAC; return how far the ledger is confirmed.

        Raises:
            ClientError: too few bookies answered to be sure.
        """
        if not self.is_closed:
            self._saw_lac(await self._fetcher.lac(self.metadata))
        return self.last_add_confirmed

    read_lac = read_last_confirmed

    async def try_read_last_confirmed(self) -> EntryId:
        """Ask the bookies for a LAC above the one known; return how far the ledger is confirmed.

        The first who knows more decides, so one live bookie is enough, and more may be confirmed.

        Raises:
            LedgerRecoveryError: no bookie answered.
            ClientError: the ledger's password is another.
        """
        if not self.is_closed:
            self._saw_lac(await self._fetcher.any_lac(self.metadata, self._lac))
        return self.last_add_confirmed

    async def poll_lac(self, previous: int, *, wait_s: float = POLL_WAIT_S) -> EntryId:
        """Wait at the bookies until the LAC is above ``previous``; return it.

        Returns the unchanged LAC after about ``wait_s``, or at once when the ledger is closed.

        Raises:
            ClientError: no bookie could be asked.
        """
        if not self.is_closed and self._lac <= previous:
            polled = await self._fetcher.poll(self.metadata, previous, wait_s)
            self._saw_lac(polled.lac)
        return self.last_add_confirmed

    async def tail(self, first: int = 0) -> AsyncGenerator[Entry, None]:
        """Yield entries from ``first`` on as they are confirmed, until the ledger is closed.

        What passes is waited out: bookies that do not answer (of a closed ledger for
        ``SILENT_S_MAX``), ensembles that have moved, a metadata service that is away. It holds no
        more entries than ``read`` does. Cancelling what waits for the next entry ends it.

        Raises:
            NoSuchLedgerError: the ledger was deleted.
            ClientClosedError: the client was closed.
            ClientError: a confirmed entry cannot be read although bookies answer, or is in a closed
                ledger and nobody answers.
        """
        silent_since_s: float | None = None
        while not self.is_closed or self.last_add_confirmed >= first:
            if self.last_add_confirmed < first:
                entry = await self._wait_for_more(first)
                if entry is not None:
                    yield entry
                    first += 1
                continue
            try:
                async with aclosing(self.read(first)) as entries:
                    async for entry in entries:
                        yield entry
                        first, silent_since_s = entry.entry_id + 1, None
            except ClientError as error:
                now_s = self._cluster.clock.seconds()
                if silent_since_s is None or not self.is_closed:
                    silent_since_s = now_s
                elif now_s - silent_since_s > SILENT_S_MAX:
                    raise
                await self._wait_out(error)

    async def _wait_for_more(self, first: int) -> Entry | None:
        """Return once there may be news; with the entry, where that came along and is confirmed."""
        began_s, has_moved = self._cluster.clock.seconds(), False
        try:
            polled = await self._poll(first - 1)
        except NOT_WITH_TIME:
            raise
        except ClientError as error:
            log.info("tail of {ledger_id}: {error}", ledger_id=self.ledger_id, error=error)
        else:
            if polled is not None and polled.lac >= first:
                return polled.entry
            has_moved = polled is None
        if not self.is_closed and self._lac < first:
            if not has_moved and self._cluster.clock.seconds() - began_s < RETRY_S:
                await self._pause()
            # The watch may be late, or what it told could not be read.
            await self._refresh_if_there()
        return None

    async def _poll(self, previous: int) -> Polled[Entry] | None:
        """Poll until there is news; ``None`` when the metadata changed, or is gone, before that."""
        polling = self._fetcher.poll(self.metadata, previous, POLL_WAIT_S)
        moved = self._when_changed()
        moved.addCallback(lambda _: polling.cancel())
        try:
            polled = await polling
        except CancelledError:
            if not moved.called:
                raise
            return None
        finally:
            self._forget(moved)
        self._saw_lac(polled.lac)
        return polled

    async def _wait_out(self, error: ClientError) -> None:
        """Return when the entry that could not be read is worth another try; else raise ``error``.

        It is where bookies gave no answer, or where others are to be asked.
        """
        known = self._local.current.version
        if isinstance(error, PASSING):
            log.info("tail of {ledger_id}: {error}", ledger_id=self.ledger_id, error=error)
            await self._pause()
        await self._refresh_if_there()
        if not isinstance(error, PASSING) and self._local.current.version == known:
            raise error

    async def _refresh_if_there(self) -> None:
        try:
            await self.refresh()
        except MetadataUnavailableError as error:
            log.info(
                "ledger {ledger_id}: metadata not read: {error}",
                ledger_id=self.ledger_id,
                error=error,
            )

    async def _pause(self) -> None:
        """Wait a little, or until the metadata changes."""
        waiter = self._when_changed()
        timer = self._cluster.clock.callLater(RETRY_S, waiter.callback, None)
        try:
            await waiter
        finally:
            self._forget(waiter)
            if timer.active():
                timer.cancel()

    def _when_changed(self) -> Deferred[None]:
        waiter: Deferred[None] = Deferred()
        self._on_change.append(waiter)
        return waiter

    def _forget(self, waiter: Deferred[None]) -> None:
        if waiter in self._on_change:
            self._on_change.remove(waiter)
