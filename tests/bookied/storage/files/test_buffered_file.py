"""Zeros written ahead of small appends change nothing that a reader could see."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bookied.storage.files.buffered_file import SMALL_WRITE_BYTES, ZEROS, BufferedAppendFile
from bookied.storage.files.files import RealFiles

STEP = 4 * 1024 * 1024


@pytest.mark.parametrize("size", [1, 512, 1536, SMALL_WRITE_BYTES, SMALL_WRITE_BYTES + 1])
def test_a_preallocated_file_holds_what_was_appended_and_then_zeros(tmp_path: Path, size) -> None:
    file = RealFiles().open_append(tmp_path / "journal", preallocate=STEP)
    expected = bytearray()
    while len(expected) < 2 * len(ZEROS) + STEP:  # Past several ends of zeros, and of a step.
        record = bytes((len(expected) // max(size, 1) % 255 + 1,)) * max(size, 30_000)
        file.write([record[: len(record) // 2], record[len(record) // 2 :]])
        expected += record
    file.sync()
    stored = (tmp_path / "journal").read_bytes()
    assert stored[: len(expected)] == expected
    assert stored[len(expected) :].strip(b"\0") == b""
    file.close()
    assert (tmp_path / "journal").read_bytes() == expected


def test_small_writes_go_over_blocks_that_are_written_already(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    file = RealFiles().open_append(path, preallocate=STEP)
    file.write([b"x" * 1000])
    file.sync()
    blocks = path.stat().st_blocks
    reader = RealFiles().open_read(path)
    assert reader.next_data(0) == 0
    assert reader.read_at(0, 1001) == b"x" * 1000 + b"\0"
    for _ in range(500):
        file.write([b"y" * 1000])
    file.sync()
    assert path.stat().st_blocks == blocks
    reader.close()
    file.close()


def test_without_room_for_a_step_of_preallocation_the_records_are_written(tmp_path: Path) -> None:
    steps = [STEP]

    def allocate(fd: int, offset: int, size: int) -> None:
        if not steps:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(fd, offset, steps.pop())

    path = tmp_path / "journal"
    file = BufferedAppendFile(os.open(path, os.O_RDWR | os.O_CREAT), path, STEP, allocate)
    for _ in range(STEP // 100_000 + 2):
        file.write([b"x" * 100_000])
    file.write([b"y"])
    file.sync()
    file.close()
    assert path.read_bytes() == b"x" * 100_000 * (STEP // 100_000 + 2) + b"y"
