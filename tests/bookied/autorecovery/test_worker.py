"""The replication worker on a cluster in memory: locks, marks, patience, and what does not stop it.

Scenarios of client.md 16.3 are named by their numbers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from twisted.logger import capturedLogs, formatEvent

from bkclient.errors import ClientError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.replication.autorecovery_admin import Pause
from bookied.autorecovery.worker import REPORTED_MAX
from tests.bkclient.replication_world import (
    STRIPED,
    TRIPLE,
    check_whole,
    closed_ledger,
    is_reading,
    mark,
    marks,
    member,
    open_writer,
    payloads,
    store_of,
)
from tests.bkclient.worlds import Fate, World, is_fence, is_recovery_add, when
from tests.bookied.autorecovery.workers import RunningWorker, run_until_no_marks
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.codes import LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment
from wire.messages import AddRequest, ReadLacRequest

GRACE_S = 30.0
SINGLE: dict[str, Any] = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


def lose(world: World, ledger_id: LedgerId, index: int = 0) -> BookieId:
    """Kill a bookie of a ledger and mark the ledger for it."""
    bookie_id = member(world, ledger_id, index).bookie_id
    world.kill(bookie_id)
    mark(world, ledger_id, bookie_id)
    world.settle()
    return bookie_id


def times_of(world: World, name: str, path: str) -> list[float]:
    """Return when operations of a name come for a node, from now on; sees no other fault."""
    seen: list[float] = []

    def fault(operation: TreeOperation) -> Fault:
        if (operation.name, operation.path) == (name, path):
            seen.append(world.clock.seconds())
        return Fault.NONE

    world.metadata.faults = fault
    return seen


def locks(world: World) -> list[str]:
    try:
        return world.metadata.children(zk_paths.LOCKS)
    except ClientError:
        return []


# Closed ledgers --------------------------------------------------------------------------------


def test_a_marked_ledger_is_made_whole_and_its_mark_and_lock_go() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 25)
    lost = lose(world, ledger_id)
    RunningWorker(world)
    world.settle()
    assert lost not in check_whole(world, ledger_id, payloads(25)).all_bookies()
    assert (marks(world), locks(world)) == ({}, [])


def test_marks_that_come_later_are_taken_up_too() -> None:
    world = World(5)
    client = world.client()
    first, second = closed_ledger(world, client, 3), closed_ledger(world, client, 3)
    RunningWorker(world)
    world.settle(100)
    for ledger_id in (first, second):
        mark(world, ledger_id, lose(world, ledger_id))
        world.settle(10)
        check_whole(world, ledger_id, payloads(3))
    assert marks(world) == {}


def test_a_mark_of_a_ledger_that_lacks_nothing_just_goes() -> None:
    world = World(3)
    ledger_id = closed_ledger(world, world.client(), 3)
    before = world.stored(ledger_id)
    mark(world, ledger_id, "b1")
    RunningWorker(world)
    world.settle()
    assert marks(world) == {}
    assert world.stored(ledger_id) == before


def test_s36_the_mark_of_a_deleted_ledger_goes() -> None:
    world = World(3)
    mark(world, LedgerId(99), "b1")
    RunningWorker(world)
    world.settle()
    assert (marks(world), locks(world)) == ({}, [])


def test_s36_a_ledger_that_is_deleted_during_its_repair_loses_its_mark() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 6)
    lose(world, ledger_id)
    for bookie in world.bookies.values():
        bookie.policy = when(is_recovery_add, Fate.HOLD_ANSWER)
    RunningWorker(world)
    world.settle(1)
    world.run(client.delete_ledger(ledger_id))
    for bookie in world.bookies.values():
        bookie.release()
    world.settle(1)
    assert (marks(world), locks(world)) == ({}, [])


def test_s40_a_replica_whose_last_entry_is_corrupt_is_replaced() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 8)
    rotten = member(world, ledger_id, 1)
    entries = rotten.ledgers[ledger_id].entries
    entries[7] = entries[7][:-1] + b"~"
    mark(world, ledger_id, rotten.bookie_id)
    RunningWorker(world)
    world.settle()
    metadata = check_whole(world, ledger_id, payloads(8))
    assert rotten.bookie_id not in metadata.all_bookies()
    assert marks(world) == {}


@pytest.mark.parametrize("seed", range(3))
def test_what_one_sample_has_found_is_repaired_though_the_next_one_would_not_find_it(
    seed: int,
) -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 60)
    bookie = member(world, ledger_id, 1)
    held = sorted(bookie.ledgers[ledger_id].entries)
    del bookie.ledgers[ledger_id].entries[held[len(held) // 2]]
    mark(world, ledger_id, bookie.bookie_id)
    RunningWorker(world, seed=seed, verified_percentage=5)
    world.settle()
    check_whole(world, ledger_id, payloads(60))
    assert marks(world) == {}


def test_s34_with_no_spare_bookie_the_mark_stays_until_one_comes() -> None:
    world = World(3)
    ledger_id = closed_ledger(world, world.client(), 6)
    lose(world, ledger_id)
    RunningWorker(world)
    world.settle(100)
    assert list(marks(world)) == [ledger_id]
    world.add_bookie("b4")
    run_until_no_marks(world)
    check_whole(world, ledger_id, payloads(6))


def test_a_fragment_that_cannot_be_copied_keeps_no_other_waiting() -> None:
    world = World(5)
    client = world.client()
    writer = open_writer(world, client, 4)
    ledger_id = writer.ledger_id
    first = member(world, ledger_id, 0).bookie_id
    world.kill(first)
    world.run(writer.add_many(payloads(4, b"later")))
    world.run(writer.close())
    lost = lose(world, ledger_id, 1)
    for bookie in world.bookies.values():
        bookie.policy = when(is_reading(2), Fate.LOSE)
    RunningWorker(world)
    world.settle(60)
    old, new = world.stored(ledger_id).fragments
    assert first in old.ensemble
    assert lost not in new.ensemble
    for bookie in world.bookies.values():
        bookie.policy = lambda _request: Fate.SERVE
    run_until_no_marks(world)
    check_whole(world, ledger_id, [*payloads(4), *payloads(4, b"later")])


def test_an_entry_that_could_not_be_read_is_tried_first_and_alone() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 20)
    lose(world, ledger_id)
    (target,) = set(world.bookies) - set(world.stored(ledger_id).ensemble)
    for bookie in world.bookies.values():
        bookie.policy = when(is_reading(15), Fate.LOSE)
    RunningWorker(world)
    world.settle(14)
    copied = sum(isinstance(r, AddRequest) for r in world.bookies[target].log)
    assert copied == 10
    world.settle(200)
    assert sum(isinstance(r, AddRequest) for r in world.bookies[target].log) == copied


def test_a_failing_ledger_is_left_alone_longer_each_time() -> None:
    world = World(3)
    ledger_id = closed_ledger(world, world.client(), 6)
    lose(world, ledger_id)
    begun = times_of(world, "create", zk_paths.lock(ledger_id))
    RunningWorker(world)
    world.settle(1300)
    pauses = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert [round(pause) for pause in pauses] == [9, 19, 38, 75, 150, 300, 300, 300]


def pause_repair(world: World) -> LedgerId:
    """Let a worker wait before it tries again to repair a ledger of which no copy is left."""
    ledger_id = closed_ledger(world, world.client(), 6)
    for bookie_id in world.stored(ledger_id).ensemble[1:]:
        world.kill(bookie_id)
    lose(world, ledger_id)
    RunningWorker(world)
    world.settle(700)
    return ledger_id


@pytest.mark.parametrize("all_held", [False, True])
def test_a_bookie_that_registers_ends_the_pause_after_a_failure(
    all_held: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if all_held:
        monkeypatch.setattr("bookied.autorecovery.worker.LOCKED_MAX", 1)
    world = World(3)
    ledger_id = closed_ledger(world, world.client(), 6)
    lost = lose(world, ledger_id)
    RunningWorker(world)
    world.settle(400)
    assert locks(world)
    world.restart(lost)
    world.settle(1)
    assert (marks(world), locks(world)) == ({}, [])


def test_a_bookie_that_is_lost_does_not_end_the_pause_after_a_failure() -> None:
    world = World(4)
    ledger_id = pause_repair(world)
    held = locks(world)
    taken: list[TreeOperation] = []

    def fault(operation: TreeOperation) -> Fault:
        if operation.path == zk_paths.lock(ledger_id):
            taken.append(operation)
        return Fault.NONE

    world.metadata.faults = fault
    (spare,) = set(world.bookies) - set(world.stored(ledger_id).ensemble)
    world.kill(spare)
    world.settle(5)
    assert (taken, locks(world)) == ([], held)


def test_a_ledger_with_many_fragments_that_cannot_be_repaired_takes_few_lines() -> None:
    world = World(3)
    ledger_id = closed_ledger(world, world.client(), 60)
    stored = world.stored(ledger_id)
    fragments = tuple(Fragment(EntryId(n), stored.ensemble) for n in range(60))
    world.run(store_of(world).write_ledger(ledger_id, attrs.evolve(stored, fragments=fragments), 1))
    lose(world, ledger_id)
    with capturedLogs() as events:
        RunningWorker(world)
        world.settle(1300)
    lines = [formatEvent(event) for event in events]
    assert sum("is not repaired" in line for line in lines) == REPORTED_MAX
    assert any("more fragments are not repaired" in line for line in lines)


def test_a_bookie_that_registers_all_the_time_ends_pauses_once_a_minute() -> None:
    world = World(4)
    ledger_id = pause_repair(world)
    begun = times_of(world, "create", zk_paths.lock(ledger_id))
    (spare,) = set(world.bookies) - set(world.stored(ledger_id).ensemble)
    for _ in range(60):
        world.kill(spare)
        world.settle(2)
        world.restart(spare)
        world.settle(2)
    assert len(begun) >= 3
    assert all(later - earlier >= 60 for earlier, later in itertools.pairwise(begun))


def test_a_bookie_that_comes_back_within_a_minute_ends_pauses_when_the_minute_is_over() -> None:
    world = World(3)
    ledger_id = closed_ledger(world, world.client(), 6)
    lost = lose(world, ledger_id)
    RunningWorker(world)
    world.settle(700)
    world[lost].policy = lambda _request: Fate.LOSE
    world.restart(lost)
    world.settle(5)
    world.kill(lost)
    world.settle(5)
    world[lost].policy = lambda _request: Fate.SERVE
    world.restart(lost)
    world.settle(40)
    assert list(marks(world)) == [ledger_id]
    world.settle(80)
    assert (marks(world), locks(world)) == ({}, [])


def test_after_a_failure_the_worker_rests_before_the_next_ledger() -> None:
    world = World(3)
    client = world.client()
    ledgers = [closed_ledger(world, client, 1) for _ in range(3)]
    world.kill("b1")
    for ledger_id in ledgers:
        mark(world, ledger_id, "b1")
    RunningWorker(world)
    world.settle(4)
    assert len(locks(world)) == 1
    world.settle(4)
    assert len(locks(world)) == 2


def test_the_rate_of_ledgers_is_kept() -> None:
    world = World(3)
    client = world.client()
    for _ in range(10):
        mark(world, closed_ledger(world, client, 1), "b1")
    RunningWorker(world, repairs_per_s=0.5)
    world.settle(9)
    assert len(marks(world)) == 5


def test_while_re_replication_is_disabled_nothing_is_taken_up() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 6)
    lose(world, ledger_id)
    store = store_of(world)
    world.run(store.set_replication_enabled(enabled=False))
    RunningWorker(world)
    world.settle(500)
    assert (list(marks(world)), locks(world)) == ([ledger_id], [])
    world.run(store.set_replication_enabled(enabled=True))
    world.settle(1)
    check_whole(world, ledger_id, payloads(6))


def test_a_pause_ends_by_itself_and_what_was_marked_is_repaired() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 6)
    lose(world, ledger_id)
    store = store_of(world)
    now_ms = int(world.clock.seconds() * 1000)
    note = Pause(since_ms=now_ms, until_ms=now_ms + 7_200_000).encode()
    world.run(store.set_replication_enabled(enabled=False, note=note))
    RunningWorker(world)
    world.settle(7_100)
    assert not world.run(store.replication_enabled())
    assert list(marks(world)) == [ledger_id]
    world.settle(101)
    assert world.run(store.replication_enabled())
    check_whole(world, ledger_id, payloads(6))


def test_a_pause_that_is_made_longer_ends_later() -> None:
    world = World(4)
    store = store_of(world)
    now_ms = int(world.clock.seconds() * 1000)
    note = Pause(until_ms=now_ms + 1_000_000).encode()
    world.run(store.set_replication_enabled(enabled=False, note=note))
    RunningWorker(world)
    world.settle(900)
    world.run(store.set_replication_note(Pause(until_ms=now_ms + 2_000_000).encode()))
    world.settle(1_000)
    assert not world.run(store.replication_enabled())
    world.settle(101)
    assert world.run(store.replication_enabled())


@pytest.mark.parametrize(
    "note", [b"", b"by hand", b'{"until_ms": "soon"}', b'{"until_ms": 1e999}', b"[" * 100_000]
)
def test_a_pause_without_an_end_stays(note: bytes) -> None:
    world = World(4)
    store = store_of(world)
    world.run(store.set_replication_enabled(enabled=False, note=note))
    RunningWorker(world)
    world.settle(10_000)
    assert not world.run(store.replication_enabled())


# Locks and marks -------------------------------------------------------------------------------


def test_a_ledger_that_somebody_else_has_locked_is_left_to_him() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 6)
    lose(world, ledger_id)
    other = store_of(world)
    assert world.run(other.acquire_lock(ledger_id))
    RunningWorker(world)
    world.settle(300)
    assert list(marks(world)) == [ledger_id]
    world.run(other.release_lock(ledger_id))
    world.settle(1)
    check_whole(world, ledger_id, payloads(6))
    assert marks(world) == {}


def test_s31_a_mark_that_is_renewed_during_the_repair_stays_and_is_seen_to() -> None:
    world = World(5)
    ledger_id = closed_ledger(world, world.client(), 6)
    lose(world, ledger_id, 0)
    for bookie in world.bookies.values():
        bookie.policy = when(is_recovery_add, Fate.HOLD_ANSWER)
    RunningWorker(world)
    world.settle(1)
    mark(world, ledger_id, "b99")
    deleted = times_of(world, "delete", zk_paths.mark(ledger_id))
    for bookie in world.bookies.values():
        bookie.release()
        bookie.policy = lambda _request: Fate.SERVE
    world.settle(1)
    # Refused once for its version; then the ledger was taken up again, and checked again.
    assert len(deleted) == 2
    assert marks(world) == {}
    check_whole(world, ledger_id, payloads(6))


@pytest.mark.parametrize("steps", range(10))
def test_s31_a_ledger_that_is_marked_again_as_its_repair_ends_stays_marked(steps: int) -> None:
    """Between any two steps of the auditor: the worker looked before the bookie was lost again."""
    world = World(5)
    ledger_id = closed_ledger(world, world.client(), 6)
    mark(world, ledger_id, "b1")
    worker, auditor = store_of(world), store_of(world)
    assert world.run(worker.take_underreplicated(ledger_id))
    step_s = {auditor.session_id: 1.0}
    world.metadata.delay_s = lambda operation: step_s.get(operation.session_id, 0.0)
    marking = world.start(auditor.mark_underreplicated(ledger_id, (BookieId("b1"),)))
    world.settle(steps + 0.75)
    world.run(worker.mark_replicated(ledger_id))
    world.settle(30)
    marking.finish()
    assert list(marks(world)) == [ledger_id]


def test_s30_a_worker_whose_session_expired_takes_no_mark_away_that_is_not_its() -> None:
    world = World(5)
    ledger_id = closed_ledger(world, world.client(), 6)
    lose(world, ledger_id, 0)
    for bookie in world.bookies.values():
        bookie.policy = when(is_recovery_add, Fate.HOLD_ANSWER)
    slow = RunningWorker(world)
    world.settle(1)
    slow.session.expire()
    # Another one holds the lock now, and the ledger is marked again.
    other = store_of(world)
    assert world.run(other.acquire_lock(ledger_id))
    mark(world, ledger_id, "b99")
    for bookie in world.bookies.values():
        bookie.release()
    world.settle(1)
    check_whole(world, ledger_id, payloads(6))
    assert list(marks(world)) == [ledger_id]
    assert locks(world) == [zk_paths.lock(ledger_id).rpartition("/")[2]]


def test_two_workers_share_the_work() -> None:
    world = World(6)
    client = world.client()
    ledgers = [closed_ledger(world, client, 12) for _ in range(12)]
    world.kill("b1")
    affected = [i for i in ledgers if "b1" in world.stored(i).all_bookies()]
    for ledger_id in affected:
        mark(world, ledger_id, "b1")
    for seed in range(2):
        RunningWorker(world, seed=seed)
    run_until_no_marks(world)
    for ledger_id in ledgers:
        check_whole(world, ledger_id, payloads(12))


def test_a_lock_whose_release_fails_is_released_later() -> None:
    world = World(3)
    ledger_id = closed_ledger(world, world.client(), 6)
    lose(world, ledger_id)
    broken = True

    def fault(operation: TreeOperation) -> Fault:
        is_release = operation.name == "delete" and operation.path == zk_paths.lock(ledger_id)
        return Fault.REQUEST_LOST if broken and is_release else Fault.NONE

    world.metadata.faults = fault
    worker = RunningWorker(world)
    world.settle(60)
    assert len(locks(world)) == 1
    broken = False
    world.settle(10)
    worker.stop()
    assert not worker.worker._locked


def test_a_mark_that_cannot_be_removed_is_seen_to_again() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 6)
    lose(world, ledger_id)
    refused: list[TreeOperation] = []

    def fault(operation: TreeOperation) -> Fault:
        if operation.name == "delete" and operation.path == zk_paths.mark(ledger_id):
            refused.append(operation)
            return Fault.REQUEST_LOST if len(refused) < 20 else Fault.NONE
        return Fault.NONE

    world.metadata.faults = fault
    RunningWorker(world)
    run_until_no_marks(world)
    assert len(refused) == 20
    assert locks(world) == []


def test_s29_copies_that_were_dropped_before_the_swap_are_made_again() -> None:
    """The new bookie collects a ledger that the metadata does not place there yet."""
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 6)
    lose(world, ledger_id)
    (target,) = set(world.bookies) - set(world.stored(ledger_id).ensemble)
    dropped: list[TreeOperation] = []

    def fault(operation: TreeOperation) -> Fault:
        if operation.name == "set" and "/L" in operation.path and not dropped:
            dropped.append(operation)
            world.bookies[target].ledgers.clear()
        return Fault.NONE

    world.metadata.faults = fault
    RunningWorker(world)
    world.settle(1)
    assert dropped
    assert list(marks(world)) == [ledger_id]
    world.add_bookie("b5")
    run_until_no_marks(world)
    check_whole(world, ledger_id, payloads(6))


# Ledgers that grow -----------------------------------------------------------------------------


def test_s26_a_ledger_that_grows_on_a_lost_bookie_is_recovered_after_the_grace_period() -> None:
    """Nothing was ever written, so nothing is missing: but with the next loss all would be."""
    world = World(4)
    writer = open_writer(world, world.client(), 0)
    lose(world, writer.ledger_id)
    RunningWorker(world)
    world.settle(GRACE_S - 1)
    assert world.stored(writer.ledger_id).state is LedgerState.OPEN
    assert len(locks(world)) == 1
    world.settle(5)
    assert world.stored(writer.ledger_id).is_closed
    run_until_no_marks(world)
    check_whole(world, writer.ledger_id, [])


def test_s27_a_writer_that_replaces_the_lost_bookie_itself_is_not_fenced() -> None:
    world = World(5)
    writer = open_writer(world, world.client(), 5)
    ledger_id = writer.ledger_id
    lost = lose(world, ledger_id)
    RunningWorker(world)
    world.settle(10)
    world.run(writer.add_many(payloads(5, b"later")))
    world.settle(300)
    assert not any(is_fence(r) for bookie in world.bookies.values() for r in bookie.log)
    assert world.run(writer.add(b"still mine")) == 10
    metadata = check_whole(world, ledger_id, [*payloads(5), *payloads(5, b"later"), b"still mine"])
    assert metadata.state is LedgerState.OPEN
    assert lost not in metadata.all_bookies()
    assert marks(world) == {}


def test_s33_a_penultimate_fragment_is_copied_although_the_lac_is_short_of_it() -> None:
    """Nothing was added since the ensemble changed, so nobody on it knows a LAC."""
    world = World(5)
    writer = open_writer(world, world.client(), 5)
    ledger_id = writer.ledger_id
    world[member(world, ledger_id, 0).bookie_id].policy = when(
        lambda r: isinstance(r, AddRequest), Fate.LOSE
    )
    failing = member(world, ledger_id, 0).bookie_id
    world.kill(failing)
    world.run(writer.add(b"moves on"))
    for bookie in world.stored(ledger_id).ensemble:
        world.bookies[bookie].policy = when(lambda r: isinstance(r, ReadLacRequest), Fate.LOSE)
    mark(world, ledger_id, failing)
    RunningWorker(world)
    world.settle(20)
    assert failing not in world.stored(ledger_id).all_bookies()
    assert world.stored(ledger_id).state is LedgerState.OPEN
    assert world.run(writer.add(b"goes on")) == 6


def test_a_bookie_that_is_back_within_the_grace_period_is_no_reason_to_fence() -> None:
    world = World(4)
    writer = open_writer(world, world.client(), 5)
    lost = lose(world, writer.ledger_id)
    RunningWorker(world)
    world.settle(10)
    world.restart(lost)
    run_until_no_marks(world)
    assert world.stored(writer.ledger_id).state is LedgerState.OPEN
    assert world.run(writer.add(b"still mine")) == 5


def test_a_bookie_that_only_turned_read_only_is_no_reason_to_fence() -> None:
    """Java fences then; the writer can see to that itself with its next add."""
    world = World(4)
    writer = open_writer(world, world.client(), 5)
    quiet = member(world, writer.ledger_id).bookie_id
    world.turn_read_only(quiet)
    mark(world, writer.ledger_id, quiet)
    RunningWorker(world)
    world.settle(100)
    assert marks(world) == {}
    assert world.run(writer.add(b"still mine")) == 5


def test_a_writer_whose_latest_entries_are_on_their_way_is_not_fenced() -> None:
    """One bookie is slow for longer than the grace period, but only with what is new."""
    world = World(3)
    client = world.client(add_timeout_s=1000)
    writer = open_writer(world, client, 3)
    slow = member(world, writer.ledger_id, 2)
    mark(world, writer.ledger_id, slow.bookie_id)
    slow.policy = when(lambda r: isinstance(r, AddRequest), Fate.HOLD)
    world.run(writer.add(b"confirmed by two"))
    world.run(writer.add(b"tells the LAC"))
    RunningWorker(world)
    for number in range(8):
        world.settle(10)
        world.run(writer.add(b"more %d" % number))
        slow.release(lambda r, keep=writer.last_add_confirmed: r.entry_id < keep - 1)
    assert not any(is_fence(r) for bookie in world.bookies.values() for r in bookie.log)


def test_an_open_ledger_that_has_lost_a_confirmed_entry_for_good_is_recovered() -> None:
    world = World(4)
    writer = open_writer(world, world.client(), 3)
    world.run(writer.add(b"tells the LAC"))
    rotten = member(world, writer.ledger_id, 1)
    rotten.ledgers[writer.ledger_id].entries.pop(2)
    mark(world, writer.ledger_id, rotten.bookie_id)
    RunningWorker(world, verified_percentage=100)
    run_until_no_marks(world)
    expected = [*payloads(3), b"tells the LAC"]
    assert check_whole(world, writer.ledger_id, expected).is_closed


def test_nobody_is_fenced_while_re_replication_is_disabled() -> None:
    world = World(4)
    writer = open_writer(world, world.client(), 0)
    lose(world, writer.ledger_id)
    RunningWorker(world)
    world.settle(10)
    store = store_of(world)
    world.run(store.set_replication_enabled(enabled=False))
    world.settle(300)
    assert world.stored(writer.ledger_id).state is LedgerState.OPEN
    assert locks(world) == []
    world.run(store.set_replication_enabled(enabled=True))
    run_until_no_marks(world)
    assert world.stored(writer.ledger_id).is_closed


def test_while_one_ledger_has_its_grace_period_others_are_repaired() -> None:
    world = World(5)
    client = world.client()
    writer = open_writer(world, client, 0)
    lost = lose(world, writer.ledger_id)
    ledgers = [closed_ledger(world, client, 3) for _ in range(5)]
    for ledger_id in ledgers:
        mark(world, ledger_id, lost)
    RunningWorker(world)
    world.settle(5)
    assert list(marks(world)) == [writer.ledger_id]


def test_old_fragments_are_repaired_even_if_nobody_knows_where_the_ledger_ends() -> None:
    """The quorum of the last fragment is gone; what is before it need not go too."""
    world = World(7)
    writer = open_writer(world, world.client(), 5)
    ledger_id = writer.ledger_id
    first = member(world, ledger_id, 0).bookie_id
    world.kill(first)
    world.run(writer.add(b"in a second fragment"))
    old, new = world.stored(ledger_id).fragments
    world.kill(new.ensemble[0])
    world.kill(new.ensemble[1])
    mark(world, ledger_id, first)
    RunningWorker(world)
    world.settle(100)
    repaired = world.stored(ledger_id).fragments[0].ensemble
    assert all(world.bookies[bookie].up for bookie in repaired)
    assert repaired != old.ensemble
    assert list(marks(world)) == [ledger_id]


def test_l2_a_ledger_of_which_nobody_knows_the_end_stays_marked() -> None:
    """Its last fragment was not looked at, so nothing says that it is whole (I20)."""
    world = World(4)
    writer = open_writer(world, world.client(), 5)
    ledger_id = writer.ledger_id
    for bookie in world.bookies.values():
        bookie.policy = when(lambda request: isinstance(request, ReadLacRequest), Fate.LOSE)
    mark(world, ledger_id, member(world, ledger_id, 0).bookie_id)
    RunningWorker(world)
    world.settle(100)
    assert list(marks(world)) == [ledger_id]
    for bookie in world.bookies.values():
        bookie.policy = when(is_reading, Fate.SERVE)
    world.settle(200)
    assert list(marks(world)) == []


# What must not stop it -------------------------------------------------------------------------


def test_s34_a_ledger_whose_only_copy_is_gone_is_reported_once_and_keeps_no_other_waiting(
    logged: Callable[[], list[str]],
) -> None:
    """#4872: Java tries it for ever, as often as it can."""
    world = World(4)
    client = world.client()
    lost_ledger = closed_ledger(world, client, 3, **SINGLE)
    others = [closed_ledger(world, client, 3, **TRIPLE) for _ in range(5)]
    gone = lose(world, lost_ledger)
    for ledger_id in others:
        mark(world, ledger_id, gone)
    RunningWorker(world)
    world.settle(2000)
    assert list(marks(world)) == [lost_ledger]
    for ledger_id in others:
        check_whole(world, ledger_id, payloads(3))
    assert len([line for line in logged() if "without a replica in service" in line]) == 1
    world.restart(gone)
    run_until_no_marks(world)
    check_whole(world, lost_ledger, payloads(3))


