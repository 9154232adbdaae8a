"""Adds to many open ledgers, alone and beside readers: Java's bookie and ours, in turn, in one run.

    python -m tests.bench.ledgers_bench                              # 16 ledgers, as shipped
    python -m tests.bench.ledgers_bench --db --ledgers 10000 --size 100      # Pulsar's shape
    python -m tests.bench.ledgers_bench --journals 2 --directories 4

Adds are V2, from one client, ``--window`` of them in flight, an entry to every ledger in turn.
"alone" is without readers. "beside readers" is while two other processes read. One reads a ledger
that was written before, V2 batches of 1,000 entries, four in flight, again and again (a reader that
catches up). The other reads the entries that were added last, one by one, a hundred in flight (a
reader that tails). Latency is from the ``send`` of a run of adds to the answer of its last. Figures
are medians of the rounds; asserts nothing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import attrs

from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.bench.bookie_bench import bookies
from tests.bench.loads.load import cpu_seconds
from tests.bench.loads.many_ledgers import ManyLedgers
from tests.bench.loads.read_load import read, read_batches
from tests.interop.peers.peers import JavaBookie

OLD_LEDGER = 1
FIRST_OPEN = 1000
TAILED = 100
BESIDE = "beside readers"
DB_STORAGE = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
_FORK = multiprocessing.get_context("fork")


@attrs.frozen
class Adds:
    """What came of one run."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Of the bookie, for an add; beside readers that of the reads is in it."""
    catch_up_per_s: float = 0.0
    tail_per_s: float = 0.0


def main() -> int:
    """Measure and print."""
    args = _arguments()
    root = Path(tempfile.mkdtemp(prefix="ledgers-bench-", dir=args.directory))
    zookeeper = ZooKeeperProcess(root / "zookeeper", fsync=False)
    zookeeper.directory.mkdir()
    try:
        zookeeper.start()
        where = root / "bookies"
        with bookies(args.kinds.split(","), where, zookeeper, lambda path: _conf(path, args)) as up:
            _measure(up, args)
    finally:
        zookeeper.stop()
        shutil.rmtree(root, ignore_errors=True)
    return 0


def _conf(directory: Path, args: argparse.Namespace) -> dict[str, Any]:
    conf = {"ledgerStorageClass": DB_STORAGE} if args.db else {}
    for key, name, count in (
        ("journalDirectories", "journal", args.journals),
        ("ledgerDirectories", "ledgers", args.directories),
    ):
        if count > 1:
            conf[key] = ",".join(str(directory / f"{name}{number}") for number in range(count))
    return conf


def _measure(started: dict[str, JavaBookie], args: argparse.Namespace) -> None:
    print(
        f"{args.ledgers} ledgers, {args.size} B{', DbLedgerStorage' if args.db else ''}"
        f"{f', {args.journals} journals' if args.journals > 1 else ''}"
        f"{f', {args.directories} directories' if args.directories > 1 else ''}"
    )
    old_entries = int(args.megabytes * 1e6 / args.size)
    writers: dict[str, ManyLedgers] = {}
    for kind, bookie in started.items():
        ManyLedgers(bookie.port, 1, args.size, first=OLD_LEDGER).run(old_entries)
        writers[kind] = ManyLedgers(
            bookie.port, args.ledgers, args.size, first=FIRST_OPEN, window=args.window
        )
        writers[kind].run(max(1, args.adds // args.ledgers // 2))  # Java's compiler has its time.
    found: dict[tuple[str, str], list[Adds]] = {}
    for _, how, (kind, bookie) in product(range(args.rounds), ("alone", BESIDE), started.items()):
        done = _run(bookie, writers[kind], args, old_entries if how == BESIDE else 0)
        found.setdefault((kind, how), []).append(done)
    for (kind, how), results in found.items():
        columns = zip(*map(attrs.astuple, results), strict=True)
        _tell(kind, how, Adds(*map(statistics.median, columns)))


def _run(bookie: JavaBookie, adds: ManyLedgers, args: argparse.Namespace, old: int) -> Adds:
    rounds = max(1, args.adds // args.ledgers)
    with _readers(bookie.port, adds, old) as (caught_up, tailed, added):
        before_s, adds.waits_s = cpu_seconds(bookie.pid), []

        def note() -> None:
            added.value = adds.rounds

        took_s = adds.run(rounds, note)
        cpu_us = (cpu_seconds(bookie.pid) - before_s) / (rounds * args.ledgers) * 1e6
        reads = caught_up.value / took_s, tailed.value / took_s
    waits = sorted(adds.waits_s)
    p50, p99 = (waits[int(len(waits) * part)] * 1e3 for part in (0.5, 0.99))
    return Adds(rounds * args.ledgers / took_s, p50, p99, cpu_us, *reads)


Counts = tuple["Synchronized[int]", "Synchronized[int]", "Synchronized[int]"]


@contextmanager
def _readers(port: int, adds: ManyLedgers, old_entries: int) -> Iterator[Counts]:
    """Read meanwhile, if there are old entries.

    Yields:
        How many entries were read by either, and the rounds of adds that are sent, to be set.
    """
    caught_up, tailed, added = (_FORK.Value("q", 0) for _ in range(3))
    stop = _FORK.Event()
    lag = adds.window // adds.ledgers + 2
    processes = [
        _FORK.Process(target=_catch_up, args=(port, old_entries, stop, caught_up)),
        _FORK.Process(target=_tail, args=(port, adds.ledgers, lag, stop, tailed, added)),
    ]
    processes = processes if old_entries else []
    for process in processes:
        process.start()
    try:
        yield caught_up, tailed, added
    finally:
        stop.set()
        for process in processes:
            process.join()


def _catch_up(port: int, entries: int, stop: Event, read_so_far: Synchronized[int]) -> None:
    while not stop.is_set():
        for first in range(0, entries, 10_000):
            if not stop.is_set():
                some = min(10_000, entries - first)
                read_batches(port, OLD_LEDGER, some, first=first)
                read_so_far.value += some


def _tail(
    port: int,
    ledgers: int,
    lag: int,
    stop: Event,
    read_so_far: Synchronized[int],
    added: Synchronized[int],
) -> None:
    rng = random.Random(1)
    while not stop.wait(0.001):
        entry_id = added.value - lag
        if entry_id >= 0:
            some = [(FIRST_OPEN + rng.randrange(ledgers), entry_id) for _ in range(TAILED)]
            read(port, some)
            read_so_far.value += TAILED


def _tell(kind: str, how: str, adds: Adds) -> None:
    reads = (
        f"; {adds.catch_up_per_s:,.0f} reads/s catching up, {adds.tail_per_s:,.0f} reads/s tailing"
    )
    print(
        f"{kind} {how}: {adds.per_s:,.0f} adds/s, p50 {adds.p50_ms:.2f} p99 {adds.p99_ms:.2f} ms,"
        f" {adds.cpu_us:.1f} us of CPU each{reads if how == BESIDE else ''}",
        flush=True,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", default="java,ours")
    parser.add_argument("--ledgers", type=int, default=16)
    parser.add_argument("--size", type=int, default=1024, help="payload bytes")
    parser.add_argument("--window", type=int, default=1000)
    parser.add_argument("--adds", type=int, default=500_000, help="in a round")
    parser.add_argument("--megabytes", type=float, default=200.0, help="of old entries")
    parser.add_argument("--db", action="store_true", help="DbLedgerStorage")
    parser.add_argument("--journals", type=int, default=1)
    parser.add_argument("--directories", type=int, default=1, help="for ledgers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="a disk to measure on; default: temporary")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
