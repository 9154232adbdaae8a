"""One seed: played, with a rule broken or none, and reduced to what it needs to break a promise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Union

from tests.sim.engine.many_seeds import Found
from tests.sim.engine.oracle import BrokenInvariantError
from tests.sim.engine.plan import Plan
from tests.sim.engine.simulation import SimulationResult
from tests.sim.engine.workloads import WORKLOADS, plan_of
from tests.sim.mutations import MUTATIONS

Outcome = Union[SimulationResult, Found]


def play(
    plan: Plan,
    mutation: str | None = None,
    *,
    trace: Callable[[str], None] | None = None,
) -> Outcome:
    """Play a plan; return what went wrong, if anything.

    Whatever the product raises that it should not have is a find as well.
    """
    broken = MUTATIONS[mutation].built_in() if mutation else contextlib.nullcontext()
    with broken:
        try:
            return WORKLOADS[plan.workload].simulation(plan, trace=trace).run()
        except BrokenInvariantError as error:
            return Found(plan.seed, str(error))
        except Exception as error:  # noqa: BLE001
            return Found(plan.seed, f"{type(error).__name__}: {error}")


def try_seed(seed: int, mutation: str | None = None, workload: str = "ledger") -> Outcome:
    """Play a seed as it is."""
    return play(plan_of(seed, workload), mutation)


def shrink(found: Found, mutation: str | None = None, workload: str = "ledger") -> tuple[str, ...]:
    """Return as many parts of a plan as can be left out, and the same invariant still breaks."""
    plan, dropped = plan_of(found.seed, workload), tuple[str, ...]()
    while True:
        before = dropped
        for part in reversed(plan.parts):
            if part in dropped:
                continue
            outcome = play(plan.without((*dropped, part)), mutation)
            if isinstance(outcome, Found) and kind_of(outcome) == kind_of(found):
                dropped = (*dropped, part)
        if dropped == before:
            return dropped


def kind_of(found: Found) -> str:
    """Return the name of the invariant, or of the exception, that a find is of."""
    return found.what.partition(":")[0]


def command(
    seed: int, dropped: Sequence[str], mutation: str | None = None, workload: str = "ledger"
) -> str:
    """Return what plays a seed again, with a trace."""
    told = f" --workload {workload}" if workload != "ledger" else ""
    drop = f" --drop {','.join(dropped)}" if dropped else ""
    broken = f" --mutation {mutation}" if mutation else ""
    return f"python -m tests.sim --seed {seed}{told}{drop}{broken}"
