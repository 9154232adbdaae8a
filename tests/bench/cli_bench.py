"""How long commands take from the first key to the last line, next to Java's ``bookkeeper shell``.

    python -m tests.bench.cli_bench [--ledgers 10000] [--many 100000] [--rounds 3]

One ZooKeeper holds the metadata of closed ledgers and four bookies, none of which runs; both read
it, each command in a process of its own, in turn. Java's starts with the options of the release's
script, without the script, and prints its results as its shell does, through its logger. Java has
no prompt: that of ours stands next to its usage. Completions are what Tab waits for. ``--many``
ledgers are then listed by both: how long it takes, ours when the first row comes, and in how much
memory. CPU is user's and system's time of the process: it says more where others keep the machine
busy. Prints medians and ratios, asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from bkclient.admin import cluster_operations
from bkclient.blocking import BlockingClient, with_store
from bkctl.cli.completion.scripts import LINE, VARIABLE
from tests.bench.audit_bench import STORES, make_ledgers
from tests.bench.loads.load import peak_rss_bytes
from tests.interop.peers.jvm import java_command
from tests.interop.peers.peers import SHIPPED_JVM, write_client_conf
from tests.shell.screen import terminal

SHELL: Final = "org.apache.bookkeeper.bookie.BookieShell"
BKCTL: Final = (sys.executable, "-c", "from bkctl.__main__ import main; main()")
RATIO_MAX: Final = 1 / 5
"""The aim: of Java's time, at most so much."""


class Taken(NamedTuple):
    """What one run took; the CPU is 0 where it is not known."""

    wall_s: float
    cpu_s: float = 0.0


@attrs.frozen
class Row:
    """One thing that both do, and how long ours may take at most."""

    what: str
    ours: Callable[[], Taken]
    java: tuple[str, ...] | None
    """The words behind ``bookkeeper shell``; None where Java has nothing like it."""
    limit_ms: float | None = None


class Bench:
    """Commands on one cluster, each timed from its start to its end."""

    def __init__(self, uri: str, directory: Path) -> None:
        self._directory = directory
        self._conf = write_client_conf(directory, uri)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("BK", "BOOKIE"))}
        # As an installed program is started: its modules are compiled once, its output is buffered.
        self.environ = {
            **kept, "BKCTL_SERVICE_URI": uri, "XDG_STATE_HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory),
            "XDG_CACHE_HOME": str(directory), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONPYCACHEPREFIX": str(directory / "compiled"),
            "PYTHONDONTWRITEBYTECODE": "", "PYTHONUNBUFFERED": "",
        }  # fmt: skip

    def rows(self) -> list[Row]:
        return [
            Row("--help", self.command("--help"), (), 120),
            Row("bookie list", self.command("bookie", "list", "--no-ask"), ("listbookies", "-a")),
            Row("ledger list, ids", self.command("ledger", "list", "-o", "id"), ("listledgers",)),
            Row("ledger list", self.command("ledger", "list"), ("listledgers", "-meta")),
            Row(
                "ledger list, jsonl",
                self.command("ledger", "list", "-o", "jsonl"),
                ("listledgers", "-meta"),
            ),
            Row("first prompt", self.prompt, (), 400),
            Row("Tab: a command", self.completion("bkctl led"), None, 200),
            Row("Tab: an option", self.completion("bkctl ledger create --dig"), None, 200),
            Row("Tab: an id", self.completion("bkctl ledger show 1"), None, 200),
        ]

    def command(self, *words: str) -> Callable[[], Taken]:
        return lambda: self._timed([*BKCTL, *words], self.environ)

    def completion(self, line: str) -> Callable[[], Taken]:
        environ = {**self.environ, VARIABLE: "bash", LINE: line}
        return lambda: self._timed(BKCTL, environ)

    def java(self, words: Sequence[str]) -> Taken:
        main = [SHELL, "-conf", str(self._conf), *words]
        return self._timed(java_command(self._directory, SHIPPED_JVM, main), dict(os.environ))

    def prompt(self) -> Taken:
        """Return the time until the shell waits for keys."""
        began_s = time.perf_counter()
        with terminal([*BKCTL, "shell"], **self.environ) as screen:  # type: ignore[arg-type]
            while not any(line.startswith("bkctl>") for line in screen.lines):
                screen.read(0.005)
            return Taken(time.perf_counter() - began_s)

    def _timed(self, command: Sequence[str], environ: dict[str, str]) -> Taken:
        began_s = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=environ,
        )  # fmt: skip
        return ended(process, began_s)


