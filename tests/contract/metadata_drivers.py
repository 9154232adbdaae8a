"""The metadata drivers under one contract: how tests open them, and how things go wrong in each."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from bkclient.metadata import open_metadata, zk_paths
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.zookeeper import ZooKeeperMetadata
from tests.contract.zk_proxy import ZooKeeperProxy
from tests.support import reactor
from tests.support.memory_zookeeper import MemoryMetadata, MemoryZooKeeper
from tests.support.waiting import START_S
from wire.ids import LedgerId

T = TypeVar("T")

SPOILT = b"\xffnonsense"

RUN_S = 180.0
"""How long a scenario may take in real time."""


class Driver(Protocol):
    """One driver with one cluster of its own, and switches for what can go wrong."""

    name: str

    async def open(self, **options: Any) -> Any:
        """Return a connected store; the driver closes it in the end."""
        ...

    def run(self, scenario: Coroutine[Deferred[Any], Any, T]) -> T:
        """Run a scenario to its end."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def expire(self, store: Any) -> None:
        """Let the store's session expire, though its owner lives."""
        ...

    async def spoil_mark(self, store: Any, ledger_id: LedgerId) -> None:
        """Put bytes that are not a mark in the place of a ledger's."""
        ...


async def spoil_mark_in_tree(store: Any, ledger_id: LedgerId) -> None:
    await store._tree.set(zk_paths.mark(ledger_id), SPOILT)


class DriverBase(ABC):
    """What the drivers share."""

    def __init__(self) -> None:
        self.stores: list[MetadataStore] = []

    async def until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Wait until a condition holds; fail the test after ``timeout_s``."""
        for _ in range(int(timeout_s / 0.02)):
            if condition():
                return
            await self.sleep(0.02)
        raise AssertionError("condition not met in time")

    @abstractmethod
    async def sleep(self, seconds: float) -> None: ...

    async def close(self) -> None:
        for store in reversed(self.stores):
            await store.close()


class MemoryDriver(DriverBase):
    """Everything on a clock that runs only while a scenario waits."""

    name = "memory"
    timeout_s = 2.0

    def __init__(self, layout: str = "hierarchical") -> None:
        super().__init__()
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.cluster = MemoryZooKeeper(self.clock)
        self.layout = layout

    async def open(self, **options: Any) -> MemoryMetadata:
        store = self.cluster.metadata(session_timeout_s=self.timeout_s, **options)
        await store.connect()
        self.stores.append(store)
        return store

    def run(self, scenario: Coroutine[Deferred[Any], Any, T]) -> T:
        results: list[Any] = []
        Deferred.fromCoroutine(scenario).addBoth(results.append)
        for _ in range(20_000):
            if results:
                break
            self.clock.advance(0.01)
        assert results, "the scenario waits for ever"
        result: T | Failure = results[0]
        if isinstance(result, Failure):
            raise result.value or AssertionError(result)
        return result

    async def sleep(self, seconds: float) -> None:
        slept: Deferred[None] = Deferred()
        self.clock.callLater(seconds, slept.callback, None)
        await slept

    async def expire(self, store: MemoryMetadata) -> None:
        store.session.expire()

    async def spoil_mark(self, store: MemoryMetadata, ledger_id: LedgerId) -> None:
        await spoil_mark_in_tree(store, ledger_id)


class SqliteDriver(DriverBase):
    """A file and a real reactor."""

    name = "sqlite"
    timeout_s = 4.0

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.path = directory / "metadata.sqlite"

    async def open(self, **options: Any) -> Any:
        settings: dict[str, Any] = {
            "poll_interval_s": 0.02,
            "session_timeout_s": self.timeout_s,
            **options,
        }
        store = open_metadata(f"sqlite://{self.path}", reactor=reactor.the_reactor(), **settings)
        await store.connect()
        self.stores.append(store)
        return store

    def run(self, scenario: Coroutine[Deferred[Any], Any, T]) -> T:
        return reactor.run(scenario, RUN_S)

    async def sleep(self, seconds: float) -> None:
        await reactor.sleep(seconds)

    async def expire(self, store: Any) -> None:
        connection = sqlite3.connect(self.path, timeout=60)
        with connection:
            connection.execute(
                "UPDATE session SET expires_ms = 0 WHERE id = ?", (store.session_id,)
            )
        connection.close()

    async def spoil_mark(self, _store: Any, ledger_id: LedgerId) -> None:
        connection = sqlite3.connect(self.path, timeout=60)
        with connection:
            connection.execute(
                "UPDATE node SET value = ? WHERE kind = 'mark' AND key = ?", (SPOILT, ledger_id)
            )
        connection.close()


class ZooKeeperDriver(DriverBase):
    """A root of its own on a real server, reached through a proxy that can cut connections."""

    name = "zookeeper"
    timeout_s = 6.0

    def __init__(self, server: Any, root: str, layout: str = "hierarchical") -> None:
        super().__init__()
        self.server, self.root, self.layout = server, root, layout
        self.proxy = ZooKeeperProxy(reactor.the_reactor(), server.port)
        reactor.call(self.proxy.start)

    @property
    def uri(self) -> str:
        return self.at(self.root, self.layout)

    @property
    def direct_uri(self) -> str:
        """The same without the proxy."""
        return f"zk+{self.layout}://127.0.0.1:{self.server.port}{self.root}"

    def at(self, root: str, layout: str) -> str:
        """Return the URI of another root, or layout, on this server."""
        return f"zk+{layout}://127.0.0.1:{self.proxy.port}{root}"

    async def open(self, **options: Any) -> ZooKeeperMetadata:
        uri = options.pop("uri", self.uri)
        settings = {"session_timeout_s": self.timeout_s, **options}
        store = open_metadata(uri, reactor=reactor.the_reactor(), **settings)
        assert isinstance(store, ZooKeeperMetadata)
        await store.connect()
        self.stores.append(store)
        return store

    def run(self, scenario: Coroutine[Deferred[Any], Any, T]) -> T:
        return reactor.run(scenario, RUN_S)

    async def sleep(self, seconds: float) -> None:
        await reactor.sleep(seconds)

    async def spoil_mark(self, store: ZooKeeperMetadata, ledger_id: LedgerId) -> None:
        await spoil_mark_in_tree(store, ledger_id)

    async def expire(self, store: ZooKeeperMetadata) -> None:
        """Take the session over with its id and password, and close it."""
        from twisted.internet.threads import deferToThread

        identity = (store.session_id, store.session.session_password)
        await deferToThread(self.end_session, identity)

    def end_session(self, identity: tuple[int, bytes]) -> None:
        """Close a session from another connection; blocks."""
        from kazoo.client import KazooClient

        client = KazooClient(f"127.0.0.1:{self.server.port}", client_id=identity)
        client.start(timeout=START_S)
        client.stop()
        client.close()

    async def close(self) -> None:
        await super().close()
        await self.proxy.stop()
