"""How long a bookie takes from a crash to its first answer: Java's and ours, in one run.

    python -m tests.bench.restart_bench                      # 1 GB of journal; 4 minutes
    python -m tests.bench.restart_bench --ledgers 100000 --size 100 --megabytes 20

Each bookie takes entries of 1 KiB in some ledgers, then is killed (SIGKILL). Its marks are removed,
so that all its journals are replayed, whatever checkpoints it had done: both kinds then have the
same to do. Once the old registration is gone it is started, and asked for one entry until that is
answered. ``idle`` is the same start with nothing to replay, after a clean stop. Asserts nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.bench.bookie_bench import bookies
from tests.bench.loads.load import BookieRefusedError, peak_rss_bytes
from tests.bench.loads.many_ledgers import ManyLedgers
from tests.bench.loads.read_load import read
from tests.interop.peers.peers import JavaBookie

ANSWER_S: Final = 900.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", default="java,ours")
    parser.add_argument("--megabytes", type=float, default=1000.0)
    parser.add_argument("--size", type=int, default=1024, help="payload bytes")
    parser.add_argument("--ledgers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="a disk to measure on; default: temporary")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="restart-bench-", dir=args.directory))
    zookeeper = ZooKeeperProcess(root / "zookeeper", fsync=False)
    zookeeper.directory.mkdir()
    took: dict[str, list[float]] = {}
    try:
        zookeeper.start()
        for number in range(args.rounds):
            for kind in args.kinds.split(","):
                with bookies([kind], root / f"{kind}{number}", zookeeper) as started:
                    took.setdefault(kind, []).append(_measure(kind, started[kind], args))
    finally:
        zookeeper.stop()
        shutil.rmtree(root, ignore_errors=True)
    for kind, figures in took.items():
        java_s = statistics.median(took["java"]) if "java" in took else 0
        ratio = f", {statistics.median(figures) / java_s:.2f} of Java's" if java_s else ""
        print(f"{kind}: {statistics.median(figures):.1f} s to replay and serve{ratio}")
    return 0


def _measure(kind: str, bookie: JavaBookie, args: argparse.Namespace) -> float:
    load = ManyLedgers(bookie.port, args.ledgers, args.size)
    rounds = max(1, int(args.megabytes * 1e6 / (args.size + 40) / args.ledgers))
    wrote_s = load.run(rounds)
    entry = load.first + args.ledgers // 2, rounds - 1
    bookie.kill()
    journal_mb = sum(path.stat().st_size for path in bookie.journal_directory.rglob("*.txn")) / 1e6
    for mark in bookie.ledger_directory.rglob("lastMark*"):
        mark.unlink()
    crashed_s = _start(bookie, entry)
    peak_mb = peak_rss_bytes(bookie.pid) / 2**20
    bookie.stop(120)
    idle_s = _start(bookie, entry)
    print(
        f"{kind}: {rounds * args.ledgers:,} entries in {args.ledgers:,} ledgers, {wrote_s:.1f} s; "
        f"journals of {journal_mb:,.0f} MB replayed, first answer after {crashed_s:.1f} s "
        f"(idle {idle_s:.1f} s), at most {peak_mb:.0f} MB",
        flush=True,
    )
    return crashed_s


def _start(bookie: JavaBookie, entry: tuple[int, int]) -> float:
    """Start it, its old registration gone; return the seconds to its first answer."""
    bookie.forget()
    began_s = time.perf_counter()
    bookie.spawn()
    while time.perf_counter() - began_s < ANSWER_S:
        with contextlib.suppress(OSError, BookieRefusedError):
            read(bookie.port, [entry], window=1)
            return time.perf_counter() - began_s
        time.sleep(0.02)
    raise TimeoutError(f"no answer in {ANSWER_S:.0f} s; see {bookie.log}")


if __name__ == "__main__":
    sys.exit(main())
