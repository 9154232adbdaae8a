"""The tree in memory, and what the store does on it that a real server shows too seldom."""

from __future__ import annotations

import random
from typing import Any

import pytest
from twisted.internet.task import Clock

from bkclient.errors import LedgerIdOverflowError, MetadataSerializationError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import IncompatibleLayoutError
from bkclient.metadata.tree.nodes import (
    CreatedNode,
    NodeExistsError,
    NodeVersionError,
    NoNodeError,
    NotEmptyError,
)
from bkclient.metadata.versions_and_watches import SessionEvent
from tests.bkclient.metadata.values import B1, info, metadata, run, start
from tests.support.memory_zookeeper import MemoryMetadata, MemoryZooKeeper, TreeOperation
from tests.wire.vectors import load
from wire.errors import FormatError
from wire.ids import LedgerId

L1 = LedgerId(1)


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.advance(1_700_000_000)
    return clock


def opened(cluster: MemoryZooKeeper, clock: Clock, **options: Any) -> MemoryMetadata:
    store = cluster.metadata(**options)
    run(store.connect(), clock)
    return store


@pytest.fixture
def cluster(clock: Clock) -> MemoryZooKeeper:
    return MemoryZooKeeper.initialized(clock)


@pytest.fixture
def store(cluster: MemoryZooKeeper, clock: Clock) -> MemoryMetadata:
    return opened(cluster, clock)


class TestTree:
    def test_nodes_behave_as_zookeepers(self, cluster: MemoryZooKeeper) -> None:
        with pytest.raises(NoNodeError):
            cluster.create("/a/b", b"")
        cluster.create("/a", b"1")
        with pytest.raises(NodeExistsError):
            cluster.create("/a", b"1")
        cluster.create("/a/b", b"2")
        with pytest.raises(NotEmptyError):
            cluster.delete("/a")
        assert cluster.set("/a", b"3") == 1
        with pytest.raises(NodeVersionError):
            cluster.set("/a", b"4", 0)
        with pytest.raises(NodeVersionError):
            cluster.delete("/a", 0)
        assert cluster.get("/a").value == b"3"
        assert cluster.children("/a") == ["b"]
        with pytest.raises(NoNodeError):
            cluster.get("/c")

    def test_sequence_numbers_count_all_children_ever_made(self, cluster: MemoryZooKeeper) -> None:
        cluster.create("/a", b"")
        cluster.create("/a/x", b"")
        assert cluster.create("/a/n-", b"", sequence=True) == "/a/n-0000000001"
        cluster.delete("/a/n-0000000001")
        assert cluster.create("/a/n-", b"", sequence=True) == "/a/n-0000000002"

    def test_a_watch_fires_once_and_later(self, cluster: MemoryZooKeeper, clock: Clock) -> None:
        calls: list[str] = []
        cluster.create("/a", b"")
        cluster.stat("/a", lambda: calls.append("value"))
        cluster.children("/a", lambda: calls.append("children"))
        cluster.set("/a", b"1")
        cluster.create("/a/b", b"")
        assert calls == []
        clock.advance(0)
        assert calls == ["value", "children"]
        cluster.set("/a", b"2")
        clock.advance(0)
        assert len(calls) == 2

    def test_ephemeral_nodes_have_no_children(self, cluster: MemoryZooKeeper) -> None:
        cluster.create("/e", b"", owner=7)
        with pytest.raises(NoNodeError):
            cluster.create("/e/x", b"")

    def test_operations_of_a_session_never_overtake_each_other(
        self, cluster: MemoryZooKeeper, store: MemoryMetadata, clock: Clock
    ) -> None:
        delays = iter([1.0, 0.1, 0.5, 0.0])
        cluster.delay_s = lambda _operation: next(delays)
        done: list[int] = []

        async def create(number: int) -> None:
            await store.session.create(f"/n{number}")
            done.append(number)

        for number in range(4):
            start(create(number))
        for _ in range(30):
            clock.advance(0.05)
            made = [n for n in range(4) if cluster.stat(f"/n{n}")]
            assert made == list(range(len(made)))
        assert done == [0, 1, 2, 3]

    def test_a_delayed_operation_is_applied_half_way(
        self, cluster: MemoryZooKeeper, store: MemoryMetadata, clock: Clock
    ) -> None:
        cluster.delay_s = lambda _operation: 1.0
        creating = start(store.session.create("/a"))
        clock.advance(0.4)
        assert cluster.stat("/a") is None
        clock.advance(0.2)
        assert cluster.stat("/a") is not None
        assert not creating.called
        clock.advance(0.5)
        assert creating.called

    def test_faults_see_what_is_asked(
        self, cluster: MemoryZooKeeper, store: MemoryMetadata, clock: Clock
    ) -> None:
        seen: list[TreeOperation] = []
        ordinary = cluster.faults

        def look(operation: TreeOperation) -> Any:
            seen.append(operation)
            return ordinary(operation)

        cluster.faults = look
        run(store.instance_id(), clock)
        assert [(o.name, o.path, o.writes) for o in seen] == [("get", "/INSTANCEID", False)]


