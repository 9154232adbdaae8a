"""A ledger that passes from writer to writer: the rules, the races, the lost replies."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from bkclient.admin import cluster_operations, one_shot_adds
from bkclient.admin.one_shot_adds import HANDOVER_KEY, WRITER_KEY, NotHandedOverError
from bkclient.client import Client
from bkclient.errors import (
    ClientError,
    ClientLedgerFencedError,
    IllegalOperationError,
    LedgerClosedError,
)
from bkclient.ledger.creation import NewLedger
from tests.bkclient.worlds import Fate, World, collect, is_add, when
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.codes import LedgerState, ProtocolVersion
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import Fragment

PROTOCOLS = pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)
TRIPLE = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


def create(world: World, client: Client) -> LedgerId:
    ledger_id, _ = world.run(one_shot_adds.create_handed_over(client, NewLedger(**TRIPLE)))
    return ledger_id


async def add_once(client: Client, ledger_id: LedgerId, *payloads: bytes) -> int:
    """What `bkctl ledger add` does."""
    writer = await one_shot_adds.claim_ledger(client, ledger_id)
    last = await writer.add_many(payloads)
    await one_shot_adds.release_ledger(writer)
    return last


def key_of(world: World, ledger_id: LedgerId) -> Any:
    value = world.stored(ledger_id).custom.get(HANDOVER_KEY)
    return None if value is None else json.loads(value)


@PROTOCOLS
def test_adds_of_separate_processes_make_one_ledger(protocol: ProtocolVersion) -> None:
    world = World(3)
    ledger_id = create(world, world.client(protocol=protocol))
    assert key_of(world, ledger_id) == {"v": 1, "last": -1, "length": 0}
    for number in range(4):
        client = world.client(protocol=protocol, seed=number)
        assert world.run(add_once(client, ledger_id, b"a%d" % number, b"b")) == 2 * number + 1
        world.run(client.close())
    assert key_of(world, ledger_id) == {"v": 1, "last": 7, "length": 12}
    closer = world.client(protocol=protocol, seed=9)
    metadata = world.run(_claim_and_close(closer, ledger_id))
    assert (metadata.last_entry_id, metadata.length) == (7, 12)
    reader = world.run(closer.open_ledger(ledger_id))
    assert world.run(collect(reader.read())) == [
        b"a0", b"b", b"a1", b"b", b"a2", b"b", b"a3", b"b",
    ]  # fmt: skip


async def _claim_and_close(client: Client, ledger_id: LedgerId) -> Any:
    return await (await one_shot_adds.claim_ledger(client, ledger_id)).close()


def test_one_process_may_claim_again_what_it_released() -> None:
    world = World(3)
    client = world.client(protocol=ProtocolVersion.V2)
    ledger_id = create(world, client)
    for number in range(3):
        assert world.run(add_once(client, ledger_id, b"x")) == number


def test_between_writers_the_key_says_where_to_go_on_and_during_one_there_is_none() -> None:
    world = World(3)
    client = world.client()
    ledger_id = create(world, client)
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    assert key_of(world, ledger_id) is None
    assert not one_shot_adds.is_handed_over(world.stored(ledger_id))
    with pytest.raises(NotHandedOverError):
        world.run(one_shot_adds.claim_ledger(world.client(seed=1), ledger_id))
    world.run(writer.add(b"x"))
    world.run(one_shot_adds.release_ledger(writer))
    assert one_shot_adds.is_handed_over(world.stored(ledger_id))
    with pytest.raises(ClientLedgerFencedError):
        world.run(writer.add(b"after the release"))


def test_a_release_waits_for_an_add_that_has_no_quorum_yet() -> None:
    world = World(3)
    client = world.client()
    ledger_id = create(world, client)
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    for bookie in world.bookies.values():
        bookie.policy = when(is_add, Fate.HOLD)
    added = writer.add(b"xyz")
    releasing = world.start(one_shot_adds.release_ledger(writer, settle_s=0.1))
    world.settle(1)
    assert not releasing.done
    assert key_of(world, ledger_id) is None
    for bookie in world.bookies.values():
        bookie.policy = lambda _request: Fate.SERVE
        bookie.release()
    releasing.finish()
    assert added.called
    assert key_of(world, ledger_id) == {"v": 1, "last": 0, "length": 3}


@pytest.mark.parametrize("delay_s", [0.0, 1.0])
def test_of_racing_claimants_one_wins(delay_s: float) -> None:
    world = World(3)
    ledger_id = create(world, world.client())
    world.metadata.delay_s = lambda _operation: delay_s
    claims = [
        world.start(one_shot_adds.claim_ledger(world.client(seed=n), ledger_id)) for n in range(4)
    ]
    world.settle(20)
    assert all(claim.done for claim in claims)
    won = [claim.result for claim in claims if not isinstance(claim.result, Exception)]
    lost = [claim.result for claim in claims if isinstance(claim.result, Exception)]
    assert len(won) == 1
    assert all(isinstance(error, NotHandedOverError) for error in lost)
    assert world.run(won[0].add(b"mine")) == 0


def lose_set_replies(
    world: World, session_id: int, count: int, fault: Fault
) -> list[TreeOperation]:
    lost: list[TreeOperation] = []

    def judge(operation: TreeOperation) -> Fault:
        hit = operation.session_id == session_id and operation.name == "set"
        if hit and len(lost) < count:
            lost.append(operation)
            return fault
        return Fault.NONE

    world.metadata.faults = judge
    return lost


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST], ids=lambda f: f.name)
def test_lost_replies_are_recognised_as_ones_own(fault: Fault) -> None:
    world = World(3)
    client = world.client()
    ledger_id = create(world, client)
    lost = lose_set_replies(world, client.store.session_id, 1, fault)
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    assert len(lost) == 1
    world.run(writer.add(b"x"))
    lost = lose_set_replies(world, client.store.session_id, 1, fault)
    world.run(one_shot_adds.release_ledger(writer))
    assert len(lost) == 1
    assert key_of(world, ledger_id) == {"v": 1, "last": 0, "length": 1}


async def _claim_and_add(client: Client, ledger_id: LedgerId) -> Any:
    writer = await one_shot_adds.claim_ledger(client, ledger_id)
    await writer.add(b"next")
    return writer


@pytest.mark.parametrize("act", [_claim_and_add, add_once, cluster_operations.recover_ledger])
def test_a_release_is_done_whatever_comes_before_its_lost_reply_is_looked_for(act: Any) -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    ledger_id = create(world, client)
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    world.run(writer.add(b"x"))
    lost = lose_set_replies(world, client.store.session_id, 1, Fault.ANSWER_LOST)
    world.metadata.delay_s = lambda op: (
        60.0 if op.session_id == client.store.session_id and op.name == "get" else 0.0
    )
    releasing = world.start(one_shot_adds.release_ledger(writer))
    world.settle(1)
    assert (len(lost), releasing.done) == (1, False)
    world.run(act(other, ledger_id, *((b"next",) if act is add_once else ())))
    releasing.finish()


def test_a_claim_that_meets_another_goes_on_behind_what_that_one_added() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    ledger_id = create(world, client)
    world.metadata.delay_s = lambda op: (
        20.0 if op.session_id == client.store.session_id and op.name == "set" else 0.0
    )
    claiming = world.start(one_shot_adds.claim_ledger(client, ledger_id))
    world.settle(1)
    assert world.run(add_once(other, ledger_id, b"a", b"bc")) == 1
    writer = claiming.finish()
    assert (writer.last_add_confirmed, writer.length) == (1, 3)
    assert world.run(writer.add(b"d")) == 2
    world.run(one_shot_adds.release_ledger(writer))
    reader = world.run(other.open_ledger(ledger_id))
    assert world.run(collect(reader.read())) == [b"a", b"bc", b"d"]


def test_a_writer_releases_nothing_that_another_has() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    ledger_id = create(world, client)
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    stored = world.run(other.read_metadata(ledger_id))
    custom = {**stored.value.custom, WRITER_KEY: b"another"}
    theirs = attrs.evolve(stored.value, custom=custom)
    world.run(other.store.write_ledger(ledger_id, theirs, stored.version))
    with pytest.raises(NotHandedOverError):
        world.run(one_shot_adds.release_ledger(writer))
    assert world.stored(ledger_id).custom == custom


def test_replication_may_rewrite_the_metadata_in_between() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    ledger_id = create(world, client)

    def rewrite() -> None:
        stored = world.run(other.read_metadata(ledger_id))
        changed = attrs.evolve(stored.value, custom=dict(reversed(stored.value.custom.items())))
        world.run(other.store.write_ledger(ledger_id, changed, stored.version))

    rewrite()
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    rewrite()
    world.run(writer.add(b"x"))
    rewrite()
    world.run(one_shot_adds.release_ledger(writer))
    rewrite()
    assert world.run(add_once(other, ledger_id, b"y")) == 1
    # A reply lost, and the metadata rewritten before it is read again:
    third = world.client(seed=3)
    third_id = third.store.session_id
    rewritten: list[int] = []

    def judge(operation: TreeOperation) -> Fault:
        if operation.session_id == third_id and operation.name == "set" and not rewritten:
            rewritten.append(1)
            world.clock.callLater(0.4, rewrite)
            return Fault.ANSWER_LOST
        return Fault.NONE

    world.metadata.faults = judge
    world.metadata.delay_s = lambda op: 1.0 if op.session_id == third_id else 0.0
    assert world.run(add_once(third, ledger_id, b"z")) == 2


def test_a_recovery_beats_the_release() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    ledger_id = create(world, client)
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    world.run(writer.add(b"x"))
    metadata = world.run(cluster_operations.recover_ledger(other, ledger_id))
    assert metadata.last_entry_id == 0
    with pytest.raises((LedgerClosedError, ClientLedgerFencedError)):
        world.run(one_shot_adds.release_ledger(writer))
    assert HANDOVER_KEY not in world.stored(ledger_id).custom
    with pytest.raises(LedgerClosedError):
        world.run(one_shot_adds.claim_ledger(other, ledger_id))


def test_a_recovery_beats_the_claim() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    ledger_id = create(world, client)
    world.run(add_once(client, ledger_id, b"x", b"y"))
    world.metadata.delay_s = lambda op: (
        3.0 if op.session_id == client.store.session_id and op.name == "set" else 0.0
    )
    claiming = world.start(one_shot_adds.claim_ledger(client, ledger_id))
    metadata = world.run(cluster_operations.recover_ledger(other, ledger_id))
    assert metadata.last_entry_id == 1
    world.settle(10)
    assert isinstance(claiming.result, (LedgerClosedError, ClientLedgerFencedError))


def test_a_claim_without_an_answer_does_not_outlive_the_ledger() -> None:
    world = World(6)
    client, other = world.client(), world.client(seed=1)
    ledger_id = create(world, client)
    world.run(add_once(client, ledger_id, b"x"))
    lost = lose_set_replies(world, client.store.session_id, 1, Fault.ANSWER_LOST)
    world.metadata.delay_s = lambda op: (
        60.0 if op.session_id == client.store.session_id and op.name == "get" and lost else 0.0
    )
    claiming = world.start(one_shot_adds.claim_ledger(client, ledger_id))
    world.settle(1)
    assert (len(lost), claiming.done) == (1, False)
    recovered = world.run(cluster_operations.recover_ledger(other, ledger_id))
    assert recovered.last_entry_id == 0
    # Its entries go to bookies that were never fenced, as when a bookie is decommissioned.
    stored = world.run(other.read_metadata(ledger_id))
    unused = tuple(b for b in world.bookies if b not in stored.value.ensemble)
    moved = attrs.evolve(stored.value, fragments=(Fragment(EntryId(0), unused),))
    world.run(other.store.write_ledger(ledger_id, moved, stored.version))
    with pytest.raises(LedgerClosedError):
        world.run(claiming.finish().add(b"too late"))


@PROTOCOLS
def test_a_claimant_that_dies_leaves_the_ledger_to_recovery(protocol: ProtocolVersion) -> None:
    world = World(3)
    ledger_id = create(world, world.client(protocol=protocol))
    world.run(add_once(world.client(protocol=protocol, seed=1), ledger_id, b"kept"))
    dying = world.client(protocol=protocol, seed=2)
    writer = world.run(one_shot_adds.claim_ledger(dying, ledger_id))
    world.run(writer.add(b"kept too"))
    world.run(dying.close())
    survivor = world.client(protocol=protocol, seed=3)
    with pytest.raises(NotHandedOverError):
        world.run(one_shot_adds.claim_ledger(survivor, ledger_id))
    assert world.run(cluster_operations.recover_ledger(survivor, ledger_id)).last_entry_id == 1
    # Frozen for ever and thawed: what it holds in its hands is worth nothing any more.
    with pytest.raises(ClientError):
        world.run(one_shot_adds.release_ledger(writer))
    assert world.stored(ledger_id).state is LedgerState.CLOSED


def test_a_failed_add_is_never_handed_over() -> None:
    world = World(3)
    client = world.client()
    ledger_id = create(world, client)
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    world.run(writer.add(b"x"))
    for bookie in world.bookies.values():
        bookie.policy = when(is_add, Fate.LOSE)
    writer.add(b"y").addErrback(lambda _failure: None)
    with pytest.raises(ClientError):
        world.run(one_shot_adds.release_ledger(writer))
    world.settle(20)
    assert HANDOVER_KEY not in world.stored(ledger_id).custom


def test_release_waits_for_the_whole_write_quorum_but_not_for_ever() -> None:
    world = World(3)
    client = world.client()
    ledger_id = create(world, client)
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    slow = world.bookies[writer.metadata.last_fragment.ensemble[2]]
    slow.policy = when(is_add, Fate.HOLD)
    world.run(writer.add(b"x"))
    releasing = world.start(one_shot_adds.release_ledger(writer))
    world.settle(0.5)
    assert not releasing.done
    slow.release()
    world.settle(0.5)
    assert releasing.done
    assert slow.entries(ledger_id) == {0: b"x"}
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    world.run(writer.add(b"y"))
    began_s = world.clock.seconds()
    world.run(one_shot_adds.release_ledger(writer, settle_s=2.0))
    assert world.clock.seconds() - began_s == pytest.approx(2.0, abs=0.1)


def test_only_what_was_claimed_can_be_released() -> None:
    world = World(3)
    client = world.client()
    writer = world.run(client.create_ledger(**TRIPLE))
    with pytest.raises(IllegalOperationError):
        world.run(one_shot_adds.release_ledger(writer))
    with pytest.raises(NotHandedOverError):
        world.run(one_shot_adds.claim_ledger(client, writer.ledger_id))


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b'{"v":2,"last":0,"length":0}', b'{"v":1,"last":-2,"length":0}', b"[1]", b"\xff"],
)
def test_a_key_that_is_not_understood_is_refused(value: bytes) -> None:
    world = World(3)
    client = world.client()
    ledger_id = create(world, client)
    stored = world.run(client.read_metadata(ledger_id))
    changed = attrs.evolve(stored.value, custom={HANDOVER_KEY: value})
    world.run(client.store.write_ledger(ledger_id, changed, stored.version))
    with pytest.raises(NotHandedOverError):
        world.run(one_shot_adds.claim_ledger(client, ledger_id))


def test_an_ensemble_change_of_a_claimant_keeps_the_rules() -> None:
    world = World(5)
    client = world.client()
    ledger_id = create(world, client)
    world.run(add_once(client, ledger_id, b"0", b"1"))
    writer = world.run(one_shot_adds.claim_ledger(client, ledger_id))
    world.kill(writer.metadata.last_fragment.ensemble[0])
    world.run(writer.add_many([b"2", b"3"]))
    world.run(one_shot_adds.release_ledger(writer))
    stored = world.stored(ledger_id)
    assert [fragment.first_entry_id for fragment in stored.fragments] == [0, 2]
    assert WRITER_KEY in stored.custom
    world.check_copies(ledger_id, [b"0", b"1", b"2", b"3"])
    assert world.run(add_once(client, ledger_id, b"4")) == 4
