"""The columns of entries as a table, in exports and in Spark."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("ledger_id", "entry_id", "lac", "length", "ctime", "payload")
LOG_COLUMNS: Final = ("log", "log_index", *COLUMNS)
"""The columns of a log: its name, and the ledger's index in it.

Index and entry id are a position.
"""


def arrow_schema(
    columns: Sequence[str] = COLUMNS, nullable: Collection[str] = frozenset()
) -> pa.Schema:
    """Return the Arrow schema of ``columns``, in this order.

    Only ``ctime`` has nulls; the schema also allows nulls in ``nullable`` columns.
    """
    import pyarrow as pa

    every = pa.schema(
        [
            pa.field("log", pa.string(), nullable=False),
            pa.field("log_index", pa.int64(), nullable=False),
            pa.field("ledger_id", pa.int64(), nullable=False),
            pa.field("entry_id", pa.int64(), nullable=False),
            pa.field("lac", pa.int64(), nullable=False),
            pa.field("length", pa.int64(), nullable=False),
            pa.field("ctime", pa.timestamp("us", tz="UTC")),
            pa.field("payload", pa.binary(), nullable=False),
        ]
    )
    return pa.schema(
        [every.field(name).with_nullable(name in nullable or name == "ctime") for name in columns]
    )
