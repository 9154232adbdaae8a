"""`--dry-run` writes no file, for every command that only reads and can write one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click
import pytest

from bkctl.exit_status import Effect
from bkctl.manual.commands_page import commands
from tests.bkclient.worlds import World
from tests.bkctl.commands.bookie.test_bookie import written
from tests.bkctl.support.world import run_in

INPUTS: Final = frozenset(
    {"address", "conf", "from_file", "keep_file", "password_file", "token_file"}
    | {"journal_dirs", "ledger_dirs", "index_dirs", "bookie_dirs"}
)
"""Parameters that name files and directories to read."""

READ_ONLY: Final = frozenset(
    {"config check", "config diff", "shell", "cluster tree", "cluster show"}
    | {"disk entrylog", "disk journal", "disk ledger", "disk usage"}
)
"""Commands whose other files are read, or whose PATH is no file."""

WRITERS: Final = {
    "ledger read": ("0", "--out", "out"),
    "ledger metadata dump": ("0", "out"),
    "log cursors": ("--metrics", "out"),
    "topic export": ("persistent://a/b/c", "out"),
    "spark bundle": ("out.tar.gz",),
    "cluster backup": ("out",),
    "cookie generate": (
        *("b1:3181", "--journal-dir", "/j", "--ledger-dir", "/l"),
        *("--instance-id", "x", "--out", "out"),
    ),
    "debug bundle": ("--out", "out"),
    "disk salvage": (
        *("0", "--ledger-dir", "ledgers", "--journal-dir", "journal", "--out", "out"),
    ),
}
"""Commands that only read the cluster and write a file, with words that name the file."""


@pytest.mark.parametrize("line", WRITERS)
def test_a_dry_run_writes_no_file(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ledgers/current", "journal/current"):
        Path(name).mkdir(parents=True)
        (Path(name) / "VERSION").write_text('4\nbookieHost: "b1:3181"\njournalDir: "/j"\n')
    before = sorted(tmp_path.rglob("*"))
    world = World(3)
    written(world)
    said = run_in(world, *line.split(), *WRITERS[line], "--dry-run")
    assert "would write" in said.out
    assert sorted(tmp_path.rglob("*")) == before


def test_every_reading_command_that_can_write_a_file_is_tried() -> None:
    found = {
        " ".join(path)
        for path, command in commands()
        if command.effect is Effect.READ and any(map(_names_a_file, command.params))
    }
    assert found - READ_ONLY == set(WRITERS)


def _names_a_file(parameter: click.Parameter) -> bool:
    if parameter.name in INPUTS:
        return False
    shown = parameter.metavar or (parameter.name or "").upper()
    return isinstance(parameter.type, click.Path) or bool(re.search("FILE|PATH|DIR", shown))
