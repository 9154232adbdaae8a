"""Hunt for inputs that break a decoder.

    python -m tests.fuzz --minutes 10
    python -m tests.fuzz --minutes 1 --target wire-v3-request --seed 7 --keep
    python -m tests.fuzz --target journal --replay 0001ff

Ends with status 1 if there was a crash; prints each with the command that shows it again.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
from pathlib import Path

from twisted.logger import globalLogBeginner

from tests.fuzz.fuzzer import Crash, Hunt, Target, judge, keep, kept
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="over all targets")
    parser.add_argument("--executions", type=int, default=sys.maxsize, help="of each, at most")
    parser.add_argument(
        "--target", action="append", choices=sorted(TARGETS), help="all if left out"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="add to the corpus what reaches more")
    parser.add_argument("--replay", metavar="HEX", help="run one input on the target and stop")
    asked = parser.parse_args()
    targets = [TARGETS[name] for name in asked.target or TARGETS]
    globalLogBeginner.beginLoggingTo([], discardBuffer=True, redirectStandardIO=False)
    if asked.replay is not None:
        _limit_memory(targets[0])
        return _report(targets[0], judge(targets[0], bytes.fromhex(asked.replay)))
    crashes = executions = branches = 0
    for target in targets:
        _limit_memory(target)
        hunt = Hunt(target)
        hunt.feed([*target.seeds, *kept(target)])
        seconds = asked.minutes * 60 / len(targets)
        hunt.run(random.Random(asked.seed), seconds, asked.executions)
        if asked.keep:
            keep(hunt)
        print(
            f"{target.name:26} {hunt.executions:9,} executions {len(hunt.branches.seen):5} "
            f"branches {len(hunt.corpus):4} inputs {len(hunt.crashes):3} crashes",
            flush=True,
        )
        crashes += _report(target, list(hunt.crashes.values()))
        executions, branches = executions + hunt.executions, branches + len(hunt.branches.seen)
    print(f"{len(targets)} targets, {executions:,} executions, {branches:,} branches")
    return 1 if crashes else 0


def _report(target: Target, crashes: list[Crash]) -> int:
    for crash in crashes:
        print(f"  {crash.where}: {crash.what}")
        if len(crash.data) <= 4096:
            print(f"  python -m tests.fuzz --target {target.name} --replay {crash.data.hex()}")
    return len(crashes)


def _limit_memory(target: Target) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + target.memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


if __name__ == "__main__":
    sys.exit(main())
