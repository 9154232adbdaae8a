"""Ledgers, logs and topics as a Spark data source: ``spark.read.format("bookkeeper")``.

``source_options`` has the options. The driver reads settings, plans, and checks everything. Tasks
read entries straight from the bookies. Settings are part of the code of tasks, which Spark does not
show. Keys and passwords stay in the files that the settings name; each task reads these files
itself. No ledger is fenced without ``recover``.

Each worker imports this module, so it imports little until a task reads.
"""

from __future__ import annotations

import datetime as dt
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from bkctl.commands.export.spark import source_options
from bkctl.commands.export.spark.query import (
    Query,
    TaskPartition,
    fields_of,
    freeze_modules,
    short_errors,
)
from bkctl.commands.export.spark.source_options import SourceOptionError, SourceOptions
from bkctl.commands.export.task.partitions import LedgerExtent
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    import pyarrow as pa

    from bkclient.client import Client
    from bkctl.commands.export.spark.log_stream import FollowingReader
    from bkctl.commands.export.spark.sink import Sink, SinkStreamWriter, SinkWriter


_EVERYTHING: Final = (-(2**63), 2**63 - 1)
Interval = tuple[int, int]
"""The lowest and highest value, both included; empty if the first is above the second."""


@attrs.define
class Bounds:
    """The interval that filters leave of each column; ``ledger_ids`` is a set, or None."""

    ledger_id: Interval = _EVERYTHING
    entry_id: Interval = _EVERYTHING
    log_index: Interval = _EVERYTHING
    ctime_us: Interval = _EVERYTHING
    ledger_ids: frozenset[int] | None = None

    def part(self, extent: LedgerExtent) -> LedgerExtent | None:
        """Return the part of an extent within the bounds, or None."""
        ctime_us = None if extent.ctime_ms is None else extent.ctime_ms * 1000
        if (
            not _within(extent.ledger_id, self.ledger_id)
            or (self.ledger_ids is not None and extent.ledger_id not in self.ledger_ids)
            or not _within(extent.log_index, self.log_index)
            or not _within(ctime_us, self.ctime_us)
        ):
            return None
        first = max(extent.first_entry_id, self.entry_id[0])
        last = min(extent.last_entry_id, self.entry_id[1])
        if first > last:
            return None
        return extent.sliced(first, last)


def _within(value: int | None, interval: Interval) -> bool:
    """Return whether a value is in an interval; an unknown value is only in an unlimited one."""
    if value is None:
        return interval == _EVERYTHING
    return interval[0] <= value <= interval[1]


_NAMES: Final = {
    "ledger_id": "ledger_id",
    "entry_id": "entry_id",
    "log_index": "log_index",
    "ctime": "ctime_us",
}


def bounded(filters: Iterable[Any]) -> tuple[Bounds, list[Any]]:
    """Return the bounds that filters set, and the filters that Spark must apply.

    All filters must hold. Their classes are PySpark's ``EqualTo``, ``GreaterThan`` and so on. They
    are recognized by name, because PySpark 4.0 does not have them.
    """
    bounds = Bounds()
    return bounds, [one for one in filters if not _apply(bounds, one)]


def _apply(bounds: Bounds, one: Any) -> bool:
    """Narrow the bounds by a filter; return whether the bounds imply the filter."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    field = _NAMES.get(attribute[0]) if len(attribute) == 1 else None
    if field is None:
        return False
    kind = type(one).__name__
    if kind == "IsNotNull":
        return field != "ctime_us"
    if kind == "In":
        return field == "ledger_id" and _apply_ids(bounds, one.value)
    value = _number(one.value) if hasattr(one, "value") else None
    if value is None:
        return False
    interval = {
        "EqualTo": (value, value),
        "GreaterThan": (value + 1, _EVERYTHING[1]),
        "GreaterThanOrEqual": (value, _EVERYTHING[1]),
        "LessThan": (_EVERYTHING[0], value - 1),
        "LessThanOrEqual": (_EVERYTHING[0], value),
    }.get(kind)
    if interval is None:
        return False
    have = getattr(bounds, field)
    setattr(bounds, field, (max(have[0], interval[0]), min(have[1], interval[1])))
    return True


def _apply_ids(bounds: Bounds, values: Sequence[Any]) -> bool:
    ids = frozenset(value for value in values if value is not None)
    if not all(isinstance(value, int) for value in ids):
        return False
    bounds.ledger_ids = ids if bounds.ledger_ids is None else bounds.ledger_ids & ids
    return True


def _number(value: Any) -> int | None:
    """Return an integer, or a time in µs since 1970; None for other values."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo is not None else value.astimezone()
        since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
        return since // dt.timedelta(microseconds=1)
    return None


