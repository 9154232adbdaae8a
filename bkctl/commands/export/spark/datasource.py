"""Ledgers, logs and topics as a Spark data source: ``spark.read.format("bookkeeper")``.

Options are in ``source_options``. The driver reads settings, plans, and checks all of it. Tasks
read entries straight from the bookies. Settings travel within the code that tasks run, of which
Spark shows nothing. Keys and passwords stay in the files that the settings name; each task reads
these files itself. Nothing is fenced without ``recover``.

Workers import this module anew, so it stays light until a task reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from bkctl.commands.export.spark.filters import Bounds, bounded
from bkctl.commands.export.spark.source_options import (
    EARLIEST,
    SourceOptionError,
    SourceOptions,
    check_columns,
    parse_options,
)
from bkctl.commands.export.spark.topic_rows import MessageBuffer, TopicReading, read_messages
from bkctl.commands.export.task.copy import connect
from bkctl.commands.export.task.errors import TaskError
from bkctl.commands.export.task.plan import LedgerExtent, Task, cut
from bkctl.commands.export.task.rows import RowBuffer, read_ranges
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    import pyarrow as pa

    from bkclient.blocking import BlockingClient
    from bkclient.client import Client
    from bkclient.config.client import ClientConfig
    from bkctl.commands.export.spark.sink import LogStreamWriter, LogWriter
    from bkctl.commands.export.spark.stream import FollowingReader

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


@attrs.define
class TaskPartition(InputPartition):
    """One task's share of a query."""

    number: int
    ranges: Task


