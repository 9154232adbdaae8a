"""How fast a bookie reads: Java's and ours, in turn, in one run.

    python -m tests.bench.read_bench                 # 6 minutes
    python -m tests.bench.read_bench --megabytes 100 --ledgers 1000 --rounds 1

Entries of 1 KiB are written to one ledger ("sequential") and then to many, in turn ("scattered");
each bookie is stopped and started, so that nothing is in its memory. Reads are V2 (or
``--protocol v3``), one at a time a request, ``--window`` of them on the way: the one ledger from
its first entry to its last, and entries of the many in no order. "batches" are V2 batch reads of
the one ledger, a thousand entries a request, four on the way, by a client that looks at nothing.
"cold" is with the files put out of the page cache before each round, "warm" the same reads again.
Only the first round of cold reads finds no ledger in the bookie's memory. Figures are medians of
the rounds; asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.bench.bookie_bench import bookies
from tests.bench.loads.load import cpu_seconds, rss_bytes
from tests.bench.loads.many_ledgers import ManyLedgers
from tests.bench.loads.read_load import Reads, read, read_batches
from tests.interop.peers.peers import JavaBookie

SEQUENTIAL_LEDGER = 1
FIRST_SCATTERED = 1000

Figures = dict[tuple[str, str, str], list[tuple[float, float]]]
"""By pattern, temperature and kind: reads a second, and CPU microseconds of the bookie each."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", default="java,ours")
    parser.add_argument("--megabytes", type=float, default=200.0, help="for each pattern")
    parser.add_argument("--size", type=int, default=1024, help="payload bytes")
    parser.add_argument("--ledgers", type=int, default=10_000)
    parser.add_argument("--reads", type=int, default=100_000, help="the most in a round")
    parser.add_argument("--window", type=int, default=100)
    parser.add_argument("--protocol", choices=["v2", "v3"], default="v2", help="of single reads")
    parser.add_argument("--patterns", help="some of sequential,scattered,batches; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="a disk to measure on; default: temporary")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="read-bench-", dir=args.directory))
    zookeeper = ZooKeeperProcess(root / "zookeeper", fsync=False)
    zookeeper.directory.mkdir()
    try:
        zookeeper.start()
        with bookies(args.kinds.split(","), root / "bookies", zookeeper) as started:
            _measure(started, args)
    finally:
        zookeeper.stop()
        shutil.rmtree(root, ignore_errors=True)
    return 0


def _measure(started: dict[str, JavaBookie], args: argparse.Namespace) -> None:
    entries = int(args.megabytes * 1e6 / args.size)
    each = max(1, entries // args.ledgers)
    for kind, bookie in started.items():
        ManyLedgers(bookie.port, 1, args.size, first=SEQUENTIAL_LEDGER).run(entries)
        ManyLedgers(bookie.port, args.ledgers, args.size, first=FIRST_SCATTERED).run(each)
        bookie.restart(timeout_s=180.0)
        print(f"{kind}: written and started again", flush=True)
    rng = random.Random(1)
    scattered = [
        (FIRST_SCATTERED + rng.randrange(args.ledgers), rng.randrange(each))
        for _ in range(args.reads)
    ]
    sequential = [(SEQUENTIAL_LEDGER, entry) for entry in range(min(entries, args.reads))]
    how = {"window": args.window, "protocol": args.protocol}
    patterns: dict[str, Callable[[int], Reads]] = {
        "sequential": partial(read, wanted=sequential, **how),
        "scattered": partial(read, wanted=scattered, **how),
        "batches": partial(read_batches, ledger_id=SEQUENTIAL_LEDGER, entries=entries),
    }
    if args.patterns:
        patterns = {name: patterns[name] for name in args.patterns.split(",")}
    figures: Figures = {}
    for _, (name, load), (kind, bookie) in product(
        range(args.rounds), patterns.items(), started.items()
    ):
        for temperature in ("cold", "warm"):
            if temperature == "cold":
                forget(bookie)
            before_s = cpu_seconds(bookie.pid)
            done = load(bookie.port)
            cpu_us = (cpu_seconds(bookie.pid) - before_s) / done.reads * 1e6
            figures.setdefault((name, temperature, kind), []).append((done.reads_per_s, cpu_us))
    _tell(figures, started)


def forget(bookie: JavaBookie) -> None:
    """Put a bookie's entry logs and indexes out of the page cache."""
    os.sync()
    for path in bookie.ledger_directory.rglob("*.*"):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def _tell(figures: Figures, started: dict[str, JavaBookie]) -> None:
    for (name, temperature, kind), found in figures.items():
        rate, cpu_us = (statistics.median(column) for column in zip(*found, strict=True))
        against = figures.get((name, temperature, "java"), found)
        ratios = sorted(ours / java for (ours, _), (java, _) in zip(found, against, strict=True))
        print(
            f"{name:<10} {temperature}: {kind:<5} {rate:>10,.0f}/s  {cpu_us:6.1f} us of CPU each"
            f"  {statistics.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        )
    for kind, bookie in started.items():
        print(f"{kind}: RSS {rss_bytes(bookie.pid) / 2**20:.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
