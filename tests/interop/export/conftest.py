"""The stores that exports are tried on: a real S3 server and a real HDFS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkclient.blocking import BlockingClient
from tests.bkctl.support.cluster import Cluster, local_cluster
from tests.interop.peers.hadoop import hdfs
from tests.interop.peers.jars import PeerUnavailable
from tests.support.programs import missing
from tests.support.s3_server import BUCKET, s3_server


@pytest.fixture(scope="package", params=["s3a", "hdfs"])
def place(request, tmp_path_factory) -> Iterator[str]:
    """The URI of an empty file system; the environment has what clients need."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "s3a":
        with s3_server(directory) as variables, pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            yield f"s3a://{BUCKET}"
        return
    try:
        with hdfs(directory) as uri:
            yield uri
    except PeerUnavailable as error:
        missing(error)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster") / "bk", 3) as running:
        yield running


@pytest.fixture(scope="package")
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.uri) as connected:
        yield connected
