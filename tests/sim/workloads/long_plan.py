"""What a seed of the workload ``long`` does: a ledger of a page of the index and a little more."""

from __future__ import annotations

from random import Random
from typing import Final

import attrs

from tests.sim.engine.plan import Item, Moment, Plan, a_while, draw, some_bookie

PAGE: Final = 1024
"""Entries whose places one page of an index has."""

SIZES: Final = ((3, 3, 2), (2, 2, 2), (2, 2, 1), (3, 2, 2))


def pages(seed: int, rng: Random) -> Plan:
    """Bookies end and come back about the end of a page."""
    size, write, ack = rng.choice(SIZES)
    bookies = size + rng.choice([0, 1])
    entries = PAGE + rng.choice([-1, 0, 0, 0, 1, 2])
    items = [Item("recover", "r0", Moment(rng.uniform(1.0, 20)))]
    for _ in range(rng.choice([1, 2, 3])):
        number = rng.choice([1, PAGE * write - rng.randrange(30), rng.randrange(1, PAGE * write)])
        when = Moment(0.0, rng.choice(["add", "add answer"]), number)
        if rng.random() < 0.4:
            when = Moment(rng.uniform(0.1, 10))
        kind = rng.choice(["power", "kill", "stop", "power in a write"])
        items.append(Item(kind, some_bookie(rng, bookies), when, a_while(rng), rng.randrange(60)))
    # Without the writer's end the recoverer has to find where the ledger ends.
    if rng.random() < 0.5:
        items.append(Item("killed", "w", Moment(0.0, "add", PAGE * write - rng.randrange(8))))
    if rng.random() < 0.3:
        items.append(Item("tail", "t0", Moment(rng.uniform(0, 1))))
    plan = draw(
        seed, rng, (size, write, ack), bookies, items, kind="plain", entries=entries, haste=1.0
    )
    return attrs.evolve(plan, hostility=0.0, slowness=0.0)


THEMES: Final = (pages,)
