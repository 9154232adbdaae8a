"""The autorecovery commands on a cluster in memory."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bkclient.metadata.memory import MemoryMetadata
from tests.bkclient.fakes import World
from tests.bkclient.metadata.values import B1, B2
from tests.bkctl.world import run_in
from wire.ids import LedgerId


@pytest.fixture
def world() -> World:
    return World(0)


@pytest.fixture
def store(world: World) -> MemoryMetadata:
    made = world.metadata.metadata()
    world.run(made.connect())
    return made


def dump(world: World, store: MemoryMetadata) -> dict[str, Any]:
    return world.run(store.dump())


def test_it_is_switched_for_the_whole_cluster_and_twice_is_once(
    world: World, store: MemoryMetadata
) -> None:
    assert run_in(world, "autorecovery", "disable").out == "autorecovery disabled\n"
    assert run_in(world, "autorecovery", "disable").out == "autorecovery was disabled before\n"
    assert not world.run(store.replication_enabled())
    assert run_in(world, "autorecovery", "enable", "--json").json == {
        "schema": 1, "enabled": True, "changed": True,
    }  # fmt: skip
    assert world.run(store.replication_enabled())


def test_a_dry_run_switches_nothing(world: World, store: MemoryMetadata) -> None:
    before = dump(world, store)
    assert run_in(world, "autorecovery", "disable", "--dry-run").out == (
        "would disable autorecovery\n"
    )
    assert run_in(world, "autorecovery", "enable", "--dry-run").out == "would change nothing\n"
    assert run_in(world, "autorecovery", "delay", "5m", "--dry-run").out == (
        "would set the delay to 300 s\n"
    )
    assert run_in(world, "autorecovery", "trigger", "--dry-run").out.startswith("would have the")
    assert dump(world, store) == before


def test_the_status_of_a_new_cluster_and_of_one_that_mends_itself(
    world: World, store: MemoryMetadata
) -> None:
    new = run_in(world, "autorecovery", "status", "--json").json
    assert new["enabled"] is True
    assert new["auditor"] is new["oldest"] is new["delay_s"] is None
    world.run(store.elect(B1))
    world.run(store.mark_underreplicated(LedgerId(1), (B1,)))
    world.run(store.mark_underreplicated(LedgerId(2), (B1,)))
    world.run(store.set_lost_bookie_recovery_delay(0))
    assert world.run(store.acquire_lock(LedgerId(2)))
    found = run_in(world, "autorecovery", "status", "--json").json
    assert (found["auditor"], found["marked"], found["being_mended"]) == (B1, 2, 1)
    assert "all-ledgers: never" in run_in(world, "autorecovery", "status").out


def test_marks_are_listed_by_whose_replicas_they_lack(world: World, store: MemoryMetadata) -> None:
    for ledger_id, missing in ((1, (B1,)), (2, (B1, B2)), (3, (B2,))):
        world.run(store.mark_underreplicated(LedgerId(ledger_id), missing))
    world.run(store.acquire_lock(LedgerId(3)))

    def ids(*options: str) -> list[str]:
        return run_in(world, "autorecovery", "list", "-o", "id", *options).out.split()

    assert ids() == ["1", "2", "3"]
    assert ids("--missing", B1) == ["1", "2"]
    assert ids("--not-missing", B1) == ["3"]
    assert ids("--missing", B1, "--not-missing", B2) == ["1"]
    assert run_in(world, "autorecovery", "list", "--count").out == "3\n"
    listed = run_in(world, "autorecovery", "list", "--json").json["marks"]
    assert listed[2]["worker"] == "localhost"
    assert listed[1]["missing"] == [B1, B2]
    table = run_in(world, "autorecovery", "list").out
    assert table.splitlines()[0].split() == ["LEDGER", "MISSING", "SINCE", "WORKER"]


def test_old_marks_can_be_told_from_new_ones(world: World, store: MemoryMetadata) -> None:
    world.run(store.mark_underreplicated(LedgerId(1), (B1,)))
    world.clock.advance(time.time() - world.clock.seconds())
    world.run(store.mark_underreplicated(LedgerId(2), (B1,)))
    assert run_in(world, "autorecovery", "list", "--older-than", "1h", "-o", "id").out == "1\n"


def test_no_auditor_is_status_3_with_what_starts_one(world: World, store: MemoryMetadata) -> None:
    none = run_in(world, "autorecovery", "auditor", ok=False)
    assert none.status == 3
    assert "bookied autorecovery" in none.err
    assert run_in(world, "autorecovery", "trigger", ok=False).status == 3
    world.run(store.elect(B1))
    assert run_in(world, "autorecovery", "auditor").out == f"{B1}\n"


def test_an_audit_is_asked_for_where_one_can_be_made(world: World, store: MemoryMetadata) -> None:
    world.run(store.elect(B1))
    world.run(store.set_lost_bookie_recovery_delay(60))
    assert f"auditor {B1}" in run_in(world, "autorecovery", "trigger").out
    run_in(world, "autorecovery", "disable")
    refused = run_in(world, "autorecovery", "trigger", ok=False)
    assert refused.status == 7
    assert "`bkctl autorecovery enable`" in refused.err


def test_periodic_checks_are_made_due(world: World, store: MemoryMetadata) -> None:
    said = run_in(world, "autorecovery", "trigger", "--check", "placement", "--check", "replicas")
    assert said.out.startswith("due again: placement, replicas")
    day_ms = 86_400_000
    for check in ("placement", "replicas"):
        checked = world.run(store.check_time(check))
        assert checked is not None
        assert abs(time.time() * 1000 - 21 * day_ms - checked) < day_ms
    assert world.run(store.check_time("all-ledgers")) is None


def test_the_delay_is_shown_and_set_zero_included(world: World, store: MemoryMetadata) -> None:
    none = run_in(world, "autorecovery", "delay", ok=False)
    assert none.status == 3
    assert run_in(world, "autorecovery", "delay", "30m").out == "delay 1800 s\n"
    assert run_in(world, "autorecovery", "delay", "60").out == "delay 60 s, was 1800 s\n"
    assert "looks for lost bookies now" in run_in(world, "autorecovery", "delay", "60").out
    assert run_in(world, "autorecovery", "delay").out == "60 s\n"
    run_in(world, "autorecovery", "delay", "0")
    assert world.run(store.lost_bookie_recovery_delay()) == 0
