"""What a seed of the workload ``retire`` does: bookies leave for good, and return as new ones."""

from __future__ import annotations

from random import Random
from typing import Final

import attrs

from tests.sim.engine.plan import Item, Moment, Plan, at_message
from tests.sim.workloads.repair_plan import MOMENTS, SIZES, repairs, workers

SPOILERS: Final = ("killed", "killed", "paused", "expired", "forgotten")
BOOKIES: Final = ("power", "kill", "cut", "part", "slow links", "paused", "forgotten")


def decommissioned(seed: int, rng: Random) -> Plan:
    """A bookie is stopped, and its ledgers are moved by those who repair."""
    return _leaving(seed, rng, [_operator(rng, 0, "decommission")])


def drained(seed: int, rng: Random) -> Plan:
    """A bookie is emptied while it serves, then stopped."""
    return _leaving(seed, rng, [_operator(rng, 0, "drain")])


def two_out(seed: int, rng: Random) -> Plan:
    """Two operators take out two bookies at once, or the same one."""
    kinds = rng.choices(["drain", "drain", "decommission"], k=2)
    return _leaving(seed, rng, [_operator(rng, number, kind) for number, kind in enumerate(kinds)])


def absent(seed: int, rng: Random) -> Plan:
    """A bookie stands still until its session is over, is taken out, and goes on."""
    operator = _operator(rng, 0, "take out")
    begin_s = rng.uniform(0.5, 4)
    away = Item("away", f"b{operator.number}", Moment(begin_s), rng.choice([11.0, 14.0, 20.0]))
    when = Moment(begin_s + rng.uniform(9.0, 12.0))
    return _leaving(seed, rng, [away, attrs.evolve(operator, when=when)])


THEMES: Final = (decommissioned, drained, two_out, absent)
"""One after the other, by the seed."""


def _operator(rng: Random, number: int, kind: str) -> Item:
    """Return one who takes out a bookie; after ``for_s`` that comes back, unless this is 0."""
    for_s = rng.choice([0.0, 0.5, 5.0])
    return Item(kind, f"m{number}", Moment(rng.uniform(0.3, 8)), for_s, rng.randrange(5) + 1)


def _leaving(seed: int, rng: Random, items: list[Item]) -> Plan:
    sizes = rng.choice(SIZES)
    bookies = sizes[0] + rng.choice([2, 3])
    operators = [item for item in items if item.who.startswith("m")]
    leaving = {item.number: item.number % bookies + 1 for item in operators}
    items = [
        attrs.evolve(item, number=leaving[item.number])
        if item.who.startswith("m")
        else attrs.evolve(item, who=f"b{leaving[operators[0].number]}")
        for item in items
    ]
    for _ in range(rng.choice([0, 0, 1, 2])):
        who = rng.choice(["a0", "a0", "a1", *(item.who for item in operators)])
        kind, when = rng.choice(SPOILERS), _some_time(rng)
        items.append(Item(kind, who, when, rng.choice([0.5, 4.0, 14.0])))
    for _ in range(rng.choice([0, 0, 1, 2])):
        who, kind = f"b{rng.randrange(bookies) + 1}", rng.choice(BOOKIES)
        items.append(Item(kind, who, _some_time(rng), rng.choice([0.5, 3.0, 12.0])))
    plan = repairs(seed, rng, sizes, bookies, [*workers(rng), *items])
    return attrs.evolve(
        plan,
        workload="retire",
        entries=rng.choice([2, 5, 30]),
        lag_s=rng.choice([0.0, 0.0, 1.0, 6.0]),
    )


def _some_time(rng: Random) -> Moment:
    if rng.random() < 0.5:
        return Moment(rng.uniform(0.2, 25))
    return at_message(rng, MOMENTS, 12)
