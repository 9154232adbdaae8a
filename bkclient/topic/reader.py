"""Reads of a topic: its ledgers in order, their entries split into messages.

The reader yields the messages of a broker's reader, in the same order, up to the last entry that
the bookies confirm or a subscription has acknowledged. The newest entries of the open ledger may be
missing: bookies learn that an entry is confirmed with a later entry. No ledger is fenced.

See ``topic.transactions`` for messages of transactions, ``topic.chunks`` for messages in chunks.

Offloaded ledgers can be read while the bookies still have them. Encrypted payloads are not
decrypted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, closing
from functools import partial
from typing import Any, Final, Union

import attrs
from twisted.logger import Logger

from bkclient.blocking import BlockingClient
from bkclient.client import Client
from bkclient.errors import IncorrectParameterError, NoSuchEntryInLedgerError, NoSuchLedgerError
from bkclient.topic.batches.same_shape_entries import (
    BYTES_AT_ONCE,
    SplitEntry,
    alike_groups,
    joined_messages,
)
from bkclient.topic.chunks import ChunkAssembler
from bkclient.topic.entry import TXN_ABORT, StoredMessage, Txn, split_entry
from bkclient.topic.managed_ledger import MessageId, TopicLedger
from bkclient.topic.messages import EntryMessages, TopicMessage, unpack
from bkclient.topic.names import (
    NoSuchTopicError,
    OffloadedError,
    TopicFormatError,
    TopicName,
    TopicTrimmedError,
    parse_topic,
)
from bkclient.topic.positions import LOOK_BACK_MS, last_confirmed, position_at
from bkclient.topic.schema_decoding import Decoder
from bkclient.topic.topics_in_metadata import parts_of, topic_ledgers
from bkclient.topic.transactions import TransactionOutcome, Transactions
from wire.digest import Entry
from wire.ids import LedgerId

log = Logger()

Limit = Union[MessageId, int]
"""A message id, or a publish time in ms since 1970."""

EARLIEST: Final = MessageId(-1, -1)


@attrs.frozen
class _Limits:
    """The first wanted message, and the first later message that is not wanted."""

    start: Limit | None
    end: Limit | None

    def include(self, message_id: MessageId, published_ms: int) -> bool:
        """Return whether a message is between the limits."""
        start, end = self.start, self.end
        return (
            start is None
            or (published_ms >= start if isinstance(start, int) else message_id >= start)
        ) and (end is None or (published_ms < end if isinstance(end, int) else message_id < end))

    def include_all(self, group: Sequence[SplitEntry]) -> bool:
        """Return whether the ids of all messages of some batches are between the limits.

        False if a limit is a time: messages are in the order of ids, not of times.
        """
        if isinstance(self.start, int) or isinstance(self.end, int):
            return False
        (first, stored), (last, _) = group[0], group[-1]
        last_index = stored.metadata.numMessagesInBatch - 1
        ids = (first.entry_id, 0), (last.entry_id, last_index)
        return all(self.include(MessageId(first.ledger_id, *one), 0) for one in ids)

    def within(self, messages: EntryMessages) -> EntryMessages:
        """Return those messages of an entry that are between the limits."""
        common, indexes = messages.common, messages.column("batch_index")

        def is_wanted(index: int) -> bool:
            message_id = MessageId(common["ledger_id"], common["entry_id"], index)
            return self.include(message_id, common["publish_time_ms"])

        # Message ids ascend, so if the first and the last are wanted, all are.
        if all(map(is_wanted, (*indexes[:1], *indexes[-1:]))):
            return messages
        return messages.where(list(map(is_wanted, indexes)))


class TopicReader:
    """One read of one topic without partitions, or of one partition.

    Args:
        client: the client of the cluster.
        topic: the topic or partition.
        start: the first wanted message, by id or by publish time.
        end: the first message not wanted. By default the reader ends at the last entry that is
            confirmed when it reaches the last ledger. A message in chunks has the position of its
            first chunk.
        decoder: sets ``TopicMessage.decoded``.
        fail_on_trimmed: raise ``TopicTrimmedError`` if messages were deleted before ``start`` or
            during the read; otherwise continue with the first remaining message, as a broker does.
        end_is_confirmed: all entries before ``end``, an id, are known to be confirmed: read them or
            fail, even if the bookies that answer now do not confirm them.
        looks_to: the position up to which the reader looks for the later chunks of messages that
            begin before ``end``; by default the end of the topic.
    """

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        *,
        start: Limit | None = None,
        end: Limit | None = None,
        decoder: Decoder | None = None,
        fail_on_trimmed: bool = False,
        end_is_confirmed: bool = False,
        looks_to: MessageId | None = None,
    ) -> None:
        self._client, self.topic = client, topic
        self._limits, self._decoder = _Limits(start, end), decoder
        self._end_is_confirmed, self._looks_to = end_is_confirmed, looks_to
        self._fail_on_trimmed = fail_on_trimmed
        self.with_properties = True
        """True if messages of batches are read with their properties."""
        self.chunks, self._transactions = ChunkAssembler(), Transactions()
        self._looked_to, self._has_looked_back = EARLIEST, False
        self.held_back_at: MessageId | None = None
        """The first message of an open transaction; the read ended before it."""

    async def read(self) -> AsyncGenerator[list[TopicMessage], None]:
        """Yield messages in order, several at a time, in bounded memory.

        Raises:
            see ``read_columns``.
        """
        async with aclosing(self.read_columns()) as chunks:
            async for found in chunks:
                yield [message for one in found for message in one.messages()]

    async def read_columns(self) -> AsyncGenerator[list[EntryMessages], None]:
        """Yield the messages of ``read`` by column, entry by entry; much faster.

        Raises:
            NoSuchTopicError: the topic does not exist.
            TopicTrimmedError: see ``fail_on_trimmed``.
            OffloadedError: the bookies have deleted a ledger that is in tiered storage.
            TopicFormatError: an entry is not in Pulsar's form; the message names the entry.
            ClientError: an entry cannot be read; the entries before it have been yielded.
        """
        start, end = self._limits.start, self._limits.end
        first = start if isinstance(start, MessageId) else EARLIEST
        end = end if isinstance(end, MessageId) else None
        async with aclosing(self.entries(first, end)) as chunks:
            async for entries in chunks:
                messages: list[EntryMessages] = []
                size_bytes = 0
                for group in alike_groups((entry, self.split(entry)) for entry in entries):
                    for found in await self._messages_of(group):
                        messages.append(found)
                        size_bytes += found.size_bytes
                    if self.held_back_at is not None:
                        break
                    if size_bytes >= BYTES_AT_ONCE:
                        # Decompressed, the entries may be hundreds of times as large.
                        yield messages
                        messages, size_bytes = [], 0
                if messages:
                    yield messages
                if self.held_back_at is not None:
                    return
        if end is not None and self.chunks.incomplete:
            async with aclosing(self._completed_behind(end)) as completed:
                async for message in completed:
                    yield [message]

    # Entries

    async def entries(
        self, first: MessageId, end: MessageId | None
    ) -> AsyncGenerator[list[Entry], None]:
        """Yield the entries from ``first`` on, up to the last confirmed entry or ``end``.

        Raises:
            TopicTrimmedError, OffloadedError, ClientError: as ``read``.
        """
        ledgers = (await topic_ledgers(self._client, self.topic)).ledgers
        is_listed = any(one.ledger_id == first.ledger_id for one in ledgers)
        if self._fail_on_trimmed and first.ledger_id >= 0 and not is_listed:
            raise self._trimmed(first.ledger_id)
        for ledger in ledgers:
            if ledger.ledger_id < first.ledger_id:
                continue
            if end is not None and ledger.ledger_id > end.ledger_id:
                return
            at = max(0, first.entry_id) if ledger.ledger_id == first.ledger_id else 0
            stop = end if end is not None and end.ledger_id == ledger.ledger_id else None
            try:
                async with aclosing(self._of_ledger(ledger, at, stop)) as chunks:
                    async for entries in chunks:
                        yield entries
            except (NoSuchLedgerError, NoSuchEntryInLedgerError) as error:
                listed = await self._listed(ledger.ledger_id)
                if listed is not None and listed.is_deleted:
                    raise OffloadedError.of(
                        self.topic, listed.ledger_id, listed.offloaded_to
                    ) from error
                if listed is not None:
                    raise
                if self._fail_on_trimmed:
                    raise self._trimmed(ledger.ledger_id) from error
                log.info("{topic}: ledger {id} was trimmed", topic=self.topic, id=ledger.ledger_id)

    async def _of_ledger(
        self, ledger: TopicLedger, first: int, end: MessageId | None
    ) -> AsyncGenerator[list[Entry], None]:
        if ledger.is_deleted:
            raise OffloadedError.of(self.topic, ledger.ledger_id, ledger.offloaded_to)
        with closing(await self._client.open_ledger(ledger.ledger_id, recover=False)) as reader:
            if end is None or not self._end_is_confirmed:
                last = await last_confirmed(self._client, self.topic, reader)
            if end is not None:
                # The limit may be within the batch of the entry that `end` names.
                stop = end.entry_id if end.batch_index > 0 else end.entry_id - 1
                last = stop if self._end_is_confirmed else min(last, stop)
            if first > last:
                return
            async with aclosing(reader.read_chunks(first, last, unconfirmed=True)) as chunks:
                async for entries in chunks:
                    yield entries

    async def _listed(self, ledger_id: LedgerId) -> TopicLedger | None:
        try:
            found = await topic_ledgers(self._client, self.topic)
        except NoSuchTopicError:
            return None
        return next((one for one in found.ledgers if one.ledger_id == ledger_id), None)

    def _trimmed(self, ledger_id: int) -> TopicTrimmedError:
        return TopicTrimmedError(f"ledger {ledger_id} of {self.topic} was deleted")

    # Messages

    async def _messages_of(self, group: Sequence[SplitEntry]) -> list[EntryMessages]:
        """Return the messages that these entries complete, up to the first open transaction."""
        if len(group) > 1 and self._decoder is None and self._limits.include_all(group):
            joined = joined_messages(group, **self._place)
            if joined is not None:
                for _ in group if self.chunks.incomplete else ():
                    self.chunks.see_entry()
                return [joined]
        messages: list[EntryMessages] = []
        for entry, stored in group:
            found = await self._messages(entry, stored)
            if found is None:
                self.held_back_at = MessageId(entry.ledger_id, entry.entry_id)
                break
            messages += found
        return messages

    async def _messages(self, entry: Entry, stored: StoredMessage) -> list[EntryMessages] | None:
        """Return the messages that an entry completes; None if its transaction is open."""
        if self.chunks.incomplete:
            self.chunks.see_entry()
        if stored.is_marker:
            self._transactions.come_to(stored)
            return []
        txn = stored.txn
        if txn is not None:
            outcome = await self._outcome(txn, entry)
            if outcome is TransactionOutcome.OPEN:
                return None
            if outcome is TransactionOutcome.ABORTED:
                return []
        return await self._unpacked(entry, stored)

    async def _unpacked(
        self, entry: Entry, stored: StoredMessage, *, is_wanted: bool = False
    ) -> list[EntryMessages]:
        """Return the wanted messages of an entry; a chunk before the last yields none."""
        add_chunk = self.chunks.add_behind if is_wanted else self.chunks.add
        try:
            whole = add_chunk(stored) if stored.is_chunk else stored
            if whole is None:
                return []
            messages = unpack(
                whole,
                entry.ledger_id,
                entry.entry_id,
                with_properties=self.with_properties,
                **self._place,
            )
        except TopicFormatError as error:
            raise self._damaged(entry, error) from error
        if not is_wanted:
            messages = self._limits.within(messages)
        if not messages.count:
            return []
        if self._decoder is not None:
            decoded = [(await self._decoder.decoded(one)).decoded for one in messages.messages()]
            messages = attrs.evolve(messages, each={**messages.each, "decoded": decoded})
        return [messages]

    @property
    def _place(self) -> dict[str, Any]:
        return {"topic": str(self.topic), "partition": self.topic.partition}

    async def _completed_behind(self, end: MessageId) -> AsyncGenerator[EntryMessages, None]:
        """Yield the messages with the first chunk before ``end`` and the last chunk after it.

        So a topic that is read in pieces yields each message once.
        """
        behind = self.entries(MessageId(end.ledger_id, end.entry_id), self._looks_to)
        async with aclosing(behind) as chunks:
            async for entries in chunks:
                for entry in entries:
                    self.chunks.see_entry()
                    stored = self.split(entry)
                    if stored.is_chunk:
                        for message in await self._unpacked(entry, stored, is_wanted=True):
                            yield message
                    if not self.chunks.incomplete:
                        return

    async def _outcome(self, txn: Txn, entry: Entry) -> TransactionOutcome:
        """Return the outcome of a transaction; read ahead to its marker if necessary.

        A message may be stored after the abort marker of its transaction: then search backwards,
        too.
        """
        here = MessageId(entry.ledger_id, entry.entry_id)
        if self._transactions.outcome(txn) is TransactionOutcome.OPEN:
            async with aclosing(self.entries(max(here, self._looked_to), None)) as chunks:
                async for entries in chunks:
                    for one in entries:
                        self._transactions.see(self.split(one))
                    self._looked_to = MessageId(entries[-1].ledger_id, entries[-1].entry_id)
                    if self._transactions.outcome(txn) is not TransactionOutcome.OPEN:
                        break
        is_open = self._transactions.outcome(txn) is TransactionOutcome.OPEN
        if is_open and not self._has_looked_back:
            self._has_looked_back = True
            published_ms = self.split(entry).metadata.publishTime
            for aborted in await self.aborted_between(published_ms - LOOK_BACK_MS, here):
                self._transactions.abort(aborted)
        return self._transactions.outcome(txn)

    async def aborted_between(self, time_ms: int, end: MessageId) -> set[Txn]:
        """Return the transactions with an abort marker between ``time_ms`` and ``end``."""
        found: set[Txn] = set()
        first = await position_at(self._client, self.topic, time_ms)
        async with aclosing(self.entries(first, end)) as chunks:
            async for entries in chunks:
                for stored in map(self.split, entries):
                    if stored.txn is not None and stored.metadata.markerType == TXN_ABORT:
                        found.add(stored.txn)
        return found

    def split(self, entry: Entry) -> StoredMessage:
        """Split an entry into metadata and payload.

        Raises:
            TopicFormatError: the entry is not in Pulsar's form; the message names the entry.
        """
        try:
            return split_entry(entry.payload)
        except TopicFormatError as error:
            raise self._damaged(entry, error) from error

    def _damaged(self, entry: Entry, error: TopicFormatError) -> TopicFormatError:
        where = f"entry {entry.entry_id} of ledger {entry.ledger_id}"
        return TopicFormatError(f"{self.topic}: {where}: {error}")


def read_topic(
    client: BlockingClient,
    topic: str,
    start: Limit | None = None,
    end: Limit | None = None,
    *,
    decode: str | None = None,
    fail_on_trimmed: bool = False,
) -> Iterator[TopicMessage]:
    """Yield the messages of a topic; partitions are read one after the other.

    Args:
        client: the client of the cluster; do not use it for anything else during the read.
        topic: ``persistent://tenant/namespace/topic``, or a short name as in Pulsar.
        start: the first wanted message, by id or by publish time in ms.
        end: the first message not wanted; by default the read ends at the last confirmed entry.
        decode: ``string``, ``json`` or ``avro`` sets ``TopicMessage.decoded``.
        fail_on_trimmed: see ``TopicReader``.

    Raises:
        IncorrectParameterError: a limit of a partitioned topic is a message id, or the decoder is
            unknown.
        TopicError, ClientError: see ``TopicReader.read``.
    """
    parts = client.call(parts_of, parse_topic(topic))
    if len(parts) > 1 and any(isinstance(limit, MessageId) for limit in (start, end)):
        raise IncorrectParameterError(
            "a message id belongs to one partition; give the name of the partition"
        )

    def reading(client: Client, part: TopicName) -> AsyncIterator[list[TopicMessage]]:
        decoder = None if decode is None else Decoder(client, part, decode)
        reader = TopicReader(
            client,
            part,
            start=start,
            end=end,
            decoder=decoder,
            fail_on_trimmed=fail_on_trimmed,
        )
        return reader.read()

    for part in parts:
        for messages in client.iterate(partial(reading, part=part)):
            yield from messages
