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
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bkctl.commands.export.spark.filters import Bounds, bounded
from bkctl.commands.export.spark.query import Query, TaskPartition, fields_of, short_errors
from bkctl.commands.export.spark.source_options import (
    SourceOptions,
    check_use,
    cursor_of,
    parse_options,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from bkclient.client import Client
    from bkctl.commands.export.spark.log_stream import FollowingReader
    from bkctl.commands.export.spark.sink import SinkStreamWriter, SinkWriter
    from bkctl.commands.export.task.partitions import LedgerExtent


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
        fields = fields_of(self._asked)
        return StructType([fields[name] for name in names])

    def reader(self, schema: StructType) -> LedgerSourceReader:
        """Return what plans and reads one query."""
        check_use(self._asked)
        query = Query.of(self._asked, schema)
        return PushingReader(query) if self._asked.push_filters else LedgerSourceReader(query)

    def streamReader(self, schema: StructType) -> FollowingReader:  # noqa: N802 -- Spark's name
        """Return what plans and reads a stream."""
        check_use(self._asked, is_stream=True)
        query = Query.of(self._asked, schema)
        cursor = cursor_of(dict(self.options), self._asked)
        if self._asked.is_topics:
            from bkctl.commands.export.spark.topic_stream import TopicStreamReader

            return TopicStreamReader(query, cursor)
        from bkctl.commands.export.spark.log_stream import LogStreamReader

        return LogStreamReader(query, cursor)

    def writer(self, schema: StructType, overwrite: bool) -> SinkWriter:  # noqa: FBT001
        """Return what appends rows to a log."""
        from bkctl.commands.export.spark.sink import Sink, SinkWriter

        sink = Sink.of(self._asked, schema, overwrite=overwrite)
        sink.check()
        return SinkWriter(sink)

    def streamWriter(self, schema: StructType, overwrite: bool) -> SinkStreamWriter:  # noqa: FBT001, N802
        """Return what appends micro-batches to a log, each once."""
        from bkctl.commands.export.spark.sink import Sink, SinkStreamWriter

        sink = Sink.of(self._asked, schema, overwrite=overwrite)
        sink.check()
        return SinkStreamWriter(sink)


class LedgerSourceReader(DataSourceReader):
    """Plans on the driver, reads in the tasks; only the query and ranges are pickled."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._bounds = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition a task, and an empty one where there is nothing to read.

        Of no partitions at all Spark makes one that cannot be read.
        """
        with short_errors(), self._query.client() as client:
            extents = client.call(_extents, self._query.options)
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
    from bkctl.commands.export.spark.entry_ranges import batch_log_extents, chosen_ledgers

    if options.is_topics:
        from bkctl.commands.export.spark.topic_extents import batch_extents

        return await batch_extents(client, options, time.time_ns() // 1_000_000)
    if options.log is None:
        return await chosen_ledgers(client, options)
    return await batch_log_extents(client, options)
