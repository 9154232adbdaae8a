"""The position up to which a topic can be read, so that no later reader skips or repeats a message.

A message in chunks is read at its first chunk. A message of a transaction is read only after the
transaction has ended. So a reader that will continue later must stop before the first incomplete
chunked message or transaction: a later reader does not look back. Streams take their end from this
module.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

from bkclient.client import Client
from bkclient.topic.chunks import WAIT_MS, AwaitedChunks
from bkclient.topic.entry import TXN_ABORT, TXN_COMMIT, StoredMessage, Txn
from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.names import TopicName
from bkclient.topic.positions import LOOK_BACK_MS, end_of, position_at
from bkclient.topic.reader import EARLIEST, TopicReader

ABORTED_MAX: Final = 100_000
"""The most aborted transactions in memory, for messages that arrive late."""


class UnsettledEntries:
    """Entries that wait for later ones: chunks for the last chunk, transactions for the marker.

    Callers add entries in order; ``first`` returns the first entry that waits. Each one is a small
    record in memory. A message after the abort marker of its transaction does not wait, as in a
    broker.
    """

    def __init__(self) -> None:
        self._chunks = AwaitedChunks()
        self._txns: dict[Txn, MessageId] = {}
        self._aborted: dict[Txn, None] = {}

    @property
    def has_transactions(self) -> bool:
        """True if a message waits for the end of its transaction."""
        return bool(self._txns)

    def abort(self, txn: Txn) -> None:
        """Record that a transaction was aborted."""
        self._txns.pop(txn, None)
        self._aborted[txn] = None
        if len(self._aborted) > ABORTED_MAX:
            del self._aborted[next(iter(self._aborted))]

    def see(self, at: MessageId, stored: StoredMessage, time_ms: int) -> None:
        """Record the chunk, message or marker in an entry.

        A first chunk waits from ``time_ms`` on.
        """
        found, txn = stored.metadata, stored.txn
        if stored.is_marker:
            if txn is not None and found.markerType == TXN_COMMIT:
                self._txns.pop(txn, None)
            elif txn is not None and found.markerType == TXN_ABORT:
                self.abort(txn)
            return
        if txn in self._aborted:
            return
        if txn is not None:
            self._txns.setdefault(txn, at)
        if stored.is_chunk:
            self._chunks.see(at, stored, time_ms)

    def forget_before(self, first: MessageId) -> None:
        """Forget transactions that begin in deleted ledgers, because they may never end.

        Chunks wait at most a minute anyway.
        """
        self._txns = {txn: at for txn, at in self._txns.items() if at >= first}

    def first(self, now_ms: int) -> tuple[MessageId, int | None] | None:
        """Return the first entry that waits, or None; of a chunk, also since when."""
        chunks = self._chunks.waiting(now_ms)
        first = min([*chunks, *self._txns.values()], default=None)
        return None if first is None else (first, chunks.get(first))


class Frontier:
    """The readable end of one topic without partitions, or of one partition, for repeated calls.

    Reads each entry of the last minutes once. Not for two callers at a time. It may miss a
    transaction that began in an earlier entry; ``TopicReader`` then reports the open transaction.

    With ``follows`` a message waits for its chunks from the moment its first chunk was read,
    because a message may be stored long after it was published. Otherwise the message waits from
    its publish time. A message with a publish time far in the future does not wait, except one that
    arrived while the topic was followed.

    ``waits`` is an entry for which another ``Frontier`` has waited: its publish time may be older
    than the last minutes. Of a chunk, it includes the time since when; of a transaction, None.
    """

    def __init__(
        self,
        topic: TopicName,
        *,
        follows: bool = False,
        waits: tuple[MessageId, int | None] | None = None,
    ) -> None:
        self._topic, self._unsettled, self._follows = topic, UnsettledEntries(), follows
        self._seen: MessageId | None = None
        self._waits = None if waits is None else waits[0]
        self._waits_since_ms = None if waits is None else waits[1]
        self.first_waiting: tuple[MessageId, int | None] | None = None
        """The first entry that waited at the last call; of a chunk, also since when."""

    @property
    def seen(self) -> MessageId | None:
        """The position up to which entries have been read; None before the first read."""
        return self._seen

    async def end(self, client: Client, now_ms: int, oldest: MessageId = EARLIEST) -> MessageId:
        """Return the position after the last entry before the first entry that waits.

        ``oldest`` is the known beginning of the topic.

        Raises:
            NoSuchTopicError: the topic does not exist.
            TopicFormatError: an entry is not in Pulsar's form.
            ClientError: entries cannot be read.
        """
        end = await end_of(client, self._topic, known=self._seen)
        is_first = self._seen is None
        if self._seen is None:
            self._seen = await position_at(client, self._topic, now_ms - LOOK_BACK_MS)
            since_ms = self._waits_since_ms
            if self._waits is not None and (since_ms is None or now_ms - since_ms < WAIT_MS):
                self._seen = min(self._seen, self._waits)
        start = self._seen
        reader = TopicReader(client, self._topic, end_is_confirmed=True)
        async with aclosing(reader.entries(start, end)) as chunks:
            async for entries in chunks:
                for entry in entries:
                    at = MessageId(entry.ledger_id, entry.entry_id)
                    stored = reader.split(entry)
                    time_ms = stored.metadata.publishTime
                    if self._follows:
                        time_ms = max(now_ms, time_ms) if is_first else now_ms
                    if at == self._waits and self._waits_since_ms is not None:
                        time_ms = self._waits_since_ms
                    self._unsettled.see(at, stored, time_ms)
        self._seen = max(start, end)
        if is_first and self._unsettled.has_transactions:
            for txn in await reader.aborted_between(now_ms - 2 * LOOK_BACK_MS, start):
                self._unsettled.abort(txn)
        self._unsettled.forget_before(oldest)
        self.first_waiting = self._unsettled.first(now_ms)
        return end if self.first_waiting is None else min(end, self.first_waiting[0])
