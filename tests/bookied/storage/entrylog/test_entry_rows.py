"""Entries cut out of one piece of a log, as reading each of them by itself gives them."""

from __future__ import annotations

import struct
from array import array
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookied.errors import CorruptError
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.entry_rows import (
    ALIKE_MIN,
    ROW_BYTES_MAX,
    SPACING_BYTES,
    EntryRows,
    bytes_to_read,
    cut_rows,
)
from bookied.storage.entrylog.reader import EntryLogReader
from tests.sim.world.disk import SimFiles
from wire.frames.entry_packets import Packets

A, PATH = Path("/a"), Path("/a/3.log")
BASE = layout.location(3, layout.HEADER_BYTES)
EVERYTHING = 1 << 60


def packet(ledger: int, entry: int, size: int) -> bytes:
    return struct.pack(">qqqq", ledger, entry, -1, 0) + b"p" * size


class Log:
    """A log with entries 5, 6, … of ledger 1, and others or padding in between."""

    def __init__(self, records: list[tuple[str, int]]) -> None:
        self.body = b""
        self.packets: list[bytes] = []
        self.locations: list[int] = []
        for kind, size in records:
            if kind == "padding":
                self.body += layout.DIRECT_PADDING * (4 + size)
                continue
            ledger = 1 if kind == "ours" else 2
            packet_ = packet(ledger, 5 + len(self.packets), size)
            if ledger == 1:
                self.packets.append(packet_)
                self.locations.append(BASE + len(self.body) + 4)
            self.body += struct.pack(">i", len(packet_)) + packet_

    def reader(self) -> EntryLogReader:
        files = SimFiles(Random(1))
        files.mkdirs(A)
        log = files.open_append(PATH)
        log.write([layout.LogHeader().encode(), self.body])
        log.close()
        return EntryLogReader(files, [A])

    def readable(self) -> list[bytes]:
        """Return the entries up to the first that cannot be read by itself."""
        reader, found = self.reader(), []
        for entry, location in enumerate(self.locations, 5):
            try:
                found.append(reader.read(location, 1, entry))
            except CorruptError:
                break
        return found


def taken(rows: EntryRows | None) -> list[bytes]:
    if rows is None:
        return []
    sized = b"".join(rows.pieces)
    assert len(sized) == rows.size_bytes
    packets = Packets(sized, rows.entries)
    assert packets == Packets.split(sized)
    return list(packets)


records = st.lists(
    st.tuples(st.sampled_from(["ours", "ours", "ours", "another's"]), st.integers(0, 90)),
    max_size=20,
).map(lambda rest: [("ours", 30), *rest])


@given(records)
def test_all_entries_of_a_ledger_are_cut_out_of_what_lies_between_them(
    contents: list[tuple[str, int]],
) -> None:
    log = Log(contents)
    rows = cut_rows(log.body, BASE, log.locations, 1, 5, bytes_max=EVERYTHING, tail_bytes=0)
    assert taken(rows) == log.packets


def test_what_lies_together_is_one_piece() -> None:
    log = Log([("ours", 10), ("ours", 20), ("another's", 0), ("ours", 30)])
    rows = cut_rows(log.body, BASE, log.locations, 1, 5, bytes_max=EVERYTHING, tail_bytes=0)
    assert rows is not None
    assert list(map(len, rows.pieces)) == [2 * 36 + 30, 36 + 30]


@given(records, st.integers(0, 1000), st.integers(0, 255))
def test_no_entry_is_taken_that_could_not_be_read_by_itself(
    contents: list[tuple[str, int]], at: int, value: int
) -> None:
    log = Log(contents)
    at %= len(log.body)
    log.body = log.body[:at] + bytes([value]) + log.body[at + 1 :]
    readable = log.readable()
    found = taken(
        log.reader().read_rows(log.locations, 1, 5, bytes_max=EVERYTHING, until=EVERYTHING)
    )
    assert found == readable[: len(found)]


@given(records, st.integers(0, 2000))
def test_nothing_is_taken_that_may_not_be_written_yet(
    contents: list[tuple[str, int]], written: int
) -> None:
    log = Log(contents)
    # As a reader may find it: some blocks are there already, and some are not.
    until = BASE + written
    found = taken(log.reader().read_rows(log.locations, 1, 5, bytes_max=EVERYTHING, until=until))
    assert found == log.packets[: len(found)]
    assert all(
        location + len(packet_) <= until
        for location, packet_ in zip(log.locations, found, strict=False)
    )


