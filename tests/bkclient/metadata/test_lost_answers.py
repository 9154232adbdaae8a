"""The store on a tree when the connection breaks: at every operation of every method in turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from bkclient.errors import LedgerExistsError, NoSuchLedgerError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataUnavailableError, NotFoundError, NotInitializedError
from bkclient.metadata.tree.nodes import ATTEMPTS_MAX
from bkclient.metadata.versions_and_watches import NEW, SessionEvent
from tests.bkclient.metadata.values import B1, B2, closed, info, metadata, run, start
from tests.support.memory_zookeeper import Fault, MemoryMetadata, MemoryZooKeeper, TreeOperation
from wire.ids import LedgerId

L1 = LedgerId(1)


@attrs.define
class FaultAt:
    """Fails the n-th operation from now on, and counts them."""

    number: int
    fault: Fault
    seen: int = 0

    def __call__(self, _operation: TreeOperation) -> Fault:
        self.seen += 1
        return self.fault if self.seen - 1 == self.number else Fault.NONE

    @property
    def struck(self) -> bool:
        return self.seen > self.number


class Stage:
    """A cluster, the store under test, and another that looks on."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.cluster = MemoryZooKeeper.initialized(self.clock)
        self.store = self.open()
        self.witness = self.open()

    def open(self, **options: Any) -> MemoryMetadata:
        store = self.cluster.metadata(**options)
        run(store.connect(), self.clock)
        return store

    def run(self, coroutine: Any) -> Any:
        return run(coroutine, self.clock)


Prepared = Callable[[Stage], Awaitable[object]]


async def nothing(_stage: Stage) -> None:
    """Prepare nothing."""


async def marked(stage: Stage) -> None:
    await stage.witness.mark_underreplicated(L1, (B1,))


async def created(stage: Stage) -> None:
    await stage.witness.create_ledger(L1, metadata())


async def create(stage: Stage) -> None:
    assert await stage.store.create_ledger(L1, metadata()) == 0
    assert (await stage.witness.read_ledger(L1)).version == 0


async def remove(stage: Stage) -> None:
    await stage.store.remove_ledger(L1)
    assert [ids async for ids in stage.witness.ledger_ranges()] == []


async def allocate(stage: Stage) -> None:
    given = [await stage.store.allocate_ledger_id() for _ in range(3)]
    given.append(await stage.witness.allocate_ledger_id())
    assert given == sorted(set(given))


async def register(stage: Stage) -> None:
    await stage.store.register(B1, info(B1), read_only=False)
    assert await stage.witness.writable_bookies() == {B1}


async def turn_read_only(stage: Stage) -> None:
    await stage.store.register(B1, info(B1), read_only=True)
    assert await stage.witness.read_only_bookies() == {B1}


async def registered(stage: Stage) -> None:
    await stage.store.register(B1, info(B1), read_only=False)


async def unregister(stage: Stage) -> None:
    await stage.store.unregister(B1)
    assert await stage.witness.writable_bookies() == frozenset()


async def mark(stage: Stage) -> None:
    await stage.store.mark_underreplicated(L1, (B2, B1))
    found = await stage.witness.underreplicated(L1)
    assert found is not None
    assert set(found.replicas) == {B1, B2}


async def repair(stage: Stage) -> None:
    assert await stage.store.poll_underreplicated() == L1
    assert await stage.witness.poll_underreplicated() is None
    await stage.store.mark_replicated(L1)
    assert await stage.witness.underreplicated(L1) is None
    assert await stage.witness.lock_owner(L1) is None


async def lock(stage: Stage) -> None:
    assert await stage.store.acquire_lock(L1)
    assert not await stage.witness.acquire_lock(L1)
    await stage.store.release_lock(L1)
    assert await stage.witness.acquire_lock(L1)


async def elect(stage: Stage) -> None:
    await stage.store.elect(B1)
    assert await stage.witness.current_auditor() == B1
    votes = [p for p in await stage.witness.dump() if zk_paths.VOTE_PREFIX in p]
    assert len(votes) == 1
    await stage.store.resign()
    assert await stage.witness.current_auditor() is None


async def set_delay(stage: Stage) -> None:
    await stage.store.set_lost_bookie_recovery_delay(7)
    assert await stage.witness.lost_bookie_recovery_delay() == 7


