"""Recovery against lost messages, dying recoverers and each other.

Names with S and a number are those of client.md 16.3. Ensembles are random, so bookies are named
by their place: ``first`` holds index 0 of the last fragment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred

from bkclient.admin import cluster_operations
from bkclient.client import Client
from bkclient.connection.add_frames import AddBatch, FrameMaker, LedgerKeys
from bkclient.errors import (
    ClientError,
    ClientLedgerFencedError,
    ClientUnauthorizedError,
    LedgerRecoveryError,
    RequestTimeoutError,
)
from bkclient.ledger.recovery_run import RECOVERY_FRAME_BYTES, RecoveryProgress
from bkclient.ledger.writer import LedgerWriter
from tests.bkclient.worlds import (
    FakeBookie,
    Fate,
    Ruling,
    World,
    collect,
    is_add,
    is_fence,
    is_recovery_add,
    is_recovery_read,
)
from tests.support.memory_zookeeper import TreeOperation
from wire import digest
from wire.codes import (
    FRAME_BYTES_MAX,
    AddFlag,
    DigestType,
    LedgerState,
    ProtocolVersion,
    ReturnCode,
)
from wire.ids import LedgerId
from wire.messages import ReadRequest, ReadResponse, Request

PROTOCOLS = pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)
TRIPLE = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


def open_writer(world: World, client: Client, **options: Any) -> LedgerWriter:
    return world.run(client.create_ledger(**{**TRIPLE, **options}))


def members(world: World, writer: LedgerWriter) -> list[FakeBookie]:
    return [world.bookies[b] for b in writer.metadata.last_fragment.ensemble]


def policy(*rules: tuple[Callable[[Request], bool], Ruling]) -> Callable[[Request], Ruling]:
    """The first rule whose test passes; else the request is served."""

    def judge(request: Request) -> Ruling:
        return next((ruling for test, ruling in rules if test(request)), Fate.SERVE)

    return judge


def everything(_request: Request) -> bool:
    return True


async def _await(deferred: Any) -> Any:
    return await deferred


@PROTOCOLS
def test_s1_recovery_reads_fence_too(protocol: ProtocolVersion) -> None:
    world = World(3)
    client, other = world.client(protocol=protocol), world.client(protocol=protocol, seed=1)
    writer = open_writer(world, client)
    first, second, third = members(world, writer)
    first.policy = policy((is_add, Fate.HOLD))
    second.policy = policy((is_recovery_read, Fate.HOLD))
    third.policy = policy((is_add, Fate.HOLD), (is_fence, Fate.LOSE))
    adding = world.start(_await(writer.add(b"e0")))
    world.settle()
    assert second.entries(writer.ledger_id) == {0: b"e0"}
    reader = world.run(other.open_ledger(writer.ledger_id), limit_s=4.0)
    assert reader.last_add_confirmed == -1
    # Now the writer's add arrives where it would be the second ack.
    first.release(is_add)
    third.release(is_add)
    world.settle(1)
    assert isinstance(adding.result, ClientLedgerFencedError)


@PROTOCOLS
def test_s2_recovery_of_an_empty_last_fragment_with_a_failing_bookie(
    protocol: ProtocolVersion,
) -> None:
    world = World(6)
    client, other = world.client(protocol=protocol), world.client(protocol=protocol, seed=1)
    writer = open_writer(world, client)
    payloads = [b"%d" % number for number in range(5)]
    for payload in payloads:
        world.run(writer.add(payload))
    # Replace a bookie; the entry that follows reaches nobody's quorum.
    world.kill(members(world, writer)[0].bookie_id)
    world.run(writer.add(b"5"))
    world.run(writer.add(b"6"))
    stored = world.stored(writer.ledger_id)
    assert [fragment.first_entry_id for fragment in stored.fragments] == [0, 5]
    for bookie in world.bookies.values():
        # The last fragment's bookies lose what they had: as if nothing had been added yet.
        bookie.ledgers.get(writer.ledger_id, _Nothing).entries.pop(5, None)
        bookie.ledgers.get(writer.ledger_id, _Nothing).entries.pop(6, None)
    packet = digest.digester(DigestType.CRC32C, b"").package(writer.ledger_id, 5, 4, 6, b"5")
    for bookie in members(world, writer)[:2]:
        bookie.ledgers[writer.ledger_id].entries[5] = packet
    victim = members(world, writer)[2]
    victim.policy = policy((is_recovery_add, Fate.LOSE))
    for bookie in members(world, writer)[:2]:
        bookie.policy = policy((is_recovery_add, Fate.HOLD))
    opening = world.start(other.open_ledger(writer.ledger_id))
    world.settle(0.5)
    world.kill(victim.bookie_id)
    world.settle(0.5)
    for bookie in world.bookies.values():
        bookie.policy = policy()
        bookie.release()
    reader = opening.finish()
    assert reader.last_add_confirmed == 5
    fragments = reader.metadata.fragments
    assert [fragment.first_entry_id for fragment in fragments] == [0, 5]
    assert victim.bookie_id not in fragments[-1].ensemble
    world.check_copies(writer.ledger_id, [*payloads, b"5"])


class _Nothing:
    entries: dict[int, bytes] = {}  # noqa: RUF012


@PROTOCOLS
def test_s3_ensembles_of_a_recovery_are_stored_by_its_close_only(
    protocol: ProtocolVersion,
) -> None:
    world = World(5)
    client = world.client(protocol=protocol)
    writer = open_writer(world, client)
    first, second, third = members(world, writer)
    third.policy = policy((is_add, Fate.LOSE))
    assert world.run(writer.add(b"e0")) == 0
    one = world.client(protocol=protocol, seed=1)
    for bookie in (first, second):
        bookie.policy = policy((is_recovery_add, Fate.HOLD))
    third.policy = policy((is_recovery_add, Fate.LOSE))
    opening = world.start(one.open_ledger(writer.ledger_id))
    world.settle(0.5)
    world.kill(third.bookie_id)
    world.settle(0.5)
    spare = [
        bookie
        for bookie in world.bookies.values()
        if bookie not in {first, second, third} and bookie.entries(writer.ledger_id)
    ]
    assert spare, "the first recoverer moved on to a spare bookie"
    stored = world.stored(writer.ledger_id)
    assert stored.state is LedgerState.IN_RECOVERY
    assert stored.fragments == writer.metadata.fragments
    world.run(one.close())
    world.settle(1)
    assert isinstance(opening.result, ClientError)
    assert world.stored(writer.ledger_id) == stored
    for bookie in (first, second):
        bookie.held.clear()
        bookie.policy = policy()
    reader = world.run(world.client(protocol=protocol, seed=2).open_ledger(writer.ledger_id))
    assert reader.last_add_confirmed == 0
    world.check_copies(writer.ledger_id, [b"e0"])


def test_s13_a_bookie_that_hangs_holds_nothing_up() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    world.run(writer.add(b"e0"))
    world.settle(1)
    members(world, writer)[1].policy = policy((everything, Fate.LOSE))
    reader = world.run(world.client(seed=1).open_ledger(writer.ledger_id), limit_s=4.0)
    assert reader.last_add_confirmed == 0
    assert world.run(collect(reader.read())) == [b"e0"]


def test_s13_a_bookie_that_hangs_is_no_proof_of_absence() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    first, second, third = members(world, writer)
    third.policy = policy((is_add, Fate.LOSE))
    assert world.run(writer.add(b"e0")) == 0
    # The two that hold it are silent on the entry; one honest "no" is not enough.
    for bookie in (first, second):
        bookie.policy = policy((is_recovery_read, Fate.LOSE))
    with pytest.raises(LedgerRecoveryError):
        world.run(world.client(seed=1).open_ledger(writer.ledger_id))
    assert world.stored(writer.ledger_id).state is LedgerState.IN_RECOVERY
    first.policy = second.policy = policy()
    reader = world.run(world.client(seed=2).open_ledger(writer.ledger_id))
    assert reader.last_add_confirmed == 0


def test_s14_recovery_adds_carry_lac0() -> None:
    world = World(3)
    client = world.client()
    writer = open_writer(world, client)
    first, second, third = members(world, writer)
    for bookie in (second, third):
        bookie.policy = policy((is_add, Fate.LOSE))
    adding = [world.start(_await(writer.add(b"e%d" % n))) for n in range(2)]
    world.settle(1)
    # R1 sees two honest refusals and stalls before it closes at -1.
    first.policy = policy((is_recovery_read, Fate.HOLD), (is_fence, Fate.HOLD))
    one = world.client(seed=1)
    slow = one.store.session_id
    closes: list[TreeOperation] = []

    def stall(operation: TreeOperation) -> float:
        if operation.session_id == slow and operation.name == "set":
            closes.append(operation)
            return 100.0 if len(closes) == 2 else 0.0
        return 0.0

    world.metadata.delay_s = stall
    opening = world.start(one.open_ledger(writer.ledger_id))
    world.settle(1)
    assert len(closes) == 2, "marked, and about to close"
    # R2 finds both entries, writes them back, and stalls before its close too.
    first.policy, second.policy = policy(), policy((is_recovery_read, Fate.HOLD))
    two = world.client(seed=2)
    world.metadata.delay_s = lambda operation: (
        stall(operation)
        if operation.session_id == slow
        else 200.0 * (operation.session_id == two.store.session_id and operation.name == "set")
    )
    opening_two = world.start(two.open_ledger(writer.ledger_id))
    world.settle(1)
    assert second.entries(writer.ledger_id) == {0: b"e0", 1: b"e1"}
    for bookie in (second, third):
        for packet in bookie.ledgers[writer.ledger_id].entries.values():
            assert digest.header(packet).lac == -1, "a tailing reader would believe it"
    reader = world.run(world.client(seed=3).open_ledger(writer.ledger_id, recover=False))
    assert reader.last_add_confirmed == -1
    # The first close wins, and the other adopts it.
    assert opening.finish(400).last_add_confirmed == -1
    assert opening_two.finish(400).last_add_confirmed == -1
    assert all(isinstance(one.result, ClientError) or not one.done for one in adding)


def test_entries_written_back_carry_their_length_and_the_lac_that_the_recovery_found() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    last = members(world, writer)[2]
    world.run(writer.add(b"0"))
    world.run(writer.add(b"1"))
    last.policy = policy((is_add, Fate.LOSE))
    world.run(writer.add(b"2"))
    last.policy = policy()
    assert 2 not in last.entries(writer.ledger_id)
    world.run(world.client(seed=1).open_ledger(writer.ledger_id))
    header = digest.header(last.ledgers[writer.ledger_id].entries[2])
    assert (header.lac, header.length) == (1, 3)


@pytest.mark.parametrize(("length", "lac"), [(None, -1), (-5, -1), (2, 2**63 - 3)])
@pytest.mark.parametrize("which", ["fence", "recovery read"])
def test_s16_a_damaged_answer_is_no_answer(which: str, length: int | None, lac: int) -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    first, second, third = members(world, writer)
    third.policy = policy((is_add, Fate.LOSE))
    assert world.run(writer.add(b"e0")) == 0
    if length is None:
        damaged = second.ledgers[writer.ledger_id].entries[0][:-1] + b"X"
    else:
        kind = writer.metadata.digest_type
        assert kind is not None
        damaged = digest.digester(kind, b"").package(writer.ledger_id, 0, lac, length, b"e0")
    test = is_fence if which == "fence" else is_recovery_read

    def lie(request: Request) -> Ruling:
        if not test(request):
            return Fate.SERVE
        assert isinstance(request, ReadRequest)
        return ReadResponse(ReturnCode.EOK, request.ledger_id, request.entry_id, damaged)

    second.policy = lie
    if which == "fence":
        # Damaged, silent, negative: only one definite answer, where two are needed.
        first.policy = policy((is_fence, Fate.LOSE))
        with pytest.raises(ClientError):
            world.run(world.client(seed=1).open_ledger(writer.ledger_id))
    else:
        # Damaged and negative say nothing; the good copy decides.
        reader = world.run(world.client(seed=1).open_ledger(writer.ledger_id))
        assert reader.last_add_confirmed == 0
        assert third.entries(writer.ledger_id) == {0: b"e0"}, "written back"


def in_limbo(writer: LedgerWriter) -> Callable[[Request], Ruling]:
    """What a bookie says that has lost it does not know what of the ledger (BP-46)."""
    rc = ReturnCode.EUNKNOWNLEDGERSTATE

    def judge(request: Request) -> Ruling:
        if isinstance(request, ReadRequest):
            return ReadResponse(rc, writer.ledger_id, request.entry_id)
        return Fate.SERVE

    return judge


@PROTOCOLS
def test_s11_what_a_bookie_has_lost_is_not_taken_for_absent(protocol: ProtocolVersion) -> None:
    world = World(3)
    client, other = world.client(protocol=protocol), world.client(protocol=protocol, seed=1)
    writer = open_writer(world, client)
    first, second, third = members(world, writer)
    second.policy = policy((is_add, Fate.LOSE))
    assert world.run(writer.add(b"e0")) == 0
    second.policy, first.policy = policy(), in_limbo(writer)
    third.crash()
    with pytest.raises((ClientError, RequestTimeoutError)):
        world.run(other.open_ledger(writer.ledger_id))
    assert world.stored(writer.ledger_id).state is LedgerState.IN_RECOVERY
    third.up = True
    world.settle(5)
    reader = world.run(other.open_ledger(writer.ledger_id))
    assert world.run(collect(reader.read())) == [b"e0"]


@PROTOCOLS
@pytest.mark.parametrize(("size", "write", "ack"), [(3, 3, 2), (4, 3, 2), (2, 2, 1), (3, 2, 1)])
def test_s41_a_recovery_goes_on_with_a_bookie_in_limbo_or_refuses(
    protocol: ProtocolVersion, size: int, write: int, ack: int
) -> None:
    world = World(6)
    client, other = world.client(protocol=protocol), world.client(protocol=protocol, seed=1)
    options = {"ensemble_size": size, "write_quorum": write, "ack_quorum": ack}
    writer = open_writer(world, client, **options)
    payloads = [b"%d" % number for number in range(5)]
    for payload in payloads:
        world.run(writer.add(payload))
    limbo = members(world, writer)[0]
    limbo.policy = in_limbo(writer)
    try:
        reader = world.run(other.open_ledger(writer.ledger_id))
    except ClientError:
        # With Qa = 1 an entry may be on that bookie alone.
        assert ack == 1
        assert world.stored(writer.ledger_id).state is LedgerState.IN_RECOVERY
        return
    assert world.run(collect(reader.read())) == payloads


@PROTOCOLS
def test_s24_a_stalled_recoverer_adopts_what_another_has_closed(
    protocol: ProtocolVersion,
) -> None:
    world = World(5)
    writer = open_writer(world, world.client(protocol=protocol))
    first, second, third = members(world, writer)
    for bookie in (second, third):
        bookie.policy = policy((is_add, Fate.LOSE))
    adding = world.start(_await(writer.add(b"e0")))
    world.settle(1)
    one, two = world.client(protocol=protocol, seed=1), world.client(protocol=protocol, seed=2)
    # R1 has read e0 and stalls in its write back; R2 does not see e0 and closes empty.
    for bookie in (first, second, third):
        bookie.policy = policy((is_recovery_add, Fate.HOLD))
    opening = world.start(one.open_ledger(writer.ledger_id))
    world.settle(0.5)
    first.policy = policy((is_recovery_read, Fate.LOSE), (is_fence, Fate.LOSE))
    for bookie in (second, third):
        bookie.policy = policy()
    reader = world.run(two.open_ledger(writer.ledger_id), limit_s=4.0)
    assert reader.last_add_confirmed == -1
    closed = world.stored(writer.ledger_id)
    for bookie in (first, second, third):
        bookie.policy = policy()
        bookie.release()
    late = opening.finish()
    assert late.last_add_confirmed == -1, "the store's word holds"
    assert world.stored(writer.ledger_id) == closed
    world.settle(10)
    assert isinstance(adding.result, ClientError)


def test_s25_the_mark_is_stored_before_anybody_is_fenced() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    world.run(writer.add(b"e0"))
    states: list[LedgerState] = []

    def look(request: Request) -> Ruling:
        if is_fence(request):
            states.append(world.stored(writer.ledger_id).state)
        return Fate.SERVE

    for bookie in world.bookies.values():
        bookie.policy = look
    world.metadata.delay_s = lambda operation: 1.0 if operation.name == "set" else 0.0
    world.run(world.client(seed=1).open_ledger(writer.ledger_id))
    assert states[0] is LedgerState.IN_RECOVERY
    assert len(states) == 3


@PROTOCOLS
def test_s42_the_length_is_exact_where_nothing_was_recovered(protocol: ProtocolVersion) -> None:
    world = World(5)
    client = world.client(protocol=protocol)
    writer = open_writer(world, client)
    for number in range(5):
        world.run(writer.add(b"x" * number))
    world.kill(members(world, writer)[0].bookie_id)
    # Nobody acks the entry that causes the change.
    for bookie in world.bookies.values():
        bookie.policy = policy((is_add, Fate.LOSE))
    adding = world.start(_await(writer.add(b"never stored")))
    world.settle(1)
    stored = world.stored(writer.ledger_id)
    assert [fragment.first_entry_id for fragment in stored.fragments] == [0, 5]
    reader = world.run(world.client(protocol=protocol, seed=1).open_ledger(writer.ledger_id))
    assert reader.last_add_confirmed == 4
    assert reader.length == 0 + 1 + 2 + 3 + 4
    world.settle(10)
    assert isinstance(adding.result, ClientError)


# Odds and ends ---------------------------------------------------------------------------------


@PROTOCOLS
@pytest.mark.parametrize(("size", "write", "ack"), [(4, 2, 2), (5, 3, 2), (2, 1, 1), (3, 2, 1)])
def test_recovery_of_striped_ledgers(
    protocol: ProtocolVersion, size: int, write: int, ack: int
) -> None:
    world = World(6)
    client, other = world.client(protocol=protocol), world.client(protocol=protocol, seed=1)
    writer = open_writer(world, client, ensemble_size=size, write_quorum=write, ack_quorum=ack)
    payloads = [b"entry %d" % number for number in range(40)]
    world.run(writer.add_many(payloads))
    world.settle(1)
    steps: list[RecoveryProgress] = []
    metadata = world.run(cluster_operations.recover_ledger(other, writer.ledger_id, steps.append))
    assert metadata.last_entry_id == 39
    assert metadata.length == sum(map(len, payloads))
    assert steps[0].step == "fencing"
    assert steps[-1].step == "closed"
    assert steps[-1].last_entry == 39
    reader = world.run(other.open_ledger(writer.ledger_id))
    assert world.run(collect(reader.read())) == payloads


@pytest.mark.parametrize("entries", [0, 1])
def test_the_last_step_of_a_recovery_has_the_end_of_a_short_ledger(entries: int) -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    writer = open_writer(world, client)
    world.run(writer.add_many([b"entry"] * entries))
    steps: list[RecoveryProgress] = []
    metadata = world.run(cluster_operations.recover_ledger(other, writer.ledger_id, steps.append))
    assert (steps[-1].last_entry, metadata.last_entry_id) == (entries - 1, entries - 1)


def test_recovery_with_a_bookie_down_and_many_entries_in_flight() -> None:
    world = World(5)
    client, other = world.client(), world.client(seed=1, recovery_read_batch_size=8)
    writer = open_writer(world, client)
    payloads = [b"entry %d" % number for number in range(100)]
    adding = world.start(_await(writer.add_many(payloads)))
    members(world, writer)[1].policy = policy((is_add, Fate.LOSE_ANSWER))
    members(world, writer)[2].policy = policy((is_add, Fate.LOSE_ANSWER))
    world.settle(1)
    assert not adding.done
    world.kill(members(world, writer)[0].bookie_id)
    reader = world.run(other.open_ledger(writer.ledger_id))
    assert world.run(collect(reader.read())) == payloads
    world.check_copies(writer.ledger_id, payloads)


def test_a_recovery_replaces_who_is_silent_whatever_the_add_quorum_time_out() -> None:
    """As in Java, the time-out is a writer's: else each recovery would end before the change."""
    world = World(4)
    client = world.client(add_timeout_s=5, add_quorum_timeout_s=2)
    writer = open_writer(world, client, ack_quorum=3)
    world.run(writer.add(b"entry"))
    silent = members(world, writer)[1]
    silent.policy = policy((is_recovery_add, Fate.LOSE))
    reader = world.run(client.open_ledger(writer.ledger_id))
    assert reader.last_add_confirmed == 0
    assert silent.bookie_id not in reader.metadata.last_fragment.ensemble
    world.check_copies(writer.ledger_id, [b"entry"])


