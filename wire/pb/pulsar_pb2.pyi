# Generated from pulsar.proto by wire/pb/generate.py; do not edit.
from collections.abc import Iterable, Mapping, MutableMapping
from typing import ClassVar

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import (
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
)
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class KeyValue(Message):
    key: str
    value: str
    def __init__(self, *, key: str | None = ..., value: str | None = ...) -> None: ...
class BrokerEntryMetadata(Message):
    brokerTimestamp: int
    index: int
    def __init__(self, *, brokerTimestamp: int | None = ..., index: int | None = ...) -> None: ...
class EncryptionKeys(Message):
    key: str
    value: bytes
    metadata: RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, *, key: str | None = ..., value: bytes | None = ..., metadata: Iterable[KeyValue] | None = ...) -> None: ...
class MessageMetadata(Message):
    producerName: str
    sequenceId: int
    publishTime: int
    properties: RepeatedCompositeFieldContainer[KeyValue]
    replicatedFrom: str
    partitionKey: str
    compression: int
    uncompressedSize: int
    numMessagesInBatch: int
    eventTime: int
    encryptionKeys: RepeatedCompositeFieldContainer[EncryptionKeys]
    encryptionAlgo: str
    encryptionParam: bytes
    schemaVersion: bytes
    partitionKeyB64Encoded: bool
    orderingKey: bytes
    deliverAtTime: int
    markerType: int
    txnidLeastBits: int
    txnidMostBits: int
    nullValue: bool
    uuid: str
    numChunksFromMsg: int
    totalChunkMsgSize: int
    chunkId: int
    nullPartitionKey: bool
    def __init__(self, *, producerName: str | None = ..., sequenceId: int | None = ..., publishTime: int | None = ..., properties: Iterable[KeyValue] | None = ..., replicatedFrom: str | None = ..., partitionKey: str | None = ..., compression: int | None = ..., uncompressedSize: int | None = ..., numMessagesInBatch: int | None = ..., eventTime: int | None = ..., encryptionKeys: Iterable[EncryptionKeys] | None = ..., encryptionAlgo: str | None = ..., encryptionParam: bytes | None = ..., schemaVersion: bytes | None = ..., partitionKeyB64Encoded: bool | None = ..., orderingKey: bytes | None = ..., deliverAtTime: int | None = ..., markerType: int | None = ..., txnidLeastBits: int | None = ..., txnidMostBits: int | None = ..., nullValue: bool | None = ..., uuid: str | None = ..., numChunksFromMsg: int | None = ..., totalChunkMsgSize: int | None = ..., chunkId: int | None = ..., nullPartitionKey: bool | None = ...) -> None: ...
class SingleMessageMetadata(Message):
    properties: RepeatedCompositeFieldContainer[KeyValue]
    partitionKey: str
    payloadSize: int
    compactedOut: bool
    eventTime: int
    partitionKeyB64Encoded: bool
    orderingKey: bytes
    sequenceId: int
    nullValue: bool
    nullPartitionKey: bool
    def __init__(self, *, properties: Iterable[KeyValue] | None = ..., partitionKey: str | None = ..., payloadSize: int | None = ..., compactedOut: bool | None = ..., eventTime: int | None = ..., partitionKeyB64Encoded: bool | None = ..., orderingKey: bytes | None = ..., sequenceId: int | None = ..., nullValue: bool | None = ..., nullPartitionKey: bool | None = ...) -> None: ...
class OffloadDriverMetadata(Message):
    name: str
    def __init__(self, *, name: str | None = ...) -> None: ...
class OffloadContext(Message):
    complete: bool
    bookkeeperDeleted: bool
    driverMetadata: OffloadDriverMetadata
    def __init__(self, *, complete: bool | None = ..., bookkeeperDeleted: bool | None = ..., driverMetadata: OffloadDriverMetadata | None = ...) -> None: ...
class NestedPositionInfo(Message):
    ledgerId: int
    entryId: int
    def __init__(self, *, ledgerId: int | None = ..., entryId: int | None = ...) -> None: ...
class ManagedLedgerInfo(Message):
    class LedgerInfo(Message):
        ledgerId: int
        entries: int
        size: int
        timestamp: int
        offloadContext: OffloadContext
        def __init__(self, *, ledgerId: int | None = ..., entries: int | None = ..., size: int | None = ..., timestamp: int | None = ..., offloadContext: OffloadContext | None = ...) -> None: ...
    ledgerInfo: RepeatedCompositeFieldContainer[ManagedLedgerInfo.LedgerInfo]
    terminatedPosition: NestedPositionInfo
    properties: RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, *, ledgerInfo: Iterable[ManagedLedgerInfo.LedgerInfo] | None = ..., terminatedPosition: NestedPositionInfo | None = ..., properties: Iterable[KeyValue] | None = ...) -> None: ...
class ManagedInfoMetadata(Message):
    compressionType: int
    uncompressedSize: int
    def __init__(self, *, compressionType: int | None = ..., uncompressedSize: int | None = ...) -> None: ...
class LongProperty(Message):
    name: str
    value: int
    def __init__(self, *, name: str | None = ..., value: int | None = ...) -> None: ...
class ManagedCursorInfo(Message):
    cursorsLedgerId: int
    markDeleteLedgerId: int
    markDeleteEntryId: int
    properties: RepeatedCompositeFieldContainer[LongProperty]
    lastActive: int
    def __init__(self, *, cursorsLedgerId: int | None = ..., markDeleteLedgerId: int | None = ..., markDeleteEntryId: int | None = ..., properties: Iterable[LongProperty] | None = ..., lastActive: int | None = ...) -> None: ...
class SchemaIndexEntry(Message):
    version: int
    position: NestedPositionInfo
    hash: bytes
    def __init__(self, *, version: int | None = ..., position: NestedPositionInfo | None = ..., hash: bytes | None = ...) -> None: ...
class SchemaLocator(Message):
    info: SchemaIndexEntry
    index: RepeatedCompositeFieldContainer[SchemaIndexEntry]
    def __init__(self, *, info: SchemaIndexEntry | None = ..., index: Iterable[SchemaIndexEntry] | None = ...) -> None: ...
class SchemaEntry(Message):
    schemaData: bytes
    index: RepeatedCompositeFieldContainer[SchemaIndexEntry]
    def __init__(self, *, schemaData: bytes | None = ..., index: Iterable[SchemaIndexEntry] | None = ...) -> None: ...
class SchemaInfo(Message):
    schemaId: str
    user: str
    type: int
    schema: bytes
    timestamp: int
    deleted: bool
    props: RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, *, schemaId: str | None = ..., user: str | None = ..., type: int | None = ..., schema: bytes | None = ..., timestamp: int | None = ..., deleted: bool | None = ..., props: Iterable[KeyValue] | None = ...) -> None: ...