class TestIds:
    def test_a_new_flat_cluster_begins_with_3(self, clock: Clock) -> None:
        store = opened(MemoryZooKeeper.initialized(clock, "flat"), clock)
        (vector,) = load("metadata.json")["id_generation"]["flat"]
        assert [run(store.allocate_ledger_id(), clock) for _ in range(2)] == vector["ids"]

    def test_ids_agree_with_java(self, cluster: MemoryZooKeeper, clock: Clock) -> None:
        first, empty, seventh = load("metadata.json")["id_generation"]["hierarchical"]
        store = opened(cluster, clock)
        assert [run(store.allocate_ledger_id(), clock) for _ in range(2)] == first["ids"]
        cluster.create("/idgen-long", b"")
        store = opened(cluster, clock)
        assert [run(store.allocate_ledger_id(), clock) for _ in range(2)] == empty["ids"]
        for number in (2, 3, 4, 7):
            cluster.create(zk_paths.epoch(number), b"")
        store = opened(cluster, clock)
        assert [run(store.allocate_ledger_id(), clock)] == seventh["ids"]
        left = [f"/idgen-long/{name}" for name in cluster.children("/idgen-long")]
        assert not set(left) & set(seventh["deleted"])
        assert len(left) == 3

    def test_31_bits_run_out_once(self, cluster: MemoryZooKeeper, clock: Clock) -> None:
        one, other = opened(cluster, clock), opened(cluster, clock)
        assert run(one.allocate_ledger_id(), clock) == 0
        assert run(other.allocate_ledger_id(), clock) == 1
        cluster._nodes["/idgen"].created_below = 2**31 - 2
        assert run(one.allocate_ledger_id(), clock) == 2**31 - 2
        given = [run(store.allocate_ledger_id(), clock) for store in (one, other, one, other)]
        assert given == [2**32, 2**32 + 1, 2**32 + 2, 2**32 + 3]
        cluster._nodes[zk_paths.epoch(1)].created_below = 2**31 - 1
        given = [run(store.allocate_ledger_id(), clock) for store in (one, other)]
        assert given == [2 * 2**32, 2 * 2**32 + 1]

    def test_a_number_that_wrapped_is_no_id(self, cluster: MemoryZooKeeper, clock: Clock) -> None:
        store = opened(cluster, clock)
        assert store._number_of(CreatedNode("/idgen/ID--2147483648", 0)) is None
        assert store._number_of(CreatedNode("/idgen/ID-2147483647", 0)) is None
        assert store._number_of(CreatedNode("/idgen/ID-2147483646", 0)) == 2147483646

    def test_old_layouts_run_out(self, clock: Clock) -> None:
        cluster = MemoryZooKeeper.initialized(clock, "legacyhierarchical")
        store = opened(cluster, clock)
        assert run(store.allocate_ledger_id(), clock) == 0
        cluster._nodes["/idgen"].created_below = 2**31 - 1
        with pytest.raises(LedgerIdOverflowError):
            run(store.allocate_ledger_id(), clock)

    def test_a_deleted_epoch_is_not_made_again(
        self, cluster: MemoryZooKeeper, clock: Clock
    ) -> None:
        cluster.create("/idgen-long", b"")
        store = opened(cluster, clock)
        assert run(store.allocate_ledger_id(), clock) == 2**32
        for number in (2, 3, 4, 5):
            cluster.create(zk_paths.epoch(number), b"")
        cluster.delete(zk_paths.epoch(1))
        # It would begin at 0 again, and give the same ids again.
        assert run(store.allocate_ledger_id(), clock) == 5 * 2**32
        assert "HOB-0000000001" not in cluster.children("/idgen-long")


