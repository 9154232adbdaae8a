"""The decommission of a bookie: autorecovery moves its ledgers, then its cookie is deleted.

Waits for the same state as BookKeeper 4.18.0, BookKeeperAdmin.decommissionBookie. Java requests an
audit and waits half a minute for the auditor. This module marks the bookie's ledgers itself, as an
auditor would. The cluster's workers, Java's or bookied's, repair them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs
from twisted.internet.task import deferLater

from bkclient.admin.cookies import delete_cookies, needs_cookies, require_gone
from bkclient.admin.ledger_scan import READS_AT_ONCE
from bkclient.client import Client
from bkclient.concurrency import for_each
from bkclient.errors import IllegalOperationError, NoSuchLedgerError
from bkclient.metadata.versions_and_watches import DamagedMark, MarkError
from bkclient.quorum.fragments import may_hold_entries, needs_recovery
from bkclient.replication.recover_bookies import BookieLedger, MoveLoad, ledgers_on_bookies
from bkclient.replication.repair_states import LedgerRepairState, MissingReplicas, repair_states
from bkclient.replication.replica_check import LedgerChecker, view_ledger
from wire.errors import MetadataFormatError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

LOOK_S_PER_LEDGER: Final = 3.0
LOOK_S_MAX: Final = 30.0
"""The most seconds between two checks of the remaining ledgers.

Java checks every five minutes if many remain.
"""

STUCK_S: Final = 60.0
"""Seconds without progress before the progress report names the ledgers that wait."""

STUCK_SHOWN: Final = 10
"""The most ledgers in that report."""


@attrs.frozen(kw_only=True)
class DecommissionProgress:
    """The progress of a decommission.

    ``step``: ``marking``, ``moving``, ``moving what is marked``, ``deleting the cookie`` or
    ``done``.
    ``entries``, ``size_bytes``: copies on the bookie at the beginning, and their bytes, without
    fragments whose end is unknown.
    ``auditor``: its id; ``None`` without one: then there may be no workers either.
    ``stuck``: some ledgers and what they wait for, if no ledger has left the bookie for a while.
    """

    bookie_id: BookieId
    step: str
    ledgers: int = 0
    ledgers_left: int = 0
    entries: int = 0
    entries_left: int = 0
    size_bytes: int = 0
    size_bytes_left: int = 0
    auditor: BookieId | None = None
    stuck: tuple[LedgerRepairState, ...] = ()
    damaged: Mapping[LedgerId, str] = attrs.field(factory=dict)
    """Marks that could not be read since the last report, and the errors.

    They may name the bookie.
    """


@attrs.frozen
class DecommissionReport:
    """The result of a decommission: the ledgers it moved, and whether it deleted a cookie."""

    bookie_id: BookieId
    ledgers: int
    cookie_deleted: bool


@attrs.frozen(kw_only=True)
class DecommissionStatus:
    """The state of a bookie's decommission. ``size_bytes`` counts only closed ledgers."""

    bookie_id: BookieId
    state: str
    has_cookie: bool
    ledgers: int
    open_ledgers: int
    size_bytes: int
    marked: int
    being_repaired: int

    @property
    def is_out(self) -> bool:
        """True if the bookie has no ledgers and no cookie."""
        return not self.has_cookie and not self.ledgers


@attrs.frozen
class MarksTakenBack:
    """The ledgers whose marks were removed, and those that lack replicas and keep their marks."""

    ledgers: tuple[LedgerId, ...]
    kept: tuple[LedgerId, ...]


Report = Callable[[DecommissionProgress], None]


async def decommission(
    client: Client,
    bookie_id: BookieId,
    report: Report = lambda _progress: None,
    *,
    keep_cookie: bool = False,
) -> DecommissionReport:
    """Wait until no ledger needs a stopped bookie, then delete the bookie's cookie.

    There is no time limit. The call may be interrupted and repeated at any time: it starts from the
    metadata, and deletes the cookie last, unless ``keep_cookie``.

    Raises:
        IllegalOperationError: the bookie is registered, or replication is disabled.
        CookieNeededError: an unclosed ledger began to list the bookie at the end of the
            decommission.
        MetadataSerializationError: a ledger's metadata cannot be read; it may list the bookie.
        MetadataStoreError: the store failed.
    """
    return await _Decommission(client, bookie_id, report, keep_cookie=keep_cookie).run()


async def ledgers_left(client: Client, bookie_id: BookieId) -> list[BookieLedger]:
    """Return the ledgers that still need a bookie or its cookie, ascending."""
    return [
        one
        async for one in ledgers_on_bookies(client, [bookie_id])
        if _needs_bookie(one.metadata, bookie_id)
    ]


