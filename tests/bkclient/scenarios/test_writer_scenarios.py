"""Writers against failing bookies, other clients and a store that loses replies.

Names with S and a number are those of client.md 16.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.python.failure import Failure

from bkclient.client import Client
from bkclient.errors import (
    ClientLedgerFencedError,
    LedgerClosedError,
    MetadataVersionError,
    NotEnoughBookiesError,
)
from bkclient.ledger.recovery_run import mark
from bkclient.ledger.writer import LedgerWriter
from bkclient.metadata.ledger_metadata_updates import LocalMetadata
from tests.bkclient.worlds import Fate, World, collect, is_add, is_fence, when
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.codes import LedgerState, ProtocolVersion, ReturnCode
from wire.ids import LedgerId
from wire.messages import AddRequest, AddResponse, Request

PROTOCOLS = pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)

TRIPLE = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


def open_writer(world: World, client: Client, **options: Any) -> LedgerWriter:
    return world.run(client.create_ledger(**{**TRIPLE, **options}))


def members(world: World, writer: LedgerWriter) -> list[Any]:
    """Return the fake bookies of the last fragment, in order."""
    return [world.bookies[b] for b in writer.metadata.last_fragment.ensemble]


def once(name: str, fault: Fault) -> Callable[[TreeOperation], Fault]:
    """A fault of the store that hits the first operation of this name on a ledger."""
    hits: list[TreeOperation] = []

    def judge(operation: TreeOperation) -> Fault:
        if operation.name == name and "/L" in operation.path and not hits:
            hits.append(operation)
            return fault
        return Fault.NONE

    return judge


# Ensemble changes ------------------------------------------------------------------------------


def test_a_writer_that_finds_no_bookie_to_take_entries_says_so_and_goes_on_trying() -> None:
    """As in Java, unless maxNumEnsembleChanges is set: the bookies may take entries again."""
    world = World(2)
    sole = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
    writer = open_writer(world, world.client(), **sole)

    def refuse(request: Request) -> AddResponse | Fate:
        if not isinstance(request, AddRequest):
            return Fate.SERVE
        return AddResponse(ReturnCode.EIO, request.ledger_id, request.entry_id)

    for bookie in world.bookies.values():
        bookie.policy = refuse
    with capturedLogs() as events:
        adding = writer.add(b"entry")
        world.settle(1500)
    warned = [formatEvent(one) for one in events if one["log_level"] is LogLevel.warn]
    assert "16 ensemble changes and no entry confirmed" in warned[0]
    assert "EIO" in warned[0]
    assert 5 < len(warned) < 10
    assert not adding.called
    for bookie in world.bookies.values():
        bookie.policy = lambda _request: Fate.SERVE
    assert world.run(adding) == 0
    assert len(writer.metadata.fragments) == 1


@PROTOCOLS
@pytest.mark.parametrize(("size", "write", "ack"), [(3, 3, 2), (4, 2, 2), (3, 2, 2), (2, 2, 1)])
def test_a_crashed_bookie_is_replaced_and_nothing_is_lost(
    protocol: ProtocolVersion, size: int, write: int, ack: int
) -> None:
    world = World(6)
    client = world.client(protocol=protocol)
    writer = open_writer(world, client, ensemble_size=size, write_quorum=write, ack_quorum=ack)
    payloads = [b"entry %d" % number for number in range(60)]
    killed = []
    for number, payload in enumerate(payloads):
        if number in {20, 40}:
            killed.append(members(world, writer)[number // 20 - 1].bookie_id)
            world.kill(killed[-1])
        world.run(writer.add(payload))
    world.check_copies(writer.ledger_id, payloads)
    metadata = world.run(writer.close())
    assert len(metadata.fragments) == 3
    assert metadata.length == sum(map(len, payloads))
    for name in killed:
        world.restart(name)
    world.settle(2)
    reader = world.run(client.open_ledger(writer.ledger_id))
    assert world.run(collect(reader.read())) == payloads


@PROTOCOLS
def test_a_crash_with_many_adds_in_flight(protocol: ProtocolVersion) -> None:
    world = World(4)
    client = world.client(protocol=protocol)
    writer = open_writer(world, client)
    victim = members(world, writer)[1]
    victim.policy = when(is_add, Fate.LOSE_ANSWER)
    payloads = [b"entry %d" % number for number in range(200)]
    adding = world.start(_await(writer.add_many(payloads)))
    world.settle()
    world.kill(victim.bookie_id)
    adding.finish()
    # The crash failed adds that had their quorum: the next one makes the change.
    world.run(writer.add(b"more"))
    world.settle(1)
    world.check_copies(writer.ledger_id, [*payloads, b"more"])
    assert len(world.stored(writer.ledger_id).fragments) == 2
    assert world.run(writer.close()).last_entry_id == 200


async def _await(deferred: Any) -> Any:
    return await deferred


@PROTOCOLS
def test_a_silent_bookie_is_replaced_after_the_time_out(protocol: ProtocolVersion) -> None:
    world = World(4)
    writer = open_writer(world, world.client(protocol=protocol), ack_quorum=3)
    members(world, writer)[2].policy = when(is_add, Fate.LOSE)
    began_s = world.clock.seconds()
    world.run(writer.add(b"x"))
    assert 5.0 <= world.clock.seconds() - began_s < 6.0
    world.check_copies(writer.ledger_id, [b"x"])


def test_a_read_only_bookie_is_replaced() -> None:
    world = World(4)
    writer = open_writer(world, world.client())
    victim = members(world, writer)[0]
    victim.read_only = True
    world.run(writer.add(b"x"))
    world.run(writer.add(b"y"))
    assert victim.bookie_id not in world.stored(writer.ledger_id).last_fragment.ensemble
    world.check_copies(writer.ledger_id, [b"x", b"y"])


def test_without_a_spare_the_writer_ends_and_closes_what_is_confirmed() -> None:
    world = World(3)
    client = world.client()
    writer = open_writer(world, client, ack_quorum=3)
    world.run(writer.add(b"kept"))
    world.kill(members(world, writer)[0].bookie_id)
    with pytest.raises(NotEnoughBookiesError):
        world.run(writer.add(b"lost"))
    assert not writer.is_writable
    with pytest.raises(NotEnoughBookiesError):
        world.run(writer.add(b"more"))
    world.settle(1)
    stored = world.stored(writer.ledger_id)
    assert (stored.state, stored.last_entry_id, stored.length) == (LedgerState.CLOSED, 0, 4)
    assert world.run(writer.close()).last_entry_id == 0


def test_delayed_changes_go_on_with_the_bookies_that_are_left() -> None:
    world = World(3)
    client = world.client(delay_ensemble_change=True)
    writer = open_writer(world, client)
    victim = members(world, writer)[0].bookie_id
    payloads = [b"%d" % number for number in range(30)]
    for payload in payloads[:10]:
        world.run(writer.add(payload))
    world.kill(victim)
    for payload in payloads[10:20]:
        world.run(writer.add(payload))
    world.restart(victim)
    world.settle(2)
    for payload in payloads[20:]:
        world.run(writer.add(payload))
    world.settle(1)
    assert world.run(writer.close()).last_entry_id == 29
    assert len(world.stored(writer.ledger_id).fragments) == 1
    world.check_copies(writer.ledger_id, payloads)
    assert 29 in world.bookies[victim].entries(writer.ledger_id), "it was connected again"


def test_bookies_that_failed_lately_are_chosen_last() -> None:
    world = World(5)
    client = world.client()
    writer = open_writer(world, client)
    for _ in range(2):
        # They stay registered: their sessions have not expired.
        world.kill(members(world, writer)[0].bookie_id, unregister=False)
        for _ in range(2):
            world.run(writer.add(b"x"))
            world.settle(1)
    # The first change found nothing confirmed, and replaced the first fragment.
    assert [f.first_entry_id for f in world.stored(writer.ledger_id).fragments] == [0, 2]
    fresh = world.run(client.create_ledger(**TRIPLE))
    assert all(member.up for member in members(world, fresh))


def test_s5_nothing_is_confirmed_before_the_store_knows_the_new_bookies() -> None:
    world = World(6)
    writer = open_writer(world, world.client(), ack_quorum=2)
    first, second, _ = members(world, writer)
    world.metadata.delay_s = lambda operation: 10.0 if operation.name == "set" else 0.0
    world.kill(first.bookie_id)
    world.kill(second.bookie_id)
    adding = world.start(_await(writer.add(b"x")))
    world.settle(4.9)
    assert not adding.done
    assert writer.last_add_confirmed == -1
    adding.finish()
    world.check_copies(writer.ledger_id, [b"x"])


def test_s7_the_lac_stands_still_while_the_ensemble_changes() -> None:
    world = World(4)
    writer = open_writer(world, world.client())
    victim, left, right = members(world, writer)
    victim.policy = when(is_add, AddResponse(ReturnCode.EIO, LedgerId(0), 0))  # type: ignore[arg-type]
    left.policy = when(is_add, Fate.HOLD_ANSWER)
    victim.policy = lambda request: (
        AddResponse(ReturnCode.EIO, request.ledger_id, request.entry_id)
        if is_add(request) and isinstance(request, AddRequest)
        else Fate.SERVE
    )
    world.metadata.delay_s = lambda operation: 3.0 if operation.name == "set" else 0.0
    adding = world.start(_await(writer.add_many([b"a", b"b", b"c"])))
    world.settle(1.0)
    assert left.release() == 3
    world.settle(1.0)
    assert writer.last_add_confirmed == -1, "acked by two, but the change is under way"
    adding.finish()
    stored = world.stored(writer.ledger_id)
    assert [fragment.first_entry_id for fragment in stored.fragments] == [0]
    world.check_copies(writer.ledger_id, [b"a", b"b", b"c"])
    assert len(right.entries(writer.ledger_id)) == 3


# The store -------------------------------------------------------------------------------------


def test_s17_a_writer_that_needs_a_change_finds_the_recovery() -> None:
    world = World(4)
    client, other = world.client(), world.client(seed=1)
    writer = open_writer(world, client)
    world.run(writer.add(b"x"))
    for bookie in world.bookies.values():
        bookie.policy = when(is_fence, Fate.LOSE)
    local = LocalMetadata(world.run(other.read_metadata(writer.ledger_id)))
    world.run(mark(other.cluster, local, writer.ledger_id))
    before = world.run(other.read_metadata(writer.ledger_id))
    world.kill(members(world, writer)[0].bookie_id)
    world.kill(members(world, writer)[1].bookie_id)
    with pytest.raises(ClientLedgerFencedError):
        world.run(writer.add(b"y"))
    with pytest.raises(ClientLedgerFencedError):
        world.run(writer.close())
    assert world.run(other.read_metadata(writer.ledger_id)) == before, "the writer left it alone"


def test_s18_a_conflict_with_replication_is_merged() -> None:
    world = World(5)
    client, other = world.client(), world.client(seed=1)
    writer = open_writer(world, client)
    world.run(writer.add(b"x"))

    def rewrite(tag: bytes) -> None:
        stored = world.run(other.read_metadata(writer.ledger_id))
        changed = attrs.evolve(stored.value, custom={"tag": tag})
        world.run(other.store.write_ledger(writer.ledger_id, changed, stored.version))

    rewrite(b"1")
    victim = members(world, writer)[0].bookie_id
    world.kill(victim)
    world.run(writer.add(b"y"))
    world.run(writer.add(b"z"))
    rewrite(b"2")
    metadata = world.run(writer.close())
    assert metadata.custom == {"tag": b"2"}
    assert metadata.last_entry_id == 2
    assert victim not in metadata.last_fragment.ensemble


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST], ids=lambda f: f.name)
def test_s19_a_lost_reply_of_the_store_is_no_conflict(fault: Fault) -> None:
    world = World(5)
    client, other = world.client(), world.client(seed=1)
    world.metadata.faults = once("create", fault)
    writer = open_writer(world, client)
    world.run(writer.add(b"x"))
    world.metadata.faults = once("set", fault)
    victim = members(world, writer)[0].bookie_id
    world.kill(victim)
    world.run(writer.add(b"y"))
    world.run(writer.add(b"z"))
    assert len(world.stored(writer.ledger_id).fragments) == 2
    world.check_copies(writer.ledger_id, [b"x", b"y", b"z"])
    world.metadata.faults = once("set", fault)
    metadata = world.run(writer.close())
    assert metadata.last_entry_id == 2
    # Mark and close of a recovery:
    second = open_writer(world, client)
    world.run(second.add(b"x"))
    for _ in range(2):
        world.metadata.faults = once("set", fault)
        reader = world.run(other.open_ledger(second.ledger_id))
        assert reader.last_add_confirmed == 0


# Closing ---------------------------------------------------------------------------------------


def test_who_hears_of_an_entry_may_close_and_the_length_is_that_of_the_ledger() -> None:
    world = World(3)
    client = world.client()
    writer = open_writer(world, client)
    for bookie in world.bookies.values():
        bookie.policy = when(lambda r: is_add(r) and r.entry.endswith(b"lost"), Fate.LOSE)
    closing: list[Any] = []
    writer.add(b"kept").addCallback(lambda _entry: closing.append(world.start(writer.close())))
    lost = writer.add(b"lost")
    world.settle(1)
    assert isinstance(world.failure(lost), LedgerClosedError)
    metadata = closing[0].finish()
    assert (metadata.last_entry_id, metadata.length) == (0, len(b"kept"))


def test_s20_two_closes_share_one_verdict() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    for bookie in world.bookies.values():
        bookie.policy = when(is_add, Fate.HOLD)
    adding = world.start(_await(writer.add(b"x")))
    world.settle()
    closes = [world.start(writer.close()) for _ in range(2)]
    assert [close.finish().last_entry_id for close in closes] == [-1, -1]
    assert isinstance(adding.result, LedgerClosedError)
    assert world.run(writer.close()).last_entry_id == -1


def test_s20_both_closes_fail_when_a_recovery_got_further() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    writer = open_writer(world, client)
    for bookie in world.bookies.values():
        bookie.policy = when(is_add, Fate.LOSE_ANSWER)
    adding = world.start(_await(writer.add(b"x")))
    world.settle()
    reader = world.run(other.open_ledger(writer.ledger_id))
    assert reader.last_add_confirmed == 0
    closes = [world.start(writer.close()) for _ in range(2)]
    for close in closes:
        with pytest.raises(MetadataVersionError):
            close.finish()
    assert isinstance(adding.result, LedgerClosedError)


def test_s21_a_close_after_a_recovery_that_ended_elsewhere_fails() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    writer = open_writer(world, client)
    world.run(writer.add(b"x"))
    world.run(other.open_ledger(writer.ledger_id))
    assert world.run(writer.close()).last_entry_id == 0, "the same end: nothing to complain of"
    second = open_writer(world, client)
    stored = world.run(other.read_metadata(second.ledger_id))
    ended = attrs.evolve(stored.value, state=LedgerState.CLOSED, last_entry_id=3, length=9)
    world.run(other.store.write_ledger(second.ledger_id, ended, stored.version))
    with pytest.raises(MetadataVersionError):
        world.run(second.close())
    assert world.stored(second.ledger_id).last_entry_id == 3


def test_s21_a_recovery_after_a_close_adopts_it() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    writer = open_writer(world, client)
    world.run(writer.add(b"x"))
    local = LocalMetadata(world.run(other.read_metadata(writer.ledger_id)))
    world.run(writer.close())
    # The recoverer still believes that the ledger is open.
    metadata = world.run(mark(other.cluster, local, writer.ledger_id))
    assert metadata.is_closed
    assert metadata.last_entry_id == 0


def test_closing_in_recovery_is_left_to_the_recoverer() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    writer = open_writer(world, client)
    world.run(writer.add(b"x"))
    local = LocalMetadata(world.run(other.read_metadata(writer.ledger_id)))
    world.run(mark(other.cluster, local, writer.ledger_id))
    with pytest.raises(ClientLedgerFencedError):
        world.run(writer.close())
    assert world.stored(writer.ledger_id).state is LedgerState.IN_RECOVERY


def test_i8_a_failed_close_can_be_tried_again() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    world.run(writer.add(b"x"))
    world.metadata.faults = lambda operation: (
        Fault.REQUEST_LOST if operation.name == "set" else Fault.NONE
    )
    from bkclient.metadata.errors import MetadataUnavailableError

    with pytest.raises(MetadataUnavailableError):
        world.run(writer.close())
    world.metadata.faults = lambda _operation: Fault.NONE
    assert world.run(writer.close()).last_entry_id == 0


# Late answers ----------------------------------------------------------------------------------


@PROTOCOLS
def test_s22_a_late_failure_of_a_confirmed_add(protocol: ProtocolVersion) -> None:
    world = World(5)
    writer = open_writer(world, world.client(protocol=protocol))
    slow = members(world, writer)[2]
    slow.policy = when(is_add, Fate.LOSE)
    world.run(writer.add(b"x"))
    world.settle(6)
    assert len(world.stored(writer.ledger_id).fragments) == 1, "nothing to do for a confirmed add"
    for number in range(5):
        world.run(writer.add(b"%d" % number))
    stored = world.stored(writer.ledger_id)
    assert [fragment.first_entry_id for fragment in stored.fragments] == [0, 1]
    assert slow.bookie_id not in stored.last_fragment.ensemble
    world.settle(10)
    assert world.run(writer.close()).last_entry_id == 5


@PROTOCOLS
def test_s23_a_fence_during_a_change_ends_all_adds(protocol: ProtocolVersion) -> None:
    world = World(5)
    client, other = world.client(protocol=protocol), world.client(protocol=protocol, seed=1)
    writer = open_writer(world, client)
    victim = members(world, writer)[0]
    world.metadata.delay_s = lambda operation: 2.0 if operation.name == "set" else 0.0
    world.kill(victim.bookie_id)
    adding = [world.start(_await(writer.add(b"x"))) for _ in range(3)]
    recovering = world.start(other.open_ledger(writer.ledger_id))
    recovering.finish()
    world.settle(20)
    late = world.start(_await(writer.add(b"late")))
    world.settle(20)
    assert late.done
    results = [one.result for one in adding]
    last = recovering.result.last_add_confirmed
    for entry_id, result in enumerate(results):
        if not isinstance(result, Exception):
            assert result == entry_id <= last, "confirmed, so it must be in the ledger"
    assert isinstance(late.result, Exception)
    assert world.stored(writer.ledger_id).state is LedgerState.CLOSED


def test_s37_reading_does_not_move_a_writers_lac() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    writer = open_writer(world, client)
    for _ in range(3):
        world.run(writer.add(b"x"))
    for bookie in world.bookies.values():
        bookie.policy = when(is_add, Fate.LOSE_ANSWER)
    adding = world.start(_await(writer.add_many([b"y", b"z"])))
    world.settle()
    world.run(other.open_ledger(writer.ledger_id))
    for entry_id in range(3):  # One by one: a bookie says its LAC with each entry.
        assert world.run(collect(writer.read(entry_id, entry_id))) == [b"x"]
    assert world.run(collect(writer.read(0, 2))) == [b"x"] * 3
    assert writer.last_add_confirmed == 2
    with pytest.raises(MetadataVersionError):
        world.run(writer.close())
    assert isinstance(adding.result, LedgerClosedError)
    assert world.stored(writer.ledger_id).last_entry_id == 4


# Handles ---------------------------------------------------------------------------------------


def test_a_callback_may_add_and_close() -> None:
    """Re-entrancy: what a confirmation's callback does comes after all confirmations."""
    world = World(3)
    # Acks of one turn are one confirmation on V2.
    writer = open_writer(world, world.client(protocol=ProtocolVersion.V2))
    order: list[str] = []

    def add_more(entry_id: int) -> None:
        order.append(f"confirmed {entry_id}")
        if entry_id == 1:
            writer.add(b"from the callback").addBoth(lambda r: order.append(type(r).__name__))
            world.start(writer.close())

    for _ in range(4):
        writer.add(b"x").addCallback(add_more)
    world.settle(1)
    assert order == ["confirmed 0", "confirmed 1", "confirmed 2", "confirmed 3", "Failure"]
    assert world.stored(writer.ledger_id).last_entry_id == 3


@pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)
def test_a_chain_of_callbacks_that_add_keeps_order_and_needs_no_stack(
    protocol: ProtocolVersion,
) -> None:
    world = World(3)
    writer = open_writer(world, world.client(protocol=protocol))
    confirmed: list[int] = []
    inside = False

    def add_next(entry_id: int) -> None:
        nonlocal inside
        assert not inside, "a callback ran inside the call that added"
        confirmed.append(entry_id)
        if entry_id < 3000:
            inside = True
            writer.add(b"x").addCallback(add_next)
            inside = False

    for _ in range(3):
        writer.add(b"x").addCallback(add_next)
    world.settle(1)
    assert confirmed == list(range(len(confirmed)))
    assert len(confirmed) == 3001 + 2


def test_a_callback_that_adds_after_a_failure_is_refused_at_once_and_disturbs_nobody() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    for bookie in world.bookies.values():
        bookie.policy = when(is_add, Fate.HOLD)
    failures: list[type[BaseException]] = []

    def add_again(failure: Failure) -> None:
        failures.append(failure.type)
        writer.add(b"again").addErrback(lambda again: failures.append(again.type))

    for _ in range(3):
        writer.add(b"x").addErrback(add_again)
    world.settle(0.1)
    world.run(writer.close())
    assert failures == [LedgerClosedError] * 6
    assert world.stored(writer.ledger_id).last_entry_id == -1


