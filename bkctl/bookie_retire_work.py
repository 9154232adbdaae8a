"""What `bookie recover` and `bookie decommission` do: the steps between options and results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from bkclient import admin, autorecovery
from bkclient.decommission import decommission as decommission_bookie
from bkclient.recover_bookies import (
    BookieLedger,
    LedgerMove,
    RecoverOptions,
    RecoverReport,
    ledgers_on_bookies,
    recover_bookies,
)
from bkctl.bookie_retire import TOO_FEW
from bkctl.command import Effect
from bkctl.disk_change import refuse_registered
from bkctl.errors import PartlyDoneError
from bkctl.objections import Objection, heed
from bkctl.units import counted
from wire.codes import LedgerState
from wire.ids import BookieId, LedgerId

if TYPE_CHECKING:
    from bkclient.decommission import DecommissionProgress, DecommissionReport
    from bkctl.session import Session


ENABLE: Final = "`bkctl autorecovery enable` switches it on"


# By hand ----------------------------------------------------------------------------------------


def recover(
    session: Session,
    bookies: Sequence[BookieId],
    *,
    ledger_id: LedgerId | None,
    query: bool,
    skip_open: bool,
    skip_unrecoverable: bool,
    delete_cookie: bool,
    bytes_per_s: int | None,
) -> None:
    """List what bookies hold, or plan or do the moving of it.

    Raises:
        RefusedError: nobody confirmed, or cookies are to go and a bookie runs.
        PartlyDoneError: some ledgers were not moved.
    """
    bookies = tuple(dict.fromkeys(bookies))
    session.about = f"bookie {', '.join(bookies)}"
    if query:
        rows = session.iterate(ledgers_on_bookies, bookies, ledger_id=ledger_id)
        session.emit_all(rows, BookieLedger)
        return
    if delete_cookie:
        for bookie_id in bookies:
            refuse_registered(session, bookie_id)
    options = RecoverOptions(
        ledger_id=ledger_id,
        dry_run=session.dry_run,
        skip_open=skip_open,
        skip_unrecoverable=skip_unrecoverable or session.dry_run,
        bytes_per_s=bytes_per_s,
        delete_cookies=delete_cookie and not session.dry_run,
    )
    found = list(session.iterate(ledgers_on_bookies, bookies, ledger_id=ledger_id))
    if session.dry_run:
        _plan(session, bookies, options)
        return
    _confirm(session, bookies, found, options)
    session.resume = f"what is moved stays so; to go on: {session.again()}"
    report = _run(session, bookies, options, len(found))
    session.resume = ""
    session.emit(report)
    if report.left:
        left = counted(len(report.left), "ledger")
        raise PartlyDoneError(f"{left} not moved", next_step="the warnings say why")


def _plan(session: Session, bookies: Sequence[BookieId], options: RecoverOptions) -> None:
    moves: list[LedgerMove] = []
    session.call(recover_bookies, bookies, options, moves.append)
    session.emit_all(moves, LedgerMove)


def _confirm(
    session: Session,
    bookies: Sequence[BookieId],
    found: Sequence[BookieLedger],
    options: RecoverOptions,
) -> None:
    fenced = [one for one in found if _grows_there(one, bookies)]
    lines = [f"{counted(len(found), 'ledger')} will move off {', '.join(bookies)}."]
    if fenced and not options.skip_open:
        lines.append(
            f"{len(fenced)} of them may have a writer, which is fenced: --skip-open spares them."
        )
    if options.delete_cookies:
        lines.append("Then the cookies go: these directories never start again.")
        session.confirm(lines, "Go on?", proof=bookies[0], effect=Effect.LOSES_DATA)
    elif found:
        session.confirm(lines, "Go on?")


def _grows_there(one: BookieLedger, bookies: Collection[BookieId]) -> bool:
    is_open = one.metadata.state is LedgerState.OPEN
    return is_open and not set(bookies).isdisjoint(one.metadata.ensemble)


def _run(
    session: Session, bookies: Sequence[BookieId], options: RecoverOptions, total: int
) -> RecoverReport:
    ended = 0
    with session.progress("moving", total=total, unit="ledgers") as progress:

        def report(move: LedgerMove) -> None:
            nonlocal ended
            ended += 1
            progress.update(ended)
            if move.error is not None:
                session.warn(f"ledger {move.ledger_id}: {move.error}")

        done: RecoverReport = session.call(recover_bookies, bookies, options, report)
    return done


# By autorecovery --------------------------------------------------------------------------------


def decommission(session: Session, bookie_id: BookieId | None, force: Collection[str]) -> None:
    """Show what is left on a bookie, ask, wait until nothing is, and remove its cookie.

    Raises:
        RefusedError: it runs, there are too few others, or nobody confirmed.
    """
    if bookie_id is None:
        from bkctl.disk_change import stopped_bookie

        bookie_id = stopped_bookie(session).bookie_id
    session.about = f"bookie {bookie_id}"
    refuse_registered(session, bookie_id)
    found: list[BookieLedger] = list(session.iterate(ledgers_on_bookies, [bookie_id]))
    heed(session, _objections(session, found), force)
    steps = [f"move {counted(len(found), 'ledger')}", f"remove the cookie of {bookie_id}"]
    if session.dry_run:
        session.plan(steps)
        return
    session.confirm(
        [f"To take {bookie_id} out for good:", *(f"  {step}" for step in steps)],
        "Its directories never start again. Go on?",
        proof=bookie_id,
    )
    session.resume = (
        f"`bkctl autorecovery list --missing {bookie_id}` shows what is left; "
        f"to go on: {session.again()}"
    )
    report = _wait(session, bookie_id, len(found))
    session.resume = ""
    session.emit(report)


def _objections(session: Session, found: Sequence[BookieLedger]) -> Iterator[Objection]:
    if not session.call(autorecovery.status).enabled:
        yield Objection("", "autorecovery is disabled: nobody would move its ledgers", ENABLE)
    bookies = session.call(admin.list_bookies)
    writable = sum(one.state is admin.BookieState.WRITABLE for one in bookies)
    needed = max((one.metadata.ensemble_size for one in found), default=0)
    if writable < needed:
        yield Objection(
            TOO_FEW,
            f"{counted(writable, 'bookie')} {'takes' if writable == 1 else 'take'} adds, and its "
            f"ledgers want {needed}: nobody could take its place",
            "start more bookies",
        )


def _wait(session: Session, bookie_id: BookieId, total: int) -> DecommissionReport:
    begun = told = False
    with session.progress("moving", total=total, unit="ledgers") as progress:

        def report(step: DecommissionProgress) -> None:
            nonlocal begun, told
            if step.ledgers_left and not begun:
                begun = True
                left = counted(step.ledgers_left, "ledger")
                session.note(f"waiting for the workers to move {left}; it may be interrupted")
            progress.update(max(0, step.ledgers - step.ledgers_left))
            if step.ledgers_left and step.auditor is None and not told:
                told = True
                session.warn("no auditor is elected: do any workers run? `bkctl doctor` looks")

        done: DecommissionReport = session.call(decommission_bookie, bookie_id, report)
    return done
