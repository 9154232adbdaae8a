"""The query of the data source, its cluster, and the conversion of entries to rows in a task.

A ``Query`` is pickled into the tasks. Each worker imports this module, so it imports little
until a task reads.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING

import attrs
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from bkctl.commands.export.errors import TaskError
from bkctl.commands.export.spark.source_options import (
    SourceOptionError,
    SourceOptions,
    check_columns,
)
from bkctl.commands.export.task.arrow_schema import LOG_COLUMNS, arrow_schema
from bkctl.commands.export.task.partitions import EntryRange, LedgerExtent, Task, cost, cut
from bkctl.commands.topic.arrow_schema import DECODED, TOPIC_COLUMNS, topic_schema
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    import pyarrow as pa

    from bkclient.blocking import BlockingClient
    from bkclient.client import Client
    from bkclient.config.client import ClientConfig
    from bkclient.topic.messages import EntryMessages


@cache
def freeze_modules() -> None:
    """Exclude imported modules from later garbage collections; once per process.

    PySpark's workers collect after each task, and would visit all objects of all modules.
    """
    gc.collect()
    gc.freeze()


class ConnectionFailedError(BookKeeperError):
    """No client could be made; the message names the host and the reason."""


class short_errors(contextlib.AbstractContextManager[None, None]):  # noqa: N801
    """A context that raises errors of the client without traceback and causes: Spark prints them.

    The hint and the cluster become part of the message, because Spark prints only the message.
    """

    def __init__(self, uri: str = "") -> None:
        self._uri = uri

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, TaskError):
            raise ConnectionFailedError(self._whole(error.sentence, error)) from None
        if isinstance(error, BookKeeperError):
            error.args = (self._whole(str(error), error),)
            raise error.with_traceback(None) from None

    def _whole(self, message: str, error: BaseException) -> str:
        if self._uri not in message and not isinstance(error, SourceOptionError):
            message = f"{message}, cluster {self._uri}"
        return _with_hint(message, error)


def _with_hint(message: str, error: BaseException | None) -> str:
    """Return a message with the hint of an error or of its cause."""
    while error is not None:
        hint = error.hint if isinstance(error, BookKeeperError) else ""
        if hint:
            return message if hint in message else f"{message} (hint: {hint})"
        error = error.__cause__
    return message


def fields_of(options: SourceOptions) -> dict[str, StructField]:
    """Return the possible fields of a query by name: those of messages or of entries."""
    arrow = (
        topic_schema((*TOPIC_COLUMNS, DECODED)) if options.is_topics else arrow_schema(LOG_COLUMNS)
    )
    return {field.name: field for field in from_arrow_schema(arrow).fields}


@attrs.define
class TaskPartition(InputPartition):
    """One task's part of a query."""

    number: int
    ranges: Task