class LedgerSource(DataSource):
    """The data source ``bookkeeper``."""

    short_name: ClassVar[str] = "bookkeeper"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._asked = source_options.parse_options(dict(options))
        self._load_id = uuid.uuid4().hex
        """The id of one ``load``, for all its plans: Spark pickles the source."""
        freeze_modules()

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return cls.short_name

    def schema(self) -> StructType:
        """Return the columns that ``columns`` names, by default all; a log has more columns."""
        names = self._asked.columns or self._asked.columns_there
        fields = fields_of(self._asked)
        return StructType([fields[name] for name in names])

    def reader(self, schema: StructType) -> LedgerSourceReader:
        """Return the reader of one query."""
        source_options.check_use(self._asked)
        if self._asked.push_filters and not hasattr(DataSourceReader, "pushFilters"):
            raise SourceOptionError("option pushFilters needs PySpark 4.1 or newer")
        query = Query.of(self._asked, schema)
        if self._asked.push_filters:
            return PushingReader(query, self._load_id)
        return LedgerSourceReader(query)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Return the reader of a stream, or a reader that raises the error of its options."""
        try:
            return self._stream_reader(schema)
        except BookKeeperError as error:
            return RefusingReader(error)

    def _stream_reader(self, schema: StructType) -> FollowingReader:
        source_options.check_use(self._asked, is_stream=True)
        query = Query.of(self._asked, schema)
        cursor = source_options.cursor_of(dict(self.options), self._asked)
        if self._asked.is_topics:
            from bkctl.commands.export.spark.topic_stream import TopicStreamReader

            return TopicStreamReader(query, cursor)
        from bkctl.commands.export.spark.log_stream import LogStreamReader

        return LogStreamReader(query, cursor)

    def writer(self, schema: StructType, overwrite: bool) -> SinkWriter:  # noqa: FBT001
        """Return the writer that appends rows to a log."""
        from bkctl.commands.export.spark.sink import SinkWriter

        return SinkWriter(self._sink(schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> SinkStreamWriter:  # noqa: FBT001, N802
        """Return the writer that appends each micro-batch to a log once."""
        from bkctl.commands.export.spark.sink import SinkStreamWriter

        return SinkStreamWriter(self._sink(schema, overwrite=overwrite))

    def _sink(self, schema: StructType, *, overwrite: bool) -> Sink:
        from bkctl.commands.export.spark.sink import Sink

        sink = Sink.of(self._asked, schema, overwrite=overwrite)
        sink.check()
        return sink


class LedgerSourceReader(DataSourceReader):
    """The reader of a query: plans on the driver, reads in tasks.

    Only query and ranges are pickled.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._bounds = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each task, or an empty one if there is nothing to read.

        Without any partition Spark makes one that cannot be read.
        """
        with short_errors(self._query.uri), self._query.client() as client:
            extents = client.call(_extents, self._query.options)
        wanted = [part for extent in extents if (part := self._bounds.part(extent)) is not None]
        return self._query.partitions(wanted) or [TaskPartition(0, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the partition's entries as Arrow batches."""
        assert isinstance(partition, TaskPartition)
        if partition.ranges:
            yield from self._query.read(partition.ranges)


ALWAYS_TRUE: Final = "length >= 0"
"""A filter that each use of a DataFrame with ``pushFilters`` must have.

Spark up to 4.3 has one plan for all uses of a DataFrame. A use without a filter that Spark
understands gets the plan of another use, and the source is not called. With this filter the source
is called, and can refuse. The optimizer only removes the filter beside an equality of the same
column. Spark's main branch keeps the plan with each scan: its releases need no such filter.
"""

NEEDS_FILTER: Final = (
    f'with pushFilters, begin with frame = load().where("{ALWAYS_TRUE}"), and add other filters to '
    "frame: a use of load() without this filter could get the rows of another use"
)


def _is_always_true(one: Any) -> bool:
    name = type(one).__name__
    return name == "GreaterThanOrEqual" and one.attribute == ("length",) and one.value == 0


class PushingReader(LedgerSourceReader):
    """A reader to which Spark pushes filters.

    A separate class, because Spark refuses a reader with ``pushFilters`` if
    ``spark.sql.python.filterPushdown.enabled`` is false, its default.
    """

    def __init__(self, query: Query, load_id: str) -> None:
        super().__init__(query)
        self._load_id = load_id
        self._has_filters = False

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 -- Spark's name
        """Note filters on ledgers, entries, positions and time; return all other filters.

        Raises:
            SourceOptionError: ``ALWAYS_TRUE`` is missing, or an earlier use had other filters.
        """
        others = [one for one in filters if not _is_always_true(one)]
        if len(others) == len(filters):
            raise SourceOptionError(NEEDS_FILTER)
        self._has_filters = True
        self._bounds, rest = bounded(others)
        self._require_first_filters()
        return rest

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each task.

        Raises:
            SourceOptionError: Spark has passed no filter.
        """
        if not self._has_filters:
            raise SourceOptionError(NEEDS_FILTER)
        return super().partitions()

    def _require_first_filters(self) -> None:
        """Refuse filters that differ from those of an earlier use of the same DataFrame.

        Otherwise each use would read the rows of the last one. The note ends with the session.

        Raises:
            SourceOptionError: an earlier use had other filters.
        """
        directory = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
        if not directory:
            return
        ids = self._bounds.ledger_ids
        bounds = repr((attrs.evolve(self._bounds, ledger_ids=None), ids and sorted(ids)))
        note = Path(directory, f"bkctl-filters-{self._load_id}")
        try:
            with note.open("x") as file:
                file.write(bounds)
        except FileExistsError:
            if note.read_text() != bounds:
                raise SourceOptionError(
                    "with pushFilters, a DataFrame can have the filters of one use: for other "
                    f'filters call load().where("{ALWAYS_TRUE}") again'
                ) from None


class RefusingReader(DataSourceStreamReader):
    """A stream's reader that raises the error of its options.

    If no reader is returned, PySpark up to 4.3 hides the error behind its own.
    """

    def __init__(self, error: BookKeeperError) -> None:
        self._error = error

    def _refuse(self, *_: Any) -> Any:
        raise self._error

    # Spark calls these methods; their arguments depend on its release.
    initialOffset = latestOffset = partitions = read = _refuse  # type: ignore[assignment]  # noqa: N815


async def _extents(client: Client, options: SourceOptions) -> list[LedgerExtent]:
    from bkctl.commands.export.spark.chosen_ledgers import chosen_ledgers
    from bkctl.commands.export.spark.log_extents import batch_log_extents

    if options.is_topics:
        from bkctl.commands.export.spark.topic_extents import batch_extents

        return await batch_extents(client, options, time.time_ns() // 1_000_000)
    if options.log is None:
        return await chosen_ledgers(client, options)
    return await batch_log_extents(client, options)
