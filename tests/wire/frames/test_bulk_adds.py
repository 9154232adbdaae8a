"""The bulk form of plain adds against the plain form of the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.codes import AddFlag, Operation, ProtocolVersion, ReturnCode, V2Flag
from wire.frames import v2, v3
from wire.frames.bulk_adds import AddFramesV2, AddFramesV3, take_acks_v2, take_acks_v3
from wire.frames.varint import encode_varint
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest, AddResponse, ReadResponse, ReplyTo

KEY = bytes(range(20))
IDS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
V2_ADD = ReplyTo(ProtocolVersion.V2, Operation.ADD_ENTRY, 2)


def v3_add(txn_id: int) -> ReplyTo:
    return ReplyTo(ProtocolVersion.V3, Operation.ADD_ENTRY, 3, txn_id)


@given(st.lists(st.tuples(IDS, st.binary(max_size=300)), max_size=5))
def test_v2_frames_are_those_of_the_codec(packed: list[tuple[int, bytes]]) -> None:
    ledger_id = LedgerId(7)
    plain = b"".join(
        v2.encode_request(AddRequest(ledger_id, EntryId(entry), KEY, packet))
        for entry, packet in packed
    )
    assert AddFramesV2(KEY).make(packed) == plain


def test_v2_frames_carry_flags() -> None:
    frame = AddFramesV2(KEY, V2Flag.HIGH_PRIORITY).make([(1, b"x" * 40)])
    assert v2.decode_request(frame[4:]).request.flags  # type: ignore[union-attr]


@given(
    IDS,
    st.lists(st.tuples(IDS, IDS, st.binary(max_size=300)), max_size=5),
    st.sampled_from([AddFlag.NONE, AddFlag.RECOVERY]),
)
def test_v3_frames_are_those_of_the_codec(
    ledger: int, adds: list[tuple[int, int, bytes]], flags: AddFlag
) -> None:
    ledger_id = LedgerId(ledger)
    plain = b"".join(
        v3.encode_request(AddRequest(ledger_id, EntryId(entry), KEY, packet, flags), txn_id)
        for txn_id, entry, packet in adds
    )
    made = AddFramesV3(ledger_id, KEY, is_recovery=bool(flags)).make(
        [(entry, packet) for _, entry, packet in adds], [encode_varint(txn) for txn, _, _ in adds]
    )
    assert made == plain


ACKS = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 200, 2**40]),
        IDS,
        IDS,
        st.sampled_from([ReturnCode.EOK] * 6 + [ReturnCode.EFENCED]),
    ),
    max_size=12,
)


@given(ACKS, st.binary(max_size=40))
def test_v2_acks_are_taken_up_to_the_first_that_is_none(
    acks: list[tuple[int, int, int, ReturnCode]], rest: bytes
) -> None:
    frames = [
        v2.encode_response(AddResponse(rc, LedgerId(ledger), EntryId(entry)), V2_ADD)
        for ledger, entry, _, rc in acks
    ]
    good = next((i for i, ack in enumerate(acks) if ack[3]), len(acks))
    buffer = bytearray(b"".join(frames) + (b"" if good < len(acks) else b"\xff" + rest))
    taken = [(ledger, key) for ledger, keys in take_acks_v2(buffer) for key in keys]
    assert taken == [(ledger, entry) for ledger, entry, _, _ in acks[:good]]
    assert buffer.startswith(b"".join(frames[good:]))


@given(ACKS, st.binary(max_size=40))
def test_v3_acks_are_taken_up_to_the_first_that_is_none(
    acks: list[tuple[int, int, int, ReturnCode]], rest: bytes
) -> None:
    frames = [
        v3.encode_response(AddResponse(rc, LedgerId(ledger), EntryId(entry)), v3_add(txn))
        for ledger, entry, txn, rc in acks
    ]
    good = next((i for i, ack in enumerate(acks) if ack[3]), len(acks))
    buffer = bytearray(b"".join(frames) + (b"" if good < len(acks) else b"\xff" + rest))
    taken = [(ledger, key) for ledger, keys in take_acks_v3(buffer) for key in keys]
    assert taken == [(ledger, encode_varint(txn)) for ledger, _, txn, _ in acks[:good]]
    assert buffer.startswith(b"".join(frames[good:]))


@pytest.mark.parametrize("take", [take_acks_v2, take_acks_v3])
@given(data=st.binary(max_size=120))
def test_anything_else_is_left_alone(take: object, data: bytes) -> None:
    buffer = bytearray(data)
    if not take(buffer):  # type: ignore[operator]
        assert buffer == data


@given(cut=st.integers(0, 100), count=st.integers(1, 4))
def test_acks_that_are_not_all_there_wait(cut: int, count: int) -> None:
    for version in ProtocolVersion:
        frames = []
        for number in range(count):
            response = AddResponse(ReturnCode.EOK, LedgerId(5), EntryId(number))
            frames.append(
                v2.encode_response(response, V2_ADD)
                if version is ProtocolVersion.V2
                else v3.encode_response(response, v3_add(300 + number))
            )
        take = take_acks_v2 if version is ProtocolVersion.V2 else take_acks_v3
        data = b"".join(frames)
        buffer = bytearray(data[:cut])
        taken = [key for _, keys in take(buffer) for key in keys]
        buffer += data[cut:]
        taken += [key for _, keys in take(buffer) for key in keys]
        assert len(taken) == count
        assert not buffer


def test_a_read_response_is_no_ack() -> None:
    response = ReadResponse(ReturnCode.EOK, LedgerId(1), EntryId(1), b"x" * 50)
    reply_to = ReplyTo(ProtocolVersion.V3, Operation.READ_ENTRY, 3, 5)
    assert take_acks_v3(bytearray(v3.encode_response(response, reply_to))) == []


def test_a_v3_frame_is_no_recovery_add_unless_that_is_said() -> None:
    plain = v3.encode_request(AddRequest(LedgerId(5), EntryId(6), KEY, b"p"), 7)
    assert AddFramesV3(LedgerId(5), KEY).make([(6, b"p")], [encode_varint(7)]) == plain


def test_every_entry_has_its_key() -> None:
    with pytest.raises(ValueError, match="shorter"):
        AddFramesV3(LedgerId(5), KEY).make([(6, b"p"), (7, b"q")], [encode_varint(7)])


def v3_ack(ledger: int, entry: int, txn: int) -> bytes:
    return v3.encode_response(
        AddResponse(ReturnCode.EOK, LedgerId(ledger), EntryId(entry)), v3_add(txn)
    )


def test_acks_of_one_ledger_are_one_run_whatever_their_sizes() -> None:
    buffer = bytearray(b"".join(v3_ack(5, entry, entry) for entry in (1, 126, 127, 128, 300)))
    assert take_acks_v3(buffer) == [
        (5, [encode_varint(entry) for entry in (1, 126, 127, 128, 300)])
    ]


def test_every_ledger_may_have_many_acks() -> None:
    acks = [(ledger, entry) for ledger in (5, 200, 2**40) for entry in range(40)]
    buffer = bytearray(b"".join(v3_ack(ledger, entry, 300 + entry) for ledger, entry in acks))
    taken = [(ledger, key) for ledger, keys in take_acks_v3(buffer) for key in keys]
    assert taken == [(ledger, encode_varint(300 + entry)) for ledger, entry in acks]
    assert not buffer


@pytest.mark.parametrize("last", [0x80, 0xFF])
@pytest.mark.parametrize("field", ["transaction id", "entry id"])
def test_an_ack_with_an_id_that_does_not_end_is_left_to_the_codec(field: str, last: int) -> None:
    good, bad = v3_ack(5, 300, 400), bytearray(v3_ack(5, 300, 400))
    at = bad.index(encode_varint(400)) + 1 if field == "transaction id" else len(bad) - 1
    bad[at] = last
    buffer = bytearray(good + good + bad + good)
    assert take_acks_v3(buffer) == [(5, [encode_varint(400)] * 2)]
    assert buffer == bad + good


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_transaction_id_written_longer_than_it_has_to_be_is_left_to_the_codec(count: int) -> None:
    ack = v3_ack(5, 6, 300)
    longer = v3_ack(5, 6, 300 & 0x7F | 1 << 7).replace(b"\xac\x01", b"\xac\x00")
    assert v3.decode_response(longer[4:]).txn_id == 300 & 0x7F
    buffer = bytearray(ack * count + longer)
    assert [key for _, keys in take_acks_v3(buffer) for key in keys] == [encode_varint(300)] * count
    assert buffer == longer


@given(IDS, IDS, IDS, st.data())
def test_an_ack_that_is_not_as_written_is_left_to_the_codec(
    ledger: int, entry: int, txn: int, data: st.DataObject
) -> None:
    changed = bytearray(v3_ack(ledger, entry, txn))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    buffer = bytearray(changed)
    taken = [(found, key) for found, keys in take_acks_v3(buffer) for key in keys]
    if taken:
        answer = v3.decode_response(bytes(changed[4:]))
        assert isinstance(answer.response, AddResponse)
        assert answer.response.rc is ReturnCode.EOK
        assert taken == [(answer.response.ledger_id, encode_varint(answer.txn_id))]
        assert not buffer
    else:
        assert buffer == changed
