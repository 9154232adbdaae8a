"""A bookie that lost the contents of a directory refuses to start, or has lost nothing by it."""

from __future__ import annotations

from random import Random

import pytest

from bookied.errors import CorruptError, DirectoryEmptiedError, JournalMissingError
from bookied.service.start_and_stop import BookieService
from tests.sim.engine.many_seeds import Found
from tests.sim.storage import live_until_the_power_goes
from tests.sim.world.bookie_world import DB_SEEDS, SOUND, BookieWorld, Build

A_TURN = 25


class _Careless(BookieService):
    """Takes any directory with a cookie for one that has all it ever held."""

    async def _begin_engine(self) -> None:
        for root in self.directories.roots:
            for name in ("bookied.journal", "bookied.held"):
                if self.parts.files.exists(root / name):
                    self.parts.files.remove(root / name)
        await super()._begin_engine()


def lose_one(seed: int, build: Build = SOUND) -> bool:
    """Let a bookie live, empty a directory, start it again; return whether it refused.

    Raises:
        AssertionError: it started, and has not kept a promise.
        CorruptError: it did not say what is wrong.
    """
    world, chance = BookieWorld(seed, build), Random(seed)
    for _ in range(chance.randint(1, 2)):
        world.start()
        world.check()
        world.forget_what_was_lost()
        live_until_the_power_goes(world)
        world.crash(is_power_cut=True)
    world.empty_a_directory(chance)
    try:
        world.start()
    except (DirectoryEmptiedError, JournalMissingError):
        return True
    world.check()
    return False


def try_one(seed: int, build: Build = SOUND) -> Found | bool:
    try:
        return lose_one(seed, build)
    except (AssertionError, CorruptError) as error:
        return Found(seed, f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("first", [*range(0, 4 * A_TURN, A_TURN), DB_SEEDS, DB_SEEDS + 3 * A_TURN])
def test_an_emptied_directory_stops_the_start_or_nothing_is_lost(first: int) -> None:
    step = 3 if first >= DB_SEEDS else 1
    outcomes = [try_one(seed) for seed in range(first, first + step * A_TURN, step)]
    assert not [one for one in outcomes if isinstance(one, Found)]
    assert True in outcomes


def test_without_the_notes_promises_are_broken() -> None:
    outcomes = (try_one(seed, Build(service=_Careless)) for seed in range(100))
    assert any(isinstance(one, Found) for one in outcomes)
