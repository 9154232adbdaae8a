"""`bookie decommission` and `bookie decommission-status`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from bkclient.admin import cluster_operations
from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.metadata.tree.nodes import run_together
from bkclient.quorum.fragments import is_only_copy
from bkclient.replication import autorecovery_admin, decommission
from bkclient.replication.decommission import DecommissionProgress, DecommissionReport
from bkclient.replication.decommission import decommission as decommission_bookie
from bkclient.replication.rack_forecast import placement_domain
from bkclient.replication.recover_bookies import (
    BookieLedger,
    RecoverOptions,
    RecoverReport,
    ledgers_on_bookies,
)
from bkclient.replication.repair_states import (
    LedgerRepairState,
    MissingReplicas,
    RepairState,
    repair_states,
)
from bkctl.bookies.http import addresses, bookie_state
from bkctl.bookies.stopped_bookie import is_registered, stopped_bookie
from bkctl.commands.bookie.retire import recover
from bkctl.commands.bookie.retire.worker_copies import MoveProgress, counts_of_workers
from bkctl.errors import NothingFoundError, PartlyDoneError, RefusedError, UsageError
from bkctl.output.units import counted, human_bytes, human_duration
from bkctl.output.views import BOOKIE, Column, Kind, field, shown
from bkctl.session import safety_checks
from bkctl.session.safety_check_names import (
    ONLY_COPIES,
    OTHERS_LOST,
    TOO_FEW,
    TOO_FEW_RACKS,
    TOO_LITTLE_SPACE,
)
from bkctl.session.safety_checks import Objection
from bkctl.session.session import Session
from bkctl.suggest import similar_bookie
from wire.ids import BookieId, LedgerId

_DRAINED_AT_ONCE: Final = 4
"""Ledgers that ``--drain`` moves in parallel."""


ENABLE: Final = "`bkctl autorecovery enable` switches it on"


def _cancelled(v: DecommissionCancelled) -> str:
    marks = f", {counted(len(v.ledgers), 'mark')} removed" if v.ledgers else ""
    return f"decommission of {v.bookie_id} cancelled{marks}: the bookie is writable"


@shown(
    "decommissions",
    Column(
        "ledgers",
        "Ledgers whose marks were removed.",
        lambda v: [str(one) for one in v.ledgers],
        Kind.NESTED,
    ),
    sentence=_cancelled,
)
class DecommissionCancelled:
    """A bookie that stays in service: the marks that named it alone were removed."""

    bookie_id: BookieId = field(BOOKIE)
    ledgers: tuple[LedgerId, ...]
    is_writable: bool


def run(
    session: Session,
    bookie_id: BookieId | None,
    *,
    force: Collection[str],
    drain: bool,
    bytes_per_s: int | None,
    keep_cookie: bool,
    cancel: bool,
    **where: Any,
) -> None:
    """Decommission a bookie, drain it first, or cancel.

    ``where`` is the address of its HTTP server.

    Raises:
        UsageError: the options cannot be combined.
        NothingFoundError: nothing in the cluster has that id.
        RefusedError: the bookie runs, too few others are left, or the user did not confirm.
    """
    if cancel and (drain or keep_cookie):
        raise UsageError("--cancel cannot be combined with --drain or --keep-cookie")
    if bytes_per_s is not None and not drain:
        raise UsageError(
            "--rate is for --drain, which copies from this process",
            next_step="for a running bookie add --drain; for a stopped bookie, set "
            "replicationRateByBytes in the settings of the workers that copy its "
            "ledgers",
        )
    if bookie_id is None:
        try:
            bookie_id = stopped_bookie(session).bookie_id
        except UsageError as error:
            raise UsageError(
                "no bookie is named",
                next_step="give its id, which `bkctl bookie list` shows, or its settings with -c "
                "FILE",
            ) from error
    session.about = f"bookie {bookie_id}"
    runs = session.call(is_registered, bookie_id)
    if cancel:
        _cancel(session, bookie_id, where, runs=runs)
    elif drain and runs:
        _drain(session, bookie_id, where, force, bytes_per_s)
    else:
        _take_out(session, bookie_id, force, runs=runs, keep_cookie=keep_cookie)


# Decommission -----------------------------------------------------------------------------------


def _take_out(
    session: Session, bookie_id: BookieId, force: Collection[str], *, runs: bool, keep_cookie: bool
) -> None:
    """Show a bookie's remaining ledgers, ask, wait until none is left, and remove its cookie."""
    if runs:
        is_empty = next(session.iterate(ledgers_on_bookies, [bookie_id]), None) is None
        drain = f"empty it while it runs: bkctl decommission {bookie_id} --drain"
        stop = safety_checks.while_registered([bookie_id], instead="" if is_empty else drain)
        safety_checks.refuse_unless_forced(session, stop, force)
    found = list(session.iterate(ledgers_on_bookies, [bookie_id]))
    recover.require_known(session, [bookie_id], found)
    if not session.call(autorecovery_admin.status).enabled:
        off = "autorecovery is disabled, so the ledgers of the bookie would not move"
        safety_checks.refuse_unless_forced(session, [Objection("", off, ENABLE)], force)
    safety_checks.refuse_unless_forced(session, session.call(_only_copies, bookie_id, found), force)
    safety_checks.refuse_unless_forced(session, _objections(session, bookie_id, found), force)
    _heed_racks(session, bookie_id, found, force)
    steps = [_moving(bookie_id, found)]
    if not keep_cookie:
        steps.append(f"remove the cookie of {bookie_id}")
    if session.plans_only(steps):
        return
    session.confirm(
        [f"To remove {bookie_id} for good:", *(f"  {step}" for step in steps)],
        "" if keep_cookie else f"{bookie_id} cannot start on its old directories afterwards.",
        proof=bookie_id,
    )
    session.resume = (
        f"`bkctl bookie decommission-status {bookie_id}` shows what is left; to continue: "
        f"{session.options.again()}"
    )
    report = _wait(session, bookie_id, len(found), keep_cookie=keep_cookie)
    session.resume = ""
    recover.note_few_racks(session, found)
    session.emit(report)


