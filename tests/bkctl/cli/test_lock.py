"""One run at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkctl.cli.lock import LockedError, held
from bkctl.cli.root import cli
from bkctl.errors import UsageError
from bkctl.exit_status import ExitStatus
from tests.bkctl.support.terminal import FakeHost


def _never(_: float) -> None:
    raise AssertionError("nobody was to wait")


def test_a_second_run_ends_at_once_and_names_the_first(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    host = FakeHost()
    with held(path, "bkctl first", wait_s=0, sleep=_never):
        status = cli.run(["profile", "list", "--lock", path], host)
        with pytest.raises(LockedError, match=f"process {os.getpid()}: bkctl first"):
            held(path, "", wait_s=0, sleep=_never).__enter__()
    assert status == ExitStatus.CONFLICT
    assert host.out.text == ""


def test_a_lock_ends_with_its_block_and_a_file_left_over_locks_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for _ in range(2):
        assert cli.run(["profile", "list", "--lock", str(path)], FakeHost()) == 0
    assert "bkctl profile list --lock" in path.read_text()


def test_a_run_may_wait_for_its_turn_but_not_for_ever(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first = held(path, "first", wait_s=0, sleep=_never)
    first.__enter__()
    waited: list[float] = []
    with pytest.raises(LockedError):
        held(path, "second", wait_s=0.5, sleep=waited.append).__enter__()
    assert sum(waited) == pytest.approx(0.5)

    def end_first(_: float) -> None:
        first.__exit__(None, None, None)

    with held(path, "second", wait_s=1, sleep=end_first):
        assert "second" in Path(path).read_text()


def test_a_file_that_cannot_be_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        held(str(tmp_path / "no" / "lock"), "", wait_s=0, sleep=_never).__enter__()


def test_a_shell_holds_the_lock_for_all_its_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "lock")
    args = ["shell", "-c", "profile list", "--lock", path]
    assert cli.run(args) == 0
    with held(path, "first", wait_s=0, sleep=_never):
        assert cli.run(args) == ExitStatus.CONFLICT
    assert "is locked by process" in capsys.readouterr().err
