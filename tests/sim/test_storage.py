"""A bounded hunt in every run: some seeds that stay, some of the day, and each built-in fault.

``BOOKIED_SIM_SEEDS`` is how many seeds of the day there are, ``BKCTL_SIM_TIMES`` how many times as
many seeds that stay. More: ``tests.sim.storage``.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from pathlib import Path

import pytest

from tests.sim.engine.many_seeds import Found, hunt, with_first
from tests.sim.storage import READ_SEEDS, command, try_seed
from tests.sim.world.bookie_world import DB_SEEDS
from tests.sim.world.broken_bookies import FAULTS

SEEDS_OF_THE_DAY = int(os.environ.get("BOOKIED_SIM_SEEDS", "20"))
FIXED, A_TURN = 40 * int(os.environ.get("BKCTL_SIM_TIMES", "1")), 20
DOCS = Path(__file__).with_name("README.md").read_text()
TOOK = {
    name: int(took)
    for name, took in re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| (\d+) \|$", DOCS, re.MULTILINE)
}
"""How many seeds it took until a fault was found, by the docs."""


@pytest.mark.parametrize("first", range(0, FIXED, A_TURN))
def test_a_bookie_keeps_its_promises_over_every_crash(first: int) -> None:
    for outcome in hunt(try_seed, range(first, first + A_TURN)):
        assert not isinstance(outcome, Found), f"{outcome}: {command(outcome.seed)}"


@pytest.mark.parametrize("first", range(DB_SEEDS, DB_SEEDS + 3 * FIXED, 3 * A_TURN))
def test_a_bookie_with_databases_keeps_them_too(first: int) -> None:
    for outcome in hunt(try_seed, range(first, first + 3 * A_TURN, 3)):
        assert not isinstance(outcome, Found), f"{outcome}: {command(outcome.seed)}"


@pytest.mark.parametrize("first", range(READ_SEEDS, READ_SEEDS + 4 * FIXED, 4 * A_TURN))
def test_a_bookie_takes_nothing_for_gone_that_its_disks_fail_to_read(first: int) -> None:
    for outcome in hunt(try_seed, range(first, first + 4 * A_TURN, 4)):
        assert not isinstance(outcome, Found), f"{outcome}: {command(outcome.seed)}"


def test_a_bookie_keeps_its_promises_on_the_seeds_of_the_day() -> None:
    first = dt.datetime.now(dt.timezone.utc).date().toordinal() * 100_000
    for outcome in hunt(try_seed, range(first, first + SEEDS_OF_THE_DAY)):
        assert not isinstance(outcome, Found), f"{outcome}: {command(outcome.seed)}"


@pytest.mark.parametrize("name", FAULTS)
def test_the_hunt_finds_what_loses_entries(name: str) -> None:
    outcomes = hunt(try_seed, with_first(TOOK[name], range(FAULTS[name].seeds_max)), name)
    assert any(isinstance(outcome, Found) for outcome in outcomes), FAULTS[name].what


def test_a_seed_is_the_same_run_every_time() -> None:
    assert try_seed(7) == try_seed(7)
