# Generated from bookkeeper.proto by wire/pb/generate.py; do not edit.
from collections.abc import Iterable, Mapping, MutableMapping
from typing import ClassVar

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import (
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
)
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class BKPacketHeader(Message):
    version: int
    operation: int
    txnId: int
    priority: int
    def __init__(self, *, version: int | None = ..., operation: int | None = ..., txnId: int | None = ..., priority: int | None = ...) -> None: ...
class ContextPair(Message):
    key: str
    value: str
    def __init__(self, *, key: str | None = ..., value: str | None = ...) -> None: ...
class Request(Message):
    header: BKPacketHeader
    readRequest: ReadRequest
    addRequest: AddRequest
    authRequest: AuthMessage
    writeLacRequest: WriteLacRequest
    readLacRequest: ReadLacRequest
    getBookieInfoRequest: GetBookieInfoRequest
    startTLSRequest: StartTLSRequest
    forceLedgerRequest: ForceLedgerRequest
    getListOfEntriesOfLedgerRequest: GetListOfEntriesOfLedgerRequest
    requestContext: RepeatedCompositeFieldContainer[ContextPair]
    def __init__(self, *, header: BKPacketHeader | None = ..., readRequest: ReadRequest | None = ..., addRequest: AddRequest | None = ..., authRequest: AuthMessage | None = ..., writeLacRequest: WriteLacRequest | None = ..., readLacRequest: ReadLacRequest | None = ..., getBookieInfoRequest: GetBookieInfoRequest | None = ..., startTLSRequest: StartTLSRequest | None = ..., forceLedgerRequest: ForceLedgerRequest | None = ..., getListOfEntriesOfLedgerRequest: GetListOfEntriesOfLedgerRequest | None = ..., requestContext: Iterable[ContextPair] | None = ...) -> None: ...
class ReadRequest(Message):
    FENCE_LEDGER: ClassVar[int]
    ENTRY_PIGGYBACK: ClassVar[int]
    ledgerId: int
    entryId: int
    masterKey: bytes
    previousLAC: int
    timeOut: int
    flag: int
    def __init__(self, *, ledgerId: int | None = ..., entryId: int | None = ..., masterKey: bytes | None = ..., previousLAC: int | None = ..., timeOut: int | None = ..., flag: int | None = ...) -> None: ...
class AddRequest(Message):
    RECOVERY_ADD: ClassVar[int]
    ledgerId: int
    entryId: int
    masterKey: bytes
    body: bytes
    writeFlags: int
    flag: int
    def __init__(self, *, ledgerId: int | None = ..., entryId: int | None = ..., masterKey: bytes | None = ..., body: bytes | None = ..., writeFlags: int | None = ..., flag: int | None = ...) -> None: ...
class WriteLacRequest(Message):
    ledgerId: int
    lac: int
    masterKey: bytes
    body: bytes
    def __init__(self, *, ledgerId: int | None = ..., lac: int | None = ..., masterKey: bytes | None = ..., body: bytes | None = ...) -> None: ...
class ReadLacRequest(Message):
    ledgerId: int
    def __init__(self, *, ledgerId: int | None = ...) -> None: ...
class ForceLedgerRequest(Message):
    ledgerId: int
    def __init__(self, *, ledgerId: int | None = ...) -> None: ...
class GetBookieInfoRequest(Message):
    requested: int
    def __init__(self, *, requested: int | None = ...) -> None: ...
class GetListOfEntriesOfLedgerRequest(Message):
    ledgerId: int
    def __init__(self, *, ledgerId: int | None = ...) -> None: ...
class StartTLSRequest(Message):
    def __init__(self) -> None: ...
class AuthMessage(Message):
    authPluginName: str
    payload: bytes
    def __init__(self, *, authPluginName: str | None = ..., payload: bytes | None = ...) -> None: ...
class Response(Message):
    header: BKPacketHeader
    status: int
    readResponse: ReadResponse
    addResponse: AddResponse
    authResponse: AuthMessage
    writeLacResponse: WriteLacResponse
    readLacResponse: ReadLacResponse
    getBookieInfoResponse: GetBookieInfoResponse
    startTLSResponse: StartTLSResponse
    forceLedgerResponse: ForceLedgerResponse
    getListOfEntriesOfLedgerResponse: GetListOfEntriesOfLedgerResponse
    def __init__(self, *, header: BKPacketHeader | None = ..., status: int | None = ..., readResponse: ReadResponse | None = ..., addResponse: AddResponse | None = ..., authResponse: AuthMessage | None = ..., writeLacResponse: WriteLacResponse | None = ..., readLacResponse: ReadLacResponse | None = ..., getBookieInfoResponse: GetBookieInfoResponse | None = ..., startTLSResponse: StartTLSResponse | None = ..., forceLedgerResponse: ForceLedgerResponse | None = ..., getListOfEntriesOfLedgerResponse: GetListOfEntriesOfLedgerResponse | None = ...) -> None: ...
class ReadResponse(Message):
    status: int
    ledgerId: int
    entryId: int
    body: bytes
    maxLAC: int
    lacUpdateTimestamp: int
    def __init__(self, *, status: int | None = ..., ledgerId: int | None = ..., entryId: int | None = ..., body: bytes | None = ..., maxLAC: int | None = ..., lacUpdateTimestamp: int | None = ...) -> None: ...
class AddResponse(Message):
    status: int
    ledgerId: int
    entryId: int
    def __init__(self, *, status: int | None = ..., ledgerId: int | None = ..., entryId: int | None = ...) -> None: ...
class WriteLacResponse(Message):
    status: int
    ledgerId: int
    def __init__(self, *, status: int | None = ..., ledgerId: int | None = ...) -> None: ...
class ReadLacResponse(Message):
    status: int
    ledgerId: int
    lacBody: bytes
    lastEntryBody: bytes
    def __init__(self, *, status: int | None = ..., ledgerId: int | None = ..., lacBody: bytes | None = ..., lastEntryBody: bytes | None = ...) -> None: ...
class ForceLedgerResponse(Message):
    status: int
    ledgerId: int
    def __init__(self, *, status: int | None = ..., ledgerId: int | None = ...) -> None: ...
class GetBookieInfoResponse(Message):
    status: int
    totalDiskCapacity: int
    freeDiskSpace: int
    def __init__(self, *, status: int | None = ..., totalDiskCapacity: int | None = ..., freeDiskSpace: int | None = ...) -> None: ...
class GetListOfEntriesOfLedgerResponse(Message):
    status: int
    ledgerId: int
    availabilityOfEntriesOfLedger: bytes
    def __init__(self, *, status: int | None = ..., ledgerId: int | None = ..., availabilityOfEntriesOfLedger: bytes | None = ...) -> None: ...
class StartTLSResponse(Message):
    def __init__(self) -> None: ...