class TestStore:
    def test_a_shaded_layout_is_known_by_its_last_part(
        self, cluster: MemoryZooKeeper, store: MemoryMetadata, clock: Clock
    ) -> None:
        cluster.set(
            zk_paths.LAYOUT,
            b"2\ndlshade.org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1",
        )
        assert run(store.layout(), clock).name == "longhierarchical"
        cluster.set(zk_paths.LAYOUT, b"1\nhierarchical:1")
        assert run(store.layout(), clock).name == "hierarchical"

    @pytest.mark.parametrize("layout", [b"", b"3\nx:1"])
    def test_a_damaged_layout_is_named(
        self, cluster: MemoryZooKeeper, store: MemoryMetadata, clock: Clock, layout: bytes
    ) -> None:
        cluster.set(zk_paths.LAYOUT, layout)
        with pytest.raises(FormatError, match="/LAYOUT cannot be read"):
            run(store.allocate_ledger_id(), clock)

    def test_an_unknown_layout_is_refused(
        self, cluster: MemoryZooKeeper, store: MemoryMetadata, clock: Clock
    ) -> None:
        cluster.set(zk_paths.LAYOUT, b"2\norg.example.OtherFactory:1")
        with pytest.raises(IncompatibleLayoutError) as caught:
            run(store.allocate_ledger_id(), clock)
        assert caught.value.exit_status == 7

    def test_a_new_cluster_cannot_have_an_old_layout(self, clock: Clock) -> None:
        store = opened(MemoryZooKeeper(clock), clock)
        for layout in ("legacyhierarchical", "ms"):
            with pytest.raises(IncompatibleLayoutError):
                run(store.initialize(layout), clock)
        flat = opened(MemoryZooKeeper(clock), clock, layout="flat")
        with pytest.raises(IncompatibleLayoutError):
            run(flat.initialize("hierarchical"), clock)
        run(flat.initialize(), clock)
        assert run(flat.layout(), clock).name == "flat"

    def test_unreadable_metadata_names_its_ledger(
        self, cluster: MemoryZooKeeper, store: MemoryMetadata, clock: Clock
    ) -> None:
        run(store.create_ledger(L1, metadata()), clock)
        cluster.set("/00/0000/L0001", b"garbage")
        with pytest.raises(MetadataSerializationError, match="ledger 1"):
            run(store.read_ledger(L1), clock)

    def test_strange_nodes_among_ledgers_are_passed_over(
        self, cluster: MemoryZooKeeper, store: MemoryMetadata, clock: Clock
    ) -> None:
        run(store.create_ledger(L1, metadata()), clock)
        for path in ("/00/0000/other", "/00/other", "/00/0000/L1", "/mine", "/000", "/7"):
            cluster.create(path, b"")

        async def listed() -> list[LedgerId]:
            return [i async for ids in store.ledger_ranges() for i in ids]

        assert run(listed(), clock) == [1]

    def test_a_strange_repair_layout_is_refused(
        self, cluster: MemoryZooKeeper, store: MemoryMetadata, clock: Clock
    ) -> None:
        cluster.create("/underreplication", b"")
        cluster.create("/underreplication/LAYOUT", b'type: "OTHER"\nversion: 1\n')
        with pytest.raises(IncompatibleLayoutError):
            run(store.mark_underreplicated(L1, (B1,)), clock)

    def test_a_damaged_delay_is_said(
        self, cluster: MemoryZooKeeper, store: MemoryMetadata, clock: Clock
    ) -> None:
        run(store.set_lost_bookie_recovery_delay(3), clock)
        cluster.set(zk_paths.LOST_BOOKIE_DELAY, b"soon")
        with pytest.raises(FormatError, match="soon"):
            run(store.lost_bookie_recovery_delay(), clock)

    def test_a_race_between_pruning_and_creation_is_won_by_creation(
        self, cluster: MemoryZooKeeper, clock: Clock
    ) -> None:
        # Two sessions create and remove neighbours, with every interleaving that delays bring.
        chance = random.Random(1)
        cluster.delay_s = lambda _operation: chance.random() * 0.1
        for seed in range(40):
            one, other = opened(cluster, clock), opened(cluster, clock)
            first, second = LedgerId(10 * seed), LedgerId(10 * seed + 1)
            run(one.create_ledger(first, metadata()), clock)
            removing = start(one.remove_ledger(first))
            run(other.create_ledger(second, metadata()), clock)
            while not removing.called:
                clock.advance(0.01)
            assert run(other.read_ledger(second), clock).version == 0
            run(other.remove_ledger(second), clock)
            run(one.close(), clock)
            run(other.close(), clock)

    def test_a_poll_that_met_a_half_made_mark_is_woken_when_it_is_whole(
        self, cluster: MemoryZooKeeper, store: MemoryMetadata, clock: Clock
    ) -> None:
        calls: list[int] = []
        run(store.watch_underreplicated(lambda: calls.append(1)), clock)
        path = zk_paths.mark(L1)
        levels = path.split("/")[3:-1]
        for depth in range(len(levels)):
            cluster.create("/underreplication/ledgers/" + "/".join(levels[: depth + 1]), b"")
        clock.advance(1)
        assert run(store.poll_underreplicated(), clock) is None
        seen = len(calls)
        cluster.create(path, b"")
        clock.advance(1)
        assert len(calls) > seen
        assert run(store.poll_underreplicated(), clock) == 1

    def test_registering_waits_as_long_as_it_must(
        self, cluster: MemoryZooKeeper, clock: Clock
    ) -> None:
        old, new = opened(cluster, clock), opened(cluster, clock)
        run(old.register(B1, info(B1), read_only=False), clock)
        old.session.suspend()  # Killed: its session lives on for ten seconds.
        started_s = clock.seconds()
        run(new.register(B1, info(B1), read_only=False), clock)
        assert 10 <= clock.seconds() - started_s < 10.5

    def test_a_bookie_that_restarts_read_only_leaves_its_old_entry_to_its_old_session(
        self, cluster: MemoryZooKeeper, clock: Clock
    ) -> None:
        old, new = opened(cluster, clock), opened(cluster, clock)
        run(old.register(B1, info(B1), read_only=False), clock)
        old.session.suspend()
        run(new.register(B1, info(B1), read_only=True), clock)
        assert run(new.writable_bookies(), clock) == {B1}
        assert run(new.read_only_bookies(), clock) == frozenset()
        clock.advance(11)
        assert run(new.writable_bookies(), clock) == frozenset()
        assert run(new.read_only_bookies(), clock) == {B1}

    def test_a_listener_that_fails_does_not_silence_the_others(self, store: MemoryMetadata) -> None:
        heard: list[SessionEvent] = []

        def fail(_event: SessionEvent) -> None:
            raise ValueError("a bug")

        store.on_session(fail)
        listening = store.on_session(heard.append)
        store.session.expire()
        assert heard == [SessionEvent.LOST, SessionEvent.CONNECTED]
        listening.cancel()
        store.session.expire()
        assert len(heard) == 2
