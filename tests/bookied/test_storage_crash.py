"""Power cuts at every step, on a disk that forgets: nothing acknowledged goes, nothing is made up.

One seed decides everything. ``SEEDS`` asks for more of them; a failing one is in the test's name.
"""

from __future__ import annotations

import os

import pytest

from tests.bookied.storage_world import World
from tests.sim.disk import PowerCut

SEEDS = int(os.environ.get("BOOKIED_CRASH_SEEDS", "200"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_bookie_survives_power_cuts(seed: int) -> None:
    world = World(seed, journals=1 + seed % 2, directories=1 + seed // 2 % 2)
    for _ in range(world.rng.randrange(1, 5)):
        live_until_power_cut(world)
        crash(world)
        world.check()
        world.forget_what_was_lost()
    for _ in range(30):
        world.act()
    world.check()
    world.stop()
    world.start()
    world.check()
    assert not world.fatal


def live_until_power_cut(world: World) -> None:
    world.files.cut_at = world.files.operations + world.rng.randrange(1, 150)
    try:
        for _ in range(400):
            world.act()
    except PowerCut:
        pass


def crash(world: World) -> None:
    """Crash, and perhaps again while starting."""
    for _ in range(world.rng.randrange(3)):
        world.files.crash()
        world.files.cut_at = world.files.operations + world.rng.randrange(1, 60)
        try:
            world.start()
        except PowerCut:
            continue
        break
    world.crash()
