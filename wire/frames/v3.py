"""V3: one protobuf message a frame.

``required`` fields and unknown enum numbers are handled as in 4.18.0: an unknown number counts as
absent, and a message without a required field is invalid. For the bookie's hot path, adds of Java's
client are also matched without protobuf.

Agrees with BookKeeper 4.18.0, BookkeeperProtocol and BookieProtoEncoding.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import attrs

from wire.codes import (
    V3_VERSION,
    AddFlag,
    BookieInfoFlag,
    Operation,
    ProtocolVersion,
    ReadFlag,
    ReturnCode,
)
from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.frames import protobuf
from wire.frames.varint import decode_varint, encode_varint
from wire.ids import EntryId, LedgerId
from wire.messages import (
    AddRequest,
    AddResponse,
    Answer,
    AuthRequest,
    AuthResponse,
    BadRequest,
    BookieInfoRequest,
    BookieInfoResponse,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    ReceivedRequest,
    ReplyTo,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
    WriteLacRequest,
    WriteLacResponse,
)
from wire.pb import bookkeeper_pb2 as pb

HIGH_PRIORITY: Final = 100
"""The header priority that Java sends; every number above 0 means the same."""

FIRST_BYTE: Final = 0x0A
"""The first byte of every request, of its header, field 1; no V2 packet begins with this byte."""

_DEFERRED_SYNC: Final = 1
_LENGTH: Final = struct.Struct(">i")
_LAC_END: Final = 24
_I64_END: Final = 1 << 63
_UNSUPPORTED: Final = frozenset(
    {Operation.RANGE_READ_ENTRY, Operation.RANGE_ADD_ENTRY, Operation.BATCH_READ_ENTRY}
)


def frame(payload: bytes) -> bytes:
    """Return a payload with its length before it."""
    return _LENGTH.pack(len(payload)) + payload


@attrs.frozen
class _Plain:
    """A message whose fields map one to one between our class and protobuf's."""

    name: str
    """The field of the outer message."""
    kind: type
    fields: tuple[tuple[str, str], ...] = ()

    def fill(self, message: pb.Request | pb.Response, value: Any) -> None:
        """Write a value into the outer message, without fields that are None."""
        inner = getattr(message, self.name)
        inner.SetInParent()
        for theirs, ours in self.fields:
            if (found := getattr(value, ours)) is not None:
                setattr(inner, theirs, found)

    def request(self, inner: Any, _urgent: bool) -> Any:  # noqa: FBT001
        """Return a message as a request; every field of a request is required."""
        return self.kind(*[getattr(inner, theirs) for theirs, _ in self.fields])

    def response(self, rc: ReturnCode, inner: Any) -> Any:
        """Return a message as a response."""
        return self.kind(rc, *[_optional(inner, theirs) for theirs, _ in self.fields])


_LEDGER: Final = ("ledgerId", "ledger_id")

_PLAIN_REQUESTS: Final = {
    Operation.WRITE_LAC: _Plain(
        "writeLacRequest",
        WriteLacRequest,
        (_LEDGER, ("lac", "lac"), ("masterKey", "master_key"), ("body", "body")),
    ),
    Operation.READ_LAC: _Plain("readLacRequest", ReadLacRequest, (_LEDGER,)),
    Operation.FORCE_LEDGER: _Plain("forceLedgerRequest", ForceLedgerRequest, (_LEDGER,)),
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: _Plain(
        "getListOfEntriesOfLedgerRequest", ListEntriesRequest, (_LEDGER,)
    ),
    Operation.START_TLS: _Plain("startTLSRequest", StartTlsRequest),
}

_PLAIN_RESPONSES: Final = {
    Operation.WRITE_LAC: _Plain("writeLacResponse", WriteLacResponse, (_LEDGER,)),
    Operation.READ_LAC: _Plain(
        "readLacResponse",
        ReadLacResponse,
        (_LEDGER, ("lacBody", "lac_body"), ("lastEntryBody", "last_entry")),
    ),
    Operation.GET_BOOKIE_INFO: _Plain(
        "getBookieInfoResponse",
        BookieInfoResponse,
        (("totalDiskCapacity", "total_bytes"), ("freeDiskSpace", "free_bytes")),
    ),
    Operation.FORCE_LEDGER: _Plain("forceLedgerResponse", ForceLedgerResponse, (_LEDGER,)),
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: _Plain(
        "getListOfEntriesOfLedgerResponse",
        ListEntriesResponse,
        (_LEDGER, ("availabilityOfEntriesOfLedger", "availability")),
    ),
}


