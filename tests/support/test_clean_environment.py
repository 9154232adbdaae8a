from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.clean_environment import keep_away

HOME = Path("/home/of/tests")
KEPT = {
    "PATH": "/bin", "CI": "true", "HOME": "/home/me", "SPARK_HOME": "/spark",
    "BKCTL_CI_WITHOUT": "zsh", "BKCTL_SIM_SEEDS": "1", "BOOKIED_SIM_SEEDS": "1",
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "BKCTL_SERVICE_URI", "BKCTL_OUTPUT", "BK_bookiePort", "BOOKIE_CONF", "CLI_CONF", "COLUMNS",
        "NO_COLOR", "NOTIFY_SOCKET", "SPARK_CONF_DIR", "TERM",
    ],
)  # fmt: skip
def test_what_would_change_our_programs_is_taken_away(name: str) -> None:
    environ = {**KEPT, name: "x"}
    keep_away(environ, lambda: HOME)
    assert name not in environ
    assert environ.items() >= KEPT.items()


def test_files_of_the_user_are_out_of_reach_but_what_is_fetched_once_is_not(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    keep_away(environ, lambda: HOME)
    assert environ["BKCTL_TEST_JARS"].startswith(f"{tmp_path}/.cache/bkctl-tests/")
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        assert Path(environ[name]).parent == HOME
    again = {**environ, "PYTEST_XDIST_WORKER": "gw0"}
    keep_away(again, lambda: HOME)
    assert again == {**environ, "PYTEST_XDIST_WORKER": "gw0"}


def test_modules_are_compiled_once_though_the_user_wants_no_compiled_files_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    unwanted = {"HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    chosen = {**unwanted, "PYTHONPYCACHEPREFIX": "/chosen"}
    keep_away(environ := {**chosen}, lambda: HOME)
    assert (environ.items() >= chosen.items(), sys.dont_write_bytecode) == (True, True)
    bytecode = tmp_path / ".cache/bkctl-tests/bytecode"
    of_earlier_tests = Path(f"{bytecode}{tempfile.gettempdir()}/pytest-1")
    of_earlier_tests.mkdir(parents=True)
    keep_away(environ := {**unwanted}, lambda: HOME)
    assert "PYTHONDONTWRITEBYTECODE" not in environ
    assert environ["PYTHONPYCACHEPREFIX"] == str(bytecode)
    assert not of_earlier_tests.exists()
    assert (sys.pycache_prefix, sys.dont_write_bytecode) == (environ["PYTHONPYCACHEPREFIX"], False)


@pytest.mark.parametrize("name", ["a b", "$x", "é", "x" * 60])
def test_temporary_files_are_where_tests_can_name_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / name
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    keep_away({"TMPDIR": str(odd)}, lambda: HOME)
    assert tempfile.tempdir == "/tmp"


def test_programs_that_tests_start_keep_temporary_files_in_the_home() -> None:
    before, environ = tempfile.gettempdir(), {"TMPDIR": "/tmp"}
    keep_away(environ, lambda: HOME)
    assert environ["TMPDIR"] == f"{HOME}/tmp"
    assert tempfile.gettempdir() == before
    # A process that shares the tests of this one makes its own files where this one does.
    tempfile.tempdir = environ["TMPDIR"]
    keep_away({**environ, "PYTEST_XDIST_WORKER": "gw0"}, lambda: HOME)
    assert tempfile.gettempdir() == before


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    run = "import os; from tests.support.clean_environment import keep_away; keep_away(os.environ)"
    environ.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run([sys.executable, "-c", run], env=environ, check=False)
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])