async def set_time(stage: Stage) -> None:
    await stage.store.set_check_time("replicas", 7)
    assert await stage.witness.check_time("replicas") == 7


async def populated(stage: Stage) -> None:
    for ledger_id in (0, 1, 2**40):
        await stage.witness.create_ledger(LedgerId(ledger_id), metadata())
    await stage.witness.write_cookie(B1, b"cookie", NEW)
    await marked(stage)


async def format_all(stage: Stage) -> None:
    new_id = await stage.store.format()
    assert await stage.witness.instance_id() == new_id
    assert (await stage.witness.layout()).name == "hierarchical"
    assert [ids async for ids in stage.witness.ledger_ranges()] == []


async def nuke(stage: Stage) -> None:
    await stage.store.nuke()
    assert await stage.witness.dump() == {}


async def initialize(stage: Stage) -> None:
    instance_id = await stage.store.initialize()
    assert await stage.witness.instance_id() == instance_id
    assert (await stage.witness.layout()).name == "hierarchical"


async def read_all(stage: Stage) -> None:
    assert [i async for ids in stage.store.ledger_ranges() for i in ids] == [0, 1, 2**40]
    assert [i async for i, _ in stage.store.list_underreplicated()] == [L1]
    assert (await stage.store.read_ledger(L1)).version == 0
    assert await stage.store.known_bookies() == {B1}
    assert (await stage.store.read_cookie(B1)).value == b"cookie"
    with pytest.raises(NotFoundError):
        await stage.store.service_info(B1)
    assert len(await stage.store.dump()) > 10


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
@pytest.mark.parametrize(
    ("prepare", "act"),
    [
        (nothing, create),
        (created, remove),
        (nothing, allocate),
        (nothing, register),
        (registered, turn_read_only),
        (registered, unregister),
        (nothing, mark),
        (marked, mark),
        (marked, repair),
        (nothing, lock),
        (nothing, elect),
        (nothing, set_delay),
        (nothing, set_time),
        (populated, format_all),
        (populated, nuke),
        (nuke, initialize),
        (populated, read_all),
    ],
    ids=lambda f: f.__name__ if callable(f) else "",
)
def test_one_lost_answer_anywhere_changes_nothing(
    prepare: Prepared, act: Prepared, fault: Fault
) -> None:
    number = 0
    while True:
        stage = Stage()
        stage.run(prepare(stage))
        stage.store._layout_found = None  # Each time as a store that has just been opened.
        faults = stage.cluster.faults = FaultAt(number, fault)
        stage.run(act(stage))
        if not faults.struck:
            break
        number += 1
    assert number > 1


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_a_write_whose_answer_is_lost_says_that_nobody_knows(fault: Fault) -> None:
    stage = Stage()
    stage.run(created(stage))
    stage.run(stage.store.read_ledger(L1))
    stage.cluster.faults = FaultAt(0, fault)
    with pytest.raises(MetadataUnavailableError):
        stage.run(stage.store.write_ledger(L1, closed(), 0))
    assert stage.run(stage.store.read_ledger(L1)).version == (fault is Fault.ANSWER_LOST)


def test_the_layout_of_a_cluster_is_deleted_after_all_else() -> None:
    stage = Stage()
    stage.run(created(stage))
    stage.run(format_all(stage))
    stage.run(created(stage))

    def last(operation: TreeOperation) -> Fault:
        if operation.name == "delete" and operation.path == zk_paths.LAYOUT:
            assert stage.cluster.children("") == ["INSTANCEID", "LAYOUT"]
        return Fault.NONE

    stage.cluster.faults = last
    stage.run(nuke(stage))


def test_a_format_keeps_the_layout() -> None:
    stage = Stage()
    stage.run(created(stage))

    def kept(operation: TreeOperation) -> Fault:
        assert (operation.name, operation.path) != ("delete", zk_paths.LAYOUT)
        return Fault.NONE

    stage.cluster.faults = kept
    stage.run(format_all(stage))


