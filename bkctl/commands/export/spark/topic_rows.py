"""Messages of Pulsar topics as Arrow rows: what the tasks of the data source do for topics."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.commands.export.task.plan import EntryRange
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    import pyarrow as pa

    from bkclient.client import Client
    from bkclient.topic.messages import EntryMessages

TOPIC_COLUMNS: Final = (
    "ledger_id", "entry_id", "batch_index", "topic", "partition", "key", "ordering_key", "value",
    "properties", "publish_time", "event_time", "broker_time", "index", "sequence_id", "producer",
    "schema_version", "replicated_from", "encrypted",
)  # fmt: skip
"""The columns of a topic: those of ``bkctl topic export``."""

DECODED: Final = "decoded"
"""The column that the option ``decode`` adds: the value as text, or as JSON."""

ROWS_AT_ONCE: Final = 8192
BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""An Arrow batch ends at whichever comes first."""


class TopicReadError(BookKeeperError):
    """Messages of a topic cannot be read; the message names the topic and the ledger."""


@attrs.frozen
class TopicReading:
    """How tasks read topics: see ``TopicReader``."""

    decode: str | None = None
    fail_on_data_loss: bool = True


async def read_messages(
    client: Client, ranges: Sequence[EntryRange], how: TopicReading
) -> AsyncGenerator[list[EntryMessages], None]:
    """Yield the messages that begin in ranges of entries, in order; ``log`` names the topic.

    Raises:
        TopicReadError: entries are gone, damaged, or of a transaction that has not ended.
    """
    for entry_range in ranges:
        try:
            async with aclosing(_of_range(client, entry_range, how)) as found:
                async for messages in found:
                    yield messages
        except BookKeeperError as error:
            where = f"{entry_range.log}, ledger {entry_range.ledger_id}"
            raise TopicReadError(f"{where}: {error} ({type(error).__name__})") from error


async def _of_range(
    client: Client, entry_range: EntryRange, how: TopicReading
) -> AsyncGenerator[list[EntryMessages], None]:
    from bkclient.errors import NoSuchLedgerError
    from bkclient.topic.errors import TopicTrimmedError
    from bkclient.topic.managed_ledger import MessageId
    from bkclient.topic.names import parse_topic
    from bkclient.topic.read import TopicReader
    from bkclient.topic.schema import Decoder

    assert entry_range.log is not None
    topic = parse_topic(entry_range.log)
    reader = TopicReader(
        client,
        topic,
        start=MessageId(entry_range.ledger_id, entry_range.first),
        end=MessageId(entry_range.ledger_id, entry_range.last + 1),
        decoder=None if how.decode is None else Decoder(client, topic, how.decode),
        fail_on_trimmed=True,
        end_is_confirmed=True,
    )
    try:
        async with aclosing(reader.read_columns()) as found:
            async for messages in found:
                yield messages
    except (TopicTrimmedError, NoSuchLedgerError) as error:
        if how.fail_on_data_loss:
            raise TopicReadError(f"{error} (failOnDataLoss=false goes on without)") from error
        return
    if reader.held_back_at is not None:
        raise TopicReadError(
            f"message {reader.held_back_at} is of a transaction that has not ended: "
            "read to there by endingPosition"
        )


class MessageBuffer:
    """Messages gathered for one Arrow batch with some of the columns."""

    def __init__(self, columns: Sequence[str], nullable: Collection[str]) -> None:
        self._schema = topic_schema(columns, nullable)
        self._entries: list[EntryMessages] = []
        self._messages = self._bytes = 0

    def add(self, messages: Sequence[EntryMessages]) -> None:
        """Take messages."""
        self._entries += messages
        self._messages += sum(one.count for one in messages)
        self._bytes += sum(one.size_bytes for one in messages)

    @property
    def is_full(self) -> bool:
        """Whether it is time to ``take``."""
        return self._messages >= ROWS_AT_ONCE or self._bytes >= BYTES_AT_ONCE

    @property
    def messages(self) -> int:
        """How many messages there are."""
        return self._messages

    def take(self) -> pa.RecordBatch:
        """Return what was gathered as one batch, and begin anew."""
        import pyarrow as pa

        entries, self._entries, self._messages, self._bytes = self._entries, [], 0, 0
        arrays = [_array(entries, field) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def topic_schema(columns: Sequence[str], nullable: Collection[str]) -> pa.Schema:
    """Return the Arrow schema of some columns, in the order given; times in µs, as Spark's are."""
    import pyarrow as pa

    from bkctl.commands.topic.export import arrow_schema

    time = pa.timestamp("us", tz="UTC")
    every = {field.name: field for field in arrow_schema()}
    every[DECODED] = pa.field(DECODED, pa.string())
    fields = [every[name] for name in columns]
    return pa.schema(
        [
            pa.field(
                field.name,
                time if pa.types.is_timestamp(field.type) else field.type,
                nullable=field.nullable or field.name in nullable,
            )
            for field in fields
        ]
    )


def _array(entries: list[EntryMessages], field: pa.Field) -> pa.Array:
    import pyarrow as pa

    is_time = pa.types.is_timestamp(field.type)
    name = f"{field.name}_ms" if is_time else field.name
    values = list(chain.from_iterable(one.column(name) for one in entries))
    if is_time:
        return pa.array(values, pa.timestamp("ms", tz="UTC")).cast(field.type)
    if field.name == DECODED:
        values = [_text(one) for one in values]
    elif field.name == "properties":
        values = [list(one.items()) for one in values]
    return pa.array(values, field.type)


def _text(decoded: Any) -> str | None:
    """Return a decoded value as the text of the column: JSON, but for what is text already."""
    if decoded is None or isinstance(decoded, str):
        return decoded
    return json.dumps(decoded, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return what JSON has for a value of Avro: Base64 for bytes, ISO 8601 for times."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)
