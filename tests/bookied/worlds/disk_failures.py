"""Power cuts and failing disks for a bookie's storage: how long it lives with them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from bookied.errors import StorageError
from tests.bookied.worlds.storage_world import World
from tests.sim.world.disk import Fault, PowerCut, failing


def live_until_power_cut(world: World, *, operations: int, acts: int) -> None:
    """Cut the power after fewer than ``operations`` of the disk, or go on for ``acts``."""
    world.files.cut_at = world.files.operations + world.rng.randrange(1, operations)
    try:
        for _ in range(acts):
            world.act()
    except PowerCut:
        pass


def crash(world: World, start: Callable[[], object], *, operations: int) -> None:
    """Crash, and perhaps again in ``start``, after fewer than ``operations`` of the disk."""
    for _ in range(world.rng.randrange(3)):
        world.files.crash()
        world.files.cut_at = world.files.operations + world.rng.randrange(1, operations)
        try:
            start()
        except PowerCut:
            continue
        break
    world.crash()


def some_fault(rng: Random) -> Fault:
    """Make one kind of operation fail now and then, on one kind of directory."""
    return failing(
        rng,
        ["write", "sync", "create", "rename", "sync_dir", "truncate", "mkdir"],
        ["/l", "/j", "/"],
    )


def live_until_it_hurts(world: World, *, acts: int) -> None:
    """Go on until the bookie says that it has to stop, or for ``acts``."""
    for _ in range(acts):
        try:
            world.act()
        except (StorageError, OSError):
            # As service does it: a failed start or stop, or a disk that stays full, ends it.
            if world.rng.random() < 0.3:
                return
        if world.fatal:
            return