def _moving(bookie_id: BookieId, found: Sequence[BookieLedger]) -> str:
    size = human_bytes(_size_of(bookie_id, found))
    copies = sum(one.load([bookie_id]).copies for one in found)
    what = f"{copies} copies of entries, about {size} of payload"
    return f"move {counted(len(found), 'ledger')}: {what}"


def _size_of(bookie_id: BookieId, found: Sequence[BookieLedger]) -> int:
    return sum(one.load([bookie_id]).size_bytes or 0 for one in found)


def _objections(
    session: Session, bookie_id: BookieId, found: Sequence[BookieLedger]
) -> Iterator[Objection]:
    others = session.call(lambda client: client.store.writable_bookies()) - {bookie_id}
    yield from _too_few(len(others), found)
    size = _size_of(bookie_id, found)
    free = session.call(_free_bytes, others) if size else None
    if free is not None and free < size:
        yield Objection(
            TOO_LITTLE_SPACE,
            f"about {human_bytes(size)} must be moved, and the other writable bookies have "
            f"{human_bytes(free)} free",
            "start more bookies",
        )
    lost = session.call(_others_lost, bookie_id)
    if lost:
        yield Objection(
            OTHERS_LOST,
            f"{counted(lost, 'ledger')} {'is' if lost == 1 else 'are'} marked as lacking "
            "replicas of other bookies: removing this bookie now could lose entries",
            "wait until they are repaired (`bkctl autorecovery list --detail` shows them); if "
            "those bookies are back, `bkctl autorecovery forget ID` reads all replicas and deletes "
            "the mark",
        )


def _heed_racks(
    session: Session, bookie_id: BookieId, found: Sequence[BookieLedger], force: Collection[str]
) -> None:
    """Refuse if racks forbid every other bookie; warn of ledgers on too few racks."""
    racks = recover.forecast_racks(session, [bookie_id], found)
    if racks.nowhere:
        step = f"start a bookie in another {session.call(placement_domain)}"
        safety_checks.refuse_unless_forced(
            session, [Objection(TOO_FEW_RACKS, recover.too_few_racks(racks), step)], force
        )


async def _only_copies(
    client: Client, bookie_id: BookieId, found: Sequence[BookieLedger]
) -> list[Objection]:
    """Return an objection for ledgers without another copy: no worker can move them."""
    alive = await client.store.registered_bookies()
    only = [one.ledger_id for one in found if is_only_copy(one.metadata, bookie_id, alive)]
    if not only:
        return []
    why = (
        f"entries of {counted(len(only), 'ledger')} may have no other copy in service, and "
        f"cannot be moved: {safety_checks.some_names(only)}"
    )
    return [Objection(ONLY_COPIES, why, "start the bookie again and empty it with --drain")]


