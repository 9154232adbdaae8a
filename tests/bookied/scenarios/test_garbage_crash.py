"""Power cuts and failing disks at every step of collection and compaction: nothing needed goes.

One seed decides everything. ``BOOKIED_CRASH_SEEDS`` asks for more of them; a failing one is in the
test's name, and may be run alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

from tests.bookied.worlds.disk_failures import (
    crash,
    live_until_it_hurts,
    live_until_power_cut,
    some_fault,
)
from tests.bookied.worlds.gc_world import GcWorld
from tests.sim.world.disk import failing

SEEDS = int(os.environ.get("BOOKIED_CRASH_SEEDS", "150"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_collection_survives_power_cuts(seed: int) -> None:
    world = make_world(2_000_000 + seed)
    for _ in range(world.rng.randrange(2, 6)):
        live_until_power_cut(world, operations=400, acts=600)
        crash(world, partial(start_and_collect, world), operations=100)
        world.check()
        world.forget_what_was_lost()
    finish(world)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_collection_survives_failing_disks(seed: int) -> None:
    world = make_world(3_000_000 + seed)
    survive(world, lambda: setattr(world.files, "fault", some_fault(world.rng)))


@pytest.mark.parametrize("seed", range(SEEDS // 3))
def test_collection_survives_disks_that_cannot_be_read(seed: int) -> None:
    world = make_world(4_000_000 + seed)
    where = ["/l", "/j", "/"]
    survive(world, lambda: setattr(world.files, "read_fault", failing(world.rng, ["read"], where)))


def survive(world: GcWorld, begin_to_fail: Callable[[], None]) -> None:
    """Live with faults, and die of some; nothing that was acknowledged may go."""
    for _ in range(world.rng.randrange(2, 6)):
        for _ in range(world.rng.randrange(150)):
            world.act()
        begin_to_fail()
        live_until_it_hurts(world, acts=200)
        world.files.read_fault = None
        world.check()
        world.die()
        world.check()
    finish(world)


def make_world(seed: int) -> GcWorld:
    return GcWorld(seed, journals=1 + seed % 2, directories=1 + seed // 2 % 2, db=seed % 3 == 0)


def finish(world: GcWorld) -> None:
    """Live on, then see that all garbage goes and nothing else does."""
    world.is_metadata_away = False
    for _ in range(60):
        world.act()
    world.check()
    world.is_metadata_away = False
    world.stop()
    world.start()
    world.collect()
    world.check()
    for ledger_id in list(world.model):
        world.delete(ledger_id)
    world.stop()
    world.start()
    world.collect()
    assert not any(storage.ledgers.ids() for storage in world.storages)
    # A power cut may leave a log with a hole, and who knows what was in that.
    assert world.log_names() == {f"{one:x}.log" for one in world.unreadable_logs()}
    assert not world.fatal


def start_and_collect(world: GcWorld) -> None:
    """Start, and perhaps begin to collect right after it."""
    world.start()
    if world.rng.random() < 0.7:
        world.begin_collection()
        world.run_jobs()
