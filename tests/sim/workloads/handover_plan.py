"""What a seed of the workload ``handover`` does: six processes that add to one ledger in turns."""

from __future__ import annotations

from random import Random
from typing import Final

import attrs

from tests.sim.engine.plan import Item, Moment, Plan, a_while, at_message, draw, some_bookie

SIZES: Final = ((3, 3, 2), (3, 2, 2), (4, 3, 2), (2, 2, 1))
PROCESSES: Final = 6
MOMENTS: Final = ("add", "add answer", "ensemble change", "ensemble change", "mark", "close")
BOOKIES: Final = ("power", "kill", "cut", "part", "slow links", "deaf", "mute", "snap", "hold")


def relay(seed: int, rng: Random) -> Plan:
    """Everybody wants the ledger, and the store loses replies."""
    items = _writers(rng)
    for _ in range(rng.choice([1, 2, 3])):
        kind = rng.choice(["slow store", "forgetful store", "forgetful store"])
        items.append(Item(kind, "store", Moment(rng.uniform(0, 5)), rng.choice([1.0, 5.0])))
    return _turns(seed, rng, items, rng.choice([0.02, 0.1, 0.2]))


def stumble(seed: int, rng: Random) -> Plan:
    """Writers stand still or die between any two steps, and bookies fail."""
    items = _writers(rng)
    for _ in range(rng.choice([1, 2, 4, 6])):
        kind = rng.choice(["paused", "paused", "paused", "forgotten", "expired", "killed"])
        items.append(Item(kind, _some_writer(rng), _some_time(rng), a_while(rng)))
    for _ in range(rng.choice([0, 1, 2])):
        kind, number = rng.choice(BOOKIES), rng.randrange(1, 9)
        items.append(Item(kind, some_bookie(rng, 3), _some_time(rng), a_while(rng), number))
    if rng.random() < 0.5:
        items.append(Item("recover", "r0", _some_time(rng)))
    if rng.random() < 0.2:
        items.append(Item("delete", "d0", Moment(rng.uniform(0, 15))))
    return _turns(seed, rng, items, rng.choice([0.0, 0.02, 0.1]))


THEMES: Final = (relay, stumble)
"""One after the other, by the seed."""


def _writers(rng: Random) -> list[Item]:
    """Let the others come; the first writer is always there."""
    items = [Item("turns", f"w{n}", Moment(rng.uniform(0, 3))) for n in range(1, PROCESSES)]
    if rng.random() < 0.5:
        items.append(Item("tail", "t0", Moment(rng.uniform(0, 3))))
    return items


def _turns(seed: int, rng: Random, items: list[Item], hostility: float) -> Plan:
    sizes = rng.choice(SIZES)
    plan = draw(seed, rng, sizes, sizes[0] + rng.choice([0, 1, 2]), items, kind="plain")
    away = {f"b{number}" for number in range(plan.bookies + 1, 4)}
    return attrs.evolve(
        plan,
        entries=rng.choice([1, 2, 5]),
        hostility=hostility,
        items=tuple(item for item in plan.items if item.who not in away),
        workload="handover",
    )


def _some_writer(rng: Random) -> str:
    return rng.choice(["w", *(f"w{number}" for number in range(1, PROCESSES))])


def _some_time(rng: Random) -> Moment:
    if rng.random() < 0.3:
        return Moment(rng.uniform(0, 10))
    return at_message(rng, MOMENTS, 25)
