"""One process at a time has a bookie's directories."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bookied.directories.lock import LOCK, DirectoryLocks, is_locked, lock_owner
from bookied.directories.roots import Directories
from bookied.errors import DirectoryError, DirectoryInUseError
from bookied.storage.files.files import RealFiles

FILES = RealFiles()


def test_a_second_bookie_on_a_directory_is_refused_and_keeps_nothing(found: Directories) -> None:
    first, second = DirectoryLocks(), DirectoryLocks()
    first.take(found.roots[1:3])
    with pytest.raises(DirectoryInUseError, match=r"/j1 is in use by another bookie \(process \d"):
        second.take(found.roots)
    assert not is_locked(found.roots[0])
    assert is_locked(found.roots[1])
    first.release()
    assert not is_locked(found.roots[1])
    second.take(found.roots)
    second.release()


def test_a_lock_is_held_against_other_processes_and_goes_with_its_own(found: Directories) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from bookied.directories.lock import DirectoryLocks\n"
        "DirectoryLocks().take([Path(sys.argv[1])]); print('locked', flush=True); sys.stdin.read()"
    )
    root = found.roots[0]
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryInUseError, match=f"process {other.pid}"):
            DirectoryLocks().take([root])
        other.kill()
        other.communicate()
    locks = DirectoryLocks()
    locks.take([root])
    locks.release()


def test_a_lock_that_cannot_be_made_is_a_bad_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryError, match="cannot be used: Not a directory"):
        DirectoryLocks().take([tmp_path / "file" / "below"])


def test_the_number_of_another_process_in_a_lock_file_is_not_its_owner(tmp_path: Path) -> None:
    locks = DirectoryLocks()
    locks.take([tmp_path])
    assert lock_owner(tmp_path) == os.getpid()
    other = subprocess.Popen(["sleep", "60"])
    try:
        (tmp_path / LOCK).write_text(f"{other.pid}\n")
        assert is_locked(tmp_path)
        assert lock_owner(tmp_path) is None
    finally:
        other.kill()
        other.wait()
        locks.release()
    (tmp_path / LOCK).write_text(f"{os.getpid()}\n")
    assert lock_owner(tmp_path) is None


def test_a_look_at_a_lock_does_not_stop_a_start(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch(0o600)
    fd = os.open(tmp_path / LOCK, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    looks = threading.Timer(0.02, os.close, [fd])
    looks.start()
    locks = DirectoryLocks()
    locks.take([tmp_path])
    looks.join()
    locks.release()


def test_two_paths_of_one_directory_are_refused_as_that(tmp_path: Path) -> None:
    (tmp_path / "l0").mkdir()
    (tmp_path / "l1").symlink_to(tmp_path / "l0")
    locks = DirectoryLocks()
    with pytest.raises(DirectoryError, match="l1 is another one of the bookie's directories"):
        locks.take([tmp_path / "l0", tmp_path / "l1"])
    assert not is_locked(tmp_path / "l0")
