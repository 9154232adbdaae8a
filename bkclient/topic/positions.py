"""Positions of a topic: its end, and the first message of a time."""

from __future__ import annotations

from typing import Final

from bkclient.client import Client
from bkclient.errors import NoSuchLedgerError
from bkclient.ledger.reader import LedgerReader
from bkclient.topic.acknowledged import last_confirmed
from bkclient.topic.entry import split_entry
from bkclient.topic.lookup import topic_ledgers
from bkclient.topic.managed_ledger import MessageId, TopicLedger
from bkclient.topic.names import TopicFormatError, TopicName

LOOK_BACK_MS: Final = 300_000
"""How long before an entry the beginning or end of its transaction is looked for."""


async def end_of(client: Client, topic: TopicName, *, known: MessageId | None = None) -> MessageId:
    """Return the position after the last confirmed entry of a topic or partition.

    Subscriptions are not looked at where the bookies confirm more than up to ``known``.

    Raises:
        NoSuchTopicError: there is no such topic.
        ClientError: too few bookies answered to know it.
    """
    ledgers = (await topic_ledgers(client, topic)).ledgers
    if not ledgers:
        return MessageId(0, 0)
    newest = ledgers[-1].ledger_id
    reader = await client.open_ledger(newest, recover=False)
    try:
        end = MessageId(newest, reader.last_add_confirmed + 1)
        if known is None or end <= known:
            end = MessageId(newest, await last_confirmed(client, topic, reader) + 1)
        return end
    finally:
        reader.close()


async def position_at(client: Client, topic: TopicName, time_ms: int) -> MessageId:
    """Return the position of the first entry that was published at a time or later.

    Empty ledgers may lie between. It is found by halves, as a broker finds it: producers' clocks
    are taken to agree. Without an entry like that, it is the position after the last confirmed
    one.

    Raises:
        NoSuchTopicError: there is no such topic.
        ClientError: an entry cannot be read.
    """
    ledgers = [one for one in (await topic_ledgers(client, topic)).ledgers if not one.is_deleted]
    low, high = 0, len(ledgers)
    while low < high:
        probe = middle = (low + high) // 2
        published = None
        while probe < high and published is None:  # Empty ledgers say nothing.
            published = await _first_published_ms(client, ledgers[probe])
            probe += 1
        if published is None or published >= time_ms:
            high = middle
        else:
            low = probe
    found = await _first_since(client, ledgers[low - 1], time_ms) if low else None
    if found is not None:
        return MessageId(ledgers[low - 1].ledger_id, found)
    return (
        MessageId(ledgers[low].ledger_id, 0) if low < len(ledgers) else await end_of(client, topic)
    )


async def _first_published_ms(client: Client, ledger: TopicLedger) -> int | None:
    """Return when the first entry of a ledger was published; None where it is empty or gone."""
    try:
        reader = await client.open_ledger(ledger.ledger_id, recover=False)
    except NoSuchLedgerError:
        return None  # The read itself reports the error.
    try:
        return None if reader.last_add_confirmed < 0 else await _published_ms(reader, 0)
    finally:
        reader.close()


async def _first_since(client: Client, ledger: TopicLedger, time_ms: int) -> int | None:
    """Return the first entry of a ledger that was published at a time or later, or None."""
    reader = await client.open_ledger(ledger.ledger_id, recover=False)
    try:
        low, high = 0, int(reader.last_add_confirmed) + 1
        end = high
        while low < high:
            middle = (low + high) // 2
            if await _published_ms(reader, middle) >= time_ms:
                high = middle
            else:
                low = middle + 1
        return low if low < end else None
    finally:
        reader.close()


async def _published_ms(reader: LedgerReader, entry_id: int) -> int:
    try:
        entry = await reader.read_entry(entry_id)
        return int(split_entry(entry.payload).metadata.publishTime)
    except TopicFormatError as error:
        raise TopicFormatError(f"entry {entry_id} of ledger {reader.ledger_id}: {error}") from error
