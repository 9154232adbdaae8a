"""``bkctl disk lock-status``, and where all of ``bkctl disk`` finds its directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkctl.exit_status import ExitStatus
from bookied.directories.lock import DirectoryLocks
from tests.bkctl.support.disk import run


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    for name in ("j", "l0", "l1"):
        (tmp_path / name / "current").mkdir(parents=True)
    path = tmp_path / "bk_server.conf"
    path.write_text(
        f"root={tmp_path}\n"
        "journalDirectory=${root}/j\n"
        "ledgerDirectories=${root}/l0,${root}/l1\n"
        "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage\n"
        "bookiePort=not a number\n"
    )
    return path


def test_free_directories_are_listed_with_what_they_hold(conf: Path, tmp_path: Path) -> None:
    (tmp_path / "l1/current/DIRTY").touch()
    found = run("lock-status", "-c", conf, "--json").json["directories"]
    assert [(one["directory"], one["state"], one["holds"], one["dirty"]) for one in found] == [
        (str(tmp_path / "j"), "free", ["journal"], False),
        (str(tmp_path / "l0"), "free", ["ledger", "index"], False),
        (str(tmp_path / "l1"), "free", ["ledger", "index"], True),
    ]


def test_directories_in_use_are_a_problem_only_when_asked_for(conf: Path, tmp_path: Path) -> None:
    locks = DirectoryLocks()
    locks.take([tmp_path / "l0"])
    try:
        assert "in use" in run("lock-status", "-c", conf).out
        found = run("lock-status", "-c", conf, "--fail-if-any", ok=False)
    finally:
        locks.release()
    assert found.status == ExitStatus.PROBLEMS
    assert f"in use: {tmp_path / 'l0'}; stop that bookie first" in found.err


def test_named_directories_count_and_may_be_the_current_ones(tmp_path: Path) -> None:
    words = ("--ledger-dir", tmp_path / "a/current", "--index-dir", tmp_path / "b", "--json")
    found = run("lock-status", *words).json["directories"]
    assert [(one["directory"], one["state"], one["holds"]) for one in found] == [
        (str(tmp_path / "a"), "missing", ["ledger"]),
        (str(tmp_path / "b"), "missing", ["index"]),
    ]


def test_a_key_can_be_overridden_by_the_environment_and_by_the_command(conf: Path) -> None:
    words = ("lock-status", "-c", conf, "-o", "id")
    assert run(*words, environ={"BK_ledgerDirectories": "/e"}).out.split()[1:] == ["/e"]
    found = run(*words, "-X", "ledgerDirectories=/x", environ={"BK_ledgerDirectories": "/e"})
    assert found.out.split()[1:] == ["/x"]


def test_without_any_directories_it_says_how_to_name_them() -> None:
    found = run("lock-status", ok=False)
    assert found.status == ExitStatus.USAGE
    assert "no directories are named; give the bookie's settings with -c FILE" in found.err
