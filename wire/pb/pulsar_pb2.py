"""Generated from pulsar.proto by wire/pb/generate.py; do not edit."""

from google.protobuf import descriptor_pool, message_factory

_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    b'\n\x0cpulsar.proto\x12\x06pulsar"&\n\x08KeyValue\x12\x0b\n\x03key\x18\x01 \x02(\t\x12\r\n\x05'
    b'value\x18\x02 \x02(\t"=\n\x13BrokerEntryMetadata\x12\x17\n\x0fbrokerTimestamp\x18\x01 \x01('
    b'\x04\x12\r\n\x05index\x18\x02 \x01(\x04"P\n\x0eEncryptionKeys\x12\x0b\n\x03key\x18\x01 \x02('
    b'\t\x12\r\n\x05value\x18\x02 \x02(\x0c\x12"\n\x08metadata\x18\x03 \x03(\x0b2\x10.pulsar.KeyVal'
    b'ue"\xab\x05\n\x0fMessageMetadata\x12\x14\n\x0cproducerName\x18\x01 \x02(\t\x12\x12\n\nsequenc'
    b'eId\x18\x02 \x02(\x04\x12\x13\n\x0bpublishTime\x18\x03 \x02(\x04\x12$\n\nproperties\x18\x04 '
    b'\x03(\x0b2\x10.pulsar.KeyValue\x12\x16\n\x0ereplicatedFrom\x18\x05 \x01(\t\x12\x14\n\x0cparti'
    b'tionKey\x18\x06 \x01(\t\x12\x16\n\x0bcompression\x18\x08 \x01(\x05:\x010\x12\x1b\n\x10uncompr'
    b'essedSize\x18\t \x01(\r:\x010\x12\x1d\n\x12numMessagesInBatch\x18\x0b \x01(\x05:\x011\x12\x14'
    b'\n\teventTime\x18\x0c \x01(\x04:\x010\x12.\n\x0eencryptionKeys\x18\r \x03(\x0b2\x16.pulsar.En'
    b'cryptionKeys\x12\x16\n\x0eencryptionAlgo\x18\x0e \x01(\t\x12\x17\n\x0fencryptionParam\x18\x0f'
    b' \x01(\x0c\x12\x15\n\rschemaVersion\x18\x10 \x01(\x0c\x12%\n\x16partitionKeyB64Encoded\x18'
    b'\x11 \x01(\x08:\x05false\x12\x13\n\x0borderingKey\x18\x12 \x01(\x0c\x12\x15\n\rdeliverAtTime'
    b'\x18\x13 \x01(\x03\x12\x12\n\nmarkerType\x18\x14 \x01(\x05\x12\x16\n\x0etxnidLeastBits\x18'
    b'\x16 \x01(\x04\x12\x15\n\rtxnidMostBits\x18\x17 \x01(\x04\x12\x18\n\tnullValue\x18\x19 \x01('
    b'\x08:\x05false\x12\x0c\n\x04uuid\x18\x1a \x01(\t\x12\x18\n\x10numChunksFromMsg\x18\x1b \x01('
    b'\x05\x12\x19\n\x11totalChunkMsgSize\x18\x1c \x01(\x05\x12\x0f\n\x07chunkId\x18\x1d \x01(\x05'
    b'\x12\x1f\n\x10nullPartitionKey\x18\x1e \x01(\x08:\x05false"\xa6\x02\n\x15SingleMessageMetadat'
    b'a\x12$\n\nproperties\x18\x01 \x03(\x0b2\x10.pulsar.KeyValue\x12\x14\n\x0cpartitionKey\x18\x02'
    b' \x01(\t\x12\x13\n\x0bpayloadSize\x18\x03 \x02(\x05\x12\x1b\n\x0ccompactedOut\x18\x04 \x01('
    b'\x08:\x05false\x12\x14\n\teventTime\x18\x05 \x01(\x04:\x010\x12%\n\x16partitionKeyB64Encoded'
    b'\x18\x06 \x01(\x08:\x05false\x12\x13\n\x0borderingKey\x18\x07 \x01(\x0c\x12\x12\n\nsequenceId'
    b'\x18\x08 \x01(\x04\x12\x18\n\tnullValue\x18\t \x01(\x08:\x05false\x12\x1f\n\x10nullPartitionK'
    b'ey\x18\n \x01(\x08:\x05false"%\n\x15OffloadDriverMetadata\x12\x0c\n\x04name\x18\x01 \x01(\t"t'
    b'\n\x0eOffloadContext\x12\x10\n\x08complete\x18\x03 \x01(\x08\x12\x19\n\x11bookkeeperDeleted'
    b'\x18\x04 \x01(\x08\x125\n\x0edriverMetadata\x18\x06 \x01(\x0b2\x1d.pulsar.OffloadDriverMetada'
    b'ta"7\n\x12NestedPositionInfo\x12\x10\n\x08ledgerId\x18\x01 \x02(\x03\x12\x0f\n\x07entryId\x18'
    b'\x02 \x02(\x03"\xae\x02\n\x11ManagedLedgerInfo\x128\n\nledgerInfo\x18\x01 \x03(\x0b2$.pulsar.'
    b'ManagedLedgerInfo.LedgerInfo\x126\n\x12terminatedPosition\x18\x02 \x01(\x0b2\x1a.pulsar.Neste'
    b'dPositionInfo\x12$\n\nproperties\x18\x03 \x03(\x0b2\x10.pulsar.KeyValue\x1a\x80\x01\n\nLedger'
    b'Info\x12\x10\n\x08ledgerId\x18\x01 \x02(\x03\x12\x0f\n\x07entries\x18\x02 \x01(\x03\x12\x0c\n'
    b'\x04size\x18\x03 \x01(\x03\x12\x11\n\ttimestamp\x18\x04 \x01(\x03\x12.\n\x0eoffloadContext'
    b'\x18\x05 \x01(\x0b2\x16.pulsar.OffloadContext"H\n\x13ManagedInfoMetadata\x12\x17\n\x0fcompres'
    b'sionType\x18\x01 \x02(\x05\x12\x18\n\x10uncompressedSize\x18\x02 \x02(\x05"+\n\x0cLongPropert'
    b'y\x12\x0c\n\x04name\x18\x01 \x02(\t\x12\r\n\x05value\x18\x02 \x02(\x03"\xa1\x01\n\x11ManagedC'
    b'ursorInfo\x12\x17\n\x0fcursorsLedgerId\x18\x01 \x02(\x03\x12\x1a\n\x12markDeleteLedgerId\x18'
    b'\x02 \x01(\x03\x12\x19\n\x11markDeleteEntryId\x18\x03 \x01(\x03\x12(\n\nproperties\x18\x05 '
    b'\x03(\x0b2\x14.pulsar.LongProperty\x12\x12\n\nlastActive\x18\x06 \x01(\x03"_\n\x10SchemaIndex'
    b'Entry\x12\x0f\n\x07version\x18\x01 \x02(\x03\x12,\n\x08position\x18\x02 \x02(\x0b2\x1a.pulsar'
    b'.NestedPositionInfo\x12\x0c\n\x04hash\x18\x03 \x02(\x0c"`\n\rSchemaLocator\x12&\n\x04info\x18'
    b"\x01 \x02(\x0b2\x18.pulsar.SchemaIndexEntry\x12'\n\x05index\x18\x02 \x03(\x0b2\x18.pulsar.Sch"
    b'emaIndexEntry"J\n\x0bSchemaEntry\x12\x12\n\nschemaData\x18\x02 \x02(\x0c\x12\'\n\x05index\x18'
    b'\x05 \x03(\x0b2\x18.pulsar.SchemaIndexEntry"\x8f\x01\n\nSchemaInfo\x12\x10\n\x08schemaId\x18'
    b'\x01 \x02(\t\x12\x0c\n\x04user\x18\x02 \x02(\t\x12\x0c\n\x04type\x18\x03 \x02(\x05\x12\x0e\n'
    b'\x06schema\x18\x04 \x02(\x0c\x12\x11\n\ttimestamp\x18\x05 \x02(\x03\x12\x0f\n\x07deleted\x18'
    b'\x06 \x02(\x08\x12\x1f\n\x05props\x18\x07 \x03(\x0b2\x10.pulsar.KeyValue'
)
DESCRIPTOR = _POOL.FindFileByName("pulsar.proto")


def _message(name):
    return message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name[name])


KeyValue = _message("KeyValue")
BrokerEntryMetadata = _message("BrokerEntryMetadata")
EncryptionKeys = _message("EncryptionKeys")
MessageMetadata = _message("MessageMetadata")
SingleMessageMetadata = _message("SingleMessageMetadata")
OffloadDriverMetadata = _message("OffloadDriverMetadata")
OffloadContext = _message("OffloadContext")
NestedPositionInfo = _message("NestedPositionInfo")
ManagedLedgerInfo = _message("ManagedLedgerInfo")
ManagedInfoMetadata = _message("ManagedInfoMetadata")
LongProperty = _message("LongProperty")
ManagedCursorInfo = _message("ManagedCursorInfo")
SchemaIndexEntry = _message("SchemaIndexEntry")
SchemaLocator = _message("SchemaLocator")
SchemaEntry = _message("SchemaEntry")
SchemaInfo = _message("SchemaInfo")