@given(records, st.integers(0, 2000))
def test_no_more_is_taken_than_there_is_room_for(
    contents: list[tuple[str, int]], bytes_max: int
) -> None:
    log = Log(contents)
    rows = cut_rows(log.body, BASE, log.locations, 1, 5, bytes_max=bytes_max, tail_bytes=0)
    found = taken(rows)
    assert found == log.packets[: len(found)]
    following = log.packets[len(found) : len(found) + 1]
    assert len(Packets.join(found).sized) <= bytes_max or not found
    assert not following or len(Packets.join(found + following).sized) > bytes_max


def test_an_entry_that_fits_to_the_byte_is_taken() -> None:
    log = Log([("ours", 10), ("ours", 20)])
    for bytes_max, count in ((len(log.body), 2), (len(log.body) - 1, 1), (45, 0)):
        rows = cut_rows(log.body, BASE, log.locations, 1, 5, bytes_max=bytes_max, tail_bytes=0)
        assert taken(rows) == log.packets[:count]


def test_an_entry_with_a_location_that_is_none_ends_the_row() -> None:
    log = Log([("ours", 10), ("ours", 20), ("ours", 30)])
    for nowhere in (0, 700, BASE - 100, BASE + (1 << 40)):
        locations = [log.locations[0], nowhere, log.locations[2]]
        rows = cut_rows(log.body, BASE, locations, 1, 5, bytes_max=EVERYTHING, tail_bytes=0)
        assert taken(rows) == log.packets[:1]


def test_a_location_inside_a_log_s_header_is_for_who_says_so() -> None:
    log = Log([("ours", 10)])
    locations = [layout.location(3, 500)]
    reader = log.reader()
    assert reader.read_rows(locations, 1, 5, bytes_max=9999, until=EVERYTHING) is None
    assert reader.read_rows_now(locations, 1, 5, bytes_max=9999, until=EVERYTHING) is None


@given(st.lists(st.integers(1, 20_000), max_size=100), st.booleans(), st.integers(0, 1 << 20))
def test_a_read_is_as_long_as_entries_are_near(
    steps: list[int],
    zeros: bool,  # noqa: FBT001
    entry_bytes: int,
) -> None:
    locations = [BASE]
    for step in steps:
        locations.append(locations[-1] + step)
    if zeros:
        locations += [0, 0, 0]
    size = bytes_to_read(locations, entry_bytes)
    assert size <= ROW_BYTES_MAX + SPACING_BYTES
    if max(steps, default=0) <= SPACING_BYTES and sum(steps) <= ROW_BYTES_MAX and not zeros:
        assert size >= sum(steps)


@pytest.mark.parametrize("entry_bytes", [10_000, 60_000, 200_000])
def test_entries_as_large_as_those_before_them_are_read_together(entry_bytes: int) -> None:
    locations = [BASE + number * entry_bytes for number in range(100)]
    assert bytes_to_read(locations) < entry_bytes, "nothing is known of their size"
    assert bytes_to_read(locations, entry_bytes) >= ROW_BYTES_MAX - entry_bytes


def test_large_entries_that_lie_far_apart_are_read_one_by_one() -> None:
    locations = [BASE + number * 100_000 for number in range(100)]
    assert 20_000 < bytes_to_read(locations, 20_000) < 21_000


def test_what_is_taken_here_and_there_does_not_hold_all_that_was_read() -> None:
    log = Log([("ours", 10), ("another's", 4000)] * 20)
    held = [
        log.reader().read_rows(log.locations, 1, 5, bytes_max=EVERYTHING, until=EVERYTHING),
        cut_rows(log.body, BASE, log.locations, 1, 5, bytes_max=EVERYTHING, tail_bytes=0),
    ]
    for rows in held:
        assert rows is not None
        assert taken(rows) == log.packets
        kept = {id(piece.obj): piece.obj for piece in map(memoryview, rows.pieces)}
        assert sum(len(one) for one in kept.values()) <= 2 * rows.size_bytes


def test_locations_out_of_order_make_no_read_longer() -> None:
    locations = [BASE, *[BASE + 500 * SPACING_BYTES] * 511, *[BASE - 100] * 512]
    assert bytes_to_read(locations) <= ROW_BYTES_MAX + SPACING_BYTES


@given(
    st.integers(2, 3 * ALIKE_MIN),
    st.integers(0, 2000),
    records,
    st.integers(0, 40_000),
    st.integers(0, 40_000),
)
def test_entries_of_one_size_are_taken_as_if_each_was_looked_at(
    alike: int, size: int, contents: list[tuple[str, int]], bytes_max: int, cut_bytes: int
) -> None:
    log = Log([("ours", size)] * alike + contents)
    data = log.body[: max(len(log.body) - cut_bytes, 4)]
    together, singly = (
        cut_rows(data, BASE, locations, 1, 5, bytes_max=bytes_max)
        for locations in (array("q", log.locations), log.locations)
    )
    assert taken(together) == taken(singly)