def _optional(inner: Any, name: str) -> Any:
    return getattr(inner, name) if inner.HasField(name) else None


# Requests --------------------------------------------------------------------------------------


def encode_request(request: Request, txn_id: int) -> bytes:
    """Return the request as a complete frame.

    Raises:
        LocalProtocolError: V3 has no such request, or a number does not fit its field.
    """
    if isinstance(request, AddRequest) and request.flags is AddFlag.NONE:
        ledger_id, entry_id = request.ledger_id, request.entry_id
        if 0 <= ledger_id < _I64_END and 0 <= entry_id < _I64_END and txn_id >= 0:
            return add_request(txn_id, ledger_id, entry_id, request.master_key, request.entry)
    try:
        operation, fill = _REQUEST_ENCODERS[type(request)]
    except KeyError:
        raise LocalProtocolError(f"V3 has no {type(request).__name__}") from None
    message = pb.Request()
    message.header.version = V3_VERSION
    message.header.operation = operation
    try:
        message.header.txnId = txn_id
        fill(message, request)
    except ValueError as error:
        raise LocalProtocolError(f"V3 cannot hold {request}: {error}") from error
    return frame(message.SerializeToString())


def _fill_add(message: pb.Request, request: AddRequest) -> None:
    inner = message.addRequest
    inner.ledgerId, inner.entryId = request.ledger_id, request.entry_id
    inner.masterKey, inner.body = request.master_key, request.entry
    if request.flags & AddFlag.RECOVERY:
        inner.flag = pb.AddRequest.RECOVERY_ADD
    if request.flags & AddFlag.DEFERRED_SYNC:
        inner.writeFlags = _DEFERRED_SYNC
    if request.flags & AddFlag.HIGH_PRIORITY:
        message.header.priority = HIGH_PRIORITY


def _fill_read(message: pb.Request, request: ReadRequest) -> None:
    inner = message.readRequest
    inner.ledgerId, inner.entryId = request.ledger_id, request.entry_id
    if request.master_key is not None:
        inner.masterKey = request.master_key
    if request.previous_lac is not None:
        inner.previousLAC = request.previous_lac
    if request.timeout_ms is not None:
        inner.timeOut = request.timeout_ms
    # Arithmetic on flags is slow, and nearly all reads have no flags.
    if request.flags is not ReadFlag.NONE:
        _fill_read_flags(message, request.flags)


def _fill_read_flags(message: pb.Request, flags: ReadFlag) -> None:
    inner = message.readRequest
    if flags & ReadFlag.FENCE and flags & ReadFlag.PIGGYBACK:
        raise LocalProtocolError("a read either fences or piggybacks")
    if flags & ReadFlag.FENCE:
        inner.flag = pb.ReadRequest.FENCE_LEDGER
    if flags & ReadFlag.PIGGYBACK:
        inner.flag = pb.ReadRequest.ENTRY_PIGGYBACK
    if flags & ReadFlag.HIGH_PRIORITY:
        message.header.priority = HIGH_PRIORITY


def _fill_auth(message: pb.Request, request: AuthRequest) -> None:
    message.authRequest.authPluginName = request.plugin
    message.authRequest.payload = request.payload


def _fill_info(message: pb.Request, request: BookieInfoRequest) -> None:
    message.getBookieInfoRequest.requested = int(request.requested)


_REQUEST_ENCODERS: Final[dict[type, tuple[Operation, Callable[[pb.Request, Any], None]]]] = {
    AddRequest: (Operation.ADD_ENTRY, _fill_add),
    ReadRequest: (Operation.READ_ENTRY, _fill_read),
    AuthRequest: (Operation.AUTH, _fill_auth),
    BookieInfoRequest: (Operation.GET_BOOKIE_INFO, _fill_info),
    **{one.kind: (operation, one.fill) for operation, one in _PLAIN_REQUESTS.items()},
}


def require_few_fields(payload: bytes, *, is_begin: bool = False) -> None:
    """Refuse a request with too many fields; see ``protobuf``.

    Raises:
        RemoteProtocolError: the request has too many fields or a broken form.
    """
    protobuf.require_few_fields(pb.Request, payload, RemoteProtocolError, is_begin=is_begin)


