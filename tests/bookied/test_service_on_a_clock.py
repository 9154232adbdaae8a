"""A bookie on a clock that the test sets: no reactor, threads or sockets, as simulations run it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from bkclient.metadata.memory import MemoryCluster
from bookied.files import RealFiles
from bookied.parts import Parts
from bookied.server import BookieServer
from bookied.service import BookieService
from bookied.state import State
from tests.bookied.fakes import FakeHost, config_for, done
from tests.bookied.serving import KEY, packet
from wire import v2
from wire.codes import ReturnCode
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest

ACKNOWLEDGED = v2.ADD_RESPONSE.pack(24, v2.ADD_HEADER, ReturnCode.EOK, 7, 0)


class FakePort:
    """A port nobody else can reach; ``factory`` is there while it listens."""

    port = 3181

    def __init__(self) -> None:
        self.factory: BookieServer | None = None

    def listen(self, factory: IProtocolFactory) -> None:
        self.factory = cast("BookieServer", factory)

    async def close(self) -> None:
        self.factory = None


class FakeListener:
    def __init__(self) -> None:
        self.bound = FakePort()

    def bind(self, host: str, port: int) -> FakePort:
        return self.bound


class NoLocks:
    def take(self, roots: Any) -> None:
        pass

    def release(self) -> None:
        pass


class World:
    def __init__(self, tmp_path: Path) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.cluster = MemoryCluster.initialized(self.clock)
        self.store = self.cluster.metadata()
        self.listener = FakeListener()
        self.failures: list[Exception] = []
        self.service = BookieService(
            config_for(tmp_path, advertised_address="bookie7"),
            Parts(
                clock=self.clock,
                call_from_thread=lambda function, *arguments: function(*arguments),
                store=self.store,
                files=RealFiles(),
                host=FakeHost(),
                listener=self.listener,
                locks=NoLocks(),
                run_blocking=at_once,
                run_reads=at_once,
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


def at_once(function: Callable[[], Any]) -> Deferred[Any]:
    return maybeDeferred(function)


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    done(found.service.start())
    return found


def add(entry_id: int) -> bytes:
    return v2.encode_request(AddRequest(LedgerId(7), EntryId(entry_id), KEY, packet(7, entry_id)))


def test_a_bookie_needs_neither_threads_nor_a_reactor(world: World) -> None:
    before = threading.active_count()
    transport = world.connect()
    world.connection.dataReceived(add(0))
    assert transport.value() == b"", "nothing is acknowledged before the journal has it"
    world.step()
    assert transport.value() == ACKNOWLEDGED
    assert threading.active_count() == before
    world.run_for(20)
    stopping = Deferred.fromCoroutine(world.service.stop())
    world.connection.connectionLost(cast("Any", None))
    world.run_for(20)
    assert stopping.called
    assert world.service.state.now is State.STOPPED
    assert world.listener.bound.factory is None


def test_a_lost_session_is_made_good_while_adds_go_on(world: World) -> None:
    transport = world.connect()
    world.store.session.suspend()
    world.run_for(30)
    world.connection.dataReceived(add(0))
    world.step()
    assert transport.value() == ACKNOWLEDGED
    world.store.session.resume()
    world.run_for(15)
    assert "/available/b1" in world.cluster._nodes
    assert world.failures == []
