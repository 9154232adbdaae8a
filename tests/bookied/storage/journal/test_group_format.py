"""Groups: taken whole or not at all, whatever a crash or a disk does to them."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from random import Random

import pytest

from bookied.errors import JournalRecordError
from bookied.storage.files.files import RealFiles
from bookied.storage.journal import format as layout
from bookied.storage.journal import group_format
from bookied.storage.journal.group_reader import LARGE_BYTES
from bookied.storage.journal.reader import open_scan
from tests.bookied.storage.journal.java_rules import JavaFailsError, java_scan
from tests.sim.world.disk import SimFiles

PATH = Path("/1.txn")
GENERATION = 0x1122334455667788
BLOCK = group_format.BLOCK_BYTES
SECTOR = 512


def entry(number: int, size: int) -> bytes:
    """Return a record whose payload tells where it is from, in every word of it."""
    head = layout.IDS.pack(7, number) + struct.pack(">qq", number - 1, 0)
    return layout.entry_record(head + struct.pack(">i", 0x41000000 + number) * (size // 4))


def group(records: list[bytes], offset: int, *, synced: int | None = None) -> bytes:
    head = group_format.group_head(
        records,
        generation=GENERATION,
        offset=offset,
        synced=offset if synced is None else synced,
        alignment=BLOCK,
    )
    return head + b"".join(records)


def journal(*contents: list[bytes]) -> tuple[bytes, list[int]]:
    """Return a journal of some groups, and where each begins; the end comes last."""
    data, starts = group_format.file_start(6, GENERATION, BLOCK), []
    for records in contents:
        starts.append(len(data))
        data += group(records, len(data))
    return data, [*starts, len(data)]


def read(data: bytes, offset: int = 0) -> tuple[list[bytes], int, bool]:
    files = SimFiles(Random(1))
    files.write_atomic(PATH, data)
    scan = open_scan(files, PATH, offset)
    found = [layout.entry_record(record.body) for record in scan]
    return found, scan.end, scan.is_torn


SMALL = [entry(0, 100), entry(1, 40)]
LARGE = [entry(2, 3000), entry(3, 40), entry(4, 9000), entry(5, 700)]
DATA, (FIRST, SECOND, END) = journal(SMALL, LARGE)


def test_what_was_written_is_read_and_java_reads_the_same() -> None:
    assert (FIRST, SECOND, END) == (BLOCK, 2 * BLOCK, 6 * BLOCK)
    for zeros in (0, 4, 100_000):
        assert read(DATA + bytes(zeros)) == (SMALL + LARGE, END, False)
        assert [layout.entry_record(body) for _, body in java_scan(DATA + bytes(zeros))] == (
            SMALL + LARGE
        )


def test_version_5_has_groups_too() -> None:
    data = layout.header(5) + DATA[512:]
    assert read(data) == (SMALL + LARGE, END, False)


@pytest.mark.parametrize("zeros", [0, BLOCK])
def test_a_group_that_was_cut_at_any_byte_is_not_there(zeros: int) -> None:
    for cut in range(SECOND, END):
        torn = DATA[:cut] + bytes((END - cut + zeros) if zeros else 0)
        found, end, is_torn = read(torn)
        assert (found, end) == (SMALL, SECOND), cut
        assert is_torn == (cut > SECOND and any(torn[SECOND:]))


def torn_over_zeros(parts: int, size: int) -> list[bytes]:
    """Return the journal with each subset of the last group's parts on disk, the rest zeros."""
    pieces = [DATA[at : at + size] for at in range(SECOND, END, size)]
    return [
        DATA[:SECOND]
        + b"".join(
            piece if is_kept else bytes(size) for piece, is_kept in zip(pieces, kept, strict=True)
        )
        + bytes(BLOCK)
        for kept in itertools.product([True, False], repeat=parts)
    ]


