"""How fast Spark reads ledgers, topics and streams, beside what it replaces.

    python -m tests.bench.spark_bench [--rows ledgers,topic,stream,planning]
    python -m tests.bench.spark_bench --rows ledgers --mib 1024 --small 10000 --tiny 1000000
    python -m tests.bench.spark_bench --rows topic --messages 1000000
    python -m tests.bench.spark_bench --rows stream --seconds 60 --mb 10
    python -m tests.bench.spark_bench --rows planning --plan 100000 --simulated 1000000

Each kind of row has a module of its own, which says what it measures. Asserts nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.bench.spark_bench.ledgers import ledger_rows
from tests.bench.spark_bench.stream import stream_rows
from tests.bench.spark_bench.topic import topic_rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench.spark_bench")
    parser.add_argument("--rows", default="ledgers,topic,stream,planning")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--tiny", type=int, default=1_000_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--mb", type=float, default=10.0, help="MB/s that the stream is written at")
    parser.add_argument("--plan", type=int, default=100_000)
    parser.add_argument("--simulated", type=int, default=1_000_000)
    args = parser.parse_args()
    rows = {
        "ledgers": lambda: ledger_rows(args.mib, args.small, args.tiny),
        "topic": lambda: topic_rows(args.messages),
        "stream": lambda: stream_rows(args.seconds, args.mb),
        "planning": lambda: _planning_rows(args.plan, args.simulated),
    }
    chosen = args.rows.split(",")
    if unknown := set(chosen) - set(rows):
        parser.error(f"no such rows: {', '.join(sorted(unknown))}")
    for name in chosen:
        rows[name]()


def _planning_rows(ledgers: int, simulated: int) -> None:
    """Have ``spark_bench.plan`` plan ledgers of real stores, and of a store in memory."""
    command = [sys.executable, "-m", "tests.bench.spark_bench.plan"]
    for stores, count in (("sqlite,zookeeper", ledgers), ("memory", simulated)):
        subprocess.run([*command, "--stores", stores, "--ledgers", str(count)], check=True)


if __name__ == "__main__":
    main()
