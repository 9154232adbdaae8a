"""The bulk form of plain reads against the plain form of the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wire.codes import FRAME_BYTES_MAX, Operation, ProtocolVersion, ReadFlag, ReturnCode
from wire.frames import v2, v3
from wire.frames.bulk_reads import (
    answer_v3,
    match_request_v3,
    read_frames_v2,
    take_reads_v2,
)
from wire.ids import EntryId, LedgerId
from wire.messages import AddResponse, ReadRequest, ReadResponse, ReplyTo

IDS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
RCS = st.sampled_from([ReturnCode.EOK] * 4 + [ReturnCode.ENOENTRY, ReturnCode.EIO])


def reply(version: ProtocolVersion, txn_id: int = 0) -> ReplyTo:
    return ReplyTo(version, Operation.READ_ENTRY, version.value, txn_id)


@given(IDS, st.lists(IDS, max_size=6))
def test_frames_are_those_of_the_codec(ledger: int, entries: list[int]) -> None:
    ledger_id = LedgerId(ledger)
    requests = [ReadRequest(ledger_id, EntryId(entry)) for entry in entries]
    assert read_frames_v2(ledger_id, entries) == b"".join(map(v2.encode_request, requests))


def answer_of(
    ledger: int, entry: int, packet: bytes | None, rc: ReturnCode = ReturnCode.EOK
) -> bytes:
    response = ReadResponse(rc, LedgerId(ledger), EntryId(entry), packet)
    return v2.encode_response(response, reply(ProtocolVersion.V2))


ANSWERS = st.tuples(RCS, IDS, IDS, st.binary(max_size=300))


@given(st.lists(ANSWERS, max_size=6), st.integers(0, 40))
def test_answers_are_taken_as_the_codec_reads_them(
    answers: list[tuple[ReturnCode, int, int, bytes]], cut: int
) -> None:
    frames = [
        answer_of(ledger, entry, packet if rc is ReturnCode.EOK else None, rc)
        for rc, ledger, entry, packet in answers
    ]
    stream = b"".join(frames)
    buffer = bytearray(stream[: len(stream) - cut] if cut else stream)
    whole = len(buffer)
    found = take_reads_v2(buffer, FRAME_BYTES_MAX)
    taken = whole - len(buffer)
    assert b"".join(frames[: len(found)]) == stream[:taken]
    for frame, (ledger, entry, packet) in zip(frames, found, strict=False):
        expected = ReadResponse(ReturnCode.EOK, LedgerId(ledger), EntryId(entry), packet)
        assert v2.decode_response(frame[4:]).response == expected
    if len(found) < len(frames):  # What comes next is cut, or no entry.
        refused = answers[len(found)][0] is not ReturnCode.EOK
        assert refused or len(buffer) < len(frames[len(found)])


@given(st.binary(max_size=80))
def test_anything_else_is_left_to_the_codec(data: bytes) -> None:
    buffer = bytearray(data)
    for _ in take_reads_v2(buffer, FRAME_BYTES_MAX):
        payload = data[4 : 4 + int.from_bytes(data[:4], "big")]
        assert isinstance(v2.decode_response(payload).response, ReadResponse)
        data = data[4 + len(payload) :]
    assert buffer == data


def test_an_ack_is_no_read() -> None:
    ack = AddResponse(ReturnCode.EOK, LedgerId(1), EntryId(1))
    to = ReplyTo(ProtocolVersion.V2, Operation.ADD_ENTRY, 2)
    buffer = bytearray(v2.encode_response(ack, to))
    assert (take_reads_v2(buffer, FRAME_BYTES_MAX), len(buffer)) == ([], 28)


def test_a_frame_over_the_limit_is_left_to_who_refuses_it() -> None:
    frame = answer_of(1, 2, b"packet")
    for limit, taken in ((len(frame), 1), (len(frame) - 1, 0)):
        assert len(take_reads_v2(bytearray(frame), limit)) == taken


# A bookie's end -----------------------------------------------------------------------------------

ENTRIES = st.one_of(IDS, st.integers(-(2**63), -1))
TXNS = st.one_of(IDS, st.integers(2**63, 2**64 - 1))


@given(TXNS, IDS, ENTRIES, st.binary(max_size=300), st.integers(-1, 2**63 - 1), st.binary())
def test_plain_requests_are_answered_as_the_codec_answers_them(
    txn: int, ledger: int, entry: int, packet: bytes, lac: int, before: bytes
) -> None:
    request = ReadRequest(LedgerId(ledger), EntryId(entry))
    frame = v3.encode_request(request, txn)
    asked = match_request_v3(before + frame + frame, len(before))
    assert asked is not None
    assert asked.end == len(before + frame)
    assert (asked.ledger_id, asked.entry_id) == (ledger, entry)
    response = ReadResponse(ReturnCode.EOK, LedgerId(ledger), EntryId(entry), packet, lac)
    plain = v3.encode_response(response, reply(ProtocolVersion.V3, txn))
    assert b"".join(answer_v3(asked, packet, lac)) == plain


@given(
    st.sampled_from(
        [
            ReadRequest(LedgerId(5), EntryId(6), ReadFlag.FENCE, b"k" * 20),
            ReadRequest(LedgerId(5), EntryId(6), ReadFlag.HIGH_PRIORITY),
            ReadRequest(LedgerId(5), EntryId(6), ReadFlag.NONE, None, 3),
            ReadRequest(LedgerId(5), EntryId(-1), ReadFlag.PIGGYBACK, None, 3, 1000),
            ReadRequest(LedgerId(5), EntryId(6), ReadFlag.NONE, b"k" * 20),
        ]
    )
)
def test_a_request_for_more_than_an_entry_is_left_to_the_codec(request: ReadRequest) -> None:
    assert match_request_v3(v3.encode_request(request, 7), 0) is None


@given(IDS, IDS, IDS, st.data())
def test_a_request_that_is_not_whole_or_not_as_written_is_left_to_the_codec(
    txn: int, ledger: int, entry: int, data: st.DataObject
) -> None:
    frame = v3.encode_request(ReadRequest(LedgerId(ledger), EntryId(entry)), txn)
    cut = data.draw(st.integers(0, len(frame) - 1))
    assert match_request_v3(frame[:cut], 0) is None
    changed = bytearray(frame)
    changed[cut] ^= data.draw(st.integers(1, 255))
    found = match_request_v3(bytes(changed), 0)
    if found is not None:
        asked = v3.decode_request(bytes(changed[4:]))
        assert asked.request == ReadRequest(LedgerId(found.ledger_id), EntryId(found.entry_id))
        assert v3.encode_request(asked.request, asked.reply_to.txn_id) == changed


def test_a_number_written_longer_than_it_has_to_be_is_left_to_the_codec() -> None:
    frame = v3.encode_request(ReadRequest(LedgerId(5), EntryId(6)), 7)
    longer = bytes((0, 0, 0, frame[3] + 1)) + frame[4:-2] + b"\x10\x86\x00"
    longer = longer.replace(b"\xa2\x06\x04", b"\xa2\x06\x05")
    assert v3.decode_request(longer[4:]).request == ReadRequest(LedgerId(5), EntryId(6))
    assert match_request_v3(longer, 0) is None
