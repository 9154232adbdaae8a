"""Ledgers are fenced, so that no client can add to them: `ledger fence`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from bkclient.admin import operations
from bkctl.commands.ledger import ids as ledger_ids
from bkctl.commands.ledger.listing import metadata_of, writer_text
from bkctl.errors import ConflictError, PartlyDoneError
from bkctl.output.units import counted
from bkctl.output.views import LEDGER, Kind, column, shown
from wire.codes import LedgerState
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session.session import Session
    from wire.ids import BookieId


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


@shown(
    "ledgers",
    LEDGER,
    column("state", "Its state now.", kind=Kind.STATE),
    column("answered", "Bookies that fenced it."),
    column("missing", "Bookies that did not, and why."),
    column("covered", "Whether no write set is left."),
    sentence=_fenced_sentence,
)
@attrs.frozen
class LedgerFenced:
    """What fencing reached: whether enough bookies know that no writer can add any more."""

    ledger_id: LedgerId
    state: str
    answered: tuple[BookieId, ...]
    missing: Mapping[BookieId, str]
    covered: bool


def fence(session: Session, given: Sequence[Any]) -> None:
    """Make sure that no writer can add to ledgers any more, without closing them."""
    ledger_ids.each(session, given, _fence, LedgerFenced, after=_insist_covered)


def _fence(session: Session, ledger_id: LedgerId) -> Any:
    session.about = f"ledger {ledger_id}"
    found = metadata_of(session, ledger_id)
    _refuse_closed(found)
    if session.dry_run:
        return f"fence ledger {ledger_id} on {', '.join(found.ensemble)}"
    confirm_fencing(session, ledger_id, found, f"Fence ledger {ledger_id}?")
    return session.call(_fence_ledger, ledger_id)


def _insist_covered(fenced: Any) -> None:
    if not fenced.covered:
        raise PartlyDoneError(
            "not every write set is covered: a writer may still add",
            next_step=f"`bkctl ledger fence {fenced.ledger_id}` again when the missing bookies are "
            "back",
        )


def confirm_fencing(session: Session, ledger_id: LedgerId, found: Any, question: str) -> None:
    """Ask before a live writer may lose its ledger; one in recovery has lost it already."""
    if found.state is LedgerState.OPEN:
        session.confirm(
            [
                f"Ledger {ledger_id} is open: a writer at work on it will fail at its next add.",
                writer_text(ledger_id, found),
            ],
            question,
        )


def _refuse_closed(metadata: LedgerMetadata) -> None:
    """Refuse to fence what cannot grow anyway.

    Raises:
        ConflictError: the ledger is closed.
    """
    if metadata.is_closed:
        raise ConflictError(
            "the ledger is closed, so no client can add to it", next_step="nothing needs to be done"
        )


async def _fence_ledger(client: Client, ledger_id: LedgerId) -> LedgerFenced:
    """Mark a ledger as in recovery and fence it on its last ensemble."""
    done = await operations.fence_ledger(client, ledger_id)
    return LedgerFenced(
        ledger_id=ledger_id,
        state="in-recovery",
        answered=done.fenced,
        missing={bookie: str(error) for bookie, error in done.failed.items()},
        covered=done.covered,
    )