def test_what_is_left_of_a_ledger_that_lost_entries_is_saved() -> None:
    """With striping, losing two of three leaves the entries that are on the third."""
    world = World(6)
    client = world.client()
    writer = open_writer(world, client, 6, **STRIPED)
    world.kill(member(world, writer.ledger_id, 0).bookie_id)
    world.run(writer.add_many(payloads(6, b"later")))
    world.run(writer.close())
    ledger_id = writer.ledger_id
    metadata = world.stored(ledger_id)
    only_in_old = set(metadata.fragments[0].ensemble) - set(metadata.fragments[1].ensemble)
    assert only_in_old
    for bookie in metadata.fragments[0].ensemble[1:]:
        world.kill(bookie)
    mark(world, ledger_id, *metadata.fragments[0].ensemble)
    RunningWorker(world)
    world.settle(400)
    assert list(marks(world)) == [ledger_id]


def test_l5_unreadable_metadata_stops_neither_the_worker_nor_other_ledgers() -> None:
    world = World(4)
    client = world.client()
    bad, good = closed_ledger(world, client, 3), closed_ledger(world, client, 3)
    world.metadata.set(zk_paths.LAYOUTS["hierarchical"].path_of(bad), b"no metadata")
    mark(world, bad, "b1")
    lose(world, good)
    with capturedLogs() as events:
        worker = RunningWorker(world)
        world.settle(300)
    assert list(marks(world)) == [bad]
    assert not worker.running.done
    lines = [line for line in map(formatEvent, events) if "is not repaired" in line]
    assert len(lines) == len(set(lines))


