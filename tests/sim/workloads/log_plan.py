"""What a seed of the workload ``log`` does: one log, and several writers that claim it."""

from __future__ import annotations

from random import Random
from typing import Final

import attrs

from tests.sim.engine.plan import Item, Moment, Plan, a_while, at_message, draw, some_bookie

SIZES: Final = ((3, 3, 2), (3, 3, 2), (3, 2, 2), (4, 3, 2), (2, 2, 1))
MOMENTS: Final = (
    "add",
    "add answer",
    "fence",
    "fence answer",
    "recovery read answer",
    "recovery add",
    "mark",
    "ensemble change",
    "close",
    "created",
    "listed",
    "listed",
    "dropped",
)
BOOKIES: Final = (
    "power",
    "kill",
    "cut",
    "part",
    "slow links",
    "deaf",
    "mute",
    "snap",
    "hold",
    "forgotten",
    "paused",
    "slow disk",
)


def duel(seed: int, rng: Random) -> Plan:
    """Writers take the log from each other, and stand still between any two steps."""
    items = _writers(rng, 2)
    for _ in range(rng.choice([1, 2, 4, 6])):
        kind = rng.choice(["paused", "paused", "paused", "forgotten", "expired", "killed"])
        items.append(Item(kind, rng.choice(["w", "w0", "w1"]), _some_time(rng), a_while(rng)))
    return _log(seed, rng, items)


def rolling(seed: int, rng: Random) -> Plan:
    """Bookies are late or fail while one ledger follows the other."""
    items = _writers(rng, rng.choice([0, 1]))
    for _ in range(rng.choice([1, 2, 3, 5])):
        who, number = some_bookie(rng, 4), rng.randrange(1, 9)
        items.append(Item(rng.choice(BOOKIES), who, _some_time(rng), a_while(rng), number))
    if rng.random() < 0.4:
        items.append(Item("slow store", "store", Moment(rng.uniform(0, 5)), 10.0))
    items.append(Item("read new", "t9", at_message(rng, ("listed",), 6)))
    return _log(seed, rng, items, roll=rng.choice([1, 2, 3]))


def trimming(seed: int, rng: Random) -> Plan:
    """Trimmers and sweepers meet writers that open the log, and readers."""
    items = _writers(rng, rng.choice([1, 2]))
    for number in range(rng.choice([2, 4, 6])):
        who = f"s{number % 2}"
        items.append(Item(rng.choice(["trim", "sweep"]), who, _some_time(rng), 0.0, number))
    if rng.random() < 0.4:
        items.append(Item("trim", "s0", at_message(rng, ("listed",), 8), 0.0, 9))
    for _ in range(rng.choice([0, 1, 2, 3])):
        who = rng.choice(["w", "w0", "s0", "s1"])
        kind = rng.choice(["paused", "paused", "forgotten", "killed"])
        items.append(Item(kind, who, _some_time(rng), a_while(rng)))
    return _log(seed, rng, items, roll=rng.choice([1, 2, 3]))


def scarce(seed: int, rng: Random) -> Plan:
    """Bookies fail, and there is none to take their place: repairs wait until they are back."""
    items = _writers(rng, rng.choice([0, 0, 1]))
    for _ in range(rng.choice([1, 2, 3, 5])):
        who, number = some_bookie(rng, 3), rng.randrange(1, 9)
        items.append(Item(rng.choice(BOOKIES), who, _some_time(rng), a_while(rng), number))
    if rng.random() < 0.3:
        items.append(Item("forgetful store", "store", Moment(rng.uniform(0, 10)), 10.0))
    return _log(seed, rng, items, roll=rng.choice([0, 2, 3, 5]), spare=False)


THEMES: Final = (duel, rolling, trimming, scarce)
"""One after the other, by the seed."""


def _writers(rng: Random, others: int) -> list[Item]:
    """Let others than the first writer come, and readers."""
    items = [Item("lead", f"w{n}", Moment(rng.uniform(0.1, 8))) for n in range(others)]
    items += [
        Item("read", f"t{number}", Moment(rng.uniform(0.1, 12)), 0.0, number)
        for number in range(rng.choice([1, 1, 2]))
    ]
    if rng.random() < 0.3:
        items.append(Item("read new", "t8", Moment(rng.uniform(0.1, 12))))
    if rng.random() < 0.4:
        items.append(Item("trim", "s0", Moment(rng.uniform(1, 20)), 0.0, rng.randrange(5)))
    if rng.random() < 0.3:
        items.append(Item("sweep", "s1", Moment(rng.uniform(1, 20))))
    return items


def _log(
    seed: int, rng: Random, items: list[Item], *, roll: int | None = None, spare: bool = True
) -> Plan:
    sizes = rng.choice(SIZES)
    rolls = rng.choice([0, 2, 5]) if roll is None else roll
    bookies = max(4, sizes[0] + rng.choice([0, 1, 2])) if spare else max(3, sizes[0])
    plan = draw(seed, rng, sizes, bookies, items, kind="plain")
    return attrs.evolve(
        plan,
        entries=rng.choice([4, 10, 25]),
        hostility=rng.choice([0.0, 0.02, 0.1]),
        workload="log",
        log={"roll_entries": rolls},
        settings=plan.settings | {"log_retry_s": rng.choice([2, 20, 60])},
    )


def _some_time(rng: Random) -> Moment:
    if rng.random() < 0.3:
        return Moment(rng.choice([1.0, 10.0]) * rng.random())
    return at_message(rng, MOMENTS, 15)