def test_a_deletion_whose_answer_is_lost_has_succeeded_if_the_ledger_is_gone() -> None:
    stage = Stage()
    stage.run(created(stage))
    stage.run(stage.store.read_ledger(L1))
    stage.cluster.faults = FaultAt(0, Fault.REQUEST_LOST)
    with pytest.raises(MetadataUnavailableError):
        stage.run(stage.store.remove_ledger(L1, 0))
    assert stage.run(stage.witness.read_ledger(L1)).version == 0
    stage.cluster.faults = FaultAt(0, Fault.ANSWER_LOST)
    stage.run(stage.store.remove_ledger(L1, 0))
    with pytest.raises(NoSuchLedgerError):
        stage.run(stage.witness.read_ledger(L1))


def test_a_deletion_succeeds_although_empty_parents_cannot_be_deleted() -> None:
    stage = Stage()
    stage.run(created(stage))
    stage.run(stage.store.read_ledger(L1))

    def away(operation: TreeOperation) -> Fault:
        if operation.name == "delete" and "/L" not in operation.path:
            raise MetadataUnavailableError("no connection within 10 s")
        return Fault.NONE

    stage.cluster.faults = away
    stage.run(stage.store.remove_ledger(L1, 0))
    with pytest.raises(NoSuchLedgerError):
        stage.run(stage.witness.read_ledger(L1))


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_a_ledger_that_may_have_been_there_and_gone_is_not_made_again(fault: Fault) -> None:
    stage = Stage()
    stage.run(stage.store.create_ledger(LedgerId(2), metadata()))  # The nodes above are there.

    def gone_at_once(operation: TreeOperation) -> Fault:
        if operation.name != "create" or not operation.path.endswith("/L0001"):
            return Fault.NONE
        stage.cluster.faults = deleted_before_it_is_read
        return fault

    def deleted_before_it_is_read(operation: TreeOperation) -> Fault:
        stage.cluster.faults = FaultAt(0, Fault.NONE)
        stage.run(stage.witness.remove_ledger(L1))
        return Fault.NONE

    stage.cluster.faults = gone_at_once
    with pytest.raises(LedgerExistsError, match="ledger 1 exists, or has existed"):
        stage.run(stage.store.create_ledger(L1, metadata(), is_allocated=True))
    with pytest.raises(NoSuchLedgerError):
        stage.run(stage.witness.read_ledger(L1))


def test_a_ledger_with_an_id_that_was_allocated_is_there_although_the_answer_was_lost() -> None:
    stage = Stage()
    stage.run(stage.store.create_ledger(LedgerId(2), metadata()))
    stage.cluster.faults = FaultAt(0, Fault.ANSWER_LOST)
    assert stage.run(stage.store.create_ledger(L1, metadata(), is_allocated=True)) == 0
    assert stage.run(stage.witness.read_ledger(L1)).version == 0


def test_what_fails_for_ever_ends_in_an_error() -> None:
    stage = Stage()
    stage.run(stage.store.layout())
    seen: list[TreeOperation] = []

    def fail(operation: TreeOperation) -> Fault:
        seen.append(operation)
        return Fault.REQUEST_LOST

    stage.cluster.faults = fail
    for ask in (
        lambda: stage.store.create_ledger(L1, metadata()),
        lambda: stage.store.read_ledger(L1),
        stage.store.allocate_ledger_id,
        lambda: stage.store.register(B1, info(B1), read_only=False),
        lambda: stage.store.acquire_lock(L1),
    ):
        seen.clear()
        with pytest.raises(MetadataUnavailableError):
            stage.run(ask())
        assert ATTEMPTS_MAX <= len(seen) <= 2 * ATTEMPTS_MAX


async def poll(store: MemoryMetadata) -> LedgerId | None:
    return await store.poll_underreplicated()


async def take(store: MemoryMetadata) -> LedgerId | None:
    return L1 if await store.take_underreplicated(L1) else None