async def decommission_status(
    client: Client,
    bookie_id: BookieId,
    left: Collection[BookieLedger],
    damaged: DamagedMark | None = None,
) -> DecommissionStatus:
    """Return the state of a decommission; ``left`` is the result of ``ledgers_left``.

    Raises:
        MetadataFormatError: a mark cannot be read, and ``damaged`` is None; otherwise ``damaged``
            is called.
    """
    store = client.store
    ids = {one.ledger_id for one in left}
    marked = {
        ledger_id
        async for ledger_id, mark in store.list_underreplicated(damaged)
        if ledger_id in ids and bookie_id in mark.replicas
    }
    locked = {lock.ledger_id for lock in await store.repair_locks()}
    return DecommissionStatus(
        bookie_id=bookie_id,
        state=await _state_of(client, bookie_id),
        has_cookie=bookie_id in await store.known_bookies(),
        ledgers=len(ids),
        open_ledgers=sum(not one.metadata.is_closed for one in left),
        size_bytes=sum(one.load([bookie_id]).size_bytes or 0 for one in left),
        marked=len(marked),
        being_repaired=len(marked & locked),
    )


async def _state_of(client: Client, bookie_id: BookieId) -> str:
    if bookie_id in await client.store.writable_bookies():
        return "writable"
    return "read-only" if bookie_id in await client.store.read_only_bookies() else "down"


async def cancel_decommission(
    client: Client, bookie_id: BookieId, damaged: DamagedMark | None = None
) -> MarksTakenBack:
    """Remove the marks that name only this bookie, of ledgers that lack no replica.

    A mark may also have another origin: a check that found missing entries, or entries that the
    bookie lost while it was down. So every entry of these ledgers on the bookie is read, and the
    first and last entries on the others. A ledger that a worker has locked keeps its mark. If the
    bookie is down, the next audit marks its ledgers again.

    Raises:
        MetadataFormatError: a mark cannot be read, and ``damaged`` is None; otherwise ``damaged``
            is called.
    """
    store = client.store
    available = await store.registered_bookies()
    taken_back: list[LedgerId] = []
    kept: list[LedgerId] = []
    async for ledger_id, mark in store.list_underreplicated(damaged):
        if set(mark.replicas) == {bookie_id} and await store.take_underreplicated(ledger_id):
            is_back = await _take_back(client, ledger_id, {bookie_id}, available)
            (taken_back if is_back else kept).append(ledger_id)
    return MarksTakenBack(tuple(taken_back), tuple(kept))


async def remove_marks_of_moved(
    client: Client, ledger_ids: Iterable[LedgerId], bookies: Collection[BookieId]
) -> list[LedgerId]:
    """Remove the marks of ledgers that were moved off bookies and lack no replica now.

    A mark stays if it names other bookies, cannot be read, or is locked by a worker.
    """
    store = client.store
    available = await store.registered_bookies()
    taken_back = []
    for ledger_id in ledger_ids:
        try:
            mark = await store.underreplicated(ledger_id)
        except MetadataFormatError:
            continue
        if mark is None or not mark.replicas or not {*bookies}.issuperset(mark.replicas):
            continue
        if await store.take_underreplicated(ledger_id) and await _take_back(
            client, ledger_id, bookies, available
        ):
            taken_back.append(ledger_id)
    return taken_back


async def _take_back(
    client: Client,
    ledger_id: LedgerId,
    bookies: Collection[BookieId],
    available: Collection[BookieId],
) -> bool:
    """Remove a mark whose lock is held, or release the lock if replicas are missing.

    The mark also stays if it now names other bookies than ``bookies``.
    """
    store = client.store
    try:
        mark = await store.underreplicated(ledger_id)
        is_ours = mark is not None and {*bookies}.issuperset(mark.replicas)
        lacks = not is_ours or await _lacks(client, ledger_id, bookies, available)
    except BaseException:
        await store.release_lock(ledger_id)
        raise
    await (store.release_lock(ledger_id) if lacks else store.mark_replicated(ledger_id))
    return not lacks


async def _lacks(
    client: Client,
    ledger_id: LedgerId,
    marked: Collection[BookieId],
    available: Collection[BookieId],
) -> bool:
    """Return whether replicas are missing; reads all entries on the ``marked`` bookies."""
    try:
        ledger = await view_ledger(client, ledger_id)
    except NoSuchLedgerError:
        return False
    if ledger.lac is None or needs_recovery(ledger.metadata, available):
        return True  # The entries of the last fragment are unknown.
    checker = LedgerChecker(client=client, rng=random.Random(0), in_full=marked)
    return bool(await checker.check(ledger, available))


