"""V2: fixed layouts, the compact encoding of the protocol.

Every payload begins with a header of four bytes:

==== ======= ==== =====
bits 31..24  23..16 15..0
==== ======= ==== =====
     version opcode flags
==== ======= ==== =====

In version 0 the complete integer is the op code, without flags. All integers are big-endian and
signed. Agrees with BookKeeper 4.18.0, BookieProtoEncoding.
"""

from __future__ import annotations

import struct
from typing import Final

from wire.codes import (
    MASTER_KEY_BYTES,
    RETURN_CODE_BY_V2,
    STRIDE_MAX,
    STRIDE_SHIFT,
    V2_BY_RETURN_CODE,
    V2_VERSION,
    AddFlag,
    OpCode,
    Operation,
    ProtocolVersion,
    ReadFlag,
    ReturnCode,
    V2Flag,
)
from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.frames import protobuf
from wire.frames.entry_packets import Packets
from wire.ids import EntryId, LedgerId
from wire.messages import (
    AddRequest,
    AddResponse,
    Answer,
    AuthRequest,
    AuthResponse,
    BadRequest,
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    ReadResponse,
    ReceivedRequest,
    ReplyTo,
    Request,
    Response,
)
from wire.pb import bookkeeper_pb2 as pb

ADD_HEADER: Final = 0x02010000
"""Header of a plain add in version 2, without flags."""

ADD_RESPONSE: Final = struct.Struct(">iiiqq")
"""A complete add response frame: length (24), header, error code, ledger id, entry id."""

ADD_RESPONSE_LENGTH: Final = 24
LENGTH: Final = struct.Struct(">i")
READ_HEAD: Final = struct.Struct(">iqq")
"""Header, ledger id, entry id: the start of a read request."""

RESPONSE_HEAD: Final = struct.Struct(">iiqq")
"""Header, error code, ledger id, entry id: the start of every response but auth's."""

_HEADER: Final = struct.Struct(">i")
_ADD_HEAD: Final = struct.Struct(">ii")
_BATCH_TAIL: Final = struct.Struct(">qiq")
_I64: Final = struct.Struct(">q")
_ENTRY_IDS: Final = struct.Struct(">qq")
_PACKET_AT: Final = 4 + MASTER_KEY_BYTES
_IDS_BYTES: Final = 16
_LAC_END: Final = 24
_OPERATIONS: Final = {
    OpCode.ADD_ENTRY: Operation.ADD_ENTRY,
    OpCode.READ_ENTRY: Operation.READ_ENTRY,
    OpCode.AUTH: Operation.AUTH,
    OpCode.BATCH_READ_ENTRY: Operation.BATCH_READ_ENTRY,
}
_REFUSED_HERE: Final = frozenset({Operation.ADD_ENTRY, Operation.READ_ENTRY})
"""Operations that become a ``BadRequest`` if the header's version is too high.

A batch read stays a batch read, because the refusal echoes its request id; the bookie checks the
version in ``ReplyTo``.
"""

_OP_CODE_OF: Final = {
    AddResponse: OpCode.ADD_ENTRY,
    ReadResponse: OpCode.READ_ENTRY,
    BatchReadResponse: OpCode.BATCH_READ_ENTRY,
}


def pack_header(op_code: int, flags: int = 0, version: int = V2_VERSION) -> int:
    """Return the header integer, signed as it is packed."""
    if version == 0:
        return op_code
    value = (version & 0xFF) << 24 | op_code << 16 | flags
    return value - (1 << 32) if value >= 1 << 31 else value


def _frame(*parts: bytes) -> bytes:
    return b"".join((LENGTH.pack(sum(map(len, parts))), *parts))


# Requests --------------------------------------------------------------------------------------


def encode_request(request: Request, *, version: int = V2_VERSION) -> bytes:
    """Return the request as a complete frame.

    Raises:
        LocalProtocolError: V2 has no such request, or the version cannot express it.
    """
    if isinstance(request, AddRequest):
        if request.flags is AddFlag.NONE and version == V2_VERSION:
            return add_request(request.master_key, request.entry)
        return _encode_add(request, version)
    try:
        return _encode(request, version)
    except (struct.error, ValueError) as error:
        raise LocalProtocolError(f"V2 cannot hold {request}: {error}") from error


def _encode_add(request: AddRequest, version: int) -> bytes:
    if request.flags & AddFlag.DEFERRED_SYNC:
        raise LocalProtocolError("deferred sync needs V3")
    if len(request.master_key) != MASTER_KEY_BYTES:
        raise LocalProtocolError(f"a master key has {MASTER_KEY_BYTES} bytes in V2")
    head = pack_header(OpCode.ADD_ENTRY, _add_flags(request.flags, version), version)
    return _frame(_HEADER.pack(head), request.master_key, request.entry)


