"""What a seed of the workload ``remade`` does: logs of one name, one after the other."""

from __future__ import annotations

from random import Random
from typing import Final

import attrs

from tests.sim.engine.plan import Item, Moment, Plan, a_while, at_message
from tests.sim.workloads import log_plan

MOMENTS: Final = (*log_plan.MOMENTS, "unlisted", "unlisted", "unlisted")


def made_again(seed: int, rng: Random) -> Plan:
    """Processes delete the log and create it again, while writers duel and roll."""
    theme = rng.choice([log_plan.duel, log_plan.rolling, log_plan.trimming])
    found = theme(seed, rng)
    items = []
    for number in range(rng.choice([1, 2, 2, 3])):
        items.append(Item("make again", f"d{number}", _some_time(rng)))
        if rng.random() < 0.4:
            kind = rng.choice(["paused", "paused", "killed", "forgotten"])
            items.append(Item(kind, f"d{number}", at_message(rng, MOMENTS, 6), a_while(rng)))
    for _ in range(rng.choice([0, 1, 2])):
        who = rng.choice(["w", "w0", "w1", "t0"])
        items.append(Item("paused", who, at_message(rng, MOMENTS, 6), a_while(rng)))
    return attrs.evolve(found, workload="remade", items=(*found.items, *items))


def outlived(seed: int, rng: Random) -> Plan:
    """A writer that rolls stands still with a ledger not listed yet; the next log catches up."""
    found = log_plan.rolling(seed, rng)
    begin_s = rng.uniform(0.2, 2)
    items = [
        Item("paused", "w", at_message(rng, ("created",), 5), rng.uniform(2, 14)),
        Item("make again", "d0", Moment(begin_s + rng.uniform(0, 2))),
        *(Item("lead", f"w{n}", Moment(begin_s + rng.uniform(1, 6))) for n in (5, 6)),
    ]
    plan = attrs.evolve(found, workload="outlived", items=(*found.items, *items), haste=0.0)
    return attrs.evolve(plan, log={"roll_entries": 1}, hostility=0.0, slowness=0.0)


THEMES: Final = (made_again,)
OUTLIVED: Final = (outlived,)


def _some_time(rng: Random) -> Moment:
    if rng.random() < 0.3:
        return Moment(rng.uniform(0.2, 12))
    return at_message(rng, MOMENTS, 15)
