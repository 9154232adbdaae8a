"""`bookie recover`: the ledgers of lost bookies are moved to other bookies.

``commands`` declares ``--rate``; ``bkclient.replication.recover_bookies`` enforces it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import click
from click.core import ParameterSource

from bkclient.admin import cluster_operations
from bkclient.errors import ClientError, LedgerRecoveryError
from bkclient.replication.decommission import remove_marks_of_moved
from bkclient.replication.fragment_copy import CopiedEntry
from bkclient.replication.rack_forecast import (
    RackForecast,
    on_too_few_racks,
    placement_shortfall,
    rack_forecast,
)
from bkclient.replication.recover_bookies import (
    BookieLedger,
    LedgerMove,
    LedgerOutcome,
    RecoverOptions,
    RecoverReport,
    ledgers_on_bookies,
    recover_bookies,
)
from bkctl.bookies.stopped_bookie import is_registered, refuse_registered
from bkctl.cli.parameter_types import BOOKIE_ID, LEDGER_ID
from bkctl.commands.bookie import details as bookie_work
from bkctl.commands.bookie.retire.rewrite import rewrite
from bkctl.commands.ledger.close import recover as recover_ledgers
from bkctl.errors import NothingFoundError, PartlyDoneError, UsageError
from bkctl.exit_status import Effect
from bkctl.ledger_ids import parse_ledger_id
from bkctl.output.units import counted, human_bytes
from bkctl.session.safety_checks import some_names
from bkctl.session.session import Session
from wire.codes import LedgerState
from wire.ids import BookieId, LedgerId

_ENTRY_WORK_BYTES: Final = 8192
"""The work per entry besides its payload, in bytes whose copying takes as long (measured)."""


def recover(
    session: Session,
    bookies: Sequence[BookieId],
    *,
    ledger_ids: Sequence[LedgerId] = (),
    query: bool,
    skip_open: bool,
    skip_unrecoverable: bool,
    delete_cookie: bool,
    bytes_per_s: int | None,
    to: BookieId | None,
    at_once: int,
) -> None:
    """List the ledgers of bookies, or plan their move, or move them.

    Raises:
        UsageError: ``to`` is one of several recovered bookies, or its cookie is to be deleted.
        NothingFoundError: a bookie or ledger does not exist, or ``to`` is not writable.
        RefusedError: the user did not confirm, or cookies are to be deleted and a bookie runs.
        PartlyDoneError: some ledgers were not moved.
    """
    bookies = tuple(dict.fromkeys(bookies))
    session.about = f"bookie {', '.join(bookies)}"
    if query:
        _query(session, bookies, ledger_ids)
        return
    if delete_cookie:
        refuse_registered(session, *bookies)
    if to is not None:
        _check_target(session, to, bookies, delete_cookie=delete_cookie)
    options = RecoverOptions(
        ledger_ids=ledger_ids or None,
        dry_run=session.dry_run,
        skip_open=skip_open,
        skip_unrecoverable=skip_unrecoverable or session.dry_run,
        bytes_per_s=bytes_per_s,
        delete_cookies=delete_cookie and not session.dry_run,
        to=to,
        at_once=at_once,
    )
    unreadable: dict[LedgerId, ClientError] = {}
    found = list(
        session.iterate(
            ledgers_on_bookies,
            bookies,
            ledger_ids=ledger_ids or None,
            unreadable=unreadable.__setitem__,
        )
    )
    for ledger_id in sorted({*ledger_ids} - {one.ledger_id for one in found}):
        session.call(cluster_operations.read_metadata, ledger_id)
        session.note(
            f"no fragment of ledger {ledger_id} lists {', '.join(bookies)}: its entries are on "
            f"other bookies, which `bkctl ledger map {ledger_id}` shows"
        )
    require_known(session, bookies, found)
    if to in bookies:
        rewrite(session, bookies[0], [one.ledger_id for one in found], unreadable, bytes_per_s)
        _remove_marks(session, [one.ledger_id for one in found], bookies)
        return
    racks = forecast_racks(session, bookies, found, to)
    if racks.nowhere:
        session.warn(too_few_racks(racks))
    if session.dry_run:
        _plan(session, bookies, options)
        return
    _confirm(session, bookies, found, options)
    session.resume = resume_text(session)
    report = move(session, bookies, options, found)
    session.resume = ""
    note_few_racks(session, found)
    session.emit(report)
    left = [one.ledger_id for one in report.left]
    _remove_marks(session, [one.ledger_id for one in found if one.ledger_id not in left], bookies)
    if left:
        stay = "; the cookies stay" if delete_cookie else ""
        more = "the warnings say why. If no bookie is free, start one more and run this again"
        if len(bookies) == 1 and session.call(is_registered, bookies[0]):
            more += f". To write bad copies again on the same bookie: --to {bookies[0]}"
        not_moved = _not_moved(left, len(found) + len(unreadable))
        raise PartlyDoneError(f"{not_moved}{stay}", next_step=more)


def _check_target(
    session: Session, to: BookieId, bookies: Collection[BookieId], *, delete_cookie: bool
) -> None:
    """Refuse a target bookie that cannot store the ledgers of ``bookies``."""
    if to in bookies and (len(bookies) > 1 or delete_cookie):
        raise UsageError(
            f"--to {to} is a recovered bookie itself: recover no other bookie with "
            "it, and leave out --delete-cookie"
        )
    if to not in session.call(lambda client: client.store.writable_bookies()):
        raise NothingFoundError(
            f"bookie {to} is not writable",
            next_step="`bkctl bookie list` shows the writable bookies",
        )


def _not_moved(left: Sequence[LedgerId], total: int) -> str:
    if len(left) == 1:
        return f"ledger {left[0]} was not moved"
    return f"{len(left)} of {total} ledgers were not moved: {some_names(left)}"


def _remove_marks(
    session: Session, ledger_ids: Sequence[LedgerId], bookies: Sequence[BookieId]
) -> None:
    """Remove the marks of ledgers that need no repair any more."""
    if session.dry_run:
        return
    gone = session.call(remove_marks_of_moved, ledger_ids, bookies)
    if gone:
        session.finish()
        what = counted(len(gone), "ledger")
        session.note(f"{what} {'is' if len(gone) == 1 else 'are'} not marked for repair any more")


def resume_text(session: Session) -> str:
    """Return the state after an interrupted move, and the command to continue."""
    return (
        "finished ledgers stay moved; ledgers in progress start again; to continue: "
        f"{session.options.again()}"
    )


def _query(session: Session, bookies: Sequence[BookieId], ledger_ids: Sequence[LedgerId]) -> None:
    """List the ledgers of the bookies as they are found; then refuse unknown bookies.

    Raises:
        NothingFoundError: a bookie or a ledger does not exist.
    """
    listed: set[BookieId] = set()
    left = {*ledger_ids}
    unreadable: dict[LedgerId, ClientError] = {}

    def rows() -> Iterator[BookieLedger]:
        for one in session.iterate(
            ledgers_on_bookies,
            bookies,
            ledger_ids=ledger_ids or None,
            unreadable=unreadable.__setitem__,
        ):
            left.discard(one.ledger_id)
            listed.update(one.metadata.all_bookies())
            yield one

    session.emit_all(rows(), BookieLedger)
    for ledger_id in sorted(left):
        session.call(cluster_operations.read_metadata, ledger_id)
    _require_known(session, bookies, listed)
    for error in unreadable.values():
        session.warn(str(error))  # The error names the ledger.
    if unreadable:
        raise PartlyDoneError(
            f"the metadata of {counted(len(unreadable), 'ledger')} cannot be read: "
            f"{some_names(list(unreadable))}",
            next_step="`bkctl ledger delete` removes a ledger that is not needed",
        )


def recover_named(
    session: Session, /, bookie_ids: Sequence[str], *, plan: bool, **options: Any
) -> None:
    """Recover the bookies that the command line or stdin names; see ``recover``."""
    session.options.dry_run |= plan
    recover(session, bookie_work.named(session, bookie_ids), **options)


def recover_either(session: Session, /, names: Sequence[str], **options: Any) -> None:
    """Recover bookies, or one ledger: a number is a ledger's id.

    Raises:
        UsageError: both ledgers and bookies are named, or an option does not apply to a ledger.
    """
    ctx = click.get_current_context()
    if not any(map(_is_ledger_id, names)):
        ids = [BOOKIE_ID.convert(one, None, ctx) for name in names for one in name.split(",")]
        recover_named(session, ids, **options)
        return
    given = [one for one in options if ctx.get_parameter_source(one) is not ParameterSource.DEFAULT]
    if len(names) > 1 or given:
        raise UsageError(
            f"{names[0]} is a ledger id: give one ledger at a time, without the options for "
            "bookies",
            next_step="`bkctl ledger recover --help` shows how",
        )
    recover_ledgers(session, [LEDGER_ID.convert(names[0], None, ctx)])


def _is_ledger_id(text: str) -> bool:
    try:
        parse_ledger_id(text)
    except ValueError:
        return False
    return True


def require_known(
    session: Session, bookies: Collection[BookieId], found: Collection[BookieLedger]
) -> None:
    """Refuse an unknown id. A mistyped id would otherwise look like a removed bookie.

    Raises:
        NothingFoundError: no ledger in ``found`` lists one of the bookies, and it has no cookie.
    """
    listed = frozenset[BookieId]().union(*(one.metadata.all_bookies() for one in found))
    _require_known(session, bookies, listed)


def _require_known(
    session: Session, bookies: Collection[BookieId], listed: Collection[BookieId]
) -> None:
    known: set[BookieId] = {one.bookie_id for one in session.call(cluster_operations.list_bookies)}
    for bookie_id in bookies:
        if bookie_id not in known.union(listed):
            raise NothingFoundError(
                f"there is no bookie {bookie_id}: it has no cookie, is not registered, and no "
                f"ledger lists it",
                next_step=f"for the ledger: `bkctl ledger recover {bookie_id}`"
                if bookie_id.isdecimal()
                else "if the id is right, the bookie is removed already; `bkctl bookie list` "
                "shows all bookies",
            )


def forecast_racks(
    session: Session,
    leaving: Sequence[BookieId],
    found: Collection[BookieLedger],
    to: BookieId | None = None,
) -> RackForecast:
    """Return the racks after the move, and warn of ledgers that will span too few."""
    racks = session.call(rack_forecast, leaving, found, to=to)
    if racks.too_few:
        shortfall = session.call(placement_shortfall)
        before = set(racks.already)
        both = [one for one in racks.too_few if one in before]
        after = [one for one in racks.too_few if one not in before]
        for ledgers, when in ((after, "after the move"), (both, "before and after the move")):
            if ledgers:
                verb = "spans" if len(ledgers) == 1 else "span"
                session.warn(
                    f"{counted(len(ledgers), 'ledger')} {verb} {shortfall}, {when}: "
                    f"{some_names(ledgers)}"
                )
    return racks


def too_few_racks(racks: RackForecast) -> str:
    """Return the ledgers that no bookie may take over, and the reason."""
    ledgers = counted(len(racks.nowhere), "ledger")
    return f"{ledgers} cannot be moved ({some_names(racks.nowhere)}): {racks.why}"


def note_few_racks(session: Session, moved: Collection[BookieLedger]) -> None:
    """Warn of ledgers on too few racks after a move, also after another client's move."""
    thin = session.call(on_too_few_racks, moved)
    if thin:
        session.warn(
            f"{counted(len(thin), 'ledger')} {'spans' if len(thin) == 1 else 'span'} "
            f"{session.call(placement_shortfall)}: {some_names(thin)}; workers with "
            "repairedPlacementPolicyNotAdheringBookieEnabled=true spread them once they can"
        )