def _encode(request: Request, version: int) -> bytes:
    if isinstance(request, ReadRequest):
        if request.previous_lac is not None or request.flags & ReadFlag.PIGGYBACK:
            raise LocalProtocolError("long poll needs V3")
        head = pack_header(OpCode.READ_ENTRY, _read_flags(request.flags, version), version)
        return _frame(READ_HEAD.pack(head, request.ledger_id, request.entry_id), _key(request))
    if isinstance(request, BatchReadRequest):
        flags = _read_flags(request.flags, version) | _stride_flags(request.stride, version)
        head = pack_header(OpCode.BATCH_READ_ENTRY, flags, version)
        return _frame(
            READ_HEAD.pack(head, request.ledger_id, request.entry_id),
            _BATCH_TAIL.pack(request.request_id, request.max_count, request.max_bytes),
            _key(request),
        )
    if isinstance(request, AuthRequest):
        body = pb.AuthMessage(authPluginName=request.plugin, payload=request.payload)
        head = pack_header(OpCode.AUTH, 0, version)
        return _frame(_HEADER.pack(head), body.SerializeToString())
    raise LocalProtocolError(f"V2 has no {type(request).__name__}")


def add_request(master_key: bytes, packet: bytes) -> bytes:
    """Return the frame of a plain add in version 2: the fast form, used for most adds.

    Raises:
        LocalProtocolError: the key has a wrong length.
    """
    if len(master_key) != MASTER_KEY_BYTES:
        raise LocalProtocolError(f"a master key has {MASTER_KEY_BYTES} bytes in V2")
    return b"".join((_ADD_HEAD.pack(_PACKET_AT + len(packet), ADD_HEADER), master_key, packet))


def _add_flags(flags: AddFlag, version: int) -> V2Flag:
    found = V2Flag.NONE
    if flags & AddFlag.RECOVERY:
        found |= V2Flag.RECOVERY_ADD
    if flags & AddFlag.HIGH_PRIORITY:
        found |= V2Flag.HIGH_PRIORITY
    return _fits(found, version)


def _read_flags(flags: ReadFlag, version: int) -> V2Flag:
    found = V2Flag.NONE
    if flags is ReadFlag.NONE:
        return found  # Arithmetic on flags is slow, and nearly all reads have no flags.
    if flags & ReadFlag.FENCE:
        found |= V2Flag.DO_FENCING
    if flags & ReadFlag.HIGH_PRIORITY:
        found |= V2Flag.HIGH_PRIORITY
    return _fits(found, version)


def _stride_flags(stride: int, version: int) -> int:
    if not 1 <= stride <= STRIDE_MAX:
        raise LocalProtocolError(f"a stride of {stride}; at most {STRIDE_MAX}")
    if stride == 1:
        return 0
    if version == 0:
        raise LocalProtocolError("version 0 has no flags")
    return stride << STRIDE_SHIFT


def _stride(head: int) -> int:
    """Return the stride in a header; a client without strides leaves it 0."""
    return (head >> STRIDE_SHIFT & STRIDE_MAX) or 1 if head >> 24 & 0xFF else 1


def _fits(flags: V2Flag, version: int) -> V2Flag:
    if version == 0 and flags:
        raise LocalProtocolError("version 0 has no flags")
    return flags


def _key(request: ReadRequest | BatchReadRequest) -> bytes:
    if not request.flags & ReadFlag.FENCE:
        return b""  # A bookie reads the key of fencing requests only.
    if request.master_key is None or len(request.master_key) != MASTER_KEY_BYTES:
        raise LocalProtocolError(f"a fencing read needs a master key of {MASTER_KEY_BYTES} bytes")
    return request.master_key


def decode_request(payload: bytes | memoryview) -> ReceivedRequest:
    """Parse a request from a frame's payload.

    A request that must be refused with a code becomes a ``BadRequest``.

    Raises:
        RemoteProtocolError: an unknown op code, or too short; close the connection.
    """
    payload = bytes(payload)
    if len(payload) < _HEADER.size:
        raise RemoteProtocolError(f"V2 packet of {len(payload)} bytes has no header")
    (head,) = _HEADER.unpack_from(payload)
    version, code, flags = _split_header(head)
    operation = _operation(code)
    reply_to = ReplyTo(ProtocolVersion.V2, operation, version)
    if operation is Operation.ADD_ENTRY:
        request: Request = _decode_add(payload, flags)
    elif operation is Operation.READ_ENTRY:
        request = _decode_read(payload, version, flags)
    elif operation is Operation.BATCH_READ_ENTRY:
        request = _decode_batch_read(payload, version, flags)
    else:
        plugin, token = _decode_auth(payload)
        request = AuthRequest(plugin, token)
    if not 0 <= _signed_byte(version) <= V2_VERSION and operation in _REFUSED_HERE:
        request = _too_new(request, version)
    return ReceivedRequest(request, reply_to)


