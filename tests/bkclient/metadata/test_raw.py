"""Nodes of a tree as they are, on a tree in memory."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bkclient.errors import LedgerIdOverflowError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import IncompatibleLayoutError
from bkclient.metadata.versions_and_watches import StoredNode
from tests.support.memory_zookeeper import MemoryMetadata, MemoryZooKeeper, TreeOperation
from wire.ids import LedgerId


def connected(cluster: MemoryZooKeeper, layout: str | None = None) -> MemoryMetadata:
    store = cluster.metadata(layout=layout)
    done(store.connect())
    return store


def done(work: object) -> object:
    """Return what is done at once, without a clock."""
    found: list[object] = []
    Deferred.fromCoroutine(work).addBoth(found.append)  # type: ignore[arg-type]
    (result,) = found
    value = getattr(result, "value", result)
    if isinstance(value, BaseException):
        raise value
    return value


async def everything(store: MemoryMetadata) -> list[StoredNode]:
    return [node async for some in store.nodes() for node in some]


def test_nodes_of_another_layout_than_the_uri_asks_for_are_refused() -> None:
    store = connected(MemoryZooKeeper(Clock()), layout="flat")
    with pytest.raises(IncompatibleLayoutError, match="asks for the layout flat"):
        done(store.add_nodes([StoredNode("/00", b"", 0)], "hierarchical"))


def test_a_leaf_costs_one_request() -> None:
    cluster = MemoryZooKeeper.initialized(Clock())
    for name in range(50):
        cluster.create(f"/leaf-{name}", b"x")
    store = connected(cluster)
    seen: list[TreeOperation] = []
    cluster.delay_s = lambda operation: seen.append(operation) or 0.0  # type: ignore[func-returns-value]
    found = done(everything(store))
    assert isinstance(found, list)
    assert len(found) == 55
    listed = [one.path for one in seen if one.name == "children"]
    assert listed == ["", "/available"]


@pytest.mark.parametrize("layout", ["flat", "hierarchical"])
def test_a_walk_finds_each_ledger_that_a_log_lists_although_the_log_grows(layout: str) -> None:
    """Or a cluster that is restored from it would have a log that takes no more entries."""
    cluster = MemoryZooKeeper.initialized(Clock(), layout)
    store = connected(cluster)
    layout_found, found = zk_paths.LAYOUTS[layout], list[StoredNode]()

    async def walk() -> None:
        version, ledgers = await store.create_log("events", b"0"), 0
        async for some in store.nodes():
            found.extend(some)
            await store._tree.create_with_parents(layout_found.path_of(LedgerId(ledgers)))
            ledgers += 1
            version = await store.write_log("events", b"%d" % ledgers, version)

    done(walk())
    (listed,) = [int(node.value) for node in found if node.path == zk_paths.log("events")]
    assert {layout_found.id_of(node.path) for node in found} >= set(range(listed))


@pytest.mark.parametrize("layout", ["hierarchical", "longhierarchical"])
def test_many_ids_are_skipped_by_going_on_to_long_ones(layout: str) -> None:
    cluster = MemoryZooKeeper.initialized(Clock(), layout)
    store = connected(cluster)
    done(store.skip_ledger_ids(LedgerId(10_000_000), layout))
    assert done(store.allocate_ledger_id()) == 2**32


def near_the_end_of_short_ids(layout: str) -> MemoryZooKeeper:
    """Return a cluster that has given all short ids but 2,000."""
    cluster = MemoryZooKeeper.initialized(Clock(), layout)
    parent = zk_paths.LAYOUTS[layout].id_parent
    if parent != "":
        cluster.create(parent, b"")
    cluster._nodes[parent].created_below = zk_paths.SHORT_IDS_END - 2_000
    return cluster


def test_where_short_ids_end_none_is_used_up_one_by_one() -> None:
    cluster = near_the_end_of_short_ids("hierarchical")
    made: list[TreeOperation] = []
    cluster.delay_s = lambda operation: made.append(operation) or 0.0  # type: ignore[func-returns-value]
    store = connected(cluster)
    done(store.skip_ledger_ids(LedgerId(2**31 + 900), "hierarchical"))
    assert len(made) < 20
    assert done(store.allocate_ledger_id()) == 2**32


def test_a_flat_layout_can_use_up_its_last_ids() -> None:
    store = connected(near_the_end_of_short_ids("flat"))
    done(store.skip_ledger_ids(LedgerId(2**31 + 900), "flat"))
    with pytest.raises(LedgerIdOverflowError, match="all ledger ids are used up"):
        done(store.allocate_ledger_id())


def test_a_flat_layout_has_short_ids_alone() -> None:
    store = connected(MemoryZooKeeper.initialized(Clock(), "flat"))
    done(store.skip_ledger_ids(LedgerId(700), "flat"))
    assert done(store.allocate_ledger_id()) == 701


def test_a_flat_layout_does_not_use_up_ids_without_end() -> None:
    cluster = MemoryZooKeeper.initialized(Clock(), "flat")
    store = connected(cluster)
    failed = store.skip_ledger_ids(LedgerId(2**31 - 2), "flat")
    with pytest.raises(LedgerIdOverflowError, match="more than 1000000 are refused"):
        done(failed)
    assert done(store.allocate_ledger_id()) < 10