def ended(process: subprocess.Popen[bytes], began_s: float) -> Taken:
    """Wait for the end of a process; return what it took since ``began_s``."""
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    wall_s = time.perf_counter() - began_s
    return Taken(wall_s, usage.ru_utime + usage.ru_stime)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ledgers", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if args.ledgers:
            with STORES["zookeeper"]() as uri:
                _make(uri, args.ledgers)
                _compare(Bench(uri, Path(name)), args.rounds)
        if args.many:
            with STORES["zookeeper"]() as uri:
                _make(uri, args.many)
                _list_many(Bench(uri, Path(name)), args.many)
    return 0


def _make(uri: str, ledgers: int) -> None:
    with_store(uri, cluster_operations.init_cluster)
    with BlockingClient(uri) as client:
        client.call(make_ledgers, ledgers)
    print(f"{ledgers:,} ledgers", flush=True)


def _compare(bench: Bench, rounds: int) -> None:
    print(f"{'':18}{'ours':>10}{'CPU':>9}{'Java':>11}{'CPU':>9}{'ratio':>8}{'of CPU':>8}   aim")
    for row in bench.rows():
        ours, java = [], []
        row.ours()  # Once beforehand, so that files are in the page cache.
        for _ in range(rounds):
            ours.append(row.ours())
            if row.java is not None:
                java.append(bench.java(row.java))
        print(_line(row, _median(ours), _median(java) if java else None), flush=True)


def _median(taken: Sequence[Taken]) -> Taken:
    return Taken(*map(statistics.median, zip(*taken, strict=True)))


def _line(row: Row, ours: Taken, java: Taken | None) -> str:
    line = f"{row.what:18}{_ms(ours)}"
    ours_ms = ours.wall_s * 1000
    aims = [] if row.limit_ms is None else [(f"{row.limit_ms:.0f} ms", ours_ms <= row.limit_ms)]
    if java is None:
        line += f"{'':37}"
    else:
        ratio = ours.wall_s / java.wall_s
        of_cpu = f"{ours.cpu_s / java.cpu_s:8.2f}" if ours.cpu_s else f"{'':8}"
        line += f" {_ms(java)}{ratio:8.2f}{of_cpu}"
        aims.append((f"{RATIO_MAX:.2f}", ratio <= RATIO_MAX))
    return line + "   " + ", ".join(f"{aim} {'met' if met else 'missed'}" for aim, met in aims)


def _ms(taken: Taken) -> str:
    cpu = f"{taken.cpu_s * 1000:6.0f} ms" if taken.cpu_s else ""
    return f"{taken.wall_s * 1000:7.0f} ms{cpu:>9}"


def _list_many(bench: Bench, ledgers: int) -> None:
    """List very many ledgers with both, and see when rows come and what memory that takes."""
    bench.command("ledger", "list", "--limit", "1")()  # Once beforehand, as above.
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [*BKCTL, "ledger", "list"], env=bench.environ, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()  # The header.
    process.stdout.readline()
    first_s = time.perf_counter() - began_s
    rows = memory_bytes = 0
    for rows, _ in enumerate(process.stdout, 2):
        if rows % 1000 == 0:  # Its end tells nothing: that counts what started it.
            memory_bytes = peak_rss_bytes(process.pid) or memory_bytes
    print(
        f"ledger list of {ledgers:,}: first row after {first_s * 1000:.0f} ms, {rows:,} rows; "
        f"{_whole(ended(process, began_s))}, {memory_bytes / 2**20:.0f} MB at most"
    )
    print(f"-o id: {_whole(bench.command('ledger', 'list', '-o', 'id')())}")
    print(f"listledgers -meta: {_whole(bench.java(('listledgers', '-meta')))}")


def _whole(taken: Taken) -> str:
    return f"{taken.wall_s:.1f} s, CPU {taken.cpu_s:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