def test_l5_a_bug_in_the_repair_of_one_ledger_stops_neither(
    logged: Callable[[], list[str]],
) -> None:
    world = World(4)
    client = world.client()
    bad, good = closed_ledger(world, client, 3), closed_ledger(world, client, 3)
    mark(world, bad, "b1")
    lose(world, good)

    def fault(operation: TreeOperation) -> Fault:
        path = zk_paths.LAYOUTS["hierarchical"].path_of(bad)
        if operation.path == path and operation.session_id == worker.session_id:
            raise ZeroDivisionError
        return Fault.NONE

    worker = RunningWorker(world, begins=False)
    world.metadata.faults = fault
    worker.begin()
    world.settle(300)
    assert list(marks(world)) == [bad]
    assert not worker.running.done
    assert any("repairing ledger" in line for line in logged())


def test_what_fails_in_an_outage_is_told_once_and_counted_at_its_end(
    logged: Callable[[], list[str]],
) -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 3)
    away = MetadataUnavailableError("the service is away")

    def fault(operation: TreeOperation) -> Fault:
        if operation.path.startswith(zk_paths.MARKS) and worker.session_id:
            raise away
        return Fault.NONE

    worker = RunningWorker(world, begins=False)
    world.metadata.faults = fault
    worker.begin()
    world.settle(200)
    world.metadata.faults = lambda _operation: Fault.NONE
    lose(world, ledger_id)
    run_until_no_marks(world)
    told = [line for line in logged() if "cannot lock an under-replicated ledger" in line]
    assert len(told) == 2
    assert told[0].endswith("ledger: the service is away")
    assert re.search(r"failed [1-9]\d+ times, works again$", told[1])


