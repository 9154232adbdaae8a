"""Entries of topics as a broker stores them, made by hand."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import cramjam
import crc32c

from wire.pb import pulsar_pb2 as pb

COMPRESS = {
    0: bytes,
    1: lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
    2: zlib.compress,
    3: lambda data: bytes(cramjam.zstd.compress(data)),
    4: lambda data: bytes(cramjam.snappy.compress_raw(data)),
}


def sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def metadata(**fields: Any) -> pb.MessageMetadata:
    fields = {"producerName": "p", "sequenceId": 7, "publishTime": 1_700_000_000_000, **fields}
    return pb.MessageMetadata(**fields)


def pairs(**properties: str) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=value) for key, value in properties.items()]


def entry(
    payload: bytes,
    *,
    broker: pb.BrokerEntryMetadata | None = None,
    checksum: bool = True,
    codec: int = 0,
    **fields: Any,
) -> bytes:
    """An entry whose payload is compressed by ``codec``."""
    if codec:
        fields |= {"compression": codec, "uncompressedSize": len(payload)}
    body = sized(metadata(**fields).SerializeToString()) + COMPRESS[codec](payload)
    if checksum:
        body = b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(body)) + body
    if broker is not None:
        body = b"\x0e\x02" + sized(broker.SerializeToString()) + body
    return body


def batch_payload(messages: Sequence[tuple[dict[str, Any], bytes]]) -> bytes:
    return b"".join(
        sized(pb.SingleMessageMetadata(payloadSize=len(value), **fields).SerializeToString())
        + value
        for fields, value in messages
    )


def batch(*values: bytes, **how: Any) -> bytes:
    """An entry that is a batch of messages without metadata of their own."""
    payload = batch_payload([({}, value) for value in values])
    return entry(payload, numMessagesInBatch=len(values), **how)


def chunks(value: bytes, count: int, uuid: str = "u", **how: Any) -> list[bytes]:
    """The entries of a message that was cut into ``count`` chunks."""
    size = -(-len(value) // count)
    return [
        entry(
            value[at * size : (at + 1) * size],
            uuid=uuid,
            chunkId=at,
            numChunksFromMsg=count,
            totalChunkMsgSize=len(value),
            **how,
        )
        for at in range(count)
    ]


def marker(kind: int, txn: tuple[int, int], **fields: Any) -> bytes:
    """The marker that ends a transaction: 21 commits, 22 aborts."""
    return in_txn(b"", txn, markerType=kind, **fields)


def in_txn(value: bytes, txn: tuple[int, int], **fields: Any) -> bytes:
    return entry(value, txnidMostBits=txn[0], txnidLeastBits=txn[1], **fields)


def managed_ledger(*ledgers: dict[str, Any], **fields: Any) -> bytes:
    infos = [pb.ManagedLedgerInfo.LedgerInfo(**one) for one in ledgers]
    return pb.ManagedLedgerInfo(ledgerInfo=infos, **fields).SerializeToString()


def compressed(value: bytes, codec: int) -> bytes:
    head = pb.ManagedInfoMetadata(compressionType=codec, uncompressedSize=len(value))
    return b"\x47\x78" + sized(head.SerializeToString()) + COMPRESS[codec](value)
