"""Commands that change metadata are killed at each request; the same command goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from bkclient.client import Client
from bkclient.metadata import zk_paths
from bkclient.metadata.versions_and_watches import NEW
from bkctl.commands.cluster.backup.restore import IDS_SPARED
from bkctl.commands.cluster.metadata_contents import read_contents
from tests.bkclient.scenarios.process_deaths import Death, Last, Processes
from tests.bkctl.support.dying import call_until_death, persistent_nodes, run_until_death
from tests.bkctl.support.runner import Result
from wire.ids import BookieId, LedgerId

QUORUMS = ("-E", "3", "--write-quorum", "2", "--ack-quorum", "2")
B1 = BookieId("b1")
ROOT = ""


def done(processes: Processes, *words: object) -> Result:
    result = run_until_death(processes, *words)
    assert result is not None
    assert result.status == 0, result
    return result


def open_ledger(processes: Processes) -> None:
    done(processes, "ledger", "create", *QUORUMS)
    done(processes, "ledger", "add", "0", "a")


def ledgers(processes: Processes) -> None:
    """Make two closed ledgers, one with an entry."""
    open_ledger(processes)
    done(processes, "ledger", "create", *QUORUMS)
    done(processes, "ledger", "recover", "0", "1", "--yes")


def log(processes: Processes) -> None:
    """Make a log with three ledgers."""
    done(processes, "log", "create", "ev", *QUORUMS, "--roll-entries", "1")
    for line in "abc":
        done(processes, "log", "append", "ev", line)


def lost_bookie(processes: Processes) -> None:
    """Make ledgers, and take away a bookie that has a cookie."""
    ledgers(processes)
    call_until_death(processes, cookie)
    processes.world.kill("b1")


async def cookie(client: Client) -> None:
    await client.store.write_cookie(B1, b"cookie", NEW)


@attrs.frozen
class Case:
    """A command on a prepared cluster, and what it says again after all its work was done."""

    prepare: Callable[[Processes], None]
    words: tuple[str, ...]
    again: str = ""
    rest: tuple[str, ...] = ()
    """The command that removes what a killed one can leave."""


CASES = {
    "ledger delete": Case(
        ledgers,
        ("ledger", "delete", "0", "1", "--yes"),
        "there is no ledger 0; `bkctl ledger list` shows",
    ),
    "ledger recover": Case(open_ledger, ("ledger", "recover", "0", "--yes")),
    "log create": Case(open_ledger, ("log", "create", "ev"), "there is a log ev"),
    "log trim": Case(
        log,
        ("log", "trim", "ev", "--keep-ledgers", "1", "--yes"),
        rest=("log", "sweep", "ev"),
    ),
    "log delete": Case(
        log,
        ("log", "delete", "ev", "--yes"),
        "`bkctl log sweep ev` deletes ledgers that an interrupted deletion has left",
        rest=("log", "sweep", "ev"),
    ),
    "cookie delete": Case(lost_bookie, ("cookie", "delete", "b1", "--yes"), "b1 has no cookie"),
    "bookie recover": Case(
        lost_bookie,
        ("bookie", "recover", "b1", "--yes", "--delete-cookie"),
        "the bookie is removed already",
    ),
    "bookie rename": Case(
        lost_bookie, ("bookie", "rename", "b1", "b9", "--yes", "--force", "unverified")
    ),
    "autorecovery disable": Case(open_ledger, ("autorecovery", "disable")),
    "autorecovery delay": Case(open_ledger, ("autorecovery", "delay", "5m")),
}


def nodes(processes: Processes) -> set[str]:
    """Return all lasting nodes, without the locks and without what is only above ledgers or marks.

    Which request makes the parents of marks depends on the ledgers that a run still finds.
    """
    layout = zk_paths.LAYOUTS["hierarchical"]
    found = {path for path in persistent_nodes(processes) if zk_paths.LOCKS not in path}
    found -= {zk_paths.UNDERREPLICATION + below for below in ("", "/LAYOUT", "/ledgers")}
    return {p for p in found if "L" in p or not layout.is_ledger_parent(p[1:].partition("/")[0])}


def deaths_of(
    prepare: Callable[[Processes], None],
    work: Callable[[Processes], Any],
    left_out: range = range(0),
) -> Iterator[tuple[Processes, set[str]]]:
    """Yield clusters where the work was killed, at each of its requests, and the nodes if not.

    No death is at the requests ``left_out``.
    """
    processes = Processes(4)
    prepare(processes)
    processes.steps = 0
    work(processes)
    steps, whole = processes.steps, nodes(processes)
    assert steps
    # An answer that is lost is the request after it that is not sent, except for the last.
    for death in (
        *(Death(left, Last.LOST) for left in range(1, steps + 1) if left not in left_out),
        Death(steps, Last.ANSWERED),
    ):
        processes = Processes(4)
        prepare(processes)
        processes.death = death
        work(processes)
        processes.death = None
        processes.wait(7200.0)
        yield processes, whole


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_same_command_finishes_the_work_or_says_that_it_is_done(case: Case) -> None:
    for processes, whole in deaths_of(case.prepare, lambda p: run_until_death(p, *case.words)):
        again = run_until_death(processes, *case.words)
        assert again is not None
        assert again.status in {0, 8} or (case.again and case.again in again.err), again
        if case.rest:
            done(processes, *case.rest)
        assert nodes(processes) == whole


async def format_cluster(client: Client) -> None:
    assert await client.store.format()


async def nuke(client: Client) -> None:
    await client.store.nuke()


async def shown(client: Client) -> str | None:
    """Return the instance id that `cluster nuke` compares; raise if it would refuse."""
    found = await read_contents(client.store)
    return None if found is None else found.instance_id or "none"


def full(processes: Processes) -> None:
    log(processes)
    call_until_death(processes, cookie)
    call_until_death(processes, lambda c: c.store.mark_underreplicated(LedgerId(0), (B1,)))
    for name in [*processes.world.bookies]:
        processes.world.kill(name)


@pytest.mark.parametrize("work", [format_cluster, nuke])
def test_a_cluster_that_is_half_removed_has_its_id(work: Callable[[Client], Any]) -> None:
    before = Processes(4).world.metadata.get(zk_paths.INSTANCE_ID).value.decode()
    for processes, whole in deaths_of(full, lambda p: call_until_death(p, work)):
        found = call_until_death(processes, shown)
        assert found == before or nodes(processes) <= whole | {ROOT}
        call_until_death(processes, work)
        assert nodes(processes) == whole


async def next_id(client: Client) -> int:
    return await client.store.allocate_ledger_id()


RESTORE = ("cluster", "restore", "--yes", "--force", "root")


@pytest.mark.parametrize("removal", [nuke, format_cluster])
def test_a_killed_restore_goes_on_from_there(
    removal: Callable[[Client], Any], tmp_path: Path
) -> None:
    file = tmp_path / "backup"

    def lose(processes: Processes) -> None:
        full(processes)
        file.unlink(missing_ok=True)
        done(processes, "cluster", "backup", file)
        call_until_death(processes, removal)

    def restore(processes: Processes) -> Result | None:
        return run_until_death(processes, *RESTORE, file)

    reservations = range(40, 2 * IDS_SPARED)  # Each reserved id takes two requests.
    for processes, whole in deaths_of(lose, restore, reservations):
        done(processes, *RESTORE, file)
        assert nodes(processes) == whole
        done(processes, "log", "show", "ev")
        assert call_until_death(processes, next_id) > IDS_SPARED
