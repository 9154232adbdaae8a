"""How far a topic can be read so that a later reader gives neither less nor more of it.

A message in chunks is read where its first chunk is, and a message of a transaction counts when the
transaction has ended. So a reader that stops at some place, to go on from there later, must not
stop behind a chunk or transaction that is not complete yet: what completes it comes later, and
no reader would look back. A stream asks here where it may stop.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from bkclient.client import Client
from bkclient.errors import NoSuchLedgerError
from bkclient.ledger.reader import LedgerReader
from bkclient.topic.entry import TXN_ABORT, TXN_COMMIT, StoredMessage, Txn, split_entry
from bkclient.topic.lookup import topic_ledgers
from bkclient.topic.managed_ledger import MessageId, TopicLedger
from bkclient.topic.names import TopicFormatError, TopicName
from bkclient.topic.read import PENDING_MAX, TopicReader, end_of

CHUNKS_WAIT_MS: Final = 60_000
"""A message that lacks chunks so long after its first is not waited for, as by a consumer."""

LOOK_BACK_MS: Final = 300_000
"""Entries published before that are not looked at; a reader that meets an open transaction among
them says so."""


class UnsettledEntries:
    """Which entries wait for later ones: a first chunk for the last, a transaction for its marker.

    Entries in, in their order; out comes the first that waits. Holds a small record for each, and
    of messages in chunks as many as a reader puts together at a time.
    """

    def __init__(self) -> None:
        self._chunks: dict[str, tuple[MessageId, int]] = {}
        self._txns: dict[Txn, MessageId] = {}

    def see(self, at: MessageId, stored: StoredMessage, time_ms: int) -> None:
        """Note what an entry begins or completes; from ``time_ms`` on a first chunk waits."""
        found, txn = stored.metadata, stored.txn
        if stored.is_marker:
            if txn is not None and found.markerType in (TXN_COMMIT, TXN_ABORT):
                self._txns.pop(txn, None)
            return
        if txn is not None:
            self._txns.setdefault(txn, at)
        if stored.is_chunk:
            if found.chunkId == 0:
                self._chunks.pop(found.uuid, None)
                self._chunks[found.uuid] = (at, time_ms)
                if len(self._chunks) > PENDING_MAX:
                    del self._chunks[next(iter(self._chunks))]
            elif found.chunkId + 1 >= found.numChunksFromMsg:
                self._chunks.pop(found.uuid, None)

    def first(self, now_ms: int) -> MessageId | None:
        """Return the first entry that waits; None where none does."""
        self._chunks = {
            uuid: (at, time_ms)
            for uuid, (at, time_ms) in self._chunks.items()
            if abs(now_ms - time_ms) < CHUNKS_WAIT_MS
        }
        waiting = [at for at, _ in self._chunks.values()]
        return min([*waiting, *self._txns.values()], default=None)


class Frontier:
    """How far one topic without partitions, or one partition, can be read; for many calls.

    It looks at each entry of the last minutes once. Not for two callers at a time.

    One that ``follows`` a topic counts how long a message lacks chunks from when it saw the first:
    a message may be stored long after it was published. Any other counts from when the message was
    published. Messages that were published later than now by much are not waited for, unless they
    came while the topic was followed.
    """

    def __init__(self, topic: TopicName, *, follows: bool = False) -> None:
        self._topic, self._unsettled, self._follows = topic, UnsettledEntries(), follows
        self._seen: MessageId | None = None

    @property
    def seen(self) -> MessageId | None:
        """The position up to which it has looked; None before the first look."""
        return self._seen

    async def end(self, client: Client, now_ms: int) -> MessageId:
        """Return the position behind the last entry that waits for nothing.

        Raises:
            NoSuchTopicError: there is no such topic.
            TopicFormatError: an entry is not what Pulsar writes.
            ClientError: entries cannot be read.
        """
        end = await end_of(client, self._topic)
        is_first_look = self._seen is None
        if self._seen is None:
            self._seen = await position_at(client, self._topic, now_ms - LOOK_BACK_MS)
        reader = TopicReader(client, self._topic)
        async with aclosing(reader.entries(self._seen, end)) as chunks:
            async for entries in chunks:
                for entry in entries:
                    at = MessageId(entry.ledger_id, entry.entry_id)
                    stored = reader.split(entry)
                    time_ms = stored.metadata.publishTime
                    if self._follows:
                        time_ms = max(now_ms, time_ms) if is_first_look else now_ms
                    self._unsettled.see(at, stored, time_ms)
        self._seen = max(self._seen, end)
        waiting = self._unsettled.first(now_ms)
        return end if waiting is None else min(end, waiting)


async def position_at(client: Client, topic: TopicName, time_ms: int) -> MessageId:
    """Return the position of the first entry that was published at a time or later.

    Empty ledgers may lie between. It is found by halves, as a broker finds it: producers' clocks
    are taken to agree. Without an entry like that, it is the position behind the last confirmed
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
