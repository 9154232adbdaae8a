"""The reactor tells of each event whom it is for, and one that fails is no other's trouble."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.abstract import FileDescriptor

if sys.platform != "linux":
    pytest.skip("Twisted's own reactor runs there", allow_module_level=True)

from bookied.process.reactor import PromptReactor


class End(FileDescriptor):
    """One end of a pair of sockets, with something to do when bytes have come."""

    def __init__(self, reactor: Any, do_read: Callable[[], object] = lambda: None) -> None:
        super().__init__(reactor)
        self.socket, self.peer = socket.socketpair()
        self.events: list[str] = []
        self._do_read = do_read

    def fileno(self) -> int:
        return self.socket.fileno()

    def doRead(self) -> None:
        self.events.append(f"read {self.socket.recv(10).decode()}")
        self._do_read()

    def doWrite(self) -> None:
        self.events.append("write")
        self.reactor.removeWriter(self)

    def connectionLost(self, reason: Any) -> None:
        self.events.append(f"lost: {reason.type.__name__}")
        self.close()

    def close(self) -> None:
        self.reactor.removeReader(self)
        self.reactor.removeWriter(self)
        self.socket.close()
        self.peer.close()


@pytest.fixture
def reactor() -> Iterator[Any]:
    made = PromptReactor()  # type: ignore[no-untyped-call]
    yield made
    for end in made.removeAll():
        end.close()
    for waker in made._internalReaders:
        waker.connectionLost(None)
    made._poller.close()


def test_who_has_bytes_reads_and_who_has_space_writes(reactor: Any) -> None:
    reader, writer = End(reactor), End(reactor)
    reactor.addReader(reader)
    reactor.addWriter(writer)
    reader.peer.send(b"one")
    reactor.doIteration(10)
    reactor.doIteration(0)
    assert (reader.events, writer.events) == (["read one"], ["write"])
    writer.close()


def test_one_that_has_gone_with_an_event_before_gets_none(reactor: Any) -> None:
    ends = [End(reactor), End(reactor)]
    for end, other in zip(ends, reversed(ends), strict=True):
        end._do_read = other.close
        reactor.addReader(end)
        end.peer.send(b"go")
    reactor.doIteration(10)
    assert sorted(len(end.events) for end in ends) == [0, 1]


def test_one_that_fails_is_disconnected_and_the_others_go_on(reactor: Any, logs: list[str]) -> None:
    failing, other = End(reactor, lambda: 1 // 0), End(reactor)
    for end in (failing, other):
        reactor.addReader(end)
        end.peer.send(b"go")
    reactor.doIteration(10)
    assert failing.events == ["read go", "lost: ZeroDivisionError"]
    assert other.events == ["read go"]
    assert len(logs) == 1
    assert "ZeroDivisionError" in logs[0]


def test_who_watches_hears_of_each_of_several_events_before_it_and_of_the_end(reactor: Any) -> None:
    heard: list[object] = []

    def fail() -> None:
        heard.append("fails")
        raise ValueError("a bug")

    ends = [End(reactor, fail), End(reactor, fail)]
    reactor.before_event = heard.append
    for end in ends:
        reactor.addReader(end)
        end.peer.send(b"go")
    reactor.doIteration(10)
    assert heard in ([one, "fails", other, "fails", None] for one, other in (ends, ends[::-1]))


def test_who_watches_hears_nothing_of_an_event_that_comes_alone(reactor: Any) -> None:
    heard: list[object] = []
    end = End(reactor)
    reactor.before_event = heard.append
    reactor.addReader(end)
    end.peer.send(b"go")
    reactor.doIteration(10)
    reactor.doIteration(0)
    assert end.events == ["read go"]
    assert heard == []