async def _free_bytes(client: Client, bookies: Collection[BookieId]) -> int | None:
    """Return the free bytes of these bookies together; None if a bookie does not answer."""
    try:
        asked = await run_together(cluster_operations.bookie_info(client, one) for one in bookies)
    except ClientError:
        return None
    return sum(one.free_bytes for one in asked)


async def _others_lost(client: Client, bookie_id: BookieId) -> int:
    damaged: list[LedgerId] = []
    found = client.store.list_underreplicated(lambda one, _why: damaged.append(one))
    others = [any(one != bookie_id for one in mark.replicas) async for _, mark in found]
    return sum(others) + len(damaged)


async def _without_replacement(
    client: Client, bookie_id: BookieId, found: Sequence[BookieLedger]
) -> list[BookieLedger]:
    """Return the ledgers with a fragment in which no other writable bookie can replace this one."""
    others = await client.store.writable_bookies() - {bookie_id}
    return [
        one
        for one in found
        if any(
            others <= set(fragment.ensemble)
            for fragment in one.metadata.fragments
            if bookie_id in fragment.ensemble
        )
    ]


def _too_few(writable: int, found: Sequence[BookieLedger]) -> Iterator[Objection]:
    needed = max((one.metadata.ensemble_size for one in found), default=0)
    if writable < needed:
        yield Objection(
            TOO_FEW,
            f"its ledgers need {needed} bookies, and {writable} "
            f"{'is' if writable == 1 else 'are'} writable: no bookie could take its place",
            "start more bookies",
        )


def _wait(
    session: Session, bookie_id: BookieId, total: int, *, keep_cookie: bool
) -> DecommissionReport:
    begun = warned = False
    warn_of_mark = _damaged_marks(session)
    ask = counts_of_workers(session) if total else None
    with (
        session.progress(f"moving {counted(total, 'ledger')}") as progress,
        MoveProgress(progress, ask) as moves,
    ):

        def report(step: DecommissionProgress) -> None:
            nonlocal begun, warned
            if step.ledgers_left and not begun:
                begun = True
                left = counted(step.ledgers_left, "ledger")
                session.note(
                    f"waiting for the workers to move {left}; "
                    f"`bkctl bookie decommission-status {bookie_id}` lists them"
                )
            moves.moved(step)
            if step.ledgers_left and step.auditor is None and not warned:
                warned = True
                session.warn("no auditor is elected, so workers may be missing; run `bkctl doctor`")
            for one in step.stuck:
                what = f"ledger {one.ledger_id}: {_why(session, one)}"
                if one.repair_state is RepairState.REPAIRING:
                    session.note(f"no ledger ended in the last minute; {what}")
                else:
                    session.warn(f"no progress: {what}")
            for ledger_id, why in step.damaged.items():
                warn_of_mark(ledger_id, why)

        return session.call(decommission_bookie, bookie_id, report, keep_cookie=keep_cookie)


def _why(session: Session, one: LedgerRepairState) -> str:
    """Return the reason that a ledger waits, and how long a worker has had its lock."""
    if one.worker_since_ms is None:
        return one.why
    age_s = max(0.0, session.host.clock_s() - one.worker_since_ms / 1000)
    return f"{one.why}; {one.worker} has held the lock for {human_duration(age_s)}"


def _damaged_marks(session: Session) -> Callable[[LedgerId, object], None]:
    """Return a function that warns once of each mark that cannot be read."""
    warned: set[LedgerId] = set()

    def warn(ledger_id: LedgerId, why: object) -> None:
        if ledger_id not in warned:
            warned.add(ledger_id)
            session.warn(f"{why}; {autorecovery_admin.how_to_repair_mark(ledger_id)}")

    return warn


# Drain and cancel -------------------------------------------------------------------------------


