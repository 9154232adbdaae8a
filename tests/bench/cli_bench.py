"""How long commands take from the first key to the last line, next to Java's ``bookkeeper shell``.

    python -m tests.bench.cli_bench [--ledgers 10000] [--many 100000] [--rounds 3]

One ZooKeeper holds the metadata of closed ledgers and four bookies, none of which runs; both read
it, each command in a process of its own, in turn. Java's starts with the options of the release's
script, without the script. Java has no prompt: that of ours stands next to its usage.
Completions are what Tab waits for. ``--many`` ledgers are then listed by ours alone: when the first
row comes, when the last, and in how much memory. Prints medians and ratios, asserts nothing.
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
from typing import Final

import attrs

from bkclient import admin
from bkclient.blocking import BlockingClient, with_store
from bkctl.completion_scripts import LINE, VARIABLE
from tests.bench.audit_bench import STORES, make_ledgers
from tests.interop.jvm import LOG_LEVEL_PROPERTY, java_command
from tests.interop.peers import SHIPPED_JVM, write_client_conf
from tests.shell.screen import terminal

SHELL: Final = "org.apache.bookkeeper.bookie.BookieShell"
BKCTL: Final = (sys.executable, "-c", "from bkctl.cli import main; main()")
RATIO_MAX: Final = 1 / 5
"""The aim: of Java's time, at most so much."""


@attrs.frozen
class Row:
    """One thing that both do, and how long ours may take at most."""

    what: str
    ours: Callable[[], float]
    java: tuple[str, ...] | None
    """The words behind ``bookkeeper shell``; None where Java has nothing like it."""
    limit_ms: float | None = None


class Bench:
    """Commands on one cluster, each timed from its start to its end."""

    def __init__(self, uri: str, directory: Path) -> None:
        self._directory = directory
        self._conf = write_client_conf(directory, uri)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("BK", "BOOKIE"))}
        self.environ = {
            **kept, "BKCTL_SERVICE_URI": uri, "XDG_STATE_HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory),
            "XDG_CACHE_HOME": str(directory), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }  # fmt: skip

    def rows(self) -> list[Row]:
        return [
            Row("--help", self.command("--help"), (), 120),
            Row("bookie list", self.command("bookie", "list", "--no-ask"), ("listbookies", "-a")),
            Row("ledger list, ids", self.command("ledger", "list", "-o", "id"), ("listledgers",)),
            Row("ledger list, all", self.command("ledger", "list"), ("listledgers", "-meta")),
            Row("first prompt", self.prompt, (), 400),
            Row("Tab: a command", self.completion("bkctl led"), None, 200),
            Row("Tab: an option", self.completion("bkctl ledger create --dig"), None, 200),
            Row("Tab: ids, kept", self.completion("bkctl ledger show 1"), None, 200),
        ]

    def command(self, *words: str) -> Callable[[], float]:
        return lambda: self._timed([*BKCTL, *words], self.environ)

    def completion(self, line: str) -> Callable[[], float]:
        environ = {**self.environ, VARIABLE: "bash", LINE: line}
        return lambda: self._timed(BKCTL, environ)

    def java(self, words: Sequence[str]) -> float:
        options = [*SHIPPED_JVM, f"-D{LOG_LEVEL_PROPERTY}=WARN"]
        main = [SHELL, "-conf", str(self._conf), *words]
        return self._timed(java_command(self._directory, options, main), dict(os.environ))

    def prompt(self) -> float:
        """Return the time until the shell waits for keys."""
        began_s = time.perf_counter()
        with terminal([*BKCTL, "shell"], **self.environ) as screen:
            while not any(line.startswith("bkctl>") for line in screen.lines):
                screen.read(0.005)
            return time.perf_counter() - began_s

    def _timed(self, command: Sequence[str], environ: dict[str, str]) -> float:
        began_s = time.perf_counter()
        subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=environ,
        )  # fmt: skip
        return time.perf_counter() - began_s


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
    with_store(uri, admin.init_cluster)
    with BlockingClient(uri) as client:
        client.call(make_ledgers, ledgers)
    print(f"{ledgers:,} ledgers", flush=True)


def _compare(bench: Bench, rounds: int) -> None:
    print(f"{'':18}{'ours':>10}{'Java':>10}{'ratio':>8}   aim")
    for row in bench.rows():
        ours, java = [], []
        row.ours()  # Once beforehand, so that files are in the page cache.
        for _ in range(rounds):
            ours.append(row.ours())
            if row.java is not None:
                java.append(bench.java(row.java))
        print(_line(row, statistics.median(ours), statistics.median(java or [0.0])), flush=True)


def _line(row: Row, ours_s: float, java_s: float) -> str:
    line = f"{row.what:18}{ours_s * 1000:7.0f} ms"
    aims = (
        [] if row.limit_ms is None else [(f"{row.limit_ms:.0f} ms", ours_s * 1000 <= row.limit_ms)]
    )
    if row.java is None:
        line += f"{'':18}"
    else:
        line += f"{java_s * 1000:7.0f} ms{ours_s / java_s:8.2f}"
        aims.append((f"{RATIO_MAX:.2f}", ours_s / java_s <= RATIO_MAX))
    return line + "   " + ", ".join(f"{aim} {'met' if met else 'missed'}" for aim, met in aims)


def _list_many(bench: Bench, ledgers: int) -> None:
    """List very many ledgers with ours, and see when rows come and what memory that takes."""
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [*BKCTL, "ledger", "list"], env=bench.environ, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()  # The header.
    process.stdout.readline()
    first_s = time.perf_counter() - began_s
    rows = 1 + sum(1 for _ in process.stdout)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    print(
        f"ledger list of {ledgers:,}: first row after {first_s * 1000:.0f} ms, {rows:,} rows after "
        f"{time.perf_counter() - began_s:.1f} s, {usage.ru_maxrss / 1024:.0f} MB at most"
    )


if __name__ == "__main__":
    sys.exit(main())
