"""The hunt for lost entries in whole clusters: ``python -m tests.sim --seeds 1000 --workers 2``.

It ends at the first seed that breaks an invariant, leaves out of its plan what does not matter, and
prints the command that plays the rest with a trace. ``--mutation NAME`` breaks a rule on purpose.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from twisted.logger import globalLogBeginner

from tests.sim.engine.coverage import everything
from tests.sim.engine.many_seeds import Found, hunt
from tests.sim.engine.one_seed import command, kind_of, play, shrink, try_seed
from tests.sim.engine.plan import Plan, from_json, to_json
from tests.sim.engine.simulation import SimulationResult
from tests.sim.engine.workloads import WORKLOADS, plan_of, seeds_of, workload_of
from tests.sim.mutations import MUTATIONS


def main() -> int:
    """Hunt as the command line says; 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="play this one only, with a trace")
    parser.add_argument("--drop", default="", help="parts of its plan to leave out: 0,3,slowness")
    parser.add_argument("--plan", type=Path, help="play the plan in this file, with a trace")
    parser.add_argument("--save", type=Path, help="where to write the plan of a find")
    parser.add_argument(
        "--workload", choices=sorted(WORKLOADS), default="ledger", help="what is played"
    )
    themes = [name for workload in WORKLOADS.values() for name in workload.names]
    parser.add_argument("--theme", choices=themes, help="seeds of this theme only, of its workload")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="a rule to break")
    parser.add_argument("--table", action="store_true", help="break each rule; print who notices")
    parser.add_argument("--coverage", action="store_true", help="print what was never met")
    asked = parser.parse_args()
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    if asked.theme is not None:
        asked.workload = workload_of(asked.theme)
    if asked.table:
        return print_table()
    dropped = tuple(filter(None, asked.drop.split(",")))
    if asked.plan is not None:
        return show(from_json(asked.plan.read_text()).without(dropped), asked.mutation)
    if asked.seed is not None:
        return show(plan_of(asked.seed, asked.workload).without(dropped), asked.mutation)
    return hunt_all(asked)


def show(plan: Plan, mutation: str | None) -> int:
    """Play one plan with a trace; return 1 if it breaks something."""
    print(plan)
    outcome = play(plan, mutation, trace=print)
    print(f"{outcome.what}" if isinstance(outcome, Found) else outcome)
    return int(isinstance(outcome, Found))


def hunt_all(asked: Any) -> int:
    """Run seeds; end at the first find."""
    begin_s = time.monotonic()
    gc.freeze()  # The program itself is not looked at with each burial of worlds.
    seeds = seeds_of(asked.first, asked.seeds, asked.workload, asked.theme)
    told: list[SimulationResult] = []
    for outcome in hunt(try_seed, seeds, asked.mutation, asked.workload, workers=asked.workers):
        if isinstance(outcome, Found):
            left = tell(outcome, asked.mutation, asked.workload)
            if asked.save is not None:
                asked.save.write_text(to_json(left))
            return 1
        told.append(outcome)
    report(told, time.monotonic() - begin_s, in_full=asked.coverage)
    return 0


def print_table() -> int:
    """Print the table of README.md: each mutation, who notices, and how soon."""
    print("| mutation | what it does | rule | noticed as | by |\n| --- | --- | --- | --- | --- |")
    for name, mutation in MUTATIONS.items():
        noticed, by = (
            ", ".join(sorted(mutation.breaks)),
            mutation.theme.partition(":")[0].rpartition(".")[2]
            + "::"
            + mutation.theme.rpartition(":")[2],
        )
        if mutation.seeds_max:
            workload = workload_of(mutation.theme)
            seeds = seeds_of(0, mutation.seeds_max, workload, mutation.theme)
            tried = enumerate(hunt(try_seed, seeds, name, workload), 1)
            count, found = next((n, one) for n, one in tried if isinstance(one, Found))
            seeds_taken = "1 seed" if count == 1 else f"{count} seeds"
            noticed, by = kind_of(found), f"{seeds_taken} of `{mutation.theme}`"
        else:
            by = f"`{by}`"
        print(f"| `{name}` | {mutation.what} | {mutation.rule} | {noticed} | {by} |", flush=True)
    return 0


def tell(found: Found, mutation: str | None, workload: str) -> Plan:
    """Print a find, and the fewest troubles that bring it about; return their plan."""
    print(f"seed {found.seed}: {found.what}\n{command(found.seed, (), mutation, workload)}")
    dropped = shrink(found, mutation, workload)
    left = plan_of(found.seed, workload).without(dropped)
    print(f"{len(left.items)} of its items are enough:\n{left}")
    print(command(found.seed, dropped, mutation, workload))
    return left


def report(told: list[SimulationResult], seconds: float, *, in_full: bool) -> None:
    """Print how much was tried, and how fast."""
    steps, simulated_s = sum(one.steps for one in told), sum(one.simulated_s for one in told)
    print(
        f"{len(told)} seeds, nothing found in {seconds:.1f} s: {len(told) / seconds:.1f} seeds/s, "
        f"{steps / seconds:.0f} steps/s, {simulated_s:.0f} s simulated, "
        f"{simulated_s / seconds:.0f} times as fast as life"
    )
    met: Counter[tuple[str, str, str]] = Counter()
    for one in told:
        met.update(one.coverage)
    for part, pairs in everything().items():
        missing = sorted(pairs - {(state, event) for of, state, event in met if of == part})
        print(f"{part}: {len(pairs) - len(missing)} of {len(pairs)} pairs of state and event met")
        for state, event in missing if in_full else ():
            print(f"  never: {event} while {state}")
    bookie = [pair for pair in met if pair[0] == "bookie"]
    print(f"bookie: {len(bookie)} pairs of a ledger's state and a request met")
    for _, state, event in sorted(bookie) if in_full else ():
        print(f"  {met['bookie', state, event]:9d}  {event} while {state}")


if __name__ == "__main__":
    sys.exit(main())
