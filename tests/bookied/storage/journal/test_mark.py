from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from random import Random

import pytest

from bookied.errors import LastMarkError
from bookied.storage.journal.mark import (
    START,
    LastMark,
    decode_mark,
    encode_mark,
    lower_mark,
    read_mark,
    write_mark,
)
from bookied.storage.journal.mark import file_name as mark_name
from tests.sim.world.disk import SimFiles

A, B = Path("/a"), Path("/b")


@pytest.fixture
def files() -> SimFiles:
    files = SimFiles(Random(1))
    for directory in (A, B):
        files.mkdirs(directory)
    return files


def test_a_mark_is_sixteen_bytes() -> None:
    data = encode_mark(LastMark(0x1A1FC678C2B, 17412))
    assert data[:16].hex() == "000001a1fc678c2b0000000000004404"
    assert len(data) == 20, "a checksum, which Java does not read"
    assert decode_mark(data[:16], A) == decode_mark(data, A), "as Java writes it"


@pytest.mark.parametrize("data", [b"", b"x" * 15, encode_mark(START)[:8] + b"\xff" * 8])
def test_a_bad_mark_is_ignored(files: SimFiles, data: bytes) -> None:
    with pytest.raises(LastMarkError):
        decode_mark(data, A)
    files.write_atomic(A / "lastMark", data)
    assert read_mark(files, [A, B], "lastMark") == START
    files.write_atomic(B / "lastMark", encode_mark(LastMark(3, 4)))
    assert read_mark(files, [A, B], "lastMark") == LastMark(3, 4)


def test_a_mark_that_the_disk_has_lost_is_ignored_and_written_again(files: SimFiles) -> None:
    write_mark(files, [A, B], "lastMark", LastMark(3, 4))
    files.unreadable[A / "lastMark"] = {0}
    assert read_mark(files, [A, B], "lastMark") == LastMark(3, 4)
    assert read_mark(files, [A], "lastMark") == START
    written = []
    files.fault = lambda operation, path: written.append((operation, path))
    write_mark(files, [A, B], "lastMark", LastMark(3, 9))
    assert ("rename", A / "lastMark.tmp") in written
    files.unreadable.clear()
    assert read_mark(files, [A], "lastMark") == LastMark(3, 9)


def test_without_a_mark_replay_starts_before_every_journal(files: SimFiles) -> None:
    assert read_mark(files, [A, B], "lastMark") == (0, 0)
    assert decode_mark(encode_mark(LastMark(0, 0)), A) == (0, 0)


@pytest.mark.parametrize("mark", [(-1, 0), (0, -1)])
def test_a_mark_before_every_journal_is_damage(mark: tuple[int, int]) -> None:
    with pytest.raises(LastMarkError, match="negative") as raised:
        decode_mark(struct.pack(">qq", *mark), A)
    assert raised.value.offset == 0


@pytest.mark.parametrize("position", range(20))
def test_a_flipped_byte_is_damage(position: int) -> None:
    data = bytearray(encode_mark(LastMark(3, 4)))
    data[position] ^= 1
    with pytest.raises(LastMarkError, match="checksum"):
        decode_mark(bytes(data), A)


def test_a_mark_is_lowered_where_it_is_higher(files: SimFiles) -> None:
    write_mark(files, [A], "lastMark", LastMark(5, 100))
    write_mark(files, [B], "lastMark", LastMark(4, 100))
    lower_mark(files, [A, B], "lastMark", LastMark(5, 50))
    assert read_mark(files, [A], "lastMark") == LastMark(5, 50)
    assert read_mark(files, [B], "lastMark") == LastMark(4, 100)


def test_a_mark_that_is_already_there_becomes_durable_and_a_higher_one_stays(
    files: SimFiles,
) -> None:
    write_mark(files, [A, B], "lastMark", LastMark(5, 100))
    seen: list[tuple[str, Path]] = []

    def record(operation: str, path: Path) -> None:
        if operation != "read":
            seen.append((operation, path))

    files.fault = record
    write_mark(files, [A], "lastMark", LastMark(5, 100))
    assert seen == [("sync_dir", A)]
    write_mark(files, [B], "lastMark", LastMark(5, 99))
    lower_mark(files, [B], "lastMark", LastMark(5, 100))
    assert seen == [("sync_dir", A)]


def test_a_mark_never_moves_backwards(files: SimFiles) -> None:
    write_mark(files, [A], "lastMark", LastMark(5, 100))
    write_mark(files, [A, B], "lastMark", LastMark(4, 900))
    assert read_mark(files, [A], "lastMark") == LastMark(5, 100)
    assert read_mark(files, [B], "lastMark") == LastMark(4, 900)
    write_mark(files, [A, B], "lastMark", LastMark(5, 101))
    assert read_mark(files, [B], "lastMark") == LastMark(5, 101)


def test_a_mark_over_a_bad_one_counts(files: SimFiles) -> None:
    files.write_atomic(A / "lastMark", b"bad")
    write_mark(files, [A], "lastMark", LastMark(5, 100))
    assert read_mark(files, [A], "lastMark") == LastMark(5, 100)


def test_a_full_directory_does_without_a_mark_while_another_has_it(files: SimFiles) -> None:
    full = {A}

    def fault(operation: str, path: Path) -> OSError | None:
        if operation == "write" and path.parent in full:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return None

    files.fault = fault
    write_mark(files, [A, B], "lastMark", LastMark(5, 512))
    assert read_mark(files, [A, B], "lastMark") == LastMark(5, 512)
    full.add(B)
    with pytest.raises(OSError, match="No space"):
        write_mark(files, [A, B], "lastMark", LastMark(6, 512))


def test_several_journals_have_marks_of_their_own() -> None:
    assert mark_name(0, 1) == "lastMark"
    assert [mark_name(number, 2) for number in range(2)] == ["lastMark.0", "lastMark.1"]