def test_a_metadata_service_that_is_away_for_a_while_delays_repairs_only() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 30)
    lose(world, ledger_id)
    for bookie in world.bookies.values():
        bookie.policy = when(is_recovery_add, Fate.HOLD_ANSWER)
    worker = RunningWorker(world)
    world.settle(1)
    worker.session.suspend()
    for bookie in world.bookies.values():
        bookie.release()
        bookie.policy = lambda _request: Fate.SERVE
    world.settle(8)
    worker.session.resume()
    run_until_no_marks(world)
    check_whole(world, ledger_id, payloads(30))


# The end ---------------------------------------------------------------------------------------


def test_a_worker_that_is_stopped_releases_the_locks_of_what_waits() -> None:
    world = World(4)
    writer = open_writer(world, world.client(), 0)
    lose(world, writer.ledger_id)
    worker = RunningWorker(world)
    world.settle(10)
    assert len(locks(world)) == 1
    worker.stop()
    world.settle()
    assert locks(world) == []
    assert world.clock.getDelayedCalls() == []
    assert world.stored(writer.ledger_id).state is LedgerState.OPEN


def test_metadata_that_somebody_else_repaired_meanwhile_is_left_as_it_is() -> None:
    world = World(5)
    client = world.client()
    ledger_id = closed_ledger(world, client, 6)
    lose(world, ledger_id)
    for bookie in world.bookies.values():
        bookie.policy = when(is_recovery_add, Fate.HOLD_ANSWER)
    RunningWorker(world)
    world.settle(1)
    for bookie in world.bookies.values():
        bookie.policy = lambda _request: Fate.SERVE
    other = RunningWorker(world, seed=5)
    lock = zk_paths.lock(ledger_id)
    world.metadata.delete(lock)  # As an operator might.
    world.settle(5)
    done = check_whole(world, ledger_id, payloads(6))
    for bookie in world.bookies.values():
        bookie.release()
    run_until_no_marks(world)
    assert attrs.asdict(world.stored(ledger_id)) == attrs.asdict(done)
    assert not other.running.done


