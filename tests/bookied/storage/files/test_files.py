"""The real disk and the simulated one keep the same contract."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookied.storage.files.buffered_file import IOV_MAX
from bookied.storage.files.direct_file import BLOCK_BYTES, BUFFER_BYTES
from bookied.storage.files.files import AppendFile, Files, ReadFile, RealFiles, remove_tree
from bookied.storage.files.open_files import OpenFiles
from tests.bookied.worlds.thread_limit import threads_left
from tests.sim.world.disk import SimFiles

Disk = tuple[Files, Path]


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "real":
        return RealFiles(), tmp_path
    files = SimFiles(Random(1))
    files.mkdirs(Path("/disk"))
    return files, Path("/disk")


class Direct(int):
    """Whether to append past the page cache."""


@pytest.fixture(params=[0, 1], ids=["buffered", "direct"])
def is_direct(request: pytest.FixtureRequest) -> Direct:
    return Direct(request.param)


def pattern(size: int, seed: int = 0) -> bytes:
    return bytes(Random(seed).randbytes(size))


def test_what_was_appended_is_read_back(disk: Disk, is_direct: Direct) -> None:
    files, base = disk
    file = files.open_append(base / "log", direct=bool(is_direct))
    parts = [pattern(size, size) for size in (10, 5000, 0, 1, 70_000)]
    for part in parts:
        file.write([part[:3], bytearray(part[3:7]), memoryview(part)[7:]])
    whole = b"".join(parts)
    assert file.tell() == len(whole)
    file.flush()
    assert file.readable_bytes == len(whole)
    reading = files.open_read(base / "log")
    assert reading.read_at(0, len(whole)) == whole
    file.write([b"more"])
    file.sync()
    file.close()
    assert files.read(base / "log") == whole + b"more"
    assert files.size(base / "log") == len(whole) + 4
    assert reading.read_at(len(whole) - 2, 100) == whole[-2:] + b"more"
    reading.close()


def test_what_counts_as_readable_can_be_read(disk: Disk, is_direct: Direct) -> None:
    files, base = disk
    file = files.open_append(base / "log", direct=bool(is_direct))
    written = b""
    for number in range(30):
        part = pattern(700 * number, number)
        file.write([part])
        written += part
        assert file.readable_bytes > len(written) - BLOCK_BYTES
        with_tail = files.open_read(base / "log")
        assert with_tail.read_at(0, file.readable_bytes) == written[: file.readable_bytes]
        with_tail.close()
        if number % 7 == 0:
            file.flush()
    file.close()


@settings(max_examples=15)
@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 9000), st.sampled_from([BLOCK_BYTES, BUFFER_BYTES])), max_size=8
    ),
    data=st.data(),
)
def test_a_direct_file_holds_what_was_appended(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    base = tmp_path_factory.mktemp("direct")
    file = RealFiles().open_append(base / "log", direct=True)
    written = b""
    for size in sizes:
        part = pattern(size, size)
        cut = data.draw(st.integers(0, size))
        file.write([part[:cut], part[cut:]])
        written += part
        if data.draw(st.booleans()):
            file.flush()
            assert (base / "log").read_bytes()[: len(written)] == written
    file.close()
    assert (base / "log").read_bytes() == written


def test_many_small_buffers_are_one_write(disk: Disk) -> None:
    files, base = disk
    file = files.open_append(base / "log")
    file.write([b"%06d" % number for number in range(3 * IOV_MAX + 5)])
    file.close()
    assert files.read(base / "log") == b"".join(b"%06d" % n for n in range(3 * IOV_MAX + 5))


def test_reserved_space_reads_as_zeros_and_is_given_back(disk: Disk) -> None:
    files, base = disk
    file = files.open_append(base / "journal", preallocate=8192)
    file.write([b"x" * 100])
    assert files.size(base / "journal") == 8192
    file.write([b"y" * 9000])
    assert files.size(base / "journal") == 16384
    assert files.read(base / "journal") == (b"x" * 100 + b"y" * 9000).ljust(16384, b"\0")
    file.close()
    assert files.size(base / "journal") == 9100


def test_a_file_to_append_to_must_be_new(disk: Disk, is_direct: Direct) -> None:
    files, base = disk
    files.write_atomic(base / "log", b"precious")
    with pytest.raises(FileExistsError):
        files.open_append(base / "log", direct=bool(is_direct))
    assert files.read(base / "log") == b"precious"


def test_a_file_is_replaced_in_one_step(disk: Disk) -> None:
    files, base = disk
    files.write_atomic(base / "mark", b"old")
    files.write_atomic(base / "mark", b"new")
    assert files.read(base / "mark") == b"new"
    assert files.list(base) == ["mark"]


def test_a_file_is_changed_in_place(disk: Disk) -> None:
    files, base = disk
    file = files.open_update(base / "index", create=True)
    file.write_at(4096 * 5, b"page")
    file.write_at(0, b"head")
    file.sync()
    assert file.read_at(0, 6) == b"head\0\0"
    assert file.read_at(4096 * 5, 10) == b"page"
    assert file.size() == 4096 * 5 + 4
    file.truncate(2)
    assert file.size() == 2
    file.close()
    with pytest.raises(FileNotFoundError):
        files.open_update(base / "other")


def test_holes_are_passed_over(disk: Disk) -> None:
    files, base = disk
    writing = files.open_update(base / "index", create=True)
    writing.write_at(1 << 20, b"page")
    writing.close()
    file = files.open_read(base / "index")
    at = file.next_data(0)
    assert at is not None
    assert 0 <= at <= 1 << 20
    found = file.next_data(1 << 20)
    assert found == 1 << 20
    assert file.next_data((1 << 20) + 4) is None
    file.close()


def test_what_is_there_without_waiting_is_what_the_file_holds(disk: Disk) -> None:
    files, base = disk
    data = pattern(20_000)
    writing = files.open_update(base / "x", create=True)
    writing.write_at(0, data)
    writing.close()
    reading = files.open_read(base / "x")
    given = 0
    for offset, size in [(0, 10), (5, 4096), (15_000, 10_000), (0, 20_000)] * 5:
        buffer = bytearray(size)
        count = reading.read_now(offset, buffer)
        given += count > 0
        assert 0 <= count <= size
        assert data[offset : offset + size].startswith(buffer[:count])
    assert given or not hasattr(os, "RWF_NOWAIT")
    assert not reading.read_now(20_000, bytearray(10))
    reading.close()


def test_directories_are_made_listed_and_synced(disk: Disk) -> None:
    files, base = disk
    deep = base / "a" / "b"
    files.mkdirs(deep)
    files.mkdirs(deep)
    assert files.is_dir(deep)
    files.write_atomic(deep / "x", b"1")
    assert not files.is_dir(deep / "x")
    files.rename(deep / "x", deep / "y")
    files.sync_dir(deep)
    assert files.list(deep) == ["y"]
    assert files.exists(deep / "y")
    files.remove(deep / "y")
    assert not files.exists(deep / "y")
    for missing in (files.read, files.remove, files.open_read, files.size, files.list):
        with pytest.raises(FileNotFoundError):
            missing(base / "nothing")
    total, free = files.disk_usage(base)
    assert 0 < free <= total


def test_many_files_and_directories_are_synced_side_by_side(disk: Disk) -> None:
    files, base = disk
    directories = [base / f"{number}" for number in range(50)]
    opened = []
    for directory in directories:
        files.mkdirs(directory)
        opened.append(files.open_update(directory / "index", create=True))
        opened[-1].write_at(0, directory.name.encode())
    files.sync_all(opened)
    files.sync_dirs([*directories, base, base.parent])
    if isinstance(files, SimFiles):
        files.crash()
    else:
        for file in opened:
            file.close()
    for directory in directories:
        assert files.read(directory / "index") == directory.name.encode()
    files.sync_all([])
    files.sync_dirs([])


class Broken:
    """A file whose sync fails, or does not; it counts them."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error, self.syncs = error, 0

    def sync(self) -> None:
        self.syncs += 1
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("threads", [0, 1])
def test_all_are_synced_where_the_process_gets_no_more_threads(disk: Disk, threads: int) -> None:
    files, _ = disk
    some: list[Any] = [Broken() for _ in range(100)]
    with threads_left(threads):
        files.sync_all(some)
    assert [each.syncs for each in some] == [1] * 100