def _plan(session: Session, bookies: Sequence[BookieId], options: RecoverOptions) -> None:
    moves: list[LedgerMove] = []
    session.call(recover_bookies, bookies, options, moves.append)
    moves.sort(key=lambda move: move.ledger_id)
    session.emit_all(moves, LedgerMove)
    session.note(_total(moves))
    session.end_plan()


def _total(moves: Sequence[LedgerMove]) -> str:
    """Return the totals of the plan in one line."""
    fragments = sum(len(move.fragments) for move in moves)
    copies = sum(move.copies for move in moves)
    size = human_bytes(sum(move.size_bytes or 0 for move in moves))
    ledgers = counted(len(moves), "ledger")
    words = [f"{ledgers}, {counted(fragments, 'fragment')}, {copies} copies, about {size}"]
    for what, count in (
        ("to be fenced", sum(move.fenced for move in moves)),
        ("that cannot be moved", sum(_is_stuck(move) for move in moves)),
        ("of unknown size", sum(move.size_bytes is None for move in moves)),
    ):
        if count:
            words.append(f"{count} {what}")
    return "; ".join(words)


def _is_stuck(move: LedgerMove) -> bool:
    return move.outcome is LedgerOutcome.FAILED or move.is_unrecoverable


def _confirm(
    session: Session,
    bookies: Sequence[BookieId],
    found: Sequence[BookieLedger],
    options: RecoverOptions,
) -> None:
    fenced = [one for one in found if _grows_there(one, bookies)]
    loads = [one.load(bookies) for one in found]
    fragments = counted(sum(len(one.fragments) for one in found), "fragment")
    size = human_bytes(sum(load.size_bytes or 0 for load in loads))
    ledgers, names = counted(len(found), "ledger"), ", ".join(bookies)
    lines = [f"{ledgers} will move away from {names}: {fragments}, about {size} to copy."]
    if fenced and not options.skip_open:
        lines.append(
            f"{len(fenced)} of them may have a writer, which is fenced: --skip-open spares them."
        )
        lines += [
            f"{bookie_id} is running and will be asked where these ledgers end. "
            "Stop it first if it may have lost entries."
            for bookie_id in bookies
            if session.call(is_registered, bookie_id)
        ]
    if options.delete_cookies:
        lines.append(
            f"Then the cookies are deleted: {names} cannot start on old directories afterwards."
        )
        session.confirm(lines, "", proof=bookies[0], effect=Effect.LOSES_DATA)
    elif found:
        session.confirm(lines, "Go on?")


