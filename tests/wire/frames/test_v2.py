"""V2 frames."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import strategies
from tests.wire import values
from tests.wire.vectors import by_name, wire_vectors
from wire.codes import AddFlag, Operation, ProtocolVersion, ReadFlag, ReturnCode
from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.frames import v2
from wire.messages import (
    AddRequest,
    AddResponse,
    Answer,
    AuthRequest,
    AuthResponse,
    BadRequest,
    BatchReadRequest,
    BatchReadResponse,
    ForceLedgerRequest,
    ReadRequest,
    ReadResponse,
    ReceivedRequest,
    ReplyTo,
    StartTlsResponse,
)

KEY = bytes(range(20))


def reply_to(operation: Operation, version: int = 2) -> ReplyTo:
    return ReplyTo(ProtocolVersion.V2, operation, version)


@pytest.mark.parametrize("vector", wire_vectors("v2_request"), ids=by_name)
def test_our_requests_are_the_bytes_java_sends(vector) -> None:
    inputs = vector["inputs"]
    assert (
        v2.encode_request(values.v2_request(inputs), version=inputs["version"]).hex()
        == (vector["hex"])
    )


@pytest.mark.parametrize("vector", wire_vectors("v2_request"), ids=by_name)
def test_requests_of_java_are_understood(vector) -> None:
    inputs = vector["inputs"]
    assert v2.decode_request(bytes.fromhex(vector["hex"])[4:]) == ReceivedRequest(
        values.v2_request(inputs), reply_to(values.v2_operation(inputs), inputs["version"])
    )


@pytest.mark.parametrize("vector", wire_vectors("v2_response"), ids=by_name)
def test_responses_of_java_are_understood(vector) -> None:
    inputs = vector["inputs"]
    assert v2.decode_response(bytes.fromhex(vector["hex"])[4:]) == Answer(
        values.v2_response(inputs), values.v2_operation(inputs), 0
    )


@pytest.mark.parametrize(
    "vector",
    [v for v in wire_vectors("v2_response") if v["inputs"].get("error_code") != 107],
    ids=by_name,
)
def test_our_responses_are_the_bytes_java_sends(vector) -> None:
    inputs = vector["inputs"]
    to = reply_to(values.v2_operation(inputs), inputs["version"])
    assert v2.encode_response(values.v2_response(inputs), to).hex() == vector["hex"]


def test_a_large_add_is_what_java_sends() -> None:
    (vector,) = wire_vectors("v2_request_sha256")
    payload = bytes((i * 31 + 7) & 0xFF for i in range(20000))
    frame = v2.encode_request(values.v2_request(vector["inputs"], payload))
    assert len(frame) == vector["inputs"]["frame_length_on_wire"]
    assert hashlib.sha256(frame).hexdigest() == vector["hex"]


def test_a_limbo_ledger_is_never_told_in_v2() -> None:
    response = AddResponse(ReturnCode.EUNKNOWNLEDGERSTATE, 1, 2)
    frame = v2.encode_response(response, reply_to(Operation.ADD_ENTRY))
    assert v2.decode_response(frame[4:]).response.rc is ReturnCode.EIO


def test_the_prebuilt_structs_are_the_frames() -> None:
    request = AddRequest(7, 8, KEY, struct.pack(">qqqq", 7, 8, 6, 100) + b"payload")
    frame = v2.encode_request(request)
    start = struct.unpack_from(">ii20sqqq", frame)
    assert start == (len(frame) - 4, v2.ADD_HEADER, KEY, 7, 8, 6)
    response = v2.encode_response(
        AddResponse(ReturnCode.EFENCED, 7, 8), reply_to(Operation.ADD_ENTRY)
    )
    assert v2.ADD_RESPONSE.pack(24, v2.ADD_HEADER, 104, 7, 8) == response


@given(strategies.v2_requests)
def test_requests_survive_the_wire(request) -> None:
    frame = v2.encode_request(request)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    assert v2.decode_request(frame[4:]).request == request


@given(strategies.v2_responses, st.integers(0, 2))
def test_responses_survive_the_wire(response, version) -> None:
    operation = {
        "AddResponse": Operation.ADD_ENTRY,
        "ReadResponse": Operation.READ_ENTRY,
        "BatchReadResponse": Operation.BATCH_READ_ENTRY,
        "AuthResponse": Operation.AUTH,
    }[type(response).__name__]
    frame = v2.encode_response(response, reply_to(operation, version))
    assert v2.decode_response(frame[4:]) == Answer(response, operation, 0)


@given(strategies.v2_requests, st.data())
def test_a_cut_request_is_a_typed_error_or_a_smaller_request(request, data) -> None:
    payload = v2.encode_request(request)[4:]
    cut = data.draw(st.integers(0, len(payload) - 1))
    try:
        v2.decode_request(payload[:cut])
    except RemoteProtocolError:
        return


@given(strategies.v2_responses, st.data())
def test_a_cut_response_is_a_typed_error_or_a_smaller_response(response, data) -> None:
    operation = {
        AddResponse: Operation.ADD_ENTRY,
        ReadResponse: Operation.READ_ENTRY,
        BatchReadResponse: Operation.BATCH_READ_ENTRY,
    }.get(type(response), Operation.AUTH)
    payload = v2.encode_response(response, reply_to(operation))[4:]
    cut = data.draw(st.integers(0, len(payload) - 1))
    try:
        v2.decode_response(payload[:cut])
    except RemoteProtocolError:
        return


@given(
    st.binary(max_size=120), st.sampled_from([b"", b"\x02\x01\0\0", b"\x02\x07\0\0", b"\x02\3\0\0"])
)
def test_garbage_is_a_typed_error_or_a_message(tail, head) -> None:
    for decode in (v2.decode_request, v2.decode_response):
        try:
            decode(head + tail)
        except RemoteProtocolError:
            continue


@pytest.mark.parametrize("op_code", [0, 4, 5, 6, 8, 255])
def test_unknown_op_codes_close_the_connection(op_code) -> None:
    with pytest.raises(RemoteProtocolError, match=f"op code {op_code}"):
        v2.decode_request(struct.pack(">i", v2.pack_header(op_code)) + bytes(100))


@pytest.mark.parametrize("version", [3, 127, 128, 255])
def test_a_newer_version_is_refused_with_a_code(version) -> None:
    head = struct.pack(">i", v2.pack_header(2, 0, version))
    received = v2.decode_request(head + struct.pack(">qq", 4, 5))
    assert isinstance(received.request, BadRequest)
    assert received.request.rc is ReturnCode.EBADVERSION
    assert (received.request.ledger_id, received.request.entry_id) == (4, 5)
    frame = v2.encode_response(ReadResponse(ReturnCode.EBADVERSION, 4, 5), received.reply_to)
    assert frame[4] == version


@pytest.mark.parametrize("size", [0, 15])
def test_an_add_without_its_ids_closes_the_connection(size) -> None:
    head = struct.pack(">i", v2.ADD_HEADER)
    with pytest.raises(RemoteProtocolError):
        v2.decode_request(head + KEY + bytes(size))


@pytest.mark.parametrize("size", [16, 23])
def test_an_add_without_its_lac_is_refused_with_a_code(size) -> None:
    packet = struct.pack(">qqq", 3, 4, 5)[:size]
    received = v2.decode_request(struct.pack(">i", v2.ADD_HEADER) + KEY + packet)
    assert received.request.rc is ReturnCode.EBADREQ
    assert (received.request.ledger_id, received.request.entry_id) == (3, 4)


def test_a_fencing_read_needs_its_key_from_version_2_on() -> None:
    for version, key in ((2, None), (1, b"")):
        head = struct.pack(">i", v2.pack_header(2, 1, version)) + struct.pack(">qq", 1, -1)
        if version == 2:
            with pytest.raises(RemoteProtocolError):
                v2.decode_request(head + KEY[:19])
        else:
            request = v2.decode_request(head).request
            assert request == ReadRequest(1, -1, ReadFlag.FENCE, key or None)


def test_version_0_has_no_flags() -> None:
    head = struct.pack(">i", 2) + struct.pack(">qq", 1, 2)
    assert v2.decode_request(head).request == ReadRequest(1, 2)


@pytest.mark.parametrize("size", [-1, 5, 2**31 - 1])
def test_a_batch_with_an_impossible_size_closes_the_connection(size) -> None:
    head = v2.RESPONSE_HEAD.pack(v2.pack_header(7), 0, 1, 2) + struct.pack(">q", 9)
    with pytest.raises(RemoteProtocolError):
        v2.decode_response(head + struct.pack(">i", size) + b"1234")


def test_an_unknown_error_code_closes_the_connection() -> None:
    with pytest.raises(RemoteProtocolError, match="error code 99"):
        v2.decode_response(v2.RESPONSE_HEAD.pack(v2.pack_header(1), 99, 1, 2))


@pytest.mark.parametrize(
    "request_",
    [
        ForceLedgerRequest(1),
        AddRequest(1, 2, KEY, bytes(40), AddFlag.DEFERRED_SYNC),
        AddRequest(1, 2, b"short", bytes(40)),
        ReadRequest(1, 2, ReadFlag.FENCE),
        ReadRequest(1, 2, ReadFlag.FENCE, b"short"),
        ReadRequest(1, 2, ReadFlag.NONE, None, 4),
        ReadRequest(1, 2, ReadFlag.PIGGYBACK),
        ReadRequest(2**63, 2),
        BatchReadRequest(1, 2, 3, 2**31, 5),
        AuthRequest("\ud800", b""),
    ],
)
def test_what_v2_cannot_say_is_our_error(request_) -> None:
    with pytest.raises(LocalProtocolError):
        v2.encode_request(request_)


def test_flags_need_a_version_with_flags() -> None:
    with pytest.raises(LocalProtocolError):
        v2.encode_request(ReadRequest(1, 2, ReadFlag.HIGH_PRIORITY), version=0)
    with pytest.raises(LocalProtocolError):
        v2.encode_response(StartTlsResponse(ReturnCode.EOK), reply_to(Operation.START_TLS))
    with pytest.raises(LocalProtocolError):
        v2.encode_response(AddResponse(ReturnCode.EOK, 2**63, 0), reply_to(Operation.ADD_ENTRY))
    with pytest.raises(LocalProtocolError):  # Told by closing.
        v2.encode_response(AuthResponse(ReturnCode.EUA, "p", b""), reply_to(Operation.AUTH))


def test_only_a_fencing_read_carries_its_key() -> None:
    assert v2.encode_request(ReadRequest(1, 2, ReadFlag.NONE, KEY)) == v2.encode_request(
        ReadRequest(1, 2)
    )


@pytest.mark.parametrize("version", [1, 2])
def test_an_add_is_of_the_version_that_was_asked_for(version: int) -> None:
    frame = v2.encode_request(AddRequest(3, 4, KEY, bytes(24)), version=version)
    assert frame[4] == version


@pytest.mark.parametrize("stride", [1, 2, 255])
@pytest.mark.parametrize("version", [1, 2])
def test_a_stride_survives_the_wire(version: int, stride: int) -> None:
    request = BatchReadRequest(1, 2, 3, 4, 5, stride=stride)
    frame = v2.encode_request(request, version=version)
    assert v2.decode_request(frame[4:]).request == request


@pytest.mark.parametrize(("stride", "version"), [(0, 2), (256, 2), (2, 0)])
def test_a_stride_that_does_not_fit_is_our_error(stride: int, version: int) -> None:
    with pytest.raises(LocalProtocolError):
        v2.encode_request(BatchReadRequest(1, 2, 3, 4, 5, stride=stride), version=version)


def test_only_a_response_without_a_header_has_none() -> None:
    head = struct.pack(">i", v2.pack_header(3))
    for payload, reason in ((head[:3], "no header"), (head, "lacks authPluginName")):
        with pytest.raises(RemoteProtocolError, match=reason):
            v2.decode_response(payload)
