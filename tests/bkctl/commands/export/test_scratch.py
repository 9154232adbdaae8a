"""Scratch directories of Spark sessions: gone at the end, and those of killed processes later."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bkctl.commands.export.spark.session import MARK, PREFIX, scratch_directory

HOLDS_ONE = """
import sys
from bkctl.commands.export.spark.session import scratch_directory
with scratch_directory() as made:
    print(made, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def directory_of_another_process(*, killed: bool) -> tuple[subprocess.Popen, Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS_ONE],
        env={**os.environ, "TMPDIR": tempfile.gettempdir()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    made = Path(process.stdout.readline().strip())
    if killed:
        process.kill()
        process.wait()
    return process, made


def close(process: subprocess.Popen) -> None:
    process.communicate()


def test_it_is_gone_afterwards_with_all_that_it_holds(tmp_path) -> None:
    with scratch_directory() as made:
        (made / "blockmgr").mkdir()
        (made / "blockmgr" / "block").write_text("1")
    assert not list(tmp_path.iterdir())


def test_one_that_a_killed_process_left_is_removed_later(tmp_path) -> None:
    process, _left = directory_of_another_process(killed=True)
    close(process)
    with scratch_directory() as made:
        assert list(tmp_path.iterdir()) == [made]


def test_one_that_is_in_use_stays(tmp_path) -> None:
    process, used = directory_of_another_process(killed=False)
    try:
        with scratch_directory() as made:
            assert {*tmp_path.iterdir()} == {made, used}
    finally:
        close(process)


def test_a_directory_of_the_user_stays_although_it_is_called_as_ours(tmp_path) -> None:
    mine = tmp_path / f"{PREFIX}results"
    mine.mkdir()
    (mine / "part-0.parquet").write_text("1")
    os.utime(mine, (0, 0))
    with scratch_directory():
        assert (mine / "part-0.parquet").read_text() == "1"


@pytest.mark.parametrize("name", ["", "another-machine"])
def test_one_of_another_machine_or_without_a_lock_stays(tmp_path, name: str) -> None:
    other = tmp_path / f"{PREFIX}other"
    other.mkdir()
    (other / MARK).write_text(name)
    with scratch_directory():
        assert other.is_dir()


def test_a_link_is_not_followed(tmp_path) -> None:
    process, left = directory_of_another_process(killed=True)
    close(process)
    mine = tmp_path / "mine"
    left.rename(mine)
    (tmp_path / f"{PREFIX}link").symlink_to(mine)
    linked = tmp_path / f"{PREFIX}mark"
    linked.mkdir()
    (linked / MARK).symlink_to(mine / MARK)
    with scratch_directory():
        assert mine.is_dir()
        assert linked.is_dir()
