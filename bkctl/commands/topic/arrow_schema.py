"""The columns of a topic as a table, in the files of ``bkctl topic export`` and in Spark."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC_COLUMNS: Final = (
    "ledger_id", "entry_id", "batch_index", "topic", "partition", "key", "ordering_key", "value",
    "properties", "publish_time", "event_time", "broker_time", "index", "sequence_id", "producer",
    "schema_version", "replicated_from", "encrypted",
)  # fmt: skip
"""The columns of a topic: the fields of ``TopicMessage`` except ``decoded``."""

DECODED: Final = "decoded"
"""The value as text, or as JSON."""


def topic_schema(
    columns: Sequence[str] = TOPIC_COLUMNS,
    nullable: Collection[str] = frozenset(),
    *,
    time_unit: str = "us",
) -> pa.Schema:
    """Return the Arrow schema of these columns, in their order; Spark's times are in µs."""
    import pyarrow as pa

    time = pa.timestamp(time_unit, tz="UTC")
    every = pa.schema([
        pa.field("ledger_id", pa.int64(), nullable=False),
        pa.field("entry_id", pa.int64(), nullable=False),
        pa.field("batch_index", pa.int32(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("ordering_key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("publish_time", time, nullable=False),
        pa.field("event_time", time),
        pa.field("broker_time", time),
        pa.field("index", pa.int64()),
        pa.field("sequence_id", pa.int64(), nullable=False),
        pa.field("producer", pa.string(), nullable=False),
        pa.field("schema_version", pa.binary()),
        pa.field("replicated_from", pa.string()),
        pa.field("encrypted", pa.bool_(), nullable=False),
        pa.field(DECODED, pa.string()),
    ])  # fmt: skip
    fields = [every.field(name) for name in columns]
    return pa.schema([one.with_nullable(one.nullable or one.name in nullable) for one in fields])