@pytest.mark.parametrize("count", [1, 2, 100])
def test_one_sync_that_fails_among_many_is_told(disk: Disk, count: int) -> None:
    files, _ = disk
    error = OSError(errno.EIO, "the disk is gone")
    some: list[Any] = [Broken() for _ in range(count - 1)]
    some.insert(count // 2, Broken(error))
    with pytest.raises(OSError, match="the disk is gone"):
        files.sync_all(some)
    assert max(each.syncs for each in some) == 1


def test_a_directory_that_cannot_be_synced_is_told(disk: Disk) -> None:
    files, base = disk
    files.mkdirs(base / "here")
    with pytest.raises(FileNotFoundError):
        files.sync_dirs([base / "here", base / "nowhere"])


def test_a_second_name_stands_for_the_same_file(disk: Disk) -> None:
    files, base = disk
    file = files.open_append(base / "log")
    file.write([b"entries"])
    file.sync()
    file.close()
    files.mkdirs(base / "beside")
    files.link(base / "log", base / "beside" / "log")
    changing = files.open_update(base / "beside" / "log")
    changing.write_at(0, b"E")
    changing.close()
    assert files.read(base / "log") == b"Entries"
    with pytest.raises(FileExistsError):
        files.link(base / "log", base / "beside" / "log")
    files.remove(base / "log")
    assert files.read(base / "beside" / "log") == b"Entries"


def test_two_names_change_places(disk: Disk) -> None:
    files, base = disk
    files.mkdirs(base / "old")
    files.mkdirs(base / "new")
    files.write_atomic(base / "old" / "x", b"old")
    files.write_atomic(base / "new" / "x", b"new")
    files.exchange(base / "old", base / "new")
    files.sync_dir(base)
    assert files.read(base / "old" / "x") == b"new"
    assert files.read(base / "new" / "x") == b"old"
    assert sorted(files.list(base)) == ["new", "old"]
    with pytest.raises(FileNotFoundError):
        files.exchange(base / "old", base / "nothing")


def test_only_an_empty_directory_is_removed_at_once(disk: Disk) -> None:
    files, base = disk
    files.mkdirs(base / "a" / "b")
    files.write_atomic(base / "a" / "b" / "x", b"1")
    with pytest.raises(OSError, match="not empty"):
        files.remove_dir(base / "a")
    with pytest.raises(IsADirectoryError):
        files.remove(base / "a" / "b")
    remove_tree(files, base / "a")
    assert not files.exists(base / "a")
    files.write_atomic(base / "x", b"1")
    remove_tree(files, base / "x")
    assert files.list(base) == []


def test_a_link_to_a_directory_goes_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_bytes(b"1")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "current").symlink_to(tmp_path / "elsewhere")
    remove_tree(RealFiles(), tmp_path / "root")
    assert not (tmp_path / "root").exists()
    assert (tmp_path / "elsewhere" / "precious").read_bytes() == b"1"


