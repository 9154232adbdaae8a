"""The lock of file systems that have none."""

from __future__ import annotations

import threading

import pytest

from bkctl.commands.export.target.arrow_file_systems import LockFile
from tests.support.waiting import until


class MemoryTree:
    """Files in memory with a clock of their own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.files: dict[str, tuple[bytes, float | None]] = {}
        self.writes = 0
        self.fails = False

    def names(self, path: str = "") -> list[str]:
        return [name.removeprefix(f"{path}/") for name in list(self.files)]

    def exists(self, path: str) -> bool:
        return path in self.files

    def modified(self, path: str) -> float | None:
        return self.files.get(path, (b"", None))[1]

    def write(self, path: str, data: bytes) -> None:
        if self.fails:
            raise OSError("no network")
        self.files[path] = (data, self.now)
        self.writes += 1

    def read(self, path: str) -> bytes | None:
        return self.files[path][0]

    def remove(self, path: str) -> None:
        self.files.pop(path, None)


def test_one_export_at_a_time_has_the_lock() -> None:
    tree = MemoryTree()
    tree.files["_bkctl/run-000001.json"] = (b"{}", 0.0)
    with LockFile(tree) as first:
        with pytest.raises(BlockingIOError, match=r"_bkctl/lock-\w+ is held by process \d+ on "):
            LockFile(tree).__enter__()
        first.check()
    assert list(tree.files) == ["_bkctl/run-000001.json"]
    with LockFile(tree):
        pass


def test_the_lock_of_a_killed_export_counts_until_it_is_old() -> None:
    tree = MemoryTree()
    LockFile(tree, beat_s=1000).__enter__()  # And no end.
    tree.now += 89
    with pytest.raises(BlockingIOError):
        LockFile(tree).__enter__()
    tree.now += 1
    with LockFile(tree):
        assert len(tree.files) == 1


def test_an_export_that_lives_keeps_its_file_young() -> None:
    tree = MemoryTree()
    with LockFile(tree, beat_s=0.01):
        tree.now += 1000
        seen = tree.writes
        until(lambda: tree.writes > seen + 1)
        with pytest.raises(BlockingIOError):
            LockFile(tree).__enter__()


def test_a_holder_that_was_stopped_for_long_notices_it() -> None:
    tree = MemoryTree()
    with LockFile(tree, beat_s=1000) as slow:
        tree.now += 1000
        with LockFile(tree), pytest.raises(BlockingIOError, match="the lock was lost"):
            slow.check()
    slow = LockFile(tree, beat_s=1000, lost_s=0)
    with slow, pytest.raises(BlockingIOError, match="the lock was lost"):
        slow.check()


def test_a_holder_whose_file_was_taken_does_not_write_it_again() -> None:
    tree, others = MemoryTree(), set(threading.enumerate())
    with LockFile(tree, beat_s=0.01):
        tree.files.clear()
        seen = tree.writes
        until(lambda: others >= set(threading.enumerate()))
        assert tree.writes <= seen + 1


def test_a_file_system_without_times_leaves_the_lock_to_its_user() -> None:
    tree = MemoryTree()
    tree.files["_bkctl/lock-1"] = (b"", None)
    with pytest.raises(BlockingIOError, match="_bkctl/lock-1 is held by an unknown process"):
        LockFile(tree).__enter__()
    assert list(tree.files) == ["_bkctl/lock-1"]


def test_a_lock_that_cannot_be_written_is_an_error_and_leaves_nothing() -> None:
    tree = MemoryTree()
    tree.fails = True
    with pytest.raises(OSError, match="no network"):
        LockFile(tree).__enter__()
    assert tree.files == {}
