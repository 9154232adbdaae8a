from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from bkclient.metadata.errors import MetadataUnavailableError, NotInitializedError
from bookied.storage.garbage.unneeded_ledgers import (
    ClusterMembership,
    CollectionAbortedError,
    LedgerGarbage,
)
from tests.support.memory_zookeeper import Fault, MemoryMetadata, MemoryZooKeeper, TreeOperation
from wire.codes import DigestType, LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

US, OTHER = BookieId("us:1"), BookieId("other:1")


def metadata(bookie: BookieId = US, state: LedgerState = LedgerState.CLOSED) -> LedgerMetadata:
    is_closed = state is LedgerState.CLOSED
    return LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        state=state,
        last_entry_id=EntryId(3) if is_closed else None,
        fragments=(Fragment(EntryId(0), (bookie,)),),
        digest_type=DigestType.CRC32C,
        password=b"",
    )


class Stage:
    """A metadata service, and a bookie's view of it."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.cluster = MemoryZooKeeper.initialized(self.clock)
        self.store = self.connect()
        self.done(self.store.write_cookie(US, b"cookie", -2))
        instance_id = self.done(self.store.instance_id())
        given: dict[str, Any] = {"requests_per_s": 1e6, "requests_max": 3}
        membership = ClusterMembership(bookie_id=US, instance_id=instance_id)
        self.garbage = LedgerGarbage(self.store, self.clock, membership, **(given | options))
        self.seen: list[TreeOperation] = []
        self.cluster.faults = self._note

    def connect(self) -> MemoryMetadata:
        store = self.cluster.metadata(
            chance=random.Random(1), layout=None, lock_owner="us", registration_wait_s=1
        )
        self.done(store.connect())
        return store

    def _note(self, operation: TreeOperation) -> Fault:
        self.seen.append(operation)
        return Fault.NONE

    def begin(self, coroutine: Any) -> list[Any]:
        found: list[Any] = []
        Deferred.fromCoroutine(coroutine).addBoth(found.append)
        return found

    def done(self, coroutine: Any) -> Any:
        found = self.begin(coroutine)
        for _ in range(10_000):
            if found:
                break
            self.clock.advance(0.01)
        assert found, "it waits"
        if isinstance(found[0], Failure):
            found[0].raiseException()
        return found[0]

    def create(self, *ledger_ids: int, value: LedgerMetadata | None = None) -> None:
        for ledger_id in ledger_ids:
            self.done(self.store.create_ledger(LedgerId(ledger_id), value or metadata()))

    def gone(self, *local: int) -> list[int]:
        found: list[int] = self.done(self.garbage.gone(local))
        return found

    def excess(self, *local: int) -> list[int]:
        dropped: list[int] = []

        async def drop(ledger_id: LedgerId) -> None:
            dropped.append(ledger_id)

        self.done(self.garbage.over_replicated(local, drop))
        return dropped


def test_local_ledgers_that_are_not_in_the_metadata_are_gone() -> None:
    stage = Stage()
    stage.create(0, 5, 12_345, 3_000_000_000)
    local = [3_000_000_000, 4, 5, 6, 0, 99_999_999_999, 2**63 - 2]
    assert stage.gone(*local) == [4, 6, 99_999_999_999, 2**63 - 2]


def test_a_ledger_with_the_highest_id_of_all_makes_no_other_gone() -> None:
    stage = Stage()
    stage.create(1, 2**63 - 2)
    assert stage.gone(0, 1, 2**63 - 2) == [0]


@pytest.mark.parametrize("local", [(), (1, 2)])
def test_nothing_is_gone_while_all_is_there(local) -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    assert stage.gone(*local) == []


def failing(name: str, nth: int) -> Callable[[TreeOperation], Fault]:
    seen = 0

    def fault(operation: TreeOperation) -> Fault:
        nonlocal seen
        seen += operation.name == name
        return Fault.REQUEST_LOST if operation.name == name and seen >= nth else Fault.NONE

    return fault


@pytest.mark.parametrize("name", ["get", "children"])
@pytest.mark.parametrize("nth", range(1, 5))
def test_any_error_means_that_nothing_is_gone(name: str, nth: int) -> None:
    stage = Stage()
    stage.create(1, 20_000, 3_000_000_000)
    stage.cluster.faults = failing(name, nth)
    with pytest.raises(MetadataUnavailableError):
        stage.gone(1, 2, 20_000, 20_001)


def test_a_session_lost_on_the_way_means_that_nothing_is_gone() -> None:
    stage = Stage()
    stage.create(1)
    stage.cluster.delay_s = lambda _operation: 1.0
    found = stage.begin(stage.garbage.gone([1, 2]))
    stage.clock.advance(1.5)
    stage.store.session.expire()
    for _ in range(100):
        stage.clock.advance(0.5)
    assert isinstance(found[0], Failure)
    assert found[0].check(CollectionAbortedError, MetadataUnavailableError)


def test_an_outage_means_that_nothing_is_gone_and_waiting_for_it_can_be_given_up() -> None:
    stage = Stage()
    stage.create(1)
    stage.store.session.suspend()
    waiting = Deferred.fromCoroutine(stage.garbage.gone([1, 2]))
    found: list[Any] = []
    waiting.addBoth(found.append)
    stage.clock.advance(1)
    waiting.cancel()
    assert found[0].check(CancelledError)


def test_a_cluster_that_was_made_anew_takes_nothing() -> None:
    stage = Stage()
    stage.create(1)
    stage.done(stage.store.format())
    with pytest.raises(CollectionAbortedError, match="; nothing is deleted"):
        stage.gone(1, 2)


def test_a_cluster_that_forgot_the_bookie_takes_nothing() -> None:
    stage = Stage()
    stage.done(stage.store.remove_cookie(US))
    with pytest.raises(CollectionAbortedError, match="no cookie of us:1"):
        stage.gone(1)


def test_a_cluster_that_is_gone_takes_nothing() -> None:
    stage = Stage()
    stage.create(1)
    stage.done(stage.store.nuke())
    with pytest.raises((NotInitializedError, CollectionAbortedError)):
        stage.gone(1)


def test_a_cluster_that_was_made_anew_during_the_walk_takes_nothing() -> None:
    stage = Stage()
    stage.create(1)
    store, is_new = stage.store, False

    class Changing:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def ledger_ranges(self, *, after: Any = None) -> Any:
            nonlocal is_new
            is_new = True
            return
            yield

        async def instance_id(self) -> str | None:
            return "another" if is_new else await store.instance_id()

    stage.garbage._store = Changing()
    with pytest.raises(CollectionAbortedError, match="instance id is another"):
        stage.gone(1)


@pytest.mark.parametrize("ranges", [[(3, 4), (2,)], [(3, 3)], [(5, 4)]])
def test_ranges_out_of_order_take_nothing(ranges) -> None:
    stage = Stage()
    store = stage.store

    class Odd:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def ledger_ranges(self, *, after: Any = None) -> Any:
            for one in ranges:
                yield one

    stage.garbage._store = Odd()
    with pytest.raises(CollectionAbortedError, match="out of order"):
        stage.gone(2, 3)


class Unlisted:
    """Lists some ledgers only, whatever there is."""

    def __init__(self, store: Any, listed: tuple[int, ...]) -> None:
        self._store, self._listed = store, listed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def ledger_ranges(self, *, after: Any = None) -> Any:
        if self._listed:
            yield self._listed


@pytest.mark.parametrize("listed", [(), (1,), (9,), (2, 3)])
def test_a_ledger_missing_from_the_list_is_read_before_it_counts_as_gone(listed) -> None:
    stage = Stage()
    stage.create(1, 2, 9)
    stage.garbage._store = Unlisted(stage.store, listed)
    assert stage.gone(1, 2, 4, 9) == [4]


def test_requests_keep_to_their_rate() -> None:
    stage = Stage(requests_per_s=10)
    stage.create(1)
    found = stage.begin(stage.garbage.gone(range(2, 52)))
    stage.clock.pump([0.1] * 40)
    assert not found
    stage.clock.pump([0.1] * 20)
    assert found == [list(range(2, 52))]


# Ledgers kept in excess


def test_closed_ledgers_that_do_not_name_this_bookie_are_in_excess() -> None:
    stage = Stage()
    stage.create(1, 2)
    stage.create(3, 4, value=metadata(OTHER))
    stage.create(5, value=metadata(OTHER, LedgerState.OPEN))
    stage.create(6, value=metadata(OTHER, LedgerState.IN_RECOVERY))
    assert sorted(stage.excess(1, 3, 4, 5, 6, 7)) == [3, 4]
    assert stage.done(stage.store.lock_owner(LedgerId(3))) is None


def test_a_ledger_that_names_this_bookie_in_any_fragment_is_not_in_excess() -> None:
    stage = Stage()
    fragments = tuple(Fragment(EntryId(at), (b,)) for at, b in ((0, OTHER), (1, US), (2, OTHER)))
    stage.create(1, value=attrs.evolve(metadata(), fragments=fragments))
    assert stage.excess(1) == []


def test_a_ledger_that_is_under_replicated_or_locked_is_left_alone() -> None:
    stage = Stage()
    stage.create(1, 2, 3, value=metadata(OTHER))
    worker = stage.connect()
    assert stage.done(worker.acquire_lock(LedgerId(1)))
    stage.done(stage.store.mark_underreplicated(LedgerId(2), (OTHER,)))
    assert stage.excess(1, 2, 3) == [3]
    assert stage.done(stage.store.lock_owner(LedgerId(1))) is not None


def test_a_ledger_that_comes_to_name_this_bookie_before_the_lock_is_ours_is_kept() -> None:
    stage = Stage()
    stage.create(1, value=metadata(OTHER))
    worker = stage.connect()

    def fault(operation: TreeOperation) -> Fault:
        if operation.name == "create" and "/locks/" in operation.path:
            stage.cluster.faults = lambda _: Fault.NONE
            stage.done(worker.write_ledger(LedgerId(1), metadata(US), 0))
        return Fault.NONE

    stage.cluster.faults = fault
    assert stage.excess(1) == []
    assert stage.done(stage.store.lock_owner(LedgerId(1))) is None


def test_a_lock_that_cannot_be_given_back_is_given_back_later() -> None:
    stage = Stage()
    stage.create(1, value=metadata(OTHER))

    def fault(operation: TreeOperation) -> Fault:
        is_ours = operation.name == "delete" and "/locks/" in operation.path
        return Fault.REQUEST_LOST if is_ours else Fault.NONE

    stage.cluster.faults = fault
    assert stage.excess(1) == [1]
    assert stage.done(stage.store.lock_owner(LedgerId(1))) is not None
    stage.cluster.faults = lambda _: Fault.NONE
    stage.gone(1)
    assert stage.done(stage.store.lock_owner(LedgerId(1))) is None


def test_a_lock_that_was_made_in_an_outage_is_given_back_later() -> None:
    stage = Stage()
    stage.create(1, value=metadata(OTHER))
    made: list[TreeOperation] = []

    def outage(operation: TreeOperation) -> Fault:
        if made:
            return Fault.REQUEST_LOST
        if operation.name == "create" and operation.path.startswith("/underreplication/locks/"):
            made.append(operation)
            return Fault.ANSWER_LOST
        return Fault.NONE

    stage.cluster.faults = outage
    with pytest.raises(MetadataUnavailableError):
        stage.excess(1)
    stage.cluster.faults = lambda _: Fault.NONE
    assert stage.done(stage.store.lock_owner(LedgerId(1))) is not None
    assert stage.excess(1) == [1]
    assert stage.done(stage.store.lock_owner(LedgerId(1))) is None


def test_an_error_ends_the_search_for_excess() -> None:
    stage = Stage(requests_max=1)
    stage.create(*range(1, 10), value=metadata(OTHER))
    dropped: list[int] = []

    async def drop(ledger_id: LedgerId) -> None:
        dropped.append(ledger_id)
        stage.cluster.faults = lambda _: Fault.REQUEST_LOST

    with pytest.raises(MetadataUnavailableError):
        stage.done(stage.garbage.over_replicated(range(1, 10), drop))
    assert dropped == [1]


def test_a_cluster_that_was_made_anew_has_no_excess() -> None:
    stage = Stage()
    stage.create(1, value=metadata(OTHER))
    stage.done(stage.store.remove_cookie(US))
    with pytest.raises(CollectionAbortedError):
        stage.excess(1)