def test_a_second_change_of_a_recovery_keeps_the_first_replacement() -> None:
    world = World(6)
    client = world.client()
    writer = open_writer(world, client, ack_quorum=3)
    world.run(writer.add(b"entry"))
    ended = members(world, writer)[1:]
    for bookie in ended:
        bookie.policy = policy((is_recovery_add, Fate.LOSE))
    opening = world.start(world.client(seed=1).open_ledger(writer.ledger_id))
    world.settle(0.5)
    for bookie in ended:
        assert not opening.done
        world.kill(bookie.bookie_id)
        world.settle(0.5)
    reader = opening.finish()
    assert reader.last_add_confirmed == 0
    assert not {b.bookie_id for b in ended} & set(reader.metadata.last_fragment.ensemble)
    world.check_copies(writer.ledger_id, [b"entry"])


def test_racing_recoveries_agree() -> None:
    world = World(5, seed=3)
    world.delay_s = lambda: world.rng.uniform(0, 0.01)
    for round_ in range(5):
        writer = open_writer(world, world.client(seed=round_))
        world.start(_await(writer.add_many([b"%d" % n for n in range(20)])))
        world.settle(0.02)
        others = [world.client(seed=10 * round_ + n) for n in range(3)]
        opens = [world.start(other.open_ledger(writer.ledger_id)) for other in others]
        ends = {opening.finish().last_add_confirmed for opening in opens}
        assert len(ends) == 1
        (end,) = ends
        assert end >= writer.last_add_confirmed
        world.settle(1)


