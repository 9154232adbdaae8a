"""Fixtures of the contract suites."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import ILogObserver, globalLogPublisher
from zope.interface import implementer

from bkctl.commands.local.java import JavaNotFoundError, SparkNotFoundError
from bkctl.commands.local.zookeeper import ZooKeeperProcess
from tests.contract.metadata_drivers import MemoryDriver, SqliteDriver, ZooKeeperDriver
from tests.support import reactor
from tests.support.programs import missing
from tests.support.waiting import START_S

_roots = itertools.count()


@pytest.fixture(scope="session")
def contract_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """A ZooKeeper of this suite's own, since it stops and starts it."""
    server = ZooKeeperProcess(
        tmp_path_factory.mktemp("zookeeper"), tick_ms=300, fsync=False, heap_mb=128
    )
    try:
        server.start(START_S)
    except (JavaNotFoundError, SparkNotFoundError) as error:
        missing(error)
    yield server
    server.stop()


@pytest.fixture(params=["memory", "sqlite", pytest.param("zookeeper", marks=pytest.mark.interop)])
def bare_driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A driver, each in turn, with no cluster made yet."""
    driver: Any
    if request.param == "memory":
        driver = MemoryDriver()
    elif request.param == "sqlite":
        driver = SqliteDriver(tmp_path)
    else:
        server = request.getfixturevalue("contract_zookeeper")
        driver = ZooKeeperDriver(server, f"/contract/{next(_roots)}")
    yield driver
    driver.run(driver.close())


@pytest.fixture
def driver(bare_driver: Any) -> Any:
    """A driver, each in turn, with a new cluster."""

    async def initialize() -> None:
        store = await bare_driver.open()
        await store.initialize()
        await store.close()

    bare_driver.run(initialize())
    return bare_driver


@pytest.fixture
def zk_driver(contract_zookeeper: ZooKeeperProcess) -> Iterator[ZooKeeperDriver]:
    """ZooKeeper with a new cluster, for what concerns only it."""
    driver = ZooKeeperDriver(contract_zookeeper, f"/contract/{next(_roots)}")

    async def initialize() -> None:
        store = await driver.open()
        await store.initialize()
        await store.close()

    driver.run(initialize())
    yield driver
    driver.run(driver.close())


@pytest.fixture
def real_reactor() -> Any:
    """The running reactor."""
    return reactor.the_reactor()


@pytest.fixture(scope="package", autouse=True)
def nothing_of_other_tests_is_left() -> None:
    """Collect what tests of other folders have left, which would count against the first here."""
    gc.collect()


@pytest.fixture(autouse=True)
def nothing_goes_wrong_unheard() -> Iterator[None]:
    """Fail the test after which an error was only logged."""
    failures: list[Any] = []

    @implementer(ILogObserver)
    def observe(event: dict[str, Any]) -> None:
        if "log_failure" in event:
            failures.append(event["log_failure"])

    globalLogPublisher.addObserver(observe)
    yield
    gc.collect()  # A Deferred whose error nobody took says so when it is collected.
    globalLogPublisher.removeObserver(observe)
    assert not failures, failures[0].getTraceback()