# Placement -------------------------------------------------------------------------------------

RACKS = {"host-b1": "/a", "host-b2": "/a", "host-b3": "/b", "host-b4": "/b"}
PAIR: dict[str, Any] = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 1}


async def script(hosts: Sequence[str]) -> str:
    return " ".join(RACKS[host] for host in hosts)


def in_one_rack(world: World, ledger_id: LedgerId) -> bool:
    return len({RACKS[f"host-{bookie}"] for bookie in world.stored(ledger_id).ensemble}) == 1


@pytest.mark.parametrize("wanted", [True, False])
def test_ledgers_in_one_rack_are_moved_where_that_is_wanted(*, wanted: bool) -> None:
    world = World(4)
    careless = world.client(seed=1)
    ledgers = [closed_ledger(world, careless, 7, **PAIR) for _ in range(8)]
    bad = [ledger_id for ledger_id in ledgers if in_one_rack(world, ledger_id)]
    assert bad
    before = {ledger_id: world.stored(ledger_id) for ledger_id in ledgers}
    for ledger_id in ledgers:
        mark(world, ledger_id)
    RunningWorker(world, client={"topology_script": script}, repair_placement=wanted)
    world.settle(1)
    assert marks(world) == {}
    assert [i for i in ledgers if in_one_rack(world, i)] == ([] if wanted else bad)
    for ledger_id in ledgers:
        after = check_whole(world, ledger_id, payloads(7))
        changed = sum(
            old != new for old, new in zip(before[ledger_id].ensemble, after.ensemble, strict=True)
        )
        assert changed == (wanted and ledger_id in bad)