def _grows_there(one: BookieLedger, bookies: Collection[BookieId]) -> bool:
    is_open = one.metadata.state is LedgerState.OPEN
    return is_open and not set(bookies).isdisjoint(one.metadata.ensemble)


def copying_work(size_bytes: int, entries: int) -> int:
    """Return the work to copy entries, in bytes whose copying takes as long."""
    return size_bytes + entries * _ENTRY_WORK_BYTES


def move(
    session: Session,
    bookies: Sequence[BookieId],
    options: RecoverOptions,
    found: Sequence[BookieLedger],
) -> RecoverReport:
    """Move the ledgers, with progress in bytes; warn of each ledger that is not moved."""
    loads = [one.load(bookies) for one in found]
    size = sum(load.size_bytes or 0 for load in loads)
    copies = sum(load.copies for load in loads)
    total = len(found)
    entries = done_bytes = moved = 0
    with session.progress(f"moving {counted(total, 'ledger')}", total=size) as progress:

        def copied(one: CopiedEntry) -> None:
            nonlocal entries, done_bytes
            entries += one.copies
            done_bytes += one.copies * one.payload_bytes
            # The total leaves out ledgers that are not closed; their copies increase it.
            all_bytes, all_entries = max(size, done_bytes), max(copies, entries)
            work = copying_work(done_bytes, entries), copying_work(all_bytes, all_entries)
            # With a limit on bytes the number of entries does not affect the duration.
            progress.update(
                done_bytes, entries, all_bytes, work=None if options.bytes_per_s else work
            )

        def report(one: LedgerMove) -> None:
            nonlocal moved
            moved += one.outcome in {LedgerOutcome.MOVED, LedgerOutcome.DELETED}
            if one.error is not None:
                about, why = f"ledger {one.ledger_id}: ", str(one.error)
                session.warn(why if why.startswith(about) else about + why)
            elif one.outcome is LedgerOutcome.SKIPPED_OPEN:
                session.warn(
                    f"ledger {one.ledger_id}: skipped: it is open, and its writer is not fenced"
                )

        try:
            done = session.call(recover_bookies, bookies, options, report, copied)
        except LedgerRecoveryError:
            if not options.skip_unrecoverable:
                session.failed = (
                    f"{total - moved} of {counted(total, 'ledger')} are left, finished ledgers "
                    "stay moved; --skip-unrecoverable continues after those ledgers"
                )
            raise
    return done
