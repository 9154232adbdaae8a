"""The hunt for what loses an entry: whole bookies on simulated disks, one seed after the other.

``python -m tests.sim.storage --seeds 1000`` runs that many, in as many processes as ``--workers``
says, and ends at the first that breaks a promise, with the one command that runs it again.
``--fault NAME`` builds in one of ``tests.sim.world.broken_bookies``, to see the hunt find it.
"""

from __future__ import annotations

import argparse
import errno
import gc
import sys
import time
from random import Random
from typing import Union

import attrs
from twisted.logger import globalLogBeginner

from bookied.errors import BookieStopError, StorageError
from tests.sim.engine.many_seeds import Found, hunt, left_lying
from tests.sim.world.bookie_world import SOUND, BookieWorld, Build
from tests.sim.world.broken_bookies import FAULTS
from tests.sim.world.disk import Fault, PowerCut, failing
from wire.errors import BookKeeperError

LIVES_MAX = 4
TURNS_MAX = 300
CUT_AFTER = (50, 250, 1000)
"""Operations on the disk that a life lasts at most; a start alone takes some 40."""
READ_SEEDS = 1_000_002
"""From here on each fourth seed, this one first, is of disks that fail to read as well."""


@attrs.frozen
class StorageRun:
    """What one seed went through."""

    seed: int
    lives: int
    turns: int
    operations: int
    """On the disk, those that change it: each may be where the power goes."""
    compactions: int


def live(seed: int, build: Build = SOUND) -> StorageRun:
    """Let one bookie live and die as the seed says; every promise is checked after every death.

    Raises:
        AssertionError: a promise was broken, or the bookie ended where it must not.
        BookKeeperError: it does not start again.
    """
    world = BookieWorld(seed, build)
    with left_lying(world):
        return _live(world, seed)


def _live(world: BookieWorld, seed: int) -> StorageRun:
    lives = world.rng.randint(1, LIVES_MAX)
    has_bad_reads = seed >= READ_SEEDS and seed % 4 == READ_SEEDS % 4
    for _ in range(lives):
        if has_bad_reads:
            start_on_a_bad_disk(world)
        start(world)
        world.check()
        world.forget_what_was_lost()
        is_power_cut = world.rng.random() < 0.75
        if world.rng.random() < 0.25:
            suffer(world, has_bad_reads=has_bad_reads)
        elif is_power_cut:
            live_until_the_power_goes(world)
        else:
            for _ in range(world.rng.randrange(TURNS_MAX)):
                world.turn()
        world.crash(is_power_cut=is_power_cut)
    start(world)
    world.check()
    world.forget_what_was_lost()
    for _ in range(30):
        world.turn()
    world.check()
    world.restart()
    world.stop()
    return StorageRun(seed, lives, world.turns, world.files.operations, world.compactions)


def start(world: BookieWorld) -> None:
    """Start, after some starts in which the power goes."""
    for _ in range(world.rng.choice([0, 0, 1, 2])):
        world.files.cut_at = world.files.operations + world.rng.randint(1, 60)
        try:
            world.start()
        except PowerCut:
            world.crash(is_power_cut=True)
        else:
            world.crash(is_power_cut=world.rng.random() < 0.5)
    world.start()


def start_on_a_bad_disk(world: BookieWorld) -> None:
    """Try to start while reads fail now and then; what it cannot read it must not take for gone."""
    world.files.read_fault = bad_reads(world.rng)
    try:
        world.start()
        for _ in range(world.rng.randrange(30)):
            world.some_reads()
            world.turn()
    except (BookKeeperError, StorageError, BookieStopError, OSError):
        pass
    world.crash(is_power_cut=world.rng.random() < 0.5)


def live_until_the_power_goes(world: BookieWorld) -> None:
    """Go on until the disk has seen so many more operations, wherever that is."""
    world.files.cut_at = world.files.operations + world.rng.randint(1, world.rng.choice(CUT_AFTER))
    try:
        for _ in range(TURNS_MAX):
            world.turn()
    except PowerCut:
        pass


def suffer(world: BookieWorld, *, has_bad_reads: bool) -> None:
    """Live on a disk that fails now and then, until the bookie gives up or for a while."""
    for _ in range(world.rng.randrange(60)):
        world.turn()
    if has_bad_reads and world.rng.random() < 0.7:
        world.files.read_fault = bad_reads(world.rng)
    else:
        world.files.fault = some_fault(world.rng)
    try:
        for _ in range(100):
            world.turn()
    except (StorageError, BookieStopError, OSError):
        return  # It ends, and its process with it.


def some_fault(rng: Random) -> Fault:
    """Make one kind of operation fail now and then, in one kind of directory."""
    return failing(
        rng,
        ["write", *["sync"] * 4, "create", "rename", "sync_dir", "truncate", "mkdir"],
        ["/l", "/j", "/i", "/"],
    )


def bad_reads(rng: Random) -> Fault:
    """Make reads fail now and then, in one kind of directory."""
    return failing(rng, ["read"], ["/l", "/j", "/i", "/"], [errno.EIO])


# The hunt -----------------------------------------------------------------------------------------


Outcome = Union[StorageRun, Found]


def try_seed(seed: int, fault: str | None = None) -> Outcome:
    """Run one seed; return what went wrong, if anything."""
    try:
        return live(seed, FAULTS[fault].build if fault else SOUND)
    except (AssertionError, BookKeeperError, OSError) as error:
        return Found(seed, f"{type(error).__name__}: {error}")


def command(seed: int, fault: str | None = None) -> str:
    """Return what runs a seed again."""
    return f"python -m tests.sim.storage --seed {seed}" + (f" --fault {fault}" if fault else "")


def main() -> int:
    """Hunt as the command line says; 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.storage", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one only, and show where it breaks")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--fault", choices=sorted(FAULTS), help="what to build in")
    asked = parser.parse_args()
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    if asked.seed is not None:
        print(live(asked.seed, FAULTS[asked.fault].build if asked.fault else SOUND))
        return 0
    begin_s = time.monotonic()
    gc.freeze()  # The program itself is not looked at with each burial of worlds.
    seeds = range(asked.first, asked.first + asked.seeds)
    runs: list[StorageRun] = []
    for outcome in hunt(try_seed, seeds, asked.fault, workers=asked.workers):
        if isinstance(outcome, Found):
            print(f"seed {outcome.seed}: {outcome.what}\n{command(outcome.seed, asked.fault)}")
            return 1
        runs.append(outcome)
    report(runs, time.monotonic() - begin_s)
    return 0


def report(runs: list[StorageRun], seconds: float) -> None:
    """Print how much was tried, and how fast."""
    turns = sum(run.turns for run in runs)
    operations = sum(run.operations for run in runs)
    lives = sum(run.lives for run in runs)
    compactions = sum(run.compactions for run in runs)
    print(
        f"{len(runs)} seeds, {lives} crashes, {compactions} compactions, nothing found in "
        f"{seconds:.1f} s: {len(runs) / seconds:.1f} seeds/s, {turns / seconds:.0f} steps/s, "
        f"{operations / seconds:.0f} disk operations/s"
    )


if __name__ == "__main__":
    sys.exit(main())
