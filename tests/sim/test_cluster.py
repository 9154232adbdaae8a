"""A bounded hunt in every run: seeds that stay, plans that once broke something, and the day's.

``BKCTL_SIM_SEEDS`` is how many seeds of the day there are for each workload,
``BKCTL_SIM_TIMES`` how many times as many seeds that stay. More by hand: ``python -m tests.sim``.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.engine.many_seeds import Found, hunt
from tests.sim.engine.one_seed import command, play, shrink, try_seed
from tests.sim.engine.oracle import BrokenInvariantError
from tests.sim.engine.plan import from_json, to_json
from tests.sim.engine.scene import Scene, add_answer, at
from tests.sim.engine.simulation import Simulation
from tests.sim.engine.workloads import WORKLOADS, plan_of
from tests.sim.world.network import Fate

SEEDS_OF_THE_DAY = int(os.environ.get("BKCTL_SIM_SEEDS", "2"))
TIMES = int(os.environ.get("BKCTL_SIM_TIMES", "1"))
FIXED = {
    workload: TIMES * count
    for workload, count in {
        "ledger": 35,
        "repair": 14,
        "log": 14,
        "handover": 14,
        "moments": 14,
        "delayed": 14,
        "remade": 14,
        "outlived": 4,
        "wiped": 14,
        "retire": 14,
        "lagging": 20,
        "disks": 20,
        "dying": 10,
        "sqlite": 20,
        "far": 14,
    }.items()
}
A_TURN = 35
CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))


@pytest.mark.parametrize(
    ("workload", "first"),
    [(workload, n) for workload, count in FIXED.items() for n in range(0, count, A_TURN)],
)
def test_a_cluster_keeps_its_promises(workload: str, first: int) -> None:
    seeds = range(first, min(first + A_TURN, FIXED[workload]))
    for outcome in hunt(try_seed, seeds, None, workload):
        assert not isinstance(outcome, Found), (
            f"{outcome}: {command(outcome.seed, (), None, workload)}"
        )


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_cluster_keeps_them_on_the_seeds_of_the_day(workload: str) -> None:
    first = dt.datetime.now(dt.timezone.utc).date().toordinal() * SEEDS_OF_THE_DAY
    for outcome in hunt(try_seed, range(first, first + SEEDS_OF_THE_DAY), None, workload):
        assert not isinstance(outcome, Found), (
            f"{outcome}: {command(outcome.seed, (), None, workload)}"
        )


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_once_broke_a_promise_does_so_no_more(path: Path) -> None:
    outcome = play(from_json(path.read_text()))
    assert not isinstance(outcome, Found), f"{outcome}: python -m tests.sim --plan {path}"


@pytest.mark.parametrize(
    ("workload", "seed"),
    [(name, n) for name, workload in WORKLOADS.items() for n in range(len(workload.themes))],
)
def test_a_plan_can_be_kept(workload: str, seed: int) -> None:
    assert from_json(to_json(plan_of(seed, workload))) == plan_of(seed, workload)


def trace_of(seed: int, workload: str) -> list[str]:
    lines: list[str] = []
    play(plan_of(seed, workload), trace=lines.append)
    return lines


@pytest.fixture(scope="module")
def elsewhere() -> dict[str, list[str]]:
    """The trace of each workload, from a process that hashes otherwise."""
    code = (
        "import json; from tests.sim.test_cluster import *;"
        "print(json.dumps({workload: trace_of(9, workload) for workload in WORKLOADS}))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_seed_is_the_same_run_in_another_process(
    workload: str, elsewhere: dict[str, list[str]]
) -> None:
    assert elsewhere[workload] == trace_of(9, workload)


def test_nothing_is_lost_of_a_ledger_with_more_than_65536_entries() -> None:
    """Bookies have index files and DbLedgerStorage; one of each loses power and starts again."""
    scene = Scene(2)
    scene.world.disks = {"ledgers": 2, "journals": 2, "databases": 1}
    databases = [scene.world.add_bookie(name) for name in ("b3", "b4")]
    scene.world.until_serving()
    writer, added = scene.writer(scene.client("w")), list[list[int]]()
    members = scene.members(writer)
    with_databases = next(bookie for bookie in members if bookie in databases)
    with_index_files = next(bookie for bookie in members if bookie not in databases)
    (replaced,) = (one for one in members if one not in (with_databases, with_index_files))

    def add_up_to(entries: int) -> None:
        while len(added) < entries:
            some = [scene.add(writer) for _ in range(min(512, entries - len(added)))]
            added.extend(some)
            assert scene.world.drive(60, functools.partial(all, some))

    add_up_to(65_536)
    scene.when(
        at(with_index_files, add_answer), Fate.HOLD
    )  # So no add is confirmed before the change.
    replaced.stay_away(power=False)
    some = [scene.add(writer) for _ in range(64)]
    added.extend(some)
    assert scene.world.drive(60, lambda: len(writer.metadata.fragments) == 2)
    scene.release()
    assert scene.world.drive(60, functools.partial(all, some))
    for entries, restarted in ((65_800, with_index_files), (66_000, with_databases)):
        restarted.crash(power=True)
        restarted.start()
        add_up_to(entries)
    assert writer.metadata.fragments[1].first_entry_id == 65_536
    replaced.start()
    scene.world.until_serving()
    reader = scene.open(scene.client("r"), writer)
    assert [entry_id for (entry_id,) in added] == list(range(66_000))
    assert reader.last_add_confirmed == 65_999


def test_a_find_is_reduced_to_what_it_takes() -> None:
    found = next(o for o in hunt(try_seed, range(100), "one-ack-less") if isinstance(o, Found))
    dropped = shrink(found, "one-ack-less")
    left = plan_of(found.seed).without(dropped)
    assert len(left.items) <= 2
    assert isinstance(play(left, "one-ack-less"), Found)


def test_what_the_oracle_notes_ends_the_run() -> None:
    simulation = Simulation(plan_of(1))
    simulation.oracle.require("I5", holds=False, what="made up")
    with pytest.raises(BrokenInvariantError, match="I5: made up"):
        simulation.run()
