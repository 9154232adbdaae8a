"""Who works in a bookie's directories."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bookied.directories.lock import DirectoryLocks
from bookied.directories.using_processes import WritingProcess, uses

HOLDER = """
import sys, time
file = open(sys.argv[1], sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
"""


def _process(proc: Path, pid: int, words: list[str], files: dict[str, int]) -> None:
    """Make what the kernel shows of a process that has ``files`` open with these flags."""
    directory = proc / str(pid)
    (directory / "fd").mkdir(parents=True)
    (directory / "fdinfo").mkdir()
    (directory / "cmdline").write_bytes(b"\0".join(word.encode() for word in words))
    for number, (path, flags) in enumerate(files.items()):
        (directory / "fd" / str(number)).symlink_to(path)
        (directory / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t0{flags:o}\n")


def test_a_java_bookie_is_known_by_the_files_it_writes(tmp_path: Path) -> None:
    root, proc = tmp_path / "bk", tmp_path / "proc"
    (root / "current").mkdir(parents=True)
    main = ["/usr/bin/java", "-Xmx1g", "org.apache.bookkeeper.server.Main"]
    _process(proc, 77, main, {f"{root}/current/1.txn": os.O_RDWR})
    _process(proc, 78, ["less"], {f"{root}/current/1.txn": os.O_RDONLY})
    _process(proc, 79, ["vi"], {f"{root}-other/current/1.txn": os.O_RDWR})
    (use,) = uses([root], proc)
    assert use.is_used
    assert not use.is_locked
    assert use.workers == (WritingProcess(77, "Java bookie"),)


def test_a_process_with_a_file_open_for_writing_is_found_in_the_real_proc(tmp_path: Path) -> None:
    path = tmp_path / "current" / "0.log"
    path.parent.mkdir()
    path.write_bytes(b"")
    for mode, is_used in (("rb", False), ("ab", True)):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path), mode],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            (use,) = uses([tmp_path])
            assert [worker.pid for worker in use.workers] == [process.pid] * is_used
        finally:
            process.communicate()


def test_the_holder_of_the_lock_is_named(tmp_path: Path) -> None:
    locks = DirectoryLocks()
    locks.take([tmp_path])
    try:
        (use,) = uses([tmp_path])
    finally:
        locks.release()
    assert use.is_locked
    assert [worker.pid for worker in use.workers] == [os.getpid()]
    (after,) = uses([tmp_path])
    assert (after.is_used, after.is_locked, after.workers) == (False, False, ())


def test_a_missing_directory_is_used_by_nobody(tmp_path: Path) -> None:
    (use,) = uses([tmp_path / "none"])
    assert (use.exists, use.is_used, use.is_dirty) == (False, False, False)


@pytest.mark.parametrize("dirty", [False, True])
def test_the_sign_of_an_unclean_stop_is_told(tmp_path: Path, *, dirty: bool) -> None:
    (tmp_path / "current").mkdir()
    if dirty:
        (tmp_path / "current" / "DIRTY").touch()
    assert uses([tmp_path])[0].is_dirty == dirty


def test_a_tool_of_ours_is_called_by_its_own_name(tmp_path: Path) -> None:
    """Not by its interpreter's, nor by a directory that is named like the bookie."""
    root, proc = tmp_path / "bk", tmp_path / "proc"
    root.mkdir()
    written = {f"{root}/current/1.txn": os.O_RDWR}
    convert = ["disk", "convert", "--to", "db", "--ledger-dir", "bookied-data"]
    _process(proc, 77, ["/usr/bin/python3.11", "/usr/bin/bkctl", *convert], written)
    _process(proc, 78, ["python3", "-m", "bkctl", *convert], written)
    _process(proc, 79, ["/usr/bin/python3.11", "-m", "bookied", "--conf", "x"], written)
    _process(proc, 80, ["/usr/bin/python3.11", "other.py"], written)
    (use,) = uses([root], proc)
    assert [worker.program for worker in use.workers] == [
        "bkctl disk convert",
        "bkctl disk convert",
        "bookied",
        "python3.11",
    ]
