"""V3 frames."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import strategies
from tests.wire import values
from tests.wire.vectors import by_name, wire_vectors
from wire.codes import AddFlag, Operation, ProtocolVersion, ReadFlag, ReturnCode
from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.frames import v3
from wire.frames.varint import decode_varint, encode_varint
from wire.messages import (
    AddRequest,
    AddResponse,
    Answer,
    AuthRequest,
    AuthResponse,
    BadRequest,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    ErrorResponse,
    ReadRequest,
    ReplyTo,
)
from wire.pb import bookkeeper_pb2 as pb

KEY = bytes(range(20))


def reply_to(operation: Operation, txn_id: int, header_version: int = 3) -> ReplyTo:
    return ReplyTo(ProtocolVersion.V3, operation, header_version, txn_id)


@pytest.mark.parametrize("vector", wire_vectors("v3_request"), ids=by_name)
def test_our_requests_say_what_java_says(vector) -> None:
    # Java's encoder writes field 100 first: compared after parsing (wire.md 4.1).
    ours = v3.encode_request(values.v3_request(vector["inputs"]), vector["inputs"]["txn_id"])
    parsed = pb.Request.FromString(bytes.fromhex(vector["hex"])[4:])
    parsed.ClearField("requestContext")
    assert pb.Request.FromString(ours[4:]) == parsed


@pytest.mark.parametrize("vector", wire_vectors("v3_request"), ids=by_name)
def test_requests_of_java_are_understood(vector) -> None:
    received = v3.decode_request(bytes.fromhex(vector["hex"])[4:])
    inputs = vector["inputs"]
    assert received.request == values.v3_request(inputs)
    assert received.reply_to == attrs.evolve(
        reply_to(Operation[inputs["op"]], inputs["txn_id"]), priority=inputs.get("priority", 0)
    )


@pytest.mark.parametrize("vector", wire_vectors("v3_response"), ids=by_name)
def test_our_responses_are_the_bytes_java_sends(vector) -> None:
    inputs = vector["inputs"]
    to = reply_to(Operation[inputs["op"]], inputs["txn_id"])
    frame = v3.encode_response(values.v3_response(vector["name"], inputs), to)
    assert frame.hex() == vector["hex"]


@pytest.mark.parametrize("vector", wire_vectors("v3_response"), ids=by_name)
def test_responses_of_java_are_understood(vector) -> None:
    inputs = vector["inputs"]
    assert v3.decode_response(bytes.fromhex(vector["hex"])[4:]) == Answer(
        values.v3_response(vector["name"], inputs), Operation[inputs["op"]], inputs["txn_id"]
    )


@given(strategies.v3_requests, strategies.txn_ids)
def test_requests_survive_the_wire(request, txn_id) -> None:
    received = v3.decode_request(v3.encode_request(request, txn_id)[4:])
    assert received.request == request
    assert received.reply_to.txn_id == txn_id


OPERATIONS = {
    "AddResponse": Operation.ADD_ENTRY,
    "ReadResponse": Operation.READ_ENTRY,
    "AuthResponse": Operation.AUTH,
    "WriteLacResponse": Operation.WRITE_LAC,
    "ReadLacResponse": Operation.READ_LAC,
    "BookieInfoResponse": Operation.GET_BOOKIE_INFO,
    "StartTlsResponse": Operation.START_TLS,
    "ForceLedgerResponse": Operation.FORCE_LEDGER,
    "ListEntriesResponse": Operation.GET_LIST_OF_ENTRIES_OF_LEDGER,
    "ErrorResponse": Operation.READ_ENTRY,
}


@given(strategies.v3_responses, strategies.txn_ids)
def test_responses_survive_the_wire(response, txn_id) -> None:
    operation = OPERATIONS[type(response).__name__]
    frame = v3.encode_response(response, reply_to(operation, txn_id))
    assert v3.decode_response(frame[4:]) == Answer(response, operation, txn_id)


@given(strategies.v3_requests, strategies.txn_ids, st.data())
def test_a_cut_request_is_a_typed_error_or_another_request(request, txn_id, data) -> None:
    payload = v3.encode_request(request, txn_id)[4:]
    try:
        v3.decode_request(payload[: data.draw(st.integers(0, len(payload) - 1))])
    except RemoteProtocolError:
        return


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x0a\x06\x08\x03\x10\x01\x18\x01"]))
def test_garbage_is_a_typed_error_or_a_message(tail, head) -> None:
    for decode in (v3.decode_request, v3.decode_response):
        try:
            decode(head + tail)
        except RemoteProtocolError:
            continue


@given(strategies.add_requests(), strategies.txn_ids)
def test_the_fast_add_is_the_one_protobuf_writes(request, txn_id) -> None:
    plain = attrs.evolve(request, flags=AddFlag.NONE)
    fast = v3.add_request(txn_id, plain.ledger_id, plain.entry_id, plain.master_key, plain.entry)
    message = pb.Request()
    message.header.version, message.header.operation = 3, Operation.ADD_ENTRY
    message.header.txnId = txn_id
    message.addRequest.ledgerId, message.addRequest.entryId = plain.ledger_id, plain.entry_id
    message.addRequest.masterKey, message.addRequest.body = plain.master_key, plain.entry
    assert fast[4:] == message.SerializeToString()
    assert int.from_bytes(fast[:4], "big") == len(fast) - 4
    assert fast == v3.encode_request(plain, txn_id)


@pytest.mark.parametrize("size", [0, 19, 21, 127, 128, 300])
def test_an_add_may_have_a_master_key_of_any_length(size) -> None:
    request = AddRequest(1, 2, bytes(size), bytes(40))
    payload = v3.encode_request(request, 3)[4:]
    assert v3.decode_request(payload).request == request
    assert v3.match_add(payload) is None


@pytest.mark.parametrize("size", [0, 15, 16, 23])
def test_an_add_without_its_lac_is_refused_with_a_code(size) -> None:
    payload = v3.add_request(3, 4, 5, KEY, bytes(size))[4:]
    request = v3.decode_request(payload).request
    assert isinstance(request, BadRequest)
    assert (request.rc, request.ledger_id, request.entry_id) == (ReturnCode.EBADREQ, 4, 5)
    assert v3.match_add(payload) is None


def test_the_header_of_an_auth_request_is_copied_whole() -> None:
    to = ReplyTo(ProtocolVersion.V3, Operation.AUTH, 2, 9, 100)
    answer = v3.encode_response(AuthResponse(ReturnCode.EOK, "p", b"t"), to)
    header = pb.Response.FromString(answer[4:]).header
    assert (header.version, header.txnId, header.priority) == (2, 9, 100)


@pytest.mark.parametrize("operation", [o for o in Operation if o is not Operation.BATCH_READ_ENTRY])
def test_a_bare_status_is_a_refusal_and_never_a_success(operation) -> None:
    message = pb.Response(status=ReturnCode.EUA)
    message.header.version, message.header.operation, message.header.txnId = 3, operation, 9
    answer = v3.decode_response(message.SerializeToString())
    assert answer == Answer(ErrorResponse(ReturnCode.EUA), operation, 9)
    message.status = ReturnCode.EOK
    with pytest.raises(RemoteProtocolError, match="EOK and no response"):
        v3.decode_response(message.SerializeToString())


@given(strategies.add_requests(), strategies.txn_ids, st.binary(max_size=9))
def test_a_matched_add_is_what_the_plain_path_reads(request, txn_id, before) -> None:
    frame = v3.encode_request(request, txn_id)
    found = v3.match_add(before + frame[4:], len(before), len(before) + len(frame) - 4)
    if request.flags not in {AddFlag.NONE, AddFlag.RECOVERY}:
        assert found is None
        return
    assert found.is_recovery == bool(request.flags)
    data = before + frame[4:]
    assert data[found.packet_at : found.packet_end] == request.entry
    assert found.master_key == request.master_key
    assert decode_varint(found.txn) == txn_id
    assert (decode_varint(found.ledger), decode_varint(found.entry)) == (
        request.ledger_id,
        request.entry_id,
    )
    assert v3.add_response(found.txn, found.ledger, found.entry) == v3.encode_response(
        AddResponse(ReturnCode.EOK, request.ledger_id, request.entry_id),
        reply_to(Operation.ADD_ENTRY, txn_id),
    )


@given(strategies.add_requests(), strategies.txn_ids, st.data())
def test_an_add_with_any_byte_changed_matches_only_what_protobuf_reads_alike(
    request, txn_id, data
) -> None:
    flags = data.draw(st.sampled_from([AddFlag.NONE, AddFlag.RECOVERY]))
    payload = bytearray(v3.encode_request(attrs.evolve(request, flags=flags), txn_id)[4:])
    begin, end = st.integers(0, min(60, len(payload) - 1)), st.integers(-3, -1)
    at = data.draw(st.one_of(begin, end))
    payload[at] = data.draw(st.integers(0, 255))
    found = v3.match_add(bytes(payload))
    if found is None:
        return
    read = v3.decode_request(bytes(payload)).request
    assert isinstance(read, AddRequest)
    assert bytes(payload[found.packet_at : found.packet_end]) == read.entry
    assert found.master_key == read.master_key
    assert read.flags is (AddFlag.RECOVERY if found.is_recovery else AddFlag.NONE)


@pytest.mark.parametrize(
    "operation", [Operation.RANGE_READ_ENTRY, Operation.RANGE_ADD_ENTRY, Operation.BATCH_READ_ENTRY]
)
def test_operations_nobody_serves_are_refused_with_a_code(operation) -> None:
    message = pb.Request()
    message.header.version, message.header.operation, message.header.txnId = 3, operation, 9
    message.header.priority = 7
    received = v3.decode_request(message.SerializeToString())
    assert isinstance(received.request, BadRequest)
    answer = v3.encode_response(ErrorResponse(received.request.rc), received.reply_to)
    parsed = pb.Response.FromString(answer[4:])
    assert parsed.header == message.header
    assert parsed.status == ReturnCode.EBADREQ


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_header_is_refused_with_a_code(version) -> None:
    message = pb.Request()
    message.MergeFromString(v3.encode_request(ReadRequest(4, 5), 1)[4:])
    message.header.version = version
    request = v3.decode_request(message.SerializeToString()).request
    assert isinstance(request, BadRequest)
    assert (request.rc, request.ledger_id, request.entry_id) == (ReturnCode.EBADVERSION, 4, 5)


@pytest.mark.parametrize("name", ["version", "operation"])
def test_unknown_enum_numbers_in_the_header_close_the_connection(name) -> None:
    number = {"version": (1, 4), "operation": (2, 99)}[name]
    good = {1: 3, 2: 1, 3: 1} | dict([number])
    header = b"".join(bytes((field << 3, value)) for field, value in good.items())
    payload = b"\x0a" + bytes((len(header),)) + header
    with pytest.raises(RemoteProtocolError, match=name):
        v3.decode_request(payload)


@pytest.mark.parametrize(
    "operation",
    [
        Operation.READ_ENTRY,
        Operation.ADD_ENTRY,
        Operation.READ_LAC,
        Operation.WRITE_LAC,
        Operation.FORCE_LEDGER,
        Operation.GET_LIST_OF_ENTRIES_OF_LEDGER,
        Operation.AUTH,
    ],
)
def test_a_request_without_its_body_closes_the_connection(operation) -> None:
    message = pb.Request()
    message.header.version, message.header.operation, message.header.txnId = 3, operation, 9
    with pytest.raises(RemoteProtocolError, match="without its"):
        v3.decode_request(message.SerializeToString())


def test_a_bookie_info_request_without_its_body_asks_for_nothing() -> None:
    message = pb.Request()
    message.header.version, message.header.operation, message.header.txnId = 3, 8, 9
    assert v3.decode_request(message.SerializeToString()).request == BookieInfoRequest(0)


@pytest.mark.parametrize("status", [ReturnCode.EIO, ReturnCode.EOK])
def test_the_inner_status_counts_where_the_outer_is_ok(status) -> None:
    message = pb.Response()
    message.header.version, message.header.operation, message.header.txnId = 3, 2, 9
    message.status = status
    message.addResponse.status = ReturnCode.EFENCED
    message.addResponse.ledgerId, message.addResponse.entryId = 1, 2
    rc = v3.decode_response(message.SerializeToString()).response.rc
    assert rc is (ReturnCode.EFENCED if status is ReturnCode.EOK else status)


@pytest.mark.parametrize(
    ("request_", "txn_id"),
    [
        (AddRequest(2**63, 0, KEY, bytes(40)), 1),
        (AddRequest(0, -(2**63) - 1, KEY, bytes(40)), 1),
        (AddRequest(0, 0, KEY, bytes(40)), -1),
        (AddRequest(0, 0, KEY, bytes(40)), 2**64),
        (ReadRequest(2**63, 0), 1),
        (ReadRequest(0, 0), 2**64),
        (AuthRequest("\ud800", b""), 1),
    ],
)
def test_what_does_not_fit_its_field_is_our_error(request_, txn_id) -> None:
    with pytest.raises(LocalProtocolError):
        v3.encode_request(request_, txn_id)


def test_a_response_that_does_not_fit_is_our_error() -> None:
    with pytest.raises(LocalProtocolError):
        v3.encode_response(AddResponse(ReturnCode.EOK, 2**63, 0), reply_to(Operation.ADD_ENTRY, 1))
    with pytest.raises(LocalProtocolError):
        encode_varint(2**64)


def test_what_v3_cannot_say_is_our_error() -> None:
    with pytest.raises(LocalProtocolError):
        v3.encode_request(BatchReadRequest(1, 2, 3, 4, 5), 1)
    with pytest.raises(LocalProtocolError):
        v3.encode_request(ReadRequest(1, 2, ReadFlag.FENCE | ReadFlag.PIGGYBACK, KEY), 1)
    with pytest.raises(LocalProtocolError):
        v3.encode_response(
            BatchReadResponse(ReturnCode.EOK, 1, 2, 3), reply_to(Operation.BATCH_READ_ENTRY, 1)
        )