def _needs_bookie(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    return needs_cookies(metadata, (bookie_id,)) or may_hold_entries(metadata, bookie_id)


class _Decommission:
    """One run of ``decommission``."""

    def __init__(
        self, client: Client, bookie_id: BookieId, report: Report, *, keep_cookie: bool
    ) -> None:
        self._client, self._store = client, client.store
        self._bookie_id, self._report_to = bookie_id, report
        self._keep_cookie = keep_cookie
        self._loads: dict[LedgerId, MoveLoad] = {}
        """The load of each ledger on the bookie at the beginning."""
        self._left_last = 0
        self._damaged: dict[LedgerId, str] = {}
        self._stuck_since_s = 0.0

    async def run(self) -> DecommissionReport:
        await self._require_stopped()
        await self._report("marking")
        self._loads = {
            one.ledger_id: one.load([self._bookie_id])
            async for one in ledgers_on_bookies(self._client, [self._bookie_id])
        }
        listed = list(self._loads)
        await for_each(listed, self._mark, READS_AT_ONCE)
        left = await self._still_holding(listed)
        while left:
            await self._wait("moving", left)
            left = await self._still_holding(left)
        while left := await self._still_holding(await self._marked()):
            await self._wait("moving what is marked", left)
        deleted: tuple[BookieId, ...] = ()
        if not self._keep_cookie:
            await self._report("deleting the cookie")
            deleted = await delete_cookies(self._client, [self._bookie_id])
        await self._report("done")
        return DecommissionReport(self._bookie_id, len(self._loads), bool(deleted))

    async def _require_stopped(self) -> None:
        await require_gone(self._client, [self._bookie_id])
        if not await self._store.replication_enabled():
            raise IllegalOperationError(
                "autorecovery is disabled: no worker would move the bookie's ledgers"
            )

    async def _mark(self, ledger_id: LedgerId) -> None:
        try:
            await self._store.mark_underreplicated(ledger_id, (self._bookie_id,))
        except MetadataFormatError as error:
            self._note_damaged(ledger_id, error)

    async def _is_marked(self, ledger_id: LedgerId) -> bool:
        """Return whether a ledger has a mark, readable or not: workers repair it in both cases."""
        try:
            return await self._store.underreplicated(ledger_id) is not None
        except MetadataFormatError as error:
            self._note_damaged(ledger_id, error)
            return True

    def _note_damaged(self, ledger_id: LedgerId, error: MarkError) -> None:
        self._damaged[ledger_id] = str(error)

    async def _wait(self, step: str, left: list[LedgerId]) -> None:
        await self._report(step, left, await self._stuck(left))
        seconds = min(LOOK_S_MAX, LOOK_S_PER_LEDGER * len(left))
        await deferLater(self._client.cluster.clock, seconds)
        await self._require_stopped()

    async def _stuck(self, left: list[LedgerId]) -> tuple[LedgerRepairState, ...]:
        """Return some remaining ledgers if their number has not changed for ``STUCK_S``."""
        now_s = self._client.cluster.clock.seconds()
        if len(left) != self._left_last:
            self._left_last, self._stuck_since_s = len(left), now_s
        if now_s - self._stuck_since_s < STUCK_S:
            return ()
        self._stuck_since_s = now_s
        some = [MissingReplicas(ledger_id, (self._bookie_id,)) for ledger_id in left[:STUCK_SHOWN]]
        return tuple([one async for one in repair_states(self._client, some)])

    async def _still_holding(self, ledgers: list[LedgerId]) -> list[LedgerId]:
        """Return the ledgers that need the bookie or its cookie; mark those without a mark again.

        A worker may have removed a mark that it could not read.
        """
        left: list[LedgerId] = []

        async def look(ledger_id: LedgerId) -> None:
            try:
                metadata = (await self._client.read_metadata(ledger_id)).value
            except NoSuchLedgerError:
                return
            if _needs_bookie(metadata, self._bookie_id):
                left.append(ledger_id)
                if not await self._is_marked(ledger_id):
                    await self._mark(ledger_id)

        await for_each(ledgers, look, READS_AT_ONCE)
        return sorted(left)

    async def _marked(self) -> list[LedgerId]:
        """Return the ledgers with marks that name the bookie, or may."""
        unclear: list[LedgerId] = []

        def damaged(ledger_id: LedgerId, error: MarkError) -> None:
            unclear.append(ledger_id)
            self._note_damaged(ledger_id, error)

        marked = [
            ledger_id
            async for ledger_id, mark in self._store.list_underreplicated(damaged)
            if self._bookie_id in mark.replicas
        ]
        return [*marked, *unclear]

    async def _report(
        self, step: str, left: Collection[LedgerId] = (), stuck: tuple[LedgerRepairState, ...] = ()
    ) -> None:
        damaged, self._damaged = self._damaged, {}
        loads_left = [self._loads[one] for one in left if one in self._loads]
        self._report_to(
            DecommissionProgress(
                bookie_id=self._bookie_id,
                step=step,
                ledgers=len(self._loads),
                ledgers_left=len(left),
                entries=sum(load.copies for load in self._loads.values()),
                entries_left=sum(load.copies for load in loads_left),
                size_bytes=sum(load.size_bytes or 0 for load in self._loads.values()),
                size_bytes_left=sum(load.size_bytes or 0 for load in loads_left),
                auditor=await self._store.current_auditor(),
                stuck=stuck,
                damaged=damaged,
            )
        )
