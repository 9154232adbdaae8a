"""A journal's own file: zeros are ahead of what is appended, and never on it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bookied.storage.files.direct_file import BLOCK_BYTES, DirectRefusedError
from bookied.storage.files.files import RealFiles
from bookied.storage.files.preallocated_file import (
    AHEAD_BYTES,
    BUFFER_BYTES,
    LARGE_BYTES,
    PIECE_BYTES,
    PreallocatedFile,
)
from tests.bookied.worlds.thread_limit import threads_left
from tests.support.waiting import until

STEP = 4 * 1024 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file goes that is written past the page cache; skips where that is refused."""
    try:
        PreallocatedFile(tmp_path / "probe", STEP).close()
    except DirectRefusedError as error:
        pytest.skip(str(error))
    return tmp_path / "journal"


def block(number: int) -> bytes:
    return number.to_bytes(8, "big") * (BLOCK_BYTES // 8)


def test_a_journal_without_a_thread_has_no_zeros_ahead_and_all_that_was_appended(
    path: Path,
) -> None:
    with threads_left(0):
        file = PreallocatedFile(path, STEP)
    blocks = [block(number) for number in range(1, 600)]
    for one in blocks:
        file.write([one])
    file.sync()
    file.close()
    assert path.read_bytes() == b"".join(blocks)


def test_what_was_appended_is_there_with_zeros_behind_it_until_it_is_closed(path: Path) -> None:
    file, expected, rng = PreallocatedFile(path, STEP), b"", Random(1)
    while len(expected) < 3 * AHEAD_BYTES:
        count = rng.choice([1, 1, 3, 40, BUFFER_BYTES // BLOCK_BYTES, 600])
        parts = [block(len(expected) // BLOCK_BYTES + n + 1) for n in range(count)]
        head = parts[0]
        file.write([head[:10], bytearray(head[10:]), *map(memoryview, parts[1:])])
        expected += b"".join(parts)
        assert file.tell() == file.readable_bytes == len(expected)
        if rng.random() < 0.2:
            file.sync()
    stored = path.read_bytes()
    assert stored[: len(expected)] == expected
    assert not any(stored[len(expected) :])
    file.close()
    assert path.read_bytes() == expected


def test_an_append_waits_for_zeros_that_are_on_their_way_to_its_place(path: Path) -> None:
    under_way, gate = threading.Event(), threading.Event()

    def allocate(fd: int, offset: int, size: int) -> None:
        under_way.set()
        assert gate.wait(60)
        os.posix_fallocate(fd, offset, size)

    file = PreallocatedFile(path, STEP, allocate)
    assert under_way.wait(60)
    appender = threading.Thread(target=file.write, args=([block(7)],))
    appender.start()
    appender.join(0.05)
    assert appender.is_alive()
    gate.set()
    appender.join(60)
    file.close()
    assert path.read_bytes() == block(7)


def test_appends_that_outrun_the_zeros_are_never_zeroed(path: Path) -> None:
    file, expected = PreallocatedFile(path, STEP), b""
    for number in range(1, 60):
        data = block(number) * (PIECE_BYTES // BLOCK_BYTES + number)
        file.write([data])
        expected += data
    file.close()
    assert path.read_bytes() == expected


def test_a_sync_finds_blocks_that_are_written_already(path: Path) -> None:
    file = PreallocatedFile(path, STEP)
    file.write([block(1)])
    until(lambda: path.stat().st_size >= AHEAD_BYTES)
    blocks = path.stat().st_blocks
    for number in range(100):
        file.write([block(number)])
        file.sync()
    assert path.stat().st_blocks == blocks
    file.close()


def test_no_zeros_go_ahead_of_large_appends(path: Path) -> None:
    offsets: list[int] = []

    def allocate(fd: int, offset: int, size: int) -> None:
        offsets.append(offset)
        os.posix_fallocate(fd, offset, size)

    file = PreallocatedFile(path, PIECE_BYTES, allocate)
    until(lambda: path.stat().st_size >= AHEAD_BYTES)
    for number in range(2 * AHEAD_BYTES // LARGE_BYTES):
        file.write([block(number) * (LARGE_BYTES // BLOCK_BYTES)])
    end = file.tell()
    file.write([block(1)])
    until(lambda: path.stat().st_size >= end + AHEAD_BYTES)
    file.close()
    assert not [offset for offset in offsets if AHEAD_BYTES <= offset < end]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_without_zeros_ahead_the_appends_go_on(path: Path, number: int) -> None:
    steps = [STEP]

    def allocate(fd: int, offset: int, size: int) -> None:
        if not steps:
            raise OSError(number, os.strerror(number))
        os.posix_fallocate(fd, offset, steps.pop() and size)

    file = PreallocatedFile(path, STEP, allocate)
    data = b"".join(map(block, range(1, 3 * STEP // BLOCK_BYTES)))
    file.write([data])
    file.write([data])
    file.sync()
    file.close()
    assert path.read_bytes() == data + data


def test_its_thread_ends_with_it(path: Path) -> None:
    before = threading.active_count()
    files = [PreallocatedFile(path.with_name(str(number)), STEP) for number in range(3)]
    assert threading.active_count() == before + 3
    for file in files:
        file.close()
    assert threading.active_count() == before


def test_a_file_must_be_new(path: Path) -> None:
    path.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        PreallocatedFile(path, STEP)
    assert path.read_bytes() == b"precious"


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failed_append_does_not_count_and_may_be_tried_again(path: Path) -> None:
    with file_size_limit(BLOCK_BYTES):
        file = PreallocatedFile(path, STEP)
        file.write([block(1)])
        with pytest.raises(OSError, match="too large"):
            file.write([block(2), block(3)])
        assert file.tell() == BLOCK_BYTES
    file.write([block(4)])
    file.close()
    assert path.read_bytes() == block(1) + block(4)


@pytest.mark.parametrize("preallocate", [STEP, 0])
def test_a_file_closes_while_its_error_is_still_told(path: Path, preallocate: int) -> None:
    file = RealFiles().open_append(path, preallocate=preallocate, direct=True)
    with file_size_limit(BLOCK_BYTES), pytest.raises(OSError, match="too large") as caught:
        file.write([block(1), block(2)])
    file.close()
    assert caught.value.__traceback__ is not None
    assert path.stat().st_size == 0


@pytest.mark.parametrize("direct", [True, False])
def test_a_file_that_nobody_could_find_again_cannot_be_synced(path: Path, *, direct: bool) -> None:
    file = RealFiles().open_append(path, preallocate=STEP, direct=direct)
    file.write([block(1)])
    file.sync()
    path.unlink()
    file.write([block(2)])
    with pytest.raises(FileNotFoundError, match="journal"):
        file.sync()
    file.close()


def test_where_direct_writes_are_refused_the_page_cache_is_used() -> None:
    memory = "/dev/shm"  # Often without O_DIRECT.
    if not os.access(memory, os.W_OK | os.X_OK):
        pytest.skip("no file system in memory")
    # A name of its own: other runs have one there, too, or left it behind.
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        path = Path(directory) / "journal"
        file = RealFiles().open_append(path, preallocate=STEP, direct=True)
        for number in range(6000):
            file.write([block(number)])
            if number % 100 == 0:
                file.sync()
        file.close()
        assert path.read_bytes() == b"".join(map(block, range(6000)))