def require_few_fields(payload: bytes, *, is_begin: bool = False) -> None:
    """Refuse a login message with too many fields; see ``protobuf``.

    Raises:
        RemoteProtocolError: the message has too many fields or a broken form.
    """
    if _split_header(*_HEADER.unpack_from(payload))[1] == OpCode.AUTH:
        data = payload[_HEADER.size :]
        protobuf.require_few_fields(pb.AuthMessage, data, RemoteProtocolError, is_begin=is_begin)


def _split_header(head: int) -> tuple[int, int, V2Flag]:
    """Return version (0 to 255), op code and known flags."""
    version = head >> 24 & 0xFF
    if version == 0:
        return 0, head, V2Flag.NONE
    return version, head >> 16 & 0xFF, V2Flag(head & 0x7)


def _signed_byte(value: int) -> int:
    return value - 256 if value > 127 else value  # noqa: PLR2004 -- what a Java byte holds


def _operation(code: int) -> Operation:
    try:
        return _OPERATIONS[OpCode(code)]
    except (ValueError, KeyError):
        raise RemoteProtocolError(f"V2 op code {code} is not served") from None


def _too_new(request: Request, version: int) -> Request:
    ids = (getattr(request, "ledger_id", LedgerId(0)), getattr(request, "entry_id", EntryId(0)))
    return BadRequest(ReturnCode.EBADVERSION, f"version {version}; newest is {V2_VERSION}", *ids)


def _decode_add(payload: bytes, flags: V2Flag) -> Request:
    packet_bytes = len(payload) - _PACKET_AT
    if packet_bytes < _IDS_BYTES:
        raise RemoteProtocolError(f"add of {len(payload)} bytes is too short for its ids")
    ledger_id, entry_id = _ENTRY_IDS.unpack_from(payload, _PACKET_AT)
    if packet_bytes < _LAC_END:
        reason = f"entry packet of {packet_bytes} bytes is too short for its LAC"
        return BadRequest(ReturnCode.EBADREQ, reason, LedgerId(ledger_id), EntryId(entry_id))
    found = AddFlag.NONE
    if flags & V2Flag.RECOVERY_ADD:
        found |= AddFlag.RECOVERY
    if flags & V2Flag.HIGH_PRIORITY:
        found |= AddFlag.HIGH_PRIORITY
    return AddRequest(
        LedgerId(ledger_id), EntryId(entry_id), payload[4:_PACKET_AT], payload[_PACKET_AT:], found
    )


def _decode_read(payload: bytes, version: int, flags: V2Flag) -> Request:
    if len(payload) < READ_HEAD.size:
        raise RemoteProtocolError(f"read of {len(payload)} bytes is too short")
    _, ledger_id, entry_id = READ_HEAD.unpack_from(payload)
    found, key = _fencing(payload, READ_HEAD.size, version, flags)
    return ReadRequest(LedgerId(ledger_id), EntryId(entry_id), found, key)


def _decode_batch_read(payload: bytes, version: int, flags: V2Flag) -> Request:
    end = READ_HEAD.size + _BATCH_TAIL.size
    if len(payload) < end:
        raise RemoteProtocolError(f"batch read of {len(payload)} bytes is too short")
    head, ledger_id, entry_id = READ_HEAD.unpack_from(payload)
    request_id, max_count, max_bytes = _BATCH_TAIL.unpack_from(payload, READ_HEAD.size)
    found, key = _fencing(payload, end, version, flags)
    return BatchReadRequest(
        LedgerId(ledger_id),
        EntryId(entry_id),
        request_id,
        max_count,
        max_bytes,
        found,
        key,
        _stride(head),
    )


def _fencing(
    payload: bytes, key_at: int, version: int, flags: V2Flag
) -> tuple[ReadFlag, bytes | None]:
    """Return the flags and, for a fencing request of version 2, the key after it."""
    found = ReadFlag.NONE
    if flags & V2Flag.HIGH_PRIORITY:
        found |= ReadFlag.HIGH_PRIORITY
    if not flags & V2Flag.DO_FENCING:
        return found, None
    found |= ReadFlag.FENCE
    if _signed_byte(version) < V2_VERSION:
        return found, None  # These versions have no key: the bookie refuses with EUA.
    key = payload[key_at : key_at + MASTER_KEY_BYTES]
    if len(key) < MASTER_KEY_BYTES:
        raise RemoteProtocolError("a fencing read without its master key")
    return found, key


def _decode_auth(payload: bytes) -> tuple[str, bytes]:
    require_few_fields(payload)
    body = protobuf.parse(pb.AuthMessage, payload[_HEADER.size :], RemoteProtocolError)
    return protobuf.text(body.authPluginName, RemoteProtocolError), body.payload