def decode_request(payload: bytes | memoryview) -> ReceivedRequest:
    """Parse a request from a frame's payload.

    A request that must be refused with a code becomes a ``BadRequest``.

    Raises:
        RemoteProtocolError: not a V3 request; close the connection.
    """
    data = bytes(payload)
    require_few_fields(data)
    message = protobuf.parse(pb.Request, data, RemoteProtocolError)
    operation, reply_to = _reply_to(message.header)
    if operation in _UNSUPPORTED:
        refused = BadRequest(ReturnCode.EBADREQ, f"{operation.name} is not served")
        return ReceivedRequest(refused, reply_to)
    name, decode = _REQUEST_DECODERS[operation]
    if not message.HasField(name):
        if operation is Operation.GET_BOOKIE_INFO:
            return ReceivedRequest(BookieInfoRequest(BookieInfoFlag.NONE), reply_to)
        if operation is Operation.START_TLS:
            return ReceivedRequest(BadRequest(ReturnCode.EBADREQ, "empty START_TLS"), reply_to)
        raise RemoteProtocolError(f"{operation.name} without its {name}")
    request = decode(getattr(message, name), message.header.priority > 0)
    if message.header.version != V3_VERSION and operation not in _ANY_VERSION:
        request = BadRequest(
            ReturnCode.EBADVERSION,
            f"V3 message of version {message.header.version}",
            getattr(request, "ledger_id", LedgerId(0)),
            getattr(request, "entry_id", EntryId(0)),
        )
    return ReceivedRequest(request, reply_to)


_ANY_VERSION: Final = frozenset({Operation.AUTH, Operation.START_TLS})


def _reply_to(header: pb.BKPacketHeader) -> tuple[Operation, ReplyTo]:
    operation = Operation(header.operation)
    return operation, ReplyTo(
        ProtocolVersion.V3, operation, header.version, header.txnId, header.priority
    )


def _decode_add(inner: pb.AddRequest, urgent: bool) -> Request:  # noqa: FBT001
    body = inner.body
    ids = LedgerId(inner.ledgerId), EntryId(inner.entryId)
    if len(body) < _LAC_END:
        reason = f"entry packet of {len(body)} bytes is too short for its LAC"
        return BadRequest(ReturnCode.EBADREQ, reason, *ids)
    flags = AddFlag.NONE
    if inner.HasField("flag"):
        flags |= AddFlag.RECOVERY
    if urgent:
        flags |= AddFlag.HIGH_PRIORITY
    if inner.writeFlags & _DEFERRED_SYNC:
        flags |= AddFlag.DEFERRED_SYNC
    return AddRequest(*ids, inner.masterKey, body, flags)


def _decode_read(inner: pb.ReadRequest, urgent: bool) -> Request:  # noqa: FBT001
    flags = ReadFlag.NONE
    if inner.HasField("flag"):
        fences = inner.flag == pb.ReadRequest.FENCE_LEDGER
        flags |= ReadFlag.FENCE if fences else ReadFlag.PIGGYBACK
    if urgent:
        flags |= ReadFlag.HIGH_PRIORITY
    return ReadRequest(
        LedgerId(inner.ledgerId),
        EntryId(inner.entryId),
        flags,
        inner.masterKey if inner.HasField("masterKey") else None,
        inner.previousLAC if inner.HasField("previousLAC") else None,
        inner.timeOut if inner.HasField("timeOut") else None,
    )


def _decode_auth(inner: pb.AuthMessage, _urgent: bool) -> Request:  # noqa: FBT001
    return AuthRequest(_text(inner), inner.payload)


def _text(inner: pb.AuthMessage) -> str:
    return protobuf.text(inner.authPluginName, RemoteProtocolError)


_REQUEST_DECODERS: Final[dict[Operation, tuple[str, Callable[[Any, bool], Request]]]] = {
    Operation.ADD_ENTRY: ("addRequest", _decode_add),
    Operation.READ_ENTRY: ("readRequest", _decode_read),
    Operation.AUTH: ("authRequest", _decode_auth),
    Operation.GET_BOOKIE_INFO: (
        "getBookieInfoRequest",
        lambda m, _: BookieInfoRequest(BookieInfoFlag(m.requested & 3)),
    ),
    **{operation: (one.name, one.request) for operation, one in _PLAIN_REQUESTS.items()},
}


