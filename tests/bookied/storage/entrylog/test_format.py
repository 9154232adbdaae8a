from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookied.errors import (
    BadEntryLengthError,
    CorruptError,
    EntryLogFormatError,
    EntryLogRecordError,
    LedgersMapError,
    MissingEntryError,
    MissingLogError,
    WrongEntryError,
)
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.reader import EntryLogReader
from bookied.storage.entrylog.scan import EntryLogRecord, open_scan, read_ledgers_map
from tests.sim.world.disk import SimFiles

DIRECTORY = Path("/ledgers")
PATH = DIRECTORY / "5.log"

LEDGERS = st.dictionaries(st.integers(0, 2**63 - 1), st.integers(20, 2**40), max_size=30)


def a_log(seed: int = 1) -> tuple[bytes, dict[int, tuple[int, int, bytes]]]:
    """Return a finished log, and its entries by location."""
    rng = Random(seed)
    entries: dict[int, tuple[int, int, bytes]] = {}
    ledgers: dict[int, int] = {}
    body = b""
    for number in range(12):
        ledger = rng.randrange(4)
        packet = struct.pack(">qqqq", ledger, number, -1, 0) + rng.randbytes(rng.randrange(300))
        at = layout.HEADER_BYTES + len(body) + 4
        entries[layout.location(5, at)] = (ledger, number, packet)
        ledgers[ledger] = ledgers.get(ledger, 0) + len(packet) + 4
        body += layout.LENGTH.pack(len(packet)) + packet
    header = layout.LogHeader(1, layout.HEADER_BYTES + len(body), len(ledgers))
    return header.encode() + body + layout.encode_ledgers_map(ledgers), entries


def on_disk(data: bytes) -> SimFiles:
    files = SimFiles(Random(1))
    files.mkdirs(DIRECTORY)
    files.write_atomic(PATH, data)
    return files


def scan(data: bytes) -> tuple[list[EntryLogRecord], CorruptError | None, bool]:
    found: list[EntryLogRecord] = []
    try:
        reading = open_scan(on_disk(data), PATH)
        found.extend(reading)
    except CorruptError as error:
        return found, error, False
    return found, None, reading.is_torn


@given(ledgers=LEDGERS.filter(bool))
def test_a_ledgers_map_survives_a_round_trip(ledgers: dict[int, int]) -> None:
    header = layout.LogHeader(1, 5000, len(ledgers))
    data = layout.encode_ledgers_map(ledgers)
    assert layout.decode_ledgers_map(data, header, PATH) == ledgers
    padded = data + b"\0" * 100 + layout.DIRECT_PADDING * 50
    assert layout.decode_ledgers_map(padded, header, PATH) == ledgers


def test_a_large_ledgers_map_is_cut_into_records() -> None:
    ledgers = dict.fromkeys(range(25_000), 7)
    data = layout.encode_ledgers_map(ledgers)
    assert len(data) == 16 * 25_000 + 3 * 24
    header = layout.LogHeader(1, 5000, 25_000)
    assert layout.decode_ledgers_map(data, header, PATH) == ledgers


@settings(max_examples=200)
@given(at=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_damaged_map_is_not_trusted_or_still_true(at: int, flip: int) -> None:
    ledgers = {3: 100, 9: 200}
    data = bytearray(layout.encode_ledgers_map(ledgers))
    at %= len(data)
    data[at] ^= flip
    try:
        found = layout.decode_ledgers_map(bytes(data), layout.LogHeader(1, 5000, 2), PATH)
    except LedgersMapError:
        return
    # The rows carry no checksum; everything around them is checked.
    assert at >= layout.MAP_HEAD.size
    assert len(found) <= 2


@pytest.mark.parametrize("cut", [1, 16, 24, 39])
def test_a_cut_map_is_not_trusted(cut: int) -> None:
    data = layout.encode_ledgers_map({3: 100, 9: 200})[:-cut]
    with pytest.raises(LedgersMapError):
        layout.decode_ledgers_map(data, layout.LogHeader(1, 5000, 2), PATH)


@pytest.mark.parametrize("header", [(0, 4000, 1), (1, 0, 0), (1, 10**9, 1), (1, 500, 1)])
def test_a_map_that_is_nowhere_is_not_looked_for(header: tuple[int, int, int]) -> None:
    data = layout.LogHeader(*header).encode() + bytes(5000)
    with pytest.raises(LedgersMapError):
        read_ledgers_map(on_disk(data), PATH)


def test_a_finished_log_is_scanned_and_its_map_read() -> None:
    data, entries = a_log()
    found, error, is_torn = scan(data)
    assert (error, is_torn) == (None, False)
    assert {r.location: (r.ledger_id, r.entry_id, r.body) for r in found} == entries
    ledgers = read_ledgers_map(on_disk(data), PATH)
    assert sum(ledgers.values()) == sum(len(body) + 4 for _, _, body in entries.values())


def test_a_map_is_read_in_a_log_with_space_for_many_more_entries() -> None:
    data, _ = a_log()
    ledgers = read_ledgers_map(on_disk(data), PATH)
    reserved = data + bytes(3 << 20)
    assert read_ledgers_map(on_disk(reserved), PATH) == ledgers
    with pytest.raises(LedgersMapError, match="bytes after"):
        read_ledgers_map(on_disk(reserved + b"x"), PATH)


def test_a_cut_log_gives_the_entries_before_the_cut() -> None:
    data, entries = a_log()
    whole, _, _ = scan(data)
    for cut in range(layout.HEADER_BYTES, len(data), 13):
        for rest in (b"", bytes(3000)):
            found, error, _ = scan(data[:cut] + rest)
            assert error is None
            complete = [r for r in whole if (r.location & 0xFFFFFFFF) + len(r.body) <= cut]
            if not rest:
                assert found == complete
            else:
                # In reserved space the last one may be cut off into zeros: digests tell.
                assert found[: len(complete)] == complete
                assert len(found) <= len(complete) + 1
    assert entries


def test_a_log_nothing_was_written_to_is_empty() -> None:
    for data in (b"", bytes(4096)):
        assert scan(data) == ([], None, False)


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"BKLO", 0),
        (b"XKLO" + bytes(2000), 0),
        (layout.HEADER.pack(b"BKLO", 2, 0, 0).ljust(1024, b"\0"), 4),
    ],
)
def test_what_is_no_log_is_named(data: bytes, offset: int) -> None:
    _, error, _ = scan(data)
    assert isinstance(error, EntryLogFormatError)
    assert (error.path, error.offset) == (PATH, offset)


