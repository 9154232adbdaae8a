"""Fixtures for tests with real Java peers: one ZooKeeper and one JVM for the whole run.

Where Java, PySpark or the jars are missing, the tests are skipped with the reason; with CI=true in
the environment they fail.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkctl.commands.local.java import JavaNotFoundError, SparkNotFoundError
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.interop.peers.class_archive import ensure_class_archive
from tests.interop.peers.jars import PeerUnavailable, bookkeeper_jars
from tests.interop.peers.jvm import JavaVM
from tests.interop.peers.peers import Peers
from tests.support.programs import missing
from tests.support.waiting import START_S, until_sessions_are_closed

FAILED = pytest.StashKey[bool]()
"""Whether a test has failed: its fixtures look, before another gets what it shares."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.interop)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="package", autouse=True)
def all_sessions_are_closed() -> Iterator[None]:
    """See that no session is left over; modules share what they start, sessions too."""
    yield
    until_sessions_are_closed()


@pytest.fixture(scope="session")
def jars() -> list[Path]:
    """The class path of the Java release."""
    try:
        return bookkeeper_jars()
    except PeerUnavailable as e:
        missing(e)
        raise


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """A real ZooKeeper, shared by all tests; each uses a root of its own."""
    # Its tick allows sessions of 3 to 30 seconds.
    server = ZooKeeperProcess(
        tmp_path_factory.mktemp("zookeeper"), tick_ms=1500, fsync=False, heap_mb=192
    )
    try:
        server.start(START_S)
    except (JavaNotFoundError, SparkNotFoundError) as e:
        missing(e)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def java_vm(
    jars: list[Path], zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaVM]:
    """The JVM of the Java clients; it starts when the first is made."""
    ensure_class_archive(zookeeper)
    vm = JavaVM(tmp_path_factory.mktemp("java-vm"))
    yield vm
    vm.stop()


@pytest.fixture
def peers(zookeeper: ZooKeeperProcess, java_vm: JavaVM, tmp_path: Path) -> Iterator[Peers]:
    """Peers for one test."""
    stage = Peers(zookeeper, java_vm, tmp_path)
    yield stage
    stage.close()


@pytest.fixture(scope="module")
def module_peers(
    zookeeper: ZooKeeperProcess, java_vm: JavaVM, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peers]:
    """Peers that the tests of one module share."""
    stage = Peers(zookeeper, java_vm, tmp_path_factory.mktemp("peers"))
    yield stage
    stage.close()
