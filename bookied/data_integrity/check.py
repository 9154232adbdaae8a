"""Repair of a bookie that lost data: ledgers go into limbo, then their entries are copied back.

The check has two steps, as in BookKeeper 4.18.0, DataIntegrityCheckImpl and EntryCopierImpl
(BP-46). ``mark`` runs before the bookie serves. It creates every ledger that the metadata places on
this bookie. If a ledger is not closed and this bookie is in its last fragment, ``mark`` fences
the ledger and puts it into limbo. The bookie then answers "unknown state" for the ledger, so that
no reader counts "no such entry" as an answer. ``repair`` runs while the bookie serves. It recovers
the ledgers in limbo from the other bookies and copies missing entries. A flag in the storage
remains set until both steps have succeeded.

Unlike Java's, the copier verifies the digests of the copies, and takes a ledger's master key from
the metadata if the metadata has the password.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.client import Client
from bkclient.errors import ClientError, MetadataSerializationError, NoSuchLedgerError
from bkclient.metadata.tree.store import MetadataStore
from bkclient.quorum.fragments import fragments_of
from bookied.data_integrity.repaired_storages import RepairedStorages
from bookied.errors import CorruptError
from wire.digest import Entry, master_key
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()

PAUSE_S: Final = 0.02
"""Seconds between two checks whether the storage can accept more entries."""

LOOKED_UP_AT_ONCE: Final = 1000
"""Entries that one lookup compares with the index."""


@attrs.define
class RepairProgress:
    """The counts of one repair. ``failed`` ledgers are to be tried again."""

    ledgers: int = 0
    recovered: int = 0
    copied: int = 0
    deleted: int = 0
    failed: int = 0


@attrs.define(eq=False)
class IntegrityCheck:
    """The check of one bookie. All methods belong to the reactor's thread."""

    _bookie_id: BookieId
    _ledgers: MetadataStore
    _storage: RepairedStorages
    _peers: OtherBookies
    _clock: IReactorTime

    async def mark(self, reason: str) -> int:
        """Create the missing ledgers, and put ledgers that may lack entries or fences into limbo.

        Return the number of ledgers in limbo. On return all changes are durable. The bookie must
        not serve before.

        Raises:
            MetadataStoreError: the ledgers cannot be listed or read.
            StorageError, OSError: the storage cannot write the changes.
        """
        log.warn("data may be missing ({reason}): comparing with the metadata", reason=reason)
        await self._storage.set_needs_check(needed=True)
        here = limbo = 0
        async for ledger_id, metadata in self._ledgers_kept_here():
            here += 1
            self._storage.ensure(ledger_id, _key_of(metadata))
            if may_have_forgotten(metadata, self._bookie_id):
                limbo += 1
                self._storage.forget(ledger_id)
        await self._storage.flush()
        log.warn(
            "{here} ledgers belong to this bookie; {limbo} of them are in limbo until recovered",
            here=here,
            limbo=limbo,
        )
        return limbo

    async def repair(self) -> RepairProgress:
        """Recover the ledgers in limbo and copy missing entries; do nothing if no check is needed.

        The flag of the check is removed only if no ledger failed. Otherwise call ``repair`` again
        after a pause.

        Raises:
            MetadataStoreError: the ledgers cannot be listed or read.
            StorageError, OSError: the storage cannot write entries.
        """
        found = RepairProgress()
        if not self._storage.needs_check:
            return found
        log.info("comparing the stored entries with the metadata")
        async for ledger_id, metadata in self._ledgers_kept_here(found):
            found.ledgers += 1
            await self._repair_ledger(ledger_id, metadata, found)
        await self._storage.flush()
        if not found.failed:
            await self._storage.set_needs_check(needed=False)
        log.info(
            "repaired: {found.ledgers} ledgers, {found.recovered} recovered, "
            "{found.copied} entries copied, {found.failed} ledgers to retry",
            found=found,
        )
        return found

    async def _repair_ledger(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, found: RepairProgress
    ) -> None:
        try:
            self._storage.ensure(ledger_id, _key_of(metadata))
            if self._storage.is_in_limbo(ledger_id):
                metadata = await self._peers.recover(ledger_id)
                self._storage.remember(ledger_id)
                found.recovered += 1
            await self._copy(ledger_id, metadata, found)
        except NoSuchLedgerError:
            found.deleted += 1
        except (ClientError, CorruptError) as error:
            found.failed += 1
            log.warn("ledger {id} is not repaired yet: {error}", id=ledger_id, error=error)

    async def _copy(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, found: RepairProgress
    ) -> None:
        owed = entries_owed(metadata, self._bookie_id)
        while wanted := list(islice(owed, LOOKED_UP_AT_ONCE)):
            lacking = await self._storage.lacking(ledger_id, wanted)
            if lacking:
                async for entry_id, packet in self._peers.packets(ledger_id, lacking):
                    await self._wait_while_busy()
                    self._storage.add(ledger_id, entry_id, packet)
                    found.copied += 1
            else:
                await self._pause(0)

    async def _wait_while_busy(self) -> None:
        while self._storage.is_busy:
            await self._pause(PAUSE_S)

    def _pause(self, seconds: float) -> Deferred[None]:
        return deferLater(self._clock, seconds, lambda: None)

    async def _ledgers_kept_here(
        self, progress: RepairProgress | None = None
    ) -> AsyncIterator[tuple[LedgerId, LedgerMetadata]]:
        """Yield the ledgers that the metadata places on this bookie, with their metadata.

        ``repair`` counts a ledger with unreadable metadata as failed and goes on. For ``mark`` the
        error is raised: the entries that the ledger lacks are unknown.
        """
        async for ids in self._ledgers.ledger_ranges():
            for ledger_id in ids:
                try:
                    metadata = (await self._ledgers.read_ledger(ledger_id)).value
                except NoSuchLedgerError:
                    continue  # The ledger was deleted after it was listed.
                except MetadataSerializationError as error:
                    if progress is None:
                        raise
                    progress.failed += 1
                    log.warn("ledger {id} is not repaired yet: {error}", id=ledger_id, error=error)
                    continue
                if belongs_here(metadata, self._bookie_id):
                    yield ledger_id, metadata


