"""Power cuts at every step, on a disk that forgets: nothing acknowledged goes, nothing is made up.

One seed decides everything. ``SEEDS`` asks for more of them; a failing one is in the test's name.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable

import pytest

from bookied.errors import IndexFullError
from tests.bookied.worlds.disk_failures import (
    crash,
    live_until_it_hurts,
    live_until_power_cut,
    some_fault,
)
from tests.bookied.worlds.storage_world import World
from tests.sim.world.disk import PowerCut

SEEDS = int(os.environ.get("BOOKIED_CRASH_SEEDS", "100"))


@pytest.mark.parametrize("db", [False, True], ids=["files", "db"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_bookie_survives_power_cuts(seed: int, *, db: bool) -> None:
    world = World(seed, journals=1 + seed % 2, directories=1 + seed // 2 % 2, db=db)
    for _ in range(world.rng.randrange(1, 5)):
        live_until_power_cut(world, operations=150, acts=400)
        crash(world, world.start, operations=60)
        world.check()
        world.forget_what_was_lost()
    for _ in range(30):
        world.act()
    world.check()
    world.stop()
    world.start()
    world.check()
    assert not world.fatal


@pytest.mark.parametrize("db", [False, True], ids=["files", "db"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_bookie_survives_failing_disks(seed: int, *, db: bool) -> None:
    world = World(1_000_000 + seed, journals=1 + seed % 2, directories=1 + seed // 2 % 2, db=db)
    for _ in range(world.rng.randrange(1, 5)):
        for _ in range(world.rng.randrange(100)):
            world.act()
        world.files.fault = some_fault(world.rng)
        live_until_it_hurts(world, acts=150)
        world.check()
        world.die()
        world.check()
    for _ in range(30):
        world.act()
    world.check()
    assert not world.fatal


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_bookie_survives_directories_that_fill_up(seed: int) -> None:
    """Some directories have no room, at any byte, and get some again; others always have."""
    world = World(2_000_000 + seed, directories=2 + seed % 2)
    for _ in range(world.rng.randrange(2, 6)):
        fill_some(world)
        if world.rng.random() < 0.5:
            world.files.cut_at = world.files.operations + world.rng.randrange(1, 300)
        try:
            for _ in range(120):
                live_on_full_disks(world)
        except PowerCut:
            world.checkpoint = None
            world.files.crash()
            world.start()
            world.check()
            world.forget_what_was_lost()
        world.files.cut_at = None
        world.check()
    assert not world.fatal
    world.stop()
    world.start()
    world.check()


def fill_some(world: World) -> None:
    """Leave some room in all directories but one; the last has all that is ever needed."""
    world.files.space_max = {
        directory.parent: world.files.used(directory.parent) + world.rng.randrange(6000)
        for directory in world.rng.sample(world.ledger_dirs, len(world.ledger_dirs) - 1)
    }
    full = [one for one in world.ledger_dirs if one.parent in world.files.space_max]
    world.storages.avoid(world.rng.choice([[], full]))


def live_on_full_disks(world: World) -> None:
    try:
        world.act()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    if world.rng.random() < 0.2:
        world.storages.take_back()


@pytest.mark.parametrize("seed", range(SEEDS // 4))
def test_a_bookie_without_any_room_loses_nothing_and_goes_on_when_there_is_some(seed: int) -> None:
    world = World(3_000_000 + seed, directories=1 + seed % 3)
    for _ in range(world.rng.randrange(30)):
        world.act()
    world.files.space_max = {
        one.parent: world.files.used(one.parent) + world.rng.randrange(4000)
        for one in world.ledger_dirs
    }
    for _ in range(100):
        try:
            world.act()
        except IndexFullError:
            pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        if world.fatal:  # It could not be stopped with everything in files.
            world.fatal.clear()
            world.checkpoint = None
            start_without_room(world, world.files.kill)
    world.check()
    world.checkpoint = None
    start_without_room(world, world.files.crash)
    world.check()
    world.forget_what_was_lost()
    world.files.space_max = {}
    if world.checkpoint is not None:  # It may have met the full disks.
        with contextlib.suppress(OSError, IndexFullError):
            world.checkpoint.finish()
        world.checkpoint = None
    world.stop()
    world.start()
    world.check()


def start_without_room(world: World, end: Callable[[], None]) -> None:
    """Start on the disks as full as they are; not even memory may have room for all."""
    end()
    try:
        world.start()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        world.files.space_max = {}
        end()
        world.start()
