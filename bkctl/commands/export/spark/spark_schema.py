"""The columns of the rows that queries and streams give: of ledgers and logs, and of topics."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    TimestampType,
)

from bkctl.commands.export.spark.source_options import SourceOptions

_FIELDS: Final = {
    "log": StructField("log", StringType(), nullable=False),
    "log_index": StructField("log_index", LongType(), nullable=False),
    "ledger_id": StructField("ledger_id", LongType(), nullable=False),
    "entry_id": StructField("entry_id", LongType(), nullable=False),
    "lac": StructField("lac", LongType(), nullable=False),
    "length": StructField("length", LongType(), nullable=False),
    "ctime": StructField("ctime", TimestampType(), nullable=True),
    "payload": StructField("payload", BinaryType(), nullable=False),
}
"""``lac`` and ``length`` as in the entry's header; ``ctime`` is the ledger's creation time."""

_TOPIC_FIELDS: Final = {
    "ledger_id": StructField("ledger_id", LongType(), nullable=False),
    "entry_id": StructField("entry_id", LongType(), nullable=False),
    "batch_index": StructField("batch_index", IntegerType(), nullable=False),
    "topic": StructField("topic", StringType(), nullable=False),
    "partition": StructField("partition", IntegerType(), nullable=False),
    "key": StructField("key", BinaryType()),
    "ordering_key": StructField("ordering_key", BinaryType()),
    "value": StructField("value", BinaryType()),
    "properties": StructField("properties", MapType(StringType(), StringType()), nullable=False),
    "publish_time": StructField("publish_time", TimestampType(), nullable=False),
    "event_time": StructField("event_time", TimestampType()),
    "broker_time": StructField("broker_time", TimestampType()),
    "index": StructField("index", LongType()),
    "sequence_id": StructField("sequence_id", LongType(), nullable=False),
    "producer": StructField("producer", StringType(), nullable=False),
    "schema_version": StructField("schema_version", BinaryType()),
    "replicated_from": StructField("replicated_from", StringType()),
    "encrypted": StructField("encrypted", BooleanType(), nullable=False),
    "decoded": StructField("decoded", StringType()),
}
"""The fields of ``TopicMessage``; ``decoded`` with the option ``decode``."""


def fields_of(options: SourceOptions) -> dict[str, StructField]:
    """Return the columns that a query can have, by name."""
    return _TOPIC_FIELDS if options.is_topics else _FIELDS