def test_of_a_group_of_which_any_block_is_missing_nothing_is_read() -> None:
    whole, *torn = torn_over_zeros((END - SECOND) // BLOCK, BLOCK)
    assert read(whole) == (SMALL + LARGE, END, False)
    for data in torn:
        assert read(data)[:2] == (SMALL, SECOND)


def test_of_a_group_of_which_any_sectors_are_missing_nothing_is_read() -> None:
    rng = Random(5)
    for _ in range(2000):
        data = bytearray(DATA + bytes(BLOCK))
        for at in range(SECOND, END, SECTOR):
            if rng.random() < 0.4:
                data[at : at + SECTOR] = bytes(SECTOR)
        is_same = bytes(data[SECOND:END]) == DATA[SECOND:END]
        assert read(bytes(data))[0] == (SMALL + LARGE if is_same else SMALL)


def test_java_reads_nothing_of_a_group_whose_first_block_is_missing() -> None:
    for data in torn_over_zeros((END - SECOND) // BLOCK, BLOCK):
        if not any(data[SECOND : SECOND + BLOCK]):
            assert [body for _, body in java_scan(data)] == [record[4:] for record in SMALL]


def test_java_gets_no_byte_but_zeros_that_was_not_written_there() -> None:
    """Over zeros, whatever part of a group is missing: as in a torn journal of Java's own."""
    for data in torn_over_zeros((END - SECOND) // BLOCK, BLOCK):
        for at, body in java_scan(data):
            sent = DATA[at + 4 : at + 4 + len(body)]
            assert all(got in {0, byte} for got, byte in zip(body, sent, strict=True))


def test_java_starts_on_a_group_that_was_cut_at_any_sector() -> None:
    for cut in range(SECOND, END, SECTOR):
        found = java_scan(DATA[:cut] + bytes(END - cut + BLOCK))
        whole = [record[4:] for record in SMALL + LARGE]
        *sure, _last = [body for _, body in found]
        assert sure == whole[: len(sure)]


def test_over_an_old_group_java_would_not_start() -> None:
    """Why files are not recycled as they are: the counterexample.

    Ours sees by generation and checksum that the group is torn; Java goes on into what was there.
    """
    old_records = [entry(100 + number, 300) for number in range(40)]
    old = group(old_records, SECOND)
    torn = DATA[: SECOND + BLOCK] + old[BLOCK:] + bytes(BLOCK)
    assert read(torn)[:2] == (SMALL, SECOND)
    with pytest.raises(JavaFailsError, match="out of memory"):
        java_scan(torn)


def test_equal_groups_over_each_other_give_java_old_records_as_good_ones() -> None:
    aligned = [entry(200, BLOCK - group_format.HEAD_BYTES - 36), *(entry(n, 988) for n in range(4))]
    new = group(aligned, FIRST)
    old = group([entry(300 + n, 988) for n in range(8)], FIRST)
    start = group_format.file_start(6, GENERATION, BLOCK)
    torn = start + new[:BLOCK] + old[BLOCK:] + bytes(BLOCK)
    assert read(torn)[0] == []
    handed = {layout.IDS.unpack_from(body)[1] for _, body in java_scan(torn)}
    assert handed & set(range(300, 308)), "old entries, whole, replayed by Java"


@pytest.mark.parametrize("at", range(FIRST, END, 97))
def test_a_flipped_bit_in_a_synced_group_stops_the_start_and_one_at_the_end_ends_it(
    at: int,
) -> None:
    data = bytearray(DATA)
    data[at] ^= 0x10
    if at >= SECOND:
        assert read(bytes(data))[:2] == (SMALL, SECOND)
        return
    with pytest.raises(JournalRecordError, match=f"at {SECOND}, are intact") as caught:
        read(bytes(data))
    assert (caught.value.path, caught.value.offset) == (PATH, FIRST)
    assert "skipReplayJournalInvalidRecord" in caught.value.hint


def test_without_syncing_a_lost_group_before_a_whole_one_is_no_damage() -> None:
    start = group_format.file_start(6, GENERATION, BLOCK)
    one = group(SMALL, BLOCK)
    two = group(LARGE, 2 * BLOCK, synced=BLOCK)
    assert read(start + one + two)[0] == SMALL + LARGE
    assert read(start + bytes(BLOCK) + two) == ([], BLOCK, True)
    three = group(SMALL, 6 * BLOCK, synced=2 * BLOCK)
    with pytest.raises(JournalRecordError, match="at offset 4096"):
        read(start + bytes(BLOCK) + two[:-1] + b"x" + three)


def test_a_group_at_another_place_or_of_another_file_is_none() -> None:
    start = group_format.file_start(6, GENERATION, BLOCK)
    assert read(start + group(SMALL, 2 * BLOCK))[0] == []
    other = group_format.file_start(6, GENERATION + 1, BLOCK)
    assert read(other + group(SMALL, BLOCK))[0] == []


@pytest.mark.parametrize("at", [*range(512, 540)])
def test_a_damaged_file_mark_stops_the_start(at: int) -> None:
    data = bytearray(DATA)
    data[at] ^= 0x21
    with pytest.raises(JournalRecordError) as caught:
        read(bytes(data))
    assert caught.value.path == PATH


@pytest.mark.parametrize("zeros", [0, BLOCK])
def test_a_file_cut_while_it_was_begun_is_an_empty_journal(zeros: int) -> None:
    start = group_format.file_start(6, GENERATION, BLOCK)
    for cut in range(len(start)):
        if cut not in range(4, 8):  # Within a sector, and of a version of its own: see format.
            assert read(start[:cut] + bytes((len(start) - cut + zeros) if zeros else 0))[0] == []


@pytest.mark.parametrize("offset", range(0, END + BLOCK, 256))
def test_reading_begins_at_any_position(offset: int) -> None:
    """Our marks are ends of groups; a Java bookie that replayed the file leaves others."""
    places = {at: layout.entry_record(body) for at, body in java_scan(DATA)}
    wanted = [record for at, record in places.items() if at >= offset]
    assert read(DATA + bytes(2 * BLOCK), offset)[0] == wanted


def test_java_marks_lead_behind_what_java_replayed() -> None:
    records_end = END + 4  # Where Java's scan stops at a length of zero.
    assert read(DATA + bytes(BLOCK), records_end)[0] == []
    third = group(SMALL, END)
    assert read(DATA + third, records_end)[0] == SMALL


def test_records_behind_a_mark_are_found_though_heads_before_it_are_damaged() -> None:
    data = bytearray(DATA)
    data[FIRST + 8] ^= 1
    assert read(bytes(data), SECOND)[0] == LARGE
    assert read(bytes(data), SECOND - 4)[0] == LARGE


def test_a_group_whose_records_do_not_fill_it_is_an_error() -> None:
    start = group_format.file_start(6, GENERATION, BLOCK)
    for bad in (struct.pack(">i", 40) + b"x" * 30, struct.pack(">i", -256) + bytes(40), b"\0\0"):
        with pytest.raises(JournalRecordError, match="length") as caught:
            read(start + group([entry(0, 40), bad], BLOCK))
        assert caught.value.offset == 2 * BLOCK - len(bad)


def test_a_group_of_many_megabytes_is_read() -> None:
    records = [entry(number, 900_000) for number in range(6)]
    data, starts = journal(SMALL, records, SMALL)
    assert read(data)[0] == SMALL + records + SMALL
    damaged = bytearray(data)
    damaged[starts[1] + 3_000_000] ^= 1
    with pytest.raises(JournalRecordError, match=f"offset {starts[1]}:"):
        read(bytes(damaged))


def test_a_file_that_was_only_begun_ends_behind_its_mark_and_is_not_torn(tmp_path: Path) -> None:
    path = tmp_path / "5.txn"
    path.write_bytes(group_format.file_start(6, 77, 4096) + bytes(8192))
    scan = open_scan(RealFiles(), path)
    assert (list(scan), scan.end, scan.is_torn) == ([], 4096, False)
    scan.close()


def test_a_group_beyond_what_is_read_at_once_is_read_and_its_size_is_not_trusted() -> None:
    records = [entry(number, 3_000_000) for number in range(6)]
    data, (begin, _, end) = journal(records, SMALL)
    assert begin + LARGE_BYTES < end
    assert read(data)[0] == records + SMALL
    damaged = bytearray(data)
    damaged[begin + 32 : begin + 36] = struct.pack(">I", end - begin)
    with pytest.raises(JournalRecordError, match=f"offset {begin}:"):
        read(bytes(damaged))
