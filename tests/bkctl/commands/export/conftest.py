"""One Spark and one cluster for all tests of the export: a start takes longer than most of them.

No test stops a bookie of the cluster, or counts ledgers that it did not write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkclient.blocking import BlockingClient
from bkctl.commands.export.spark.session import spark_session
from tests.bkctl.support.cluster import Cluster, local_cluster
from tests.bkctl.support.spark import quick


@pytest.fixture(scope="package")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark notes what it does: what it knows, its UI shows too."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="package")
def spark(events: Path) -> Iterator[Any]:
    """A session in this process. A test that starts another one runs in a process of its own."""
    options = {
        **quick(),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": str(events),
    }
    with spark_session("local[2]", options=options) as session:
        yield session


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster") / "bk", 3) as running:
        yield running


@pytest.fixture(scope="package")
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.uri) as connected:
        yield connected
