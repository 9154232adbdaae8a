"""Themes of other tales in another world: lagging metadata, other disks, ledgers that are long."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from tests.sim.engine import plan
from tests.sim.engine.plan import Plan
from tests.sim.stories import handover_plan, log_plan, repair_plan

Theme = Callable[[int, Random], Plan]

TALES: Final = (plan.THEMES[:-1], repair_plan.THEMES, log_plan.THEMES, handover_plan.THEMES)
"""The themes of each tale, each one once."""


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


LAGGING: Final = (
    *(_variant(one, "lagging", _lagging) for themes in TALES for one in themes),
    young,
)
"""Each session reads from a metadata server that may be behind the others."""

DISKS: Final = tuple(_variant(one, "disks", _on_disks) for themes in TALES for one in themes)
"""Bookies have several directories, and DbLedgerStorage."""

FAR: Final = tuple(_variant(one, "far", _far) for one in plan.THEMES[:5])
"""A ledger grows beyond 65,536 entries, where pages of an index begin."""

SQLITE: Final = tuple(_variant(one, "sqlite", _in_a_file) for themes in TALES for one in themes)
"""The metadata is in one file of SQLite, and the driver is the product's own."""
