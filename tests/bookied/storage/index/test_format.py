from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookied.errors import IndexFormatError, IndexTruncatedError
from bookied.storage.index import file_names
from bookied.storage.index import format as layout

PATH = Path("/1.idx")


@st.composite
def headers(draw: st.DrawFn) -> layout.IndexHeader:
    key = draw(st.binary(max_size=200))
    bits = draw(st.integers(0, 2**31 - 1))
    version = draw(st.sampled_from([0, 1]))
    lac = draw(st.none() | st.binary(min_size=16, max_size=700)) if version else None
    return layout.IndexHeader(key, bits, lac, version)


@given(header=headers())
def test_a_header_survives_a_round_trip(header: layout.IndexHeader) -> None:
    data = header.encode()
    assert len(data) == layout.HEADER_BYTES
    assert layout.decode_header(data, PATH) == header


def test_version_0_has_no_place_for_an_explicit_lac() -> None:
    header = layout.IndexHeader(b"k" * 20, 1, b"l" * 20, version=0)
    assert layout.decode_header(header.encode(), PATH).explicit_lac is None


@settings(max_examples=300)
@given(at=st.integers(0, 1023), flip=st.integers(1, 255))
def test_damage_is_named_or_stays_in_its_field(at: int, flip: int) -> None:
    header = layout.IndexHeader(b"k" * 20, 1, b"l" * 20)
    data = bytearray(header.encode())
    data[at] ^= flip
    try:
        layout.decode_header(bytes(data), PATH)
    except IndexFormatError:
        assert at < 12 or 32 <= at < 40
    else:
        assert at >= 4


@pytest.mark.parametrize("size", [0, 1, 1023])
def test_a_cut_header_is_told_from_a_damaged_one(size: int) -> None:
    with pytest.raises(IndexTruncatedError):
        layout.decode_header(layout.IndexHeader(b"k").encode()[:size], PATH)
    with pytest.raises(IndexFormatError):
        layout.decode_header(bytes(1024), PATH)


def test_a_page_is_big_endian_in_the_file() -> None:
    page = layout.decode_page(bytes(range(16)))
    assert page[0] == 0x0001020304050607
    assert page[1] == 0x08090A0B0C0D0E0F
    assert set(page[2:]) == {0}
    assert len(page) == layout.PAGE_SLOTS
    assert layout.encode_page(page.tobytes()) == bytes(range(16)).ljust(8192, b"\0")
    noise = Random(1).randbytes(8192)
    assert layout.encode_page(layout.decode_page(noise).tobytes()) == noise


@given(st.dictionaries(st.integers(0, 1023), st.integers(-(2**63), 2**63 - 1), max_size=6))
def test_the_used_slots_of_a_page_end_with_its_last_location(slots: dict[int, int]) -> None:
    page = layout.decode_page(b"")
    for slot, location in slots.items():
        page[slot] = location
    used = [slot for slot, location in slots.items() if location]
    assert layout.used_slots(page) == max(used, default=-1) + 1


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "0/0/0.idx"),
        (1, "0/1/1.idx"),
        (511, "1/ff/1ff.idx"),
        (123456789012, "1a/14/1cbe991a14.idx"),
        (2**63 - 1, "ff/ff/7fffffffffffffff.idx"),
    ],
)
def test_ledgers_are_told_by_their_paths(ledger_id: int, path: str) -> None:
    assert file_names.relative_path(ledger_id) == Path(path)
    assert file_names.ledger_id(Path(path).name) == ledger_id


@pytest.mark.parametrize("name", ["x.idx", "1.idx.rloc", "1.idx.tmp", "ffffffffffffffff.idx", ""])
def test_other_files_are_no_index(name: str) -> None:
    assert file_names.ledger_id(name) is None
