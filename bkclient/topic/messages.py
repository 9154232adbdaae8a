"""Messages as a consumer receives them: single ones, and batches taken apart.

A batch is, for each message, the size of its metadata (4 bytes), SingleMessageMetadata, and as many
bytes of payload as that says. The whole payload may be compressed, and then encrypted.

Agrees with Pulsar 4.0, ConsumerImpl and MessageImpl. No I/O here.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterable
from typing import Any, Final

import attrs
from google.protobuf.message import DecodeError

from bkclient.topic.compression import decompress
from bkclient.topic.entry import StoredMessage
from bkclient.topic.errors import TopicFormatError
from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.names import NO_PARTITION
from wire.frames import protobuf
from wire.pb import pulsar_pb2 as pb

NOT_IN_BATCH: Final = -1

_SIZE: Final = struct.Struct(">I")
_SINGLE_BYTES_MIN: Final = 4 + 2
"""What one message of a batch takes at least: the size, and metadata with a payload's size."""


@attrs.frozen(kw_only=True)
class TopicMessage:
    """One message. The fields are the columns of a topic as a table.

    ``value`` is None for a tombstone (a null value). An encrypted entry is one message whose
    ``value`` is the encrypted payload: a batch cannot be taken apart without the key.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = NOT_IN_BATCH
    topic: str = ""
    partition: int = NO_PARTITION
    key: bytes | None = None
    ordering_key: bytes | None = None
    value: bytes | None = attrs.field(repr=False)
    properties: dict[str, str] = attrs.field(factory=dict)
    publish_time_ms: int
    event_time_ms: int | None = None
    broker_time_ms: int | None = None
    index: int | None = None
    """The number that the broker gave to the message, where it numbers them."""
    sequence_id: int
    producer: str
    schema_version: bytes | None = None
    replicated_from: str | None = None
    encrypted: bool = False
    decoded: Any = None

    @property
    def message_id(self) -> MessageId:
        """Where the message is."""
        return MessageId(self.ledger_id, self.entry_id, self.batch_index)


def unpack(
    stored: StoredMessage, ledger_id: int, entry_id: int, **place: Any
) -> list[TopicMessage]:
    """Return the messages of an entry, or of chunks that were put together.

    ``place`` is what all of them have in common: ``topic`` and ``partition``.

    Raises:
        TopicFormatError: the payload is damaged.
        CodecMissingError: it is compressed, and the library is not installed.
    """
    found = stored.metadata
    common: dict[str, Any] = {
        **place,
        "ledger_id": ledger_id,
        "entry_id": entry_id,
        "publish_time_ms": found.publishTime,
        "broker_time_ms": stored.broker_time_ms,
        "producer": _text(found.producerName),
        "schema_version": found.schemaVersion if found.HasField("schemaVersion") else None,
        "replicated_from": (
            _text(found.replicatedFrom) if found.HasField("replicatedFrom") else None
        ),
        "event_time_ms": found.eventTime or None,
    }
    if stored.is_encrypted:
        return [_single(stored, stored.payload, common, encrypted=True)]
    payload = decompress(stored.payload, found.compression, found.uncompressedSize)
    if not found.HasField("numMessagesInBatch") or stored.is_chunk:
        return [_single(stored, payload, common)]
    return _batch(stored, payload, common)


def _single(
    stored: StoredMessage, payload: bytes, common: dict[str, Any], *, encrypted: bool = False
) -> TopicMessage:
    found = stored.metadata
    return TopicMessage(
        **common,
        key=_key(found),
        ordering_key=found.orderingKey if found.HasField("orderingKey") else None,
        value=None if found.nullValue else payload,
        properties=_properties(found.properties),
        sequence_id=found.sequenceId,
        index=stored.index,
        encrypted=encrypted,
    )


def _batch(stored: StoredMessage, payload: bytes, common: dict[str, Any]) -> list[TopicMessage]:
    count, found = stored.metadata.numMessagesInBatch, stored.metadata
    if not 0 < count <= len(payload) // _SINGLE_BYTES_MIN:
        raise TopicFormatError(f"a batch of {count} messages in {len(payload)} bytes")
    first_index = None if stored.index is None else stored.index - count + 1
    messages, at = [], 0
    for number in range(count):
        single, at = _single_metadata(payload, at)
        value, at = _slice(payload, at, single.payloadSize)
        if single.compactedOut:
            continue
        is_null = single.nullValue if single.HasField("nullValue") else found.nullValue
        messages.append(
            TopicMessage(
                **{
                    **common,
                    "event_time_ms": (
                        single.eventTime or None
                        if single.HasField("eventTime")
                        else common["event_time_ms"]
                    ),
                },
                batch_index=number,
                key=_key(single),
                ordering_key=single.orderingKey if single.HasField("orderingKey") else None,
                value=None if is_null else value,
                properties=_properties(single.properties),
                sequence_id=(
                    single.sequenceId if single.HasField("sequenceId") else found.sequenceId
                ),
                index=None if first_index is None else first_index + number,
            )
        )
    return messages


def _single_metadata(payload: bytes, at: int) -> tuple[pb.SingleMessageMetadata, int]:
    if at + _SIZE.size > len(payload):
        raise TopicFormatError("the batch ends before its last message")
    data, at = _slice(payload, at + _SIZE.size, _SIZE.unpack_from(payload, at)[0])
    single = pb.SingleMessageMetadata()
    # `protobuf.parse` does the same; this runs once a message, not once an entry.
    try:
        single.MergeFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise TopicFormatError(f"no SingleMessageMetadata: {error}") from error
    if not single.HasField("payloadSize") or single.payloadSize < 0:
        raise TopicFormatError("a message of a batch has no size")
    return single, at


def _slice(payload: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if end > len(payload):
        raise TopicFormatError("the batch ends before its last message")
    return payload[at:end], end


def _key(found: pb.MessageMetadata | pb.SingleMessageMetadata) -> bytes | None:
    if found.nullPartitionKey or not found.HasField("partitionKey"):
        return None
    key = _text(found.partitionKey)
    if not found.partitionKeyB64Encoded:
        return key.encode()
    try:
        return base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError) as error:
        raise TopicFormatError(f"key {key[:40]!r} is not Base64") from error


def _properties(pairs: Iterable[pb.KeyValue]) -> dict[str, str]:
    return {_text(pair.key): _text(pair.value) for pair in pairs}


def _text(value: str) -> str:
    return protobuf.text(value, TopicFormatError)