# Responses -------------------------------------------------------------------------------------


def encode_response(response: Response, to: ReplyTo) -> bytes:
    """Return the response as a complete frame; its inner status equals the outer one.

    Raises:
        LocalProtocolError: V3 has no such response.
    """
    message = pb.Response()
    message.header.version = V3_VERSION
    message.header.operation = to.operation
    message.header.txnId = to.txn_id
    message.status = int(response.rc)
    if isinstance(response, (ErrorResponse, AuthResponse)):
        message.header.version = to.header_version
        if to.priority:
            message.header.priority = to.priority  # This response copies the complete header.
    if isinstance(response, ErrorResponse):
        return frame(message.SerializeToString())
    try:
        fill = _RESPONSE_ENCODERS[type(response)]
    except KeyError:
        raise LocalProtocolError(f"V3 has no {type(response).__name__}") from None
    try:
        fill(message, response)
    except ValueError as error:
        raise LocalProtocolError(f"V3 cannot hold {response}: {error}") from error
    return frame(message.SerializeToString())


def _fill_add_response(message: pb.Response, response: AddResponse) -> None:
    inner = message.addResponse
    inner.status = int(response.rc)
    inner.ledgerId, inner.entryId = response.ledger_id, response.entry_id


def _fill_read_response(message: pb.Response, response: ReadResponse) -> None:
    inner = message.readResponse
    inner.status = int(response.rc)
    inner.ledgerId, inner.entryId = response.ledger_id, response.entry_id
    if response.entry is not None:
        inner.body = response.entry
    if response.max_lac is not None:
        inner.maxLAC = response.max_lac
    if response.lac_update_ms is not None:
        inner.lacUpdateTimestamp = response.lac_update_ms


def _fill_auth_response(message: pb.Response, response: AuthResponse) -> None:
    if response.rc is ReturnCode.EOK:
        message.authResponse.authPluginName = response.plugin
        message.authResponse.payload = response.payload


def _fill_start_tls_response(message: pb.Response, response: StartTlsResponse) -> None:
    if response.rc is ReturnCode.EOK:
        message.startTLSResponse.SetInParent()


def _fill_plain_response(plain: _Plain, message: pb.Response, response: Any) -> None:
    plain.fill(message, response)
    getattr(message, plain.name).status = int(response.rc)


_RESPONSE_ENCODERS: Final[dict[type, Callable[[pb.Response, Any], None]]] = {
    AddResponse: _fill_add_response,
    ReadResponse: _fill_read_response,
    AuthResponse: _fill_auth_response,
    StartTlsResponse: _fill_start_tls_response,
    **{one.kind: partial(_fill_plain_response, one) for one in _PLAIN_RESPONSES.values()},
}


def decode_response(payload: bytes | memoryview) -> Answer:
    """Parse a response from a frame's payload.

    An outer status other than EOK decides, else the inner one. A refusal without an inner response
    becomes an ``ErrorResponse``. Agrees with PerChannelBookieClient.

    Raises:
        RemoteProtocolError: not a V3 response, or EOK without a response; close the connection.
    """
    message = protobuf.parse(pb.Response, bytes(payload), RemoteProtocolError)
    operation, _ = _reply_to(message.header)
    outer = ReturnCode(message.status)
    found = _RESPONSE_DECODERS.get(operation)
    if found is None or not message.HasField(found[0]):
        if outer is ReturnCode.EOK:
            raise RemoteProtocolError(f"{operation.name} answered with EOK and no response")
        return Answer(ErrorResponse(outer), operation, message.header.txnId)
    inner = getattr(message, found[0])
    rc = outer
    if outer is ReturnCode.EOK and hasattr(inner, "status"):
        rc = ReturnCode(inner.status)
    return Answer(found[1](rc, inner), operation, message.header.txnId)


