"""Varints, as protobuf has them: seven bits a byte, the lowest first."""

from __future__ import annotations

from wire.errors import LocalProtocolError


def decode_varint(encoded: bytes) -> int:
    """Return the number in one whole varint."""
    value = shift = 0
    for byte in encoded:
        value |= (byte & 0x7F) << shift
        shift += 7
    return value


def encode_varint(value: int) -> bytes:
    """Write a number as a varint; negative ones take ten bytes, as protobuf has them.

    Raises:
        LocalProtocolError: it is neither a signed nor an unsigned 64-bit number.
    """
    if 0 <= value < 1 << 21:  # Most numbers, and most of a client's time in here.
        if value < 1 << 7:
            return bytes((value,))
        if value < 1 << 14:
            return bytes((value & 0x7F | 0x80, value >> 7))
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if not -(1 << 63) <= value < 1 << 64:
        raise LocalProtocolError(f"{value} does not fit 64 bits")
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 -- seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
