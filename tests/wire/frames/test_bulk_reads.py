"""The bulk form of plain reads against the plain form of the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.codes import Operation, ProtocolVersion, ReadFlag, ReturnCode
from wire.frames import v2, v3
from wire.frames.bulk_reads import (
    answer_v3,
    match_read_v2,
    match_read_v3,
    match_request_v3,
    read_frames_v2,
    read_frames_v3,
)
from wire.ids import EntryId, LedgerId
from wire.messages import AddResponse, ReadRequest, ReadResponse, ReplyTo

IDS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
LACS = st.none() | st.integers(-1, 2**63 - 1)
RCS = st.sampled_from([ReturnCode.EOK] * 4 + [ReturnCode.ENOENTRY, ReturnCode.EIO])


def reply(version: ProtocolVersion, txn_id: int = 0) -> ReplyTo:
    return ReplyTo(version, Operation.READ_ENTRY, version.value, txn_id)


@given(IDS, st.lists(st.tuples(IDS, IDS), max_size=6))
def test_frames_are_those_of_the_codecs(ledger: int, reads: list[tuple[int, int]]) -> None:
    ledger_id = LedgerId(ledger)
    entries = [entry for entry, _ in reads]
    requests = [ReadRequest(ledger_id, EntryId(entry)) for entry in entries]
    assert read_frames_v2(ledger_id, entries) == b"".join(map(v2.encode_request, requests))
    plain = [v3.encode_request(one, txn) for one, (_, txn) in zip(requests, reads, strict=True)]
    assert read_frames_v3(ledger_id, entries, [txn for _, txn in reads]) == b"".join(plain)


@given(RCS, IDS, IDS, st.none() | st.binary(max_size=300))
def test_v2_answers_are_read_as_the_codec_reads_them(
    rc: ReturnCode, ledger: int, entry: int, packet: bytes | None
) -> None:
    packet = packet if rc is ReturnCode.EOK else None
    response = ReadResponse(rc, LedgerId(ledger), EntryId(entry), packet)
    payload = v2.encode_response(response, reply(ProtocolVersion.V2))[4:]
    found = match_read_v2(payload)
    if rc is not ReturnCode.EOK:
        assert found is None
    else:
        assert found == (entry, ledger, entry, packet or b"", None)
        assert v2.decode_response(payload).response.entry == found.packet  # type: ignore[union-attr]


@given(RCS, IDS, IDS, IDS, st.none() | st.binary(max_size=300), LACS, st.none() | IDS)
def test_v3_answers_are_read_as_the_codec_reads_them(
    rc: ReturnCode,
    txn: int,
    ledger: int,
    entry: int,
    packet: bytes | None,
    lac: int | None,
    update_ms: int | None,
) -> None:
    response = ReadResponse(rc, LedgerId(ledger), EntryId(entry), packet, lac, update_ms)
    payload = v3.encode_response(response, reply(ProtocolVersion.V3, txn))[4:]
    found = match_read_v3(payload)
    if rc is ReturnCode.EOK and packet is not None and update_ms is None:
        assert found == (txn, ledger, entry, packet, lac)
    else:
        assert found is None


@given(st.binary(max_size=80))
def test_anything_else_is_left_to_the_codecs(payload: bytes) -> None:
    for match, decode in ((match_read_v2, v2.decode_response), (match_read_v3, v3.decode_response)):
        if match(payload) is not None:  # type: ignore[operator]
            assert isinstance(decode(payload).response, ReadResponse)


@given(st.integers(0, 100))
def test_a_cut_answer_is_none(cut: int) -> None:
    response = ReadResponse(ReturnCode.EOK, LedgerId(5), EntryId(6), b"p" * 50, 3)
    payload = v3.encode_response(response, reply(ProtocolVersion.V3, 9))[4:]
    if cut < len(payload):
        assert match_read_v3(payload[:cut]) is None


def test_an_ack_is_no_read() -> None:
    ack = AddResponse(ReturnCode.EOK, LedgerId(1), EntryId(1))
    to = ReplyTo(ProtocolVersion.V2, Operation.ADD_ENTRY, 2)
    assert match_read_v2(v2.encode_response(ack, to)[4:]) is None


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


def test_every_read_has_its_transaction() -> None:
    with pytest.raises(ValueError, match="shorter"):
        read_frames_v3(LedgerId(5), [6, 7], [1])
