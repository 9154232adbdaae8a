"""Generated from bookkeeper.proto by wire/pb/generate.py; do not edit."""

from google.protobuf import descriptor_pool, message_factory

_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    b'\n\x10bookkeeper.proto\x12\nbook'
    b'keeper"\x90\x01\n\x0eBKPacketHeade'
    b'r\x12,\n\x07version\x18\x01 \x02(\x0e2\x1b.boo'
    b'kkeeper.ProtocolVersion\x12'
    b',\n\toperation\x18\x02 \x02(\x0e2\x19.boo'
    b'kkeeper.OperationType\x12\r\n'
    b'\x05txnId\x18\x03 \x02(\x04\x12\x13\n\x08priority'
    b'\x18\x04 \x01(\r:\x010")\n\x0bContextPair'
    b'\x12\x0b\n\x03key\x18\x01 \x02(\t\x12\r\n\x05value\x18\x02'
    b' \x02(\t"\xe1\x04\n\x07Request\x12*\n\x06head'
    b'er\x18\x01 \x02(\x0b2\x1a.bookkeeper.BK'
    b'PacketHeader\x12,\n\x0breadRequ'
    b'est\x18d \x01(\x0b2\x17.bookkeeper.R'
    b'eadRequest\x12*\n\naddRequest'
    b'\x18e \x01(\x0b2\x16.bookkeeper.AddR'
    b'equest\x12,\n\x0bauthRequest\x18f '
    b'\x01(\x0b2\x17.bookkeeper.AuthMes'
    b'sage\x124\n\x0fwriteLacRequest\x18'
    b'g \x01(\x0b2\x1b.bookkeeper.Write'
    b'LacRequest\x122\n\x0ereadLacReq'
    b'uest\x18h \x01(\x0b2\x1a.bookkeeper.'
    b'ReadLacRequest\x12>\n\x14getBoo'
    b'kieInfoRequest\x18i \x01(\x0b2 .b'
    b'ookkeeper.GetBookieInfoR'
    b'equest\x124\n\x0fstartTLSReques'
    b't\x18j \x01(\x0b2\x1b.bookkeeper.Sta'
    b'rtTLSRequest\x12:\n\x12forceLed'
    b'gerRequest\x18k \x01(\x0b2\x1e.bookk'
    b'eeper.ForceLedgerRequest'
    b'\x12T\n\x1fgetListOfEntriesOfLe'
    b'dgerRequest\x18l \x01(\x0b2+.book'
    b'keeper.GetListOfEntriesO'
    b'fLedgerRequest\x120\n\x0ereques'
    b'tContext\x18\xc8\x01 \x03(\x0b2\x17.bookke'
    b'eper.ContextPair"\xc4\x01\n\x0bRea'
    b'dRequest\x12\x10\n\x08ledgerId\x18\x01 \x02'
    b'(\x03\x12\x0f\n\x07entryId\x18\x02 \x02(\x03\x12\x11\n\tm'
    b'asterKey\x18\x03 \x01(\x0c\x12\x13\n\x0bprevio'
    b'usLAC\x18\x04 \x01(\x03\x12\x0f\n\x07timeOut\x18\x05'
    b' \x01(\x03\x12*\n\x04flag\x18d \x01(\x0e2\x1c.boo'
    b'kkeeper.ReadRequest.Flag'
    b'"-\n\x04Flag\x12\x10\n\x0cFENCE_LEDGER'
    b'\x10\x01\x12\x13\n\x0fENTRY_PIGGYBACK\x10\x02"'
    b'\xa9\x01\n\nAddRequest\x12\x10\n\x08ledger'
    b'Id\x18\x01 \x02(\x03\x12\x0f\n\x07entryId\x18\x02 \x02('
    b'\x03\x12\x11\n\tmasterKey\x18\x03 \x02(\x0c\x12\x0c\n\x04'
    b'body\x18\x04 \x02(\x0c\x12\x12\n\nwriteFlags'
    b'\x18\x05 \x01(\x05\x12)\n\x04flag\x18d \x01(\x0e2\x1b.b'
    b'ookkeeper.AddRequest.Fla'
    b'g"\x18\n\x04Flag\x12\x10\n\x0cRECOVERY_AD'
    b'D\x10\x01"Q\n\x0fWriteLacRequest\x12\x10'
    b'\n\x08ledgerId\x18\x01 \x02(\x03\x12\x0b\n\x03lac\x18'
    b'\x02 \x02(\x03\x12\x11\n\tmasterKey\x18\x03 \x02(\x0c'
    b'\x12\x0c\n\x04body\x18\x04 \x02(\x0c""\n\x0eReadLa'
    b'cRequest\x12\x10\n\x08ledgerId\x18\x01 \x02'
    b'(\x03"&\n\x12ForceLedgerRequest'
    b'\x12\x10\n\x08ledgerId\x18\x01 \x02(\x03")\n\x14Ge'
    b'tBookieInfoRequest\x12\x11\n\tre'
    b'quested\x18\x01 \x01(\x03"3\n\x1fGetList'
    b'OfEntriesOfLedgerRequest'
    b'\x12\x10\n\x08ledgerId\x18\x01 \x02(\x03"\x11\n\x0fSt'
    b'artTLSRequest"6\n\x0bAuthMes'
    b'sage\x12\x16\n\x0eauthPluginName\x18\x01'
    b' \x02(\t\x12\x0f\n\x07payload\x18\x02 \x02(\x0c"\xe9\x04'
    b'\n\x08Response\x12*\n\x06header\x18\x01 \x02'
    b'(\x0b2\x1a.bookkeeper.BKPacket'
    b'Header\x12&\n\x06status\x18\x02 \x02(\x0e2\x16'
    b'.bookkeeper.StatusCode\x12.'
    b'\n\x0creadResponse\x18d \x01(\x0b2\x18.b'
    b'ookkeeper.ReadResponse\x12,'
    b'\n\x0baddResponse\x18e \x01(\x0b2\x17.bo'
    b'okkeeper.AddResponse\x12-\n\x0c'
    b'authResponse\x18f \x01(\x0b2\x17.boo'
    b'kkeeper.AuthMessage\x126\n\x10w'
    b'riteLacResponse\x18g \x01(\x0b2\x1c.'
    b'bookkeeper.WriteLacRespo'
    b'nse\x124\n\x0freadLacResponse\x18h'
    b' \x01(\x0b2\x1b.bookkeeper.ReadLa'
    b'cResponse\x12@\n\x15getBookieIn'
    b'foResponse\x18i \x01(\x0b2!.bookk'
    b'eeper.GetBookieInfoRespo'
    b'nse\x126\n\x10startTLSResponse\x18'
    b'j \x01(\x0b2\x1c.bookkeeper.Start'
    b'TLSResponse\x12<\n\x13forceLedg'
    b'erResponse\x18k \x01(\x0b2\x1f.bookk'
    b'eeper.ForceLedgerRespons'
    b'e\x12V\n getListOfEntriesOfL'
    b'edgerResponse\x18l \x01(\x0b2,.bo'
    b'okkeeper.GetListOfEntrie'
    b'sOfLedgerResponse"\x93\x01\n\x0cRe'
    b'adResponse\x12&\n\x06status\x18\x01 \x02'
    b'(\x0e2\x16.bookkeeper.StatusCo'
    b'de\x12\x10\n\x08ledgerId\x18\x02 \x02(\x03\x12\x0f\n\x07'
    b'entryId\x18\x03 \x02(\x03\x12\x0c\n\x04body\x18\x04 '
    b'\x01(\x0c\x12\x0e\n\x06maxLAC\x18\x05 \x01(\x03\x12\x1a\n\x12l'
    b'acUpdateTimestamp\x18\x06 \x01(\x03"'
    b'X\n\x0bAddResponse\x12&\n\x06status'
    b'\x18\x01 \x02(\x0e2\x16.bookkeeper.Stat'
    b'usCode\x12\x10\n\x08ledgerId\x18\x02 \x02(\x03'
    b'\x12\x0f\n\x07entryId\x18\x03 \x02(\x03"L\n\x10Wri'
    b'teLacResponse\x12&\n\x06status\x18'
    b'\x01 \x02(\x0e2\x16.bookkeeper.Statu'
    b'sCode\x12\x10\n\x08ledgerId\x18\x02 \x02(\x03"'
    b's\n\x0fReadLacResponse\x12&\n\x06st'
    b'atus\x18\x01 \x02(\x0e2\x16.bookkeeper.'
    b'StatusCode\x12\x10\n\x08ledgerId\x18\x02'
    b' \x02(\x03\x12\x0f\n\x07lacBody\x18\x03 \x01(\x0c\x12\x15\n'
    b'\rlastEntryBody\x18\x04 \x01(\x0c"O\n\x13'
    b'ForceLedgerResponse\x12&\n\x06s'
    b'tatus\x18\x01 \x02(\x0e2\x16.bookkeeper'
    b'.StatusCode\x12\x10\n\x08ledgerId\x18'
    b'\x02 \x02(\x03"q\n\x15GetBookieInfoRe'
    b'sponse\x12&\n\x06status\x18\x01 \x02(\x0e2\x16'
    b'.bookkeeper.StatusCode\x12\x19'
    b'\n\x11totalDiskCapacity\x18\x02 \x01('
    b'\x03\x12\x15\n\rfreeDiskSpace\x18\x03 \x01(\x03'
    b'"\x83\x01\n GetListOfEntriesOfL'
    b'edgerResponse\x12&\n\x06status\x18'
    b'\x01 \x02(\x0e2\x16.bookkeeper.Statu'
    b'sCode\x12\x10\n\x08ledgerId\x18\x02 \x02(\x03\x12'
    b'%\n\x1davailabilityOfEntries'
    b'OfLedger\x18\x03 \x01(\x0c"\x12\n\x10StartT'
    b'LSResponse*F\n\x0fProtocolVe'
    b'rsion\x12\x0f\n\x0bVERSION_ONE\x10\x01\x12\x0f'
    b'\n\x0bVERSION_TWO\x10\x02\x12\x11\n\rVERSI'
    b'ON_THREE\x10\x03*\xb7\x01\n\nStatusCod'
    b'e\x12\x07\n\x03EOK\x10\x00\x12\x0e\n\tENOLEDGER\x10'
    b'\x92\x03\x12\r\n\x08ENOENTRY\x10\x93\x03\x12\x0c\n\x07EBA'
    b'DREQ\x10\x94\x03\x12\x08\n\x03EIO\x10\xf5\x03\x12\x08\n\x03EUA'
    b'\x10\xf6\x03\x12\x10\n\x0bEBADVERSION\x10\xf7\x03\x12\x0c\n'
    b'\x07EFENCED\x10\xf8\x03\x12\x0e\n\tEREADONLY'
    b'\x10\xf9\x03\x12\x15\n\x10ETOOMANYREQUESTS\x10'
    b'\xfa\x03\x12\x18\n\x13EUNKNOWNLEDGERSTAT'
    b'E\x10\xfb\x03*\xef\x01\n\rOperationType\x12\x0e'
    b'\n\nREAD_ENTRY\x10\x01\x12\r\n\tADD_EN'
    b'TRY\x10\x02\x12\x14\n\x10RANGE_READ_ENTR'
    b'Y\x10\x03\x12\x13\n\x0fRANGE_ADD_ENTRY\x10\x04'
    b'\x12\x08\n\x04AUTH\x10\x05\x12\r\n\tWRITE_LAC\x10'
    b'\x06\x12\x0c\n\x08READ_LAC\x10\x07\x12\x13\n\x0fGET_B'
    b'OOKIE_INFO\x10\x08\x12\r\n\tSTART_TL'
    b'S\x10\t\x12\x10\n\x0cFORCE_LEDGER\x10\n\x12!\n'
    b'\x1dGET_LIST_OF_ENTRIES_OF_'
    b'LEDGER\x10\x0b\x12\x14\n\x10BATCH_READ_E'
    b'NTRY\x10\x0c'
)
DESCRIPTOR = _POOL.FindFileByName("bookkeeper.proto")


def _message(name):
    return message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name[name])


BKPacketHeader = _message("BKPacketHeader")
ContextPair = _message("ContextPair")
Request = _message("Request")
ReadRequest = _message("ReadRequest")
AddRequest = _message("AddRequest")
WriteLacRequest = _message("WriteLacRequest")
ReadLacRequest = _message("ReadLacRequest")
ForceLedgerRequest = _message("ForceLedgerRequest")
GetBookieInfoRequest = _message("GetBookieInfoRequest")
GetListOfEntriesOfLedgerRequest = _message("GetListOfEntriesOfLedgerRequest")
StartTLSRequest = _message("StartTLSRequest")
AuthMessage = _message("AuthMessage")
Response = _message("Response")
ReadResponse = _message("ReadResponse")
AddResponse = _message("AddResponse")
WriteLacResponse = _message("WriteLacResponse")
ReadLacResponse = _message("ReadLacResponse")
ForceLedgerResponse = _message("ForceLedgerResponse")
GetBookieInfoResponse = _message("GetBookieInfoResponse")
GetListOfEntriesOfLedgerResponse = _message("GetListOfEntriesOfLedgerResponse")
StartTLSResponse = _message("StartTLSResponse")
