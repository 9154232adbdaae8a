"""Power cuts and failing disks at every step of collection and compaction: nothing needed goes.

One seed decides everything. ``BOOKIED_CRASH_SEEDS`` asks for more of them; a failing one is in the
test's name, and may be run alone.
"""

from __future__ import annotations

import os

import pytest

from bookied.errors import StorageError
from tests.bookied.storage.test_storage_crash import some_fault
from tests.bookied.worlds.gc_world import GcWorld
from tests.sim.world.disk import PowerCut

SEEDS = int(os.environ.get("BOOKIED_CRASH_SEEDS", "150"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_collection_survives_power_cuts(seed: int) -> None:
    world = make_world(2_000_000 + seed)
    for _ in range(world.rng.randrange(2, 6)):
        live_until_power_cut(world)
        crash(world)
        world.check()
        world.forget_what_was_lost()
    finish(world)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_collection_survives_failing_disks(seed: int) -> None:
    world = make_world(3_000_000 + seed)
    for _ in range(world.rng.randrange(2, 6)):
        for _ in range(world.rng.randrange(150)):
            world.act()
        world.files.fault = some_fault(world.rng)
        live_until_it_hurts(world)
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


def live_until_power_cut(world: GcWorld) -> None:
    world.files.cut_at = world.files.operations + world.rng.randrange(1, 400)
    try:
        for _ in range(600):
            world.act()
    except PowerCut:
        pass


def crash(world: GcWorld) -> None:
    """Crash, and perhaps again while starting or collecting right after it."""
    for _ in range(world.rng.randrange(3)):
        world.files.crash()
        world.files.cut_at = world.files.operations + world.rng.randrange(1, 100)
        try:
            world.start()
            if world.rng.random() < 0.7:
                world.begin_collection()
                world.run_jobs()
        except PowerCut:
            continue
        break
    world.crash()


def live_until_it_hurts(world: GcWorld) -> None:
    """Go on until the bookie says that it has to stop, or for a while."""
    for _ in range(200):
        try:
            world.act()
        except (StorageError, OSError):
            if world.rng.random() < 0.3:
                return
        if world.fatal:
            return
