"""What a bookie answers about a ledger in limbo: entries or its fence may have been lost here.

Ledgers are put into limbo by ``bookied.data_integrity.check``. An index that is damaged (``doubt``)
is answered here too: what is not there may have been.
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
    """Return how an entry is refused that is not here: in limbo, or in doubt, it may have been."""
    if state.limbo:
        return in_limbo(state)
    return state.doubt or NoSuchEntryError(f"entry {entry_id} of ledger {state.ledger_id}")


def insist_sure(state: CachedLedger) -> None:
    """Refuse what only who lost nothing can answer; clients take what is not here for proof.

    Raises:
        UnknownLedgerStateError: the ledger is in limbo.
        CorruptError: its index is damaged.
    """
    if state.limbo:
        raise in_limbo(state)
    if state.doubt is not None:
        raise state.doubt


def in_limbo(state: CachedLedger) -> UnknownLedgerStateError:
    """Return how a question is refused that only who lost nothing can answer."""
    return UnknownLedgerStateError(f"ledger {state.ledger_id} may have lost entries here")


def fence_in_limbo(state: CachedLedger) -> UnauthorizedError:
    """Return how an ordinary add is refused; clients take this for final, as they do a fence.

    Agrees with BookKeeper 4.18.0, SingleDirectoryDbLedgerStorage.isFenced.
    """
    return UnauthorizedError(f"ledger {state.ledger_id} may have been fenced")