def test_a_wrong_password_fences_nobody() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    writer = open_writer(world, client, password=b"right")
    world.run(writer.add(b"x"))
    with pytest.raises(ClientUnauthorizedError):
        world.run(other.open_ledger(writer.ledger_id, password=b"wrong"))
    assert world.stored(writer.ledger_id).state is LedgerState.OPEN
    assert world.run(writer.add(b"y")) == 1


def test_recovery_with_all_bookies_silent_says_so() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    world.run(writer.add(b"x"))
    for bookie in world.bookies.values():
        bookie.policy = policy((everything, Fate.LOSE))
    with pytest.raises(RequestTimeoutError):
        world.run(world.client(seed=1).open_ledger(writer.ledger_id))


def test_a_cancelled_recovery_leaves_the_ledger_ready_for_the_next() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    world.run(writer.add(b"x"))
    for bookie in world.bookies.values():
        bookie.policy = policy((is_recovery_read, Fate.HOLD))
    opening = world.start(world.client(seed=1).open_ledger(writer.ledger_id))
    world.settle(1)
    opening.deferred.cancel()
    assert opening.done
    for bookie in world.bookies.values():
        bookie.policy = policy()
        bookie.release()
    world.settle(1)
    assert world.stored(writer.ledger_id).state is LedgerState.IN_RECOVERY
    reader = world.run(world.client(seed=2).open_ledger(writer.ledger_id))
    assert reader.last_add_confirmed == 0


