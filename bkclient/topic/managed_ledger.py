"""The lists of ledgers and subscriptions that Pulsar stores for a topic in the metadata store.

====== ================================================================
offset content of a compressed value; others are the bare protobuf message
====== ================================================================
0      magic 0x4778, 2 bytes
2      size of ManagedInfoMetadata, 4 bytes
6      ManagedInfoMetadata: codec and uncompressed size
6 + n  the compressed message
====== ================================================================

Agrees with Pulsar 4.0, MetaStoreImpl. Pulsar before 2.0 wrote a text form; no later release reads
it.
"""

from __future__ import annotations

import json
import struct
from typing import Final, NamedTuple

import attrs

from bkclient.topic.compression import decompress
from bkclient.topic.names import TopicFormatError
from wire.frames import protobuf
from wire.ids import LedgerId
from wire.pb import pulsar_pb2 as pb

PARTITIONS_MAX: Final = 100_000
"""A larger number of partitions is rejected as damage."""

_HEAD: Final = struct.Struct(">HI")
_MAGIC: Final = 0x4778


class MessageId(NamedTuple):
    """The position of a message. ``batch_index`` is -1 for a message with its own entry.

    A tuple, because readers compare two ids with their limits for each entry.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1

    def __str__(self) -> str:
        batch = "" if self.batch_index < 0 else f":{self.batch_index}"
        return f"{self.ledger_id}:{self.entry_id}{batch}"


@attrs.frozen(kw_only=True)
class TopicLedger:
    """One ledger of a topic; ``entries``, ``size_bytes`` and ``closed_ms`` are 0 while it is open.

    ``closed_ms`` is in ms since 1970. ``is_deleted`` is True if the bookies have deleted the
    entries and only tiered storage has them. ``offloaded_to`` is the driver of the tiered storage
    that has a copy, or "".
    """

    ledger_id: LedgerId
    entries: int = 0
    size_bytes: int = 0
    closed_ms: int = 0
    is_deleted: bool = False
    offloaded_to: str = ""


@attrs.frozen(kw_only=True)
class TopicLedgers:
    """The ledgers of one topic or partition, oldest first.

    ``terminated_at`` is the last message of a topic that accepts no more. Each write of the list
    increments ``version``.
    """

    ledgers: tuple[TopicLedger, ...]
    version: int = 0
    terminated_at: MessageId | None = None
    properties: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class TopicCursor:
    """A subscription: messages up to ``mark_deleted`` are acknowledged; None if a ledger stores it.

    ``ledger_id`` is the ledger with the newest state, or -1.
    """

    name: str
    ledger_id: int
    mark_deleted: MessageId | None
    properties: dict[str, int] = attrs.field(factory=dict)


def decode_managed_ledger(value: bytes) -> TopicLedgers:
    """Return the ledgers in the value of a topic's node.

    Raises:
        TopicFormatError: the value is not in Pulsar's form.
        CodecMissingError: the value is compressed, and the library is not installed.
    """
    info = protobuf.parse(pb.ManagedLedgerInfo, _uncompressed(value), TopicFormatError)
    end = info.terminatedPosition
    return TopicLedgers(
        # A broker sorts the list, too.
        ledgers=tuple(sorted(map(_ledger, info.ledgerInfo), key=lambda one: one.ledger_id)),
        terminated_at=(
            MessageId(end.ledgerId, end.entryId) if info.HasField("terminatedPosition") else None
        ),
        properties={_text(one.key): _text(one.value) for one in info.properties},
    )


def decode_cursor(name: str, value: bytes) -> TopicCursor:
    """Return the subscription in the value of a node below a topic's node.

    Raises:
        TopicFormatError: the value is not in Pulsar's form.
        CodecMissingError: the value is compressed, and the library is not installed.
    """
    try:
        info = protobuf.parse(pb.ManagedCursorInfo, _uncompressed(value), TopicFormatError)
    except TopicFormatError as error:
        raise TopicFormatError(f"subscription {name}: {error}") from error
    is_known = info.HasField("markDeleteLedgerId") and info.HasField("markDeleteEntryId")
    return TopicCursor(
        name=name,
        ledger_id=info.cursorsLedgerId,
        mark_deleted=(
            MessageId(info.markDeleteLedgerId, info.markDeleteEntryId) if is_known else None
        ),
        properties={_text(one.name): one.value for one in info.properties},
    )


def decode_partitions(value: bytes) -> int:
    """Return a topic's number of partitions.

    Raises:
        TopicFormatError: the value is not a JSON object with a number of partitions.
    """
    try:
        found = json.loads(value)["partitions"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TopicFormatError(f"no number of partitions in {value[:80]!r}") from error
    if type(found) is not int or not 0 <= found <= PARTITIONS_MAX:
        raise TopicFormatError(f"{found!r} is not a number of partitions")
    return found


def _ledger(info: pb.ManagedLedgerInfo.LedgerInfo) -> TopicLedger:
    if min(info.ledgerId, info.entries, info.size) < 0:
        raise TopicFormatError(
            f"ledger {info.ledgerId} with {info.entries} entries and {info.size} bytes"
        )
    offload = info.offloadContext
    return TopicLedger(
        ledger_id=LedgerId(info.ledgerId),
        entries=info.entries,
        size_bytes=info.size,
        closed_ms=info.timestamp,
        is_deleted=offload.complete and offload.bookkeeperDeleted,
        offloaded_to=_text(offload.driverMetadata.name) if offload.complete else "",
    )


def _uncompressed(value: bytes) -> bytes:
    if len(value) < _HEAD.size:
        return value
    magic, size = _HEAD.unpack_from(value)
    if magic != _MAGIC:
        return value
    end = _HEAD.size + size
    if end > len(value):
        raise TopicFormatError(f"a head of {size} bytes in a value of {len(value)}")
    head = protobuf.parse(pb.ManagedInfoMetadata, value[_HEAD.size : end], TopicFormatError)
    if head.uncompressedSize < 0:
        raise TopicFormatError(f"a value of {head.uncompressedSize} bytes")
    return decompress(value[end:], head.compressionType, head.uncompressedSize)


def _text(value: str) -> str:
    return protobuf.text(value, TopicFormatError)
