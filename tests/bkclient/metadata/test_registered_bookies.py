"""Which bookies are registered, while one of them goes from one list to the other."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from bkclient.metadata import zk_paths
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