@pytest.mark.parametrize("ask", [poll, take], ids=lambda f: f.__name__)
def test_a_lock_that_was_made_in_an_outage_is_taken_up_again(
    ask: Callable[[MemoryMetadata], Awaitable[LedgerId | None]],
) -> None:
    stage = Stage()
    stage.run(marked(stage))
    stage.run(stage.store.lock_owner(L1))
    made: list[TreeOperation] = []

    def outage(operation: TreeOperation) -> Fault:
        if made:
            return Fault.REQUEST_LOST
        if operation.name == "create" and operation.path == zk_paths.lock(L1):
            made.append(operation)
            return Fault.ANSWER_LOST
        return Fault.NONE

    stage.cluster.faults = outage
    with pytest.raises(MetadataUnavailableError):
        stage.run(ask(stage.store))
    stage.cluster.faults = FaultAt(0, Fault.NONE)
    # The session has outlived it, and with it the lock, of which its owner had not heard.
    assert stage.run(stage.witness.lock_owner(L1)) is not None
    assert stage.run(ask(stage.witness)) is None
    assert stage.run(ask(stage.store)) == L1
    assert stage.run(ask(stage.store)) is None
    stage.run(stage.store.mark_replicated(L1))
    assert stage.run(stage.witness.underreplicated(L1)) is None
    assert stage.run(stage.witness.lock_owner(L1)) is None


def test_a_lock_is_given_to_one_of_two_who_ask_in_one_session() -> None:
    stage = Stage()
    stage.run(stage.store.lock_owner(L1))
    stage.cluster.delay_s = lambda _operation: 0.02

    async def both() -> list[bool]:
        asked = [Deferred.fromCoroutine(stage.store.acquire_lock(L1)) for _ in range(2)]
        return [await one for one in asked]

    assert sorted(stage.run(both())) == [False, True]


@pytest.mark.parametrize(
    ("prepare", "act"),
    [
        (nothing, create),
        (created, remove),
        (nothing, allocate),
        (nothing, register),
        (nothing, mark),
        (marked, repair),
        (nothing, lock),
        (nothing, elect),
        (populated, read_all),
    ],
    ids=lambda f: f.__name__ if callable(f) else "",
)
def test_a_connection_that_breaks_and_comes_back_delays_only(
    prepare: Prepared, act: Prepared
) -> None:
    number = 0
    while True:
        stage = Stage()
        stage.run(prepare(stage))
        stage.cluster.delay_s = lambda _operation: 0.02
        breaks = BreakAt(number, stage)
        stage.cluster.faults = breaks
        stage.run(act(stage))
        if not breaks.struck:
            break
        number += 1
    assert number > 1


class BreakAt(FaultAt):
    """Breaks the store's connection while the n-th operation is on its way, for a second."""

    def __init__(self, number: int, stage: Stage) -> None:
        super().__init__(number, Fault.NONE)
        self.stage = stage

    def __call__(self, operation: TreeOperation) -> Fault:
        if self.seen == self.number:
            # After it was applied if the number is odd, before if it is even.
            self.stage.clock.callLater(
                0.015 if self.number % 2 else 0.005, self.stage.store.session.suspend
            )
            self.stage.clock.callLater(1.0, self.stage.store.session.resume)
        return super().__call__(operation)


def test_no_connection_for_longer_than_the_time_out_is_an_error_that_names_the_store() -> None:
    stage = Stage()
    stage.store.session.suspend()
    before_s = stage.clock.seconds()
    with pytest.raises(MetadataUnavailableError, match="memory:"):
        stage.run(stage.store.allocate_ledger_id())
    assert 10.0 <= stage.clock.seconds() - before_s < 10.2


def test_a_partition_ends_the_session_at_the_server_first() -> None:
    stage = Stage()
    events: list[SessionEvent] = []
    stage.store.on_session(events.append)
    stage.run(register(stage))
    stage.store.session.suspend()
    assert events == [SessionEvent.SUSPENDED]
    stage.clock.advance(9.9)
    assert stage.run(stage.witness.writable_bookies()) == {B1}
    stage.clock.advance(0.2)
    assert stage.run(stage.witness.writable_bookies()) == frozenset()
    assert events == [SessionEvent.SUSPENDED]  # The bookie itself cannot know yet.
    stage.store.session.resume()
    assert events[1:] == [SessionEvent.LOST, SessionEvent.CONNECTED]


def test_a_short_partition_keeps_the_session() -> None:
    stage = Stage()
    events: list[SessionEvent] = []
    stage.store.on_session(events.append)
    stage.run(register(stage))
    stage.store.session.suspend()
    stage.clock.advance(9.9)
    stage.store.session.resume()
    assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
    stage.clock.advance(30)
    assert stage.run(stage.witness.writable_bookies()) == {B1}


