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

    read_bytes = 0
    shares_turns = False

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


def read_turns(
    reactor: Any, sizes: list[int], turns: int, *, shares_turns: bool = True
) -> list[list[int]]:
    """Return the ends that each turn reads, where all have bytes all the time."""
    ends = [End(reactor) for _ in sizes]
    for end, size_bytes in zip(ends, sizes, strict=True):
        end.read_bytes, end.shares_turns = size_bytes, shares_turns
        reactor.addReader(end)
        end.peer.send(b"x" * 1000)
    found = []
    for _ in range(turns):
        before = [len(end.events) for end in ends]
        reactor.doIteration(10)
        found.append([no for no, end in enumerate(ends) if len(end.events) > before[no]])
    return found


def test_small_reads_are_first_and_a_turn_has_few_large_ones(reactor: Any) -> None:
    found = read_turns(reactor, [200_000] * 20 + [1000], 40)
    assert all(len(turn) == 2 and 20 in turn for turn in found)
    assert sorted(one for turn in found for one in turn if one != 20) == sorted([*range(20)] * 2)


def test_no_large_read_waits_for_ever_for_small_ones(reactor: Any) -> None:
    found = read_turns(reactor, [200_000] + [1] * 100, 250)
    assert sum(0 in turn for turn in found) == 2
    assert {one for turn in found for one in turn} == {*range(101)}


def test_reads_of_a_byte_are_not_before_those_of_a_request(reactor: Any) -> None:
    found = read_turns(reactor, [1000] + [1] * 200, 70)
    assert 10 <= sum(0 in turn for turn in found) <= 12


def test_a_turn_reads_many_where_one_address_adds_alone(reactor: Any) -> None:
    found = read_turns(reactor, [5000] * 100, 3, shares_turns=False)
    assert [sorted(turn) for turn in found] == [[*range(100)]] * 3


def test_a_turn_is_short_also_where_one_address_adds_alone(reactor: Any) -> None:
    found = read_turns(reactor, [131_072] * 20 + [1000], 20, shares_turns=False)
    assert all(len(turn) == 3 and 20 in turn for turn in found)
    assert sorted({one for turn in found for one in turn}) == [*range(21)]
