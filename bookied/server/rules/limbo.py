"""The answers about a ledger in limbo: the bookie may have lost its entries or its fence.

``bookied.data_integrity.check`` puts ledgers into limbo. Ledgers with a damaged index (``doubt``)
are answered here too: a missing entry may have existed.
"""

from __future__ import annotations

from bookied.storage.index.ledger_pages import CachedLedger
from wire.errors import (
    BookKeeperError,
    NoSuchEntryError,
    UnauthorizedError,
    UnknownLedgerStateError,
)


def no_entry(state: CachedLedger, entry_id: int) -> BookKeeperError:
    """Return the error for a missing entry: it may be lost if the ledger is in limbo or doubt."""
    if state.limbo:
        return in_limbo(state)
    return state.doubt or NoSuchEntryError(f"entry {entry_id} of ledger {state.ledger_id}")


def require_no_limbo(state: CachedLedger) -> None:
    """Refuse a request whose answer could be wrong after a loss: clients trust "no such entry".

    Raises:
        UnknownLedgerStateError: the ledger is in limbo.
        CorruptError: the ledger's index is damaged.
    """
    if state.limbo:
        raise in_limbo(state)
    if state.doubt is not None:
        raise state.doubt


def in_limbo(state: CachedLedger) -> UnknownLedgerStateError:
    """Return the error for a request that only a bookie without losses can answer."""
    return UnknownLedgerStateError(f"ledger {state.ledger_id} may have lost entries here")


def fence_in_limbo(state: CachedLedger) -> UnauthorizedError:
    """Return the error for an ordinary add; clients treat this error as final, like a fence.

    Agrees with BookKeeper 4.18.0, SingleDirectoryDbLedgerStorage.isFenced.
    """
    return UnauthorizedError(f"ledger {state.ledger_id} may have been fenced")
