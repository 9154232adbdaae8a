"""A log as a sink: ``df.write.format("bookkeeper")`` and ``writeStream``.

Each task writes its rows to new ledgers, one entry per row, and closes the ledgers. The driver adds
the ledgers of all tasks to the log with one compare-and-swap. Ledgers of failed or repeated tasks
are in no log; ``bkctl log sweep`` deletes them.

A micro-batch is in the log once, even if it is repeated: its number and its query's id are in the
ledgers' metadata, and the log refuses a batch that it already has. The id is in the checkpoint. A
query with a new checkpoint, whose batches are numbered from 0 again, has a new id.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from bkctl.commands.export.spark.query import short_errors
from bkctl.commands.export.spark.source_options import SourceOptionError, SourceOptions, check_use
from bkctl.commands.export.task.copy import connect
from bkctl.commands.topic.arrow_columns import NOT_FINITE
from bkctl.suggest import did_you_mean
from wire.ids import LedgerId

if TYPE_CHECKING:
    from bkclient.blocking import BlockingClient
    from bkclient.client import Client
    from bkclient.config.client import ClientConfig
    from bkclient.ledger.writer import LedgerWriter
    from bkclient.log.record import LogOptions


class TaskWriter:
    """The writer of one task's entries; it rolls ledgers by the log's options."""

    def __init__(self, client: Client, log: str, stream: str, batch: int) -> None:
        self._client, self._log, self._stream, self._batch = client, log, stream, batch
        self._options: LogOptions | None = None
        self._writer: LedgerWriter | None = None
        self._closed: list[LedgerId] = []

    async def add(self, payloads: list[bytes]) -> None:
        """Write entries, and wait until they are confirmed."""
        if self._options is None:
            self._options = await log_options(self._client, self._log)
        if self._writer is None:
            self._writer = await self._create(self._options)
        await self._writer.add_many(payloads)
        if 0 < self._options.roll_bytes <= self._writer.length:
            await self._close(self._writer)

    async def finish(self) -> tuple[LedgerId, ...]:
        """Close the last ledger; return all ledgers, in the order of their entries."""
        if self._writer is not None:
            await self._close(self._writer)
        return tuple(self._closed)

    async def _create(self, options: LogOptions) -> LedgerWriter:
        from bkclient.log.ledger_list import BATCH_KEY, STREAM_KEY, create_log_ledger

        batch = {STREAM_KEY: self._stream.encode(), BATCH_KEY: str(self._batch).encode()}
        return await create_log_ledger(self._client, self._log, options, **batch)

    async def _close(self, writer: LedgerWriter) -> None:
        await writer.close()
        self._closed.append(writer.ledger_id)
        self._writer = None


async def log_options(client: Client, log: str) -> LogOptions:
    """Return the options by which ledgers of a log are written.

    Raises:
        NoSuchLogError: the log does not exist.
    """
    from bkclient.log.ledger_list import LedgerList

    return (await LedgerList(client, log).read_patiently()).record.options


ToJson = Callable[[Any], Any]
"""A function that converts a column's value to a value for ``json``."""

ADD_BYTES: Final = 1024 * 1024
ADD_ROWS: Final = 1000
"""The limits of rows that are added at a time."""


@attrs.frozen
class WrittenLedgers(WriterCommitMessage):
    """The closed ledgers of one task, in the order of its rows; empty for a task without rows.

    ``stream`` is the id of their stream in their metadata.
    """

    stream: str
    ledger_ids: tuple[LedgerId, ...]