def test_work_under_an_expired_lock_is_not_finished() -> None:
    stage = Stage()
    stage.run(marked(stage))
    assert stage.run(stage.store.poll_underreplicated()) == L1
    # Expired, though its owner has not heard of it, and somebody else has taken over.
    stage.store.session.suspend()
    stage.clock.advance(11)
    assert stage.run(stage.witness.poll_underreplicated()) == L1
    ending = start(stage.store.mark_replicated(L1))
    stage.store.session.resume()
    stage.clock.advance(1)
    assert ending.called
    assert stage.run(stage.witness.underreplicated(L1)) is not None
    assert stage.run(stage.witness.lock_owner(L1)) is not None


def test_a_lock_that_the_next_session_made_is_ended_like_any_other() -> None:
    stage = Stage()
    stage.run(stage.store.acquire_lock(LedgerId(2)))
    stage.store.session.suspend()
    stage.clock.advance(9)
    locking = start(stage.store.acquire_lock(L1))
    stage.clock.advance(2)  # The session expires while the lock waits for a connection.
    stage.store.session.resume()
    stage.clock.advance(1)
    assert locking.result is True
    assert stage.run(stage.witness.lock_owner(L1)) is not None
    stage.run(stage.store.mark_replicated(L1))
    assert stage.run(stage.witness.lock_owner(L1)) is None


@pytest.mark.parametrize(
    ("path", "own", "give_back"),
    [
        (zk_paths.lock(L1), lambda s: s.acquire_lock(L1), lambda s: s.release_lock(L1)),
        (
            zk_paths.registration(B1, read_only=False),
            lambda s: s.register(B1, info(B1), read_only=False),
            lambda s: s.unregister(B1),
        ),
        (
            zk_paths.registration(B1, read_only=False),
            lambda s: s.register(B1, info(B1), read_only=False),
            lambda s: s.register(B1, info(B1), read_only=True),
        ),
    ],
    ids=["lock", "registration", "mode"],
)
def test_what_a_session_has_lost_to_another_one_is_not_deleted(
    path: str, own: Callable[[Any], Any], give_back: Callable[[Any], Any]
) -> None:
    """A bookie that is held up at its end would take its successor off the list for good."""
    stage = Stage()
    stage.run(own(stage.store))
    lost: list[TreeOperation] = []

    def expire(operation: TreeOperation) -> Fault:
        if operation.name != "delete" or operation.path != path or lost:
            return Fault.NONE
        lost.append(operation)
        stage.store.session.expire()
        stage.cluster.create(path, b"of the next", stage.witness.session_id)
        return Fault.REQUEST_LOST

    stage.cluster.faults = expire
    stage.run(give_back(stage.store))
    assert lost
    assert stage.cluster.get(path).value == b"of the next"


def test_a_mark_made_again_is_not_taken_for_the_one_whose_deletion_had_no_answer() -> None:
    stage = Stage()
    stage.run(marked(stage))
    assert stage.run(stage.store.poll_underreplicated()) == L1
    lost: list[TreeOperation] = []

    def mark_again(operation: TreeOperation) -> Fault:
        if operation.name == "delete" and operation.path == zk_paths.mark(L1) and not lost:
            lost.append(operation)
            return Fault.ANSWER_LOST
        if len(lost) == 1:
            lost.append(operation)
            stage.run(marked(stage))
        return Fault.NONE

    stage.cluster.faults = mark_again
    stage.run(stage.store.mark_replicated(L1))
    assert len(lost) == 2
    assert stage.run(stage.witness.underreplicated(L1)) is not None


def test_nobody_is_elected_by_a_vote_that_is_gone() -> None:
    stage = Stage()
    expired: list[TreeOperation] = []

    def expire(operation: TreeOperation) -> Fault:
        if operation.name == "set" and operation.path == zk_paths.ELECTION and not expired:
            expired.append(operation)
            stage.store.session.expire()
        return Fault.NONE

    stage.cluster.faults = expire
    stage.run(stage.store.elect(B1))
    assert expired
    assert stage.run(stage.witness.current_auditor()) == B1


