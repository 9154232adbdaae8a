"""The kinds of stories that are played: what their seeds are about, and who plays them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from tests.sim.engine import plan
from tests.sim.engine.plan import Plan
from tests.sim.engine.story import Story
from tests.sim.stories import (
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
from tests.sim.stories.handover_story import HandoverStory
from tests.sim.stories.log_story import LogStory
from tests.sim.stories.remade_story import RemadeStory
from tests.sim.stories.repair_story import RepairStory
from tests.sim.stories.retire_story import RetireStory

Theme = Callable[[int, Random], Plan]


@attrs.frozen
class Tale:
    """One kind of stories. ``themes`` take turns, by the seed.

    Those of a variant are of other tales: their plans name the tale whose story they are.
    """

    themes: tuple[Theme, ...]
    story: type[Story]
    salt: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the themes."""
        return tuple(theme.__name__.removeprefix("_") for theme in self.themes)


TALES: Final = {
    "ledger": Tale(plan.THEMES, Story),
    "repair": Tale(repair_plan.THEMES, RepairStory, " repair"),
    "log": Tale(log_plan.THEMES, LogStory, " log"),
    "handover": Tale(handover_plan.THEMES, HandoverStory, " handover"),
    "moments": Tale(moments_plan.THEMES, Story, " moments"),
    "delayed": Tale(moments_plan.DELAYED, Story, " delayed"),
    "long": Tale(long_plan.THEMES, Story, " long"),
    "remade": Tale(remade_plan.THEMES, RemadeStory, " remade"),
    "outlived": Tale(remade_plan.OUTLIVED, RemadeStory, " outlived"),
    "wiped": Tale(wiped_plan.THEMES, Story, " wiped"),
    "retire": Tale(retire_plan.THEMES, RetireStory, " retire"),
    "lagging": Tale(variant_plans.LAGGING, Story, " lagging"),
    "disks": Tale(variant_plans.DISKS, Story, " disks"),
    "dying": Tale(variant_plans.DYING, Story, " dying"),
    "sqlite": Tale(variant_plans.SQLITE, Story, " sqlite"),
    "far": Tale(variant_plans.FAR, Story, " far"),
}
"""By name; the first is what is played unless another is asked for."""


def plan_of(seed: int, tale: str = "ledger") -> Plan:
    """Return what this seed does."""
    told = TALES[tale]
    rng = Random(f"{seed}{told.salt} plan")
    return told.themes[seed % len(told.themes)](seed, rng)


def tale_of(theme: str) -> str:
    """Return which tale has a theme."""
    return next(name for name, tale in TALES.items() if theme in tale.names)


def seeds_of(first: int, count: int, tale: str, theme: str | None) -> list[int]:
    """Return ``count`` seeds, of one theme if it is given."""
    if theme is None:
        return list(range(first, first + count))
    names = TALES[tale].names
    step, offset = len(names), names.index(theme)
    return [first - first % step + offset + step * number for number in range(count)]
