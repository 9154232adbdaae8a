"""The content of one topic entry, before it is split into messages.

============================ ========================================================
part                         content
============================ ========================================================
broker metadata (optional)   magic 0x0e02, size (4), BrokerEntryMetadata
checksum (optional)          magic 0x0e01, CRC32C (4) of all that follows
metadata                     size (4), MessageMetadata
payload                      the rest: a message, a batch, a chunk, or a marker's content
============================ ========================================================

Agrees with Pulsar 4.0, Commands and Markers. No I/O.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs
import crc32c

from bkclient.topic.names import TopicFormatError
from wire.frames import protobuf
from wire.pb import pulsar_pb2 as pb

_MAGIC: Final = struct.Struct(">H")
_SIZE: Final = struct.Struct(">I")
_BROKER: Final = 0x0E02
_CHECKSUM: Final = 0x0E01

TXN_COMMIT: Final = 21
TXN_ABORT: Final = 22

Txn = tuple[int, int]
"""A transaction's id: most and least significant bits."""


@attrs.frozen
class StoredMessage:
    """One entry: the metadata of its message or batch, and the payload as sent."""

    metadata: pb.MessageMetadata
    payload: bytes
    broker_time_ms: int | None = None
    index: int | None = None
    """The index that the broker assigned to the last message of the entry."""

    @property
    def is_marker(self) -> bool:
        """True if a broker wrote the entry for brokers; consumers do not see it."""
        return self.metadata.HasField("markerType")

    @property
    def txn(self) -> Txn | None:
        """The id of the entry's transaction, or None."""
        found = self.metadata
        if not (found.HasField("txnidMostBits") and found.HasField("txnidLeastBits")):
            return None
        return found.txnidMostBits, found.txnidLeastBits

    @property
    def is_encrypted(self) -> bool:
        """True if only a client with the key can read the payload."""
        return bool(self.metadata.encryptionKeys)

    @property
    def is_chunk(self) -> bool:
        """True if the payload is a part of a message that was too large for one entry."""
        return self.metadata.numChunksFromMsg > 1


def split_entry(entry: bytes) -> StoredMessage:
    """Split a topic entry into metadata and payload.

    Raises:
        TopicFormatError: the bytes are not a message, or do not match their checksum.
    """
    at, broker = 0, None
    if _magic(entry, at) == _BROKER:
        size = _size(entry, at + _MAGIC.size)
        at += _MAGIC.size + _SIZE.size
        data = _piece(entry, at, size, "broker metadata")
        broker = protobuf.parse(pb.BrokerEntryMetadata, data, TopicFormatError)
        at += size
    if _magic(entry, at) == _CHECKSUM:
        wanted = _size(entry, at + _MAGIC.size)
        at += _MAGIC.size + _SIZE.size
        found = crc32c.crc32c(memoryview(entry)[at:])
        if found != wanted:
            raise TopicFormatError(f"checksum {found:#010x} instead of {wanted:#010x}")
    size = _size(entry, at)
    at += _SIZE.size
    data = _piece(entry, at, size, "message metadata")
    metadata = protobuf.parse(pb.MessageMetadata, data, TopicFormatError)
    payload = entry[at + size :]
    if broker is None:
        return StoredMessage(metadata, payload)
    return StoredMessage(
        metadata,
        payload,
        signed(broker.brokerTimestamp) if broker.HasField("brokerTimestamp") else None,
        signed(broker.index) if broker.HasField("index") else None,
    )


def signed(number: int) -> int:
    """Return an unsigned number as Pulsar's clients see it: -1 is sent as 2^64 - 1."""
    return number - 2**64 if number >= 2**63 else number


def _magic(entry: bytes, at: int) -> int:
    return int.from_bytes(entry[at : at + _MAGIC.size], "big")


def _size(entry: bytes, at: int) -> int:
    if at + _SIZE.size > len(entry):
        raise TopicFormatError(f"{len(entry)} bytes are too few for a message")
    found: int = _SIZE.unpack_from(entry, at)[0]
    return found


def _piece(entry: bytes, at: int, size: int, what: str) -> bytes:
    if at + size > len(entry):
        raise TopicFormatError(f"{size} bytes of {what} in an entry of {len(entry)}")
    return entry[at : at + size]
