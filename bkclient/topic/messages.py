"""Messages as a consumer receives them: single messages, and batches split into messages.

A batch has, for each message, the size of its metadata (4 bytes), SingleMessageMetadata, and the
payload, whose size is in the metadata. The complete payload may be compressed, and then encrypted.

Agrees with Pulsar 4.0, ConsumerImpl and MessageImpl. No I/O.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from types import MappingProxyType
from typing import Any, Final

import attrs
from google.protobuf.message import DecodeError

from bkclient.topic.batches.single_metadata import SingleMetadata, usual_metadata
from bkclient.topic.batches.uniform_batch import uniform_batch, usual_batch
from bkclient.topic.compression import decompress
from bkclient.topic.entry import StoredMessage, signed
from bkclient.topic.managed_ledger import MessageId
from bkclient.topic.names import NO_PARTITION, TopicFormatError
from wire.frames import protobuf
from wire.pb import pulsar_pb2 as pb

NOT_IN_BATCH: Final = -1

_INDEX_MIN: Final = -(2**63)
"""The lowest index of a message in its topic; only a damaged batch has a lower first index."""

_SIZE: Final = struct.Struct(">I")
_SINGLE_BYTES_MIN: Final = 4 + 2
"""The fewest bytes of a message in a batch: the size, and metadata with a payload size."""


@attrs.frozen(kw_only=True)
class TopicMessage:
    """One message. The fields are the columns of a topic as a table.

    Times are in ms since 1970, or None if not set: ``publish_time_ms`` by the producer's clock,
    ``event_time_ms`` by the application, ``broker_time_ms`` by the broker's clock. ``value`` is
    None for a tombstone (a null value). An encrypted entry is one message whose ``value`` is the
    encrypted payload: a batch cannot be split without the key.
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
    """The index that the broker assigned to the message.

    None if the broker does not number messages.
    """
    sequence_id: int
    producer: str
    schema_version: bytes | None = None
    replicated_from: str | None = None
    encrypted: bool = False
    decoded: Any = None

    @property
    def message_id(self) -> MessageId:
        """The position of the message."""
        return MessageId(self.ledger_id, self.entry_id, self.batch_index)


DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        **{field.name: field.default for field in attrs.fields(TopicMessage)},
        "properties": MappingProxyType({}),
    }
)
"""The value of each column that ``EntryMessages`` lacks."""


@attrs.frozen(kw_only=True)
class EntryMessages:
    """The messages of an entry, of assembled chunks, or of alike entries, by column.

    Column names are the fields of ``TopicMessage``. ``common`` has the values that all messages
    share, ``each`` the values of each message; a column in neither has the value of ``DEFAULTS``.
    """

    count: int
    size_bytes: int
    """Payload bytes, decompressed."""
    common: dict[str, Any]
    each: Mapping[str, Sequence[Any]] = MappingProxyType({})

    def column(self, name: str) -> Sequence[Any]:
        """Return one field of all messages."""
        found = self.each.get(name)
        if found is not None:
            return found
        return [self.common.get(name, DEFAULTS[name])] * self.count

    def messages(self) -> list[TopicMessage]:
        """Return the messages as objects."""
        if not self.each:
            return [TopicMessage(**self.common) for _ in range(self.count)]
        return [
            TopicMessage(**self.common, **dict(zip(self.each, row, strict=True)))
            for row in zip(*self.each.values(), strict=True)
        ]

    def where(self, is_wanted: Sequence[bool]) -> EntryMessages:
        """Return the messages for which ``is_wanted`` is True."""
        each: dict[str, Sequence[Any]] = {
            name: list(compress(column, is_wanted)) for name, column in self.each.items()
        }
        return attrs.evolve(self, count=sum(is_wanted), each=each)


def unpack(
    stored: StoredMessage,
    ledger_id: int,
    entry_id: int,
    *,
    with_properties: bool = True,
    **place: Any,
) -> EntryMessages:
    """Return the messages of an entry, or of assembled chunks.

    ``place`` has the shared columns ``topic`` and ``partition``. Properties are a third of the work
    for a batch: without ``with_properties`` most batches omit them.

    Raises:
        TopicFormatError: the payload is damaged.
        CodecMissingError: the payload is compressed, and the library is not installed.
    """
    found = stored.metadata
    common = {**place, **shared_columns(stored), "ledger_id": ledger_id, "entry_id": entry_id}
    common["publish_time_ms"] = signed(found.publishTime)
    if stored.is_encrypted:
        return _single(stored, stored.payload, {**common, "encrypted": True})
    payload = decompress(stored.payload, found.compression, found.uncompressedSize)
    if not found.HasField("numMessagesInBatch") or stored.is_chunk:
        return _single(stored, payload, common)
    return _batch(stored, payload, common, with_properties=with_properties)


def shared_columns(stored: StoredMessage) -> dict[str, Any]:
    """Return the columns that all messages of an entry share, without ids and publish time.

    Raises:
        TopicFormatError: a text is not UTF-8.
    """
    found = stored.metadata
    common: dict[str, Any] = {"producer": _text(found.producerName)}
    if stored.broker_time_ms is not None:
        common["broker_time_ms"] = stored.broker_time_ms
    if found.HasField("schemaVersion"):
        common["schema_version"] = found.schemaVersion
    if found.HasField("replicatedFrom"):
        common["replicated_from"] = _text(found.replicatedFrom)
    return common


