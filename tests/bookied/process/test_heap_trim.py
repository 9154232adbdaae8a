"""Freed memory goes back to the system."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from bookied.process.heap_trim import HeapTrim

PIECES, PIECE_BYTES = 100_000, 1000

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is not glibc"
)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_what_stays_free_between_two_looks_is_given_back() -> None:
    trim = HeapTrim()
    trim.look()
    trim.look()  # What other tests have freed.
    pieces = [bytes(PIECE_BYTES) for _ in range(PIECES)]
    kept = pieces[::50]  # What keeps the rest from being given back by itself.
    del pieces
    freed = resident_bytes()
    trim.look()
    assert freed - resident_bytes() < PIECES * PIECE_BYTES // 2  # It may be needed in a moment.
    trim.look()
    assert freed - resident_bytes() > PIECES * PIECE_BYTES // 2
    assert len(kept) == PIECES // 50
