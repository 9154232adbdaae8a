"""Repairs a bookie that lost data: what it may have forgotten goes into limbo, then comes back.

Two steps, as in BookKeeper 4.18.0, DataIntegrityCheckImpl and EntryCopierImpl (BP-46). Before the
bookie serves, ``mark``: every ledger that the metadata places here exists again, and one that is
not closed and grows here goes into limbo, fenced: asked for it the bookie says that it does not
know, so that no reader takes its "no such entry" for an answer. While it serves, ``repair``:
ledgers in limbo are recovered from the others, missing entries copied. A flag in the storage
survives until all of that is done.

Unlike Java's, copies are verified by their digest, and a ledger's master key comes from its
metadata where that has the password.
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
from bkclient.metadata.api import LedgerStore
from bkclient.quorum.fragments import fragments_of
from bookied.data_integrity.repaired_storages import RepairedStorages
from bookied.errors import CorruptError
from wire.digest import Entry, master_key
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

log = Logger()

PAUSE_S: Final = 0.02
"""Between two looks whether the storage has written what it was given."""

LOOKED_UP_AT_ONCE: Final = 1000
"""Entries of one look into the index for what is missing."""


@attrs.define
class RepairProgress:
    """How far a check came. ``failed`` are ledgers to try again."""

    ledgers: int = 0
    recovered: int = 0
    copied: int = 0
    deleted: int = 0
    failed: int = 0


@attrs.define(eq=False)
class IntegrityCheck:
    """The check of one bookie. All methods belong to the reactor's thread."""

    _bookie_id: BookieId
    _ledgers: LedgerStore
    _storage: RepairedStorages
    _peers: OtherBookies
    _clock: IReactorTime

    async def mark(self, reason: str) -> int:
        """Let ledgers exist that should; put what may be forgotten into limbo, return how many.

        On return all of it is durable. The bookie must not serve before.

        Raises:
            MetadataStoreError: the ledgers are not known.
            StorageError: it could not be written down. So for ``OSError``.
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
        """Recover what is in limbo and copy what is missing; nothing where no check is needed.

        The flag that asks for it goes only when nothing failed; else call again after a while.

        Raises:
            MetadataStoreError: the ledgers are not known.
            StorageError: entries could not be written. So for ``OSError``.
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
        """Yield the ledgers that belong here, with their metadata.

        During the repair a ledger with unreadable metadata counts as failed, and the others go on.
        Before that the error is raised: what the ledger may lack here is unknown.
        """
        async for ids in self._ledgers.ledger_ranges():
            for ledger_id in ids:
                try:
                    metadata = (await self._ledgers.read_ledger(ledger_id)).value
                except NoSuchLedgerError:
                    continue  # Deleted since it was listed.
                except MetadataSerializationError as error:
                    if progress is None:
                        raise
                    progress.failed += 1
                    log.warn("ledger {id} is not repaired yet: {error}", id=ledger_id, error=error)
                    continue
                if belongs_here(metadata, self._bookie_id):
                    yield ledger_id, metadata


def _key_of(metadata: LedgerMetadata) -> bytes:
    """Return the master key, empty where the metadata has no password."""
    return b"" if metadata.password is None else master_key(metadata.password)


def belongs_here(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    """Return whether any fragment of the ledger names the bookie."""
    return bookie_id in metadata.all_bookies()


def may_have_forgotten(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    """Return whether an entry or a fence may be lost that only this bookie knows.

    Of a ledger that is not closed, the bookies of the last fragment alone know where it ends, and
    whether its writer was fenced. A ledger like that goes into limbo until it was recovered from
    others.
    """
    return not metadata.is_closed and bookie_id in metadata.last_fragment.ensemble


def entries_owed(metadata: LedgerMetadata, bookie_id: BookieId) -> Iterator[EntryId]:
    """Give the entries that the bookie has to hold, ascending.

    They are all up to the last one if the ledger is closed, else those before the fragment that
    still grows: these are in the ledger for sure.
    """
    for fragment in fragments_of(metadata, None):
        if bookie_id in fragment.ensemble:
            yield from fragment.entries_at(fragment.ensemble.index(bookie_id))


READS_AHEAD: Final = 64


class OtherBookies:
    """Recovers ledgers and reads entries of the other bookies.

    The bookie itself is asked like any other: it says "unknown state" or "no such entry" for what
    is being repaired, and the client turns to the next.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def recover(self, ledger_id: LedgerId) -> LedgerMetadata:
        """Recover the ledger and return its metadata.

        Raises:
            NoSuchLedgerError: it was deleted.
            ClientError: it cannot be recovered now.
        """
        with closing(await self._client.open_ledger(ledger_id)) as reader:
            return reader.metadata

    async def packets(
        self, ledger_id: LedgerId, wanted: Sequence[EntryId]
    ) -> AsyncIterator[tuple[EntryId, bytes]]:
        """Give the verified packets of some entries, ascending; some are read ahead.

        Raises:
            NoSuchLedgerError: it was deleted.
            ClientError: one cannot be read now.
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
