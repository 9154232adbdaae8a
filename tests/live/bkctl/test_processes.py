"""bkctl as a process: pipes, signals, time limits, memory, and what it leaves behind."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.exit_status import ExitStatus
from tests.bkctl.support.cluster import BKCTL, Cluster, local_cluster
from tests.bkctl.support.terminal import run_here
from tests.support.waiting import is_readable, until

pytestmark = pytest.mark.processes

TIMEOUT_S = 120.0
LIMIT_S, LIMIT_S_MAX = 3, 11.0
"""A limit, and what it may come to with all that follows it; kazoo alone waits ten more."""
MIB = 1024 * 1024
RSS_BYTES_MAX = 195 * MIB  # Less than what passes through; 150 to 181 were seen.


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with local_cluster(tmp_path_factory.mktemp("processes") / "bk") as running:
        yield running


def _environ(cluster: Cluster | None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("BK", "CI"))}
    return {**kept, **({"BKCTL_SERVICE_URI": cluster.uri} if cluster else {})}


def _start(
    cluster: Cluster | None,
    *args: object,
    stdin: Any = subprocess.PIPE,
    stdout: Any = subprocess.PIPE,
    stderr: Any = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    command = [*BKCTL, *map(str, args)]
    environ = _environ(cluster)
    return subprocess.Popen(command, env=environ, stdin=stdin, stdout=stdout, stderr=stderr)


def _end(process: subprocess.Popen[bytes], typed: bytes | None = None) -> tuple[int, bytes, str]:
    try:
        out, err = process.communicate(typed, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"still running: {err.decode()}")
    return process.returncode, out, err.decode()


def _run(cluster: Cluster, *args: object, typed: bytes = b"") -> tuple[int, bytes, str]:
    return _end(_start(cluster, *args), typed)


def _ok(cluster: Cluster, *args: object) -> str:
    """Return what a command prints that is not the one under test: it is run in this process."""
    done = run_here("-u", cluster.uri, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _written(cluster: Cluster, typed: bytes) -> str:
    status, out, err = _run(cluster, "ledger", "write", "-", typed=typed)
    assert status == 0, err
    return out.decode().strip()


def _line(process: subprocess.Popen[bytes]) -> bytes:
    """Return the next line of its output, read past its buffer."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        assert is_readable(process.stdout, TIMEOUT_S), f"no output after {line!r}"
        data = os.read(process.stdout.fileno(), 1)
        if not data:
            break
        line += data
    return line


def _entries(cluster: Cluster, ledger: str) -> list[str]:
    """Return what can be read of a ledger now, confirmed or not."""
    done = run_here("-u", cluster.uri, "ledger", "read", ledger, "--unconfirmed")
    return done.stdout.splitlines() if done.returncode == 0 else []


def _newest(cluster: Cluster, mark: str) -> str:
    return _ok(cluster, "ledger", "list", "--meta", f"test={mark}", "-o", "id")


# Pipes -----------------------------------------------------------------------------------------