def _drain(
    session: Session,
    bookie_id: BookieId,
    where: Mapping[str, Any],
    force: Collection[str],
    bytes_per_s: int | None,
) -> None:
    """Make a bookie read-only, and copy the ledgers that do not grow to other bookies.

    Raises:
        PartlyDoneError: some ledgers are left on the bookie.
        RefusedError: the bookie's admin token is missing or wrong.
    """
    found = list(session.iterate(ledgers_on_bookies, [bookie_id]))
    safety_checks.refuse_unless_forced(session, _objections(session, bookie_id, found), force)
    _heed_racks(session, bookie_id, found, force)
    steps = [f"make {bookie_id} read-only, with its admin token"]
    stuck = session.call(_without_replacement, bookie_id, found)
    steps.append(_moving(bookie_id, [one for one in found if one not in stuck]))
    if stuck:
        ids = safety_checks.some_names([one.ledger_id for one in stuck])
        steps.append(f"leave {counted(len(stuck), 'ledger')} there, for no bookie is free: {ids}")
    try:
        admin = addresses.connect(session, bookie_id, **where)
        admin.require_allowed()
    except (NothingFoundError, RefusedError) as error:
        if not session.dry_run:
            raise
        safety_checks.refuse_unless_forced(session, [Objection("", str(error), error.hint)], ())
    if session.plans_only(steps):
        return
    session.confirm(
        [f"To empty {bookie_id}:", *(f"  {step}" for step in steps)], "", proof=bookie_id
    )
    bookie_state.mode(admin, bookie_id, wanted=True)
    session.resume = recover.resume_text(session)
    options = RecoverOptions(
        spare_writers=True,
        skip_unrecoverable=True,
        at_once=_DRAINED_AT_ONCE,
        bytes_per_s=bytes_per_s,
    )
    report: RecoverReport = recover.move(session, [bookie_id], options, found)
    session.resume = ""
    recover.note_few_racks(session, found)
    session.emit(report)
    then = f"stop it, then: bkctl decommission {bookie_id}"
    if report.left:
        left = counted(len(report.left), "ledger")
        raise PartlyDoneError(
            f"{left} left on {bookie_id}, which is read-only now",
            next_step="writers leave it with their next entry: run this again, with one more bookie"
            f" if none is free, or {then}",
        )
    session.finish()
    session.note(f"{bookie_id} is empty, and accepts no new entries; {then}")
    restart = "" if bookie_state.keeps_mode(admin) else "; a restart makes it writable, too"
    session.note(f"to keep it in service: bkctl bookie readonly {bookie_id} off{restart}")


def _cancel(session: Session, bookie_id: BookieId, where: Mapping[str, Any], *, runs: bool) -> None:
    """Remove the marks of a bookie that runs again, and make it writable.

    Raises:
        RefusedError: the bookie does not run, so its ledgers lack replicas.
    """
    if not runs:
        raise RefusedError(
            f"{bookie_id} does not run, so its ledgers lack replicas",
            next_step="interrupt the decommission, and start the bookie first",
        )
    is_writable = bookie_id in session.call(lambda client: client.store.writable_bookies())
    steps = [] if is_writable else [f"make {bookie_id} writable"]
    if session.plans_only([f"remove the marks that name only {bookie_id}", *steps]):
        return
    marks = session.call(decommission.cancel_decommission, bookie_id, _damaged_marks(session))
    if marks.kept:
        session.warn(
            "the bookie has lost replicas; these ledgers keep their marks: "
            f"{safety_checks.some_names(marks.kept)}"
        )
    if not is_writable:
        bookie_state.mode(addresses.connect(session, bookie_id, **where), bookie_id, wanted=False)
    session.emit(DecommissionCancelled(bookie_id, marks.ledgers, is_writable=True))


# Status -----------------------------------------------------------------------------------------


def status(session: Session, bookie_id: BookieId, *, detail: bool) -> None:
    """Show the ledgers and the cookie that a bookie still has."""
    session.about = f"bookie {bookie_id}"
    left = session.call(decommission.ledgers_left, bookie_id)
    if detail and (left or not session.options.is_for_people):
        lacking = [MissingReplicas(one.ledger_id, (bookie_id,)) for one in left]
        session.emit_all(session.iterate(repair_states, lacking), LedgerRepairState)
    else:
        found = session.call(
            decommission.decommission_status, bookie_id, left, _damaged_marks(session)
        )
        session.emit(found)
        if found.is_out and found.state == "down":
            _warn_of_unknown(session, bookie_id)


def _warn_of_unknown(session: Session, bookie_id: BookieId) -> None:
    """Warn if an unknown id is similar to a bookie's id: it may be mistyped."""
    similar = similar_bookie(
        bookie_id, [one.bookie_id for one in session.call(cluster_operations.list_bookies)]
    )
    if similar:
        session.warn(f"nothing in the cluster has the id {bookie_id}{similar}")
