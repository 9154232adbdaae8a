"""One mixed cluster for all tests here; whatever a test broke is whole again for the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.interop.peers.jvm import JavaVM
from tests.interop.peers.peers import Peers
from tests.interop.replication.cluster import MixedCluster


@pytest.fixture(scope="package")
def mixed_cluster(
    zookeeper: ZooKeeperProcess, java_vm: JavaVM, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    peers = Peers(zookeeper, java_vm, tmp_path_factory.mktemp("replication"))
    try:
        yield MixedCluster(peers, 3)
    finally:
        peers.close()


@pytest.fixture
def cluster(mixed_cluster: MixedCluster) -> Iterator[MixedCluster]:
    yield mixed_cluster
    mixed_cluster.heal()