def test_the_way_the_readme_shows(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("".join(f"line {n}\n" for n in range(1000)))
    status, ledger, err = _run(cluster, "ledger", "write", file)
    assert status == 0, err
    status, out, _ = _run(cluster, "ledger", "read", ledger.decode().strip())
    assert (status, out) == (0, file.read_bytes())


def test_a_closed_pipe_ends_quietly_with_the_status_of_sigpipe(cluster: Cluster) -> None:
    ledger = _written(cluster, b"some line of text\n" * 50_000)
    read = ("ledger", "read", ledger)
    for args in (read, (*read, "-o", "jsonl"), (*read, "-o", "csv")):
        process = _start(cluster, *args)
        assert process.stdout is not None
        _line(process)
        process.stdout.close()
        process.stdout = None
        status, _, err = _end(process)
        assert (status, err) == (ExitStatus.OUTPUT_CLOSED, "")


@pytest.mark.parametrize("args", [("--help",), ("version",), ("options",), ("completion", "bash")])
def test_output_that_nobody_reads_ends_with_the_status_of_sigpipe(args: tuple[str, ...]) -> None:
    unread, stdout = os.pipe()
    os.close(unread)
    try:
        status, _, err = _end(_start(None, *args, stdout=stdout))
    finally:
        os.close(stdout)
    assert (status, err) == (ExitStatus.OUTPUT_CLOSED, "")


def test_nothing_is_drawn_and_nothing_is_coloured_in_a_pipe(cluster: Cluster) -> None:
    status, out, err = _run(cluster, "ledger", "write", "-", typed=b"x" * 1000 + b"\n")
    note = f"ledger {out.decode().strip()} is open; it gets the entries of the pipe\n"
    assert (status, err) == (0, note)
    status, out, err = _run(cluster, "ledger", "list")
    assert b"\x1b" not in out + err.encode()


@pytest.mark.parametrize("verbosity", [(), ("-vv",)])
def test_a_stderr_that_nobody_reads_changes_neither_result_nor_status(
    cluster: Cluster, verbosity: tuple[str, ...]
) -> None:
    ledger = _written(cluster, b"a\nb\n")
    unread, stderr = os.pipe()
    os.close(unread)
    try:
        read = _start(cluster, *verbosity, "ledger", "read", ledger, stderr=stderr)
        assert read.communicate(timeout=TIMEOUT_S)[0] == b"a\nb\n"
        assert read.returncode == ExitStatus.DONE
        missing = _start(cluster, *verbosity, "ledger", "show", 987654321, stderr=stderr)
        missing.communicate(timeout=TIMEOUT_S)
        assert missing.returncode == ExitStatus.NOT_FOUND
    finally:
        os.close(stderr)


def test_a_full_disk_behind_stdout_is_an_error(cluster: Cluster) -> None:
    ledger = _written(cluster, b"some line of text\n" * 1000)
    with Path("/dev/full").open("wb") as full:
        status, _, err = _end(_start(cluster, "ledger", "read", ledger, stdout=full))
    assert status == ExitStatus.FAILED
    assert "the output cannot be written: No space left on device" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("redirection", "args", "status", "told"),
    [
        (">&-", ("version",), ExitStatus.FAILED, "bkctl: Bad file descriptor\n"),
        ("<&-", ("disk", "format", "--journal-dir", "."), ExitStatus.USAGE, "bkctl: "),
        ("<&-", ("shell",), ExitStatus.DONE, ""),
        ("2>&-", ("explain", "BK-NO-SUCH-LEDGER"), ExitStatus.DONE, ""),
    ],
)
def test_a_stream_that_is_closed_is_no_bug(
    redirection: str, args: tuple[str, ...], status: int, told: str
) -> None:
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *BKCTL, *args],
        capture_output=True,
        check=False,
        env=_environ(None),
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == status
    assert ended.stderr.decode().startswith(told)
    assert b"bug" not in ended.stderr


def test_entries_are_added_as_they_come_and_followed_as_they_are_added(cluster: Cluster) -> None:
    ledger = _ok(cluster, "ledger", "create")
    adding = _start(cluster, "ledger", "add", ledger, "-")
    following = _start(cluster, "ledger", "tail", ledger, "--follow")
    assert adding.stdin is not None
    assert following.stdout is not None
    for n in range(3):
        adding.stdin.write(b"entry %d\n" % n)
        adding.stdin.flush()
        until(lambda: len(_entries(cluster, ledger)) == n + 1, "not added")  # noqa: B023
    # The bookies hear that an entry is confirmed with the next one; of the last, at the end.
    assert _line(following) == b"entry 0\n"
    assert _line(following) == b"entry 1\n"
    assert _end(adding)[0] == 0
    assert _line(following) == b"entry 2\n"
    _ok(cluster, "ledger", "close", ledger)
    assert _end(following)[:2] == (0, b"")


# Terminals -------------------------------------------------------------------------------------


def test_on_a_terminal_it_asks_and_a_no_changes_nothing(cluster: Cluster) -> None:
    ledger = _ok(cluster, "ledger", "create")
    main, inner = pty.openpty()
    null = subprocess.DEVNULL
    process = _start(cluster, "ledger", "fence", ledger, stdin=inner, stdout=null, stderr=inner)
    os.close(inner)
    seen = b""
    with contextlib.suppress(OSError):
        while b"[y/N]" not in seen:
            seen += os.read(main, 1000)
        os.write(main, b"n\n")
        while True:
            seen += os.read(main, 1000)
    assert process.wait(TIMEOUT_S) == ExitStatus.REFUSED
    os.close(main)
    assert b"not confirmed; nothing was changed" in seen
    assert "open" in _ok(cluster, "ledger", "show", ledger)