def test_a_recovery_does_not_close_a_ledger_that_is_open_again() -> None:
    """As after a restore of older metadata: a writer may go on, and bookies may not be fenced."""
    world = World(3)
    client = world.client()
    writer = open_writer(world, client)
    world.run(writer.add(b"x"))
    for bookie in world.bookies.values():
        bookie.policy = policy((is_recovery_read, Fate.HOLD))
    opening = world.start(world.client(seed=1).open_ledger(writer.ledger_id))
    world.settle(1)
    marked = world.run(client.store.read_ledger(writer.ledger_id))
    restored = attrs.evolve(marked.value, state=LedgerState.OPEN)
    world.run(client.store.write_ledger(writer.ledger_id, restored, marked.version))
    for bookie in world.bookies.values():
        bookie.policy = policy()
        bookie.release()
    with pytest.raises(LedgerRecoveryError, match="went back from IN_RECOVERY to OPEN"):
        opening.finish()
    assert world.stored(writer.ledger_id).state is LedgerState.OPEN


def test_entries_are_written_back_to_bookies_that_take_only_such_adds() -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    world.run(writer.add(b"x"))
    world.run(world.client(seed=1).open_ledger(writer.ledger_id))
    written = [r for bookie in world.bookies.values() for r in bookie.log if is_recovery_add(r)]
    assert {r.flags for r in written} == {AddFlag.RECOVERY | AddFlag.HIGH_PRIORITY}


