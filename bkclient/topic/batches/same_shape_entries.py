"""Entries whose batches have one shape, taken apart together: no Python object for a message.

A producer that sends messages of one size writes entries that differ in their numbers only. Their
payloads are joined, and are then one batch.
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
"""Payload of the messages that are yielded together, decompressed; one entry may have more."""

SplitEntry = tuple[Entry, StoredMessage]


def alike_groups(entries: Iterable[SplitEntry]) -> Iterator[list[SplitEntry]]:
    """Yield the entries of a ledger in groups of alike batches, all others alone.

    An entry that is alone is yielded before the next one is asked for.
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
    """Return what alike batches have in common; None where an entry is not a usual batch."""
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
    # Each message has a sequence id of its own. The highest of them is an unknown field here.
    shared.ClearField("publishTime")
    shared.ClearField("sequenceId")
    shared.DiscardUnknownFields()
    return shared.SerializePartialToString()


def joined_messages(group: Sequence[SplitEntry], **place: Any) -> EntryMessages | None:
    """Return the messages of alike entries; None where they must be taken apart one by one."""
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