_RESPONSE_DECODERS: Final[dict[Operation, tuple[str, Callable[[ReturnCode, Any], Response]]]] = {
    Operation.ADD_ENTRY: (
        "addResponse",
        lambda rc, m: AddResponse(rc, LedgerId(m.ledgerId), EntryId(m.entryId)),
    ),
    Operation.READ_ENTRY: (
        "readResponse",
        lambda rc, m: ReadResponse(
            rc,
            LedgerId(m.ledgerId),
            EntryId(m.entryId),
            _optional(m, "body"),
            _optional(m, "maxLAC"),
            _optional(m, "lacUpdateTimestamp"),
        ),
    ),
    Operation.AUTH: ("authResponse", lambda rc, m: AuthResponse(rc, _text(m), m.payload)),
    Operation.START_TLS: ("startTLSResponse", lambda rc, _m: StartTlsResponse(rc)),
    **{operation: (one.name, one.response) for operation, one in _PLAIN_RESPONSES.items()},
}


# The hot path ----------------------------------------------------------------------------------


class MatchedAdd(NamedTuple):
    """A plain add as Java's client encodes it: normal priority, and no flag except recovery's.

    ``txn``, ``ledger`` and ``entry`` are the received varints, to be echoed. The packet is
    ``payload[packet_at:packet_end]``; the bookie stores the ids in the packet.
    """

    txn: bytes
    ledger: bytes
    entry: bytes
    master_key: bytes
    packet_at: int
    packet_end: int
    is_recovery: bool


RECOVERY_END: Final = b"\xa0\x06\x01"
"""The bytes that the recovery flag appends to an add, after the packet."""

_VARINT: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_ADD: Final = re.compile(
    rb"\x0a([\x06-\x0f])\x08\x03\x10\x02\x18(%b)\xaa\x06(%b)\x08(%b)\x10(%b)\x1a\x14(.{20})\x22(%b)"
    % ((_VARINT,) * 5),
    re.DOTALL,
)
_HEADER_BYTES: Final = 5
"""Header fields of an add besides the transaction id's varint."""


def match_add(data: bytes, start: int = 0, end: int | None = None) -> MatchedAdd | None:
    """Parse the payload ``data[start:end]`` if it is a plain add of Java's client.

    ``None`` leaves the payload to ``decode_request``: adds with other flags or priority, other
    messages, other orders of fields, invalid ones.
    """
    end = len(data) if end is None else end
    found = _ADD.match(data, start, end)
    if found is None:
        return None
    header, txn, inner, ledger, entry, master_key, packet = found.groups()
    packet_at = found.end()
    packet_end = packet_at + decode_varint(packet)
    if (
        header[0] != _HEADER_BYTES + len(txn)
        or decode_varint(inner) != end - found.start(4) + 1
        or packet_end - packet_at < _LAC_END
        or data[packet_end:end] not in {b"", RECOVERY_END}
        or packet_end > end
    ):
        return None
    return MatchedAdd(txn, ledger, entry, master_key, packet_at, packet_end, packet_end < end)


def add_response(txn: bytes, ledger: bytes, entry: bytes) -> bytes:
    """Return the frame that answers EOK to a matched add; the arguments are its raw varints."""
    inner = b"\x08\x00\x10" + ledger + b"\x18" + entry
    header = _HEADER_BYTES + len(txn)
    return b"".join(
        (
            _LENGTH.pack(2 + header + 2 + 3 + len(inner)),
            b"\x0a%c\x08\x03\x10\x02\x18" % header,
            txn,
            b"\x10\x00\xaa\x06%c" % len(inner),
            inner,
        )
    )


def add_request(
    txn_id: int, ledger_id: int, entry_id: int, master_key: bytes, packet: bytes
) -> bytes:
    """Return the frame of a plain add; equal to ``encode_request``'s, but faster."""
    txn = encode_varint(txn_id)
    inner = b"".join(
        (
            b"\x08",
            encode_varint(ledger_id),
            b"\x10",
            encode_varint(entry_id),
            b"\x1a",
            encode_varint(len(master_key)),
            master_key,
            b"\x22",
            encode_varint(len(packet)),
        )
    )
    inner_bytes = encode_varint(len(inner) + len(packet))
    header = _HEADER_BYTES + len(txn)
    size = 2 + header + 2 + len(inner_bytes) + len(inner) + len(packet)
    return b"".join(
        (
            _LENGTH.pack(size),
            b"\x0a%c\x08\x03\x10\x02\x18" % header,
            txn,
            b"\xaa\x06",
            inner_bytes,
            inner,
            packet,
        )
    )
