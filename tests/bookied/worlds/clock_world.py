"""A bookie on a clock that the test sets: no reactor, threads or sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from bookied.server.server import BookieServer
from bookied.service.dependencies import Dependencies
from bookied.service.start_and_stop import BookieService
from bookied.service.threads import ThreadQueue
from bookied.state.bookie_state import State
from bookied.stats.metrics import MetadataStats
from bookied.storage.files.files import RealFiles
from tests.bookied.worlds.fakes import FakeHost, config_for, done, nobody_there
from tests.support.memory_zookeeper import MemoryZooKeeper


class FakePort:
    """A port nobody else can reach; ``factory`` is there while it listens."""

    def __init__(self, port: int = 3181) -> None:
        self.port = port
        self.factory: BookieServer | None = None

    def listen(self, factory: IProtocolFactory) -> None:
        self.factory = cast("BookieServer", factory)

    async def close(self) -> None:
        self.factory = None


class FakeListener:
    def __init__(self) -> None:
        self.bound = FakePort()
        self.others: dict[tuple[str, int], FakePort] = {}

    def bind(self, host: str, port: int) -> FakePort:
        """Give the bookie's own port, which no test says, or another."""
        if port == 0:
            return self.bound
        return self.others.setdefault((host, port), FakePort(port))


class NoLocks:
    def take(self, roots: Any) -> None:
        pass

    def release(self) -> None:
        pass


class World:
    def __init__(self, tmp_path: Path, cluster: MemoryZooKeeper | None = None, **conf: Any) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.cluster = cluster or MemoryZooKeeper.initialized(self.clock)
        self.store = self.cluster.metadata()
        self.listener = FakeListener()
        self.failures: list[Exception] = []
        queues = {name: ThreadQueue(at_once) for name in ("read", "blocking")}
        told: dict[str, Any] = {
            "advertised_address": "bookie7",
            # Real journal files that go past the page cache have a thread each.
            "journal_remove_from_page_cache": False,
            # How full the machine's own disk is changes nothing.
            "disk_full_at": 1.0,
            "disk_warn_at": 1.0,
        }
        self.service = BookieService(
            config_for(tmp_path, **(told | conf)),
            Dependencies(
                clock=self.clock,
                call_from_thread=lambda function, *arguments: function(*arguments),
                store=self.store,
                files=RealFiles(),
                host=FakeHost(),
                listener=self.listener,
                locks=NoLocks(),
                run_blocking=queues["blocking"],
                run_reads=queues["read"],
                queues=queues,
                metadata_stats=MetadataStats(),
                connect=nobody_there,
                threads=False,
                close=lambda: succeed(None),
            ),
            failed=self.failures.append,
        )

    def connect(self) -> StringTransport:
        assert self.listener.bound.factory is not None
        connection = self.listener.bound.factory.buildProtocol(None)
        assert connection is not None
        transport = StringTransport()
        connection.makeConnection(transport)
        self.connection = connection
        return transport

    def step(self) -> None:
        assert self.service.engine is not None
        for journal in self.service.engine.journals:
            while journal.step():
                pass

    def run_for(self, seconds: float) -> None:
        self.clock.pump([0.25] * int(seconds * 4))

    def stop(self) -> None:
        stopping = Deferred.fromCoroutine(self.service.stop())
        if hasattr(self, "connection"):
            self.connection.connectionLost()
        self.run_for(20)
        assert stopping.called


def at_once(function: Callable[[], Any]) -> Deferred[Any]:
    return maybeDeferred(function)


@contextmanager
def started(tmp_path: Path) -> Iterator[World]:
    """Start a bookie, and stop it unless the test has."""
    found = World(tmp_path)
    done(found.service.start())
    yield found
    if found.service.state.now is not State.STOPPED:
        found.stop()
