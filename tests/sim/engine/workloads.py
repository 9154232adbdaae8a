"""The workloads: what their seeds are about, and the simulation that runs each."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from tests.sim.engine import plan
from tests.sim.engine.plan import Plan
from tests.sim.engine.simulation import Simulation
from tests.sim.workloads import (
    handover_plan,
    log_plan,
    long_plan,
    moments_plan,
    remade_plan,
    repair_plan,
    retire_plan,
    variant_plans,
    wiped_plan,
)
from tests.sim.workloads.handover_simulation import HandoverSimulation
from tests.sim.workloads.log_simulation import LogSimulation
from tests.sim.workloads.remade_simulation import RemadeSimulation
from tests.sim.workloads.repair_simulation import RepairSimulation
from tests.sim.workloads.retire_simulation import RetireSimulation

Theme = Callable[[int, Random], Plan]


@attrs.frozen
class Workload:
    """One kind of simulation. ``themes`` take turns, by the seed.

    A variant has the themes of other workloads: their plans name the workload that runs them.
    """

    themes: tuple[Theme, ...]
    simulation: type[Simulation]
    salt: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the themes."""
        return tuple(theme.__name__.removeprefix("_") for theme in self.themes)


WORKLOADS: Final = {
    "ledger": Workload(plan.THEMES, Simulation),
    "repair": Workload(repair_plan.THEMES, RepairSimulation, " repair"),
    "log": Workload(log_plan.THEMES, LogSimulation, " log"),
    "handover": Workload(handover_plan.THEMES, HandoverSimulation, " handover"),
    "moments": Workload(moments_plan.THEMES, Simulation, " moments"),
    "delayed": Workload(moments_plan.DELAYED, Simulation, " delayed"),
    "long": Workload(long_plan.THEMES, Simulation, " long"),
    "remade": Workload(remade_plan.THEMES, RemadeSimulation, " remade"),
    "outlived": Workload(remade_plan.OUTLIVED, RemadeSimulation, " outlived"),
    "wiped": Workload(wiped_plan.THEMES, Simulation, " wiped"),
    "retire": Workload(retire_plan.THEMES, RetireSimulation, " retire"),
    "lagging": Workload(variant_plans.LAGGING, Simulation, " lagging"),
    "disks": Workload(variant_plans.DISKS, Simulation, " disks"),
    "dying": Workload(variant_plans.DYING, Simulation, " dying"),
    "sqlite": Workload(variant_plans.SQLITE, Simulation, " sqlite"),
    "far": Workload(variant_plans.FAR, Simulation, " far"),
}
"""By name; the first is what is played unless another is asked for."""


def plan_of(seed: int, workload: str = "ledger") -> Plan:
    """Return what this seed does."""
    told = WORKLOADS[workload]
    rng = Random(f"{seed}{told.salt} plan")
    return told.themes[seed % len(told.themes)](seed, rng)


def workload_of(theme: str) -> str:
    """Return which workload has a theme."""
    return next(name for name, workload in WORKLOADS.items() if theme in workload.names)


def seeds_of(first: int, count: int, workload: str, theme: str | None) -> list[int]:
    """Return ``count`` seeds, of one theme if it is given."""
    if theme is None:
        return list(range(first, first + count))
    names = WORKLOADS[workload].names
    step, offset = len(names), names.index(theme)
    return [first - first % step + offset + step * number for number in range(count)]
