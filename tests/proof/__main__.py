"""The fault model on real processes, and a checker that reads what clients saw.

    python -m tests.proof --minutes 10 --seed 1
    python -m tests.proof --minutes 10 --seed 1 --schedule     # print the schedule alone

Bookies of ours and of Java's in one cluster, a real ZooKeeper, writers and readers of both clients,
each a process. Faults come from the seed: the same seed, minutes and numbers of bookies give the
same faults at the same steps. Faults that this machine does not allow are named and left out.

Ends with status 1 if anything that is promised does not hold; then the histories, the bookies'
directories and their logs stay.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.proof.mounted_disks import find_means
from tests.proof.run import DRAIN_S, FINISH_S, READ_S, Outcome, Run, left_out
from tests.proof.schedule import Sizes, draw

START_S = 300.0
HEAL_S = 300.0


class OutOfTimeError(Exception):
    """The run did not end in the time that it may take."""


def say(line: str) -> None:
    print(line, flush=True)


def limit(seconds: float) -> None:
    """Raise ``OutOfTimeError`` in the main thread after ``seconds``."""

    def over(*_: object) -> NoReturn:
        raise OutOfTimeError(f"not over after {seconds:.0f} s")

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def summary(outcome: Outcome) -> list[str]:
    """Return what came of a run, a line each; the verdict is the last."""
    lines = [f"fault, {what}: {count}" for what, count in sorted(outcome.faults.items()) if count]
    lines += [f"{what}: {count:,}" for what, count in sorted(outcome.figures.items()) if count]
    lines += [f"VIOLATION {violation}" for violation in outcome.violations]
    return [*lines, f"verdict: {len(outcome.violations)} violations"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ours", type=int, default=3, help="bookies of ours")
    parser.add_argument("--java", type=int, default=3, help="bookies of Java's")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--schedule", action="store_true", help="print the schedule and end")
    parser.add_argument("--directory", type=Path, help="a disk with space; default: temporary")
    parser.add_argument("--keep", action="store_true", help="keep the directory in any case")
    asked = parser.parse_args(arguments)
    sizes = Sizes(asked.ours, asked.java, asked.writers)
    steps = draw(asked.seed, asked.minutes * 60, sizes)
    say(f"schedule of seed {asked.seed}, {asked.minutes:g} minutes, {sizes}")
    for step in steps:
        say(str(step))
    if asked.schedule:
        return 0
    # Before any thread: from here on this process may have mounts of its own.
    means = find_means()
    for line in left_out(steps, means):
        say(line)
    limit(asked.minutes * 60 + START_S + HEAL_S + FINISH_S + READ_S + DRAIN_S)
    root = Path(tempfile.mkdtemp(prefix="proof-", dir=asked.directory))
    began_s = time.monotonic()
    one = Run(
        root, steps, seed=asked.seed, seconds=asked.minutes * 60, sizes=sizes, means=means, say=say
    )
    say(f"run: the cluster is up after {time.monotonic() - began_s:.0f} s")
    outcome = one.run()
    for line in summary(outcome):
        say(line)
    if outcome.violations or asked.keep:
        say(f"histories, directories and logs: {root}")
    else:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
