"""Reading: ranges in bounded memory, following the metadata, LACs, long polls, slow bookies."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import attrs
import pytest
from twisted.internet.defer import CancelledError

from bkclient.admin import cluster_operations
from bkclient.admin.cluster_operations import read_entry_from
from bkclient.client import Client
from bkclient.errors import (
    BookieUnavailableError,
    ClientDigestMismatchError,
    ClientError,
    IncorrectParameterError,
    LedgerRecoveryError,
    NoSuchEntryInLedgerError,
    NoSuchLedgerError,
    ReadFailedError,
)
from bkclient.ledger.reads.range_read import (
    CHUNK_BYTES,
    CHUNKS_AHEAD,
    SINGLY_MAX,
    ChunkSizer,
)
from bkclient.ledger.writer import LedgerWriter
from bkclient.metadata.ledger_metadata_updates import LocalMetadata, as_in_recovery
from bkclient.metadata.stored_values import BookieState
from tests.bkclient.worlds import FakeBookie, Fate, World, collect, is_add, when
from wire.codes import ProtocolVersion
from wire.digest import Entry
from wire.ids import BookieId, EntryId, LedgerId
from wire.messages import BatchReadRequest, ReadLacRequest, ReadRequest, Request, Response

PROTOCOLS = pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)
TRIPLE = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


def write(world: World, client: Client, count: int, size: int = 10, **options: Any) -> LedgerWriter:
    writer = world.run(client.create_ledger(**{**TRIPLE, **options}))
    payloads = [b"%d" % number * size for number in range(count)]
    if payloads:
        world.run(_await(writer.add_many(payloads[:-1])))
        # By itself, so that it carries the LAC of those before it.
        world.run(writer.add(payloads[-1]))
    world.settle(1)
    return writer


async def _await(deferred: Any) -> Any:
    return await deferred


def members(world: World, writer: LedgerWriter) -> list[FakeBookie]:
    return [world.bookies[b] for b in writer.metadata.last_fragment.ensemble]


def is_read(request: Request) -> bool:
    return isinstance(request, (ReadRequest, BatchReadRequest))


# Ranges ----------------------------------------------------------------------------------------


@PROTOCOLS
@pytest.mark.parametrize("write_quorum", [2, 3])
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_cancelled_read_ends_at_once(
    protocol: ProtocolVersion, write_quorum: int, *, is_connected: bool
) -> None:
    world = World()
    client = world.client(protocol=protocol)
    writer = write(world, client, 10, write_quorum=write_quorum)
    world.run(writer.close())
    if not is_connected:
        client = world.client(protocol=protocol)
    reader = world.run(client.open_ledger(writer.ledger_id))
    for bookie in world.bookies.values():
        bookie.policy = when(is_read, Fate.LOSE)
        bookie.is_there = is_connected
    reading = world.start(collect(reader.read(0, 9)))
    world.settle(0.1)
    assert not reading.done
    reading.deferred.cancel()
    world.settle(0)
    assert isinstance(reading.result, CancelledError), reading.result


@PROTOCOLS
@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 199), (17, 18), (150, 199), (199, 199)])
def test_any_range_is_read_in_order(protocol: ProtocolVersion, first: int, last: int) -> None:
    world = World(4)
    client = world.client(protocol=protocol)
    writer = write(world, client, 200)
    world.run(writer.close())
    reader = world.run(client.open_ledger(writer.ledger_id))
    entries = world.run(collect_entries(reader.read(first, last)))
    assert [entry.entry_id for entry in entries] == list(range(first, last + 1))
    assert all(entry.payload == b"%d" % entry.entry_id * 10 for entry in entries)


async def collect_entries(entries: Any) -> list[Entry]:
    return [entry async for entry in entries]


@PROTOCOLS
def test_a_range_over_several_fragments(protocol: ProtocolVersion) -> None:
    world = World(6)
    client = world.client(protocol=protocol)
    writer = world.run(client.create_ledger(**TRIPLE))
    payloads = [b"%d" % number for number in range(90)]
    for number in range(0, 90, 30):
        world.run(_await(writer.add_many(payloads[number : number + 15])))
        world.kill(members(world, writer)[0].bookie_id)
        world.run(_await(writer.add_many(payloads[number + 15 : number + 30])))
        world.settle(1)
    world.run(writer.close())
    reader = world.run(client.open_ledger(writer.ledger_id))
    assert len(reader.metadata.fragments) == 4
    assert world.run(collect(reader.read())) == payloads


@PROTOCOLS
@pytest.mark.parametrize(("write_quorum", "requests"), [(3, 1), (2, 3)])
def test_reading_ahead_is_bounded(
    protocol: ProtocolVersion, write_quorum: int, requests: int
) -> None:
    world = World(3)
    client = world.client(protocol=protocol)
    writer = write(world, client, 300, size=20_000, write_quorum=write_quorum)
    world.run(writer.close())
    reader = world.run(client.open_ledger(writer.ledger_id))

    async def some() -> int:
        entries = reader.read()
        for _ in range(150):
            entry = await entries.__anext__()
        asked = max(
            request.entry_id
            for bookie in world.bookies.values()
            for request in bookie.log
            if isinstance(request, (ReadRequest, BatchReadRequest))
        )
        await entries.aclose()
        return int(asked - entry.entry_id)

    payload = 3 * 20_000
    assert world.run(some()) * payload <= (CHUNKS_AHEAD + 2) * CHUNK_BYTES * requests


@pytest.mark.parametrize(("write_quorum", "requests"), [(3, 1), (2, 3)])
@pytest.mark.parametrize("batches", [True, False])
def test_entries_that_grow_are_not_read_ahead_by_the_thousand(
    write_quorum: int, requests: int, *, batches: bool
) -> None:
    world = World(3)
    client = world.client(batch_reads=batches)
    writer = world.run(client.create_ledger(**TRIPLE | {"write_quorum": write_quorum}))
    payloads = [b"small"] * 2500 + [bytes(50_000)] * 1500
    world.run(_await(writer.add_many(payloads)))
    world.run(writer.close())
    reader, given = world.run(client.open_ledger(writer.ledger_id)), 0

    def served_by(bookie: FakeBookie) -> Callable[[Request], Response]:
        def answered(request: Request) -> Response:
            nonlocal given
            answers: list[Any] = []
            bookie.serve(request, answers.append)
            (answer,) = answers
            given += len(getattr(answer, "entry", None) or b"".join(answer.entries))
            return answer  # type: ignore[no-any-return]

        return answered

    for bookie in world.bookies.values():
        bookie.policy = served_by(bookie)

    async def ahead_at_most() -> int:
        most = taken = count = 0
        async for entry in reader.read():
            taken += len(entry.payload)
            count += 1
            most = max(most, given - taken)
        assert count == len(payloads)
        return most

    # A chunk below its size asks for as much as batches give, or so many single entries.
    answer = 2 * CHUNK_BYTES * requests if batches else SINGLY_MAX * 50_000
    assert world.run(ahead_at_most()) <= (CHUNKS_AHEAD + 1) * (CHUNK_BYTES + answer)


def test_chunks_follow_the_size_of_entries() -> None:
    sizer = ChunkSizer()
    for _ in range(5):
        sizer.learn([bytes(100)] * 8)
    assert sizer.entries == 1000
    sizer.learn([bytes(5_000_000)] * 8)
    assert sizer.entries == 1


def test_a_small_closed_ledger_is_read_with_one_request() -> None:
    world = World(3)
    client = world.client(protocol=ProtocolVersion.V2)
    writer = write(world, client, 100, size=500)
    world.run(writer.close())
    reader = world.run(client.open_ledger(writer.ledger_id))
    assert len(world.run(collect(reader.read()))) == 100
    reads = [one for b in world.bookies.values() for one in b.log if is_read(one)]
    assert [type(one) for one in reads] == [BatchReadRequest]


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (2, 1), (-5, -1)])
def test_what_is_no_range_is_refused(first: int, last: int) -> None:
    world = World(3)
    client = world.client()
    writer = write(world, client, 5)
    world.run(writer.close())
    reader = world.run(client.open_ledger(writer.ledger_id))
    with pytest.raises(IncorrectParameterError):
        world.run(collect(reader.read(first, last)))


@PROTOCOLS
def test_a_missing_entry_is_named_after_those_before_it(protocol: ProtocolVersion) -> None:
    world = World(3)
    client = world.client(protocol=protocol)
    writer = write(world, client, 50)
    world.run(writer.close())
    for bookie in world.bookies.values():
        del bookie.ledgers[writer.ledger_id].entries[30]
    reader = world.run(client.open_ledger(writer.ledger_id))
    seen: list[int] = []

    async def read() -> None:
        async for entry in reader.read():
            seen.append(entry.entry_id)  # noqa: PERF401 - what came before the error counts.

    with pytest.raises(NoSuchEntryInLedgerError, match=f"entry 30 of ledger {writer.ledger_id}"):
        world.run(read())
    assert seen == list(range(30))


@PROTOCOLS
def test_damage_is_read_around_and_never_returned(protocol: ProtocolVersion) -> None:
    world = World(3)
    client = world.client(protocol=protocol)
    writer = write(world, client, 40)
    world.run(writer.close())
    first, second, third = members(world, writer)
    for bookie, bad in ((first, range(40)), (second, range(0, 40, 3))):
        entries = bookie.ledgers[writer.ledger_id].entries
        for entry_id in bad:
            entries[entry_id] = entries[entry_id][:-1] + b"!"
    reader = world.run(client.open_ledger(writer.ledger_id))
    payloads = [b"%d" % number * 10 for number in range(40)]
    assert world.run(collect(reader.read())) == payloads
    entries = third.ledgers[writer.ledger_id].entries
    entries[6] = entries[7]
    with pytest.raises(ClientDigestMismatchError):
        world.run(reader.read_entry(6))


# Slow and dead bookies -------------------------------------------------------------------------


@PROTOCOLS
def test_a_silent_bookie_is_speculated_around_and_asked_last_then(
    protocol: ProtocolVersion,
) -> None:
    world = World(3)
    client = world.client(protocol=protocol)
    writer = write(world, client, 30)
    world.run(writer.close())
    silent = members(world, writer)[0]
    silent.policy = when(is_read, Fate.LOSE)
    reader = world.run(client.open_ledger(writer.ledger_id))
    began_s = world.clock.seconds()
    assert len(world.run(collect(reader.read()))) == 30
    first_s = world.clock.seconds() - began_s
    assert 2.0 <= first_s < 3.0
    began_s = world.clock.seconds()
    assert len(world.run(collect(reader.read()))) == 30
    assert world.clock.seconds() - began_s < 0.1


def test_without_speculation_the_time_out_decides() -> None:
    world = World(3)
    client = world.client(speculative_read_timeout_ms=0)
    writer = write(world, client, 1)
    world.run(writer.close())
    members(world, writer)[0].policy = when(is_read, Fate.LOSE)
    reader = world.run(client.open_ledger(writer.ledger_id))
    began_s = world.clock.seconds()
    world.run(reader.read_entry(0))
    assert world.clock.seconds() - began_s == pytest.approx(5, abs=0.1)


@PROTOCOLS
def test_one_live_replica_is_enough(protocol: ProtocolVersion) -> None:
    world = World(3)
    client = world.client(protocol=protocol)
    writer = write(world, client, 30)
    world.run(writer.close())
    for bookie in members(world, writer)[:2]:
        world.kill(bookie.bookie_id)
    reader = world.run(client.open_ledger(writer.ledger_id))
    assert len(world.run(collect(reader.read()))) == 30
    world.kill(members(world, writer)[2].bookie_id)
    with pytest.raises(BookieUnavailableError) as failed:
        world.run(reader.read_entry(3))
    assert all(
        f"bookie {bookie.bookie_id} " in str(failed.value) for bookie in members(world, writer)
    )


def test_a_reader_follows_the_metadata_to_new_bookies() -> None:
    world = World(6)
    client, other = world.client(), world.client(seed=1)
    writer = write(world, client, 10)
    world.run(writer.close())
    reader = world.run(client.open_ledger(writer.ledger_id))
    # Replication has moved all copies elsewhere, and the old bookies are gone.
    spares = [b for b in world.bookies.values() if b.bookie_id not in reader.metadata.all_bookies()]
    old = members(world, writer)
    for source, target in zip(old, spares, strict=True):
        target.ledgers[writer.ledger_id] = source.ledgers[writer.ledger_id]
    stored = world.run(other.read_metadata(writer.ledger_id))
    fragment = attrs.evolve(
        stored.value.fragments[0], ensemble=tuple(bookie.bookie_id for bookie in spares)
    )
    moved = attrs.evolve(stored.value, fragments=(fragment,))
    world.run(other.store.write_ledger(writer.ledger_id, moved, stored.version))
    for bookie in old:
        world.kill(bookie.bookie_id)
    world.settle(1)
    assert len(world.run(collect(reader.read()))) == 10
    reader.close()


# LACs ------------------------------------------------------------------------------------------


@PROTOCOLS
def test_an_open_ledger_is_refused_beyond_the_lac_unless_asked_for(
    protocol: ProtocolVersion,
) -> None:
    world = World(3)
    client = world.client(protocol=protocol)
    writer = world.run(client.create_ledger(**TRIPLE))
    for number in range(5):
        world.run(writer.add(b"%d" % number))
    reader = world.run(client.open_ledger(writer.ledger_id, recover=False))
    assert reader.last_add_confirmed == 3
    with pytest.raises(ReadFailedError):
        world.run(collect(reader.read(0, 4)))
    assert world.run(collect(reader.read(3, 4, unconfirmed=True))) == [b"3", b"4"]
    world.run(writer.add(b"5"))
    assert world.run(reader.read_last_confirmed()) == 4
    assert world.run(reader.read_last_entry()).payload == b"4"
    world.run(writer.close())
    world.settle(1)
    assert reader.is_closed
    assert reader.last_add_confirmed == 5
    assert world.run(cluster_operations.confirmed_end(client, writer.ledger_id)) == (5, 6)


@pytest.mark.parametrize("batch_reads", [True, False])
def test_entries_of_a_range_tell_the_lac_that_their_writer_knew(*, batch_reads: bool) -> None:
    world = World(3)
    client = world.client(batch_reads=batch_reads)
    writer = world.run(client.create_ledger(**TRIPLE))
    world.run(writer.add(b"0"))
    reader = world.run(client.open_ledger(writer.ledger_id, recover=False))
    for number in range(1, 8):
        world.run(writer.add(b"%d" % number))
    before = reader.last_add_confirmed
    world.run(collect(reader.read(2, 5, unconfirmed=True)))
    assert (before, reader.last_add_confirmed) == (-1, 4)


def test_the_lac_that_comes_with_entries_is_believed() -> None:
    world = World(3)
    client = world.client()
    writer = write(world, client, 5)
    reader = world.run(client.open_ledger(writer.ledger_id, recover=False))
    world.run(writer.add(b"x"))
    world.run(writer.add(b"y"))
    world.run(reader.read_entry(0))
    assert reader.last_add_confirmed == 5


def test_an_open_needs_enough_answers_to_know_the_lac() -> None:
    world = World(3)
    client = world.client()
    writer = write(world, client, 5)
    for bookie in members(world, writer)[:2]:
        world.kill(bookie.bookie_id)
    with pytest.raises(ReadFailedError):
        world.run(client.open_ledger(writer.ledger_id, recover=False))


def test_one_live_bookie_is_enough_to_try_for_news() -> None:
    world = World(3)
    client = world.client()
    writer = write(world, client, 5)
    reader = world.run(client.open_ledger(writer.ledger_id, recover=False))
    assert reader.last_add_confirmed == 3
    world.run(writer.add(b"x"))
    for bookie in members(world, writer)[:2]:
        world.kill(bookie.bookie_id)
    with pytest.raises(ClientError):
        world.run(reader.read_last_confirmed())
    assert world.run(reader.try_read_last_confirmed()) == 4
    assert world.run(reader.try_read_last_confirmed()) == 4
    world.kill(members(world, writer)[2].bookie_id)
    with pytest.raises(LedgerRecoveryError):
        world.run(reader.try_read_last_confirmed())


def test_a_ledger_in_recovery_is_read_like_an_open_one() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    writer = write(world, client, 5)
    local = LocalMetadata(world.run(other.read_metadata(writer.ledger_id)))
    world.run(other.cluster.updater.update(writer.ledger_id, local, not_marked, as_in_recovery))
    reader = world.run(other.open_ledger(writer.ledger_id, recover=False))
    assert reader.last_add_confirmed >= 0
    assert not reader.is_closed


def not_marked(metadata: Any) -> bool:
    return bool(metadata.state.name == "OPEN")


@PROTOCOLS
def test_a_long_poll_wakes_with_the_next_entry(protocol: ProtocolVersion) -> None:
    world = World(3)
    client, other = world.client(protocol=protocol), world.client(protocol=protocol, seed=1)
    writer = world.run(client.create_ledger(**TRIPLE))
    world.run(writer.add(b"0"))
    world.run(writer.add(b"1"))
    reader = world.run(other.open_ledger(writer.ledger_id, recover=False))
    assert reader.last_add_confirmed == 0
    polling = world.start(reader.poll_lac(0))
    world.settle(1)
    assert not polling.done
    world.run(writer.add(b"2"))
    world.settle(0.2)
    assert polling.result == 1
    # Nothing new: it comes back with what is known.
    began_s = world.clock.seconds()
    assert world.run(reader.poll_lac(1, wait_s=1.0)) == 1
    assert 1.0 <= world.clock.seconds() - began_s < 6.0


@PROTOCOLS
def test_a_tail_survives_bookies_that_come_and_go(protocol: ProtocolVersion) -> None:
    world = World(5)
    client, other = world.client(protocol=protocol), world.client(protocol=protocol, seed=1)
    writer = world.run(client.create_ledger(**TRIPLE))
    world.run(writer.add(b"0"))
    reader = world.run(other.open_ledger(writer.ledger_id, recover=False))
    tailing = world.start(collect(reader.tail()))
    payloads = [b"0"]
    for number in range(1, 8):
        if number in {3, 5}:
            world.kill(members(world, writer)[0].bookie_id)
        payloads.append(b"%d" % number)
        world.run(writer.add(payloads[-1]))
        world.settle(1)
    world.run(writer.close())
    assert tailing.finish(60) == payloads


@PROTOCOLS
def test_a_tail_ends_with_the_ledger_and_not_with_the_poll(protocol: ProtocolVersion) -> None:
    world = World(3)
    client, other = world.client(protocol=protocol), world.client(protocol=protocol, seed=1)
    writer = write(world, client, 3)
    reader = world.run(other.open_ledger(writer.ledger_id, recover=False))
    tailing = world.start(collect(reader.tail()))
    world.settle(0.5)
    world.run(writer.close())
    world.settle(0.2)
    assert tailing.done
    assert len(tailing.result) == 3


def is_add_or_poll(request: Request) -> bool:
    return is_add(request) or getattr(request, "previous_lac", None) is not None


def test_a_tail_ends_at_once_when_its_ledger_is_deleted() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    writer = write(world, client, 3)
    reader = world.run(other.open_ledger(writer.ledger_id, recover=False))
    tailing = world.start(collect(reader.tail()))
    world.settle(0.5)
    world.run(client.delete_ledger(writer.ledger_id))
    world.settle(0.2)
    assert isinstance(tailing.result, NoSuchLedgerError)


def test_a_tail_asks_new_bookies_while_the_old_are_silent() -> None:
    world = World(6)
    client, other = world.client(), world.client(seed=1)
    writer = write(world, client, 2)
    reader = world.run(other.open_ledger(writer.ledger_id, recover=False))
    tailing = world.start(collect(reader.tail()))
    world.settle(0.5)
    for bookie in members(world, writer):
        bookie.policy = when(is_add_or_poll, Fate.LOSE)
    world.run(writer.add(b"2"))
    world.run(writer.add(b"3"))
    world.settle(0.2)
    assert reader.last_add_confirmed == 2
    world.run(writer.close())
    assert len(tailing.finish(1)) == 4


def test_a_tail_waits_for_silent_bookies_with_entries_it_needs() -> None:
    world = World(3)
    other = world.client(seed=1)
    writer = write(world, world.client(), 3)
    for bookie in world.bookies.values():
        bookie.policy = when(is_read_of_entry, Fate.LOSE)
    reader = world.run(other.open_ledger(writer.ledger_id, recover=False))
    tailing = world.start(collect(reader.tail()))
    world.settle(20)
    assert not tailing.done
    for bookie in world.bookies.values():
        bookie.policy = lambda _request: Fate.SERVE
    world.settle(10)
    world.run(writer.close())
    assert len(tailing.finish(10)) == 3


def test_a_tail_waits_for_bookies_that_are_away() -> None:
    world = World(3)
    other = world.client(seed=1)
    writer = write(world, world.client(), 3)
    reader = world.run(other.open_ledger(writer.ledger_id, recover=False))
    for bookie in members(world, writer):
        world.kill(bookie.bookie_id, unregister=False)
    tailing = world.start(collect(reader.tail()))
    world.settle(20)
    assert not tailing.done
    for bookie in members(world, writer):
        world.restart(bookie.bookie_id)
    world.run(world.client(seed=2).open_ledger(writer.ledger_id))
    assert len(tailing.finish(10)) == 3


def test_a_tail_of_a_closed_ledger_does_not_wait_for_ever() -> None:
    world = World(3)
    writer = write(world, world.client(), 3)
    world.run(writer.close())
    reader = world.run(world.client(seed=1).open_ledger(writer.ledger_id))
    for bookie in members(world, writer):
        world.kill(bookie.bookie_id)
    with pytest.raises(BookieUnavailableError, match="entry 0"):
        world.run(collect(reader.tail()), 30)


def is_read_of_entry(request: Request) -> bool:
    return isinstance(request, ReadRequest) and request.entry_id >= 0


def test_a_tail_that_is_given_up_stops_asking() -> None:
    world = World(3)
    writer = write(world, world.client(), 2)
    other = world.client(seed=1)
    reader = world.run(other.open_ledger(writer.ledger_id, recover=False))
    tailing = world.start(collect(reader.tail()))
    world.settle(0.5)
    tailing.deferred.cancel()
    assert isinstance(tailing.result, CancelledError)
    for bookie in world.bookies.values():
        bookie.log.clear()
    world.run(writer.close())
    world.settle(10)
    assert [bookie.log for bookie in world.bookies.values()] == [[], [], []]


def test_a_tail_follows_a_recovery_to_its_end() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    writer = world.run(client.create_ledger(**TRIPLE))
    for number in range(3):
        world.run(writer.add(b"%d" % number))
    reader = world.run(other.open_ledger(writer.ledger_id, recover=False))
    tailing = world.start(collect(reader.tail()))
    world.settle(1)
    writer.abandon()
    world.run(cluster_operations.recover_ledger(other, writer.ledger_id))
    assert tailing.finish(30) == [b"0", b"1", b"2"]


# Bookies ---------------------------------------------------------------------------------------


def test_the_bookies_of_a_cluster() -> None:
    world = World(3)
    client = world.client()
    world.kill("b2")
    world.run(client.store.write_cookie(BookieId("b9"), b"cookie", -2))
    found = {one.bookie_id: one for one in world.run(cluster_operations.list_bookies(client))}
    assert found[BookieId("b1")].state is BookieState.WRITABLE
    assert found[BookieId("b1")].info is not None
    assert found[BookieId("b9")].state is BookieState.DOWN
    assert BookieId("b2") not in found
    info = world.run(cluster_operations.bookie_info(client, BookieId("b1")))
    assert (info.total_bytes, info.free_bytes) == (1000, 400)
    with pytest.raises(BookieUnavailableError):
        world.run(cluster_operations.bookie_info(client, BookieId("b2")))


def test_one_entry_from_one_bookie() -> None:
    world = World(3)
    client = world.client()
    writer = write(world, client, 3)
    bookie = members(world, writer)[1]
    read = read_entry_from(client, bookie.bookie_id, writer.ledger_id, EntryId(2))
    assert world.run(read).payload == b"2" * 10
    del bookie.ledgers[writer.ledger_id].entries[2]
    with pytest.raises(NoSuchEntryInLedgerError):
        world.run(read_entry_from(client, bookie.bookie_id, writer.ledger_id, EntryId(2)))


def test_listing_and_deleting() -> None:
    world = World(3)
    client = world.client()
    ids = [world.run(client.create_ledger(**TRIPLE)).ledger_id for _ in range(5)]

    async def listed(after: LedgerId | None = None) -> list[LedgerId]:
        return [ledger_id async for ledger_id in client.list_ledgers(after=after)]

    assert world.run(listed()) == sorted(ids)
    assert world.run(listed(ids[2])) == sorted(ids)[3:]
    world.run(client.delete_ledger(ids[0]))
    assert world.run(listed()) == sorted(ids)[1:]


def test_a_closed_client_fails_what_is_in_flight() -> None:
    world = World(3)
    client = world.client()
    writer = world.run(client.create_ledger(**TRIPLE))
    for bookie in world.bookies.values():
        bookie.policy = when(is_add, Fate.HOLD)
    adding = world.start(_await(writer.add(b"x")))
    world.settle(1)
    world.run(client.close())
    world.settle(1)
    assert isinstance(adding.result, ClientError)
    assert not any(bookie.connections for bookie in world.bookies.values())


def test_a_lac_read_of_v2_goes_over_v3() -> None:
    world = World(3)
    client = world.client(protocol=ProtocolVersion.V2)
    writer = write(world, client, 3)
    reader = world.run(client.open_ledger(writer.ledger_id, recover=False))
    assert reader.last_add_confirmed >= 0
    asked = [r for b in world.bookies.values() for r in b.log if isinstance(r, ReadLacRequest)]
    assert len(asked) == 3


class _ChangedBeforeWatched:
    """A store in which something happens to a ledger just before the watch on it is there."""

    def __init__(self, store: Any, change: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._store, self._change = store, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def watch_ledger(self, *args: Any) -> Any:
        await self._change()
        return await self._store.watch_ledger(*args)


def test_an_end_that_comes_between_reading_the_metadata_and_watching_it_is_seen() -> None:
    world = World(3)
    writer = write(world, world.client(), 3)
    client = world.client(seed=1)
    client.store = _ChangedBeforeWatched(client.store, writer.close)
    reader = world.run(client.open_ledger(writer.ledger_id, recover=False))
    world.settle(1)
    assert reader.is_closed
    assert reader.last_add_confirmed == 2
