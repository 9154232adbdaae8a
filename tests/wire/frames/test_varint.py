"""Varints against protobuf's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.errors import LocalProtocolError
from wire.frames.varint import decode_varint, encode_varint
from wire.pb import bookkeeper_pb2 as pb


@given(st.integers(-(2**63), 2**64 - 1))
def test_varints_are_protobufs(value) -> None:
    encoded = encode_varint(value)
    assert decode_varint(encoded) == value % 2**64
    message = pb.BKPacketHeader(version=3, operation=1, txnId=value % 2**64)
    assert message.SerializeToString().endswith(b"\x18" + encoded)


@pytest.mark.parametrize("bits", range(64))
def test_a_varint_is_as_short_as_it_can_be(bits: int) -> None:
    for value in (2**bits - 1, 2**bits):
        encoded = encode_varint(value)
        assert len(encoded) == max(1, -(-value.bit_length() // 7))
        assert decode_varint(encoded) == value


@pytest.mark.parametrize("value", [-(2**63) - 1, 2**64])
def test_what_does_not_fit_64_bits_is_refused(value: int) -> None:
    with pytest.raises(LocalProtocolError, match="64 bits"):
        encode_varint(value)
