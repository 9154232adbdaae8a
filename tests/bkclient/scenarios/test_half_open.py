"""Connections that are gone without a word: made anew, so that a bookie that is there is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bkclient.client import Client
from bkclient.errors import ClientError, NotEnoughBookiesError, RequestTimeoutError
from bkclient.ledger.reader import LedgerReader
from tests.bkclient.worlds import Fate, World, collect
from wire.codes import ProtocolVersion
from wire.ids import LedgerId

PROTOCOLS = pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)
ENTRIES = [b"entry %d" % number for number in range(10)]
SOLE = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
Read = Callable[[LedgerReader], Any]


async def read_one(reader: LedgerReader) -> list[bytes]:
    return [(await reader.read_entry(0)).payload]


async def read_range(reader: LedgerReader) -> list[bytes]:
    return await collect(reader.read())


def made(world: World, client: Client, **sizes: int) -> LedgerId:
    """Return a ledger with entries."""

    async def write() -> LedgerId:
        writer = await client.create_ledger(**{**SOLE, **sizes})
        await writer.add_many(ENTRIES)
        await writer.close()
        return writer.ledger_id

    return world.run(write())


def opened(world: World, client: Client, ledger_id: LedgerId) -> LedgerReader:
    return world.run(client.open_ledger(ledger_id))


def go_silent(world: World, name: str, *, is_there: bool = True) -> None:
    """Let a bookie's connections become half-open, or its host go, when nothing is under way."""
    world.settle(1)
    world[name].go_silent(is_there=is_there)


def in_vain(world: World, work: Any) -> float:
    """Check that it times out; return when."""
    with pytest.raises(RequestTimeoutError):
        world.run(work)
    return world.clock.seconds()


@PROTOCOLS
@pytest.mark.parametrize("read", [read_one, read_range], ids=lambda read: read.__name__)
def test_a_reader_that_tries_on_is_served_after_two_time_outs(
    read: Read, protocol: ProtocolVersion
) -> None:
    world = World(1)
    client = world.client(protocol=protocol)
    reader = opened(world, client, made(world, client))
    go_silent(world, "b1")
    began_s, found, tries = world.clock.seconds(), list[bytes](), 0
    while not found:
        tries += 1
        try:
            found = world.run(read(reader))
        except RequestTimeoutError:
            assert tries < 3
    assert found == (ENTRIES[:1] if read is read_one else ENTRIES)
    # A range is asked for in one way after the other, and one of them waits 2 s only.
    assert world.clock.seconds() - began_s < 12.1


@PROTOCOLS
def test_a_reader_that_comes_back_later_is_served_at_once(protocol: ProtocolVersion) -> None:
    world = World(1)
    client = world.client(protocol=protocol)
    reader = opened(world, client, made(world, client))
    go_silent(world, "b1")
    in_vain(world, read_one(reader))
    world.settle(6)
    began_s = world.clock.seconds()
    assert world.run(read_range(reader)) == ENTRIES
    assert world.clock.seconds() - began_s < 0.1


@PROTOCOLS
def test_adds_of_the_next_writers_find_the_bookie_again(protocol: ProtocolVersion) -> None:
    world = World(1)
    client = world.client(protocol=protocol)
    made(world, client)
    go_silent(world, "b1")

    async def add_somewhere() -> None:
        writer = await client.create_ledger(**SOLE)
        assert await writer.add(b"new") == 0

    began_s = world.clock.seconds()
    for _ in range(2):
        with pytest.raises(NotEnoughBookiesError):
            world.run(add_somewhere())
    world.run(add_somewhere())
    assert world.clock.seconds() - began_s < 10.1


@PROTOCOLS
def test_a_writer_that_holds_on_to_its_bookies_gets_through(protocol: ProtocolVersion) -> None:
    """Changes are delayed, and this one lacks no quorum: the same connection is asked on."""
    world = World(3)
    client = world.client(protocol=protocol, delay_ensemble_change=True)
    three = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}
    writer = world.run(client.create_ledger(**three))
    world.run(_awaited(writer.add(b"0")))
    go_silent(world, "b2")
    for number in range(1, 30):
        assert world.run(_awaited(writer.add(b"%d" % number))) == number
        world.settle(0.5)
    held = world["b2"].entries(writer.ledger_id)
    assert min(set(held) - {0}) > 15, "those before are lost with the connection"
    assert 29 in held
    assert writer.metadata.fragments[0].ensemble == writer.metadata.last_fragment.ensemble


async def _awaited(deferred: Any) -> Any:
    return await deferred


@PROTOCOLS
def test_a_recovery_that_is_tried_again_gets_through(protocol: ProtocolVersion) -> None:
    world = World(1)
    client = world.client(protocol=protocol)
    writer = world.run(client.create_ledger(**SOLE))
    world.run(_awaited(writer.add(b"entry")))
    world.run(client.cluster.pool.channel(writer.metadata.last_fragment.ensemble[0], LedgerId(0)))
    go_silent(world, "b1")
    began_s, tries = world.clock.seconds(), 0
    while world.stored(writer.ledger_id).last_entry_id is None:
        tries += 1
        try:
            world.run(client.open_ledger(writer.ledger_id))
        except ClientError:
            assert tries < 4
    assert world.clock.seconds() - began_s < 10.1
    assert world.stored(writer.ledger_id).last_entry_id == 0


def test_a_bookie_that_hangs_is_asked_on_a_new_connection_now_and_then() -> None:
    """Who accepts and never answers costs a connection for every two time-outs, and no more."""
    world = World(1)
    client = world.client()
    reader = opened(world, client, made(world, client))
    seen: list[object] = []
    world["b1"].policy = lambda _request: seen.append(world["b1"].connections[-1]) or Fate.LOSE
    for _ in range(12):
        in_vain(world, read_one(reader))
    assert len(set(map(id, seen))) == 6
    assert len(world["b1"].connections) <= 1


def test_a_bookie_that_is_slow_keeps_its_connection() -> None:
    """Each answer comes after its time-out, and each shows that somebody is there."""
    world = World(1)
    client = world.client()
    reader = opened(world, client, made(world, client))
    (before,) = world["b1"].connections
    world["b1"].policy = lambda _request: Fate.HOLD_ANSWER
    for _ in range(6):
        failing = world.start(read_one(reader))
        world.settle(4)
        world["b1"].release()
        world.settle(3)
        assert failing.done
    assert world["b1"].connections == [before]


def test_a_host_that_is_gone_costs_readers_no_more_than_a_silent_bookie() -> None:
    """Connecting to it takes 10 s to fail; who waits for entries does not wait for that."""
    world = World(3)
    writer = world.client()
    ledger_id = made(world, writer, ensemble_size=3, write_quorum=3, ack_quorum=3)
    first = world.stored(ledger_id).last_fragment.ensemble[0]
    client = world.client(seed=1)
    reader = opened(world, client, ledger_id)
    go_silent(world, first, is_there=False)
    began_s = world.clock.seconds()
    assert world.run(read_range(reader)) == ENTRIES
    assert world.clock.seconds() - began_s < 2.1
