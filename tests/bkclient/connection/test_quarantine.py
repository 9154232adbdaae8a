"""Bookies that fail too often get no new entries for a while."""

from __future__ import annotations

import random
from typing import Any

import pytest
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.connection.bookie_health import Quarantine
from bkclient.errors import ClientError, RequestTimeoutError
from tests.bkclient.worlds import Fate, Ruling, World, is_add, when
from wire.codes import BookieInfoFlag, ReadFlag, ReturnCode
from wire.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from wire.messages import (
    BookieInfoRequest,
    ErrorResponse,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Request,
    WriteLacRequest,
)

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


L = LedgerId(0)
REQUESTS: tuple[Request, ...] = (
    ReadRequest(L, EntryId(0)),
    ReadRequest(L, NO_ENTRY, ReadFlag.FENCE, b"k" * 20),
    ReadLacRequest(L),
    WriteLacRequest(L, EntryId(0), b"k" * 20, b"lac"),
    ForceLedgerRequest(L),
    ListEntriesRequest(L),
    BookieInfoRequest(BookieInfoFlag.FREE_DISK_SPACE),
)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("fate", [Fate.LOSE, ErrorResponse(ReturnCode.EIO)], ids=["silent", "EIO"])
def test_errors_count_whatever_was_asked(fate: Ruling, request_: Request) -> None:
    """As in Java, where each kind of completion calls ``logOpResult``."""
    world = World(1)
    pool = counting(world, 1).cluster.pool
    world[ILL].policy = lambda _request: fate
    pool.send(ILL, request_).addErrback(lambda failure: failure.trap(RequestTimeoutError) and None)
    world.settle(60)
    assert pool.quarantine.members() == {ILL}


def test_what_is_let_go_of_does_not_count() -> None:
    world = World(1)
    pool = counting(world, 1).cluster.pool
    world[ILL].policy = lambda _request: Fate.LOSE
    asked = pool.send(ILL, ReadLacRequest(L))
    asked.addErrback(lambda failure: failure.trap(CancelledError) and None)
    world.settle(1)
    asked.cancel()
    world.settle(60)
    assert pool.quarantine.members() == set()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_read_that_fails_counts_once(*, damaged: bool) -> None:
    for errors_max in (1, 2):
        world = World(1)
        client = counting(world, errors_max)
        writer = world.run(client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1))
        assert world.run(writer.add(b"entry")) == 0
        reader = world.run(client.open_ledger(writer.ledger_id))
        packet = b"damage" * 20 if damaged else None
        rc = ReturnCode.EOK if damaged else ReturnCode.EIO
        answer = ReadResponse(rc, writer.ledger_id, EntryId(0), packet)
        world[ILL].policy = lambda _request, answer=answer: answer
        with pytest.raises(ClientError):
            world.run(reader.read_entry(0))
        world.settle(60)
        assert bool(client.cluster.quarantine.members()) is (errors_max == 1)


def counting(world: World, errors_max: int) -> Client:
    """Return a client that puts who fails so often within a minute into quarantine."""
    return world.client(
        health_check=True, health_check_errors_max=errors_max, health_check_interval_s=60
    )


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
