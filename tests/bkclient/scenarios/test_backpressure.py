"""Writers and connections that take no more; the limit on the rate of one handle."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock

from bkclient.concurrency import RateLimit
from bkclient.ledger.writer import LedgerWriter
from tests.bkclient.worlds import FakeBookie, Fate, Running, World, collect, is_add, when
from wire.ids import EntryId

PAYLOADS = [b"%d" % number for number in range(20)]


class Full:
    """A writer whose connection to one bookie has a full buffer."""

    def __init__(self, **settings: Any) -> None:
        self.world = World(4)
        client = self.world.client(**settings)
        self.writer: LedgerWriter = self.world.run(
            client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        )
        self.world.run(self.writer.add(PAYLOADS[0]))
        self.slow: FakeBookie = self.world.bookies[self.writer.metadata.ensemble[0]]
        (self.link,) = self.slow.connections
        self.link.fill()

    def add(self, payloads: list[bytes]) -> list[Running[EntryId]]:
        return [Running(self.world, self.writer.add(payload)) for payload in payloads]

    def has(self) -> list[bytes]:
        return list(self.slow.entries(self.writer.ledger_id).values())

    @property
    def replaced(self) -> bool:
        return self.slow.bookie_id not in self.writer.metadata.last_fragment.ensemble


def test_room_does_not_wait_for_a_bookie_that_was_replaced() -> None:
    full = Full()
    full.slow.policy = when(is_add, Fate.LOSE)
    full.add(PAYLOADS[1:4])
    adding = Running(full.world, full.writer.add_many(PAYLOADS[4:]))
    full.world.settle(1)
    assert not adding.done
    # The adds time out, another bookie takes the place, and the old connection is full for ever.
    assert adding.finish(30) == 19
    assert full.replaced


def test_room_waits_for_every_connection_that_is_full() -> None:
    full = Full()
    ensemble = full.writer.metadata.ensemble
    links = [full.world.bookies[bookie].connections[0] for bookie in ensemble]
    links[1].fill()
    room = full.world.start(full.writer.wait_for_space())
    links[0].drain()
    assert not room.done
    links[1].drain()
    assert room.done


def test_without_a_wait_adds_are_kept_for_the_connection() -> None:
    full = Full()
    full.slow.policy = when(is_add, Fate.LOSE)
    full.add(PAYLOADS[1:])
    full.world.settle(4)
    assert not full.replaced


def test_adds_wait_for_the_connection_and_go_in_order_once_it_takes_more() -> None:
    full = Full(backpressure_wait_ms=2000)
    first = full.add(PAYLOADS[1:10])
    full.world.settle(1)
    rest = full.add(PAYLOADS[10:])
    full.world.settle(0.5)
    # The others make the ack quorum; nobody waits for the one that is full.
    assert all(add.done for add in first + rest)
    assert full.has() == PAYLOADS[:1]
    full.link.drain()
    full.world.settle(10)
    assert full.has() == PAYLOADS
    assert not full.replaced


@pytest.mark.parametrize("wait_ms", [0, 2000])
def test_after_the_wait_the_bookie_counts_as_failed(wait_ms: int) -> None:
    full = Full(backpressure_wait_ms=wait_ms)
    full.add(PAYLOADS[1:])
    full.world.settle(wait_ms / 1000 - 0.5 if wait_ms else 0)
    assert full.replaced is not bool(wait_ms)
    full.world.settle(1)
    # Confirmed already: the place is filled before the next add goes out.
    full.world.run(full.writer.add(b"one more"))
    assert full.replaced
    assert full.has() == PAYLOADS[:1]
    assert full.world.run(collect(full.writer.read(0, 20))) == [*PAYLOADS, b"one more"]


def test_a_connection_that_breaks_while_adds_wait_is_made_again() -> None:
    full = Full(backpressure_wait_ms=2000)
    full.add(PAYLOADS[1:])
    full.world.settle(1)
    full.link.cut()
    full.world.settle(10)
    assert full.has() == PAYLOADS
    assert not full.replaced


def test_what_waits_at_the_end_leaves_no_timer() -> None:
    full = Full(backpressure_wait_ms=2000)
    adds = full.add(PAYLOADS[1:])
    full.world.settle(1)
    full.writer.abandon()
    full.world.settle(0)
    assert all(add.done for add in adds)
    assert full.world.clock.getDelayedCalls() == []


# The rate --------------------------------------------------------------------------------------


def test_a_handle_adds_no_faster_than_its_throttle() -> None:
    world = World(3)
    writer = world.run(world.client(requests_per_s_max=100).create_ledger())
    adding = Running(world, writer.add_many(b"%d" % number for number in range(500)))
    for second in range(1, 5):
        world.settle(1)
        assert abs(writer.last_add_confirmed - 100 * second) <= 2
    assert adding.finish(5) == 499


def test_what_is_not_used_is_saved_for_a_second() -> None:
    world = World(3)
    writer = world.run(world.client(requests_per_s_max=100).create_ledger())
    world.settle(60)
    Running(world, writer.add_many(b"%d" % number for number in range(500)))
    world.settle(0)
    assert abs(writer.last_add_confirmed - 100) <= 2


def test_a_handle_reads_no_faster_than_its_throttle() -> None:
    world = World(3)
    writer = world.run(world.client().create_ledger())
    world.run(writer.add_many(b"%d" % number for number in range(300)))
    world.run(writer.close())
    client = world.client(seed=1, requests_per_s_max=100, batch_reads=False)
    reader = world.run(client.open_ledger(writer.ledger_id))
    began_s = world.clock.seconds()
    assert len(world.run(collect(reader.read()))) == 300
    # The chunk that goes last has waited for those before it, not for itself.
    assert 0.9 <= world.clock.seconds() - began_s <= 3.0
    for _ in range(50):
        world.run(reader.read_entry(7))
    assert 3.0 <= world.clock.seconds() - began_s <= 3.6


def test_an_ended_writer_fails_what_waits_for_its_turn() -> None:
    world = World(3)
    writer = world.run(world.client(requests_per_s_max=10).create_ledger())
    adds = [Running(world, writer.add(b"%d" % number)) for number in range(50)]
    world.settle(1)
    world.run(writer.close())
    assert [add.done for add in adds] == [True] * 50
    confirmed = [add for add in adds if not isinstance(add.result, BaseException)]
    assert len(confirmed) == writer.metadata.last_entry_id + 1 <= 12  # type: ignore[operator]
    assert writer.metadata.length == sum(len(b"%d" % number) for number in range(len(confirmed)))
    assert world.clock.getDelayedCalls() == []


def test_turns_come_in_order_and_a_cancelled_one_goes() -> None:
    clock = Clock()
    rate, seen = RateLimit(clock, 10), list[int]()
    turns = [rate.turn(5).addCallback(lambda _, n=n: seen.append(n)) for n in range(4)]  # type: ignore[misc]
    assert seen == [0]
    turns[1].addErrback(lambda _failure: None)
    turns[1].cancel()
    clock.pump([0.5] * 4)
    assert seen == [0, 2, 3]