ZONES = {"b1": "/a/1", "b2": "/a/2", "b3": "/a/3", "b4": "/b/1", "b5": "/c/1"}
ZONE_AWARE = "org.apache.bookkeeper.client.ZoneawareEnsemblePlacementPolicy"
REGION_AWARE = "org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy"


async def zone_script(hosts: Sequence[str]) -> str:
    return " ".join(ZONES[host.removeprefix("host-")] for host in hosts)


def zones(world: World, ledger_id: LedgerId) -> set[str]:
    return {ZONES[bookie][:2] for bookie in world.stored(ledger_id).ensemble}


@pytest.mark.parametrize("policy", [ZONE_AWARE, REGION_AWARE])
def test_a_ledger_in_one_zone_is_moved_but_one_in_one_region_adheres_as_with_java(
    policy: str,
) -> None:
    world = World(3)
    ledger_id = closed_ledger(
        world, world.client(), 7, ensemble_size=3, write_quorum=3, ack_quorum=2
    )
    for name in ("b4", "b5"):
        world.add_bookie(name)
    mark(world, ledger_id)
    settings = {"topology_script": zone_script, "placement_policy": policy}
    RunningWorker(world, client=settings, repair_placement=True)
    run_until_no_marks(world)
    check_whole(world, ledger_id, payloads(7))
    assert len(zones(world, ledger_id)) == (1 if policy == REGION_AWARE else 2)


