"""Varints of protobuf: seven bits a byte, the lowest first."""

from __future__ import annotations

from wire.errors import LocalProtocolError


def decode_varint(encoded: bytes) -> int:
    """Return the number in one complete varint."""
    value = shift = 0
    for byte in encoded:
        value |= (byte & 0x7F) << shift
        shift += 7
    return value


def encode_varint(value: int) -> bytes:
    """Return a number as a varint; a negative number takes ten bytes, as in protobuf.

    Raises:
        LocalProtocolError: the number is neither signed nor unsigned 64-bit.
    """
    # Most numbers are this small, and a client spends most of its time in this function with them.
    if 0 <= value < 1 << 21:
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
