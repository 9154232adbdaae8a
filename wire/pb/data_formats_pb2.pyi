# Generated from data_formats.proto by wire/pb/generate.py; do not edit.
from collections.abc import Iterable, Mapping, MutableMapping
from typing import ClassVar

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.internal.containers import (
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
)
from google.protobuf.message import Message

DESCRIPTOR: FileDescriptor

class LedgerMetadataFormat(Message):
    class Segment(Message):
        ensembleMember: RepeatedScalarFieldContainer[str]
        firstEntryId: int
        def __init__(self, *, ensembleMember: Iterable[str] | None = ..., firstEntryId: int | None = ...) -> None: ...
    class CustomMetadata(Message):
        key: str
        value: bytes
        def __init__(self, *, key: str | None = ..., value: bytes | None = ...) -> None: ...
    CRC32: ClassVar[int]
    HMAC: ClassVar[int]
    CRC32C: ClassVar[int]
    DUMMY: ClassVar[int]
    OPEN: ClassVar[int]
    IN_RECOVERY: ClassVar[int]
    CLOSED: ClassVar[int]
    quorumSize: int
    ensembleSize: int
    length: int
    lastEntryId: int
    state: int
    segment: RepeatedCompositeFieldContainer[LedgerMetadataFormat.Segment]
    digestType: int
    password: bytes
    ackQuorumSize: int
    ctime: int
    customMetadata: RepeatedCompositeFieldContainer[LedgerMetadataFormat.CustomMetadata]
    cToken: int
    def __init__(self, *, quorumSize: int | None = ..., ensembleSize: int | None = ..., length: int | None = ..., lastEntryId: int | None = ..., state: int | None = ..., segment: Iterable[LedgerMetadataFormat.Segment] | None = ..., digestType: int | None = ..., password: bytes | None = ..., ackQuorumSize: int | None = ..., ctime: int | None = ..., customMetadata: Iterable[LedgerMetadataFormat.CustomMetadata] | None = ..., cToken: int | None = ...) -> None: ...
class CookieFormat(Message):
    bookieHost: str
    journalDir: str
    ledgerDirs: str
    instanceId: str
    indexDirs: str
    def __init__(self, *, bookieHost: str | None = ..., journalDir: str | None = ..., ledgerDirs: str | None = ..., instanceId: str | None = ..., indexDirs: str | None = ...) -> None: ...
class UnderreplicatedLedgerFormat(Message):
    replica: RepeatedScalarFieldContainer[str]
    ctime: int
    def __init__(self, *, replica: Iterable[str] | None = ..., ctime: int | None = ...) -> None: ...
class LockDataFormat(Message):
    bookieId: str
    def __init__(self, *, bookieId: str | None = ...) -> None: ...
class AuditorVoteFormat(Message):
    bookieId: str
    def __init__(self, *, bookieId: str | None = ...) -> None: ...
class LedgerRereplicationLayoutFormat(Message):
    type: str
    version: int
    def __init__(self, *, type: str | None = ..., version: int | None = ...) -> None: ...
class CheckTimeFormat(Message):
    checkCTime: int
    def __init__(self, *, checkCTime: int | None = ...) -> None: ...
class BookieServiceInfoFormat(Message):
    class Endpoint(Message):
        id: str
        port: int
        host: str
        protocol: str
        auth: RepeatedScalarFieldContainer[str]
        extensions: RepeatedScalarFieldContainer[str]
        def __init__(self, *, id: str | None = ..., port: int | None = ..., host: str | None = ..., protocol: str | None = ..., auth: Iterable[str] | None = ..., extensions: Iterable[str] | None = ...) -> None: ...
    endpoints: RepeatedCompositeFieldContainer[BookieServiceInfoFormat.Endpoint]
    properties: MutableMapping[str, str]
    def __init__(self, *, endpoints: Iterable[BookieServiceInfoFormat.Endpoint] | None = ..., properties: Mapping[str, str] | None = ...) -> None: ...
class DbLedgerFormat(Message):
    exists: bool
    fenced: bool
    masterKey: bytes
    explicitLac: bytes
    limbo: bool
    def __init__(self, *, exists: bool | None = ..., fenced: bool | None = ..., masterKey: bytes | None = ..., explicitLac: bytes | None = ..., limbo: bool | None = ...) -> None: ...