@attrs.frozen
class Sink:
    """The log to write, its cluster, and the part of a row that becomes an entry."""

    log: str
    value_column: str | None
    schema: StructType
    uri: str
    config: ClientConfig
    fail_on_data_loss: bool
    _connect: Callable[[str, ClientConfig], BlockingClient] = connect

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType, *, overwrite: bool) -> Sink:
        """Return the sink for the options of a query.

        Raises:
            SourceOptionError: no log is named, the mode is ``overwrite``, a column or all columns
                are missing, a column's type cannot be JSON, two columns have one name, or an option
                belongs to a source.
        """
        if options.log is None:
            raise SourceOptionError("which log? Give the option log")
        check_use(options, is_sink=True)
        if overwrite:
            raise SourceOptionError("a log can be appended to only: use mode('append')")
        column = _value_column(options.value_column, schema)
        if column is None:
            json_of(schema)
        with short_errors():
            uri, config = options.where()
        return cls(options.log, column, schema, uri, config, options.fail_on_data_loss)

    def check(self) -> None:
        """Check that the log exists, before any task starts.

        Raises:
            NoSuchLogError: the log does not exist.
            BookKeeperError: the cluster cannot be reached.
        """
        with short_errors(self.uri), self._connect(self.uri, self.config) as client:
            client.call(log_options, self.log)

    def write(self, rows: Iterable[Any], stream: str, batch: int) -> WrittenLedgers:
        """Write the rows of one task to ledgers, and close the ledgers.

        Raises:
            BookKeeperError: the ledgers cannot be written.
        """
        with short_errors(self.uri), self._connect(self.uri, self.config) as client:
            writer = TaskWriter(client.client, self.log, stream, batch)
            for payloads in _chunks(map(self._to_payload(), rows)):
                client.run(writer.add, payloads)
            return WrittenLedgers(stream, client.run(writer.finish))

    def _to_payload(self) -> Callable[[Any], bytes]:
        if self.value_column is not None:
            return self._value
        to_json = json_of(self.schema)
        return lambda row: json.dumps(to_json(row)).encode()

    def _value(self, row: Any) -> bytes:
        value = row[self.value_column]
        if value is None:
            raise ValueError(f"column {self.value_column} is null: an entry cannot be")
        return value.encode() if isinstance(value, str) else bytes(value)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """Add the ledgers of all tasks to the log, unless the log has the batch already.

        Batch ``None`` is not part of a stream. For other batches the log stores the number, even
        without rows, to detect a query that continues from a copied checkpoint.

        Raises:
            EarlierBatchError: the log has a later batch of the query.
            DifferentBatchError: the log has the batch with another number of rows. Without
                ``failOnDataLoss`` it keeps these rows.
        """
        from bkclient.log import LogManager
        from bkclient.log.errors import DifferentBatchError

        ledger_ids = _ledgers_of(messages)
        if ledger_ids or batch is not None:
            (stream,) = {one.stream for one in messages if isinstance(one, WrittenLedgers)}
            accepted = () if self.fail_on_data_loss else (DifferentBatchError,)
            with (
                short_errors(self.uri),
                contextlib.suppress(*accepted),
                self._connect(self.uri, self.config) as blocking,
            ):
                append = LogManager(blocking.client).append_ledgers
                blocking.run(append, self.log, ledger_ids, stream=stream, batch=batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the ledgers of tasks that ended, after another task failed.

        Spark also aborts after a commit that raised or was interrupted. Then the log may have the
        ledgers, or get them from a request in flight, so all ledgers stay. ``bkctl log sweep``
        deletes ledgers that no log has.
        """
        ledger_ids = _ledgers_of(messages)
        if ledger_ids and None in messages:
            with self._connect(self.uri, self.config) as blocking:
                for ledger_id in ledger_ids:
                    blocking.run(blocking.client.delete_ledger, ledger_id)


def _ledgers_of(messages: Sequence[WriterCommitMessage | None]) -> list[LedgerId]:
    """Return the ledgers of all tasks, in the order of the tasks."""
    return [n for one in messages if isinstance(one, WrittenLedgers) for n in one.ledger_ids]


def _value_column(name: str | None, schema: StructType) -> str | None:
    """Return the column whose values are the entries; None if rows become JSON."""
    kinds = {field.name: field.dataType for field in schema.fields}
    _check_distinct(schema)
    if not kinds:
        raise SourceOptionError("the rows have no columns")
    if name is None:
        (only, *more) = kinds
        is_value = not more and isinstance(kinds[only], BinaryType | StringType)
        return only if is_value else None
    if name not in kinds:
        raise SourceOptionError(f"there is no column {name!r}{did_you_mean(name, kinds)}")
    if not isinstance(kinds[name], BinaryType | StringType):
        raise SourceOptionError(
            f"column {name!r} is {kinds[name].simpleString()}, neither binary nor string"
        )
    return name


def _check_distinct(schema: StructType) -> None:
    """Refuse columns with equal names: an entry would have the values of only one of them."""
    for name, count in Counter(schema.names).items():
        if count > 1:
            raise SourceOptionError(f"there are several columns {name!r}: give each its own name")


def json_of(kind: DataType) -> ToJson:
    """Return a function that converts values of a type for ``json``, like Spark's ``to_json``.

    Differences: bytes become base64, decimals become text, and times become ISO 8601 in UTC, or
    with their offset if the year in UTC is outside 1 to 9999.

    Raises:
        SourceOptionError: the type has no form in JSON, or two columns have one name.
    """
    if isinstance(kind, StructType):
        _check_distinct(kind)
        fields = [(field.name, json_of(field.dataType)) for field in kind.fields]
        return _or_null(
            lambda row: {name: of(value) for (name, of), value in zip(fields, row, strict=True)}
        )
    if isinstance(kind, ArrayType):
        item = json_of(kind.elementType)
        return _or_null(lambda items: [item(one) for one in items])
    if isinstance(kind, MapType):
        key, value = json_of(kind.keyType), json_of(kind.valueType)
        if not isinstance(kind.keyType, StructType | ArrayType | MapType):
            return _or_null(lambda pairs: {key(k): value(v) for k, v in pairs.items()})
    for kinds, to_json in _JSON:
        if isinstance(kind, kinds):
            return to_json
    if kind.typeName() == "time":  # PySpark 4.0 has no TimeType.
        return _or_null(_iso)
    raise SourceOptionError(f"{kind.simpleString()} cannot be written as JSON: give valueColumn")


def _same(value: Any) -> Any:
    return value


def _or_null(to_json: ToJson) -> ToJson:
    return lambda value: None if value is None else to_json(value)


def _iso(value: dt.date | dt.time) -> str:
    return value.isoformat()


def _finite(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else NOT_FINITE[str(value)]


def _utc(moment: dt.datetime) -> str:
    # PySpark passes times in the time zone of the worker, without the zone.
    try:
        return moment.astimezone(dt.timezone.utc).isoformat()
    except (ValueError, OverflowError):
        # Python also computes the days around a time, which may be in the year 0 or 10000.
        near = moment + dt.timedelta(days=2 if moment.year == 1 else -2)
        local = moment.replace(tzinfo=near.astimezone().tzinfo)
        with contextlib.suppress(OverflowError):  # In UTC it may be in the year 0 or 10000.
            local = local.astimezone(dt.timezone.utc)
        return local.isoformat()


_JSON: Final[tuple[tuple[tuple[type[DataType], ...], ToJson], ...]] = (
    ((IntegralType, StringType, BooleanType, NullType), _same),
    ((FloatType, DoubleType), _finite),
    ((BinaryType,), _or_null(lambda value: base64.b64encode(value).decode())),
    ((DecimalType,), _or_null(str)),
    ((TimestampType,), _or_null(_utc)),
    ((DateType, TimestampNTZType), _or_null(_iso)),
)


def _chunks(payloads: Iterable[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for payload in payloads:
        chunk.append(payload)
        size += len(payload)
        if size >= ADD_BYTES or len(chunk) >= ADD_ROWS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class SinkWriter(DataSourceWriter):
    """The writer that appends the rows of a DataFrame to a log: all of them, or none."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self._stream = sink, uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WrittenLedgers:
        """Write the rows of one task."""
        return self._sink.write(iterator, self._stream, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Add all ledgers to the log."""
        self._sink.commit(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the ledgers after a task failed; see ``Sink.abort``."""
        self._sink.abort(messages)


class SinkStreamWriter(DataSourceStreamWriter):
    """The writer that appends each micro-batch to a log once."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> WrittenLedgers:
        """Write the rows of one task of a micro-batch."""
        batch = int(_of_task("streaming.sql.batchId"))
        return self._sink.write(iterator, _of_task("sql.streaming.queryId"), batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Add all ledgers of a micro-batch to the log, unless the log has the batch."""
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Delete the ledgers after a task failed; see ``Sink.abort``."""
        self._sink.abort(messages)


def _of_task(name: str) -> str:
    """Return a local property of the task's query, as Spark stores it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise ValueError("this task belongs to no micro-batch")
    return value