def test_a_failed_append_can_be_tried_again(is_direct: Direct) -> None:
    files = SimFiles(Random(1))
    file = files.open_append(Path("/log"), direct=bool(is_direct))
    file.write([b"a" * 5000])
    fail_writes(files)
    with pytest.raises(OSError, match="No space"):
        file.write([b"b" * 9000])
    assert file.tell() == 5000
    files.fault = None
    file.write([b"c" * 9000])
    file.close()
    assert files.read(Path("/log")) == b"a" * 5000 + b"c" * 9000


def fail_writes(files: SimFiles) -> None:
    def fault(operation: str, path: Path) -> OSError | None:
        if operation == "write":
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return None

    files.fault = fault


def test_a_direct_file_on_a_full_disk_can_go_on(tmp_path: Path) -> None:
    # A limit on the size of files stands in for a full disk.
    import resource
    import signal

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file: AppendFile = RealFiles().open_append(tmp_path / "log", direct=True)
    file.write([b"a" * 5000])
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
        with pytest.raises(OSError, match="File too large"):
            file.write([pattern(3 * BUFFER_BYTES)])
        assert file.tell() == 5000
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    file.write([b"c" * 9000])
    file.close()
    assert (tmp_path / "log").read_bytes() == b"a" * 5000 + b"c" * 9000


class TestOpenFiles:
    def test_the_longest_unused_file_is_closed_first(self) -> None:
        files = SimFiles(Random(1))
        for name in "abc":
            files.write_atomic(Path("/") / name, name.encode())
        kept = OpenFiles(files, files_max=2)
        first = self.read(kept, "a")
        assert self.read(kept, "b") is not first
        assert self.read(kept, "a") is first
        self.read(kept, "c")
        assert self.read(kept, "a") is first
        kept.close()
        with pytest.raises(AssertionError, match="closed"):
            first.read_at(0, 1)

    def test_a_file_in_use_stays_open_until_it_is_not(self) -> None:
        files = SimFiles(Random(1))
        files.write_atomic(Path("/a"), b"1")
        kept = OpenFiles(files, files_max=1)
        with kept.use(Path("/a")) as outer:
            with kept.use(Path("/a")) as inner:
                assert inner is outer
                kept.forget(Path("/a"))
                assert inner.read_at(0, 1) == b"1"
            assert outer.read_at(0, 1) == b"1"
        with pytest.raises(AssertionError, match="closed"):
            outer.read_at(0, 1)

    def test_what_is_not_there_is_said_so(self) -> None:
        kept = OpenFiles(SimFiles(Random(1)), files_max=1)
        with pytest.raises(FileNotFoundError), kept.use(Path("/nothing")):
            pass

    @staticmethod
    def read(kept: OpenFiles, name: str) -> ReadFile:
        with kept.use(Path("/") / name) as file:
            assert file.read_at(0, 9) == name.encode()
            return file


@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "socket"])
def test_only_regular_files_are_opened_and_nothing_is_waited_for(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    else:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.bind(str(path))
    files = RealFiles()
    for opened in (files.open_read, files.open_update, files.read):
        with pytest.raises(OSError, match=r"0\.log"):
            opened(path)


def test_a_file_that_is_read_at_once_has_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "lastMark"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="larger than") as raised:
        RealFiles().read(path)
    assert raised.value.errno == errno.EFBIG