# Signals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_write_closes_its_ledger_and_says_so(
    cluster: Cluster, number: signal.Signals, status: int
) -> None:
    mark = f"write-{number}"
    process = _start(cluster, "ledger", "write", "-", "--meta", f"test={mark}")
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\n")
    process.stdin.flush()
    until(lambda: (ids := _newest(cluster, mark)) and len(_entries(cluster, ids)) == 2, "no adds")
    process.send_signal(number)
    code, out, err = _end(process)
    ledger = _newest(cluster, mark)
    assert (code, out) == (status, b"")
    assert f"ledger {ledger} is closed with 2 entries read so far" in err
    assert "tail -n +3 the input" in err
    assert _entries(cluster, ledger) == ["one", "two"]


def test_an_interrupted_add_hands_its_ledger_back(cluster: Cluster) -> None:
    ledger = _ok(cluster, "ledger", "create")
    process = _start(cluster, "ledger", "add", ledger, "-")
    assert process.stdin is not None
    process.stdin.write(b"one\n")
    process.stdin.flush()
    until(lambda: _entries(cluster, ledger), "no adds")
    process.send_signal(signal.SIGINT)
    status, _, err = _end(process)
    assert status == ExitStatus.INTERRUPTED
    assert f"1 entry added, and ledger {ledger} was released" in err
    _ok(cluster, "ledger", "add", ledger, "two")
    assert _ok(cluster, "ledger", "read", ledger) == "one\ntwo"


def test_a_time_limit_ends_it_in_the_same_order(cluster: Cluster) -> None:
    ledger = _ok(cluster, "ledger", "create")
    process = _start(cluster, "ledger", "add", ledger, "-", "--timeout", "2")
    assert process.wait(TIMEOUT_S) == ExitStatus.TIME_LIMIT
    assert "time limit reached" in _end(process)[2]
    _ok(cluster, "ledger", "add", ledger, "one")


def test_a_killed_add_leaves_a_ledger_that_can_only_be_recovered(cluster: Cluster) -> None:
    ledger = _ok(cluster, "ledger", "create")
    process = _start(cluster, "ledger", "add", ledger, "-")
    assert process.stdin is not None
    process.stdin.write(b"one\n")
    process.stdin.flush()
    until(lambda: _entries(cluster, ledger), "no adds")
    process.kill()
    process.communicate()
    status, _, err = _run(cluster, "ledger", "add", ledger, "two", "--json")
    assert status == ExitStatus.CONFLICT
    assert json.loads(err)["name"] == "BK-NOT-HANDED-OVER"
    status, _, err = _run(cluster, "ledger", "close", ledger)
    assert status == ExitStatus.REFUSED
    _ok(cluster, "ledger", "close", ledger, "--yes")
    assert _ok(cluster, "ledger", "read", ledger) == "one"


def test_a_writer_that_was_fenced_says_what_to_do(cluster: Cluster) -> None:
    ledger = _ok(cluster, "ledger", "create")
    process = _start(cluster, "ledger", "add", ledger, "-")
    assert process.stdin is not None
    process.stdin.write(b"one\n")
    process.stdin.flush()
    until(lambda: _entries(cluster, ledger), "no adds")
    _ok(cluster, "ledger", "recover", ledger, "--yes")
    status, out, err = _end(process, b"two\n")
    assert (status, out) == (ExitStatus.CONFLICT, b"")
    assert (
        f"`bkctl ledger recover {ledger}` closes it, if it is open, and shows its last entry" in err
    )
    assert "the outcome is unknown until the ledger is closed" in err
    assert f"ledger {ledger}" in err.splitlines()[-1]
    assert _ok(cluster, "ledger", "read", ledger) == "one"


