"""The README: what it shows runs, and CI runs the tests as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SLOW, SLOW_FILES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STARTED_S = 120.0


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def _block_with(text: str) -> str:
    (block,) = (block for block in _blocks("sh") if text in block)
    return block


def test_ci_runs_the_test_command_of_the_readme() -> None:
    install, run = re.search(
        r"^python3 -m venv \.venv && (.*) && (\.venv/bin/pytest -n 8)$",
        _block_with("pytest"),
        re.MULTILINE,
    ).groups()
    ci = (ROOT / ".ci/run").read_text()
    assert install.replace(".venv", '"$venv', 1).replace("/pip", '/pip"', 1) in ci
    assert '"$venv/bin/pytest" -n 8\n' in ci
    assert run == ".venv/bin/pytest -n 8"


def test_the_tests_that_begin_first_are_where_the_list_says() -> None:
    assert not [place for place in (*SLOW, *SLOW_FILES) if not (ROOT / place).exists()]


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """A shell's environment: the programs of the README on the PATH, and an empty home."""
    home = tmp_path / "home"
    home.mkdir()
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"}


@pytest.fixture
def shown(tmp_path: Path, surroundings: dict[str, str]) -> Iterator[str]:
    """What the commands for a cluster on this machine print, and the Python snippet behind them."""
    script = tmp_path / "script"
    (snippet,) = _blocks("python")
    (tmp_path / "snippet.py").write_text(snippet)
    cluster = _block_with("bkctl local").replace("/tmp/bk", str(tmp_path / "bk"))
    script.write_text(f"set -e -o pipefail\n{cluster}\npython {tmp_path / 'snippet.py'}\n")
    done = subprocess.run(
        ["bash", str(script)],
        cwd=ROOT,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=STARTED_S,
        check=False,
    )
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        yield done.stdout
    finally:
        stop = ["bkctl", "local", "stop", str(tmp_path / "bk")]
        subprocess.run(stop, env=surroundings, timeout=STARTED_S, check=True)


def test_the_cluster_on_this_machine_and_the_python_snippet_work_as_they_stand(shown: str) -> None:
    assert re.search(r"first entry\s", shown)
    assert shown.endswith("0 b'hello'\n1 b'world'\n")