def test_a_cancelled_add_stays_in_the_ledger() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    first, second = writer.add(b"one"), writer.add(b"two")
    first.addErrback(lambda _failure: None)
    first.cancel()
    assert world.run(second) == 1
    assert world.run(writer.close()).last_entry_id == 1


def test_an_abandoned_writer_leaves_the_ledger_to_recovery() -> None:
    world = World(3)
    client = world.client()
    writer = open_writer(world, client)
    world.run(writer.add(b"x"))
    writer.abandon()
    assert world.stored(writer.ledger_id).state is LedgerState.OPEN
    reader = world.run(client.open_ledger(writer.ledger_id))
    assert reader.last_add_confirmed == 0


def test_a_writer_that_is_abandoned_as_its_adds_fail_leaves_the_ledger_to_recovery_too() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    world.run(writer.add(b"x"))
    for name in ("b2", "b3"):
        world.kill(name)
    failed = writer.add(b"y")
    failed.addErrback(lambda _failure: writer.abandon())
    world.run(failed)
    assert not writer.is_writable
    world.settle(10)
    assert world.stored(writer.ledger_id).state is LedgerState.OPEN


def test_room_bounds_what_is_in_flight() -> None:
    world = World(3)
    writer = open_writer(world, world.client(adds_in_flight_max=10))
    most = 0

    def watch(request: Request) -> Fate:
        nonlocal most
        most = max(most, writer.last_add_pushed - writer.last_add_confirmed)
        return Fate.SERVE

    for bookie in world.bookies.values():
        bookie.policy = watch
    assert world.run(writer.add_many(b"x" for _ in range(100))) == 99
    assert most <= 10


