"""BookKeeper's protocol and stored forms as values and bytes: no I/O, no clock, no Twisted.

The names of ``__all__`` are public; everything else may change without notice. A name is loaded at
its first use, so that a program loads only the names that it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from wire.codes import DigestType as DigestType
    from wire.codes import LedgerState as LedgerState
    from wire.codes import ProtocolVersion as ProtocolVersion
    from wire.digest import Entry as Entry
    from wire.entry_batch import EntryBatch as EntryBatch
    from wire.errors import BookKeeperError as BookKeeperError
    from wire.ids import BookieId as BookieId
    from wire.ids import EntryId as EntryId
    from wire.ids import LedgerId as LedgerId
    from wire.ledger_metadata import Fragment as Fragment
    from wire.ledger_metadata import LedgerMetadata as LedgerMetadata

__all__ = [
    "BookKeeperError",
    "BookieId",
    "DigestType",
    "Entry",
    "EntryBatch",
    "EntryId",
    "Fragment",
    "LedgerId",
    "LedgerMetadata",
    "LedgerState",
    "ProtocolVersion",
]

_HOMES: Final = {
    "BookKeeperError": "wire.errors",
    "BookieId": "wire.ids",
    "DigestType": "wire.codes",
    "Entry": "wire.digest",
    "EntryBatch": "wire.entry_batch",
    "EntryId": "wire.ids",
    "Fragment": "wire.ledger_metadata",
    "LedgerId": "wire.ids",
    "LedgerMetadata": "wire.ledger_metadata",
    "LedgerState": "wire.codes",
    "ProtocolVersion": "wire.codes",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
