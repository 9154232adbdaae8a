"""A log as a sink: ``df.write.format("bookkeeper")`` and ``writeStream``.

Each task writes its rows to ledgers of its own, an entry a row, and closes them. The driver lists
the ledgers of all tasks in the log by one compare-and-swap. Ledgers of tasks that failed, or ran
twice, are in no list; ``bkctl log sweep`` deletes them.

A micro-batch is in the log once, however often it is tried: its number and the name of its stream
are in the ledgers' metadata, and the log takes no batch that it has.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import (
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from bkctl.commands.export.spark.query import short_errors
from bkctl.commands.export.spark.sink_ledgers import (
    TaskWriter,
    delete_ledgers,
    list_in_log,
    log_options,
)
from bkctl.commands.export.spark.source_options import SourceOptionError, SourceOptions
from bkctl.commands.export.task.copy import connect
from bkctl.suggest import did_you_mean
from wire.ids import LedgerId

if TYPE_CHECKING:
    from bkclient.blocking import BlockingClient
    from bkclient.config.client import ClientConfig

ADD_BYTES: Final = 1024 * 1024
ADD_ROWS: Final = 1000
"""Rows are added this many at a time, at whichever comes first."""


@attrs.frozen
class WrittenLedgers(WriterCommitMessage):
    """The closed ledgers of one task, in the order of its rows; none for a task without rows."""

    ledger_ids: tuple[LedgerId, ...]


@attrs.frozen
class Sink:
    """Which log is written, in which cluster, and what of a row becomes an entry."""

    log: str
    value_column: str | None
    uri: str
    config: ClientConfig
    named_writer: str | None
    _connect: Callable[[str, ClientConfig], BlockingClient] = connect

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType, *, overwrite: bool) -> Sink:
        """Return the sink for the options of a query.

        Raises:
            SourceOptionError: no log is given, the mode is ``overwrite``, or a column is missing.
        """
        if options.log is None:
            raise SourceOptionError("which log? Give the option log")
        if overwrite:
            raise SourceOptionError("a log can be appended to only: use mode('append')")
        column = _value_column(options.value_column, schema)
        uri, config = options.where()
        return cls(options.log, column, uri, config, options.writer_id)

    def writer_id(self, options: Mapping[str, str]) -> str:
        """Return the name of the stream, which a query that is started again has again.

        Raises:
            SourceOptionError: nothing gives it one.
        """
        if self.named_writer is not None:
            return self.named_writer
        for name, value in options.items():
            if name.lower() == "checkpointlocation":
                return hashlib.sha256(value.encode()).hexdigest()[:32]
        raise SourceOptionError("give checkpointLocation as an option of the query, or writerId")

    def check(self) -> None:
        """Check that the log exists, before any task starts.

        Raises:
            NoSuchLogError: it does not exist.
            BookKeeperError: the cluster cannot be reached.
        """
        with short_errors(), self._connect(self.uri, self.config) as client:
            client.call(log_options, self.log)

    def write(self, rows: Iterable[Any], stream: str, batch: int) -> WrittenLedgers:
        """Write the rows of one task to ledgers, and close them.

        Raises:
            BookKeeperError: the ledgers cannot be written.
        """
        with short_errors(), self._connect(self.uri, self.config) as client:
            writer = TaskWriter(client.client, self.log, stream, batch)
            for payloads in _chunks(map(self._payload, rows)):
                client.run(writer.add, payloads)
            return WrittenLedgers(client.run(writer.finish))

    def _payload(self, row: Any) -> bytes:
        if self.value_column is None:
            return json.dumps(row.asDict(recursive=True), default=_to_json).encode()
        value = row[self.value_column]
        if value is None:
            raise ValueError(f"column {self.value_column} is null: an entry cannot be")
        return value.encode() if isinstance(value, str) else bytes(value)

    def commit(
        self, messages: Sequence[WriterCommitMessage | None], stream: str, batch: int
    ) -> None:
        """List the ledgers of all tasks in the log, if it does not have the batch."""
        ledger_ids = _ledgers_of(messages)
        if ledger_ids:
            with short_errors(), self._connect(self.uri, self.config) as client:
                client.call(list_in_log, self.log, ledger_ids, stream=stream, batch=batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the ledgers of the tasks that ended, where another task failed.

        Spark also aborts after a commit that raised or was interrupted. The log may have the
        ledgers then, or get them by a request that is still on its way: all of them are left.
        ``bkctl log sweep`` deletes those that no log has.
        """
        ledger_ids = _ledgers_of(messages)
        if ledger_ids and None in messages:
            with self._connect(self.uri, self.config) as client:
                client.call(delete_ledgers, ledger_ids)


def _ledgers_of(messages: Sequence[WriterCommitMessage | None]) -> list[LedgerId]:
    """Return the ledgers of all tasks, in the order of the tasks."""
    return [n for one in messages if isinstance(one, WrittenLedgers) for n in one.ledger_ids]


def _value_column(name: str | None, schema: StructType) -> str | None:
    """Return the column whose values are the entries; None where a row becomes JSON."""
    kinds = {field.name: field.dataType for field in schema.fields}
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


def _to_json(value: Any) -> Any:
    """Return a JSON value for what JSON has no type for; bytes as base64."""
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


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
    """Appends the rows of a DataFrame to a log: all of them, or none."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self._stream = sink, uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WrittenLedgers:
        """Write the rows of one task."""
        return self._sink.write(iterator, self._stream, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """List all ledgers in the log."""
        self._sink.commit(messages, self._stream, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the ledgers, if a task failed; see ``Sink.abort``."""
        self._sink.abort(messages)


class SinkStreamWriter(DataSourceStreamWriter):
    """Appends micro-batches to a log, each once."""

    def __init__(self, sink: Sink, stream: str) -> None:
        self._sink, self._stream = sink, stream

    def write(self, iterator: Iterator[Any]) -> WrittenLedgers:
        """Write the rows of one task of a micro-batch."""
        return self._sink.write(iterator, self._stream, _batch_id())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """List all ledgers of a micro-batch in the log, if the log does not have the batch."""
        self._sink.commit(messages, self._stream, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Delete the ledgers, if a task failed; see ``Sink.abort``."""
        self._sink.abort(messages)


def _batch_id() -> int:
    """Return which micro-batch a task belongs to; Spark says so in the task's properties."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if number is None:
        raise ValueError("this task belongs to no micro-batch")
    return int(number)