class LedgerSource(DataSource):
    """The data source ``bookkeeper``."""

    short_name: ClassVar[str] = "bookkeeper"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._asked = parse_options(dict(options))

    @classmethod
    def name(cls) -> str:
        """Return the word for ``spark.read.format``."""
        return cls.short_name

    def schema(self) -> StructType:
        """Return the columns that ``columns`` names; else all, which for a log are more."""
        names = self._asked.columns or self._asked.columns_there
        fields = _fields_of(self._asked)
        return StructType([fields[name] for name in names])

    def reader(self, schema: StructType) -> LedgerSourceReader:
        """Return what plans and reads one query."""
        query = Query.of(self._asked, schema)
        return PushingReader(query) if self._asked.push_filters else LedgerSourceReader(query)

    def streamReader(self, schema: StructType) -> FollowingReader:  # noqa: N802 -- Spark's name
        """Return what plans and reads a stream."""
        query = Query.of(self._asked, schema)
        if self._asked.is_topics:
            from bkctl.commands.export.spark.topic_stream import TopicStreamReader

            return TopicStreamReader(query)
        from bkctl.commands.export.spark.stream import LogStreamReader

        return LogStreamReader(query)

    def writer(self, schema: StructType, overwrite: bool) -> LogWriter:  # noqa: FBT001
        """Return what appends rows to a log."""
        from bkctl.commands.export.spark.sink import LogWriter, Sink

        return LogWriter(Sink.of(self._asked, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:  # noqa: FBT001, N802
        """Return what appends micro-batches to a log, each once."""
        from bkctl.commands.export.spark.sink import LogStreamWriter, Sink

        sink = Sink.of(self._asked, schema, overwrite=overwrite)
        return LogStreamWriter(sink, sink.writer_id(dict(self.options)))


def _fields_of(options: SourceOptions) -> dict[str, StructField]:
    return _TOPIC_FIELDS if options.is_topics else _FIELDS


@attrs.frozen
class Query:
    """What a query reads, from which cluster, and which columns of it; pickled into the tasks."""

    options: SourceOptions
    columns: tuple[str, ...]
    nullable: frozenset[str]
    uri: str
    config: ClientConfig

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType) -> Query:
        """Return the query for a schema, which a user may have given.

        Raises:
            SourceOptionError: the schema has another column, or a column of another type.
            UsageError: no option names a cluster.
        """
        names = [field.name for field in schema.fields]
        check_columns(names, options)
        fields = _fields_of(options)
        for field in schema.fields:
            if field.dataType != fields[field.name].dataType:
                have, want = field.dataType.simpleString(), fields[field.name].dataType
                raise SourceOptionError(
                    f"column {field.name!r} is {want.simpleString()}, not {have}"
                )
        uri, config = options.where()
        # Spark takes batches only in the very schema it was given, which a user may have written.
        nullable = frozenset(field.name for field in schema.fields if field.nullable)
        return cls(options, tuple(names), nullable, uri, config)

    def client(self) -> BlockingClient:
        """Return a client, in a task or on the driver."""
        return connect(self.uri, self.config)

    def partitions(self, extents: Sequence[LedgerExtent]) -> list[TaskPartition]:
        """Cut what is to be read into partitions that are even in bytes."""
        size = self.options.partition_bytes_max
        if self.options.partitions_min:
            total = sum(extent.length for extent in extents)
            size = max(1, min(size, -(-total // self.options.partitions_min)))
        tasks = cut(extents, 1, target_bytes=size)
        return [TaskPartition(number, ranges) for number, ranges in enumerate(tasks)]

    def read(self, ranges: Task) -> Iterator[pa.RecordBatch]:
        """Yield the entries of ranges as Arrow batches; of topics, their messages.

        Raises:
            TaskError: an entry cannot be read, or no client can be made.
        """
        read = self._read_messages if self.options.is_topics else self._read_entries
        try:
            with self.client() as client:
                yield from read(client, ranges)
        except BookKeeperError as error:
            raise error if isinstance(error, TaskError) else TaskError("", error) from error

    def _read_entries(self, client: BlockingClient, ranges: Task) -> Iterator[pa.RecordBatch]:
        rows = RowBuffer(self.columns, self.nullable)
        for parts in client.iterate(lambda connected: read_ranges(connected, ranges)):
            for entry_range, batch in parts:
                rows.add(entry_range, batch)
            if rows.is_full:
                yield rows.take()
        if rows.entries:
            yield rows.take()

    def _read_messages(self, client: BlockingClient, ranges: Task) -> Iterator[pa.RecordBatch]:
        rows = MessageBuffer(self.columns, self.nullable)
        how = TopicReading(self.options.decode, self.options.fail_on_data_loss)
        for messages in client.iterate(lambda connected: read_messages(connected, ranges, how)):
            rows.add(messages)
            if rows.is_full:
                yield rows.take()
        if rows.messages:
            yield rows.take()


class LedgerSourceReader(DataSourceReader):
    """Plans on the driver, reads in the tasks; only the query and ranges are pickled."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._bounds = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition a task, and an empty one where there is nothing to read.

        Of no partitions at all Spark makes one that nobody could read.
        """
        with self._query.client() as client:
            extents: list[LedgerExtent] = client.call(_extents, self._query.options)
        wanted = [part for extent in extents if (part := self._bounds.part(extent)) is not None]
        return self._query.partitions(wanted) or [TaskPartition(0, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the partition's entries as Arrow batches."""
        assert isinstance(partition, TaskPartition)
        if partition.ranges:
            yield from self._query.read(partition.ranges)


class PushingReader(LedgerSourceReader):
    """A reader that takes filters over from Spark.

    A class of its own, for Spark refuses one that has ``pushFilters`` where
    ``spark.sql.python.filterPushdown.enabled`` is false, as it is by default.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 -- Spark's name
        """Note what filters say of ledgers, entries, positions and time; return all the others."""
        self._bounds, rest = bounded(filters)
        return rest


async def _extents(client: Client, options: SourceOptions) -> list[LedgerExtent]:
    from bkctl.commands.export.spark.selection import (
        chosen_ledgers,
        log_end,
        log_extents,
        log_start,
    )

    if options.is_topics:
        from bkctl.commands.export.spark.topics import batch_extents

        return await batch_extents(client, options, time.time_ns() // 1_000_000)
    if options.log is None:
        return await chosen_ledgers(client, options)
    start = await log_start(client, options, EARLIEST)
    end = await log_end(client, options)
    return (await log_extents(client, options, start, end))[0]
