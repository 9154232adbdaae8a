"""Who waits near a limit: one client that fills it leaves a part of it to the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock

from bookied.server.limits.backpressure import (
    LARGE_READ_BYTES,
    LOOKS,
    READ_BYTES,
    READS_BYTES_MAX,
    RECHECK_S,
    SHARED_READ_BYTES,
    Backpressure,
    ConnectionLoad,
    PressureLevel,
    ServerLimits,
)
from bookied.server.limits.journal_queue_shares import ADDS_LATELY_S, FIRST_READ_BYTES
from bookied.server.rules.add_requests import Writes
from tests.bookied.worlds.served_bookie import KEY, Client, Serving, Transport, packet
from wire.codes import ProtocolVersion, ReturnCode
from wire.frames import v2, v3
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest, ForceLedgerRequest, ReadRequest


class World:
    """Limits of 1,000 bytes in flight, 1,000 bytes not written and 100 adds.

    With ``shared_adds_bytes_max`` another on the adds of several clients.
    """

    def __init__(self, shared_adds_bytes_max: int = 10_000, shared_add_bytes: int = 0) -> None:
        self.clock = Clock()
        self.unwritten_bytes = 0
        self.said: list[str] = []
        limits = ServerLimits(
            in_flight_bytes_max=1000,
            unwritten_bytes_max=1000,
            adds_max=100,
            shared_adds_bytes_max=shared_adds_bytes_max,
            shared_add_bytes=shared_add_bytes,
        )
        self.pressure = Backpressure(
            limits,
            self.clock,
            lambda: self.unwritten_bytes,
            limited=lambda: self.said.append("limited"),
            freed=lambda: self.said.append("freed"),
        )

    def load(self) -> ConnectionLoad:
        load = ConnectionLoad(lambda: None)
        self.pressure.begin(load)
        return load

    def loads(self, number: int) -> list[ConnectionLoad]:
        return [self.load() for _ in range(number)]


def held(*loads: ConnectionLoad) -> list[bool]:
    return [load.is_held for load in loads]


def test_what_is_not_written_is_noticed_within_a_small_part_of_its_limit() -> None:
    limit = 64 << 20
    looks = []
    pressure = Backpressure(
        ServerLimits(unwritten_bytes_max=limit),
        Clock(),
        lambda: looks.append(1) or limit,
        limited=lambda: None,
        freed=lambda: None,
    )
    load, sent_bytes = ConnectionLoad(lambda: None), 0
    pressure.begin(load)
    while pressure.level is PressureLevel.NONE:
        assert not looks, "looked, and went on"
        pressure.received(load, 5000, 5)
        sent_bytes += 5000
    assert 5000 < sent_bytes <= limit // LOOKS


def test_who_fills_the_bytes_in_flight_waits_and_others_do_not() -> None:
    world = World()
    greedy, modest = world.loads(2)
    world.pressure.received(modest, 10)
    world.pressure.received(greedy, 700)
    assert held(greedy, modest) == [False, False]
    world.pressure.received(greedy, 100)
    assert held(greedy, modest, world.load()) == [True, False, False]
    for _ in range(20):
        world.pressure.received(modest, 10)
        world.pressure.answered(modest, 10)
    assert held(greedy, modest) == [True, False]
    world.pressure.answered(greedy, 400)
    assert held(greedy, modest) == [False, False]
    assert world.said == ["limited", "freed"]


def test_whose_adds_wait_for_space_on_a_disk_is_read_nevertheless() -> None:
    """They may ask for entries on the same connection, and no more adds are taken."""
    world = World(shared_adds_bytes_max=100)
    first, second = world.loads(2)
    world.pressure.received(first, 400, adds=60)
    world.pressure.received(second, 400, adds=60)
    assert held(first, second) == [True, True]
    world.pressure.adds_wait(wait=True)
    assert held(first, second) == [False, False]
    assert world.pressure.level is PressureLevel.NONE
    world.pressure.received(first, 900)
    assert held(first, second) == [True, False]
    world.pressure.answered(first, 900)
    assert held(first, second) == [False, False]
    world.pressure.adds_wait(wait=False)
    assert held(first, second) == [True, True]
    world.pressure.answered(first, 400, adds=60)
    world.pressure.answered(second, 400, adds=60)
    assert held(first, second) == [False, False]
    assert world.said == ["limited", "freed"] * 3


def test_who_fills_the_adds_in_flight_waits_and_others_do_not() -> None:
    world = World()
    greedy, modest = world.loads(2)
    world.pressure.received(greedy, 0, 76)
    world.pressure.received(modest, 1, 1)
    assert held(greedy, modest) == [True, False]
    assert world.pressure.held == 1


def test_who_fills_what_is_not_written_waits_and_others_do_not() -> None:
    """An add is answered long before the entry log has it: the bytes in flight say nothing."""
    world = World()
    greedy, modest = world.loads(2)
    world.unwritten_bytes = 800
    for _ in range(3):
        world.pressure.received(greedy, 100)
        world.pressure.answered(greedy, 100)
    world.pressure.received(modest, 10)
    world.pressure.answered(modest, 10)
    assert held(greedy, modest) == [True, False]
    world.unwritten_bytes = 400
    world.clock.advance(RECHECK_S)
    assert held(greedy, modest) == [False, False]
    assert world.clock.getDelayedCalls() == []


def test_small_requests_that_fill_the_memory_count_for_what_they_take() -> None:
    """An entry of a few bytes in a new ledger takes a page of its index."""
    world = World()
    greedy, modest = world.loads(2)
    world.unwritten_bytes = 760
    world.pressure.received(greedy, 1)
    for load, grows in ((greedy, 100), (modest, 20)):
        before = world.pressure.begin_read(load)
        world.pressure.received(load, 10)
        world.unwritten_bytes += grows
        world.pressure.end_read(load, before)
    assert held(greedy, modest) == [False, False]
    before = world.pressure.begin_read(greedy)
    world.pressure.received(greedy, 10)
    world.unwritten_bytes += 50
    world.pressure.end_read(greedy, before)
    assert held(greedy, modest) == [True, False]


def test_what_is_left_in_memory_counts_only_while_clients_share() -> None:
    world = World()
    alone = world.load()
    before = world.pressure.begin_read(alone)
    world.pressure.received(alone, 10)
    world.unwritten_bytes = 700
    world.pressure.end_read(alone, before)
    assert held(alone) == [False]
    world.pressure.end(alone)
    world.unwritten_bytes = 900
    world.pressure.received(world.load(), 10)
    assert world.pressure.level is PressureLevel.SHARED
    before = world.pressure.begin_read(alone)
    world.unwritten_bytes = 1000
    world.pressure.end_read(alone, before)
    assert held(alone) == [False], "its connection is gone"


def test_a_share_grows_again_with_half_of_what_is_written() -> None:
    world = World()
    greedy, modest = world.loads(2)
    world.unwritten_bytes = 760
    for size_bytes in (1, 130):
        for load in (greedy, modest):
            world.pressure.received(load, size_bytes)
    assert held(greedy, modest) == [True, True]
    world.unwritten_bytes = 900
    world.clock.advance(RECHECK_S)
    assert held(greedy, modest) == [True, True], "nothing was written"
    world.unwritten_bytes = 620
    world.clock.advance(RECHECK_S)
    assert held(greedy, modest) == [False, False], "70 of the 280 that were written for each"
    world.pressure.received(greedy, 10)
    assert held(greedy, modest) == [True, False]


def test_those_that_come_while_clients_share_have_a_share_too() -> None:
    world = World()
    first = world.load()
    world.unwritten_bytes = 760
    world.pressure.received(first, 1)
    world.pressure.received(first, 100)
    assert held(first) == [False]
    late = world.load()
    world.pressure.received(late, 10)
    world.clock.advance(RECHECK_S)
    world.pressure.received(first, 0)
    assert held(first, late) == [True, False], "its share was 125, and is 62"


def test_reads_are_short_while_clients_share() -> None:
    told: list[int] = []
    world = World()
    load = ConnectionLoad(lambda: told.append(world.pressure.read_bytes_max(load)))
    world.pressure.begin(load)
    assert world.pressure.read_bytes_max(load) == READ_BYTES
    world.unwritten_bytes = 760
    world.pressure.received(load, 1)
    assert told == [SHARED_READ_BYTES]
    world.unwritten_bytes = 490
    world.clock.advance(RECHECK_S)
    assert told == [SHARED_READ_BYTES, READ_BYTES]


def test_connections_of_one_address_share_with_another_address() -> None:
    world = World(shared_adds_bytes_max=400)
    modest, *crowd = world.loads(11)
    for load in crowd:
        load.address = "192.0.2.7"
    world.pressure.received(modest, 150, 1)
    for load in crowd:
        world.pressure.received(load, 26, 1)
    assert held(modest, crowd[-1]) == [False, True]  # It has 150 of 200, and the other 26 of 20.


def test_one_read_of_each_connection_of_many_addresses_brings_few_adds() -> None:
    clock, limits = Clock(), ServerLimits(shared_add_bytes=0)
    pressure = Backpressure(limits, clock, lambda: 0, limited=lambda: None, freed=lambda: None)
    crowd = [ConnectionLoad(lambda: None, f"192.0.2.{number}") for number in range(200)]
    for load in crowd:
        pressure.begin(load)
        pressure.received(load, 100, adds=1)
    assert sum(map(pressure.read_bytes_max, crowd)) <= 2 * limits.shared_adds_bytes_max
    newcomer = ConnectionLoad(lambda: None, "192.0.2.250")
    pressure.begin(newcomer)
    assert pressure.read_bytes_max(newcomer) == FIRST_READ_BYTES


def test_one_read_of_each_connection_of_an_address_brings_few_adds() -> None:
    clock, limits = Clock(), ServerLimits()
    pressure = Backpressure(limits, clock, lambda: 0, limited=lambda: None, freed=lambda: None)
    crowd = [ConnectionLoad(lambda: None, "192.0.2.7") for _ in range(100)]
    modest = ConnectionLoad(lambda: None, "192.0.2.1")
    for load in crowd:
        pressure.begin(load)
        pressure.received(load, 512, 1)
    assert pressure.read_bytes_max(crowd[0]) == READ_BYTES
    pressure.begin(modest)
    pressure.received(modest, 512, 1)
    assert len(crowd) * pressure.read_bytes_max(crowd[0]) <= limits.shared_adds_bytes_max
    assert pressure.read_bytes_max(modest) == READ_BYTES
    for load in (modest, *crowd):
        pressure.answered(load, 512, 1)
    clock.advance(2 * ADDS_LATELY_S)
    pressure.received(crowd[0], 512, 1)
    assert pressure.read_bytes_max(crowd[0]) == READ_BYTES


def test_reads_get_shorter_with_the_number_of_connections() -> None:
    world = World()
    some = READS_BYTES_MAX // READ_BYTES
    told: list[int] = []
    loads = [ConnectionLoad(lambda: None) for _ in range(4 * some)]
    first = ConnectionLoad(lambda: told.append(world.pressure.read_bytes_max(first)))
    world.pressure.begin(first)
    for load in loads[1:]:
        world.pressure.begin(load)
        count = len(world.pressure._loads)
        assert count * world.pressure.read_bytes_max(load) <= READS_BYTES_MAX
    assert told == [READ_BYTES // 2, READ_BYTES // 4]
    for load in loads[1:]:
        world.pressure.end(load)
    assert world.pressure.read_bytes_max(first) == READ_BYTES


def test_once_the_limit_is_not_reached_those_within_their_share_do_not_wait_for_more() -> None:
    world = World()
    greedy, modest = world.loads(2)
    world.unwritten_bytes = 760
    world.pressure.received(greedy, 1)
    world.pressure.received(greedy, 200)
    world.unwritten_bytes = 1001
    world.pressure.received(modest, 1)
    assert held(greedy, modest) == [True, True]
    world.unwritten_bytes = 899
    world.clock.advance(RECHECK_S)
    assert held(greedy, modest) == [True, False]


def test_each_of_those_that_fill_a_limit_has_an_equal_share() -> None:
    world = World()
    greedy = world.loads(3)
    for load in greedy:
        world.pressure.received(load, 200)
    assert held(*greedy) == [False, False, False]
    world.pressure.received(greedy[0], 200)
    assert held(*greedy) == [True, False, False]
    world.pressure.received(greedy[1], 60)
    assert held(*greedy) == [True, True, False]


def test_at_the_limit_all_wait_and_those_within_their_share_are_read_first() -> None:
    world = World()
    greedy, modest = world.loads(2)
    world.pressure.received(modest, 10)
    world.pressure.received(greedy, 1000)
    assert held(greedy, modest, world.load()) == [True, True, True]
    assert world.pressure.level is PressureLevel.FULL
    world.pressure.answered(greedy, 300)
    assert held(greedy, modest) == [True, False]


def test_what_a_client_that_left_has_in_flight_still_counts() -> None:
    world = World()
    gone, other = world.loads(2)
    world.pressure.received(gone, 1100)
    world.pressure.end(gone)
    assert held(other) == [True]
    world.pressure.answered(gone, 1100)
    assert held(other) == [False]
    assert world.pressure.in_flight_bytes == 0


def test_of_several_that_add_those_wait_that_have_more_than_their_share_of_a_queue() -> None:
    world = World(shared_adds_bytes_max=100)
    greedy, modest = world.loads(2)
    world.pressure.received(modest, 10, 1)
    world.pressure.received(greedy, 80, 8)
    assert held(greedy, modest) == [False, False]
    world.pressure.received(greedy, 20, 2)
    assert held(greedy, modest) == [True, False]
    world.pressure.received(modest, 10, 1)
    assert held(greedy, modest) == [True, False]
    world.pressure.answered(greedy, 80, 8)
    assert held(greedy, modest) == [False, False]
    assert world.pressure.level is PressureLevel.NONE
    assert not world.said


def test_a_small_add_counts_for_more_than_its_bytes() -> None:
    world = World(shared_adds_bytes_max=1000, shared_add_bytes=40)
    greedy, modest = world.loads(2)
    world.pressure.received(modest, 10, 1)
    world.pressure.received(greedy, 150, 20)
    assert held(greedy, modest) == [False, False]  # 160 bytes, and 21 adds of 40.
    world.pressure.received(greedy, 10, 1)
    assert held(greedy, modest) == [True, False]
    world.pressure.answered(greedy, 10, 1)
    assert held(greedy, modest) == [False, False]


def test_who_adds_alone_does_not_wait_whoever_else_reads_or_is_idle() -> None:
    world = World(shared_adds_bytes_max=100)
    greedy, reader, _ = world.loads(3)
    world.pressure.received(reader, 10)
    world.pressure.received(greedy, 700, 70)
    assert not greedy.is_held


def test_who_adds_now_and_then_has_a_share_for_a_while() -> None:
    world = World(shared_adds_bytes_max=100)
    greedy, modest = world.loads(2)
    world.pressure.received(modest, 10, 1)
    world.pressure.answered(modest, 10, 1)
    world.clock.advance(ADDS_LATELY_S)
    world.pressure.received(greedy, 110, 1)
    assert greedy.is_held
    world.pressure.answered(greedy, 110, 1)
    world.clock.advance(ADDS_LATELY_S)
    world.pressure.received(greedy, 110, 1)
    assert not greedy.is_held


@pytest.mark.parametrize("quiet_s", [0, ADDS_LATELY_S, 10 * ADDS_LATELY_S])
def test_those_that_add_are_each_counted_once(quiet_s: float) -> None:
    world = World(shared_adds_bytes_max=100)
    three = world.loads(3)
    for _ in range(3):
        for load in three:
            world.pressure.received(load, 33, 1)
        assert not any(held(*three))
        world.pressure.received(three[0], 10, 1)
        assert held(*three) == [True, False, False]
        world.pressure.answered(three[0], 10, 1)
        for load in three:
            world.pressure.answered(load, 33, 1)
        world.clock.advance(quiet_s)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 400), st.integers(0, 30)), max_size=60
    ),
    shared_adds_bytes_max=st.integers(0, 1000),
)
def test_nobody_waits_for_ever_and_nobody_within_its_share_waits_before_the_limit(
    steps: list[tuple[int, int, int]], shared_adds_bytes_max: int
) -> None:
    world = World(shared_adds_bytes_max)
    loads = world.loads(4)
    asked: list[tuple[ConnectionLoad, int, int]] = []
    for who, size_bytes, adds in steps:
        if who == 0 and asked:
            world.pressure.answered(*asked.pop(0))
        elif not loads[who].is_held:
            asked.append((loads[who], size_bytes, adds))
            world.pressure.received(*asked[-1])
        if world.pressure.level is PressureLevel.NONE:
            share = shared_adds_bytes_max / 4
            assert not [one for one in loads if one.is_held and one.adds_bytes <= share]
        if world.pressure.level is PressureLevel.SHARED:
            assert not [one for one in loads if one.is_held and not one.size_bytes | one.adds]
    for one in asked:
        world.pressure.answered(*one)
    assert world.pressure.level is PressureLevel.NONE
    assert not any(held(*loads))


# Served -------------------------------------------------------------------------------------------


def adds(ledger_id: int, number: int, size_bytes: int = 0) -> bytes:
    return b"".join(
        v2.encode_request(
            AddRequest(
                LedgerId(ledger_id),
                EntryId(entry_id),
                KEY,
                packet(ledger_id, entry_id, payload=bytes(size_bytes)),
            )
        )
        for entry_id in range(number)
    )


@pytest.mark.parametrize(
    "limits",
    [ServerLimits(adds_max=20), ServerLimits(in_flight_bytes_max=22_000)],
    ids=["adds", "bytes"],
)
def test_a_client_that_fills_a_limit_does_not_keep_another_waiting(
    tmp_path: Path, limits: ServerLimits
) -> None:
    serving = Serving(tmp_path, limits=limits, syncs=False)
    greedy, modest = serving.connect(), serving.connect()
    greedy.send(adds(5, 18, 1000))

    def is_read(client: Client) -> bool:
        return bool(client.transport.producerState == "producing")

    assert (is_read(greedy), is_read(modest)) == (False, True)
    modest.send(adds(6, 1))
    assert is_read(modest)
    assert serving.server.held_back == 1
    serving.sync()
    assert [answer.rc for answer in modest.answers()] == [ReturnCode.EOK]
    assert (is_read(greedy), is_read(modest)) == (True, True)


def test_a_connection_is_read_in_short_pieces_while_clients_share(tmp_path: Path) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(adds_max=20), syncs=False)
    greedy, modest = serving.connect(), serving.connect()
    assert [one.transport.bufferSize for one in (greedy, modest)] == [READ_BYTES] * 2
    greedy.send(adds(5, 18))
    assert [one.transport.bufferSize for one in (greedy, modest)] == [SHARED_READ_BYTES] * 2
    serving.sync()
    assert [one.transport.bufferSize for one in (greedy, modest)] == [READ_BYTES] * 2


def test_the_only_client_that_adds_is_read_in_long_pieces_while_its_entries_are_large(
    tmp_path: Path,
) -> None:
    serving = Serving(tmp_path, syncs=False)
    client, other = serving.connect(), serving.connect()
    client.send(adds(5, 3, 10_000))
    assert [one.transport.bufferSize for one in (client, other)] == [LARGE_READ_BYTES, READ_BYTES]
    other.send(adds(6, 1))
    client.send(adds(5, 3, 10_000))
    assert client.transport.bufferSize == READ_BYTES
    serving.sync()
    client.send(adds(5, 3, 10_000))
    assert client.transport.bufferSize == LARGE_READ_BYTES
    client.send(adds(5, 30))
    assert client.transport.bufferSize == READ_BYTES


def test_one_client_at_a_time_is_read_in_long_pieces(tmp_path: Path) -> None:
    serving = Serving(tmp_path, syncs=False)
    clients = [serving.connect() for _ in range(3)]
    sizes = []
    for client in clients:  # Each of them is the only one that has adds without an answer.
        client.send(adds(5, 3, 10_000))
        serving.sync()
        sizes.append([one.transport.bufferSize for one in clients])
    large, usual = LARGE_READ_BYTES, READ_BYTES
    assert sizes == [[large, usual, usual], [usual, large, usual], [usual, usual, large]]
    clients[2].disconnect()
    clients[0].send(adds(5, 3, 10_000))
    assert [one.transport.bufferSize for one in clients[:2]] == [large, usual]


def test_entries_are_read_on_connections_whose_own_adds_wait_for_space(tmp_path: Path) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(shared_adds_bytes_max=5000), syncs=False)
    clients = [serving.connect() for _ in range(2)]
    for client in clients:
        client.send(adds(5, 1))
        serving.sync()
        client.answers()
    for client in clients:
        client.send(adds(5, 10, 1000))
    assert serving.server.held_back == 2
    serving.bookie.adds.allowed = Writes.NONE
    serving.server.backpressure.adds_wait(wait=True)
    for client in clients:
        client.send(v2.encode_request(ReadRequest(LedgerId(5), EntryId(0))))
        (answer,) = client.answers()
        assert answer.entry == packet(5, 0, payload=bytes(1000))
        client.send(adds(5, 1))
        assert [answer.rc for answer in client.answers()] == [ReturnCode.EREADONLY]
    serving.bookie.adds.allowed = Writes.ALL
    serving.server.backpressure.adds_wait(wait=False)
    serving.sync()
    for client in clients:
        assert [answer.rc for answer in client.answers()] == [ReturnCode.EOK] * 10
    assert serving.server.held_back == 0


def test_requests_that_wait_count_for_the_memory_they_take(tmp_path: Path) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(in_flight_bytes_max=200_000), syncs=False)
    client = serving.connect(ProtocolVersion.V3)
    force = v3.encode_request(ForceLedgerRequest(LedgerId(5)), 1)
    for _ in range(1000):
        if client.transport.producerState != "producing":
            break
        client.send(force)
    assert serving.server.held_back == 1
    assert serving.server.backpressure.in_flight_bytes // 1024 <= 200


def test_before_an_add_of_one_client_waits_no_more_than_a_queue_shared_with_all_others(
    tmp_path: Path,
) -> None:
    """However much the others send, all that the journal has to sync before it is bounded."""
    shared, sent = 20_000, 10_000
    serving = Serving(tmp_path, limits=ServerLimits(shared_adds_bytes_max=shared), syncs=False)
    modest, *greedy = (serving.connect() for _ in range(5))
    for turn in range(5):
        modest.send(adds(1, 1))
        for _ in range(10):
            for number, client in enumerate(greedy):
                if client.transport.producerState == "producing":
                    client.send(adds(2 + number, 1, sent))
        assert modest.transport.producerState == "producing"
        assert serving.journals[0].queued_bytes < shared + len(greedy) * (sent + 200), turn
        serving.sync()
        assert [answer.rc for answer in modest.answers()] == [ReturnCode.EOK]
        assert {client.transport.producerState for client in greedy} == {"producing"}


def test_large_adds_wait_for_the_queue_one_address_after_the_other(tmp_path: Path) -> None:
    """A small add waits for one large add at most, whatever number of connections sends some."""
    serving = Serving(tmp_path, limits=ServerLimits(shared_adds_bytes_max=100_000), syncs=False)
    hosts = [*["192.0.2.1"] * 4, "192.0.2.2", "192.0.2.9"]
    clients = [serving.connect(transport=from_host(host)) for host in hosts]
    for number, client in enumerate(clients):
        client.send(adds(number, 1))
    serving.sync()
    for client in clients:
        assert len(client.answers()) == 1
    *greedy, modest = clients
    for number, client in enumerate(greedy):
        in_pieces(client, adds(number, 1, 300_000))
    modest.send(adds(5, 1))
    greedy.pop(2).disconnect()
    answered = []
    while any(client.transport.producerState != "producing" for client in greedy):
        assert serving.journals[0].queued_bytes < 310_000
        serving.sync()
        serving.clock.advance(0)
        answered += [number for number, client in enumerate(clients) if client.answers()]
    assert answered == [0, 5, 1, 4, 3]


def test_large_adds_of_one_address_do_not_wait_for_each_other(tmp_path: Path) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(shared_adds_bytes_max=100_000), syncs=False)
    clients = [serving.connect() for _ in range(3)]
    for number, client in enumerate(clients):
        in_pieces(client, adds(number, 1, 300_000))
    serving.sync()
    assert [len(client.answers()) for client in clients] == [1, 1, 1]


def test_large_adds_are_refused_and_do_not_wait_while_a_disk_is_full(tmp_path: Path) -> None:
    serving = Serving(tmp_path, limits=ServerLimits(shared_adds_bytes_max=100_000), syncs=False)
    clients = [serving.connect(transport=from_host(f"192.0.2.{number}")) for number in (1, 2)]
    for number, client in enumerate(clients):
        client.send(adds(number, 1))
        in_pieces(client, adds(number, 1, 300_000))
    serving.bookie.adds.allowed = Writes.NONE
    serving.server.backpressure.adds_wait(wait=True)
    serving.clock.advance(0)
    assert [answer.rc for answer in clients[1].answers()] == [ReturnCode.EREADONLY]


def from_host(host: str) -> Transport:
    return Transport(peerAddress=IPv4Address("TCP", host, 50_000))


def in_pieces(client: Client, data: bytes) -> None:
    for at in range(0, len(data), READ_BYTES // 2):
        client.send(data[at : at + READ_BYTES // 2])
