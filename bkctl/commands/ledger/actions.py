"""What the commands of a ledger's life do: the steps between parsed options and printed values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bkctl.cli.ledger_options import LOG_LEDGER, OPEN_LEDGER
from bkctl.cli.params import LEDGER_ID
from bkctl.commands.ledger import ids as ledger_ids
from bkctl.commands.ledger import lifecycle
from bkctl.commands.ledger.columns import LedgerDetails
from bkctl.commands.ledger.outcomes import LedgerClosed, LedgerFenced
from bkctl.errors import PartlyDoneError
from bkctl.session import shell_writers
from wire.codes import LedgerState

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from wire.ids import LedgerId


def create(session: Session, /, **wanted: Any) -> None:
    """Create an empty ledger and print its id."""
    new = lifecycle.new_ledger(session, **wanted)
    if session.dry_run:
        session.plan([f"create a ledger: {new}"])
        return
    lifecycle.warn_of_chosen_id(session, new)
    session.emit(session.call(lifecycle.create, new))


def show(session: Session, ledger_ids: Sequence[Any]) -> None:
    """Show quorums, fragments, state and custom metadata of ledgers; `-` reads ids from stdin."""
    details = lifecycle.details(session, session.input.words(ledger_ids, LEDGER_ID))
    if len(ledger_ids) == 1 and ledger_ids[0] != "-":
        session.emit(next(details))
    elif session.options.output in {None, "wide"}:
        for one in details:
            session.emit(one)
    else:
        session.emit_all(details, LedgerDetails)


def close(session: Session, given: Sequence[Any]) -> None:
    """Close ledgers where their last writers ended; `-` reads ids from stdin."""
    ledger_ids.each(session, given, _close, LedgerClosed)


def _close(session: Session, ledger_id: LedgerId) -> Any:
    session.about = f"ledger {ledger_id}"
    writer = shell_writers.held_writer(session, ledger_id)
    if writer is not None:
        if session.dry_run:
            return f"close ledger {ledger_id}, which this shell writes to"
        return lifecycle.closed(ledger_id, session.call(lifecycle.close, writer), "closed")
    how, found = lifecycle.way_to_close(session, ledger_id)
    if how is lifecycle.Close.RECOVER:
        return _recovered(session, ledger_id, found)
    if session.dry_run:
        done = how is lifecycle.Close.ALREADY
        what = "which is closed" if done else "which its last writer has handed over"
        return f"{'leave' if done else 'close'} ledger {ledger_id}, {what}"
    if how is lifecycle.Close.ALREADY:
        return lifecycle.closed(ledger_id, found, "was closed before")
    return session.call(lifecycle.claim_and_close, ledger_id)


def fence(session: Session, given: Sequence[Any]) -> None:
    """Make sure that no writer can add to ledgers any more, without closing them."""
    ledger_ids.each(session, given, _fence, LedgerFenced, after=_insist_covered)


def _fence(session: Session, ledger_id: LedgerId) -> Any:
    session.about = f"ledger {ledger_id}"
    found = lifecycle.metadata_of(session, ledger_id)
    lifecycle.refuse_closed(found)
    if session.dry_run:
        return f"fence ledger {ledger_id} on {', '.join(found.ensemble)}"
    _confirm_fencing(session, ledger_id, found, f"Fence ledger {ledger_id}?")
    return session.call(lifecycle.fence, ledger_id)


def _insist_covered(fenced: Any) -> None:
    if not fenced.covered:
        raise PartlyDoneError(
            "not every write set is covered: a writer may still add",
            next_step=f"`bkctl ledger fence {fenced.ledger_id}` again when the missing bookies are "
            "back",
        )


def recover(session: Session, given: Sequence[Any]) -> None:
    """Find out where ledgers end and close them there; `-` reads ids from stdin."""
    ledger_ids.each(session, given, _recover, LedgerClosed)


def _recover(session: Session, ledger_id: LedgerId) -> Any:
    session.about = f"ledger {ledger_id}"
    found = lifecycle.metadata_of(session, ledger_id)
    if not found.is_closed:
        return _recovered(session, ledger_id, found)
    if session.dry_run:
        return f"leave ledger {ledger_id}, which is closed"
    return lifecycle.closed(ledger_id, found, "was closed before")


def _recovered(session: Session, ledger_id: LedgerId, found: Any) -> Any:
    if session.dry_run:
        return f"fence, recover and close ledger {ledger_id} ({found.state.name.lower()})"
    _confirm_fencing(session, ledger_id, found, f"Recover and close ledger {ledger_id}?")
    session.resume = f"it is safe to run again: {session.options.again()}"
    return lifecycle.recover(session, ledger_id)


def _confirm_fencing(session: Session, ledger_id: LedgerId, found: Any, question: str) -> None:
    """Ask before a live writer may lose its ledger; one in recovery has lost it already."""
    if found.state is LedgerState.OPEN:
        session.confirm(
            [f"Ledger {ledger_id} is open: a writer at work on it will fail at its next add."],
            question,
        )


def delete(
    session: Session, given: Sequence[Any], from_file: str | None, force: Sequence[str]
) -> None:
    """Delete ledgers for good; `-` reads ids from stdin."""
    chosen = ledger_ids.chosen(session, given, from_file)
    doomed = lifecycle.doomed(session, chosen)
    lifecycle.refuse_open(doomed, forced=OPEN_LEDGER in force)
    lifecycle.refuse_of_logs(doomed, forced=LOG_LEDGER in force)
    lines = [lifecycle.loss(one) for one in doomed]
    if session.dry_run:
        session.plan([f"delete {line}" for line in lines])
        return
    session.confirm(
        ["This will be lost for good:", *(f"  {line}" for line in lines)],
        f"Delete {len(doomed)} ledger{'s' if len(doomed) != 1 else ''}?",
        proof=lifecycle.proof_of(session, doomed),
    )
    if force:
        session.warn(f"overridden: {', '.join(force)}")
    lifecycle.delete(session, doomed)
