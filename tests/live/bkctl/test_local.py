"""A cluster on this machine: its directory, its children, and what is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from bkctl.cli.root import cli
from bkctl.commands.local.directory import BACKGROUND_LOG, CONF_FILE, STATE_FILE
from bkctl.commands.local.ports import free_port
from bkctl.commands.local.run import without_settings
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from bkctl.commands.local.zookeeper import settings as zookeeper_settings
from bkctl.errors import NothingFoundError, UsageError
from bkctl.exit_status import ExitStatus
from tests.bkctl.support.cluster import BKCTL, local_cluster
from tests.bkctl.support.terminal import FakeHost, run_here
from tests.support.waiting import until

TIMEOUT_S = 120.0
BOOKIED = [sys.executable, "-m", "bookied"]


def _run(*args: object) -> subprocess.CompletedProcess[str]:
    command = [*BKCTL, *map(str, args)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)


def _processes(directory: Path, program: bytes = b"bookied") -> list[int]:
    """Return the processes that have this directory on their command line, ours excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if program in line and os.fsencode(directory) in line:
                found.append(int(entry.name))
    return sorted(found)


def _until_listed(uri: str) -> None:
    words = ("-u", uri, "bookie", "list", "--state", "rw", "-o", "id")
    until(lambda: run_here(*words).stdout, "no bookie takes adds")


# Without processes -----------------------------------------------------------------------------


def test_javas_zookeeper_conf_gives_port_and_directory(tmp_path: Path) -> None:
    assert zookeeper_settings({}) == {}
    conf = tmp_path / "zookeeper.conf"
    conf.write_text("# dataDir=/not/this\ntickTime=2000\ndataDir=/zk\nclientPort = 21810\n")
    planned = _bkctl("local", "zookeeper", "--dry-run", environ={"BOOKIE_ZK_CONF": str(conf)})
    assert planned == (0, "would start ZooKeeper at 127.0.0.1:21810 in /zk\n")
    for port in ("x", "0", "65536"):
        conf.write_text(f"clientPort={port}\n")
        said = f"clientPort is '{port}' in {conf}, .* by BOOKIE_ZK_CONF; .* from 1 to 65535"
        with pytest.raises(UsageError, match=said):
            zookeeper_settings({"BOOKIE_ZK_CONF": str(conf)})
    with pytest.raises(NothingFoundError, match="No such file"):
        zookeeper_settings({"BOOKIE_ZK_CONF": str(tmp_path / "none")})


def _bkctl(*words: str, environ: dict[str, str]) -> tuple[int, str]:
    with closing(FakeHost(environ=environ)) as host:
        return cli.run(words, host), host.out.text


@pytest.mark.parametrize("size", ["0", "101", "three", "-1"])
def test_a_cluster_has_one_to_a_hundred_bookies(
    size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["local", "--dry-run", "--", size]) == ExitStatus.USAGE
    assert (
        "is not 1 to 100, `zookeeper`, `status`, `start`, `stop` or `restart`"
        in capsys.readouterr().err
    )


def test_a_directory_without_a_cluster_has_no_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["status", str(tmp_path)], ["stop", str(tmp_path / "none")]):
        with closing(FakeHost()) as host:
            assert cli.run(["local", *words], host) == ExitStatus.NOT_FOUND
            assert "holds no cluster of `bkctl local`" in host.err.text
    assert cli.run(["local", "stop"]) == ExitStatus.USAGE
    assert "`local stop` needs DIR" in capsys.readouterr().err


# With processes --------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_cluster_can_be_stopped_and_started_again_with_all_it_had(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    with local_cluster(directory, 2) as cluster:
        made = run_here("-u", cluster.uri, "ledger", "write", __file__, "-E2", "-W2", "-A2")
        assert made.returncode == 0, made.stderr
    assert _processes(directory) == []
    with local_cluster(directory, 2) as cluster:
        read = run_here("-u", cluster.uri, "ledger", "read", made.stdout.strip())
        assert read.stdout == Path(__file__).read_text()
        listed = run_here("-u", cluster.uri, "bookie", "list", "--json")
        assert [b["state"] for b in json.loads(listed.stdout)["bookies"]] == ["writable"] * 2


