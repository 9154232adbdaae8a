"""Fields that several views have."""

from __future__ import annotations

from typing import Final

from bkctl.output.emit import NEVER, Field, Kind

LEDGER: Final = Field(
    "ledger_id", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID, header="LEDGER"
)
SIZE: Final = Field("size", "Bytes of payload.", lambda v: v.size, Kind.BYTES)
SECONDS: Final = Field("seconds", "Time it took.", lambda v: v.seconds, Kind.SECONDS)
ENTRIES: Final = Field("entries", "How many entries.", lambda v: v.entries, Kind.COUNT)

PAYLOAD: Final = (
    Field(
        "payload_b64",
        "The payload in base64; none with --entry-format.",
        lambda v: None if v.text is not None else v.payload,
        Kind.DATA,
        rank=NEVER,
        optional=True,
    ),
    Field(
        "payload",
        "The payload as --entry-format has it.",
        lambda v: v.text,
        Kind.ANY,
        rank=1,
        optional=True,
    ),
)
"""What an entry holds: as bytes, or as ``--entry-format`` reads it."""