def test_a_candidate_withdraws_a_vote_whose_answer_has_not_come() -> None:
    stage = Stage()
    asked: list[TreeOperation] = []

    def slow_votes(operation: TreeOperation) -> float:
        if operation.name != "create" or zk_paths.VOTE_PREFIX not in operation.path:
            return 0.1
        asked.append(operation)
        return 1.0

    stage.cluster.delay_s = slow_votes
    standing = start(stage.store.elect(B1)).addErrback(lambda failure: failure.trap(CancelledError))
    while not asked:
        stage.clock.advance(0.05)
    standing.cancel()
    for _ in range(100):
        stage.clock.advance(0.05)
    assert standing.called
    assert stage.run(stage.witness.current_auditor()) is None


async def epochs(stage: Stage, *numbers: int) -> None:
    """Let short ids be used up, and these epochs of long ones have begun."""
    await stage.witness._create_shared(zk_paths.IDGEN_LONG)
    for number in numbers:
        await stage.witness._begin_epoch(number)


def test_an_epoch_that_was_deleted_gives_no_id_twice() -> None:
    stage = Stage()
    stage.run(epochs(stage, 1))
    first = stage.run(stage.store.allocate_ledger_id())
    stage.run(epochs(stage, 2, 3))
    stage.run(stage.witness._tree.delete(zk_paths.epoch(1)))
    assert (first >> 32, stage.run(stage.store.allocate_ledger_id()) >> 32) == (1, 3)
    # Made again it would give its ids again, to a client that knows no later one.
    assert stage.run(stage.witness._tree.stat(zk_paths.epoch(1))) is None
    assert (first >> 32, stage.run(stage.store.allocate_ledger_id()) >> 32) == (1, 3)
    # Made again it would give its ids again, to a client that knows no later one.
    assert stage.run(stage.witness._tree.stat(zk_paths.epoch(1))) is None


def test_a_client_that_outlives_a_restore_gives_no_id_that_was_skipped() -> None:
    """Its session ends with the metadata service that was lost."""
    stage = Stage()
    assert stage.run(stage.store.allocate_ledger_id()) == 0
    stage.run(stage.witness.skip_ledger_ids(LedgerId(10_000_000), "hierarchical"))
    stage.store.session.suspend()
    allocating = start(stage.store.allocate_ledger_id())  # It waits for the next session.
    stage.cluster.end_session(stage.store.session_id)
    stage.store.session.resume()
    for _ in range(100):
        stage.clock.advance(0.1)
    assert allocating.result > 10_000_000
    assert stage.run(stage.store.allocate_ledger_id()) > 10_000_000


def test_ids_are_skipped_without_an_epoch_that_others_may_have_used() -> None:
    stage = Stage()
    stage.run(epochs(stage, 5, 6, 7, 8))
    stage.run(stage.store.skip_ledger_ids(LedgerId(3 << 32 | 7), "hierarchical"))
    assert stage.run(stage.witness._tree.stat(zk_paths.epoch(4))) is None
    assert stage.run(stage.store.allocate_ledger_id()) >> 32 == 9


def test_watches_survive_a_partition_during_which_things_changed() -> None:
    stage = Stage()
    stage.run(created(stage))
    calls: list[float] = []
    stage.run(stage.store.watch_ledger(L1, lambda: calls.append(stage.clock.seconds())))
    stage.store.session.suspend()
    stage.clock.advance(30)
    stage.run(stage.witness.write_ledger(L1, closed(), 0))
    assert calls == []
    stage.store.session.resume()
    stage.clock.advance(1)
    assert calls
    before = len(calls)
    stage.run(stage.witness.write_ledger(L1, closed(), 1))
    stage.clock.advance(0.1)
    assert len(calls) == before + 1


def test_a_cluster_that_vanished_is_an_error_and_not_no_ledgers() -> None:
    stage = Stage()
    stage.run(populated(stage))
    walking = stage.store.ledger_ranges()
    stage.run(anext_of(walking))
    stage.run(nuke(stage))
    with pytest.raises(NotInitializedError):
        stage.run(rest_of(walking))


async def anext_of(iterator: Any) -> Any:
    return await iterator.__anext__()


async def rest_of(iterator: Any) -> list[Any]:
    return [item async for item in iterator]
