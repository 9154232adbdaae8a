"""Generated from data_formats.proto by wire/pb/generate.py; do not edit."""

from google.protobuf import descriptor_pool, message_factory

_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    b'\n\x12data_formats.proto\x12\nbo'
    b'okkeeper"\x80\x05\n\x14LedgerMetad'
    b'ataFormat\x12\x12\n\nquorumSize\x18'
    b'\x01 \x02(\x05\x12\x14\n\x0censembleSize\x18\x02 '
    b'\x02(\x05\x12\x0e\n\x06length\x18\x03 \x02(\x03\x12\x13\n\x0bl'
    b'astEntryId\x18\x04 \x01(\x03\x12;\n\x05stat'
    b'e\x18\x05 \x02(\x0e2&.bookkeeper.Led'
    b'gerMetadataFormat.State:'
    b'\x04OPEN\x129\n\x07segment\x18\x06 \x03(\x0b2('
    b'.bookkeeper.LedgerMetada'
    b'taFormat.Segment\x12?\n\ndige'
    b'stType\x18\x07 \x01(\x0e2+.bookkeepe'
    b'r.LedgerMetadataFormat.D'
    b'igestType\x12\x10\n\x08password\x18\x08 '
    b'\x01(\x0c\x12\x15\n\rackQuorumSize\x18\t \x01'
    b'(\x05\x12\r\n\x05ctime\x18\n \x01(\x03\x12G\n\x0ecus'
    b'tomMetadata\x18\x0b \x03(\x0b2/.book'
    b'keeper.LedgerMetadataFor'
    b'mat.CustomMetadata\x12\x0e\n\x06cT'
    b'oken\x18\x0c \x01(\x03\x1a7\n\x07Segment\x12\x16\n'
    b'\x0eensembleMember\x18\x01 \x03(\t\x12\x14\n'
    b'\x0cfirstEntryId\x18\x02 \x02(\x03\x1a,\n\x0eC'
    b'ustomMetadata\x12\x0b\n\x03key\x18\x01 \x01'
    b'(\t\x12\r\n\x05value\x18\x02 \x01(\x0c"8\n\nDig'
    b'estType\x12\t\n\x05CRC32\x10\x01\x12\x08\n\x04HM'
    b'AC\x10\x02\x12\n\n\x06CRC32C\x10\x03\x12\t\n\x05DUMM'
    b'Y\x10\x04".\n\x05State\x12\x08\n\x04OPEN\x10\x01\x12\x0f'
    b'\n\x0bIN_RECOVERY\x10\x02\x12\n\n\x06CLOSE'
    b'D\x10\x03"q\n\x0cCookieFormat\x12\x12\n\nb'
    b'ookieHost\x18\x01 \x02(\t\x12\x12\n\njourn'
    b'alDir\x18\x02 \x02(\t\x12\x12\n\nledgerDir'
    b's\x18\x03 \x02(\t\x12\x12\n\ninstanceId\x18\x04 '
    b'\x01(\t\x12\x11\n\tindexDirs\x18\x05 \x01(\t"='
    b'\n\x1bUnderreplicatedLedgerF'
    b'ormat\x12\x0f\n\x07replica\x18\x01 \x03(\t\x12\r'
    b'\n\x05ctime\x18\x02 \x01(\x03""\n\x0eLockDat'
    b'aFormat\x12\x10\n\x08bookieId\x18\x01 \x01('
    b'\t"%\n\x11AuditorVoteFormat\x12\x10'
    b'\n\x08bookieId\x18\x01 \x01(\t"@\n\x1fLedg'
    b'erRereplicationLayoutFor'
    b'mat\x12\x0c\n\x04type\x18\x01 \x02(\t\x12\x0f\n\x07ver'
    b'sion\x18\x02 \x02(\x05"%\n\x0fCheckTimeF'
    b'ormat\x12\x12\n\ncheckCTime\x18\x01 \x01('
    b'\x03"\xbe\x02\n\x17BookieServiceInfoF'
    b'ormat\x12?\n\tendpoints\x18\x06 \x03(\x0b'
    b'2,.bookkeeper.BookieServ'
    b'iceInfoFormat.Endpoint\x12G'
    b'\n\nproperties\x18\x07 \x03(\x0b23.boo'
    b'kkeeper.BookieServiceInf'
    b'oFormat.PropertiesEntry\x1a'
    b'f\n\x08Endpoint\x12\n\n\x02id\x18\x01 \x02(\t\x12'
    b'\x0c\n\x04port\x18\x02 \x02(\x05\x12\x0c\n\x04host\x18\x03 '
    b'\x02(\t\x12\x10\n\x08protocol\x18\x04 \x02(\t\x12\x0c\n'
    b'\x04auth\x18\x05 \x03(\t\x12\x12\n\nextension'
    b's\x18\x06 \x03(\t\x1a1\n\x0fPropertiesEnt'
    b'ry\x12\x0b\n\x03key\x18\x01 \x01(\t\x12\r\n\x05value'
    b'\x18\x02 \x01(\t:\x028\x01"g\n\x0eDbLedgerFo'
    b'rmat\x12\x0e\n\x06exists\x18\x01 \x02(\x08\x12\x0e\n\x06'
    b'fenced\x18\x02 \x02(\x08\x12\x11\n\tmasterKe'
    b'y\x18\x03 \x02(\x0c\x12\x13\n\x0bexplicitLac\x18\x04'
    b' \x01(\x0c\x12\r\n\x05limbo\x18\x05 \x01(\x08'
)
DESCRIPTOR = _POOL.FindFileByName("data_formats.proto")


def _message(name):
    return message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name[name])


LedgerMetadataFormat = _message("LedgerMetadataFormat")
CookieFormat = _message("CookieFormat")
UnderreplicatedLedgerFormat = _message("UnderreplicatedLedgerFormat")
LockDataFormat = _message("LockDataFormat")
AuditorVoteFormat = _message("AuditorVoteFormat")
LedgerRereplicationLayoutFormat = _message("LedgerRereplicationLayoutFormat")
CheckTimeFormat = _message("CheckTimeFormat")
BookieServiceInfoFormat = _message("BookieServiceInfoFormat")
DbLedgerFormat = _message("DbLedgerFormat")