def test_a_lost_bookie_is_replaced_in_its_zone_only_by_another_upgrade_domain() -> None:
    world = World(5)
    settings = {"topology_script": zone_script, "placement_policy": ZONE_AWARE}
    client = world.client(**settings)
    while True:
        ledger_id = closed_ledger(world, client, 7, ensemble_size=3, write_quorum=3, ack_quorum=2)
        if world.stored(ledger_id).all_bookies() >= {"b1", "b4", "b5"}:
            break
    world.kill("b4")
    mark(world, ledger_id, "b4")
    RunningWorker(world, client=settings)
    run_until_no_marks(world)
    members = check_whole(world, ledger_id, payloads(7)).all_bookies()
    assert members in ({"b1", "b2", "b5"}, {"b1", "b3", "b5"})


def test_a_ledger_that_cannot_be_spread_better_loses_its_mark() -> None:
    world = World(2)
    ledger_id = closed_ledger(world, world.client(), 3, **PAIR)
    mark(world, ledger_id)
    RunningWorker(world, client={"topology_script": script}, repair_placement=True)
    world.settle(1)
    assert marks(world) == {}


def test_a_move_to_another_rack_that_fails_is_tried_again() -> None:
    world = World(4)
    careless = world.client(seed=1)
    ledger_id = next(
        i
        for i in iter(lambda: closed_ledger(world, careless, 7, **PAIR), None)
        if in_one_rack(world, i)
    )
    mark(world, ledger_id)
    for bookie in world.bookies.values():
        bookie.policy = when(is_recovery_add, Fate.LOSE)
    RunningWorker(world, client={"topology_script": script}, repair_placement=True)
    world.settle(30)
    assert list(marks(world)) == [ledger_id]
    for bookie in world.bookies.values():
        bookie.policy = lambda _request: Fate.SERVE
    run_until_no_marks(world)
    assert not in_one_rack(world, ledger_id)
    check_whole(world, ledger_id, payloads(7))


def test_s29_a_move_to_another_rack_whose_copies_were_dropped_is_noticed() -> None:
    world = World(4)
    careless = world.client(seed=1)
    ledger_id = next(
        i
        for i in iter(lambda: closed_ledger(world, careless, 7, **PAIR), None)
        if in_one_rack(world, i)
    )
    mark(world, ledger_id)
    dropped: list[TreeOperation] = []

    def fault(operation: TreeOperation) -> Fault:
        if operation.name == "set" and "/L" in operation.path and not dropped:
            dropped.append(operation)
            for name in set(world.bookies) - set(world.stored(ledger_id).ensemble):
                world.bookies[name].ledgers.pop(ledger_id, None)
        return Fault.NONE

    world.metadata.faults = fault
    RunningWorker(world, client={"topology_script": script}, repair_placement=True)
    run_until_no_marks(world)
    assert dropped
    check_whole(world, ledger_id, payloads(7))