def test_reading_can_be_interrupted_at_any_time(cluster: Cluster) -> None:
    ledger = _ok(cluster, "ledger", "create")
    began = "from bkctl.cli.root import main; print('began', flush=True); main()"
    for after_s in (0.1, 0.5, 1.5):
        process = subprocess.Popen(
            [sys.executable, "-c", began, "ledger", "tail", ledger, "--follow"],
            env=_environ(cluster), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert _line(process) == b"began\n"
        time.sleep(after_s)  # It is somewhere between its start and waiting for entries.
        process.send_signal(signal.SIGINT)
        status, _, err = _end(process)
        assert (status, err.count("\n")) == (ExitStatus.INTERRUPTED, 1), err


# Memory ----------------------------------------------------------------------------------------


def _peak_bytes(process: subprocess.Popen[bytes]) -> int:
    """Return the largest resident size a running process has had; 0 for one that has ended.

    Not ``ru_maxrss``: that begins with the size of the process it was forked from.
    """
    _, _, peak = Path(f"/proc/{process.pid}/status").read_text().partition("VmHWM:")
    return int(peak.split()[0]) * 1024 if peak else 0


@pytest.mark.parametrize(
    ("framing", "size_min"), [("--chunks=1MiB", 200 * MIB), ("--lines", 50 * MIB)]
)
def test_a_stream_of_any_size_takes_bounded_memory(
    cluster: Cluster, framing: str, size_min: int
) -> None:
    block = (b"0123456789abcdef" * 63 + b"\n") * 1040  # Lines of 1009 bytes.
    writing = _start(cluster, "ledger", "write", "-", framing, stderr=sys.stderr)
    assert writing.stdin is not None
    assert writing.stdout is not None
    written, sent = hashlib.sha256(), 0
    while sent < size_min:
        writing.stdin.write(block)
        written.update(block)
        sent += len(block)
    size = _peak_bytes(writing)
    writing.stdin.close()
    with writing.stdout as stdout:
        ledger = stdout.read().decode().strip()
    assert writing.wait() == 0
    assert 0 < size < RSS_BYTES_MAX, f"{size / MIB:.0f} MiB to write"

    reading = _start(cluster, "ledger", "read", ledger, stderr=sys.stderr)
    assert reading.stdout is not None
    read, received, size = hashlib.sha256(), 0, 0
    assert reading.stdin is not None
    reading.stdin.close()
    with reading.stdout as stdout:
        while data := stdout.read(1 << 20):
            read.update(data)
            received += len(data)
            size = max(size, _peak_bytes(reading))
    assert (reading.wait(), received) == (0, sent)
    assert read.digest() == written.digest()
    assert 0 < size < RSS_BYTES_MAX, f"{size / MIB:.0f} MiB to read"
    _ok(cluster, "ledger", "delete", ledger, "--yes")


# Out of reach ----------------------------------------------------------------------------------


def test_a_cluster_out_of_reach_ends_with_5_and_one_line() -> None:
    for uri in ("zk+hierarchical://127.0.0.1:1/ledgers", "sqlite:///nowhere/metadata.db"):
        status, _, err = _end(
            _start(None, "ledger", "list", "-u", uri, "-X", "zkTimeout=1000", "--json")
        )
        assert status == ExitStatus.UNREACHABLE, err
        assert err.count("\n") == 1, err
        assert json.loads(err)["hint"]


def test_the_time_limit_holds_where_a_zookeeper_takes_connections_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"zk+hierarchical://127.0.0.1:{silent.getsockname()[1]}/ledgers"
        process = _start(None, "ledger", "list", "-u", uri, "--timeout", LIMIT_S)
        # It connects, or its limit comes first. How long a Python takes to start is not its own.
        while process.poll() is None and not is_readable(silent, 0.05):
            pass
        begun_s = time.monotonic()
        status, _, err = _end(process)
        took_s = time.monotonic() - begun_s
    assert status == ExitStatus.TIME_LIMIT, err
    assert uri in err
    assert took_s < LIMIT_S_MAX, f"{took_s:.1f} s"


def test_bookies_that_are_down_make_adds_fail_with_a_way_out(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "bk") as cluster:
        ledger = _ok(cluster, "ledger", "create")
        _ok(cluster, "ledger", "add", ledger, "one")
        listed = json.loads(_ok(cluster, "ledger", "show", ledger, "--json"))
        assert len(listed["fragments"][0]["ensemble"]) == 3
        for pid in _bookie_pids(cluster)[:2]:
            os.kill(pid, signal.SIGKILL)
        status, _, err = _run(cluster, "ledger", "add", ledger, "two", "three", "four")
        assert status in {ExitStatus.UNREACHABLE, ExitStatus.FAILED, ExitStatus.TIME_LIMIT}, err
        closed = f"ledger {ledger} is closed with 1 entry"
        assert closed in err or f"`bkctl ledger recover {ledger}`" in err


def _bookie_pids(cluster: Cluster) -> list[int]:
    """Return the processes of the bookies of one cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if b"bookied" in line and os.fsencode(cluster.directory) in line:
                found.append(int(entry.name))
    return sorted(found)
