"""Ledgers are closed where they end, after a recovery if need be: `ledger close`, `recover`."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from bkclient.admin import handover, operations
from bkctl.commands.ledger import ids as ledger_ids
from bkctl.commands.ledger.fence import confirm_fencing
from bkctl.commands.ledger.listing import metadata_of
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import LEDGER, Kind, column, shown
from bkctl.session import shell_writers
from wire.codes import LedgerState
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.ledger.recovery import RecoveryProgress
    from bkctl.session.session import Session


def _closed_sentence(closed: LedgerClosed) -> str:
    holds = f"{counted(closed.last_entry + 1, 'entry')}, {human_bytes(closed.length)}"
    return f"ledger {closed.ledger_id} {closed.how}: {holds}"


@shown(
    "ledgers",
    LEDGER,
    column("how", "closed, recovered, or closed before."),
    column("last_entry", "Last entry, -1 for none."),
    column("length", "Bytes of payload.", kind=Kind.BYTES),
    sentence=_closed_sentence,
)
@attrs.frozen
class LedgerClosed:
    """A ledger that is closed now; ``how`` says which way."""

    ledger_id: LedgerId
    how: str
    last_entry: EntryId
    length: int


def close(session: Session, given: Sequence[Any]) -> None:
    """Close ledgers where their last writers ended; `-` reads ids from stdin."""
    ledger_ids.each(session, given, _close, LedgerClosed)


def _close(session: Session, ledger_id: LedgerId) -> Any:
    session.about = f"ledger {ledger_id}"
    writer = shell_writers.writer_in_use(session, ledger_id)
    if writer is not None:
        if session.dry_run:
            return f"close ledger {ledger_id}, which this shell writes to"
        return _closed(ledger_id, session.run(writer.close), "closed")
    how, found = _way_to_close(session, ledger_id)
    if how is _Close.RECOVER:
        return _recovered(session, ledger_id, found)
    if session.dry_run:
        done = how is _Close.ALREADY
        what = "which is closed" if done else "which its last writer has handed over"
        return f"{'leave' if done else 'close'} ledger {ledger_id}, {what}"
    if how is _Close.ALREADY:
        return _closed(ledger_id, found, "was closed before")
    return session.call(_claim_and_close, ledger_id)


def recover(session: Session, given: Sequence[Any]) -> None:
    """Find out where ledgers end and close them there; `-` reads ids from stdin."""
    ledger_ids.each(session, given, _recover, LedgerClosed)


def _recover(session: Session, ledger_id: LedgerId) -> Any:
    session.about = f"ledger {ledger_id}"
    found = metadata_of(session, ledger_id)
    if not found.is_closed:
        return _recovered(session, ledger_id, found)
    if session.dry_run:
        return f"leave ledger {ledger_id}, which is closed"
    return _closed(ledger_id, found, "was closed before")


def _recovered(session: Session, ledger_id: LedgerId, found: Any) -> Any:
    if session.dry_run:
        return f"fence, recover and close ledger {ledger_id} ({found.state.name.lower()})"
    confirm_fencing(session, ledger_id, found, f"Recover and close ledger {ledger_id}?")
    session.resume = f"it is safe to run again: {session.options.again()}"
    return recover_ledger(session, ledger_id)


class _Close(enum.Enum):
    """What it takes to close a ledger."""

    ALREADY = enum.auto()
    CLAIM = enum.auto()
    """Its last writer handed it over: an ordinary close will do."""
    RECOVER = enum.auto()
    """It may have a writer, or had one that ended without a word."""


def _way_to_close(session: Session, ledger_id: LedgerId) -> tuple[_Close, LedgerMetadata]:
    """Return what it takes to close a ledger, and its metadata."""
    metadata = metadata_of(session, ledger_id)
    if metadata.is_closed:
        return _Close.ALREADY, metadata
    if metadata.state is LedgerState.OPEN and handover.is_handed_over(metadata):
        return _Close.CLAIM, metadata
    return _Close.RECOVER, metadata


async def _claim_and_close(client: Client, ledger_id: LedgerId) -> LedgerClosed:
    """Close a ledger that was handed over."""
    writer = await handover.claim(client, ledger_id)
    return _closed(ledger_id, await writer.close(), "closed")


def _closed(ledger_id: LedgerId, metadata: LedgerMetadata, how: str) -> LedgerClosed:
    """Return what is to be told of a closed ledger."""
    assert metadata.last_entry_id is not None, metadata
    return LedgerClosed(ledger_id, how, metadata.last_entry_id, metadata.length)


def recover_ledger(session: Session, ledger_id: LedgerId) -> LedgerClosed:
    """Recover and close a ledger, with a progress display."""
    with session.progress(f"recovering ledger {ledger_id}", unit="entries") as progress:

        def report(step: RecoveryProgress) -> None:
            progress.update(max(0, step.recovered))

        metadata = session.call(operations.recover_ledger, ledger_id, report)
    return _closed(ledger_id, metadata, "recovered and closed")