between = st.lists(
    st.sampled_from([("another's", 9), ("another's", 70), ("padding", 3)]), max_size=2
)
"""What lies between entries of one size, each time the same."""


@given(
    between,
    st.integers(2, 3 * ALIKE_MIN),
    st.integers(0, 5000),
    st.integers(0, 255),
    st.integers(0, 5000),
    st.integers(0, 5000),
)
def test_entries_in_even_steps_are_taken_as_if_each_was_looked_at(
    between: list[tuple[str, int]], alike: int, at: int, value: int, bytes_max: int, cut_bytes: int
) -> None:
    log = Log([("ours", 50), *between] * alike)
    data = bytearray(log.body)
    data[at % len(data)] = value
    data = data[: max(len(data) - cut_bytes, 4)]
    together, singly = (
        cut_rows(data, BASE, locations, 1, 5, bytes_max=bytes_max)
        for locations in (array("q", log.locations), log.locations)
    )
    assert taken(together) == taken(singly)


@given(
    st.sampled_from([8, 16, 32, 40]),
    st.integers(-1100, 8),
    st.integers(ALIKE_MIN, 1200),
    st.integers(1, 7),
    st.integers(0, 2),
)
def test_a_run_may_cross_where_higher_bytes_of_the_ids_change(
    bits: int, before: int, count: int, stride: int, others: int
) -> None:
    first = max(0, (1 << bits) + before)
    packets = [packet(1, entry_id, 4) for entry_id in range(first, first + stride * count, stride)]
    between = [packet(2, 0, 9)] * others
    body = Packets.join([one for ours in packets for one in (ours, *between)]).sized
    locations = array("q", range(BASE + 4, BASE + 4 + len(body), len(body) // count))
    found = cut_rows(
        body, BASE, locations, 1, first, bytes_max=EVERYTHING, tail_bytes=0, stride=stride
    )
    assert taken(found) == packets


@pytest.mark.parametrize("at", range(layout.RECORD.size))
@pytest.mark.parametrize("damaged", [0, 1, ALIKE_MIN, 2 * ALIKE_MIN - 1])
def test_a_run_ends_before_a_head_that_is_another(at: int, damaged: int) -> None:
    log = Log([("ours", 100)] * (2 * ALIKE_MIN))
    body = bytearray(log.body)
    body[log.locations[damaged] - BASE - 4 + at] ^= 0x81
    found = cut_rows(body, BASE, array("q", log.locations), 1, 5, bytes_max=EVERYTHING)
    # A wrong length may show at the entry behind, and takes its own entry with it.
    assert taken(found) in (log.packets[:damaged], log.packets[: max(0, damaged - 1)])


@pytest.mark.parametrize("damaged", [0, 1, ALIKE_MIN, 2 * ALIKE_MIN - 2])
def test_a_run_ends_before_an_entry_that_no_record_follows(damaged: int) -> None:
    """The entry's own length may be wrong."""
    log = Log([("ours", 100), ("another's", 100)] * (2 * ALIKE_MIN))
    body = bytearray(log.body)
    behind = log.locations[damaged] - BASE + len(log.packets[damaged])
    body[behind : behind + 4] = b"\xff\xff\xff\xf0"
    found = cut_rows(body, BASE, array("q", log.locations), 1, 5, bytes_max=EVERYTHING)
    assert taken(found) == log.packets[:damaged]


def test_a_run_ends_where_the_index_has_an_entry_elsewhere() -> None:
    log = Log([("ours", 100)] * (2 * ALIKE_MIN))
    for elsewhere in (0, log.locations[0]):
        locations = array("q", log.locations)
        locations[ALIKE_MIN] = elsewhere
        found = cut_rows(log.body, BASE, locations, 1, 5, bytes_max=EVERYTHING)
        assert taken(found) == log.packets[:ALIKE_MIN]


@given(records, st.data())
def test_rows_in_a_hostile_order_are_the_entries_that_reads_one_by_one_give(
    contents: list[tuple[str, int]], data: st.DataObject
) -> None:
    """An index that is damaged may name any places, in any order."""
    log = Log(contents)
    odd = st.sampled_from(
        [0, 1, BASE, BASE + 1, BASE - 4, BASE + (1 << 32), 1 << 62, *log.locations]
    )
    locations = data.draw(st.lists(odd, min_size=1, max_size=20))
    reader = log.reader()
    for now in (reader.read_rows, reader.read_rows_now):
        try:
            rows = now(locations, 1, 5, bytes_max=9999, until=EVERYTHING)
        except CorruptError:
            continue
        for number, packet in enumerate(taken(rows)):
            assert reader.read(locations[number], 1, 5 + number) == packet
