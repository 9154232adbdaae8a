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
from bkclient.topic.chunks import AwaitedChunks
from bkclient.topic.entry import TXN_ABORT, TXN_COMMIT, StoredMessage, Txn
from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.names import TopicName
from bkclient.topic.positions import LOOK_BACK_MS, end_of, position_at
from bkclient.topic.reader import EARLIEST, TopicReader

ABORTED_MAX: Final = 100_000
"""Aborted transactions that are remembered, for messages that come late."""


class UnsettledEntries:
    """Which entries wait for later ones: a first chunk for the last, a transaction for its marker.

    Entries in, in their order; out comes the first that waits. Holds a small record for each. A
    message after the abort marker of its transaction waits for nothing, as in a broker.
    """

    def __init__(self) -> None:
        self._chunks = AwaitedChunks()
        self._txns: dict[Txn, MessageId] = {}
        self._aborted: dict[Txn, None] = {}

    @property
    def has_transactions(self) -> bool:
        """Whether a message waits for the end of its transaction."""
        return bool(self._txns)

    def abort(self, txn: Txn) -> None:
        """Note that a transaction was aborted."""
        self._txns.pop(txn, None)
        self._aborted[txn] = None
        if len(self._aborted) > ABORTED_MAX:
            del self._aborted[next(iter(self._aborted))]

    def see(self, at: MessageId, stored: StoredMessage, time_ms: int) -> None:
        """Note what an entry begins or completes; from ``time_ms`` on a first chunk waits."""
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
        """Forget transactions that begin in ledgers that were deleted: they may never end.

        Chunks are waited for no longer than a minute.
        """
        self._txns = {txn: at for txn, at in self._txns.items() if at >= first}

    def first(self, now_ms: int) -> MessageId | None:
        """Return the first entry that waits; None where none does."""
        return min([*self._chunks.waiting(now_ms), *self._txns.values()], default=None)


class Frontier:
    """How far one topic without partitions, or one partition, can be read; for many calls.

    It looks at each entry of the last minutes once. Not for two callers at a time. A reader that
    meets an open transaction in an earlier entry says so.

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

    async def end(self, client: Client, now_ms: int, oldest: MessageId = EARLIEST) -> MessageId:
        """Return the position after the last entry that waits for nothing.

        ``oldest`` is where the topic begins now, so far as known.

        Raises:
            NoSuchTopicError: there is no such topic.
            TopicFormatError: an entry is not what Pulsar writes.
            ClientError: entries cannot be read.
        """
        end = await end_of(client, self._topic, known=self._seen)
        is_first_look = self._seen is None
        if self._seen is None:
            self._seen = await position_at(client, self._topic, now_ms - LOOK_BACK_MS)
        begun = self._seen
        reader = TopicReader(client, self._topic, end_is_confirmed=True)
        async with aclosing(reader.entries(begun, end)) as chunks:
            async for entries in chunks:
                for entry in entries:
                    at = MessageId(entry.ledger_id, entry.entry_id)
                    stored = reader.split(entry)
                    time_ms = stored.metadata.publishTime
                    if self._follows:
                        time_ms = max(now_ms, time_ms) if is_first_look else now_ms
                    self._unsettled.see(at, stored, time_ms)
        self._seen = max(begun, end)
        if is_first_look and self._unsettled.has_transactions:
            for txn in await reader.aborted_between(now_ms - 2 * LOOK_BACK_MS, begun):
                self._unsettled.abort(txn)
        self._unsettled.forget_before(oldest)
        waiting = self._unsettled.first(now_ms)
        return end if waiting is None else min(end, waiting)
