"""`ledger fence`, `close` and `recover`: ledgers are fenced, recovered and closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from bkclient.admin import cluster_operations, one_shot_adds
from bkctl.commands.ledger import id_arguments as ledger_ids
from bkctl.commands.ledger.list_and_show import metadata_of, writer_text
from bkctl.errors import ConflictError, PartlyDoneError
from bkctl.exit_status import Effect
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import LEDGER, Kind, field, shown
from bkctl.session import shell_writers
from wire.codes import LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.ledger.recovery_run import RecoveryProgress
    from bkctl.session.session import Session


def _fenced_sentence(fenced: LedgerFenced) -> str:
    missing = "".join(f"; {bookie}: {why}" for bookie, why in fenced.missing.items())
    covers = (
        "no writer can add to it any more" if fenced.covered else "NOT every write set is covered"
    )
    return (
        f"ledger {fenced.ledger_id} fenced by {counted(len(fenced.answered), 'bookie')}: "
        f"{covers}{missing}; "
        f"`bkctl ledger recover {fenced.ledger_id}` closes it"
    )


@shown("ledgers", sentence=_fenced_sentence)
class LedgerFenced:
    """The bookies that fenced a ledger, and whether a writer may still add."""

    ledger_id: LedgerId = field(LEDGER)
    state: str = field("The ledger's new state.")
    answered: tuple[BookieId, ...] = field("Bookies that fenced the ledger.")
    missing: Mapping[BookieId, str] = field(
        "Bookies that did not fence the ledger, with the reason."
    )
    covered: bool = field("Whether no writer can add any more.")


def fence(session: Session, words: Sequence[Any]) -> None:
    """Fence ledgers: no writer can add any more. The ledgers are not closed."""
    ledger_ids.for_each_ledger(session, words, _fence, LedgerFenced, after=_require_covered)


def _fence(session: Session, ledger_id: LedgerId) -> Any:
    session.about = f"ledger {ledger_id}"
    found = metadata_of(session, ledger_id)
    _refuse_closed(found)
    if session.dry_run:
        return f"fence ledger {ledger_id} on {', '.join(found.ensemble)}"
    confirm_fencing(session, ledger_id, found, f"Fence ledger {ledger_id}?")
    return session.call(_fence_ledger, ledger_id)


def _require_covered(fenced: Any) -> None:
    if not fenced.covered:
        raise PartlyDoneError(
            "not every write set is covered: a writer may still add",
            next_step=f"`bkctl ledger fence {fenced.ledger_id}` again when the missing bookies are "
            "back",
        )


def confirm_fencing(session: Session, ledger_id: LedgerId, found: Any, question: str) -> None:
    """Ask before a ledger is fenced if it may have a writer.

    A ledger in recovery is fenced already.
    """
    if found.state is LedgerState.OPEN:
        session.confirm(
            [
                f"Ledger {ledger_id} is open: if a writer runs, its next add fails.",
                writer_text(ledger_id, found),
            ],
            question,
            effect=Effect.FENCES,
        )


def _refuse_closed(metadata: LedgerMetadata) -> None:
    """Refuse to fence a closed ledger: it cannot grow.

    Raises:
        ConflictError: the ledger is closed.
    """
    if metadata.is_closed:
        raise ConflictError(
            "the ledger is closed, so no client can add to it", next_step="nothing needs to be done"
        )


async def _fence_ledger(client: Client, ledger_id: LedgerId) -> LedgerFenced:
    """Mark a ledger as in recovery and fence it on its last ensemble."""
    done = await cluster_operations.fence_ledger(client, ledger_id)
    return LedgerFenced(
        ledger_id=ledger_id,
        state="in-recovery",
        answered=done.fenced,
        missing={bookie: str(error) for bookie, error in done.failed.items()},
        covered=done.covered,
    )


_BEFORE: Final = "was closed before"


def _closed_sentence(closed: LedgerClosed) -> str:
    holds = f"{counted(closed.last_entry + 1, 'entry')}, {human_bytes(closed.length)}"
    unread = closed.how == _BEFORE and closed.last_entry >= 0
    then = f"; `bkctl ledger verify {closed.ledger_id}` checks its entries" if unread else ""
    return f"ledger {closed.ledger_id} {closed.how}: {holds}{then}"


@shown("ledgers", sentence=_closed_sentence)
class LedgerClosed:
    """A closed ledger. ``how`` says whether it was closed, recovered, or closed before."""

    ledger_id: LedgerId = field(LEDGER)
    how: str = field("closed, recovered, or closed before.")
    last_entry: EntryId = field("Last entry, -1 for none.")
    length: int = field("Bytes of payload.", kind=Kind.BYTES)


def close(session: Session, words: Sequence[Any]) -> None:
    """Close ledgers after the last entry of their writers; `-` reads ids from stdin."""
    ledger_ids.for_each_ledger(session, words, _close, LedgerClosed)


def _close(session: Session, ledger_id: LedgerId) -> Any:
    session.about = f"ledger {ledger_id}"
    writer = shell_writers.writer_in_use(session, ledger_id)
    if writer is not None:
        if session.dry_run:
            return f"close ledger {ledger_id}, which this shell writes to"
        return _closed(ledger_id, session.run(writer.close), "closed")
    found = metadata_of(session, ledger_id)
    if found.state is not LedgerState.OPEN or not one_shot_adds.is_handed_over(found):
        return _recover_unless_closed(session, ledger_id, found)
    if session.dry_run:
        return f"close ledger {ledger_id}, which its last writer has released"
    return session.call(_claim_and_close, ledger_id)


def recover(session: Session, words: Sequence[Any]) -> None:
    """Find the last entry of each ledger and close the ledger there; `-` reads ids from stdin."""
    ledger_ids.for_each_ledger(session, words, _recover, LedgerClosed)


def _recover(session: Session, ledger_id: LedgerId) -> Any:
    session.about = f"ledger {ledger_id}"
    return _recover_unless_closed(session, ledger_id, metadata_of(session, ledger_id))


def _recover_unless_closed(session: Session, ledger_id: LedgerId, found: LedgerMetadata) -> Any:
    if found.is_closed and session.dry_run:
        return f"leave ledger {ledger_id}, which is closed"
    if found.is_closed:
        return _closed(ledger_id, found, _BEFORE)
    if session.dry_run:
        return f"fence, recover and close ledger {ledger_id} ({found.state.word})"
    confirm_fencing(session, ledger_id, found, f"Recover and close ledger {ledger_id}?")
    session.resume = f"it is safe to run again: {session.options.again()}"
    return recover_ledger(session, ledger_id)


async def _claim_and_close(client: Client, ledger_id: LedgerId) -> LedgerClosed:
    """Close a ledger that its last writer has released."""
    writer = await one_shot_adds.claim_ledger(client, ledger_id)
    return _closed(ledger_id, await writer.close(), "closed")


def _closed(ledger_id: LedgerId, metadata: LedgerMetadata, how: str) -> LedgerClosed:
    """Return the value to print for a closed ledger."""
    assert metadata.last_entry_id is not None, metadata
    return LedgerClosed(ledger_id, how, metadata.last_entry_id, metadata.length)


def recover_ledger(session: Session, ledger_id: LedgerId) -> LedgerClosed:
    """Recover and close a ledger, with a progress display."""
    with session.progress(f"recovering ledger {ledger_id}", unit="entries") as progress:

        def report(step: RecoveryProgress) -> None:
            progress.update(max(0, step.recovered))

        metadata = session.call(cluster_operations.recover_ledger, ledger_id, report)
    return _closed(ledger_id, metadata, "recovered and closed")
