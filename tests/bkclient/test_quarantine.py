"""Bookies that fail too often get no new entries for a while."""

from __future__ import annotations

import random
from typing import Any

import pytest
from twisted.internet.task import Clock

from bkclient.config import ClientConfig
from bkclient.errors import ClientError, RequestTimeoutError
from bkclient.quarantine import Quarantine
from tests.bkclient.fakes import Fate, World, is_add, when
from wire.ids import BookieId

ILL, WELL = BookieId("b1"), BookieId("b2")
TIMEOUT = RequestTimeoutError("no answer")


def made(clock: Clock, seed: int = 0, **settings: Any) -> Quarantine:
    config = ClientConfig(
        **{
            "health_check": True,
            "health_check_errors_max": 10,
            "health_check_interval_s": 60,
            "quarantine_s": 300,
            **settings,
        }
    )
    return Quarantine(clock, random.Random(seed), config)


def test_who_fails_too_often_is_out_once_the_interval_has_ended_and_comes_back() -> None:
    clock = Clock()
    quarantine = made(clock)
    for _ in range(10):
        quarantine.count(ILL, TIMEOUT)
    quarantine.count(WELL, TIMEOUT, 9)
    assert quarantine.members() == set()
    clock.advance(60)
    assert quarantine.members() == {ILL}
    clock.advance(299)
    assert quarantine.members() == {ILL}
    clock.advance(1)
    assert quarantine.members() == set()


def test_each_interval_counts_for_itself() -> None:
    clock = Clock()
    quarantine = made(clock)
    for _ in range(5):
        quarantine.count(ILL, TIMEOUT, 9)
        clock.advance(60)
    assert quarantine.members() == set()


@pytest.mark.parametrize("code", [-7, -8, -13, -101, -104])
def test_what_any_sound_bookie_can_say_does_not_count(code: int) -> None:
    clock = Clock()
    quarantine = made(clock)
    quarantine.count(ILL, ClientError.by_code[code]("entry 7"), 1000)
    clock.advance(60)
    assert quarantine.members() == set()


def test_connections_that_fail_count_where_that_is_asked_for() -> None:
    for asked in (True, False):
        clock = Clock()
        quarantine = made(clock, quarantine_on_connect_error=asked)
        for _ in range(10):
            quarantine.unreachable(ILL)
        clock.advance(60)
        assert bool(quarantine.members()) is asked


def test_chance_decides_by_the_configured_ratio() -> None:
    out = 0
    for seed in range(200):
        clock = Clock()
        quarantine = made(clock, seed, quarantine_ratio=0.25)
        quarantine.count(ILL, TIMEOUT, 10)
        clock.advance(60)
        out += bool(quarantine.members())
    assert 25 < out < 75


def test_without_the_setting_nothing_is_counted() -> None:
    clock = Clock()
    quarantine = made(clock, health_check=False)
    quarantine.count(ILL, TIMEOUT, 1000)
    clock.advance(60)
    assert quarantine.members() == set()


async def ensembles(client: Any, count: int) -> set[str]:
    """Return who is in any of some new ledgers' ensembles."""
    seen: set[str] = set()
    for _ in range(count):
        writer = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        seen.update(writer.metadata.ensemble)
    return seen


def quarantining(world: World) -> Any:
    """Return a client that has put b1 into quarantine, its memory of failures being over."""
    client = world.client(
        health_check=True,
        health_check_errors_max=3,
        health_check_interval_s=10,
        failure_memory_ms=0,
        add_timeout_s=1,
    )
    world["b1"].policy = when(is_add, Fate.LOSE)

    async def fail_some() -> None:
        while True:
            writer = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            if writer.metadata.ensemble == (ILL,):
                break
        for _ in range(3):
            writer.add(b"lost on b1")
        await writer.drain()

    world.run(fail_some())
    world.settle(10)
    return client


def test_a_client_makes_no_new_ensembles_with_them() -> None:
    world = World(3)
    client = quarantining(world)
    assert world.run(ensembles(client, 40)) == {"b2", "b3"}
    world.settle(1800)
    assert world.run(ensembles(client, 40)) == {"b1", "b2", "b3"}


def test_where_there_is_nobody_else_they_are_used() -> None:
    world = World(3)
    client = quarantining(world)
    world.kill("b2")
    world.kill("b3")
    assert world.run(ensembles(client, 5)) == {"b1"}


def test_a_switch_in_the_metadata_lets_everybody_out() -> None:
    world = World(3)
    client = quarantining(world)
    world.run(client.store.set_health_check_enabled(enabled=False))
    assert world.run(ensembles(client, 40)) == {"b1", "b2", "b3"}
