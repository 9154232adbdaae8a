"""Framing."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import strategies
from tests.wire.vectors import load
from wire.codes import FRAME_BYTES_MAX, Operation, ProtocolVersion, ReturnCode
from wire.errors import RemoteProtocolError
from wire.frames import v2, v3
from wire.framing import ClientConnection, ServerConnection
from wire.messages import NEED_DATA, AddResponse, ReplyTo, StartTlsRequest, StartTlsResponse

requests = st.one_of(
    strategies.v2_requests.map(lambda r: (r, v2.encode_request(r))),
    strategies.v3_requests.map(lambda r: (r, v3.encode_request(r, 5))),
)


@given(st.lists(requests, max_size=4), st.data())
def test_requests_survive_any_split_of_their_bytes(pairs, data) -> None:
    stream = b"".join(frame for _, frame in pairs)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    connection, found = ServerConnection(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        connection.receive_data(stream[start:end])
        while (event := connection.next_event()) is not NEED_DATA:
            found.append(event.request)
    assert found == [request for request, _ in pairs]
    assert connection.buffer == b""


def test_every_split_point_of_every_recorded_frame() -> None:
    for exchange in load("wire.json")["exchanges"]:
        for step in exchange["steps"]:
            if step["closed"] or step["send"] is None:
                continue
            frame = bytes.fromhex(step["send"])
            for cut in range(len(frame)):
                connection = ServerConnection()
                connection.receive_data(frame[:cut])
                assert connection.next_event() is NEED_DATA
                connection.receive_data(frame[cut:])
                assert connection.next_event() is not NEED_DATA


def recorded_steps() -> list[dict]:
    return [step for exchange in load("wire.json")["exchanges"] for step in exchange["steps"]]


def test_java_closes_where_we_raise() -> None:
    for step in recorded_steps():
        connection = ServerConnection()
        connection.receive_data(bytes.fromhex(step["send"]))
        # This one counts as a first frame here; in the recording V2 came before it.
        if step["closed"] and step["label"] != "v3 again":
            with pytest.raises(RemoteProtocolError):
                connection.next_event()
        else:
            connection.next_event()


def test_every_truncation_of_every_recorded_payload_is_a_typed_error_or_a_message() -> None:
    frames = {step[side] for step in recorded_steps() for side in ("send", "expect")} - {None}
    for frame in frames:
        payload = bytes.fromhex(frame)[4:]
        for end in range(min(len(payload), 120)):
            for codec in (v2, v3):
                for decode in (codec.decode_request, codec.decode_response):
                    with contextlib.suppress(RemoteProtocolError):
                        decode(payload[:end])


def test_every_recorded_answer_is_understood_and_written_alike() -> None:
    for exchange in load("wire.json")["exchanges"]:
        for step in exchange["steps"]:
            if not step["expect"]:
                continue
            sent, expected = bytes.fromhex(step["send"]), bytes.fromhex(step["expect"])
            server = ServerConnection()
            server.receive_data(sent)
            reply_to = server.next_event().reply_to
            client = ClientConnection(reply_to.version)
            client.receive_data(expected)
            answer = client.next_event()
            codec = v2 if reply_to.version is ProtocolVersion.V2 else v3
            assert codec.encode_response(answer.response, reply_to) == expected, step["label"]


@pytest.mark.parametrize("size", [0, -1, -(2**31), FRAME_BYTES_MAX - 3, 2**31 - 1])
def test_an_impossible_length_is_refused_at_the_prefix(size) -> None:
    for connection in (ServerConnection(), ClientConnection(ProtocolVersion.V3)):
        connection.receive_data(struct.pack(">i", size))
        with pytest.raises(RemoteProtocolError, match=f"frame of {size} bytes"):
            connection.next_event()


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request; a bookie serves HTTP on another port"),
        (b"POST /api HTTP/1.1\r\n", "an HTTP request"),
        (b"HTTP/1.1 400 Bad Request\r\n", "an HTTP response; this is the port of an HTTP server"),
        (b"\x15\x03\x03\0\x02\x02\x46", "TLS; the port expects TLS from the first byte on"),
    ],
)
def test_another_protocol_is_named(begin: bytes, said: str) -> None:
    for connection in (ServerConnection(), ClientConnection(ProtocolVersion.V2)):
        connection.receive_data(begin)
        with pytest.raises(RemoteProtocolError, match=said):
            connection.next_event()


def test_the_limit_counts_the_prefix() -> None:
    connection = ServerConnection(frame_bytes_max=100)
    connection.receive_data(struct.pack(">i", 96))
    assert connection.next_event() is NEED_DATA
    connection = ServerConnection(frame_bytes_max=100)
    connection.receive_data(struct.pack(">i", 97))
    with pytest.raises(RemoteProtocolError):
        connection.next_event()


def test_v3_is_told_by_its_first_byte() -> None:
    connection = ServerConnection()
    assert connection.version is None
    frames = {
        ProtocolVersion.V3: v3.encode_request(strategies.ForceLedgerRequest(1), 1),
        ProtocolVersion.V2: v2.encode_request(strategies.ReadRequest(1, 2)),
    }
    for version in (ProtocolVersion.V3, ProtocolVersion.V2, ProtocolVersion.V3):
        connection.receive_data(frames[version])
        connection.next_event()
        assert connection.version is version


def test_tls_where_a_frame_must_be_is_named_on_both_ends() -> None:
    for connection in (ServerConnection(), ClientConnection(ProtocolVersion.V3)):
        connection.receive_data(b"\x16\x03\x01\x02\x00")
        with pytest.raises(RemoteProtocolError, match="START_TLS comes first"):
            connection.next_event()


def test_one_more_answer_to_start_tls_is_read_as_such_on_a_v2_connection() -> None:
    # Java's bookie sends it where a handshake ends before the client is authenticated.
    client = ClientConnection(ProtocolVersion.V2)
    to = ReplyTo(ProtocolVersion.V3, Operation.START_TLS, 3, 0)
    client.receive_data(v3.encode_response(StartTlsResponse(ReturnCode.EIO), to))
    assert client.next_event().operation is Operation.START_TLS


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
@pytest.mark.parametrize("rc", [ReturnCode.EOK, ReturnCode.EBADREQ])
def test_tls_is_started_in_v3_on_any_connection(protocol, rc) -> None:
    client, server = ClientConnection(protocol), ServerConnection()
    server.receive_data(client.send(StartTlsRequest(), 6))
    received = server.next_event()
    assert (received.request, server.version) == (StartTlsRequest(), ProtocolVersion.V3)
    client.receive_data(v3.encode_response(StartTlsResponse(rc), received.reply_to))
    answer = client.next_event()
    assert (answer.operation, answer.txn_id, answer.response.rc) == (Operation.START_TLS, 6, rc)
    server.receive_data(client.send(strategies.ReadRequest(4, 5), 7))
    assert server.next_event().reply_to.version is protocol


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
def test_a_client_speaks_one_protocol(protocol) -> None:
    client, server = ClientConnection(protocol), ServerConnection()
    request = strategies.ReadRequest(4, 5)
    server.receive_data(client.send(request, 6))
    received = server.next_event()
    assert (received.request, server.version) == (request, protocol)
    add = ReplyTo(protocol, Operation.ADD_ENTRY, protocol.value, 9)
    codec = v2 if protocol is ProtocolVersion.V2 else v3
    client.receive_data(codec.encode_response(AddResponse(ReturnCode.EOK, 1, 2), add))
    assert client.next_event().response == AddResponse(ReturnCode.EOK, 1, 2)
    assert client.next_event() is NEED_DATA
