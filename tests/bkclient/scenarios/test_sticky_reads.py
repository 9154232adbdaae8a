"""``stickyReadSEnabled``: one bookie gives all entries of a ledger, until it fails."""

from __future__ import annotations

import pytest

from bkclient.client import Client
from tests.bkclient.worlds import Fate, World, when
from wire.codes import ProtocolVersion
from wire.ids import LedgerId
from wire.messages import BatchReadRequest, ReadRequest, Request

PROTOCOLS = pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)
PAYLOADS = [b"%d" % number for number in range(60)]


def is_read(request: Request) -> bool:
    return isinstance(request, ReadRequest)


def written(world: World, client: Client, **sizes: int) -> LedgerId:
    async def scenario() -> LedgerId:
        writer = await client.create_ledger(**sizes)
        await writer.add_many(PAYLOADS)
        await writer.close()
        return writer.ledger_id

    return world.run(scenario())


def read_each(world: World, client: Client, ledger_id: LedgerId, count: int = 60) -> set[str]:
    """Read entries one after the other; return who was asked."""
    for bookie in world.bookies.values():
        bookie.log.clear()

    async def scenario() -> None:
        reader = await client.open_ledger(ledger_id)
        for number in range(count):
            assert (await reader.read_entry(number)).payload == PAYLOADS[number]

    world.run(scenario())
    return {name for name, bookie in world.bookies.items() if any(map(is_read, bookie.log))}


@PROTOCOLS
def test_all_entries_come_from_one_bookie(protocol: ProtocolVersion) -> None:
    world = World(3)
    client = world.client(protocol=protocol, sticky_reads=True)
    ledger_id = written(world, client, ensemble_size=3, write_quorum=3, ack_quorum=2)
    assert len(read_each(world, client, ledger_id)) == 1
    plain = world.client(protocol=protocol)
    assert len(read_each(world, plain, ledger_id)) == 3


@pytest.mark.parametrize("batch_reads", [True, False])
def test_a_whole_range_comes_from_one_bookie(*, batch_reads: bool) -> None:
    world = World(3)
    client = world.client(sticky_reads=True, batch_reads=batch_reads)
    ledger_id = written(world, client, ensemble_size=3, write_quorum=3, ack_quorum=2)
    for bookie in world.bookies.values():
        bookie.log.clear()

    async def scenario() -> list[bytes]:
        reader = await client.open_ledger(ledger_id)
        return [entry.payload async for entry in reader.read()]

    assert world.run(scenario()) == PAYLOADS
    kinds = (ReadRequest, BatchReadRequest)
    asked = [b for b in world.bookies.values() if any(isinstance(r, kinds) for r in b.log)]
    assert len(asked) == 1


def test_where_a_bookie_has_not_every_entry_each_is_asked_for_its_own() -> None:
    world = World(3)
    client = world.client(sticky_reads=True)
    ledger_id = written(world, client, ensemble_size=3, write_quorum=2, ack_quorum=2)
    assert len(read_each(world, client, ledger_id)) == 3


def test_a_bookie_that_fails_is_left_for_the_next_one() -> None:
    world = World(3)
    client = world.client(sticky_reads=True, track_failures=False)
    ledger_id = written(world, client, ensemble_size=3, write_quorum=3, ack_quorum=2)

    async def scenario() -> dict[str, int]:
        reader = await client.open_ledger(ledger_id)
        await reader.read_entry(0)
        (asked,) = [b for b in world.bookies.values() if any(map(is_read, b.log))]
        asked.policy = when(is_read, Fate.LOSE)
        for number in range(1, 20):
            assert (await reader.read_entry(number)).payload == PAYLOADS[number]
        return {name: sum(map(is_read, b.log)) for name, b in world.bookies.items()}

    for bookie in world.bookies.values():
        bookie.log.clear()
    asked = sorted(world.run(scenario()).values())
    # Entry 0, then some until the first of them times out: speculation gets those from the next.
    assert asked[0] == 0
    assert 2 <= asked[1] <= 5
    assert asked[2] == 19
