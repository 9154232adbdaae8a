"""Entries by location, whatever becomes of the logs meanwhile."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from random import Random

import pytest

from bookied.entrylog import format as layout
from bookied.entrylog.reader import EntryLogReader
from bookied.entrylog.writer import EntryLogWriter
from bookied.errors import MissingLogError
from tests.sim.disk import SimFiles

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


def begin(files: SimFiles) -> EntryLogWriter:
    for directory in (A, B):
        files.mkdirs(directory)
    return EntryLogWriter(
        files,
        [A, B],
        choose_directory=lambda: A,
        other_directory=lambda full: B if full == A else None,
        on_fatal=lambda _error: None,
        size_bytes_max=1200,
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