def test_an_add_quorum_time_out_ends_the_writer() -> None:
    world = World(3)
    writer = open_writer(world, world.client(add_quorum_timeout_s=3))
    for bookie in world.bookies.values():
        bookie.policy = when(is_add, Fate.LOSE)
    from bkclient.errors import AddQuorumTimeoutError

    began_s = world.clock.seconds()
    with pytest.raises(AddQuorumTimeoutError):
        world.run(writer.add(b"x"))
    assert world.clock.seconds() - began_s == pytest.approx(3, abs=0.1)


def test_the_add_quorum_time_out_holds_for_acks_that_a_change_takes_back() -> None:
    world = World(7)
    client = world.client(add_quorum_timeout_s=3, add_timeout_s=60)
    writer = open_writer(world, client, ensemble_size=5, write_quorum=3)
    first, second, *rest = members(world, writer)
    for bookie in set(world.bookies.values()) - {first, second, *rest}:
        bookie.policy = when(is_add, Fate.LOSE)

    def refuse(request: Request) -> AddResponse:
        assert isinstance(request, AddRequest)
        return AddResponse(ReturnCode.EIO, request.ledger_id, request.entry_id)

    # Each of the first two refuses an entry that others acknowledge while it is replaced.
    first.policy = refuse
    second.policy = lambda r: refuse(r) if getattr(r, "entry_id", 0) else Fate.HOLD_ANSWER
    for bookie in rest:
        bookie.policy = when(is_add, Fate.HOLD_ANSWER)
    world.metadata.delay_s = lambda op: 4.0 if op.name == "set" else 0.0
    adding = world.start(_await(writer.add_many([b"a", b"b"])))
    world.settle(0.5)
    assert sum(bookie.release() for bookie in (second, *rest)) == 4
    began_s = world.clock.seconds()
    from bkclient.errors import AddQuorumTimeoutError

    with pytest.raises(AddQuorumTimeoutError):
        adding.finish()
    assert world.clock.seconds() - began_s < 15
