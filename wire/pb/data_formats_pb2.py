"""Generated from data_formats.proto by wire/pb/generate.py; do not edit."""

from google.protobuf import descriptor_pool, message_factory

_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    b'\n\x12data_formats.proto\x12\nbookkeeper"\x80\x05\n\x14LedgerMetadataFormat\x12\x12\n\nquorum'
    b'Size\x18\x01 \x02(\x05\x12\x14\n\x0censembleSize\x18\x02 \x02(\x05\x12\x0e\n\x06length\x18'
    b'\x03 \x02(\x03\x12\x13\n\x0blastEntryId\x18\x04 \x01(\x03\x12;\n\x05state\x18\x05 \x02(\x0e2&'
    b'.bookkeeper.LedgerMetadataFormat.State:\x04OPEN\x129\n\x07segment\x18\x06 \x03(\x0b2(.bookkee'
    b'per.LedgerMetadataFormat.Segment\x12?\n\ndigestType\x18\x07 \x01(\x0e2+.bookkeeper.LedgerMeta'
    b'dataFormat.DigestType\x12\x10\n\x08password\x18\x08 \x01(\x0c\x12\x15\n\rackQuorumSize\x18\t '
    b'\x01(\x05\x12\r\n\x05ctime\x18\n \x01(\x03\x12G\n\x0ecustomMetadata\x18\x0b \x03(\x0b2/.bookk'
    b'eeper.LedgerMetadataFormat.CustomMetadata\x12\x0e\n\x06cToken\x18\x0c \x01(\x03\x1a7\n\x07Seg'
    b'ment\x12\x16\n\x0eensembleMember\x18\x01 \x03(\t\x12\x14\n\x0cfirstEntryId\x18\x02 \x02(\x03'
    b'\x1a,\n\x0eCustomMetadata\x12\x0b\n\x03key\x18\x01 \x01(\t\x12\r\n\x05value\x18\x02 \x01(\x0c'
    b'"8\n\nDigestType\x12\t\n\x05CRC32\x10\x01\x12\x08\n\x04HMAC\x10\x02\x12\n\n\x06CRC32C\x10\x03'
    b'\x12\t\n\x05DUMMY\x10\x04".\n\x05State\x12\x08\n\x04OPEN\x10\x01\x12\x0f\n\x0bIN_RECOVERY\x10'
    b'\x02\x12\n\n\x06CLOSED\x10\x03"q\n\x0cCookieFormat\x12\x12\n\nbookieHost\x18\x01 \x02(\t\x12'
    b'\x12\n\njournalDir\x18\x02 \x02(\t\x12\x12\n\nledgerDirs\x18\x03 \x02(\t\x12\x12\n\ninstanceI'
    b'd\x18\x04 \x01(\t\x12\x11\n\tindexDirs\x18\x05 \x01(\t"=\n\x1bUnderreplicatedLedgerFormat\x12'
    b'\x0f\n\x07replica\x18\x01 \x03(\t\x12\r\n\x05ctime\x18\x02 \x01(\x03""\n\x0eLockDataFormat'
    b'\x12\x10\n\x08bookieId\x18\x01 \x01(\t"%\n\x11AuditorVoteFormat\x12\x10\n\x08bookieId\x18\x01'
    b' \x01(\t"@\n\x1fLedgerRereplicationLayoutFormat\x12\x0c\n\x04type\x18\x01 \x02(\t\x12\x0f\n'
    b'\x07version\x18\x02 \x02(\x05"%\n\x0fCheckTimeFormat\x12\x12\n\ncheckCTime\x18\x01 \x01(\x03"'
    b'\xbe\x02\n\x17BookieServiceInfoFormat\x12?\n\tendpoints\x18\x06 \x03(\x0b2,.bookkeeper.Bookie'
    b'ServiceInfoFormat.Endpoint\x12G\n\nproperties\x18\x07 \x03(\x0b23.bookkeeper.BookieServiceInf'
    b'oFormat.PropertiesEntry\x1af\n\x08Endpoint\x12\n\n\x02id\x18\x01 \x02(\t\x12\x0c\n\x04port'
    b'\x18\x02 \x02(\x05\x12\x0c\n\x04host\x18\x03 \x02(\t\x12\x10\n\x08protocol\x18\x04 \x02(\t'
    b'\x12\x0c\n\x04auth\x18\x05 \x03(\t\x12\x12\n\nextensions\x18\x06 \x03(\t\x1a1\n\x0fProperties'
    b'Entry\x12\x0b\n\x03key\x18\x01 \x01(\t\x12\r\n\x05value\x18\x02 \x01(\t:\x028\x01"g\n\x0eDbLe'
    b'dgerFormat\x12\x0e\n\x06exists\x18\x01 \x02(\x08\x12\x0e\n\x06fenced\x18\x02 \x02(\x08\x12'
    b'\x11\n\tmasterKey\x18\x03 \x02(\x0c\x12\x13\n\x0bexplicitLac\x18\x04 \x01(\x0c\x12\r\n\x05lim'
    b'bo\x18\x05 \x01(\x08'
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
