"""Reading protobuf that may be damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.codes import AddFlag
from wire.errors import FormatError, MetadataFormatError, RemoteProtocolError
from wire.frames import protobuf, v2, v3
from wire.frames.varint import encode_varint
from wire.framing import ServerConnection
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import decode_metadata
from wire.messages import AddRequest, AuthRequest, ReadRequest
from wire.pb import bookkeeper_pb2 as pb
from wire.pb import data_formats_pb2 as stored
from wire.records.bookie_service_info import decode_service_info

NO_TEXT = b"\xff\xfe"


def with_length(field: int, value: bytes) -> bytes:
    """One length-delimited field; its number and size fit a byte each."""
    return bytes((field << 3 | 2, len(value))) + value


def test_a_missing_required_field_is_named() -> None:
    with pytest.raises(RemoteProtocolError, match="AuthMessage lacks payload"):
        protobuf.parse(pb.AuthMessage, with_length(1, b"a"), RemoteProtocolError)


def test_bytes_that_are_no_message_are_told_as_the_error_asked_for() -> None:
    for failure in (RemoteProtocolError, FormatError):
        with pytest.raises(failure, match="no AuthMessage"):
            protobuf.parse(pb.AuthMessage, b"\x0a\x7f", failure)


def test_a_message_nested_without_end_is_refused() -> None:
    groups = b"\x0b" * 5000 + b"\x0c" * 5000  # A field nobody knows, in itself.
    with pytest.raises(RemoteProtocolError):
        protobuf.parse(pb.Request, groups, RemoteProtocolError)


READ = v3.encode_request(ReadRequest(LedgerId(1), EntryId(2)), 3)[4:]
UNKNOWN = b"\x78\0"
MERGED = b"\xaa\x06\0"
HEADER_AGAIN = with_length(1, b"\x08\x03")
UNKNOWN_INSIDE = with_length(1, UNKNOWN * 60)
GROUP = b"\x7b\x7c"


@pytest.mark.parametrize("field", [UNKNOWN, MERGED, HEADER_AGAIN, UNKNOWN_INSIDE, GROUP])
def test_a_large_message_of_many_fields_is_refused_unparsed(field: bytes) -> None:
    payload = READ + field * (1_000_000 // len(field))
    with pytest.raises(RemoteProtocolError, match=r"over 256 fields|wire type 3"):
        v3.decode_request(payload)
    with pytest.raises(RemoteProtocolError):
        v3.require_few_fields(payload[:65536], is_begin=True)


@pytest.mark.parametrize("field", [UNKNOWN, with_length(1, b""), GROUP])
def test_a_large_login_of_v2_that_consists_of_many_fields_is_refused_unparsed(
    field: bytes,
) -> None:
    login = with_length(1, b"plugin") + with_length(2, b"token")
    payload = b"\x02\x03\0\0" + login + field * (1_000_000 // len(field))
    with pytest.raises(RemoteProtocolError, match=r"over 256 fields|wire type 3"):
        v2.decode_request(payload)
    with pytest.raises(RemoteProtocolError):
        ServerConnection.require_quick_to_parse(payload[:65536])
    plain = b"\x02\x03\0\0" + with_length(1, b"plugin") + b"\x12\xff\xff\x03" + bytes(65000)
    ServerConnection.require_quick_to_parse(plain)
    ServerConnection.require_quick_to_parse(b"\x02\x01\0\0" + field * 32768)


LONG = bytes(protobuf.FIELD_BYTES_MAX + 1)


@pytest.mark.parametrize(
    "payload",
    [
        READ + b"\x7a" + encode_varint(len(LONG)) + LONG,
        v3.encode_request(AddRequest(LedgerId(1), EntryId(2), LONG, bytes(100)), 5)[4:],
        v3.encode_request(AuthRequest("plugin", LONG), 5)[4:],
        v2.encode_request(AuthRequest("plugin", LONG))[4:],
    ],
    ids=["unknown", "key", "token", "V2 token"],
)
def test_a_long_field_besides_the_entry_is_refused_by_its_begin(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="has a field of 65537 bytes"):
        ServerConnection().decode(payload)
    with pytest.raises(RemoteProtocolError, match="has a field of 65537 bytes"):
        ServerConnection.require_quick_to_parse(payload[:60_000])


def test_what_a_small_message_consists_of_is_not_looked_at() -> None:
    fields = (protobuf.UNCOUNTED_BYTES - len(READ)) // len(UNKNOWN)
    assert fields > protobuf.FIELDS_MAX
    assert v3.decode_request(READ + UNKNOWN * fields) == v3.decode_request(READ)


@pytest.mark.parametrize("broken", [b"\x82\x06\xff", b"\x78" + b"\xff" * 11, b"\x79\0", b"\xff"])
def test_a_large_message_with_an_incomplete_field_is_refused(broken: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        v3.decode_request(READ + b"\x7a\xff\x7f" + bytes(16383) + broken)


@given(
    size=st.integers(0, 20_000),
    flags=st.sampled_from([AddFlag.NONE, AddFlag.RECOVERY, AddFlag.HIGH_PRIORITY]),
    pairs=st.integers(0, 60),
    cut=st.integers(1, 20_000),
)
def test_requests_that_clients_send_are_taken_by_their_begin_too(
    size: int, flags: AddFlag, pairs: int, cut: int
) -> None:
    message = pb.Request.FromString(
        v3.encode_request(
            AddRequest(LedgerId(1), EntryId(2), b"k" * 20, bytes(24 + size), flags), 5
        )[4:]
    )
    for number in range(pairs):
        message.requestContext.add(key=f"key {number}", value="value")
    payload = message.SerializeToString()
    assert isinstance(v3.decode_request(payload).request, AddRequest)
    v3.require_few_fields(payload[:cut], is_begin=True)


def test_a_plugin_name_that_is_no_text_closes_the_connection() -> None:
    auth = with_length(1, NO_TEXT) + with_length(2, b"")
    header = with_length(1, bytes((8, 3, 16, 5, 24, 1)))
    request = header + b"\xb2\x06" + bytes((len(auth),)) + auth
    response = header + b"\x10\x00\xb2\x06" + bytes((len(auth),)) + auth
    for decode, payload in (
        (v2.decode_request, b"\x02\x03\0\0" + auth),
        (v2.decode_response, b"\x02\x03\0\0" + auth),
        (v3.decode_request, request),
        (v3.decode_response, response),
    ):
        with pytest.raises(RemoteProtocolError):
            decode(payload)


@pytest.mark.parametrize("body", [b"", b"\x0a\x01a"])
def test_a_v2_auth_message_needs_name_and_payload(body) -> None:
    with pytest.raises(RemoteProtocolError, match="lacks"):
        v2.decode_request(b"\x02\x03\0\0" + body)


def test_a_registration_with_a_string_that_is_no_text_is_damaged() -> None:
    whole = {1: b"i", 3: b"h", 4: b"p"}
    for broken in (1, 3, 4):
        fields = {**whole, broken: NO_TEXT}
        endpoint = b"".join(with_length(n, v) for n, v in fields.items()) + b"\x10\x01"
        with pytest.raises(FormatError):
            decode_service_info(with_length(6, endpoint), "a:1")
    for key, value in ((NO_TEXT, b"v"), (b"k", NO_TEXT)):
        pair = with_length(1, key) + with_length(2, value)
        with pytest.raises(FormatError):
            decode_service_info(with_length(7, pair), "a:1")


def test_metadata_with_a_string_that_is_no_text_is_damaged() -> None:
    def decode(member: bytes, key: bytes) -> None:
        message = stored.LedgerMetadataFormat(
            quorumSize=1, ensembleSize=1, length=0, state=1, digestType=4, password=b""
        )
        data = message.SerializeToString()
        data += with_length(6, with_length(1, member) + b"\x10\0")
        data += with_length(11, with_length(1, key))
        decode_metadata(b"BookieMetadataFormatVersion\t3\n" + bytes((len(data),)) + data)

    decode(b"a:1", b"k")
    for member, key in ((NO_TEXT, b"k"), (b"a:1", NO_TEXT)):
        with pytest.raises(MetadataFormatError):
            decode(member, key)
