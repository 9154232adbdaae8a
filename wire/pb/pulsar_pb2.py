"""Generated from pulsar.proto by wire/pb/generate.py; do not edit."""

from google.protobuf import descriptor_pool, message_factory

_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    b'\n\x0cpulsar.proto\x12\x06pulsar"&'
    b'\n\x08KeyValue\x12\x0b\n\x03key\x18\x01 \x02(\t\x12'
    b'\r\n\x05value\x18\x02 \x02(\t"=\n\x13Broker'
    b'EntryMetadata\x12\x17\n\x0fbrokerT'
    b'imestamp\x18\x01 \x01(\x04\x12\r\n\x05index\x18'
    b'\x02 \x01(\x04"P\n\x0eEncryptionKeys\x12'
    b'\x0b\n\x03key\x18\x01 \x02(\t\x12\r\n\x05value\x18\x02 '
    b'\x02(\x0c\x12"\n\x08metadata\x18\x03 \x03(\x0b2\x10.'
    b'pulsar.KeyValue"\xab\x05\n\x0fMess'
    b'ageMetadata\x12\x14\n\x0cproducerN'
    b'ame\x18\x01 \x02(\t\x12\x12\n\nsequenceId\x18'
    b'\x02 \x02(\x04\x12\x13\n\x0bpublishTime\x18\x03 \x02'
    b'(\x04\x12$\n\nproperties\x18\x04 \x03(\x0b2\x10'
    b'.pulsar.KeyValue\x12\x16\n\x0erepl'
    b'icatedFrom\x18\x05 \x01(\t\x12\x14\n\x0cpart'
    b'itionKey\x18\x06 \x01(\t\x12\x16\n\x0bcompre'
    b'ssion\x18\x08 \x01(\x05:\x010\x12\x1b\n\x10uncomp'
    b'ressedSize\x18\t \x01(\r:\x010\x12\x1d\n\x12n'
    b'umMessagesInBatch\x18\x0b \x01(\x05:'
    b'\x011\x12\x14\n\teventTime\x18\x0c \x01(\x04:\x010'
    b'\x12.\n\x0eencryptionKeys\x18\r \x03(\x0b'
    b'2\x16.pulsar.EncryptionKeys'
    b'\x12\x16\n\x0eencryptionAlgo\x18\x0e \x01(\t'
    b'\x12\x17\n\x0fencryptionParam\x18\x0f \x01('
    b'\x0c\x12\x15\n\rschemaVersion\x18\x10 \x01(\x0c'
    b'\x12%\n\x16partitionKeyB64Encod'
    b'ed\x18\x11 \x01(\x08:\x05false\x12\x13\n\x0border'
    b'ingKey\x18\x12 \x01(\x0c\x12\x15\n\rdeliverA'
    b'tTime\x18\x13 \x01(\x03\x12\x12\n\nmarkerTyp'
    b'e\x18\x14 \x01(\x05\x12\x16\n\x0etxnidLeastBit'
    b's\x18\x16 \x01(\x04\x12\x15\n\rtxnidMostBits'
    b'\x18\x17 \x01(\x04\x12\x18\n\tnullValue\x18\x19 \x01('
    b'\x08:\x05false\x12\x0c\n\x04uuid\x18\x1a \x01(\t\x12\x18'
    b'\n\x10numChunksFromMsg\x18\x1b \x01(\x05'
    b'\x12\x19\n\x11totalChunkMsgSize\x18\x1c '
    b'\x01(\x05\x12\x0f\n\x07chunkId\x18\x1d \x01(\x05\x12\x1f\n\x10'
    b'nullPartitionKey\x18\x1e \x01(\x08:\x05'
    b'false"\xa6\x02\n\x15SingleMessageM'
    b'etadata\x12$\n\nproperties\x18\x01 '
    b'\x03(\x0b2\x10.pulsar.KeyValue\x12\x14\n'
    b'\x0cpartitionKey\x18\x02 \x01(\t\x12\x13\n\x0bp'
    b'ayloadSize\x18\x03 \x02(\x05\x12\x1b\n\x0ccomp'
    b'actedOut\x18\x04 \x01(\x08:\x05false\x12\x14\n'
    b'\teventTime\x18\x05 \x01(\x04:\x010\x12%\n\x16p'
    b'artitionKeyB64Encoded\x18\x06 '
    b'\x01(\x08:\x05false\x12\x13\n\x0borderingKe'
    b'y\x18\x07 \x01(\x0c\x12\x12\n\nsequenceId\x18\x08 '
    b'\x01(\x04\x12\x18\n\tnullValue\x18\t \x01(\x08:\x05'
    b'false\x12\x1f\n\x10nullPartitionKe'
    b'y\x18\n \x01(\x08:\x05false"=\n\x0eOffloa'
    b'dContext\x12\x10\n\x08complete\x18\x03 \x01'
    b'(\x08\x12\x19\n\x11bookkeeperDeleted\x18'
    b'\x04 \x01(\x08"7\n\x12NestedPositionI'
    b'nfo\x12\x10\n\x08ledgerId\x18\x01 \x02(\x03\x12\x0f\n'
    b'\x07entryId\x18\x02 \x02(\x03"\xae\x02\n\x11Manag'
    b'edLedgerInfo\x128\n\nledgerIn'
    b'fo\x18\x01 \x03(\x0b2$.pulsar.Manage'
    b'dLedgerInfo.LedgerInfo\x126'
    b'\n\x12terminatedPosition\x18\x02 \x01'
    b'(\x0b2\x1a.pulsar.NestedPositi'
    b'onInfo\x12$\n\nproperties\x18\x03 \x03'
    b'(\x0b2\x10.pulsar.KeyValue\x1a\x80\x01\n'
    b'\nLedgerInfo\x12\x10\n\x08ledgerId\x18'
    b'\x01 \x02(\x03\x12\x0f\n\x07entries\x18\x02 \x01(\x03\x12\x0c'
    b'\n\x04size\x18\x03 \x01(\x03\x12\x11\n\ttimestam'
    b'p\x18\x04 \x01(\x03\x12.\n\x0eoffloadContex'
    b't\x18\x05 \x01(\x0b2\x16.pulsar.Offload'
    b'Context"H\n\x13ManagedInfoMe'
    b'tadata\x12\x17\n\x0fcompressionTyp'
    b'e\x18\x01 \x02(\x05\x12\x18\n\x10uncompressedS'
    b'ize\x18\x02 \x02(\x05"+\n\x0cLongPropert'
    b'y\x12\x0c\n\x04name\x18\x01 \x02(\t\x12\r\n\x05value'
    b'\x18\x02 \x02(\x03"\xa1\x01\n\x11ManagedCursor'
    b'Info\x12\x17\n\x0fcursorsLedgerId\x18'
    b'\x01 \x02(\x03\x12\x1a\n\x12markDeleteLedge'
    b'rId\x18\x02 \x01(\x03\x12\x19\n\x11markDeleteE'
    b'ntryId\x18\x03 \x01(\x03\x12(\n\nproperti'
    b'es\x18\x05 \x03(\x0b2\x14.pulsar.LongPr'
    b'operty\x12\x12\n\nlastActive\x18\x06 \x01'
    b'(\x03"_\n\x10SchemaIndexEntry\x12\x0f'
    b'\n\x07version\x18\x01 \x02(\x03\x12,\n\x08posit'
    b'ion\x18\x02 \x02(\x0b2\x1a.pulsar.Neste'
    b'dPositionInfo\x12\x0c\n\x04hash\x18\x03 '
    b'\x02(\x0c"`\n\rSchemaLocator\x12&\n\x04'
    b'info\x18\x01 \x02(\x0b2\x18.pulsar.Sche'
    b"maIndexEntry\x12'\n\x05index\x18\x02 "
    b'\x03(\x0b2\x18.pulsar.SchemaIndex'
    b'Entry"J\n\x0bSchemaEntry\x12\x12\n\n'
    b"schemaData\x18\x02 \x02(\x0c\x12'\n\x05inde"
    b'x\x18\x05 \x03(\x0b2\x18.pulsar.SchemaI'
    b'ndexEntry"\x8f\x01\n\nSchemaInfo'
    b'\x12\x10\n\x08schemaId\x18\x01 \x02(\t\x12\x0c\n\x04us'
    b'er\x18\x02 \x02(\t\x12\x0c\n\x04type\x18\x03 \x02(\x05\x12\x0e'
    b'\n\x06schema\x18\x04 \x02(\x0c\x12\x11\n\ttimest'
    b'amp\x18\x05 \x02(\x03\x12\x0f\n\x07deleted\x18\x06 \x02'
    b'(\x08\x12\x1f\n\x05props\x18\x07 \x03(\x0b2\x10.puls'
    b'ar.KeyValue'
)
DESCRIPTOR = _POOL.FindFileByName("pulsar.proto")


def _message(name):
    return message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name[name])


KeyValue = _message("KeyValue")
BrokerEntryMetadata = _message("BrokerEntryMetadata")
EncryptionKeys = _message("EncryptionKeys")
MessageMetadata = _message("MessageMetadata")
SingleMessageMetadata = _message("SingleMessageMetadata")
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
