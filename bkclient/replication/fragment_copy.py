"""Copies of a fragment's missing entries to other bookies, which then replace ensemble members.

The order makes this safe: every entry of a place is synced on its new bookie before the metadata
names that bookie. The metadata changes by compare-and-swap, under the rules of ``fragments``. A
process interrupted in between leaves copies that no reader requests.

Agrees with BookKeeper 4.18.0, LedgerFragmentReplicator. Java sends every entry to all new bookies
and writes its own LAC. This module sends a bookie only the entries of its place, unchanged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count, islice
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from bkclient.concurrency import RateLimit, SharedRun, for_each, map_each, rate_limit
from bkclient.connection.add_frames import AddBatch, FrameMaker, LedgerKeys
from bkclient.connection.pool import BookiePool
from bkclient.errors import ClientError, ReplicationError, UnclosedFragmentError
from bkclient.ledger.adds.ensemble_members import AddFraming, Member
from bkclient.ledger.cluster import Cluster
from bkclient.ledger.reads.entry_fetcher import EntryFetcher
from bkclient.quorum.fragments import (
    LedgerFragment,
    MissingPlaces,
    Swap,
    swap_between,
    swap_is_needed,
    swapped,
)
from bkclient.replication.replica_check import OURS, LedgerView, places_that_answer
from wire.codes import AddFlag, ProtocolVersion
from wire.digest import Entry
from wire.frames.bulk_adds import Packed
from wire.ids import BookieId, EntryId, LedgerId

log = Logger()

AVERAGE_BYTES_FIRST: Final = 1024
AVERAGE_WEIGHT: Final = 0.8
"""The weight of the average so far; the rest is the weight of the last entry."""

BATCHES_AT_ONCE: Final = 4
"""Batches of a fragment that are read or written at a time."""
BATCH_BYTES_MAX: Final = 8 << 20
"""The most bytes of a batch, estimated from the average entry; one entry may exceed it."""


class UnreadableEntryError(ReplicationError):
    """No bookie returns an entry that has to be copied."""

    def __init__(self, entry_id: EntryId, message: str) -> None:
        super().__init__(message)
        self.entry_id = entry_id


class ByteRate:
    """A limit of bytes copied in a second, estimated from the average entry.

    The ledger with the lowest id goes first. So ledgers end one after another, and an interruption
    loses only the copies of unfinished ledgers.
    """

    def __init__(self, clock: IReactorTime, bytes_per_s: int) -> None:
        """Limit to ``bytes_per_s``; 0 or less means no limit."""
        self._clock, self._limit = clock, rate_limit(clock, bytes_per_s)
        self._waiting: list[tuple[LedgerId, int, Deferred[None]]] = []
        self._numbers = count()
        self._timer: IDelayedCall | None = None
        self.average_bytes = AVERAGE_BYTES_FIRST

    async def entry(self, ledger_id: LedgerId) -> None:
        """Wait until the limit allows another entry of a ledger."""
        if self._limit is None:
            return
        if not self._waiting and not self._limit.wait_s:
            self._limit.take(self.average_bytes)
            return
        turn: Deferred[None] = Deferred()
        heappush(self._waiting, (ledger_id, next(self._numbers), turn))
        if self._timer is None:
            self._timer = self._clock.callLater(self._limit.wait_s, self._let_go, self._limit)
        await turn

    def _let_go(self, limit: RateLimit) -> None:
        while self._waiting and not limit.wait_s:
            turn = heappop(self._waiting)[-1]
            if not turn.called:  # A cancelled turn has been called.
                limit.take(self.average_bytes)
                turn.callback(None)
        self._timer = None
        if self._waiting:
            self._timer = self._clock.callLater(limit.wait_s, self._let_go, limit)

    def copied(self, size_bytes: int) -> None:
        """Update the average entry size."""
        older, newer = self.average_bytes * AVERAGE_WEIGHT, size_bytes * (1 - AVERAGE_WEIGHT)
        self.average_bytes = max(1, int(older + newer))


@attrs.frozen
class CopiedEntry:
    """One entry copied to ``copies`` bookies; ``size_bytes`` includes its header and digest."""

    entry_id: EntryId
    size_bytes: int
    copies: int
    payload_bytes: int


@attrs.frozen(kw_only=True)
class FragmentRepairer:
    """The repair of fragments, one at a time or several.

    A batch has up to ``batch_entries``; ``BATCHES_AT_ONCE`` are copied at a time. ``report`` is
    called for each entry, not always in order.
    """

    cluster: Cluster
    rate: ByteRate
    batch_entries: int
    report: Callable[[CopiedEntry], None] = lambda _copied: None

    async def plan(
        self,
        ledger: LedgerView,
        lack: MissingPlaces,
        *,
        avoid: Collection[BookieId] = (),
        only: BookieId | None = None,
    ) -> Swap:
        """Choose new bookies for the places; for some of the places if there are too few bookies.

        Args:
            ledger: the ledger of the fragment.
            lack: the places of the fragment.
            avoid: bookies that must not be chosen.
            only: the only bookie that may be chosen.

        Raises:
            NotEnoughBookiesError: no bookie can be chosen for any of the places.
        """
        fragment = lack.fragment
        leaving = zip(lack.indexes, lack.bookies, strict=True)
        replacement = await self.cluster.replacement(ledger.metadata, leaving)
        usable = replacement.writable - frozenset(avoid)
        if only is not None:
            usable &= {only}
        ensemble = attrs.evolve(replacement, writable=usable).of(fragment.ensemble)
        return swap_between(fragment, ensemble)

    async def repair(
        self,
        ledger: LedgerView,
        lack: MissingPlaces,
        *,
        avoid: Collection[BookieId] = (),
        only: BookieId | None = None,
    ) -> Swap:
        """Copy the missing entries and store the new ensemble; return the replaced places.

        See ``plan`` for the choice of bookies.

        Raises:
            UnclosedFragmentError: the fragment may still grow.
            NotEnoughBookiesError: no bookie can store the copies.
            UnreadableEntryError: no bookie returns an entry.
            FragmentChangedError: another client made an incompatible change to the fragment, which
                has to be checked again.
            ClientError: a new bookie does not accept an entry, or the store failed.
        """
        if not lack.fragment.is_closed:
            raise UnclosedFragmentError(
                f"the fragment of ledger {ledger.ledger_id} at entry {lack.fragment.first} "
                "may still grow"
            )
        swap = await self.plan(ledger, lack, avoid=avoid, only=only)
        return await self.carry_out(ledger, lack, swap)

    async def carry_out(self, ledger: LedgerView, lack: MissingPlaces, swap: Swap) -> Swap:
        """Copy entries to the bookies of a plan, then store the new ensemble; see ``repair``.

        A bookie that did not answer in the check, but answers after the copy, keeps its place. The
        returned swap is without this place.
        """
        entries = lack.fragment.entries_at_any(tuple(swap.new))
        await _FragmentCopy(self, ledger, lack.fragment, swap.new, entries).run()
        swap = swap.without(await places_that_answer(self.cluster, ledger, lack, swap.new))
        if swap.new:
            await self._store(ledger, swap)
        return swap

    async def write_again(
        self, ledger: LedgerView, fragment: LedgerFragment, index: int, entries: Iterator[EntryId]
    ) -> list[UnreadableEntryError]:
        """Write entries again on the bookie at ``index``, read from the bookies that have them.

        Return the errors of the entries that no bookie returns; the others are written.

        Raises:
            ClientError: the bookie does not accept an entry.
        """
        again = {index: fragment.ensemble[index]}
        lost: list[UnreadableEntryError] = []
        await _FragmentCopy(self, ledger, fragment, again, entries, lost.append).run()
        return lost

    async def _store(self, ledger: LedgerView, swap: Swap) -> None:
        await self.cluster.updater.update(
            ledger.ledger_id,
            ledger.local,
            lambda metadata: swap_is_needed(metadata, swap),
            lambda metadata: swapped(metadata, swap),
        )
        log.info(
            "ledger {id}: the fragment at entry {first} has {new} in place of {old}",
            id=ledger.ledger_id,
            first=swap.first,
            old=", ".join(swap.old.values()),
            new=", ".join(swap.new.values()),
        )

    async def try_reading(self, ledger: LedgerView, entries: Collection[EntryId]) -> None:
        """Read some entries and drop them.

        Raises:
            UnreadableEntryError: no bookie returns an entry.
        """
        with contextlib.closing(self.cluster.fetcher(ledger.keys)) as fetcher:
            await for_each(
                entries, lambda entry_id: read(fetcher, ledger, entry_id), self.batch_entries
            )


async def read(fetcher: EntryFetcher, ledger: LedgerView, entry_id: EntryId) -> Entry:
    """Return an entry from a bookie that has it.

    Raises:
        UnreadableEntryError: no bookie returns the entry.
    """
    try:
        return await fetcher.entry(ledger.metadata, entry_id)
    except OURS:
        raise
    except ClientError as error:
        raise UnreadableEntryError(entry_id, str(error)) from error


class _FragmentCopy:
    """The copy of entries of one fragment, several batches at a time."""

    def __init__(
        self,
        repairer: FragmentRepairer,
        ledger: LedgerView,
        fragment: LedgerFragment,
        bookies: Mapping[int, BookieId],
        entries: Iterator[EntryId],
        leave_out: Callable[[UnreadableEntryError], None] | None = None,
    ) -> None:
        """Copy ``entries`` to the ``bookies``, by their index in the ensemble.

        ``leave_out`` is called for each entry that no bookie returns; otherwise the copy ends.
        """
        self._leave_out = leave_out
        self._repairer, self._ledger = repairer, ledger
        self._fragment, self._entries = fragment, entries
        self._fetcher = repairer.cluster.fetcher(ledger.keys)
        pool, keys = repairer.cluster.pool, ledger.keys
        self._targets = {i: _NewReplica(pool, keys, i, bookie) for i, bookie in bookies.items()}

    async def run(self) -> None:
        """Copy all batches; return when every entry of a place is synced on its new bookie."""
        try:
            await for_each(self._batches(), self._copy, BATCHES_AT_ONCE)
        finally:
            for target in self._targets.values():
                target.leave()
            self._fetcher.close()

    def _batches(self) -> Iterator[list[EntryId]]:
        while batch := list(islice(self._entries, self._batch_entries())):
            yield batch

    def _batch_entries(self) -> int:
        fitting = BATCH_BYTES_MAX // self._repairer.rate.average_bytes
        return max(1, min(self._repairer.batch_entries, fitting))

    async def _copy(self, batch: list[EntryId]) -> None:
        await self._write(await self._read(batch))

    async def _read(self, batch: list[EntryId]) -> list[Entry]:
        for _ in batch:
            await self._repairer.rate.entry(self._ledger.ledger_id)
        bulk = self._fetcher.entries(self._ledger.metadata, batch)
        # A cancelled bulk read would count as a slow bookie, so the answer is ignored instead.
        with contextlib.suppress(ClientError):  # Single reads name the failed entry.
            return (await SharedRun(bulk).wait()).entries()
        found = await map_each(batch, self._read_one, len(batch))
        return [entry for entry in found if entry is not None]

    async def _read_one(self, entry_id: EntryId) -> Entry | None:
        try:
            return await read(self._fetcher, self._ledger, entry_id)
        except UnreadableEntryError as error:
            if self._leave_out is None:
                raise
            self._leave_out(error)
            return None

    async def _write(self, batch: list[Entry]) -> None:
        packed: list[Packed] = [(e.entry_id, self._ledger.keys.packet_of(e)) for e in batch]

        async def write(index: int) -> None:
            own = [p for p in packed if self._fragment.holds(p[0], index)]
            await self._targets[index].write(own)

        await for_each(self._targets, write, len(self._targets))
        for entry, (entry_id, packet) in zip(batch, packed, strict=True):
            copies = sum(self._fragment.holds(entry_id, index) for index in self._targets)
            self._repairer.rate.copied(len(packet))
            self._repairer.report(
                CopiedEntry(EntryId(entry_id), len(packet), copies, len(entry.payload))
            )


class _EntryWrite:
    """Entries in flight to one bookie."""

    def __init__(self, entries: list[int]) -> None:
        self.entries = entries
        self.done: Deferred[None] = Deferred()
        self._unconfirmed = len(entries)

    def acked(self) -> None:
        """Count one entry that the bookie has confirmed."""
        self._unconfirmed -= 1
        if not self._unconfirmed and not self.done.called:
            self.done.callback(None)

    def failed(self, error: ClientError) -> None:
        """Fail with the first error."""
        if not self.done.called:
            self.done.errback(error)


class _NewReplica:
    """A new bookie for a place, which gets the entries striped to the place."""

    def __init__(self, pool: BookiePool, keys: LedgerKeys, index: int, bookie: BookieId) -> None:
        # With the flag, a fenced ledger accepts the copies.
        self._frames = FrameMaker(keys, AddFlag.RECOVERY, pool.txn_ids)
        self._writes: dict[int, _EntryWrite] = {}
        self._member = Member(
            pool,
            AddFraming(keys, self._frames, ProtocolVersion.V3),
            index,
            bookie,
            acked=self._acked,
            failed=self._failed,
        )

    async def write(self, packed: list[Packed]) -> None:
        """Write entries; return when they are synced on the bookie.

        Raises:
            ClientError: an entry is refused, or not confirmed in time.
        """
        if packed:
            write = _EntryWrite([entry_id for entry_id, _ in packed])
            self._writes.update(dict.fromkeys(write.entries, write))
            self._member.send(AddBatch(packed, self._frames))
            await write.done

    def leave(self) -> None:
        """Ignore all further answers."""
        self._member.part()

    def _acked(self, _member: Member, entries: list[int]) -> None:
        for entry_id in entries:
            if (write := self._writes.pop(entry_id, None)) is not None:
                write.acked()

    def _failed(self, _member: Member, entries: list[int], error: ClientError) -> None:
        for entry_id in entries:
            if (write := self._writes.pop(entry_id, None)) is not None:
                write.failed(error)
