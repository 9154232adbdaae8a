"""The move of ledgers from lost or leaving bookies to others, ledger by ledger, by an operator.

Agrees with BookKeeper 4.18.0, BookKeeperAdmin.recoverBookieData. Stricter: each ledger is checked
again after its fragments were copied. Its lock is acquired if it is free, so that no bookie deletes
the new copies as over-replicated. Cookies are deleted by the rule of ``stored_cookies``.
"""

from __future__ import annotations

import enum
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Final

import attrs

from bkclient.admin.cookies import delete_cookies, require_gone
from bkclient.admin.ledger_scan import read_ledgers, walk
from bkclient.client import Client
from bkclient.concurrency import for_each
from bkclient.errors import (
    ClientError,
    IncorrectParameterError,
    LedgerRecoveryError,
    MetadataStoreError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from bkclient.metadata.versions_and_watches import StoredLedger
from bkclient.quorum.fragments import LedgerFragment, MissingPlaces, fragments_of, is_lost
from bkclient.replication.fragment_copy import ByteRate, CopiedEntry, FragmentRepairer
from bkclient.replication.replica_check import LedgerChecker, LedgerView, view_ledger
from wire.codes import LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

PASSES_MAX: Final = 3
"""The most passes over a ledger that other clients change at the same time."""


@attrs.frozen(kw_only=True)
class RecoverOptions:
    """Options of a recovery.

    ``ledger_ids``: these ledgers only. ``dry_run``: change nothing, report the plan. ``skip_open``:
    skip ledgers in the state OPEN, with a writer or not yet recovered. ``spare_writers``: skip only
    the fragments that a writer may still extend. ``skip_unrecoverable``: continue after a ledger
    that fails. ``bytes_per_s``: the limit of copying; ``None`` is the client's setting.
    ``delete_cookies``: delete the bookies' cookies at the end. ``to``: the only bookie that may be
    chosen. ``at_once``: ledgers in progress at a time.
    """

    ledger_ids: Sequence[LedgerId] | None = None
    dry_run: bool = False
    skip_open: bool = False
    spare_writers: bool = False
    skip_unrecoverable: bool = False
    bytes_per_s: int | None = None
    delete_cookies: bool = False
    to: BookieId | None = None
    at_once: int = 1


class LedgerOutcome(enum.Enum):
    """The outcome of one ledger."""

    MOVED = "moved"
    PLANNED = "planned"
    """Dry run: ``fragments`` has the plan."""
    SKIPPED_OPEN = "skipped, open"
    DELETED = "deleted meanwhile"
    FAILED = "failed"


@attrs.frozen
class FragmentMove:
    """A fragment's ensemble before and after; ``new`` is ``None`` if too few bookies are available.

    ``copies`` is the number of copies to write. ``is_lost`` is True if no registered bookie has
    some of the entries.
    """

    first: EntryId
    last: EntryId
    old: tuple[BookieId, ...]
    new: tuple[BookieId, ...] | None
    copies: int = 0
    is_lost: bool = False


@attrs.frozen(kw_only=True)
class LedgerMove:
    """One ledger and its outcome. ``fenced``: True if its writer was, or would be, fenced.

    ``size_bytes``: the bytes of the copies, by the average entry; ``None`` if unknown, as for a
    ledger that is not closed.
    """

    ledger_id: LedgerId
    outcome: LedgerOutcome
    fenced: bool = False
    fragments: tuple[FragmentMove, ...] = ()
    size_bytes: int | None = None
    error: ClientError | None = None

    @property
    def copies(self) -> int:
        """The number of copies to write."""
        return sum(move.copies for move in self.fragments)

    @property
    def is_unrecoverable(self) -> bool:
        """True if some fragments cannot be moved now."""
        return any(move.is_lost or move.new is None for move in self.fragments)


@attrs.frozen
class BookieLedger:
    """A ledger with fragments on certain bookies."""

    ledger_id: LedgerId
    metadata: LedgerMetadata
    fragments: tuple[EntryId, ...]
    """The first entries of these fragments."""

    def load(self, bookies: Collection[BookieId]) -> MoveLoad:
        """Return the copies and bytes on the bookies, according to the metadata."""
        closed = fragments_of(self.metadata, None)
        copies = sum(
            fragment.count_at(index) for fragment in closed for index in _places(fragment, bookies)
        )
        return MoveLoad(copies, size_of(self.metadata, copies))


@attrs.frozen
class MoveLoad:
    """The number of copies of entries, and their bytes; ``None`` if the bytes are still unknown."""

    copies: int
    size_bytes: int | None


def copies_by_bookie(metadata: LedgerMetadata) -> Counter[BookieId]:
    """Return the number of copies on each bookie of a closed ledger, according to the metadata."""
    copies: Counter[BookieId] = Counter()
    for fragment in fragments_of(metadata, None):
        for index, bookie_id in enumerate(fragment.ensemble):
            copies[bookie_id] += fragment.count_at(index)
    return copies


def size_of(metadata: LedgerMetadata, copies: int) -> int | None:
    """Return the bytes of ``copies`` copies of average entries.

    ``None`` if the ledger is not closed.
    """
    if metadata.last_entry_id is None:
        return None
    entries = metadata.last_entry_id + 1
    return copies * metadata.length // entries if entries else 0


@attrs.frozen
class RecoverReport:
    """The result for all ledgers of the bookies: counts, and the ledgers that were not moved."""

    moved: int
    copied_entries: int
    copied_bytes: int
    left: tuple[LedgerMove, ...]
    cookies_deleted: tuple[BookieId, ...] = ()


Report = Callable[[LedgerMove], None]


def _require_readable(_ledger_id: LedgerId, error: ClientError) -> None:
    raise error


async def ledgers_on_bookies(
    client: Client,
    bookies: Collection[BookieId],
    *,
    ledger_ids: Sequence[LedgerId] | None = None,
    unreadable: Callable[[LedgerId, ClientError], None] = _require_readable,
) -> AsyncIterator[BookieLedger]:
    """Yield the ledgers that list one of these bookies, ascending.

    ``ledger_ids`` limits the search; ``None`` means all ledgers. ``unreadable`` is called for
    ledgers whose metadata cannot be read; by default the first one ends the search.

    Raises:
        MetadataSerializationError: a ledger's metadata cannot be read.
        MetadataStoreError: the store failed.
    """
    async for one in _stored(client, ledger_ids):
        if one.error is not None:
            unreadable(one.ledger_id, one.error)
        elif one.metadata is not None:
            fragments = one.metadata.fragments
            firsts = [f.first_entry_id for f in fragments if not _spares(f.ensemble, bookies)]
            if firsts:
                yield BookieLedger(one.ledger_id, one.metadata, tuple(firsts))


async def _stored(
    client: Client, ledger_ids: Sequence[LedgerId] | None
) -> AsyncIterator[StoredLedger]:
    if ledger_ids is None:
        async for one in walk(client.store):
            yield one
    else:
        for one in await read_ledgers(client.store, sorted(set(ledger_ids))):
            yield one


def _spares(ensemble: Collection[BookieId], bookies: Collection[BookieId]) -> bool:
    return not any(bookie in bookies for bookie in ensemble)


async def recover_bookies(
    client: Client,
    bookies: Collection[BookieId],
    options: RecoverOptions | None = None,
    report: Report = lambda _move: None,
    copied: Callable[[CopiedEntry], None] = lambda _copied: None,
) -> RecoverReport:
    """Copy the entries of these bookies to others, which replace them in the ensembles.

    The call may be interrupted and repeated at any time: moved ledgers stay moved. ``report`` is
    called for each ledger, ``copied`` for each entry. Ledgers with unreadable metadata are not
    moved; they may be on these bookies. If any ledger is not moved, all cookies stay.

    Raises:
        IncorrectParameterError: there are no bookies, or options cannot be combined.
        IllegalOperationError: cookies are to be deleted, and one of the bookies is registered.
        CookieNeededError: ledgers were moved, but an unclosed ledger needs a cookie.
        LedgerRecoveryError: a ledger failed, and ``skip_unrecoverable`` is False.
        MetadataStoreError: the store failed.
    """
    options = RecoverOptions() if options is None else options
    if not bookies:
        raise IncorrectParameterError("no bookie to recover; name at least one")
    if options.to in bookies:
        raise IncorrectParameterError(
            f"{options.to} is one of the bookies to recover; give another target"
        )
    if options.delete_cookies and (options.dry_run or options.ledger_ids is not None):
        raise IncorrectParameterError(
            "cookies are deleted only after all ledgers were moved; a dry run or a list of ledgers "
            "cannot delete them"
        )
    if options.delete_cookies:
        await require_gone(client, bookies)
    return await _Recovery(client, frozenset(bookies), options, report, copied).run()


class _Recovery:
    """One run of ``recover_bookies``."""

    def __init__(
        self,
        client: Client,
        bookies: frozenset[BookieId],
        options: RecoverOptions,
        report: Report,
        copied: Callable[[CopiedEntry], None],
    ) -> None:
        self._client, self._bookies, self._options = client, bookies, options
        self._report, self._report_copied = report, copied
        self._entries = self._bytes = self._moved = 0
        self._left: list[LedgerMove] = []
        config = client.config
        rate = config.repair_bytes_per_s if options.bytes_per_s is None else options.bytes_per_s
        self._repairer = FragmentRepairer(
            cluster=client.cluster,
            rate=ByteRate(client.cluster.clock, rate),
            batch_entries=config.repair_batch_entries,
            report=self._copied,
        )
        # Only the copies are checked, without random samples.
        self._checker = LedgerChecker(client=client, rng=random.Random(0))

    async def run(self) -> RecoverReport:
        """Move the ledgers, ``at_once`` at a time."""
        found = ledgers_on_bookies(
            self._client,
            self._bookies,
            ledger_ids=self._options.ledger_ids,
            unreadable=lambda ledger_id, error: self._leave(_failed(ledger_id, error)),
        )
        ids = [one.ledger_id async for one in found]
        await for_each(ids, self._move_and_report, self._options.at_once)
        cookies: tuple[BookieId, ...] = ()
        if self._options.delete_cookies and not self._left:
            cookies = await delete_cookies(self._client, self._bookies)
        return RecoverReport(self._moved, self._entries, self._bytes, tuple(self._left), cookies)

    async def _move_and_report(self, ledger_id: LedgerId) -> None:
        self._ended(await self._move(ledger_id))

    def _ended(self, move: LedgerMove) -> None:
        """Count and report the outcome of a ledger; raise if its failure ends the recovery."""
        if move.outcome in {LedgerOutcome.MOVED, LedgerOutcome.DELETED}:
            self._moved += move.outcome is LedgerOutcome.MOVED
            self._report(move)
            return
        self._leave(move)
        if move.error is not None and not self._options.skip_unrecoverable:
            text = f"ledger {move.ledger_id} cannot be moved: {move.error}"
            raise LedgerRecoveryError(text) from move.error

    def _leave(self, move: LedgerMove) -> None:
        self._report(move)
        self._left.append(move)

    def _copied(self, copied: CopiedEntry) -> None:
        self._entries += copied.copies
        self._bytes += copied.copies * copied.payload_bytes
        self._report_copied(copied)

    async def _move(self, ledger_id: LedgerId) -> LedgerMove:
        if self._options.dry_run:
            return await self._try_to_move(ledger_id)
        store = self._client.store
        locked = True  # After an error the lock may be stored.
        try:
            locked = await store.acquire_lock(ledger_id)
            move = await self._try_to_move(ledger_id)
        except Exception:
            if locked:
                await store.release_lock(ledger_id)
            raise
        if locked:
            await store.release_lock(ledger_id)
        return move

    async def _try_to_move(self, ledger_id: LedgerId) -> LedgerMove:
        try:
            return await self._move_one(ledger_id)
        except NoSuchLedgerError:
            return LedgerMove(ledger_id=ledger_id, outcome=LedgerOutcome.DELETED)
        except MetadataStoreError:
            raise
        except ClientError as error:
            return _failed(ledger_id, error)

    async def _move_one(self, ledger_id: LedgerId) -> LedgerMove:
        ledger = await view_ledger(self._client, ledger_id)
        if self._options.skip_open and ledger.metadata.state is LedgerState.OPEN:
            return LedgerMove(ledger_id=ledger_id, outcome=LedgerOutcome.SKIPPED_OPEN)
        # A growing fragment cannot be copied: its writer has to be fenced first.
        fences = not ledger.metadata.is_closed and not _spares(
            ledger.metadata.ensemble, self._bookies
        )
        if self._options.dry_run:
            return await self._plan(ledger, fences=fences)
        spares = fences and self._options.spare_writers
        if fences and not spares:
            (await self._client.open_ledger(ledger_id, recover=True)).close()
        moves: list[FragmentMove] = []
        for _ in range(PASSES_MAX):
            ledger = await view_ledger(self._client, ledger_id)
            lacks = self._to_move(ledger) or await self._missing(ledger, moves)
            if not lacks:
                return LedgerMove(
                    ledger_id=ledger_id,
                    outcome=LedgerOutcome.SKIPPED_OPEN if spares else LedgerOutcome.MOVED,
                    fenced=fences and not spares,
                    fragments=tuple(moves),
                )
            for lack in lacks:
                swap = await self._repairer.repair(
                    ledger, lack, avoid=self._bookies, only=self._options.to
                )
                moves.append(_move_of(lack, swap.of(lack.fragment.ensemble)))
        raise LedgerRecoveryError("other clients keep changing it, or too few bookies are left")

    def _to_move(self, ledger: LedgerView) -> list[MissingPlaces]:
        """Return the places of the bookies in all fragments that do not grow."""
        return [
            MissingPlaces(fragment, places)
            for fragment in fragments_of(ledger.metadata, ledger.lac)
            if fragment.is_closed and (places := _places(fragment, self._bookies))
        ]

    async def _missing(self, ledger: LedgerView, moves: list[FragmentMove]) -> list[MissingPlaces]:
        """Return new places without copies: a bookie may have deleted them as over-replicated."""
        if not moves:
            return []
        store = self._client.store
        available = await store.registered_bookies()
        moved = {
            (move.first, bookie) for move in moves for bookie in set(move.new or ()) - set(move.old)
        }
        found = []
        for lack in await self._checker.check(ledger, available):
            places = tuple(
                index
                for index in lack.indexes
                if (lack.fragment.first, lack.fragment.ensemble[index]) in moved
            )
            if places:
                found.append(MissingPlaces(lack.fragment, places))
        return found

    async def _plan(self, ledger: LedgerView, *, fences: bool) -> LedgerMove:
        metadata = ledger.metadata
        if not metadata.is_closed:
            last = metadata.last_fragment
            end = EntryId(max(last.first_entry_id - 1, -1 if ledger.lac is None else ledger.lac))
            metadata = attrs.evolve(metadata, state=LedgerState.CLOSED, last_entry_id=end, length=0)
        store = self._client.store
        available = await store.registered_bookies()
        moves = []
        for fragment in fragments_of(metadata, None):
            places = _places(fragment, self._bookies)
            if places:
                moves.append(
                    await self._planned(ledger, MissingPlaces(fragment, places), available)
                )
        return LedgerMove(
            ledger_id=ledger.ledger_id,
            outcome=LedgerOutcome.PLANNED,
            fenced=fences,
            fragments=tuple(moves),
            size_bytes=size_of(ledger.metadata, sum(move.copies for move in moves)),
        )

    async def _planned(
        self, ledger: LedgerView, lack: MissingPlaces, available: Collection[BookieId]
    ) -> FragmentMove:
        try:
            swap = await self._repairer.plan(
                ledger, lack, avoid=self._bookies, only=self._options.to
            )
        except NotEnoughBookiesError:
            new = None
        else:
            new = swap.of(lack.fragment.ensemble)
        return attrs.evolve(_move_of(lack, new), is_lost=is_lost(lack.fragment, available))


def _places(fragment: LedgerFragment, bookies: Collection[BookieId]) -> tuple[int, ...]:
    return tuple(index for index, bookie in enumerate(fragment.ensemble) if bookie in bookies)


def _failed(ledger_id: LedgerId, error: ClientError) -> LedgerMove:
    return LedgerMove(ledger_id=ledger_id, outcome=LedgerOutcome.FAILED, error=error)


def _move_of(lack: MissingPlaces, new: tuple[BookieId, ...] | None) -> FragmentMove:
    fragment = lack.fragment
    copies = sum(fragment.count_at(index) for index in lack.indexes)
    return FragmentMove(fragment.first, fragment.last, fragment.ensemble, new, copies)
