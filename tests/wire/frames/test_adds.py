"""The bulk form of plain adds against the plain form of the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.codes import AddFlag, Operation, ProtocolVersion, ReturnCode, V2Flag
from wire.frames import v2, v3
from wire.frames.adds import AddFramesV2, AddFramesV3, take_acks_v2, take_acks_v3
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
