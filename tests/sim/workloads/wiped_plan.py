"""The workload ``wiped``: a bookie returns with empty disks and repairs itself."""

from __future__ import annotations

from random import Random
from typing import Final

import attrs

from tests.sim.engine.plan import MESSAGES, Item, Moment, Plan, a_while, at_message, draw

SIZES: Final = ((3, 3, 2), (3, 3, 2), (4, 3, 2), (3, 2, 2), (2, 2, 2))
OTHERS: Final = ("cut", "part", "slow links", "deaf", "mute", "snap", "hold", "paused", "kill")


def emptied(seed: int, rng: Random) -> Plan:
    """The disks of one bookie are replaced while its ledger grows, is recovered or is closed."""
    size, write, ack = rng.choice(SIZES)
    bookies = size + rng.choice([0, 1, 2])
    items = [Item("wiped", f"b{rng.randrange(size) + 1}", _some_time(rng), a_while(rng))]
    recoverers = rng.choice([1, 1, 2])
    items += [Item("recover", f"r{number}", _some_time(rng)) for number in range(recoverers)]
    for _ in range(rng.choice([0, 1, 2, 3])):
        who = f"b{rng.randrange(bookies) + 1}"
        items.append(Item(rng.choice(OTHERS), who, _some_time(rng), a_while(rng), rng.randrange(9)))
    sleepers = rng.choices(["w", "r0"], k=rng.choice([0, 1, 2]))
    items += [Item("paused", who, _some_time(rng), a_while(rng)) for who in sleepers]
    if rng.random() < 0.3:
        items.append(Item("nap", "w", at_message(rng, ["add answer", "mark"]), rng.uniform(3, 20)))
    entries = rng.choice([2, 4, 10, 40])
    plan = draw(seed, rng, (size, write, ack), bookies, items, kind="plain", entries=entries)
    disks = {
        "ledgers": rng.choice([1, 2]),
        "journals": rng.choice([1, 2]),
        "databases": 1,
        "heals": 1,
    }
    lag_s = rng.choice([0.0, 0.0, 3.0])
    return attrs.evolve(plan, disks=disks, lag_s=lag_s)


THEMES: Final = (emptied,)


def _some_time(rng: Random) -> Moment:
    if rng.random() < 0.3:
        return Moment(rng.uniform(0.05, 8))
    return at_message(rng, MESSAGES, 20)
