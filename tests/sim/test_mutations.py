"""Each rule that is broken on purpose is noticed: by a bounded number of seeds, or a scenario."""

from __future__ import annotations

import contextlib
import errno
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import ILogObserver, globalLogPublisher
from zope.interface import implementer

from bkclient.metadata.sqlite.rows import Rows
from tests.sim.engine.many_seeds import Found, hunt, with_first
from tests.sim.engine.mutation_switch import put
from tests.sim.engine.one_seed import kind_of, try_seed
from tests.sim.engine.workloads import seeds_of, workload_of
from tests.sim.mutations import MUTATIONS
from wire.codes import ProtocolVersion

HUNTED = [name for name, mutation in MUTATIONS.items() if mutation.seeds_max]
PLAYED = [name for name, mutation in MUTATIONS.items() if not mutation.seeds_max]
ARGUMENTS: dict[str, Any] = {
    "protocol": ProtocolVersion.V3,
    "how_soon_s": 0.0,
    "is_in_memory": False,
    "transactional": False,
    "deleted": 0,
    "is_used_again": False,
    "what": "locations",
    "entries": 2,
    "damage": "cut",
    "noted": (5, 4),
    "last": 5,
    "damaged": 4 * 1024 * 1024,
    "room": 1500,
    "number": errno.ENOSPC,
    "in_groups": True,
    "beside": "failing",
    "space": 0,
    "seed": 0,
    "has_failed": True,
    "listed": (),
    "taken": False,
    "has_map": True,
    "is_lost": True,
    "old": None,
}
"""What scenarios are played with, where they are played with several."""
SWITCHES = Path(__file__).with_name("mutations")
ROWS = re.findall(
    r"^\| `([a-z-]+)` \| ([^|]+) \| [^|]+ \| [^|]+ \| ([^|]+) \|$",
    Path(__file__).with_name("README.md").read_text(),
    re.MULTILINE,
)


def test_the_docs_have_them_all() -> None:
    rows = {name: what for name, what, _by in ROWS}
    assert rows == {name: mutation.what for name, mutation in MUTATIONS.items()}


def test_a_function_is_replaced_by_one_that_is_called_like_it() -> None:
    with contextlib.ExitStack() as stack, pytest.raises(TypeError):
        put(stack, Rows, update=lambda _self, _kind, _key: 0)


@contextlib.contextmanager
def own_failures() -> Iterator[list[str]]:
    """Collect what is logged meanwhile as failed in a mutation itself."""
    found: list[str] = []

    @implementer(ILogObserver)
    def observe(event: dict[str, Any]) -> None:
        failure = event.get("log_failure")
        if failure is not None and failure.frames:
            _, path, *_ = failure.frames[-1]
            if Path(path).is_relative_to(SWITCHES):
                found.append(repr(failure.value))

    globalLogPublisher.addObserver(observe)
    try:
        yield found
    finally:
        globalLogPublisher.removeObserver(observe)


@pytest.mark.parametrize("name", HUNTED)
def test_the_hunt_finds_a_broken_rule(name: str) -> None:
    mutation = MUTATIONS[name]
    workload = workload_of(mutation.theme)
    took = next(int(by.split()[0]) for row, _what, by in ROWS if row == name)
    seeds = with_first(took, seeds_of(0, mutation.seeds_max, workload, mutation.theme))
    with own_failures() as failures:
        outcomes = hunt(try_seed, seeds, name, workload)
        found = next((o for o in outcomes if isinstance(o, Found)), None)
    assert not failures, f"the mutation itself fails: {failures[0]}"
    assert found is not None, f"{mutation.what}: not found in {len(seeds)} seeds"
    assert kind_of(found) in mutation.breaks, found


@pytest.mark.parametrize("name", PLAYED)
def test_a_scenario_finds_a_broken_rule(name: str, tmp_path: Path) -> None:
    mutation = MUTATIONS[name]
    module, _, function = mutation.theme.partition(":")
    *classes, function = function.split(".")
    holder: Any = importlib.import_module(module)
    for name_of_class in classes:
        holder = getattr(holder, name_of_class)()
    scenario = getattr(holder, function)
    wanted = inspect.signature(scenario).parameters
    arguments = {name: value for name, value in ARGUMENTS.items() if name in wanted}
    if "tmp_path" in wanted:
        arguments["tmp_path"] = tmp_path / "intact"
    scenario(**arguments)
    if "tmp_path" in wanted:
        arguments["tmp_path"] = tmp_path / "broken"
    # Any way to say no; that of pytest itself is not an Exception.
    with mutation.built_in(), pytest.raises((Exception, pytest.fail.Exception)) as noticed:
        scenario(**arguments)
    is_of_its_own = Path(noticed.traceback[-1].path).is_relative_to(SWITCHES)
    assert not is_of_its_own, f"the mutation itself fails: {noticed.value!r}"