def _single(stored: StoredMessage, payload: bytes, common: dict[str, Any]) -> EntryMessages:
    found = stored.metadata
    common["sequence_id"] = signed(found.sequenceId)
    common["value"] = None if found.nullValue else payload
    if found.HasField("partitionKey"):
        common["key"] = _key(found)
    if found.HasField("orderingKey"):
        common["ordering_key"] = found.orderingKey
    if found.properties:
        common["properties"] = _properties(found.properties)
    if found.eventTime:
        common["event_time_ms"] = signed(found.eventTime)
    if stored.index is not None:
        common["index"] = stored.index
    return EntryMessages(count=1, size_bytes=len(payload), common=common)


def _batch(
    stored: StoredMessage, payload: bytes, common: dict[str, Any], *, with_properties: bool
) -> EntryMessages:
    count, found = stored.metadata.numMessagesInBatch, stored.metadata
    if not 0 < count <= len(payload) // _SINGLE_BYTES_MIN:
        raise TopicFormatError(f"a batch of {count} messages in {len(payload)} bytes")
    first_index = None if stored.index is None else max(_INDEX_MIN, stored.index - count + 1)
    each: dict[str, Sequence[Any]] = {}
    even = None
    if count > 1 and not found.nullValue:
        even = uniform_batch(payload, count) or usual_batch(
            payload, count, with_properties=with_properties
        )
    if even is not None:
        each = {
            "batch_index": range(count),
            "value": even.values,
            "sequence_id": even.sequence_ids,
        }
        if even.keys is not None:
            each["key"] = even.keys
        if even.properties is not None:
            each["properties"] = even.properties
        if even.event_times_ms is not None:
            each["event_time_ms"] = even.event_times_ms
        elif found.eventTime:
            common["event_time_ms"] = signed(found.eventTime)
        if first_index is not None:
            each["index"] = range(first_index, first_index + count)
    elif rows := list(_rows(payload, found, with_properties=with_properties)):
        each = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True))
        if first_index is not None:
            each["index"] = [first_index + number for number in each["batch_index"]]
    kept = len(each.get("batch_index", ()))
    if kept == 1:
        alone = {name: column[0] for name, column in each.items()}
        common |= {name: value for name, value in alone.items() if value != DEFAULTS[name]}
        each = {}
    return EntryMessages(count=kept, size_bytes=len(payload), common=common, each=each)


_COLUMNS: Final = (
    "batch_index", "key", "ordering_key", "value", "properties", "event_time_ms", "sequence_id",
)  # fmt: skip


def _rows(
    payload: bytes, found: pb.MessageMetadata, *, with_properties: bool
) -> Iterator[tuple[Any, ...]]:
    """Yield the ``_COLUMNS`` of each message of a batch that was not compacted out."""
    at, are_null = 0, found.nullValue
    sequence_id, event_time_ms = signed(found.sequenceId), signed(found.eventTime) or None
    for number in range(found.numMessagesInBatch):
        begin = at + _SIZE.size
        if begin > len(payload):
            raise _ends_early()
        value_at = begin + _SIZE.unpack_from(payload, at)[0]
        if value_at > len(payload):
            raise _ends_early()
        single = usual_metadata(payload, begin, value_at, with_properties=with_properties)
        if single is None:
            single = _by_protobuf(payload[begin:value_at])
        at = value_at + single.payload_size
        if at > len(payload):
            raise _ends_early()
        if single.is_compacted_out:
            continue
        is_null = are_null if single.is_null is None else single.is_null
        yield (
            number,
            single.key,
            single.ordering_key,
            None if is_null else payload[value_at:at],
            single.properties or {},
            event_time_ms if single.event_time_ms is None else single.event_time_ms or None,
            sequence_id if single.sequence_id is None else single.sequence_id,
        )


def _by_protobuf(data: bytes) -> SingleMetadata:
    single = pb.SingleMessageMetadata()
    # Like `protobuf.parse`, which is too slow for each message of a batch.
    try:
        single.MergeFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise TopicFormatError(f"no SingleMessageMetadata: {error}") from error
    if not single.HasField("payloadSize") or single.payloadSize < 0:
        raise TopicFormatError("a message of a batch has no size")
    if single.compactedOut:
        return SingleMetadata(single.payloadSize, is_compacted_out=True)
    return SingleMetadata(
        single.payloadSize,
        key=_key(single),
        ordering_key=single.orderingKey if single.HasField("orderingKey") else None,
        event_time_ms=signed(single.eventTime) if single.HasField("eventTime") else None,
        sequence_id=signed(single.sequenceId) if single.HasField("sequenceId") else None,
        properties=_properties(single.properties),
        is_null=single.nullValue if single.HasField("nullValue") else None,
    )


def _ends_early() -> TopicFormatError:
    return TopicFormatError("the batch ends before its last message")


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