@pytest.mark.processes
def test_the_env_file_is_what_a_shell_needs(tmp_path: Path) -> None:
    directory = tmp_path / "with space"
    with local_cluster(directory, 1) as cluster:
        shown = subprocess.run(
            ["sh", "-c", '. "$1" && printf %s "$BKCTL_SERVICE_URI"', "sh", directory / "bkctl.env"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert shown.stdout == f"sqlite://{directory}/metadata.db"
        assert run_here("-u", shown.stdout, "bookie", "list", "-o", "id").stdout.count("\n") == 1
        assert cluster.directory == directory


@pytest.mark.processes
def test_the_first_minute_has_figures_of_every_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "bk"
    with local_cluster(directory, 2, "--set", "httpServerEnabled=true"):
        line = '. "$0" && env -0'
        shown = subprocess.run(
            ["sh", "-c", line, directory / "bkctl.env"], check=True, capture_output=True, text=True
        )
        for setting in shown.stdout.split("\0"):
            if setting.startswith("BKCTL_"):
                monkeypatch.setenv(*setting.split("=", 1))

        top = json.loads(run_here("top", "--once", "-i", "0.2s", "--json").stdout)
        assert [bookie["error"] for bookie in top["bookies"]] == [None, None]
        bookie = top["bookies"][0]["bookie_id"]
        assert run_here("bookie", "state", bookie).returncode == 0
        collected = run_here("bookie", "gc", bookie, "--yes")  # A change: it needs the token.
        assert collected.returncode == 0, collected.stderr
        assert "leave out the entry log that" in run_here("bookie", "gc-status", bookie).stderr
        assert json.loads(run_here("autorecovery", "status", "--json").stdout)["auditor"]
        _check_settings_of_all()


def _check_settings_of_all() -> None:
    """Check that one setting of all bookies is changed and shown, and where it comes from."""

    def shown(*words: str) -> list[tuple[str, str]]:
        found = run_here("bookie", "config", "--all", *words, "--json").stdout
        return [(one["value"], one["origin"]) for one in json.loads(found)["settings"]]

    change = "bookie", "config-set", "--all", "gcWaitTime=700000"
    assert shown("gcWaitTime") == [("600000", "default")] * 2
    assert "Change 2 bookies?" in run_here(*change).stderr
    assert run_here(*change, "--dry-run").stdout.count("from 600000 to 700000\n") == 2
    assert "settings file of each bookie:\n  gcWaitTime=700000" in run_here(*change, "--yes").stderr
    assert shown("gcWaitTime") == [("700000", "set at run time")] * 2
    assert all("bookie.conf:" in origin for _, origin in shown("bookiePort"))
    bookies = run_here("bookie", "list", "-o", "id").stdout.split()
    some = run_here("bookie", "config", f"{bookies[0]},none:1", "gcWaitTime")
    assert (some.returncode, some.stdout.count("700000")) == (8, 1)
    assert "warning: bookie none:1 is not registered" in some.stderr
    assert run_here("bookie", "config-set", ",".join(bookies), "nosuch=1", "--yes").returncode == 3


@pytest.mark.processes
def test_ctrl_c_stops_everything_and_removes_what_was_temporary(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*BKCTL, "local", "1", "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout is not None
    told = b""
    while not told.rstrip().endswith(b"\n}"):
        line = process.stdout.readline()
        assert line, process.communicate()
        told += line
    summary = json.loads(told)
    directory = Path(summary["directory"])
    assert directory.parent == tmp_path
    (bookie,) = summary["bookies"]
    assert bookie["state"] == "up"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    assert not directory.exists()
    assert _processes(directory) == []


@pytest.mark.processes
def test_children_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    process = subprocess.Popen(
        [*BKCTL, "local", "2", "--dir", str(directory)], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    while b"bkctl.env" not in (line := process.stdout.readline()):
        assert line, "it has ended"
    assert len(_processes(directory)) == 2
    process.kill()
    process.communicate()
    until(lambda: not _processes(directory), "bookies are left behind")


@pytest.mark.processes
def test_in_the_background_it_returns_once_all_are_up(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    started = _run("local", 1, "--dir", directory, "--background")
    assert started.returncode == 0, started.stderr
    assert "starting 1 bookie\n" in started.stderr  # What the child logs.
    assert "Ctrl-C" not in started.stderr + (directory / BACKGROUND_LOG).read_text()
    try:
        (pid,) = _processes(directory)
        listed = run_here("-u", f"sqlite://{directory}/metadata.db", "bookie", "list", "-o", "id")
        assert listed.stdout.strip() in started.stdout
        shown = json.loads(run_here("local", "status", directory, "--json").stdout)
        assert [(one["state"], one["pid"]) for one in shown["bookies"]] == [("up", pid)]
        ids = run_here("local", "status", directory, "-o", "id").stdout
        assert ids == listed.stdout
        which = re.search("clusters that run here: (.*);", run_here("local", "status").stderr)
        assert which is not None
        assert str(directory) in which[1].split(", ")
        os.kill(pid, signal.SIGKILL)
        again = f"to start {ids.strip()} again: bkctl local start {directory} {ids.strip()}\n"
        # What was killed may hold its lock for a moment longer than it is seen to run.
        until(
            lambda: again in run_here("local", "status", directory).stderr, "the bookie is still up"
        )
        assert f"bkctl local stop {directory}" in started.stderr
        restarted = _run("local", "restart", directory)
        assert restarted.returncode == 0, restarted.stderr
        assert run_here("local", "status", directory, "-o", "id").stdout == ids
        assert "up" in run_here("local", "status", directory).stdout
    finally:
        stopped = _run("local", "stop", directory)
    assert (stopped.returncode, _processes(directory)) == (0, [])
    assert _processes(directory, b"bkctl") == []  # Not even the process that ran the cluster.
    again = run_here("local", "stop", directory)
    assert (again.returncode, again.stderr) == (0, f"no cluster runs in {directory}\n")
    shown = run_here("local", "status", directory)
    assert "down" in shown.stdout
    assert f"to start it: bkctl local 1 --dir {directory} --background\n" in shown.stderr


@pytest.mark.processes
def test_a_bookie_that_was_decommissioned_is_left_out_and_one_started_by_hand_is_named(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "bk"
    words = ("local", 2, "--dir", directory, "--background")
    uri = f"sqlite://{directory}/metadata.db"
    by_hand: subprocess.Popen[bytes] | None = None
    assert _run(*words).returncode == 0
    try:
        rows = json.loads(run_here("local", "status", directory, "--json").stdout)["bookies"]
        os.kill(rows[0]["pid"], signal.SIGTERM)
        gone = rows[0]["bookie_id"]
        until(lambda: _state(directory, gone) == "down", "the bookie is still up")
        out = run_here("-u", uri, "decommission", gone, "--yes")
        assert out.returncode == 0, out.stderr
        status = run_here("local", "status", directory)
        assert "decommissioned" in status.stdout
        assert "to start" not in status.stderr
        assert f"to remove {gone} from the cluster: rm -r {rows[0]['directory']}" in status.stderr
        unnamed = run_here("local", "start", directory)
        assert unnamed.returncode == 0
        assert unnamed.stderr.startswith("no bookie of the cluster is down; for more bookies: ")
        os.kill(rows[1]["pid"], signal.SIGTERM)
        until(lambda: _state(directory, rows[1]["bookie_id"]) == "down", "it is still up")
        conf = f"{rows[1]['directory']}/bookie.conf"
        by_hand = subprocess.Popen([*BOOKIED, "--conf", conf], stderr=subprocess.DEVNULL)
        until(lambda: _state(directory, rows[1]["bookie_id"]) == "up", "it did not start")
        stopped = run_here("local", "stop", directory)
        assert (stopped.returncode, f"kill {by_hand.pid}" in stopped.stderr) == (7, True)
        by_hand.terminate()
        by_hand.wait(TIMEOUT_S)
        again = _run(*words)
        assert again.returncode == 0, again.stderr
        assert f"{gone} was decommissioned" in (directory / BACKGROUND_LOG).read_text()
        assert len(_processes(directory)) == 1
        shutil.rmtree(rows[0]["directory"])
        until(
            lambda: len(json.loads((directory / STATE_FILE).read_text())["removed"]) == 1,
            "the removed bookie still counts",
        )
        assert gone not in run_here("local", "status", directory).stdout
    finally:
        if by_hand is not None and by_hand.poll() is None:
            by_hand.kill()
            by_hand.wait(TIMEOUT_S)
        run_here("local", "stop", directory)
    assert _processes(directory) == []


def _state(directory: Path, bookie_id: str) -> str:
    found = json.loads(run_here("local", "status", directory, "--json").stdout)["bookies"]
    return next(one["state"] for one in found if one["bookie_id"] == bookie_id)


@pytest.mark.processes
def test_a_registration_from_before_a_crash_is_not_taken_for_a_start(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    words = ("local", 1, "--dir", directory, "--background")
    for crashes in (True, False):
        began_ms = time.time() * 1000
        started = _run(*words)
        assert started.returncode == 0, started.stderr
        try:
            with contextlib.closing(sqlite3.connect(directory / "metadata.db")) as metadata:
                query = "SELECT ctime_ms FROM node WHERE kind = 'avail'"
                ((registered_ms,),) = metadata.execute(query).fetchall()
            assert registered_ms >= began_ms
        finally:
            for one in _processes(directory) if crashes else ():
                os.kill(one, signal.SIGKILL)
            run_here("local", "stop", directory)
        assert _processes(directory) == []


@pytest.mark.processes
def test_a_bookie_that_cannot_start_stops_all_and_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        base = taken.getsockname()[1]
        failed = _run("local", 1, "--dir", tmp_path / "bk", "--port-base", base)
    assert failed.returncode == ExitStatus.UNREACHABLE
    assert f"port {base} is in use" in failed.stderr
    wrong = _run("local", 2, "--dir", tmp_path / "bk2", "--set", "journalAlignmentSize=7")
    assert wrong.returncode == ExitStatus.UNREACHABLE
    cause = "journalAlignmentSize: '7' is out of range; allowed: 512 and above; its log"
    assert cause in wrong.stderr
    assert "did not start: /" in wrong.stderr
    assert _processes(tmp_path) == []
    background = _run(
        "local", 2, "--dir", tmp_path / "bk3", "--set", "journalAlignmentSize=7", "--background"
    )
    assert background.returncode == ExitStatus.UNREACHABLE
    assert "its log " in background.stderr


@pytest.mark.processes
def test_a_broken_bookie_of_an_existing_cluster_leaves_the_others_running(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    with local_cluster(directory, 2):
        broken, sound = run_here("local", "status", directory, "-o", "id").stdout.split()
    version = directory / "bookie-1/ledgers/current/VERSION"
    cookie = version.read_bytes()
    version.unlink()
    words = ("local", 2, "--dir", directory, "--background")
    refused = _run(*words, "--set", "flushInterval=1000")
    assert refused.returncode == ExitStatus.UNREACHABLE  # All have to start with new settings.
    assert _processes(directory) == []
    started = _run(*words)
    try:
        assert started.returncode == ExitStatus.PARTLY, started.stderr
        assert f"1 bookie did not start: {broken}" in started.stderr
        assert f"bkctl local start {directory} {broken}" in started.stderr
        assert f"bookie {broken} did not start: " in (directory / BACKGROUND_LOG).read_text()
        assert (_state(directory, broken), _state(directory, sound)) == ("down", "up")
        version.write_bytes(cookie)
        repaired = run_here("local", "start", directory, broken)
        assert repaired.returncode == 0, repaired.stderr
    finally:
        run_here("local", "stop", directory)
    for bookie in ("bookie-1", "bookie-2"):
        (directory / bookie / "bookie.conf").write_text("bookiePort=1\n")
    none = _run(*words)
    assert (none.returncode, _processes(directory)) == (ExitStatus.UNREACHABLE, [])


@pytest.mark.processes
def test_one_bookie_is_stopped_and_started_by_its_id(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    with local_cluster(directory, 2) as cluster:
        ids = run_here("local", "status", directory, "-o", "id").stdout.split()
        stopped = run_here("local", "stop", directory, ids[1])
        start = f"bkctl local start {directory} {ids[1]}"
        copies = (
            "autorecovery copies its ledgers, if any, to other bookies from now on; "
            f"to prevent that: bkctl -u {cluster.uri} autorecovery disable --for 30m"
        )
        assert stopped.returncode == 0
        # A line before may say that the stop took longer than two seconds.
        said = f"stopped bookie {ids[1]}; to start it: {start}\n"
        assert stopped.stderr.endswith(f"{said}{copies}\n")
        assert len(_processes(directory)) == 1
        log = directory.with_suffix(".log")
        until(lambda: f"bookie {ids[1]} was stopped\n" in log.read_text(), "not reported")
        assert "warning" not in log.read_text()
        again = run_here("local", "stop", directory, ids[1])
        assert (again.returncode, again.stderr) == (0, f"bookie {ids[1]} does not run\n")
        unnamed = _run("local", "start", directory)
        assert unnamed.returncode == 0, unnamed.stderr
        assert f"started bookie {ids[1]}; its log is" in unnamed.stderr
        listed = run_here("-u", cluster.uri, "bookie", "list", "--state", "writable", "-o", "id")
        assert sorted(listed.stdout.split()) == sorted(ids)
        assert "runs already" in run_here("local", "start", directory, ids[1]).stderr
        chosen = run_here(
            "-u", cluster.uri, "bookie", "show", "--filter", "uptime_s>=0", "-o", "id"
        )
        assert sorted(chosen.stdout.split()) == sorted(ids), chosen.stderr
        assert run_here("-u", cluster.uri, "autorecovery", "disable").returncode == 0
        paused = run_here("local", "stop", directory, ids[1])
        assert paused.stderr.endswith(said)
        assert run_here("local", "start", directory, ids[1]).returncode == 0
        before = _processes(directory)
        restarted = run_here("local", "restart", directory, ids[1])
        assert restarted.returncode == 0, restarted.stderr
        assert f"started bookie {ids[1]}; its log is" in restarted.stderr
        assert "autorecovery" not in restarted.stderr
        assert len(set(before) & set(_processes(directory))) == 1
        assert run_here("-u", cluster.uri, "autorecovery", "enable").returncode == 0
        restarted = run_here("local", "restart", directory, ids[1])
        assert "autorecovery may mark and copy its ledgers during the restart" in restarted.stderr
        assert "autorecovery disable --for 30m" in restarted.stderr
        for word in ("start", "stop"):
            unknown = run_here("local", word, directory, "127.0.0.1:1")
            assert unknown.returncode == ExitStatus.NOT_FOUND
            assert f"its bookies are {ids[0]}, {ids[1]}" in unknown.stderr
    gone = run_here("local", "start", directory, ids[0])
    assert gone.returncode == ExitStatus.CONFLICT
    assert f"to start it: bkctl local 2 --dir {directory} --background" in gone.stderr


@pytest.mark.processes
def test_bookies_are_added_while_the_cluster_runs_and_are_there_after_a_restart(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "bk"
    with local_cluster(directory, 1) as cluster:
        first = run_here("local", "status", directory, "-o", "id").stdout.split()
        planned = run_here("local", "3", "--dir", directory, "--dry-run")
        assert planned.stdout == f"would start 2 bookies more in {directory}\n"
        port = free_port()
        added = _run("local", "3", "--dir", directory, "--port", str(port), "-o", "id")
        assert added.returncode == 0, added.stderr
        ids = added.stdout.split()
        assert ids[1] == f"127.0.0.1:{port}"
        assert (len(ids), ids[:1]) == (3, first)
        writable = ("-u", cluster.uri, "bookie", "list", "--state", "writable", "-o", "id")
        assert sorted(run_here(*writable).stdout.split()) == sorted(ids)
        assert len(_processes(directory)) == 3
        for words in (("3",), ("4", "--set", "gcWaitTime=1000"), ("4", "--zookeeper")):
            refused = _run("local", words[0], "--dir", directory, *words[1:])
            assert refused.returncode == ExitStatus.CONFLICT, refused.stderr
    with local_cluster(directory, 3) as cluster:
        again = run_here("local", "status", directory, "-o", "id").stdout.split()
        assert again == ids


@pytest.mark.processes
def test_a_bookie_that_was_killed_counts_as_started_only_when_it_runs(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    words = ("local", "status", directory, "--json")
    with local_cluster(directory, 2):
        (one, _) = json.loads(run_here(*words).stdout)["bookies"]
        os.kill(one["pid"], signal.SIGKILL)  # Its registration stays for some seconds.
        log = directory.with_suffix(".log")
        until(lambda: "ended with -9" in log.read_text(), "not reported")
        started = run_here("local", "start", directory, one["bookie_id"])
        assert started.returncode == 0, started.stderr
        assert _state(directory, one["bookie_id"]) == "up"


@pytest.mark.processes
def test_a_bookie_that_does_not_start_again_says_why(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    with local_cluster(directory, 2):
        ids = run_here("local", "status", directory, "-o", "id").stdout.split()
        assert run_here("local", "stop", directory, ids[1]).returncode == 0
        (directory / "bookie-2/ledgers/current/VERSION").unlink()
        refused = run_here("local", "start", directory, ids[1])
        assert refused.returncode == ExitStatus.UNREACHABLE
        assert f"bookie {ids[1]} did not start: " in refused.stderr
        assert f"its log is {directory}/bookie-2/bookie.log" in refused.stderr
        shutil.rmtree(directory / "bookie-2")
        refused = run_here("local", "start", directory, ids[1])
        assert refused.returncode == ExitStatus.UNREACHABLE
        assert "lost its cookie: a directory was emptied" in refused.stderr


@pytest.mark.processes
def test_what_a_user_changes_in_the_settings_of_a_bookie_stays(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    conf, ledgers = directory / "bookie-1" / CONF_FILE, f"{directory}/bookie-1/ledgers"
    with local_cluster(directory, 1) as cluster:
        bookie_id = run_here("local", "status", directory, "-o", "id").stdout.strip()
        assert run_here("local", "stop", directory, bookie_id).returncode == 0
        edited = conf.read_text().replace(ledgers, f"{ledgers},{ledgers}2") + "# mine\n"
        conf.write_text(edited)
        refused = run_here("local", "start", directory, bookie_id)
        assert (refused.returncode, conf.read_text()) == (ExitStatus.UNREACHABLE, edited)
        expanded = run_here("-u", cluster.uri, "disk", "expand", "-c", conf, "--yes")
        assert expanded.returncode == 0, expanded.stderr
        started = run_here("local", "start", directory, bookie_id)
        assert (started.returncode, conf.read_text()) == (0, edited), started.stderr
        assert run_here("local", "stop", directory, bookie_id).returncode == 0
        conf.write_text(re.sub("bookiePort=.*", "bookiePort=1", edited))
        other = run_here("local", "start", directory, bookie_id)
        assert other.returncode == ExitStatus.UNREACHABLE
        assert f"{conf} does not set bookiePort=" in other.stderr
        conf.write_text(edited)
    wrong = _run("local", 1, "--dir", directory, "--set", "journalAlignmentSize=7")
    assert (wrong.returncode, conf.read_text()) == (ExitStatus.UNREACHABLE, edited)
    with local_cluster(directory, 1, "--set", "gcWaitTime=77000"):
        assert conf.read_text() == f"{edited}gcWaitTime=77000\n"


@pytest.mark.processes
def test_a_bookie_that_was_renamed_is_started_and_shown_by_its_new_id(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    conf = directory / "bookie-2" / CONF_FILE
    with local_cluster(directory, 2):
        kept, old = run_here("local", "status", directory, "-o", "id").stdout.split()
    conf.write_text(conf.read_text().replace("=127.0.0.1\n", "=localhost\n"))
    renamed = run_here("bookie", "rename", "-c", conf, "--yes")
    assert renamed.returncode == 0, renamed.stderr
    new = old.replace("127.0.0.1", "localhost")
    with local_cluster(directory, 2) as cluster:
        assert run_here("local", "status", directory, "-o", "id").stdout.split() == [kept, new]
        listed = run_here("-u", cluster.uri, "bookie", "list", "-o", "id")
        assert sorted(listed.stdout.split()) == sorted([kept, new])
        for word in ("stop", "start"):
            done = run_here("local", word, directory, new)
            assert done.returncode == 0, done.stderr


@pytest.mark.processes
def test_a_bookie_that_dies_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    with local_cluster(directory, 2):
        victim = _processes(directory)[0]
        os.kill(victim, signal.SIGKILL)
        log = directory.with_suffix(".log")
        until(lambda: "ended with -9" in log.read_text(), "not told")
        assert len(_processes(directory)) == 1


@pytest.mark.processes
def test_the_last_bookie_takes_nothing_along_and_settings_are_kept(tmp_path: Path) -> None:
    directory = tmp_path / "bk"
    conf = directory / "bookie-1" / CONF_FILE
    for options in (("--set", "gcWaitTime=77000"), ()):
        with local_cluster(directory, 1, *options) as cluster:
            assert "gcWaitTime=77000\n" in conf.read_text()
            (victim,) = _processes(directory)
            os.kill(victim, signal.SIGKILL)
            log = directory.with_suffix(".log")
            until(lambda log=log: "no bookie is left" in log.read_text(), "not told")
            assert f"bkctl local start {directory} 127.0.0.1:" in log.read_text()
            assert run_here("-u", cluster.uri, "cluster", "info").returncode == 0
            again = subprocess.Popen([*BOOKIED, "--conf", str(conf)], stderr=subprocess.DEVNULL)
            try:
                _until_listed(cluster.uri)
            finally:
                again.terminate()
                again.wait(TIMEOUT_S)


@pytest.mark.processes
@pytest.mark.spark
def test_a_real_zookeeper_can_be_had(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "bk", 1, "--zookeeper") as cluster:
        assert cluster.uri.startswith("zk+hierarchical://127.0.0.1:")
        made = run_here("-u", cluster.uri, "ledger", "create", "-E1", "-W1", "-A1")
        assert made.stdout.strip().isdigit(), made.stderr
        added = run_here("-u", cluster.uri, "ledger", "add", made.stdout.strip(), "hello")
        assert added.returncode == 0, added.stderr
        read = run_here("-u", cluster.uri, "ledger", "read", made.stdout.strip())
        assert read.stdout == "hello\n"


def _until_told(words: list[str], environ: dict[str, str] | None = None) -> tuple[dict, bytes]:
    """Run until it has told what runs, end it with Ctrl-C; return what it told, and its stderr."""
    process = subprocess.Popen(
        [*BKCTL, *words, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **(environ or {})},
    )  # fmt: skip
    assert process.stdout is not None
    told = b""
    while not told.rstrip().endswith(b"\n}"):
        line = process.stdout.readline()
        assert line, process.communicate()
        told += line
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    return json.loads(told), err


def _kill_zookeeper(directory: Path) -> None:
    (server,) = _processes(directory, b"ZooKeeperServerMain")
    os.kill(server, signal.SIGKILL)


@pytest.mark.processes
@pytest.mark.spark
@pytest.mark.parametrize("background", [False, True])
def test_a_zookeeper_that_dies_is_told_at_once_and_ends_the_cluster(
    tmp_path: Path, *, background: bool
) -> None:
    directory = tmp_path / "bk"
    words = ["local", "1", "--zookeeper", "--dir", str(directory)]
    if background:
        assert _run(*words, "--background").returncode == 0
        _kill_zookeeper(directory)
        log = directory / BACKGROUND_LOG
        until(lambda: "bkctl: ZooKeeper ended with -9" in log.read_text(), "not told")
        told = log.read_text()
    else:
        process = subprocess.Popen(
            [*BKCTL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        while "bkctl.env" not in (line := process.stdout.readline()):
            assert line, process.communicate()
        _kill_zookeeper(directory)
        told = process.communicate(timeout=TIMEOUT_S)[1]
        assert process.returncode == ExitStatus.UNREACHABLE
    assert "warning: ZooKeeper ended with -9; stopping the bookies" in told
    assert f"bkctl local 1 --zookeeper --dir {directory}" in told
    until(lambda: not _processes(directory), "bookies are left behind")


@pytest.mark.processes
@pytest.mark.spark
def test_bookies_may_join_a_zookeeper_that_runs(tmp_path: Path) -> None:
    with ZooKeeperProcess(tmp_path / "zk", fsync=False) as zookeeper:
        told, _ = _until_told(["local", "1", "--zk", zookeeper.address])
        assert told["uri"] == f"zk+hierarchical://{zookeeper.address}/ledgers"
        assert [one["state"] for one in told["bookies"]] == ["up"]
        answers = [
            run_here("-u", uri, "cluster", "instance-id")
            for uri in (told["uri"], f"metadata-store:zk:{zookeeper.address}")
        ]
        assert [one.returncode for one in answers] == [0, 0]
        assert answers[0].stdout == answers[1].stdout


@pytest.mark.processes
@pytest.mark.spark
def test_a_zookeeper_alone_runs_until_ctrl_c(tmp_path: Path) -> None:
    port = free_port()
    told, _ = _until_told(["local", "zookeeper", "--dir", str(tmp_path), "--port", str(port)])
    assert told["uri"] == f"zk+hierarchical://127.0.0.1:{port}/ledgers"
    assert (tmp_path / "data").is_dir()
    told, _ = _until_told(["local", "zookeeper", "--port", str(port)])
    assert not Path(told["directory"]).exists()


@pytest.mark.processes
@pytest.mark.spark
def test_standalone_has_all_that_goes_with_a_bookie(tmp_path: Path) -> None:
    configs = {"LOCALBOOKIES_CONFIG_DIR": str(tmp_path / "configs")}
    told, _ = _until_told(["standalone"], configs)
    assert told["uri"].startswith("zk+hierarchical://")
    (bookie,) = told["bookies"]
    conf = (tmp_path / "configs" / f"{bookie['bookie_id']}.conf").read_text()
    assert "autoRecoveryDaemonEnabled=true" in conf
    assert "httpServerEnabled=true" in conf


def test_what_is_set_stays_out_of_the_command_line_of_the_background() -> None:
    given = ["local", "1", "--set", "a=b", "--set=httpAdminToken=x", "--dir", "d", "--set", "c=d"]
    assert without_settings(given) == ["local", "1", "--dir", "d"]


@pytest.mark.processes
def test_secrets_of_a_cluster_are_for_its_user(tmp_path: Path) -> None:
    token, directory = tmp_path / "token", tmp_path / "bk"
    token.write_text("hushhush\n")
    command = (
        *("local", 1, "--dir", directory, "--background"),
        *("--set", f"httpAdminToken=@{token}", "--set", "httpServerEnabled=true"),
        *("--set", "httpServerPort=0"),
    )
    started = _run(*command)
    assert started.returncode == 0, started.stderr
    try:
        lines = [
            Path(f"/proc/{pid}/cmdline").read_bytes()
            for pid in (*_processes(directory), *_processes(directory, b"bkctl"))
        ]
        assert lines
        assert not any(b"hushhush" in line or b"--set" in line for line in lines)
        conf = directory / "bookie-1/bookie.conf"
        assert "httpAdminToken=hushhush\n" in conf.read_text()
        private = [conf, directory / "cluster.json"]
        assert [path.stat().st_mode & 0o777 for path in private] == [0o600, 0o600]
        assert directory.stat().st_mode & 0o777 == 0o700
    finally:
        for pid in _processes(directory, b"bkctl"):
            os.kill(pid, signal.SIGTERM)
        until(lambda: not _processes(directory), "bookies are left behind")
