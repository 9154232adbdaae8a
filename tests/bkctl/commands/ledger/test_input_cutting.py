from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkctl.commands.ledger.entry_output import delimited, length_prefixed, raw
from bkctl.commands.ledger.input_cutting import Cutter, Framing, FramingError, cutter

MAX = 64


def _cut(by: Cutter, data: bytes, step: int) -> list[bytes]:
    entries = [entry for at in range(0, len(data), step) for entry in by.feed(data[at : at + step])]
    return entries + by.end()


@given(
    entries=st.lists(st.binary(max_size=MAX).filter(lambda e: b"\n" not in e)),
    step=st.integers(1, 40),
)
def test_lines_survive_any_split_of_the_input(entries: list[bytes], step: int) -> None:
    data = b"".join(delimited(b"\n")(1, 0, entry) for entry in entries)
    assert _cut(cutter(Framing.LINES, entry_bytes_max=MAX), data, step) == entries


@given(entries=st.lists(st.binary(max_size=MAX)), step=st.integers(1, 40))
def test_length_prefixed_entries_survive_any_split(entries: list[bytes], step: int) -> None:
    data = b"".join(length_prefixed(1, 0, entry) for entry in entries)
    assert _cut(cutter(Framing.LENGTH_PREFIXED, entry_bytes_max=MAX), data, step) == entries


@given(data=st.binary(max_size=500), step=st.integers(1, 100), size=st.integers(1, MAX))
def test_chunks_have_one_size_and_are_the_input(data: bytes, step: int, size: int) -> None:
    entries = _cut(cutter(Framing.CHUNKS, entry_bytes_max=MAX, chunk_bytes=size), data, step)
    assert b"".join(raw(1, 0, entry) for entry in entries) == data
    assert all(len(entry) == size for entry in entries[:-1])
    assert not entries or 0 < len(entries[-1]) <= size


def test_the_last_line_needs_no_newline() -> None:
    assert _cut(cutter(Framing.LINES, entry_bytes_max=MAX), b"a\n\nb", 2) == [b"a", b"", b"b"]


def test_the_whole_input_is_one_entry_even_when_it_is_empty() -> None:
    assert _cut(cutter(Framing.WHOLE, entry_bytes_max=MAX), b"a\nb", 1) == [b"a\nb"]
    assert _cut(cutter(Framing.WHOLE, entry_bytes_max=MAX), b"", 1) == [b""]


@pytest.mark.parametrize("framing", [Framing.LINES, Framing.WHOLE])
def test_an_entry_that_is_too_large_is_refused_before_it_is_all_there(framing: Framing) -> None:
    by = cutter(framing, entry_bytes_max=MAX)
    by.feed(b"x" * MAX)
    with pytest.raises(FramingError, match="longer than an entry can be"):
        by.feed(b"x")


def test_a_length_that_is_too_large_is_refused_with_its_place() -> None:
    by = cutter(Framing.LENGTH_PREFIXED, entry_bytes_max=MAX)
    with pytest.raises(FramingError, match="byte 5: an entry of 65 bytes"):
        by.feed(b"\0\0\0\1x\0\0\0\x41")


def test_an_input_that_ends_within_an_entry_is_an_error() -> None:
    by = cutter(Framing.LENGTH_PREFIXED, entry_bytes_max=MAX)
    by.feed(b"\0\0\0\5ab")
    with pytest.raises(FramingError, match="ends within the entry at byte 0"):
        by.end()


def test_chunks_larger_than_an_entry_are_refused() -> None:
    with pytest.raises(FramingError, match="chunks of"):
        cutter(Framing.CHUNKS, entry_bytes_max=MAX, chunk_bytes=MAX + 1)
