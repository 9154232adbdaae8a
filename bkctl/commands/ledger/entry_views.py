"""What entries look like in tables and machine forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.output.emit import Field, Kind, View
from bkctl.output.views import PAYLOAD

if TYPE_CHECKING:
    from wire.ids import EntryId, LedgerId


@attrs.frozen
class EntryRecord:
    """One entry as machine forms and tables have it."""

    ledger_id: LedgerId
    entry_id: EntryId
    payload: bytes
    last_add_confirmed: int
    text: Any = None


ENTRY_VIEWS: Final[Mapping[type, View]] = {
    EntryRecord: View(
        "entries",
        (
            Field("ledger", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID),
            Field("entry", "The entry.", lambda v: v.entry_id, Kind.COUNT),
            Field("length", "Bytes of payload.", lambda v: len(v.payload), Kind.BYTES),
            Field(
                "last_add_confirmed",
                "What the writer had confirmed when it added this entry.",
                lambda v: v.last_add_confirmed,
                Kind.COUNT,
                rank=3,
                header="LAC",
            ),
            *PAYLOAD,
        ),
        "entry",
    ),
}


def preview(payload: bytes, chars_max: int = 60) -> str:
    """Return the beginning of a payload for a table."""
    text = payload[: chars_max + 1].decode(errors="backslashreplace")
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(payload) <= chars_max else f"{shown[: chars_max - 3]}..."
