"""Run every bench that has Java's figure beside ours, and print one table.

    python -m tests.bench.all --compare java                   # an idle machine; below an hour
    python -m tests.bench.all --compare java --quick           # small; ratios count, no figure does
    python -m tests.bench.all --compare java --only restart,audit --rounds 3

Each bench is a process of its own, one after the other. A ratio is how many times as fast ours is
as Java's of the same round, so above 1 ours leads; with several rounds it is the median, then the
least and the most. Rows in which Java leads are marked. What the benches print goes to standard
error as it comes, the table to standard output at the end. Asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from tests.bench.all.suites import SUITES, Suite
from tests.bench.all.table import Rows, add_round, table


def main() -> int:
    """Measure and print; 1 where a bench failed."""
    parser = argparse.ArgumentParser(prog="tests.bench.all")
    parser.add_argument("--compare", choices=["java"], default="java")
    parser.add_argument("--quick", action="store_true", help="small sizes; for a look")
    parser.add_argument("--only", default="", help=f"of {', '.join(one.name for one in SUITES)}")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    only = set(filter(None, args.only.split(",")))
    began_s, failed = time.perf_counter(), []
    rows: Rows = {}
    load = os.getloadavg()[0]
    for _ in range(args.rounds):
        for suite in SUITES:
            if only and suite.name not in only:
                continue
            text = _run(suite, quick=args.quick)
            if text is None:
                failed.append(suite.name)
            else:
                add_round(rows, suite.figures(text))
    print(table(rows))
    minutes = (time.perf_counter() - began_s) / 60
    print(
        f"\n{minutes:.0f} minutes; {os.cpu_count()} cores, load {load:.1f} at the start and "
        f"{os.getloadavg()[0]:.1f} at the end"
    )
    if failed:
        print(f"failed, and not in the table: {', '.join(failed)}")
    return 1 if failed else 0


def _run(suite: Suite, *, quick: bool) -> str | None:
    """Return what a bench printed; None if it failed."""
    command = [sys.executable, "-m", f"tests.bench.{suite.module}", *suite.arguments(quick=quick)]
    print(f"== {' '.join(command[2:])}", file=sys.stderr, flush=True)
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            lines.append(line)
    return None if process.returncode else "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