@pytest.mark.parametrize("step", ["fencing", "reading", "closing"])
def test_a_report_that_fails_ends_the_recovery_with_its_error(step: str) -> None:
    world = World(3)
    writer = open_writer(world, world.client())
    for payload in (b"0", b"1", b"2"):
        world.run(writer.add(payload))

    def report(progress: RecoveryProgress) -> None:
        if progress.step == step:
            raise BrokenPipeError("nobody reads the progress")

    failure = world.failure(
        Deferred.fromCoroutine(
            cluster_operations.recover_ledger(world.client(seed=1), writer.ledger_id, report)
        )
    )
    assert "nobody reads the progress" in str(failure)
    reader = world.run(world.client(seed=2).open_ledger(writer.ledger_id))
    assert reader.last_add_confirmed == 2


@PROTOCOLS
def test_an_entry_that_only_java_would_have_added_is_recovered(protocol: ProtocolVersion) -> None:
    world = World(3)
    writer = open_writer(world, world.client(protocol=protocol))
    world.run(writer.add(b"0"))
    # As Java's writer adds it, which leaves nothing of a frame free.
    payload = bytes(FRAME_BYTES_MAX - RECOVERY_FRAME_BYTES)
    digester = digest.digester(DigestType.CRC32C, b"")
    packet = digester.package(writer.ledger_id, 1, 0, 1 + len(payload), payload)
    first, second, third = members(world, writer)
    for bookie in (first, second):
        bookie.ledgers[writer.ledger_id].entries[1] = packet
    reader = world.run(world.client(protocol=protocol, seed=1).open_ledger(writer.ledger_id))
    assert reader.last_add_confirmed == 1
    assert reader.length == 1 + len(payload)
    assert third.entries(writer.ledger_id)[1] == payload


