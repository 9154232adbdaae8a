"""Positions of a topic: its end, also as proved by subscriptions, and the first entry of a time."""

from __future__ import annotations

import contextlib
from typing import Final

from google.protobuf.message import DecodeError

from bkclient.client import Client
from bkclient.errors import ClientError, NoSuchLedgerError
from bkclient.ledger.reader import LedgerReader
from bkclient.topic.entry import split_entry
from bkclient.topic.managed_ledger import MessageId, TopicCursor, TopicLedger
from bkclient.topic.names import TopicError, TopicFormatError, TopicName
from bkclient.topic.topics_in_metadata import cursors_of, topic_ledgers
from wire.ids import LedgerId
from wire.pb import pulsar_pb2 as pb

LOOK_BACK_MS: Final = 300_000
"""Milliseconds before an entry that are searched for the begin or end of its transaction."""


async def end_of(client: Client, topic: TopicName, *, known: MessageId | None = None) -> MessageId:
    """Return the position after the last confirmed entry of a topic or partition.

    Subscriptions are read only if the bookies confirm no entry after ``known``.

    Raises:
        NoSuchTopicError: the topic does not exist.
        ClientError: too few bookies answered to know the end.
    """
    ledgers = (await topic_ledgers(client, topic)).ledgers
    if not ledgers:
        return MessageId(0, 0)
    newest = ledgers[-1].ledger_id
    with contextlib.closing(await client.open_ledger(newest, recover=False)) as reader:
        end = MessageId(newest, reader.last_add_confirmed + 1)
        if known is None or end <= known:
            end = MessageId(newest, await last_confirmed(client, topic, reader) + 1)
        return end


async def position_at(client: Client, topic: TopicName, time_ms: int) -> MessageId:
    """Return the position of the first entry that was published at ``time_ms`` or later.

    Without that entry, return the position after the last confirmed entry. The binary search, like
    a broker's, assumes that the producers' clocks agree. Empty ledgers are skipped.

    Raises:
        NoSuchTopicError: the topic does not exist.
        ClientError: an entry cannot be read.
    """
    ledgers = [one for one in (await topic_ledgers(client, topic)).ledgers if not one.is_deleted]
    low, high = 0, len(ledgers)
    while low < high:
        probe = middle = (low + high) // 2
        published = None
        while probe < high and published is None:  # Empty ledgers have no time.
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
    """Return the publish time of a ledger's first entry; None if the ledger is empty or deleted."""
    try:
        reader = await client.open_ledger(ledger.ledger_id, recover=False)
    except NoSuchLedgerError:
        return None  # The read itself reports the error.
    with contextlib.closing(reader):
        return None if reader.last_add_confirmed < 0 else await _published_ms(reader, 0)


async def _first_since(client: Client, ledger: TopicLedger, time_ms: int) -> int | None:
    """Return the first entry of a ledger that was published at ``time_ms`` or later, or None."""
    with contextlib.closing(await client.open_ledger(ledger.ledger_id, recover=False)) as reader:
        low, high = 0, int(reader.last_add_confirmed) + 1
        end = high
        while low < high:
            middle = (low + high) // 2
            if await _published_ms(reader, middle) >= time_ms:
                high = middle
            else:
                low = middle + 1
        return low if low < end else None


async def _published_ms(reader: LedgerReader, entry_id: int) -> int:
    try:
        entry = await reader.read_entry(entry_id)
        return int(split_entry(entry.payload).metadata.publishTime)
    except TopicFormatError as error:
        raise TopicFormatError(f"entry {entry_id} of ledger {reader.ledger_id}: {error}") from error


CURSORS_MAX: Final = 64
"""The most subscriptions that are read for one topic or partition."""

_STATES_MAX: Final = 16
"""The most states of a cursor that are read, starting at its last confirmed state."""


async def last_confirmed(client: Client, topic: TopicName, reader: LedgerReader) -> int:
    """Return the last confirmed entry of one of the topic's ledgers, or -1.

    A broker delivers only confirmed messages, so an acknowledged message is confirmed. A cursor may
    know a later entry than the bookies, which learn of a confirmed entry with a later message
    (Pulsar 4.0, ManagedCursorImpl).

    Subscriptions are read only if an open ledger has an entry after the last one confirmed by
    bookies.
    """
    last, acknowledged = int(reader.last_add_confirmed), -1
    if reader.is_closed or not await _has_entry(reader, last + 1):
        return last
    for cursor in (await _cursors(client, topic))[:CURSORS_MAX]:
        for at in await _positions(client, cursor):
            if at.ledger_id == reader.ledger_id:
                acknowledged = max(acknowledged, at.entry_id)
    # A damaged cursor that names a missing entry must not end a query.
    is_later = acknowledged > last and await _has_entry(reader, acknowledged)
    return acknowledged if is_later else last


async def _has_entry(reader: LedgerReader, entry_id: int) -> bool:
    try:
        await reader.read_entry(entry_id, unconfirmed=True)
    except ClientError:
        return False
    return True


async def _cursors(client: Client, topic: TopicName) -> list[TopicCursor]:
    try:
        return await cursors_of(client, topic)
    except TopicError:
        return []


async def _positions(client: Client, cursor: TopicCursor) -> list[MessageId]:
    """Return positions of a cursor; the last ones may be from states that are not confirmed yet."""
    found = [] if cursor.mark_deleted is None else [cursor.mark_deleted]
    if cursor.ledger_id < 0:
        return found
    try:
        reader = await client.open_ledger(LedgerId(cursor.ledger_id), recover=False)
    except ClientError:
        return found
    try:
        first = max(0, reader.last_add_confirmed)
        for ahead in range(_STATES_MAX):
            entry = await reader.read_entry(first + ahead, unconfirmed=True)
            state = pb.NestedPositionInfo()  # The first fields of Pulsar's PositionInfo.
            state.MergeFromString(entry.payload)
            found.append(MessageId(state.ledgerId, state.entryId))
    except (ClientError, DecodeError):
        return found
    finally:
        reader.close()
    return found
