"""Generated from bookkeeper.proto by wire/pb/generate.py; do not edit."""

from google.protobuf import descriptor_pool, message_factory

_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    b'\n\x10bookkeeper.proto\x12\nbookkeeper"\x90\x01\n\x0eBKPacketHeader\x12,\n\x07version\x18\x01'
    b' \x02(\x0e2\x1b.bookkeeper.ProtocolVersion\x12,\n\toperation\x18\x02 \x02(\x0e2\x19.bookkeepe'
    b'r.OperationType\x12\r\n\x05txnId\x18\x03 \x02(\x04\x12\x13\n\x08priority\x18\x04 \x01(\r:\x01'
    b'0")\n\x0bContextPair\x12\x0b\n\x03key\x18\x01 \x02(\t\x12\r\n\x05value\x18\x02 \x02(\t"\xe1'
    b'\x04\n\x07Request\x12*\n\x06header\x18\x01 \x02(\x0b2\x1a.bookkeeper.BKPacketHeader\x12,\n'
    b'\x0breadRequest\x18d \x01(\x0b2\x17.bookkeeper.ReadRequest\x12*\n\naddRequest\x18e \x01(\x0b2'
    b'\x16.bookkeeper.AddRequest\x12,\n\x0bauthRequest\x18f \x01(\x0b2\x17.bookkeeper.AuthMessage'
    b'\x124\n\x0fwriteLacRequest\x18g \x01(\x0b2\x1b.bookkeeper.WriteLacRequest\x122\n\x0ereadLacRe'
    b'quest\x18h \x01(\x0b2\x1a.bookkeeper.ReadLacRequest\x12>\n\x14getBookieInfoRequest\x18i \x01('
    b'\x0b2 .bookkeeper.GetBookieInfoRequest\x124\n\x0fstartTLSRequest\x18j \x01(\x0b2\x1b.bookkeep'
    b'er.StartTLSRequest\x12:\n\x12forceLedgerRequest\x18k \x01(\x0b2\x1e.bookkeeper.ForceLedgerReq'
    b'uest\x12T\n\x1fgetListOfEntriesOfLedgerRequest\x18l \x01(\x0b2+.bookkeeper.GetListOfEntriesOf'
    b'LedgerRequest\x120\n\x0erequestContext\x18\xc8\x01 \x03(\x0b2\x17.bookkeeper.ContextPair"\xc4'
    b'\x01\n\x0bReadRequest\x12\x10\n\x08ledgerId\x18\x01 \x02(\x03\x12\x0f\n\x07entryId\x18\x02 '
    b'\x02(\x03\x12\x11\n\tmasterKey\x18\x03 \x01(\x0c\x12\x13\n\x0bpreviousLAC\x18\x04 \x01(\x03'
    b'\x12\x0f\n\x07timeOut\x18\x05 \x01(\x03\x12*\n\x04flag\x18d \x01(\x0e2\x1c.bookkeeper.ReadReq'
    b'uest.Flag"-\n\x04Flag\x12\x10\n\x0cFENCE_LEDGER\x10\x01\x12\x13\n\x0fENTRY_PIGGYBACK\x10\x02"'
    b'\xa9\x01\n\nAddRequest\x12\x10\n\x08ledgerId\x18\x01 \x02(\x03\x12\x0f\n\x07entryId\x18\x02 '
    b'\x02(\x03\x12\x11\n\tmasterKey\x18\x03 \x02(\x0c\x12\x0c\n\x04body\x18\x04 \x02(\x0c\x12\x12'
    b'\n\nwriteFlags\x18\x05 \x01(\x05\x12)\n\x04flag\x18d \x01(\x0e2\x1b.bookkeeper.AddRequest.Fla'
    b'g"\x18\n\x04Flag\x12\x10\n\x0cRECOVERY_ADD\x10\x01"Q\n\x0fWriteLacRequest\x12\x10\n\x08ledger'
    b'Id\x18\x01 \x02(\x03\x12\x0b\n\x03lac\x18\x02 \x02(\x03\x12\x11\n\tmasterKey\x18\x03 \x02('
    b'\x0c\x12\x0c\n\x04body\x18\x04 \x02(\x0c""\n\x0eReadLacRequest\x12\x10\n\x08ledgerId\x18\x01 '
    b'\x02(\x03"&\n\x12ForceLedgerRequest\x12\x10\n\x08ledgerId\x18\x01 \x02(\x03")\n\x14GetBookieI'
    b'nfoRequest\x12\x11\n\trequested\x18\x01 \x01(\x03"3\n\x1fGetListOfEntriesOfLedgerRequest\x12'
    b'\x10\n\x08ledgerId\x18\x01 \x02(\x03"\x11\n\x0fStartTLSRequest"6\n\x0bAuthMessage\x12\x16\n'
    b'\x0eauthPluginName\x18\x01 \x02(\t\x12\x0f\n\x07payload\x18\x02 \x02(\x0c"\xe9\x04\n\x08Respo'
    b'nse\x12*\n\x06header\x18\x01 \x02(\x0b2\x1a.bookkeeper.BKPacketHeader\x12&\n\x06status\x18'
    b'\x02 \x02(\x0e2\x16.bookkeeper.StatusCode\x12.\n\x0creadResponse\x18d \x01(\x0b2\x18.bookkeep'
    b'er.ReadResponse\x12,\n\x0baddResponse\x18e \x01(\x0b2\x17.bookkeeper.AddResponse\x12-\n\x0cau'
    b'thResponse\x18f \x01(\x0b2\x17.bookkeeper.AuthMessage\x126\n\x10writeLacResponse\x18g \x01('
    b'\x0b2\x1c.bookkeeper.WriteLacResponse\x124\n\x0freadLacResponse\x18h \x01(\x0b2\x1b.bookkeepe'
    b'r.ReadLacResponse\x12@\n\x15getBookieInfoResponse\x18i \x01(\x0b2!.bookkeeper.GetBookieInfoRe'
    b'sponse\x126\n\x10startTLSResponse\x18j \x01(\x0b2\x1c.bookkeeper.StartTLSResponse\x12<\n\x13f'
    b'orceLedgerResponse\x18k \x01(\x0b2\x1f.bookkeeper.ForceLedgerResponse\x12V\n getListOfEntries'
    b'OfLedgerResponse\x18l \x01(\x0b2,.bookkeeper.GetListOfEntriesOfLedgerResponse"\x93\x01\n\x0cR'
    b'eadResponse\x12&\n\x06status\x18\x01 \x02(\x0e2\x16.bookkeeper.StatusCode\x12\x10\n\x08ledger'
    b'Id\x18\x02 \x02(\x03\x12\x0f\n\x07entryId\x18\x03 \x02(\x03\x12\x0c\n\x04body\x18\x04 \x01('
    b'\x0c\x12\x0e\n\x06maxLAC\x18\x05 \x01(\x03\x12\x1a\n\x12lacUpdateTimestamp\x18\x06 \x01(\x03"'
    b'X\n\x0bAddResponse\x12&\n\x06status\x18\x01 \x02(\x0e2\x16.bookkeeper.StatusCode\x12\x10\n'
    b'\x08ledgerId\x18\x02 \x02(\x03\x12\x0f\n\x07entryId\x18\x03 \x02(\x03"L\n\x10WriteLacResponse'
    b'\x12&\n\x06status\x18\x01 \x02(\x0e2\x16.bookkeeper.StatusCode\x12\x10\n\x08ledgerId\x18\x02 '
    b'\x02(\x03"s\n\x0fReadLacResponse\x12&\n\x06status\x18\x01 \x02(\x0e2\x16.bookkeeper.StatusCod'
    b'e\x12\x10\n\x08ledgerId\x18\x02 \x02(\x03\x12\x0f\n\x07lacBody\x18\x03 \x01(\x0c\x12\x15\n\rl'
    b'astEntryBody\x18\x04 \x01(\x0c"O\n\x13ForceLedgerResponse\x12&\n\x06status\x18\x01 \x02(\x0e2'
    b'\x16.bookkeeper.StatusCode\x12\x10\n\x08ledgerId\x18\x02 \x02(\x03"q\n\x15GetBookieInfoRespon'
    b'se\x12&\n\x06status\x18\x01 \x02(\x0e2\x16.bookkeeper.StatusCode\x12\x19\n\x11totalDiskCapaci'
    b'ty\x18\x02 \x01(\x03\x12\x15\n\rfreeDiskSpace\x18\x03 \x01(\x03"\x83\x01\n GetListOfEntriesOf'
    b'LedgerResponse\x12&\n\x06status\x18\x01 \x02(\x0e2\x16.bookkeeper.StatusCode\x12\x10\n\x08led'
    b'gerId\x18\x02 \x02(\x03\x12%\n\x1davailabilityOfEntriesOfLedger\x18\x03 \x01(\x0c"\x12\n\x10S'
    b'tartTLSResponse*F\n\x0fProtocolVersion\x12\x0f\n\x0bVERSION_ONE\x10\x01\x12\x0f\n\x0bVERSION_'
    b'TWO\x10\x02\x12\x11\n\rVERSION_THREE\x10\x03*\xb7\x01\n\nStatusCode\x12\x07\n\x03EOK\x10\x00'
    b'\x12\x0e\n\tENOLEDGER\x10\x92\x03\x12\r\n\x08ENOENTRY\x10\x93\x03\x12\x0c\n\x07EBADREQ\x10'
    b'\x94\x03\x12\x08\n\x03EIO\x10\xf5\x03\x12\x08\n\x03EUA\x10\xf6\x03\x12\x10\n\x0bEBADVERSION'
    b'\x10\xf7\x03\x12\x0c\n\x07EFENCED\x10\xf8\x03\x12\x0e\n\tEREADONLY\x10\xf9\x03\x12\x15\n\x10E'
    b'TOOMANYREQUESTS\x10\xfa\x03\x12\x18\n\x13EUNKNOWNLEDGERSTATE\x10\xfb\x03*\xef\x01\n\rOperatio'
    b'nType\x12\x0e\n\nREAD_ENTRY\x10\x01\x12\r\n\tADD_ENTRY\x10\x02\x12\x14\n\x10RANGE_READ_ENTRY'
    b'\x10\x03\x12\x13\n\x0fRANGE_ADD_ENTRY\x10\x04\x12\x08\n\x04AUTH\x10\x05\x12\r\n\tWRITE_LAC'
    b'\x10\x06\x12\x0c\n\x08READ_LAC\x10\x07\x12\x13\n\x0fGET_BOOKIE_INFO\x10\x08\x12\r\n\tSTART_TL'
    b'S\x10\t\x12\x10\n\x0cFORCE_LEDGER\x10\n\x12!\n\x1dGET_LIST_OF_ENTRIES_OF_LEDGER\x10\x0b\x12'
    b'\x14\n\x10BATCH_READ_ENTRY\x10\x0c'
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
