"""The end of a client waits for the copies of entries that their ack quorum has confirmed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.defer import CancelledError
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from bkclient.admin import one_shot_adds
from bkclient.client import Client
from bkclient.errors import ClientUnauthorizedError
from bkclient.ledger.creation import NewLedger
from bkclient.ledger.writer import LedgerWriter
from tests.bkclient.worlds import FakeBookie, FakeLedger, Fate, World, is_add, when
from wire.codes import ProtocolVersion

PROTOCOLS = pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)
PAYLOADS = [b"entry %d" % number for number in range(50)]


def written(
    world: World, fate: Fate, protocol: ProtocolVersion = ProtocolVersion.V3
) -> tuple[Client, LedgerWriter, FakeBookie]:
    """Close a ledger of three copies while one bookie treats adds by ``fate``."""
    client = world.client(protocol=protocol)
    writer = world.run(client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2))
    slow = world.bookies[writer.metadata.last_fragment.ensemble[1]]
    slow.policy = when(is_add, fate)
    world.run(writer.add_many(PAYLOADS))
    world.run(writer.close())
    return client, writer, slow


@PROTOCOLS
def test_a_slow_bookie_gets_its_copies_before_the_client_ends(protocol: ProtocolVersion) -> None:
    world = World(3)
    client, writer, slow = written(world, Fate.HOLD, protocol)
    ending = world.start(client.close())
    world.settle(1)
    assert not ending.done
    assert slow.release() == len(PAYLOADS)
    ending.finish(limit_s=0.1)
    assert list(slow.entries(writer.ledger_id).values()) == PAYLOADS
    assert not slow.connections


def test_answers_before_the_end_leave_nothing_to_wait_for() -> None:
    world = World(3)
    client, _, slow = written(world, Fate.HOLD)
    slow.release()
    world.settle()
    world.run(client.close(), limit_s=0)


def test_a_bookie_that_never_answers_is_waited_for_as_long_as_an_add_may_take() -> None:
    world = World(3)
    client, _, _ = written(world, Fate.LOSE)
    world.run(client.close(), limit_s=client.config.add_timeout_s)


def test_a_bookie_that_dies_is_not_waited_for() -> None:
    world = World(3)
    client, _, slow = written(world, Fate.HOLD)
    ending = world.start(client.close())
    world.kill(slow.bookie_id)
    ending.finish(limit_s=0.1)


def test_a_host_that_is_gone_is_waited_for_as_long_as_connecting_may_take() -> None:
    world = World(3)
    for bookie in world.bookies.values():
        bookie.is_there = bookie.bookie_id != "b2"
    client, _, _ = written(world, Fate.SERVE)
    world.run(client.close(), limit_s=client.config.connect_timeout_ms / 1000)


def test_an_interruption_of_the_wait_ends_the_client_nevertheless() -> None:
    world = World(3)
    client, _, slow = written(world, Fate.HOLD)
    ending = world.start(client.close())
    world.settle(1)
    ending.deferred.cancel()
    with pytest.raises(CancelledError):
        ending.finish(limit_s=0)
    world.settle()
    assert not slow.connections


def test_a_bookie_that_was_replaced_is_not_waited_for() -> None:
    world = World(4)
    client = world.client()
    writer = world.run(client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2))
    slow = world.bookies[writer.metadata.last_fragment.ensemble[1]]
    slow.policy = when(is_add, Fate.LOSE)
    world.run(writer.add(b"first"))
    world.settle(client.config.add_timeout_s)
    world.run(writer.add(b"second"))
    assert slow.bookie_id not in writer.metadata.last_fragment.ensemble
    world.run(writer.close())
    world.settle()
    world.run(client.close(), limit_s=0)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the log gets."""
    lines: list[str] = []

    def note(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(note)
    yield lines
    globalLogPublisher.removeObserver(note)


def test_a_bookie_that_refuses_its_last_copies_is_told_of_in_one_line(said: list[str]) -> None:
    world = World(3)
    client, writer, slow = written(world, Fate.HOLD)
    slow.ledgers[writer.ledger_id] = FakeLedger(b"another key")
    assert slow.release() == len(PAYLOADS)
    world.run(client.close())
    (line,) = [line for line in said if "may lack" in line]
    which = f"may lack 50 of the last entries of ledger {writer.ledger_id}: "
    assert line.startswith(f"bookie {slow.bookie_id} {which}")


def test_entries_after_the_end_of_the_ledger_are_no_lack(said: list[str]) -> None:
    world = World(3)
    client = world.client()
    writer = world.run(client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2))
    for bookie in world.bookies.values():
        bookie.ledgers[writer.ledger_id] = FakeLedger(b"another key")
        bookie.policy = when(is_add, Fate.HOLD)
    adding = writer.add_many(PAYLOADS)
    world.settle()
    first, *others = world.bookies.values()
    first.release()
    world.settle()
    assert isinstance(world.failure(adding), ClientUnauthorizedError)
    world.run(writer.close())
    for bookie in others:
        bookie.release()
    world.run(client.close())
    assert not [line for line in said if "may lack" in line]


def test_a_wait_for_last_copies_is_told_of_once(said: list[str]) -> None:
    world = World(3)
    client, _, slow = written(world, Fate.LOSE)
    world.run(client.close())
    told = [line for line in said if "waiting" in line]
    assert told == [f"waiting for {slow.bookie_id} to store the last entries, at most 15 s in all"]


def test_a_short_wait_for_last_copies_is_not_told_of(said: list[str]) -> None:
    world = World(3)
    client, _, slow = written(world, Fate.HOLD)
    ending = world.start(client.close())
    world.settle(0.9)
    slow.release()
    ending.finish()
    world.settle(5)
    assert not [line for line in said if "waiting" in line]


def test_a_release_tells_of_its_wait_for_last_copies(said: list[str]) -> None:
    world = World(3)
    client = world.client()
    new = NewLedger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    ledger_id, _ = world.run(one_shot_adds.create_handed_over(client, new))
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    world["b1"].policy = when(is_add, Fate.LOSE)
    world.run(writer.add(b"entry"))
    world.run(one_shot_adds.release_ledger(writer))
    told = [line for line in said if "waiting" in line]
    assert told == [f"waiting for the last copies of ledger {ledger_id}, at most 5 s"]
