"""Entries by location, whatever becomes of the logs meanwhile."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
import time
from pathlib import Path
from random import Random

import pytest

from bookied.errors import EntryLogRecordError, MissingLogError
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.entrylog.reader import (
    NEAR_BYTES,
    READ_NOW_BYTES_MAX,
    EntryLogReader,
    WantedEntry,
)
from bookied.storage.entrylog.scan import open_scan
from bookied.storage.entrylog.writer import EntryLogWriter
from bookied.storage.files.files import ReadFile, RealFiles
from tests.bookied.storage.entrylog.chosen_directories import ChosenDirectories
from tests.sim.world.disk import SimFiles

A, B = Path("/a"), Path("/b")


def packet(entry_id: int) -> bytes:
    return struct.pack(">qqqq", 1, entry_id, -1, 0) + b"p" * 64


def append(writer: EntryLogWriter, entry_id: int) -> int:
    """Append an entry and write it; return its location."""
    blob = layout.LENGTH.pack(len(packet(entry_id))) + packet(entry_id)
    base = writer.reserve(len(blob))
    writer.append(blob)
    writer.hand_over()
    return base + layout.LENGTH.size


def begin(files: SimFiles, size_bytes_max: int = 1200) -> EntryLogWriter:
    for directory in (A, B):
        files.mkdirs(directory)
    return EntryLogWriter(
        files,
        ChosenDirectories([A, B]),
        on_fatal=lambda _error: None,
        settings=LogSettings(size_bytes_max=size_bytes_max),
    )


def test_a_log_that_was_begun_elsewhere_after_it_was_listed_is_found() -> None:
    files = SimFiles(Random(1))
    writer = begin(files)
    first = append(writer, 0)
    writer.sync()
    reader = EntryLogReader(files, [A, B])

    def no_room(operation: str, path: Path) -> OSError | None:
        if operation == "write" and path == A / "1.log":
            # It is there, and empty, when a reader looks for another log.
            assert reader.read(first, 1, 0) == packet(0)
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return None

    files.fault = no_room
    second, third = append(writer, 1), append(writer, 2)
    assert second >> 32 == 1
    with pytest.raises(OSError, match="No space"):
        writer.sync()
    writer.sync()
    assert [reader.read(second, 1, 1), reader.read(third, 1, 2)] == [packet(1), packet(2)]
    reader.check(second, 1, 1)
    reader.close()
    writer.stop()


def test_a_log_that_is_gone_is_missing() -> None:
    files = SimFiles(Random(1))
    writer = begin(files)
    location = append(writer, 0)
    writer.sync()
    reader = EntryLogReader(files, [A, B], open_logs_max=1)
    assert reader.read(location, 1, 0) == packet(0)
    files.remove(A / "0.log")
    reader.forget(0)
    with pytest.raises(MissingLogError, match="no such log"):
        reader.read(location, 1, 0)
    reader.close()
    writer.abandon()


def written(files: SimFiles, body: bytes) -> EntryLogReader:
    """Return a reader of a log that holds ``body`` behind its header."""
    files.mkdirs(A)
    log = files.open_append(A / "3.log")
    log.write([layout.LogHeader().encode(), body])
    log.close()
    return EntryLogReader(files, [A])


@pytest.mark.parametrize("left", range(1, 30))
@pytest.mark.parametrize("filled", [layout.DIRECT_PADDING, b"\0"])
def test_an_entry_is_whole_whatever_lies_behind_the_block_that_it_ends_in(
    left: int, filled: bytes
) -> None:
    """Java pads each flush to a block; of what a crash leaves, later blocks may be there alone."""
    first = struct.pack(">qqqq", 1, 0, -1, 0).ljust(4096 - 1024 - 4 - left, b"p")
    body = b"".join(layout.LENGTH.pack(len(one)) + one for one in (first, packet(1)))
    at = len(first) + 4
    padded = body[:at] + filled * left + (body[at:] if filled != b"\0" else body[at + left :])
    reader = written(SimFiles(Random(1)), padded)
    location = layout.location(3, layout.HEADER_BYTES + 4)
    assert reader.read(location, 1, 0) == first
    assert reader.read_now(location, 1, 0) in {first, None}
    rows = reader.read_rows([location], 1, 0, bytes_max=9999, until=1 << 60)
    assert rows is not None
    assert b"".join(rows.pieces)[4:] == first


def test_entries_that_are_copied_together_are_those_that_are_read(tmp_path: Path) -> None:
    files, log_path = RealFiles(), tmp_path / "3.log"
    sizes = [0, 900, 5000, 30_000, READ_NOW_BYTES_MAX, 10, 4060, 4061, 4080, 16_384, 0]
    bodies = [packet(entry).ljust(32 + size, b"q") for entry, size in enumerate(sizes)]
    log = files.open_append(log_path)
    log.write([layout.LogHeader().encode()])
    wanted: list[WantedEntry] = []
    at = layout.HEADER_BYTES
    for entry, body in enumerate(bodies):
        log.write([layout.LENGTH.pack(len(body)), body])
        wanted.append((layout.location(3, at + 4), 1, entry))
        at += 4 + len(body)
    log.close()
    right = [*wanted, *reversed(wanted)] * 3
    wrong = [(wanted[1][0], 2, 1), (wanted[1][0], 1, 2), (wanted[2][0] + 1, 1, 2), (4, 1, 0)]
    others = [(layout.location(9, 2000), 1, 0), (layout.location(3, at + 4), 1, 99)]
    all_wanted = [*right, *wrong, *others, *right]
    reader = EntryLogReader(files, [tmp_path])
    target = memoryview(bytearray(8 << 20))
    assert not any(reader.copy_now(all_wanted, target, 28, 4 << 20))  # The log is not open yet.
    assert reader.read(*wanted[0]) == bodies[0]
    copied = 0
    for begin in range(0, len(all_wanted), 9):
        some, place = all_wanted[begin : begin + 9], 28
        found = reader.copy_now(some, target, 28, 4 << 20)
        assert len(found) == len(some)
        for one, size in zip(some, found, strict=True):
            if size:
                assert one in wanted
                assert target[place : place + size] == bodies[one[2]]
                place += size + 28
                copied += 1
    assert copied or not hasattr(os, "RWF_NOWAIT")
    few = reader.copy_now([wanted[1]] * 9, target, 28, 2000)
    assert few in ([932, 932, 932], [0] * 9)
    reader.close()


def test_an_entry_in_front_of_what_the_disk_has_lost_is_read() -> None:
    files = SimFiles(Random(1))
    bodies = [packet(0), packet(1).ljust(9000, b"q"), packet(2)]
    records = [layout.LENGTH.pack(len(one)) + one for one in bodies]
    reader = written(files, b"".join(records))
    ends = [layout.HEADER_BYTES + sum(map(len, records[: count + 1])) for count in range(3)]
    locations = [layout.location(3, end - len(one)) for end, one in zip(ends, bodies, strict=True)]
    for count in (0, 1):
        for lost_at in range(ends[count], ends[count] + 24):
            files.unreadable[A / "3.log"] = {lost_at}
            assert reader.read(locations[count], 1, count) == bodies[count]
    files.unreadable[A / "3.log"] = {ends[1] - 1}
    with pytest.raises(OSError, match="Input/output"):
        reader.read(locations[1], 1, 1)
    assert [reader.read(locations[count], 1, count) for count in (0, 2)] == [bodies[0], bodies[2]]


def test_a_scan_gives_what_lies_in_front_of_what_the_disk_has_lost() -> None:
    files = SimFiles(Random(1))
    records = [layout.LENGTH.pack(len(packet(one))) + packet(one) for one in range(200)]
    written(files, b"".join(records)).close()
    files.unreadable[A / "3.log"] = {layout.HEADER_BYTES + 150 * len(records[0]) + 40}
    found = []
    with (
        contextlib.closing(open_scan(files, A / "3.log")) as scan,
        pytest.raises(EntryLogRecordError, match="cannot be read"),
    ):
        found.extend(record.entry_id for record in scan)
    assert found == list(range(150))


class MeasuredFiles(RealFiles):
    """Remembers how much was read at once."""

    most_bytes = 0

    def open_read(self, path: Path) -> ReadFile:
        opened = super().open_read(path)
        usual = opened.read_at

        def read_at(offset: int, size: int) -> bytes:
            self.most_bytes = max(self.most_bytes, size)
            return usual(offset, size)

        opened.read_at = read_at  # type: ignore[method-assign]
        return opened


@pytest.mark.parametrize("length", [300 << 20, 64 << 20])
def test_a_damaged_length_does_not_fill_the_memory(tmp_path: Path, length: int) -> None:
    """Garbage collection reads a log of up to 1 GiB: one flipped bit could end the bookie."""
    path = tmp_path / "0.log"
    with path.open("wb") as file:
        file.write(layout.LogHeader().encode() + layout.LENGTH.pack(length) + packet(0))
        file.seek(1028 + length)
        file.write(b"\xff" * 16)
        file.truncate(400 << 20)
    files = MeasuredFiles()
    no_record = pytest.raises(EntryLogRecordError, match=f"length {length}; no record begins")
    with contextlib.closing(open_scan(files, path)) as scan, no_record:
        list(scan)
    assert files.most_bytes <= 1 << 20


def test_bytes_that_look_like_many_chains_of_records_cost_a_search_little() -> None:
    """A client may send them in large entries, and then ask for an entry that does not exist."""
    files = SimFiles(Random(1))
    writer = begin(files, 1 << 20)
    fakes = layout.RECORD.pack(layout.BODY_BYTES_MIN, 1, 99) * 16
    chain = layout.RECORD.pack(layout.BODY_BYTES_MIN, 1, 7) * (NEAR_BYTES // layout.RECORD.size)
    body = struct.pack(">qqqq", 1, 0, -1, 0) + fakes + chain
    blob = layout.LENGTH.pack(len(body)) + body
    writer.reserve(len(blob))
    writer.append(blob)
    here = append(writer, 1)
    append(writer, 3)
    writer.sync()
    reader = EntryLogReader(files, [A])
    began_s = time.thread_time()
    assert not reader.is_near(here, 1, 99)
    assert time.thread_time() - began_s < 0.2
    assert reader.is_near(here, 1, 3)


def test_threads_search_near_a_record_one_after_the_other() -> None:
    files = SimFiles(Random(1))
    writer = begin(files, 1 << 20)
    here = append(writer, 1)
    append(writer, 3)
    writer.sync()
    reader, found = EntryLogReader(files, [A]), []
    searches = [
        threading.Thread(target=lambda: found.append(reader.is_near(here, 1, 3))) for _ in range(2)
    ]
    with reader.search_turn:
        for search in searches:
            search.start()
        searches[0].join(0.1)
        assert found == []
    for search in searches:
        search.join(60)
    assert found == [True, True]
