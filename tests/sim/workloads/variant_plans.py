"""Themes of other workloads in another world: lagging metadata, other disks, long ledgers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from tests.sim.engine import plan
from tests.sim.engine.plan import Item, Moment, Plan
from tests.sim.workloads import handover_plan, log_plan, repair_plan

Theme = Callable[[int, Random], Plan]

BASE_THEMES: Final = (plan.THEMES[:-1], repair_plan.THEMES, log_plan.THEMES, handover_plan.THEMES)
"""The themes of each workload, each one once."""


def _variant(theme: Theme, prefix: str, change: Callable[[Plan, Random], Plan]) -> Theme:
    def drawn(seed: int, rng: Random) -> Plan:
        found = theme(seed, rng)
        return change(found, Random(f"{seed} {prefix}"))

    drawn.__name__ = f"{prefix}_{theme.__name__.removeprefix('_')}"
    return drawn


def _lagging(found: Plan, rng: Random) -> Plan:
    return attrs.evolve(found, lag_s=rng.choice([0.05, 1.0, 6.0]))


def _on_disks(found: Plan, rng: Random) -> Plan:
    disks = {
        "ledgers": rng.choice([1, 2, 3]),
        "journals": rng.choice([1, 2]),
        "databases": rng.choice([0, 1, 1]),
    }
    return attrs.evolve(found, disks=disks)


def _far(found: Plan, rng: Random) -> Plan:
    behind = rng.randrange(1, found.entries + 2)
    first = rng.choice([65_536, 65_536, 131_072]) - behind
    changed = attrs.evolve(found, first=first, kind="plain")
    return _on_disks(changed, rng) if rng.random() < 0.5 else changed


def _in_a_file(found: Plan, _rng: Random) -> Plan:
    """Let all processes be on the host of the file: they have one clock."""
    items = tuple(item for item in found.items if item.kind != "clock")
    return attrs.evolve(found, is_sqlite=True, is_skewed=False, items=items)


def young(seed: int, rng: Random) -> Plan:
    """Ledgers follow each other while bookies whose server is far behind collect garbage."""
    found = log_plan.rolling(seed, rng)
    return attrs.evolve(found, lag_s=6.0, disks={"collects": 1})


def dying(seed: int, rng: Random) -> Plan:
    """A directory dies between two steps of a checkpoint, while entries are read from the disk."""
    size, write, ack = rng.choice([(3, 3, 2), (3, 2, 2), (2, 2, 1), (4, 3, 2)])
    bookies = size + rng.choice([0, 1, 2])
    items = [Item("recover", "r0", Moment(rng.uniform(4, 15)))]
    for number in range(rng.choice([1, 1, 2])):
        who, stops_s = f"b{number + 1}", rng.uniform(0.1, 4)
        # Afterwards nothing is in its memory any more.
        items.append(Item("stop", who, Moment(stops_s), 0.3))
        dies_s = stops_s + rng.uniform(0.5, 5)
        items.append(Item("dying directory", who, Moment(dies_s), 0.0, rng.randrange(30)))
        items += [
            Item("tail", reader, Moment(dies_s + rng.uniform(0.1, 5)))
            for reader in (f"t{number}", f"t{number + 2}")
        ]
        if rng.random() < 0.3:
            kind = rng.choice(["power", "kill"])
            items.append(Item(kind, who, Moment(rng.uniform(5, 25)), rng.uniform(0.5, 3)))
    entries, haste = rng.choice([4, 10, 40]), rng.choice([0.0, 0.5])
    found = plan.draw(
        seed, rng, (size, write, ack), bookies, items, kind="plain", entries=entries, haste=haste
    )
    disks = {"ledgers": rng.choice([2, 3]), "databases": rng.choice([0, 0, 1]), "collects": 1}
    return attrs.evolve(found, disks=disks)


LAGGING: Final = (
    *(_variant(one, "lagging", _lagging) for themes in BASE_THEMES for one in themes),
    young,
)
"""Each session reads from a metadata server that may be behind the others."""

DISKS: Final = tuple(_variant(one, "disks", _on_disks) for themes in BASE_THEMES for one in themes)
"""Bookies have several directories, and DbLedgerStorage."""

DYING: Final = (dying,)

FAR: Final = tuple(_variant(one, "far", _far) for one in plan.THEMES[:5])
"""A ledger grows beyond 65,536 entries, where pages of an index begin."""

SQLITE: Final = tuple(
    _variant(one, "sqlite", _in_a_file) for themes in BASE_THEMES for one in themes
)
"""The metadata is in one file of SQLite, and the driver is the product's own."""
