"""A bookie in the background: its pid file, how its start and its end are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookied.errors import ExitStatus
from bookied.process.daemon import PidFile, PidFileError, _fresh_output, pid_path, stop
from bookied.process.java_environment import remarks
from tests.live.bookied.processes import make_cluster, write_conf

HOLDER = """
import signal, sys, time
from pathlib import Path
from bookied.process.daemon import PidFile
held = PidFile(Path(sys.argv[1]))
assert held.take()
import os
held.write(os.getpid())
for number in (signal.SIGTERM, signal.SIGQUIT):
    signal.signal(number, lambda *_: None if "deaf" in sys.argv else sys.exit(0))
print("ready", flush=True)
time.sleep(60)
while True:
    time.sleep(60)
"""


# Pid files ---------------------------------------------------------------------------------------


def test_only_one_has_the_lock_and_whoever_gets_it_knows_that_nobody_did(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    first, second = PidFile(path), PidFile(path)
    assert first.take()
    first.write(123456)
    first.write(7)
    assert (second.take(), second.pid()) == (False, 7)
    first.remove()
    assert not path.exists()
    assert second.take()
    second.remove()


def test_a_pid_file_is_named_or_found_where_javas_script_has_it(tmp_path: Path) -> None:
    assert pid_path(tmp_path / "x", {}, "bookie") == tmp_path / "x"
    environ = {"BOOKIE_PID_DIR": str(tmp_path)}
    assert pid_path(None, environ, "autorecovery") == tmp_path / "bookkeeper-autorecovery.pid"
    with pytest.raises(PidFileError, match="which pid file"):
        pid_path(None, {}, "bookie")
    with pytest.raises(PidFileError, match="No such file"):
        PidFile(tmp_path / "no" / "pid").take()


def test_the_last_five_outputs_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "x.out"
    for number in range(8):
        _fresh_output(out).write_text(str(number))
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {
        "x.out": "7", "x.out.1": "6", "x.out.2": "5", "x.out.3": "4", "x.out.4": "3",
        "x.out.5": "2",
    }  # fmt: skip


def test_where_nothing_runs_there_is_nothing_to_stop(tmp_path: Path, capsys) -> None:
    stale = tmp_path / "bookkeeper-bookie.pid"
    stale.write_text("1\n")  # A process that runs, and is not ours.
    assert stop([], {"BOOKIE_PID_DIR": str(tmp_path)}) == ExitStatus.OK
    assert stop(["--pid-file", str(tmp_path / "none")], {}) == ExitStatus.OK
    assert capsys.readouterr().out == "no bookied to stop\n" * 2
    assert not stale.exists()
    assert stop([], {}) == ExitStatus.INVALID_CONFIGURATION


def test_variables_that_mean_nothing_here_are_named() -> None:
    assert list(remarks({})) == []
    (log, jvm) = remarks({"BOOKIE_LOG_CONF": "/l4j.xml", "BOOKIE_GC_OPTS": "-XX:x"})
    assert log[0] == "warn"
    assert "/l4j.xml is not read" in log[1]
    assert jvm == ("debug", "there is no JVM here for BOOKIE_GC_OPTS")


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def hold(started: list[subprocess.Popen[str]], path: Path, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), *words], stdout=subprocess.PIPE, text=True
    )
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.processes
def test_a_process_that_ends_when_asked_is_waited_for(tmp_path: Path, holder, capsys) -> None:
    path = tmp_path / "pid"
    process = hold(holder, path)
    assert stop(["--pid-file", str(path)], {}) == ExitStatus.OK
    assert process.wait(60) == 0
    assert f"stopped process {process.pid}" in capsys.readouterr().out
    assert not path.exists()


@pytest.mark.processes
def test_one_that_does_not_is_killed_only_when_forced(tmp_path: Path, holder, capsys) -> None:
    path = tmp_path / "pid"
    process = hold(holder, path, "deaf")
    environ = {"BOOKIE_STOP_TIMEOUT": "0.3"}
    assert stop(["--pid-file", str(path)], environ) == 1
    assert "still runs after 0.3 s" in capsys.readouterr().err
    assert process.poll() is None
    assert stop(["--pid-file", str(path), "-force"], environ) == ExitStatus.OK
    assert process.wait(60) == -signal.SIGKILL
    assert not path.exists()


# A bookie ----------------------------------------------------------------------------------------


def bookied(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bookied", *map(str, words)],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.processes
def test_a_bookie_runs_in_the_background_until_it_is_stopped(tmp_path: Path) -> None:
    conf = write_conf(tmp_path / "b1", make_cluster(tmp_path / "metadata.db"))
    pid_file = tmp_path / "bookie.pid"
    start = ("--conf", conf, "--daemonize", "--pid-file", pid_file)
    started = bookied(*start)
    assert started.returncode == 0, started.stderr
    pid = int(pid_file.read_text())
    try:
        assert started.stdout.startswith(f"bookied runs as process {pid}; its output is in ")
        assert os.getsid(pid) == pid
        assert "serving after" in (tmp_path / "bookie.out").read_text()
        again = bookied(*start)
        assert again.returncode == ExitStatus.CANNOT_START_NOW
        assert f"it runs already, as process {pid}" in again.stderr
    finally:
        stopped = bookied("stop", "--pid-file", pid_file)
    assert (stopped.returncode, stopped.stdout) == (0, f"stopped process {pid}\n")
    assert not pid_file.exists()


@pytest.mark.processes
def test_a_start_that_fails_is_told_as_in_the_foreground(tmp_path: Path) -> None:
    conf = write_conf(tmp_path / "b1", f"sqlite://{tmp_path}/none.db")
    pid_file = tmp_path / "bookie.pid"
    failed = bookied("--conf", conf, "--daemonize", "--pid-file", pid_file)
    alone = bookied("--conf", conf)
    assert failed.returncode == alone.returncode != 0
    assert failed.stderr.splitlines()[-1] == alone.stderr.splitlines()[-1]
    assert not pid_file.exists()
