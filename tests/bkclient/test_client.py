"""A client, bookies and a metadata service in memory: the ordinary ways through."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import attrs
import pytest

from bkclient.client import Client
from bkclient.errors import (
    ClientUnauthorizedError,
    LedgerClosedError,
    LedgerExistsError,
    NoSuchEntryInLedgerError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    QuorumError,
    ReadFailedError,
)
from tests.bkclient.worlds import FakeBookie, Fate, Ruling, World, collect
from wire.codes import DigestType, LedgerState, ProtocolVersion
from wire.entry_batch import EntryBatch
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import BatchReadRequest, ReadRequest, Request, Response

PROTOCOLS = pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)


@PROTOCOLS
@pytest.mark.parametrize("digest_type", list(DigestType), ids=lambda d: d.name)
def test_what_was_added_is_read_back(protocol: ProtocolVersion, digest_type: DigestType) -> None:
    world = World(3)
    client = world.client(protocol=protocol)

    async def scenario() -> tuple[list[int], list[bytes], LedgerState]:
        writer = await client.create_ledger(
            ensemble_size=3, write_quorum=3, ack_quorum=2, digest_type=digest_type, password=b"x"
        )
        adds = [writer.add(b"entry %d" % number) for number in range(20)]
        ids = [await add for add in adds]
        metadata = await writer.close()
        reader = await client.open_ledger(writer.ledger_id, password=b"x")
        return ids, await collect(reader.read()), metadata.state

    ids, payloads, state = world.run(scenario())
    assert ids == list(range(20))
    assert payloads == [b"entry %d" % number for number in range(20)]
    assert state is LedgerState.CLOSED


@PROTOCOLS
@pytest.mark.parametrize(("size", "write", "ack"), [(3, 3, 2), (4, 2, 2), (5, 3, 2), (1, 1, 1)])
def test_every_entry_is_on_its_write_set(
    protocol: ProtocolVersion, size: int, write: int, ack: int
) -> None:
    world = World(5)
    client = world.client(protocol=protocol)

    async def scenario() -> LedgerId:
        writer = await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
        await writer.add_many(b"%d" % number for number in range(50))
        await writer.close()
        return writer.ledger_id

    ledger_id = world.run(scenario())
    world.settle(1)
    ensemble = world.run(client.read_metadata(ledger_id)).value.last_fragment.ensemble
    for entry_id in range(50):
        holders = {ensemble[(entry_id + i) % size] for i in range(write)}
        found = {b for b in world.bookies if entry_id in world[b].entries(ledger_id)}
        assert found == holders


@PROTOCOLS
def test_a_large_ledger_streams_through(protocol: ProtocolVersion) -> None:
    world = World(3)
    client = world.client(protocol=protocol, adds_in_flight_max=100)

    async def scenario() -> tuple[int, int]:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2)
        last = await writer.add_many(bytes(1000) for _ in range(5000))
        await writer.close()
        reader = await client.open_ledger(writer.ledger_id)
        total = 0
        async for entries in reader.read_chunks():
            total += sum(len(entry.payload) for entry in entries)
        return last, total

    assert world.run(scenario()) == (4999, 5_000_000)


@PROTOCOLS
@pytest.mark.parametrize("write_quorum", [3, 2])
def test_batches_hold_what_the_entries_hold(protocol: ProtocolVersion, write_quorum: int) -> None:
    world = World(3)
    client = world.client(protocol=protocol)
    payloads = [b"%d" % number * (number % 7) for number in range(300)]

    async def scenario() -> list[EntryBatch]:
        writer = await client.create_ledger(
            ensemble_size=3, write_quorum=write_quorum, ack_quorum=2
        )
        await writer.add_many(payloads)
        await writer.close()
        reader = await client.open_ledger(writer.ledger_id)
        return [batch async for batch in reader.read_batches(7, 290)]

    found = world.run(scenario())
    assert [entry_id for batch in found for entry_id in batch.entry_ids] == list(range(7, 291))
    assert b"".join(batch.payloads for batch in found) == b"".join(payloads[7:291])
    entries = [entry for batch in found for entry in batch.entries()]
    assert [entry.payload for entry in entries] == payloads[7:291]
    lengths = list(itertools.accumulate(map(len, payloads)))
    assert [entry.length for entry in entries] == lengths[7:291]


def test_an_empty_ledger_has_no_batches() -> None:
    world = World(3)
    client = world.client()

    async def scenario() -> list[EntryBatch]:
        writer = await client.create_ledger()
        await writer.close()
        reader = await client.open_ledger(writer.ledger_id)
        return [batch async for batch in reader.read_batches()]

    assert world.run(scenario()) == []


@PROTOCOLS
def test_batch_reads_are_used_and_given_up_where_a_bookie_is_old(
    protocol: ProtocolVersion,
) -> None:
    world = World(3)
    client = world.client(protocol=protocol)

    async def write() -> LedgerId:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.add_many(b"%d" % number for number in range(300))
        await writer.close()
        return writer.ledger_id

    async def read(ledger_id: LedgerId) -> list[bytes]:
        return await collect((await client.open_ledger(ledger_id)).read())

    ledger_id = world.run(write())
    before = sum(len(bookie.log) for bookie in world.bookies.values())
    payloads = [b"%d" % number for number in range(300)]
    assert world.run(read(ledger_id)) == payloads
    assert sum(len(bookie.log) for bookie in world.bookies.values()) - before < 10
    for bookie in world.bookies.values():
        bookie.knows_batch = False
    reader = world.run(client.open_ledger(ledger_id))
    assert world.run(collect(reader.read())) == payloads
    # A handle falls back for the rest of its life; the next one tries again.
    for bookie in world.bookies.values():
        bookie.knows_batch = True
        bookie.log.clear()
    assert world.run(collect(reader.read())) == payloads
    assert not any(is_batch(r) for bookie in world.bookies.values() for r in bookie.log)
    assert world.run(read(ledger_id)) == payloads
    assert any(is_batch(r) for bookie in world.bookies.values() for r in bookie.log)


@pytest.mark.parametrize(
    ("protocol", "settings", "sizes"),
    [
        (ProtocolVersion.V3, {"batch_reads": False}, (3, 3, 2)),
        (ProtocolVersion.V2, {"batch_reads": False}, (3, 3, 2)),
        (ProtocolVersion.V2, {"batch_reads": False}, (4, 3, 2)),
        (ProtocolVersion.V3, {"batch_reads": False}, (4, 3, 2)),
    ],
    ids=["V3", "V2", "V2, striped", "V3, striped"],
)
def test_entries_are_read_singly_where_batches_are_switched_off(
    protocol: ProtocolVersion, settings: dict[str, bool], sizes: tuple[int, int, int]
) -> None:
    world = World(4)
    client = world.client(protocol=protocol, **settings)

    async def scenario() -> list[bytes]:
        writer = await client.create_ledger(
            ensemble_size=sizes[0], write_quorum=sizes[1], ack_quorum=sizes[2]
        )
        await writer.add_many([b"x"] * 50)
        await writer.close()
        return await collect((await client.open_ledger(writer.ledger_id)).read())

    assert world.run(scenario()) == [b"x"] * 50
    assert not any(is_batch(r) for bookie in world.bookies.values() for r in bookie.log)


STRIPED = pytest.mark.parametrize("sizes", [(3, 2, 2), (4, 2, 2), (5, 1, 1), (4, 3, 2)])


def striped_ledger(world: World, sizes: tuple[int, int, int], entries: int = 300) -> LedgerId:
    client = world.client()

    async def write() -> LedgerId:
        writer = await client.create_ledger(
            ensemble_size=sizes[0], write_quorum=sizes[1], ack_quorum=sizes[2]
        )
        await writer.add_many(b"%d" % number for number in range(entries))
        await writer.close()
        return writer.ledger_id

    ledger_id = world.run(write())
    world.settle(1)
    for bookie in world.bookies.values():
        bookie.log.clear()
    return ledger_id


async def read_all(client: Client, ledger_id: LedgerId) -> list[bytes]:
    return await collect((await client.open_ledger(ledger_id)).read())


def counted(world: World) -> tuple[int, int]:
    """Return how many batch reads and plain reads there were."""
    asked = [request for bookie in world.bookies.values() for request in bookie.log]
    return sum(map(is_batch, asked)), sum(isinstance(one, ReadRequest) for one in asked)


@PROTOCOLS
@STRIPED
def test_stripes_of_a_ledger_are_read_in_batches(
    sizes: tuple[int, int, int], protocol: ProtocolVersion
) -> None:
    world = World(5)
    ledger_id = striped_ledger(world, sizes)
    client = world.client(protocol=protocol)
    assert world.run(read_all(client, ledger_id)) == [b"%d" % number for number in range(300)]
    batches, singly = counted(world)
    assert batches <= 10 * sizes[0]
    assert singly <= 2 * sizes[0]  # A stripe that has one entry.


@STRIPED
def test_a_bookie_that_knows_no_strides_is_asked_for_one_batch(
    sizes: tuple[int, int, int],
) -> None:
    world = World(5)
    ledger_id = striped_ledger(world, sizes)
    for bookie in world.bookies.values():
        bookie.knows_strides = False
    client = world.client(protocol=ProtocolVersion.V2)
    assert world.run(read_all(client, ledger_id)) == [b"%d" % number for number in range(300)]
    batches, singly = counted(world)
    assert batches <= 4 * sizes[0]  # Those of the chunks ahead were out when the first came.
    assert 300 - batches <= singly <= 300
    for bookie in world.bookies.values():
        bookie.log.clear()
    assert world.run(read_all(client, ledger_id))[:1] == [b"0"]
    assert counted(world) == (0, 300)


def test_a_bookie_is_asked_for_stripes_again_after_it_has_started_again() -> None:
    world = World(3)
    ledger_id = striped_ledger(world, (3, 2, 2))
    for bookie in world.bookies.values():
        bookie.knows_strides = False
    client = world.client(protocol=ProtocolVersion.V2)
    world.run(read_all(client, ledger_id))
    for bookie in world.bookies.values():
        bookie.knows_strides = True
        bookie.crash()
        bookie.up = True
        bookie.log.clear()
    world.settle(5)
    assert world.run(read_all(client, ledger_id)) == [b"%d" % number for number in range(300)]
    assert counted(world)[0] > 0


@pytest.mark.parametrize("knows_strides", [True, False])
def test_entries_that_a_stripe_lacks_come_from_other_bookies(*, knows_strides: bool) -> None:
    world = World(3)
    ledger_id = striped_ledger(world, (3, 2, 2))
    for number, bookie in enumerate(world.bookies.values()):
        bookie.knows_strides = knows_strides
        for entry_id in range(50 + number, 60, 3):  # Each lost others, so that one copy is left.
            bookie.ledgers[ledger_id].entries.pop(entry_id, None)
    client = world.client(protocol=ProtocolVersion.V2)
    assert world.run(read_all(client, ledger_id)) == [b"%d" % number for number in range(300)]


def test_an_old_bookie_does_not_end_the_connection_that_adds_go_over() -> None:
    world = World(3)
    ledger_id = striped_ledger(world, (3, 3, 2))
    client = world.client(protocol=ProtocolVersion.V3)

    async def scenario() -> tuple[list[bytes], LedgerMetadata]:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
        await writer.add(b"before")
        for bookie in world.bookies.values():
            bookie.knows_batch = False
        payloads = await read_all(client, ledger_id)
        await writer.add(b"after")
        return payloads, await writer.close()

    payloads, metadata = world.run(scenario())
    assert payloads == [b"%d" % number for number in range(300)]
    assert len(metadata.fragments) == 1


def test_a_batch_of_the_wrong_entries_is_not_taken_for_a_stripe() -> None:
    world = World(3)
    ledger_id = striped_ledger(world, (3, 2, 2))
    for bookie in world.bookies.values():
        bookie.policy = partial(strides_in_name_only, bookie)
    client = world.client(protocol=ProtocolVersion.V2)
    assert world.run(read_all(client, ledger_id)) == [b"%d" % number for number in range(300)]


def strides_in_name_only(bookie: FakeBookie, request: Request) -> Ruling:
    """Answer with consecutive entries what asks for a stripe, and say that it is one."""
    if not isinstance(request, BatchReadRequest):
        return Fate.SERVE
    answers: list[Any] = []
    bookie.serve(attrs.evolve(request, stride=1), answers.append)
    (answer,) = answers
    return cast("Response", attrs.evolve(answer, stride=request.stride))


def is_batch(request: Request) -> bool:
    return isinstance(request, BatchReadRequest)


@PROTOCOLS
def test_an_open_ledger_is_read_up_to_its_lac_without_fencing(protocol: ProtocolVersion) -> None:
    world = World(3)
    client = world.client(protocol=protocol)

    async def scenario() -> tuple[int, list[bytes], int]:
        writer = await client.create_ledger()
        for number in range(5):
            await writer.add(b"%d" % number)
        reader = await client.open_ledger(writer.ledger_id, recover=False)
        payloads = await collect(reader.read())
        with pytest.raises(ReadFailedError):
            await reader.read_entry(4)
        last = await writer.add(b"still mine")
        return reader.last_add_confirmed, payloads, last

    # The LAC is stamped by the entry that follows: it is one behind.
    assert world.run(scenario()) == (3, [b"0", b"1", b"2", b"3"], 5)


@PROTOCOLS
def test_recovery_takes_the_ledger_from_its_writer(protocol: ProtocolVersion) -> None:
    world = World(3)
    client, other = world.client(protocol=protocol), world.client(protocol=protocol, seed=1)

    async def scenario() -> list[bytes]:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        for number in range(5):
            await writer.add(b"%d" % number)
        reader = await other.open_ledger(writer.ledger_id)
        assert reader.is_closed
        assert reader.last_add_confirmed == 4
        assert reader.length == 5
        from bkclient.errors import ClientLedgerFencedError

        with pytest.raises(ClientLedgerFencedError):
            await writer.add(b"too late")
        with pytest.raises(ClientLedgerFencedError):
            await writer.close()
        return await collect(reader.read())

    assert world.run(scenario()) == [b"0", b"1", b"2", b"3", b"4"]


def test_an_add_after_close_fails_and_says_so() -> None:
    world = World(3)
    client = world.client()

    async def scenario() -> None:
        writer = await client.create_ledger()
        await writer.close()
        with pytest.raises(LedgerClosedError):
            await writer.add(b"x")

    world.run(scenario())


def test_names_of_what_can_be_wrong() -> None:
    world = World(3)
    client = world.client()

    async def scenario() -> None:
        with pytest.raises(NoSuchLedgerError):
            await client.open_ledger(LedgerId(404))
        with pytest.raises(QuorumError):
            await client.create_ledger(ensemble_size=2, write_quorum=3)
        with pytest.raises(NotEnoughBookiesError):
            await client.create_ledger(ensemble_size=4)
        writer = await client.create_ledger(ledger_id=LedgerId(77), password=b"secret")
        with pytest.raises(LedgerExistsError):
            await client.create_ledger(ledger_id=LedgerId(77))
        with pytest.raises(ClientUnauthorizedError):
            await client.open_ledger(LedgerId(77), password=b"wrong")
        await writer.close()
        reader = await client.open_ledger(LedgerId(77))
        assert await collect(reader.read()) == []
        with pytest.raises(NoSuchEntryInLedgerError):
            await reader.read_entry(0)
        await client.delete_ledger(LedgerId(77))
        await client.delete_ledger(LedgerId(77))
        with pytest.raises(NoSuchLedgerError):
            await client.read_metadata(LedgerId(77))

    world.run(scenario())


def test_a_tail_follows_the_writer_until_it_closes() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)

    async def scenario() -> None:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)

        async def tail() -> list[bytes]:
            reader = await other.open_ledger(writer.ledger_id, recover=False)
            return await collect(reader.tail())

        from twisted.internet.defer import Deferred
        from twisted.internet.task import deferLater

        tailed = Deferred.fromCoroutine(tail())
        for number in range(10):
            await writer.add(b"%d" % number)
            await deferLater(world.clock, 1.0)
        assert not tailed.called
        await writer.close()
        assert await tailed == [b"%d" % number for number in range(10)]

    world.run(scenario())


@PROTOCOLS
@pytest.mark.parametrize("window", [1, 7, 100])
def test_a_batch_begun_while_another_is_taken_comes_after_it(
    protocol: ProtocolVersion, window: int
) -> None:
    world = World(3)
    client = world.client(protocol=protocol, adds_in_flight_max=window)
    batches = [[b"%d" % number for number in range(at, at + 40)] for at in range(0, 400, 40)]

    async def scenario() -> tuple[list[int], list[bytes]]:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        adding = []

        def taken(number: int) -> Iterator[bytes]:
            yield from batches[number]
            if number + 1 < len(batches):
                adding.append(writer.add_many(taken(number + 1)))

        adding.append(writer.add_many(taken(0)))
        lasts = []
        while adding:
            lasts.append(await adding.pop(0))
        await writer.close()
        return sorted(lasts), await collect((await client.open_ledger(writer.ledger_id)).read())

    assert world.run(scenario()) == (
        [*range(39, 400, 40)],
        [entry for batch in batches for entry in batch],
    )
