"""What other users of the host can do: not read entries, not lock a bookie out."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkclient.config.findings import ConfigError
from bkclient.config.properties import parse_properties
from bookied.config.bookie import load_bookie_config
from bookied.directories.lock import LOCK, DirectoryLocks, _has_lock, is_locked
from bookied.errors import DirectoryError, DirectoryInUseError
from bookied.process.command_line import parse_options
from tests.live.bookied.test_main import Machine
from wire.codes import ReturnCode


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    found.end()


def taken(root: Path) -> DirectoryLocks:
    locks = DirectoryLocks()
    locks.take([root])
    return locks


def permissions(below: Path) -> dict[str, str]:
    """Return the permissions of others and the group in a tree, where there are more than ours."""
    found = {}
    for path in (below, *below.rglob("*")):
        mode = path.lstat().st_mode & 0o777
        if mode & ~(0o750 if path.is_dir() else 0o640):
            found[str(path.relative_to(below))] = f"{mode:o}"
    return found


@pytest.mark.processes
@pytest.mark.parametrize("storage", ["SortedLedgerStorage", "DbLedgerStorage"])
def test_data_of_a_bookie_is_for_its_user_and_group(machine: Machine, storage: str) -> None:
    conf = machine.conf(ledgerStorageClass=f"x.{storage}")
    before = os.umask(0)
    try:
        bookie = machine.start(conf)
    finally:
        os.umask(before)
    with bookie.ready().client() as client:
        assert client.add(7, 0) is ReturnCode.EOK
    assert bookie.stop() == 0
    roots = [conf.parent / "journal", conf.parent / "ledgers"]
    assert all(len(list(root.rglob("*"))) > 2 for root in roots)
    assert [permissions(root) for root in roots] == [{}, {}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("27", "is not an octal number of three digits, as 027"),
        ("089", "is not an octal number of three digits, as 027"),
        ("0700", "takes permissions from the bookie itself"),
    ],
)
def test_an_umask_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    given = f"metadataServiceUri=sqlite:///m.db\nfileUmask={text}"
    with pytest.raises(ConfigError, match=message):
        load_bookie_config(parse_properties(given))


def test_a_lock_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / LOCK
    path.touch(0o666)
    path.chmod(0o666)  # As an older version left it.
    locks = taken(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert is_locked(tmp_path)
    locks.release()
    assert not is_locked(tmp_path)


def test_a_lock_file_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DirectoryError, match=f"{tmp_path / LOCK} cannot be used as a lock file"):
        taken(tmp_path)
    assert (tmp_path / "elsewhere").read_text() == "kept"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_no_lock_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / LOCK)
    with pytest.raises(DirectoryError, match=f"{tmp_path / LOCK} cannot be used .*; remove it"):
        taken(tmp_path)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """Give a directory that every user can reach; pytest's own is for its user."""
    directory = Path(tempfile.mkdtemp(prefix="bkctl-lock-", dir="/dev/shm"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_can_see_a_lock_and_not_hold_it(shared: Path) -> None:
    locks = taken(shared)
    with nobody():
        assert is_locked(shared)
        with pytest.raises(PermissionError):
            (shared / LOCK).open()
    locks.release()
    with nobody():
        assert not is_locked(shared)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_lock_file_of_another_user_is_refused(shared: Path) -> None:
    (shared / LOCK).touch(0o666)
    (shared / LOCK).chmod(0o666)
    with (
        nobody(),
        pytest.raises(DirectoryError, match="belongs to user 0, which could lock bookied out"),
    ):
        taken(shared)


def test_locks_are_found_in_what_the_system_says() -> None:
    told = (
        "1: POSIX  ADVISORY  WRITE 5 08:02:41 0 EOF\n"
        "2: FLOCK  ADVISORY  WRITE 6 08:02:42 0 EOF\n"
        "2: -> FLOCK  ADVISORY  WRITE 7 08:02:43 0 EOF\n"
        "3: FLOCK  ADVISORY  READ  8 08:02:44 0 EOF\n"
    )
    assert [_has_lock(inode, told) for inode in (41, 42, 43, 44, 2)] == [False, True, *[False] * 3]


def test_a_second_bookie_is_still_told_who_has_the_directory(tmp_path: Path) -> None:
    locks = taken(tmp_path)
    with pytest.raises(DirectoryInUseError, match=f"process {os.getpid()}"):
        taken(tmp_path)
    locks.release()
    with (tmp_path / LOCK).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    "words", [["stop"], ["stop", "--force"], ["--daemonize"], ["--pid-file", "x"]]
)
def test_what_a_service_manager_does_is_refused_with_a_hint(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_options(words)
    assert caught.value.code == 1
    assert "systemctl" in capsys.readouterr().err
