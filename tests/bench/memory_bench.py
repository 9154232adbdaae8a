"""How much memory a bookie of ours takes, by phase: much data, many ledgers, a start, reads.

    python -m tests.bench.memory_bench                  # 10 GB in 1,000 ledgers, then 100,000
    python -m tests.bench.memory_bench --gigabytes 0    # 100,000 ledgers alone
    python -m tests.bench.memory_bench --gigabytes 1 --ledgers 10000

A ``bookied`` process with its defaults, but for ``journalMaxBackups=0``: takes the data, then an
entry in each of many ledgers, twice; is killed and started again; is read from all over. "at most"
is the peak of resident memory in that phase alone. Takes the gigabytes and 2 GB more on disk, and
about 10 KB a ledger. Prints, asserts nothing.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.loads.load import peak_rss_bytes, rss_bytes
from tests.bench.loads.many_ledgers import ManyLedgers
from tests.bench.loads.read_load import read
from tests.live.bookied.processes import BookieProcess, make_cluster, write_conf

DATA_LEDGERS = 1000
PAYLOAD_BYTES = 1024
READS = 100_000
START_S = 600.0


class Phases:
    """Tells the peak of each phase of one process."""

    def __init__(self, bookie: BookieProcess) -> None:
        self._pid = bookie.pid

    def tell(self, what: str, seconds: float) -> None:
        now, peak = rss_bytes(self._pid) / 2**20, peak_rss_bytes(self._pid) / 2**20
        print(f"{what}: {seconds:.1f} s, {now:.0f} MB, at most {peak:.0f} MB", flush=True)
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")  # The peak begins anew.


def start(conf: Path) -> tuple[BookieProcess, float]:
    began_s = time.perf_counter()
    bookie = BookieProcess(conf).ready(START_S)
    return bookie, time.perf_counter() - began_s


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=10.0, help=f"in {DATA_LEDGERS} ledgers")
    parser.add_argument("--ledgers", type=int, default=100_000, help="with two entries each")
    parser.add_argument("--directory", type=Path, help="a disk with room; default: temporary")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="memory-bench-", dir=options.directory))
    settings = {"zkTimeout": 10_000, "journalPreAllocSizeMB": 16, "journalMaxBackups": 0}
    conf = write_conf(root / "bookie", make_cluster(root / "metadata.db"), **settings)
    bookie, took_s = start(conf)
    try:
        phases = Phases(bookie)
        phases.tell("idle", took_s)
        loads = []
        if options.gigabytes:
            load = ManyLedgers(bookie.port, DATA_LEDGERS, PAYLOAD_BYTES)
            rounds = int(options.gigabytes * 1e9 / DATA_LEDGERS / PAYLOAD_BYTES)
            loads.append(load)
            took_s = load.run(rounds)
            phases.tell(f"{options.gigabytes:g} GB in {DATA_LEDGERS:,} ledgers", took_s)
        if options.ledgers:
            load = ManyLedgers(bookie.port, options.ledgers, 100, first=1_000_000)
            loads.append(load)
            for entry in ("an entry", "another entry"):
                took_s = load.run(1)
                phases.tell(f"{entry} in each of {options.ledgers:,} ledgers", took_s)
        bookie.kill()
        bookie, took_s = start(conf)
        phases = Phases(bookie)
        phases.tell("started again after a kill", took_s)
        for load in loads:
            took_s = read_all_over(bookie.port, load)
            phases.tell(f"{READS:,} reads all over {load.ledgers:,} ledgers", took_s)
    finally:
        bookie.kill()
        shutil.rmtree(root)
    return 0


def read_all_over(port: int, load: ManyLedgers) -> float:
    rng = random.Random(1)
    wanted = [
        (load.first + rng.randrange(load.ledgers), rng.randrange(load.rounds)) for _ in range(READS)
    ]
    return read(port, wanted, window=1000).seconds


if __name__ == "__main__":
    sys.exit(main())