def test_what_recovery_keeps_free_of_a_frame_is_enough_for_any_add() -> None:
    keys = LedgerKeys(
        ledger_id=LedgerId(2**63 - 2),
        master_key=digest.master_key(b"secret"),
        digester=digest.digester(DigestType.MAC, b"secret"),
    )
    flags = AddFlag.RECOVERY | AddFlag.HIGH_PRIORITY
    frames = FrameMaker(keys, flags, lambda count: range(2**63 - 1 - count, 2**63 - 1))
    payload = bytes(FRAME_BYTES_MAX - RECOVERY_FRAME_BYTES)
    packet = keys.digester.package(keys.ledger_id, 2**40, 2**40 - 1, 2**62, payload)
    (data, _) = AddBatch([(2**40, packet)], frames).v3()
    assert len(data) <= FRAME_BYTES_MAX


def test_v2_recovers_over_v3_so_that_answers_cannot_be_mistaken() -> None:
    world = World(3)
    client = world.client(protocol=ProtocolVersion.V2)
    writer = open_writer(world, client)
    world.run(writer.add(b"x"))
    reader = world.run(client.open_ledger(writer.ledger_id, recover=False))
    held = members(world, writer)[0]
    held.policy = policy((everything, Fate.HOLD))
    # A plain read of the last entry is in flight when the same client recovers the ledger.
    reading = world.start(reader.read_entry(0, unconfirmed=True))
    opening = world.start(client.open_ledger(writer.ledger_id))
    world.settle(1)
    held.policy = policy()
    held.release()
    assert opening.finish().last_add_confirmed == 0
    assert reading.finish().payload == b"x"


def test_fencing_alone_reports_who_answered() -> None:
    world = World(3)
    client, other = world.client(), world.client(seed=1)
    writer = open_writer(world, client)
    world.run(writer.add(b"x"))
    first, second, third = members(world, writer)
    world.kill(third.bookie_id)
    report = world.run(cluster_operations.fence_ledger(other, writer.ledger_id))
    assert report.fenced == (first.bookie_id, second.bookie_id)
    assert set(report.failed) == {third.bookie_id}
    assert report.covered
    assert not report.was_closed
    assert world.stored(writer.ledger_id).state is LedgerState.IN_RECOVERY
    world.kill(second.bookie_id)
    assert not world.run(cluster_operations.fence_ledger(other, writer.ledger_id)).covered
    with pytest.raises(ClientError):
        world.run(writer.add(b"y"))


def test_fencing_a_closed_ledger_touches_nobody() -> None:
    world = World(3)
    client = world.client()
    writer = open_writer(world, client)
    world.run(writer.close())
    assert world.run(cluster_operations.fence_ledger(client, writer.ledger_id)).was_closed
    assert not any(is_fence(r) for bookie in world.bookies.values() for r in bookie.log)