def _key_of(metadata: LedgerMetadata) -> bytes:
    """Return the master key; empty if the metadata has no password."""
    return b"" if metadata.password is None else master_key(metadata.password)


def belongs_here(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    """Return whether any fragment of the ledger names the bookie."""
    return bookie_id in metadata.all_bookies()


def may_have_forgotten(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    """Return whether the bookie may have lost an entry or a fence that no other source proves.

    Only the bookies of the last fragment of a ledger that is not closed know the last entry, and
    whether the writer was fenced. The ledger stays in limbo until it is recovered from the other
    bookies.
    """
    return not metadata.is_closed and bookie_id in metadata.last_fragment.ensemble


def entries_owed(metadata: LedgerMetadata, bookie_id: BookieId) -> Iterator[EntryId]:
    """Yield the entries that the bookie must store, ascending.

    For a closed ledger these are all entries. For an open ledger these are the entries before the
    last fragment, which are certainly part of the ledger.
    """
    for fragment in fragments_of(metadata, None):
        if bookie_id in fragment.ensemble:
            yield from fragment.entries_at(fragment.ensemble.index(bookie_id))


READS_AHEAD: Final = 64


class OtherBookies:
    """A client that recovers ledgers and reads entries from the other bookies.

    The client also asks this bookie. For data under repair, this bookie answers "unknown state" or
    "no such entry", and the client asks the next bookie.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def recover(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Recover the ledger and return its metadata.

        Raises:
            NoSuchLedgerError: the ledger was deleted.
            ClientError: the ledger cannot be recovered now.
        """
        with closing(await self._client.open_ledger(ledger_id)) as reader:
            return reader.metadata

    async def packets(
        self, ledger_id: LedgerId, wanted: Sequence[EntryId]
    ) -> AsyncIterator[tuple[EntryId, bytes]]:
        """Yield the verified packets of the entries ``wanted``, ascending; up to 64 are read ahead.

        Raises:
            NoSuchLedgerError: the ledger was deleted.
            ClientError: an entry cannot be read now.
        """
        metadata = (await self._client.read_metadata(ledger_id)).value
        keys = self._client.keys_of(ledger_id, metadata)
        fetcher = self._client.cluster.fetcher(keys)
        ahead: deque[Deferred[Entry]] = deque()
        left = deque(wanted)
        try:
            while ahead or left:
                while left and len(ahead) < READS_AHEAD:
                    ahead.append(fetcher.entry(metadata, left.popleft()))
                entry = await ahead.popleft()
                yield entry.entry_id, keys.packet_of(entry)
        finally:
            for read in ahead:
                read.addErrback(lambda _failure: None)
                read.cancel()
            fetcher.close()