@pytest.mark.parametrize(
    "record", [layout.LENGTH.pack(15) + bytes(15), layout.RECORD.pack(16, -2, 0)]
)
def test_an_impossible_record_ends_the_scan_with_an_error(record: bytes) -> None:
    data, entries = a_log()
    at = layout.HEADER_BYTES
    found, error, _ = scan(data[:at] + record + data[at:])
    assert isinstance(error, EntryLogRecordError)
    assert (found, error.offset) == ([], at)
    assert entries


def test_the_direct_variant_of_java_is_read() -> None:
    packet = struct.pack(">qqqq", 1, 2, -1, 0) + b"payload"
    filler = layout.RECORD.pack(3068, -1, 0).ljust(3072, b"\0")
    entry = layout.LENGTH.pack(len(packet)) + packet
    block = entry.ljust(4096, layout.DIRECT_PADDING)
    data = layout.LogHeader().encode() + filler + block + entry + bytes(9000)
    found, error, _ = scan(data)
    assert error is None
    assert [record.location & 0xFFFFFFFF for record in found] == [4100, 8196]
    assert {record.body for record in found} == {packet}


@settings(max_examples=300)
@given(at=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_read_gives_the_entry_or_an_error_whatever_was_flipped(at: int, flip: int) -> None:
    data, entries = a_log()
    damaged = bytearray(data)
    at %= len(damaged)
    damaged[at] ^= flip
    reader = EntryLogReader(on_disk(bytes(damaged)), [DIRECTORY])
    for location, (ledger, entry, packet) in entries.items():
        offset = location & 0xFFFFFFFF
        if offset - 4 <= at < offset + len(packet):
            continue  # Only digests protect its payload.
        try:
            assert reader.read(location, ledger, entry) == packet
        except EntryLogFormatError:
            assert at < layout.HEADER.size
        except BadEntryLengthError:
            # What follows a record is not a record: its own length may be what is wrong.
            assert 0 <= at - offset - len(packet) < layout.RECORD.size


def read(data: bytes, location: int, ledger: int, entry: int) -> bytes:
    return EntryLogReader(on_disk(data), [DIRECTORY]).read(location, ledger, entry)


def test_what_a_wrong_location_points_at_is_never_given_out() -> None:
    data, entries = a_log()
    (first, (ledger, entry, packet)), (second, _) = list(entries.items())[:2]
    assert read(data, first, ledger, entry) == packet
    with pytest.raises(WrongEntryError, match="expected entry"):
        read(data, second, ledger, entry)
    with pytest.raises(MissingLogError):
        read(data, first + (1 << 32), ledger, entry)
    with pytest.raises(MissingEntryError):
        read(data, layout.location(5, len(data) + 100), ledger, entry)
    with pytest.raises(MissingEntryError):
        read(data, layout.location(5, 20), ledger, entry)
    with pytest.raises(CorruptError):
        read(data, first + 1, ledger, entry)
    with pytest.raises(BadEntryLengthError):
        read(data + bytes(100), layout.location(5, len(data) + 20), ledger, entry)
    cut = data[: (first & 0xFFFFFFFF) + 20]
    with pytest.raises(MissingEntryError):
        read(cut, first, ledger, entry)


def test_long_entries_are_read_whole() -> None:
    packet = struct.pack(">qqqq", 1, 2, -1, 0) + Random(1).randbytes(100_000)
    data = layout.LogHeader().encode() + layout.LENGTH.pack(len(packet)) + packet
    assert read(data, layout.location(5, 1028), 1, 2) == packet


@pytest.mark.parametrize(
    ("name", "log_id", "used"),
    [
        ("0.log", 0, 0),
        ("7fffffff.log", 2**31 - 1, 2**31 - 1),
        ("80000000.log", None, None),
        ("f.log.compacting", None, 15),
        ("f.log.e.compacted", None, 15),
        ("F.log", None, None),
        ("lastId", None, None),
        ("5.log.x", None, None),
    ],
)
def test_logs_are_told_by_their_names(name: str, log_id: int | None, used: int | None) -> None:
    assert layout.log_id(name) == log_id
    assert layout.used_log_id(name) == used


def test_a_negative_length_without_padding_behind_it_is_damage() -> None:
    """The next block may begin with a record: without the look those in between would be hidden."""
    record = struct.pack(">iqq", 1020, 7, 0).ljust(1024, b"x")
    data = bytearray(layout.LogHeader().encode() + record * 6)
    data[2048] |= 0x80
    found, error, _ = scan(bytes(data))
    assert len(found) == 1
    assert isinstance(error, EntryLogRecordError)
