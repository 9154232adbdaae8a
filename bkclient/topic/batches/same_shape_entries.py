"""Entries with batches of equal shape, split together, without one Python object per message.

A producer of messages of one size writes entries that differ only in their numbers. The payloads of
these entries are joined and split as one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from bkclient.topic.batches.uniform_batch import RepeatedColumn, uniform_batch
from bkclient.topic.compression import decompress
from bkclient.topic.entry import StoredMessage, signed
from bkclient.topic.messages import EntryMessages, shared_columns
from bkclient.topic.names import TopicFormatError
from wire.digest import Entry

BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""Decompressed payload bytes of messages that are yielded together; one entry may exceed it."""

SplitEntry = tuple[Entry, StoredMessage]


def alike_groups(entries: Iterable[SplitEntry]) -> Iterator[list[SplitEntry]]:
    """Yield the entries of a ledger in groups of equal shape, and every other entry alone.

    A single entry is yielded before the next entry is read.
    """
    group: list[SplitEntry] = []
    shape, size_bytes = None, 0
    for entry, stored in entries:
        found = _shape(stored)
        if group and (found != shape or size_bytes >= BYTES_AT_ONCE):
            yield group
            group, size_bytes = [], 0
        if found is None:
            yield [(entry, stored)]
            continue
        shape = found
        group.append((entry, stored))
        size_bytes += max(len(stored.payload), stored.metadata.uncompressedSize)
    if group:
        yield group


def _shape(stored: StoredMessage) -> bytes | None:
    """Return the serialized metadata that alike batches share; None for an unusual entry."""
    found = stored.metadata
    if (
        found.numMessagesInBatch <= 1
        or found.nullValue
        or stored.broker_time_ms is not None
        or stored.index is not None
        or stored.txn is not None
        or stored.is_marker
        or stored.is_encrypted
        or stored.is_chunk
    ):
        return None
    shared = type(found)()
    shared.CopyFrom(found)
    # Sequence ids differ between entries. The highest sequence id of a batch is an unknown field in
    # this schema.
    shared.ClearField("publishTime")
    shared.ClearField("sequenceId")
    shared.DiscardUnknownFields()
    return shared.SerializePartialToString()


def joined_messages(group: Sequence[SplitEntry], **place: Any) -> EntryMessages | None:
    """Return the messages of alike entries; None if each entry must be split by itself."""
    entries, metadata = len(group), group[0][1].metadata
    count = metadata.numMessagesInBatch
    try:
        payloads = [
            decompress(stored.payload, metadata.compression, metadata.uncompressedSize)
            for _, stored in group
        ]
        common = place | shared_columns(group[0][1])
    except TopicFormatError:
        return None
    if len(set(map(len, payloads))) > 1 or len(payloads[0]) % count:
        return None
    payload = b"".join(payloads)
    even = uniform_batch(payload, count * entries)
    if even is None:
        return None
    common["ledger_id"] = group[0][0].ledger_id
    if metadata.eventTime:
        common["event_time_ms"] = signed(metadata.eventTime)
    times = [signed(stored.metadata.publishTime) for _, stored in group]
    return EntryMessages(
        count=count * entries,
        size_bytes=len(payload),
        common=common,
        each={
            "entry_id": RepeatedColumn([entry.entry_id for entry, _ in group], count),
            "publish_time_ms": RepeatedColumn(times, count),
            "batch_index": list(range(count)) * entries,
            "value": even.values,
            "sequence_id": even.sequence_ids,
        },
    )
