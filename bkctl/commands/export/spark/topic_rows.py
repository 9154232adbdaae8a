"""Messages of Pulsar topics in ranges of entries: what the tasks of the data source read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from bkctl.commands.export.task.partitions import EntryRange
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.topic.messages import EntryMessages


class TopicReadError(BookKeeperError):
    """Messages of a topic cannot be read; the message names the topic and the ledger."""


async def read_messages(
    client: Client,
    ranges: Sequence[EntryRange],
    *,
    decode: str | None = None,
    fail_on_data_loss: bool = True,
) -> AsyncGenerator[list[EntryMessages], None]:
    """Yield the messages that begin in ranges of entries, in order; ``log`` names the topic.

    Raises:
        TopicReadError: entries are gone, damaged, or of a transaction that has not ended.
    """
    for entry_range in ranges:
        try:
            of_range = _of_range(client, entry_range, decode, fail_on_data_loss=fail_on_data_loss)
            async with aclosing(of_range) as found:
                async for messages in found:
                    yield messages
        except BookKeeperError as error:
            where = f"{entry_range.log}, ledger {entry_range.ledger_id}"
            raise TopicReadError(f"{where}: {error} ({type(error).__name__})") from error


async def _of_range(
    client: Client, entry_range: EntryRange, decode: str | None, *, fail_on_data_loss: bool
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
        decoder=None if decode is None else Decoder(client, topic, decode),
        fail_on_trimmed=True,
        end_is_confirmed=True,
        looks_to=None if entry_range.looks_to is None else MessageId(*entry_range.looks_to),
    )
    try:
        async with aclosing(reader.read_columns()) as found:
            async for messages in found:
                yield messages
    except (TopicTrimmedError, NoSuchLedgerError) as error:
        if fail_on_data_loss:
            raise TopicReadError(f"{error} (failOnDataLoss=false goes on without)") from error
        return
    if reader.held_back_at is not None:
        raise TopicReadError(
            f"message {reader.held_back_at} is of a transaction that has not ended: "
            "read to there by endingPosition"
        )
