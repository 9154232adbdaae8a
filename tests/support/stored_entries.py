"""Which entries a bookie's storage has."""

from __future__ import annotations

from bookied.storage.ledger_storage.storage import LedgerStorage


def stored_entries(storage: LedgerStorage, ledger_id: int) -> list[int]:
    """Return the ids of the entries of a ledger, ascending."""
    pages = storage.reads.runs_by_page(ledger_id)
    runs = [run for _, some in pages for run in some]
    return [entry_id for first, size in runs for entry_id in range(first, first + size)]
