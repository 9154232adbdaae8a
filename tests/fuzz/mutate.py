"""Bytes from bytes: what a fuzzer does to an input that reached something."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Final

SIZE_MAX: Final = 64 * 1024

_INTERESTING: Final = (
    0,
    1,
    2,
    7,
    8,
    127,
    128,
    255,
    256,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
)
_LONGS: Final = (-1, 0, 1, -(2**63), 2**63 - 1, 2**62, 2**31, -0x2, -0x1000, -0x2000)
_TOKENS: Final = (
    b'{"v":1}', b"[" * 5000, b'{"a":' * 3000, b"1e999", b"Infinity", b"NaN", b"-0", b'"\\ud800"',
    b"9" * 5000, b"\n", b"\r\n", b"\t", b"=", b": ", b"{ ", b"}", b"<", b'"', b"\\", b"\xff\xfe",
    b"\xc3\x28", b"\0" * 16, b"\xff" * 16, b"\x0a", b"${a}", b"include = x\n", b"0x10", b"\\u00",
    b"BookieMetadataFormatVersion\t", b"BKLG", b"BKLE", "٣".encode(),
)  # fmt: skip


def mutated(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return one input of the corpus, changed in one to five places."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        rng.choice(_CHANGES)(rng, data, corpus)
    return bytes(data[:SIZE_MAX])


def _at(rng: random.Random, data: bytearray, room: int = 0) -> int:
    return rng.randint(0, max(0, len(data) - room))


def _flip(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _byte(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice(_INTERESTING) & 0xFF


def _number(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    packed = rng.choice(
        (
            struct.pack(">I", rng.choice(_INTERESTING)),
            struct.pack(">H", rng.choice(_INTERESTING) & 0xFFFF),
            struct.pack(">q", rng.choice(_LONGS)),
            struct.pack("<q", rng.choice(_LONGS)),
            struct.pack(">i", len(data) - rng.randint(-4, 12)),
        )
    )
    at = _at(rng, data, len(packed))
    data[at : at + len(packed)] = packed


def _digits(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    at = _at(rng, data)
    data[at:at] = str(rng.choice(_LONGS)).encode()


def _insert(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    at = _at(rng, data)
    data[at:at] = rng.randbytes(rng.randint(1, 16))


def _token(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    at = _at(rng, data)
    data[at : at + rng.choice((0, 0, 4))] = rng.choice(_TOKENS)


def _cut(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    del data[_at(rng, data) :]


def _drop(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    at = _at(rng, data)
    del data[at : at + rng.randint(1, 16)]


def _repeat(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    at = _at(rng, data)
    data[at:at] = data[at : at + rng.randint(1, 64)] * rng.choice((1, 2, 50))


def _splice(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    other = rng.choice(corpus)
    at, begin = _at(rng, data), rng.randint(0, len(other))
    data[at:] = other[begin:]


_CHANGES: Final = (
    _flip, _flip, _byte, _number, _number, _digits, _insert, _token, _cut, _drop, _repeat, _splice,
)  # fmt: skip
