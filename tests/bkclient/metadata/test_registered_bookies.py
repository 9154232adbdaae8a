"""Which bookies are registered, while one of them goes from one list to the other."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from bkclient.metadata import zk_paths
from bkclient.metadata.errors import MetadataAccessError
from bkclient.metadata.tree.nodes import AGAIN_S
from tests.bkclient.metadata.values import B1, run
from tests.support.memory_zookeeper import Fault, MemoryZooKeeper, TreeOperation


@pytest.mark.parametrize("moves_before", range(1, 6))
@pytest.mark.parametrize("becomes", ["writable", "read-only"])
def test_a_bookie_that_changes_lists_is_in_one_of_them(moves_before: int, becomes: str) -> None:
    """Or it would seem lost, and its replicas would be copied to other bookies."""
    old, new = (zk_paths.registration(B1, read_only=one) for one in (False, True))
    if becomes == "writable":
        old, new = new, old
    clock = Clock()
    cluster = MemoryZooKeeper.initialized(clock)
    store = cluster.metadata()
    run(store.connect(), clock)
    cluster.create(old, b"")
    reads: list[TreeOperation] = []

    def move(operation: TreeOperation) -> Fault:
        reads.append(operation)
        if len(reads) == moves_before:
            cluster.create(new, b"")
            cluster.delete(old)
        return Fault.NONE

    cluster.faults = move
    assert run(store.registered_bookies(), clock) == {B1}


def test_who_was_denied_access_for_a_while_hears_of_changes_again() -> None:
    """As an auditor, which hears of lost bookies by nothing else."""
    clock = Clock()
    cluster = MemoryZooKeeper.initialized(clock)
    store = cluster.metadata()
    run(store.connect(), clock)
    calls: list[int] = []
    watch = run(store.watch_bookies(lambda: calls.append(1)), clock)
    is_denied = True

    def judge(operation: TreeOperation) -> Fault:
        if is_denied and operation.name == "children":
            raise MetadataAccessError.denied(operation.path)
        return Fault.NONE

    cluster.faults = judge
    path = zk_paths.registration(B1, read_only=False)
    cluster.create(path, b"")
    clock.pump([AGAIN_S] * 3)
    assert not calls
    is_denied = False
    clock.pump([AGAIN_S, 0.1])
    assert len(calls) == 1
    cluster.delete(path)
    clock.pump([0.1] * 3)
    assert len(calls) == 2
    watch.cancel()
