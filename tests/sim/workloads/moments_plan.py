"""What a seed of the workload ``moments`` does: messages of one ledger meet in a rare order."""

from __future__ import annotations

from random import Random
from typing import Final

import attrs

from tests.sim.engine.plan import Item, Moment, Plan, draw


def replaced(seed: int, rng: Random) -> Plan:
    """Most of an ensemble is replaced, and the writer ends before another entry is confirmed."""
    sizes, entries = rng.choice([(3, 3, 2), (2, 2, 1), (4, 3, 2)]), rng.choice([2, 3, 5])
    adds = sizes[1] * entries
    items = [
        Item("snap", "w", Moment(0.0, rng.choice(["add", "add answer"]), rng.randint(2, adds)))
        for _ in range(rng.choice([2, 2, 3]))
    ]
    ends = rng.choice(["killed", "paused"])
    items.append(Item(ends, "w", Moment(0.0, "ensemble change", rng.choice([1, 1, 2])), 20.0))
    items.append(Item("recover", "r0", Moment(rng.uniform(0.5, 3))))
    return _moments(seed, rng, sizes, items, entries, add_timeout_s=5)


def unheard_fence(seed: int, rng: Random) -> Plan:
    """A fence, adds and answers to recovery's reads miss each other."""
    items = [
        Item("hold", "w", Moment(0.0, "add", number), 8.0)
        for number in rng.sample(range(1, 4), rng.choice([1, 2, 2]))
    ]
    items.append(Item("snap", "r0", Moment(0.0, "fence", rng.randint(1, 3))))
    kind = rng.choice(["hold", "hold", "snap"])
    answer = Moment(0.0, "recovery read answer", rng.randint(1, 3))
    items += [Item(kind, "r0", answer, 8.0), Item("recover", "r0", Moment(rng.uniform(0.2, 1)))]
    return _moments(seed, rng, (3, 3, 2), items, 1, add_timeout_s=30, read_timeout_s=5)


def delayed(seed: int, rng: Random) -> Plan:
    """Bookies of a striped ledger fail one by one; the writer replaces them when it has to.

    While it replaces some, or later, an entry that waits in spite of a failure loses another one.
    """
    sizes, entries = rng.choice([((5, 3, 2), 3), ((5, 3, 2), 3), ((6, 3, 2), 4), ((5, 4, 2), 2)])
    items, fails_s = list[Item](), 0.0
    for place in rng.sample(range(sizes[0]), 4):
        fails_s += rng.uniform(0.1, 2)
        items.append(Item("place fails", "w", Moment(0.0), fails_s, place))
    if rng.random() < 0.5:
        items.append(Item("slow store", "store", Moment(0.0), 20.0))
    plan = _moments(seed, rng, sizes, items, entries, add_timeout_s=30)
    return attrs.evolve(plan, settings=plan.settings | {"delay_ensemble_change": True})


THEMES: Final = (replaced, unheard_fence)
"""One after the other, by the seed."""

DELAYED: Final = (delayed,)


def _moments(
    seed: int,
    rng: Random,
    sizes: tuple[int, int, int],
    items: list[Item],
    entries: int,
    **settings: int,
) -> Plan:
    bookies = sizes[0] + rng.choice([2, 3])
    plan = draw(seed, rng, sizes, bookies, items, kind="plain", entries=entries, haste=1.0)
    return attrs.evolve(
        plan, hostility=0.0, slowness=0.0, workload="moments", settings=plan.settings | settings
    )