# Responses -------------------------------------------------------------------------------------


def encode_response(response: Response, to: ReplyTo) -> bytes:
    """Return the response as a complete frame, with the version of the request.

    Raises:
        LocalProtocolError: V2 has no such response (an error to AUTH closes the connection).
    """
    return b"".join(encode_frames(response, to))


def encode_frames(response: Response, to: ReplyTo) -> tuple[bytes, ...]:
    """Return the pieces of the same frame; the entries of a batch are one piece and not copied.

    Raises:
        LocalProtocolError: as ``encode_response``.
    """
    try:
        if isinstance(response, BatchReadResponse):
            return _batch_frames(response, to)
        return (_encode_response(response, to),)
    except (struct.error, ValueError) as error:
        raise LocalProtocolError(f"V2 cannot hold {response}: {error}") from error


def _encode_response(response: Response, to: ReplyTo) -> bytes:
    if isinstance(response, AuthResponse):
        if response.rc is not ReturnCode.EOK:
            raise LocalProtocolError("V2 has no auth response that refuses; close the connection")
        body = pb.AuthMessage(authPluginName=response.plugin, payload=response.payload)
        # Java's answer has the newest version, whatever the request had.
        head = pack_header(OpCode.AUTH)
        return _frame(_HEADER.pack(head), body.SerializeToString())
    if isinstance(response, AddResponse):
        return _frame(_response_head(response, to))
    if isinstance(response, ReadResponse):
        body_bytes = response.entry if response.entry is not None else b""
        return _frame(
            _response_head(response, to), body_bytes if response.rc is ReturnCode.EOK else b""
        )
    raise LocalProtocolError(f"V2 has no {type(response).__name__}")


def _batch_frames(response: BatchReadResponse, to: ReplyTo) -> tuple[bytes, bytes]:
    head, request_id = _response_head(response, to), _I64.pack(response.request_id)
    sized = response.entries.sized if response.rc is ReturnCode.EOK else b""
    length = LENGTH.pack(len(head) + len(request_id) + len(sized))
    return length + head + request_id, sized


def _response_head(response: AddResponse | ReadResponse | BatchReadResponse, to: ReplyTo) -> bytes:
    flags = 0
    if isinstance(response, BatchReadResponse):
        flags = _stride_flags(response.stride, to.header_version)
    head = pack_header(_OP_CODE_OF[type(response)], flags, to.header_version)
    code = V2_BY_RETURN_CODE[response.rc]
    return RESPONSE_HEAD.pack(head, code, response.ledger_id, response.entry_id)


def decode_response(payload: bytes | memoryview) -> Answer:
    """Parse a response from a frame's payload.

    Raises:
        RemoteProtocolError: not a valid response; close the connection.
    """
    payload = bytes(payload)
    if len(payload) < _HEADER.size:
        raise RemoteProtocolError(f"V2 packet of {len(payload)} bytes has no header")
    _, code, _ = _split_header(_HEADER.unpack_from(payload)[0])
    operation = _operation(code)
    if operation is Operation.AUTH:
        plugin, token = _decode_auth(payload)
        return Answer(AuthResponse(ReturnCode.EOK, plugin, token), operation, 0)
    if len(payload) < RESPONSE_HEAD.size:
        raise RemoteProtocolError(f"V2 response of {len(payload)} bytes is too short")
    head, error, ledger_id, entry_id = RESPONSE_HEAD.unpack_from(payload)
    try:
        rc = RETURN_CODE_BY_V2[error]
    except KeyError:
        raise RemoteProtocolError(f"V2 error code {error} is unknown") from None
    ids = (LedgerId(ledger_id), EntryId(entry_id))
    response: Response
    if operation is Operation.ADD_ENTRY:
        response = AddResponse(rc, *ids)
    elif operation is Operation.READ_ENTRY:
        entry = payload[RESPONSE_HEAD.size :] if rc is ReturnCode.EOK else None
        response = ReadResponse(rc, *ids, entry)
    else:
        response = _decode_batch_response(rc, ids, payload, _stride(head))
    return Answer(response, operation, 0)


def _decode_batch_response(
    rc: ReturnCode, ids: tuple[LedgerId, EntryId], payload: bytes, stride: int
) -> BatchReadResponse:
    start = RESPONSE_HEAD.size + _I64.size
    if len(payload) < start:
        raise RemoteProtocolError("batch read response without a request id")
    (request_id,) = _I64.unpack_from(payload, RESPONSE_HEAD.size)
    try:
        entries = Packets.split(payload[start:])
    except ValueError as error:
        raise RemoteProtocolError(f"batch read response {error}") from None
    return BatchReadResponse(rc, *ids, request_id, entries, stride)
