"""What the tests of ``bkctl disk`` share: running a command, golden and made-up directories."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

from bkctl.cli.root import cli
from tests.bkctl.support.terminal import FakeHost
from tests.bookied.worlds.golden import DIRECTORY

SYNTHETIC = DIRECTORY / "journal-synthetic"


@attrs.frozen
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def run(
    *words: object,
    ok: bool = True,
    tty: bool = False,
    environ: Mapping[str, str] | None = None,
    sees_processes: bool = False,
) -> Result:
    """Run ``bkctl disk WORDS`` in this process."""
    environ = {"PAGER": "", **(environ or {})}
    with closing(FakeHost(tty=tty, environ=environ, sees_processes=sees_processes)) as host:
        status = cli.run(["disk", *map(str, words)], host)
    result = Result(status, host.out.data.decode(), host.err.text)
    assert not ok or status == 0, (words, result)
    return result


def dirs(name: str) -> list[str]:
    """Return the options that name the directories of a golden set with one of each."""
    root = DIRECTORY / name
    return ["--journal-dir", str(root / "journal"), "--ledger-dir", str(root / "ledgers")]


def snapshot(root: Path) -> dict[str, bytes]:
    """Return every file below ``root``: a command that only reads leaves all as it was."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def copy_of(name: str, to: Path) -> list[str]:
    """Copy a golden set, to be damaged; return the options that name its directories."""
    shutil.copytree(DIRECTORY / name, to / "bookie")
    root = to / "bookie"
    return ["--journal-dir", str(root / "journal"), "--ledger-dir", str(root / "ledgers")]
