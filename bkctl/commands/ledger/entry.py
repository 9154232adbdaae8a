"""What entries look like in tables and machine forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from bkctl.output.views import (
    ENTRY,
    LEDGER,
    OLDER_IDS,
    PAYLOAD,
    PAYLOAD_SIZE,
    column,
    formerly,
    shown,
)

if TYPE_CHECKING:
    from wire.ids import EntryId, LedgerId


@shown(
    "entries",
    LEDGER,
    ENTRY,
    PAYLOAD_SIZE,
    column(
        "last_add_confirmed",
        "What the writer had confirmed when it added this entry.",
        rank=3,
        header="LAC",
    ),
    *PAYLOAD,
    *OLDER_IDS,
    formerly(PAYLOAD_SIZE, "length"),
    id="entry_id",
)
@attrs.frozen
class EntryRecord:
    """One entry as machine forms and tables have it."""

    ledger_id: LedgerId
    entry_id: EntryId
    payload: bytes
    last_add_confirmed: int
    text: Any = None


def preview(payload: bytes, chars_max: int = 60) -> str:
    """Return the beginning of a payload for a table."""
    text = payload[: chars_max + 1].decode(errors="backslashreplace")
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(payload) <= chars_max else f"{shown[: chars_max - 3]}..."