@attrs.frozen
class Query:
    """The options, the cluster and the columns of a query; pickled into the tasks."""

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
        """
        names = [field.name for field in schema.fields]
        check_columns(names, options)
        fields = fields_of(options)
        for field in schema.fields:
            if field.dataType != fields[field.name].dataType:
                have, want = field.dataType.simpleString(), fields[field.name].dataType
                raise SourceOptionError(
                    f"column {field.name!r} is {want.simpleString()}, not {have}"
                )
        with short_errors():
            uri, config = options.where()
        # Spark only accepts batches with exactly its schema, which a user may have written.
        nullable = frozenset(field.name for field in schema.fields if field.nullable)
        return cls(options, tuple(names), nullable, uri, config)

    def client(self) -> BlockingClient:
        """Return a client, in a task or on the driver."""
        from bkctl.commands.export.task.copy import connect

        return connect(self.uri, self.config)

    def partitions(self, extents: Sequence[LedgerExtent]) -> list[TaskPartition]:
        """Cut extents into partitions of similar size in bytes."""
        size = self.options.partition_bytes_max
        if self.options.partitions_min:
            total = sum(cost(extent) for extent in extents)
            size = max(1, min(size, -(-total // self.options.partitions_min)))
        tasks = cut(extents, 1, target_bytes=size)
        freeze_modules()
        return [TaskPartition(number, ranges) for number, ranges in enumerate(tasks)]

    def read(self, ranges: Task) -> Iterator[pa.RecordBatch]:
        """Yield the entries of ranges as Arrow batches; of topics, their messages.

        Raises:
            BookKeeperError: an entry cannot be read, or no client can be made.
        """
        read = self._read_messages if self.options.is_topics else self._read_entries
        with short_errors(self.uri), self.client() as client:
            yield from read(client, ranges)
        freeze_modules()

    def _read_entries(self, client: BlockingClient, ranges: Task) -> Iterator[pa.RecordBatch]:
        from bkctl.commands.export.task.rows import RowBuffer, read_ranges

        rows = RowBuffer(self.columns, self.nullable)
        skip_gone = not self.options.fail_on_data_loss
        for parts in client.iterate(lambda some: read_ranges(some, ranges, skip_gone=skip_gone)):
            for entry_range, batch in parts:
                rows.add(entry_range, batch)
            if rows.is_full:
                yield rows.take()
        if rows.entries:
            yield rows.take()

    def _read_messages(self, client: BlockingClient, ranges: Task) -> Iterator[pa.RecordBatch]:
        from bkctl.commands.topic.arrow_columns import record_batches

        options = self.options
        found = client.iterate(
            lambda connected: read_messages(
                connected,
                ranges,
                decode=options.decode,
                fail_on_data_loss=options.fail_on_data_loss,
                with_properties="properties" in self.columns,
            )
        )
        yield from record_batches(found, topic_schema(self.columns, self.nullable))


class TopicReadError(BookKeeperError):
    """Messages of a topic cannot be read; the message names the topic and the ledger."""


async def read_messages(
    client: Client,
    ranges: Sequence[EntryRange],
    *,
    decode: str | None = None,
    fail_on_data_loss: bool = True,
    with_properties: bool = True,
) -> AsyncGenerator[list[EntryMessages], None]:
    """Yield the messages that begin in ranges of entries, in order; ``log`` names the topic.

    Raises:
        TopicReadError: entries are gone, damaged, or of a transaction that has not ended.
    """
    for entry_range in ranges:
        try:
            of_range = _of_range(
                client,
                entry_range,
                decode,
                fail_on_data_loss=fail_on_data_loss,
                with_properties=with_properties,
            )
            async with aclosing(of_range) as found:
                async for messages in found:
                    yield messages
        except BookKeeperError as error:
            where = f"{entry_range.log}, ledger {entry_range.ledger_id}"
            raise TopicReadError(f"{where}: {error} ({type(error).__name__})") from error


async def _of_range(
    client: Client,
    entry_range: EntryRange,
    decode: str | None,
    *,
    fail_on_data_loss: bool,
    with_properties: bool,
) -> AsyncGenerator[list[EntryMessages], None]:
    from bkclient.errors import NoSuchLedgerError
    from bkclient.topic.managed_ledger import MessageId
    from bkclient.topic.names import TopicTrimmedError, parse_topic
    from bkclient.topic.reader import TopicReader
    from bkclient.topic.schema_decoding import Decoder

    assert entry_range.log is not None
    topic = parse_topic(entry_range.log)
    reader = TopicReader(
        client,
        topic,
        start=MessageId(entry_range.ledger_id, entry_range.first),
        end=MessageId(entry_range.ledger_id, entry_range.last + 1),
        decoder=None if decode is None else Decoder(client, topic, decode, json_as_text=True),
        fail_on_trimmed=True,
        end_is_confirmed=True,
        looks_to=None if entry_range.looks_to is None else MessageId(*entry_range.looks_to),
    )
    reader.with_properties = with_properties
    try:
        async with aclosing(reader.read_columns()) as found:
            async for messages in found:
                yield messages
    except (TopicTrimmedError, NoSuchLedgerError) as error:
        if fail_on_data_loss:
            raise TopicReadError(f"{error} (failOnDataLoss=false continues without it)") from error
        return
    if reader.held_back_at is not None:
        raise TopicReadError(
            f"message {reader.held_back_at} is of a transaction that has not ended: "
            "read to there by endingPosition"
        )
