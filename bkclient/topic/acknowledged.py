"""What subscriptions prove: a message that a consumer has acknowledged is confirmed.

A broker delivers confirmed messages only, and no cursor passes the last one. So a cursor may know
more than the bookies, which learn from a later message what is confirmed.

Agrees with Pulsar 4.0, ManagedCursorImpl.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from bkclient.client import Client
from bkclient.errors import ClientError
from bkclient.ledger.reader import LedgerReader
from bkclient.topic.lookup import cursors_of
from bkclient.topic.managed_ledger import MessageId, TopicCursor
from bkclient.topic.names import TopicError, TopicName
from wire.ids import LedgerId
from wire.pb import pulsar_pb2 as pb

CURSORS_MAX: Final = 64
"""Subscriptions that are looked at for one topic or partition."""

_STATES_MAX: Final = 16
"""States of a cursor that are read, from its last confirmed one on."""


async def last_confirmed(client: Client, topic: TopicName, reader: LedgerReader) -> int:
    """Return the last entry of one of the topic's ledgers that is confirmed; -1 for none.

    Subscriptions are looked at only where an open ledger has one more entry than bookies confirm.
    """
    last, acknowledged = int(reader.last_add_confirmed), -1
    if reader.is_closed or not await _has_entry(reader, last + 1):
        return last
    for cursor in (await _cursors(client, topic))[:CURSORS_MAX]:
        for at in await _positions(client, cursor):
            if at.ledger_id == reader.ledger_id:
                acknowledged = max(acknowledged, at.entry_id)
    # A wrong cursor, which names no entry, must not end a query.
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
    """Return positions that a cursor had; the last ones may be of states not confirmed yet."""
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
