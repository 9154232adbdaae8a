"""Host names that resolve late or never, and what waits for them meanwhile."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import DNSLookupError
from twisted.internet.interfaces import IAddress, IHostnameResolver, IResolutionReceiver
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer
from zope.interface.verify import verifyObject

from bkclient.connection.name_lookup import LOOKUPS_MAX, NameLookup
from bkclient.connection.tcp import TcpConnect
from tests.support.reactor import call, run, the_reactor
from tests.support.waiting import until

LATE = "late.example"
WAIT_S = 60.0

Answer = list[tuple[Any, ...]]
V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 3181))
V6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 3181, 0, 0))
OTHER = (socket.AF_UNIX, socket.SOCK_STREAM, 0, "", "/a/path")


ENDS_WHILE_NAMES_BLOCK = """
import socket, threading
from bkclient.blocking import reactor_in_thread
from bkclient.connection.tcp import TcpConnect
from twisted.internet.protocol import Protocol

blocked, names = threading.Event(), threading.Semaphore(0)

def getaddrinfo(*_, **__):
    names.release()
    blocked.wait()

socket.getaddrinfo = getaddrinfo
reactor = reactor_in_thread()
for number in range(20):
    reactor.callFromThread(TcpConnect(reactor), f"b{number}.example", 3181, Protocol, 60.0)
for _ in range(20):
    names.acquire()
print("20 names")
"""


class System:
    """The system's resolver: names whose servers are silent wait for ``release``."""

    def __init__(self) -> None:
        self.released, self.names = threading.Event(), list[str]()
        self.answer: Callable[[], Answer] = lambda: [V4, OTHER, V6]

    def getaddrinfo(self, name: str, _port: int, **_: object) -> Answer:
        self.names.append(name)
        if name.endswith(LATE):
            assert self.released.wait(WAIT_S)
        return self.answer()


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    found = System()
    monkeypatch.setattr(socket, "getaddrinfo", found.getaddrinfo)
    yield found
    found.released.set()
    until(lambda: not lookups())


def lookups() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "name-lookup"]


@implementer(IResolutionReceiver)
@attrs.define(eq=False)
class Receiver:
    """Who asks for a name."""

    found: list[IAddress] = attrs.field(factory=list)
    began: list[Any] = attrs.field(factory=list)
    completed: int = 0

    def resolutionBegan(self, resolution: Any) -> None:  # noqa: N802
        self.began.append(resolution)

    def addressResolved(self, address: IAddress) -> None:  # noqa: N802
        assert not self.completed
        self.found.append(address)

    def resolutionComplete(self) -> None:  # noqa: N802
        self.completed += 1


def asked(lookup: NameLookup, name: str, **more: Any) -> Receiver:
    receiver = Receiver()
    call(lambda: lookup.resolveHostName(receiver, name, 3181, **more))
    return receiver


@pytest.fixture
def lookup() -> NameLookup:
    found = NameLookup(the_reactor())
    assert verifyObject(IHostnameResolver, found)
    return found


def test_a_name_has_all_its_addresses(system: System, lookup: NameLookup) -> None:
    receiver = asked(lookup, "b1.example")
    until(lambda: receiver.completed)
    assert receiver.found == [
        IPv4Address("TCP", "192.0.2.1", 3181),
        IPv6Address("TCP", "2001:db8::1", 3181, 0, 0),
    ]
    assert [one.name for one in receiver.began] == ["b1.example"]
    assert system.names == ["b1.example"]


def test_addresses_are_of_the_wanted_kind(system: System, lookup: NameLookup) -> None:
    receiver = asked(lookup, "b1.example", addressTypes=[IPv6Address])
    until(lambda: receiver.completed)
    assert [type(address) for address in receiver.found] == [IPv6Address]
    assert system.names


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(-2, "Name or service not known"),
        OSError(24, "Too many open files"),
        UnicodeError("label too long"),
        OverflowError("a port that is no number of the system's"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_name_that_fails_has_no_addresses(
    system: System, lookup: NameLookup, error: Exception
) -> None:
    def fail() -> Answer:
        raise error

    system.answer = fail
    receiver = asked(lookup, "b1.example")
    until(lambda: receiver.completed)
    assert receiver.found == []


def test_names_that_block_hold_up_no_others_and_end_when_they_resolve(
    system: System, lookup: NameLookup
) -> None:
    late = [asked(lookup, f"b{number}.{LATE}") for number in range(50)]
    other = asked(lookup, "b1.example")
    until(lambda: other.completed)
    assert [receiver.completed for receiver in late] == [0] * 50
    system.released.set()
    until(lambda: all(receiver.completed for receiver in late))
    assert all(len(receiver.found) == 2 for receiver in late)


def test_the_reactors_threads_are_left_to_others(system: System, lookup: NameLookup) -> None:
    pool = the_reactor().getThreadPool()
    waiting = [asked(lookup, f"b{number}.{LATE}") for number in range(50)]
    done = threading.Event()
    pool.callInThread(done.set)
    assert done.wait(WAIT_S)
    assert not any(receiver.completed for receiver in waiting)
    assert not system.released.is_set()


def test_names_beyond_the_limit_wait_for_others(system: System, lookup: NameLookup) -> None:
    many = [asked(lookup, f"b{number}.{LATE}") for number in range(LOOKUPS_MAX + 3)]
    until(lambda: len(system.names) == LOOKUPS_MAX)
    assert len(lookups()) == LOOKUPS_MAX
    system.released.set()
    until(lambda: all(receiver.completed == 1 for receiver in many))
    assert len(system.names) == LOOKUPS_MAX + 3


def test_a_lookup_that_is_cancelled_is_answered_once_and_late(
    system: System, lookup: NameLookup
) -> None:
    receiver = asked(lookup, LATE)
    call(receiver.began[0].cancel)
    assert not receiver.completed
    system.released.set()
    until(lambda: receiver.completed)
    assert receiver.completed == 1


def test_a_connection_ends_by_its_own_limit_while_its_name_blocks(system: System) -> None:
    connect = TcpConnect(the_reactor())

    async def connected() -> None:
        await connect(LATE, 3181, Protocol, 0.2)

    with pytest.raises(DNSLookupError, match=r"no answer within 0\.2 s"):
        run(connected())
    assert system.names == [LATE]


def test_a_connection_that_is_given_up_does_not_wait_for_its_name(system: System) -> None:
    ended: list[Failure] = []

    def connect_and_leave() -> None:
        connecting = TcpConnect(the_reactor())(LATE, 3181, Protocol, WAIT_S)
        connecting.addErrback(ended.append)
        connecting.cancel()

    call(connect_and_leave)
    assert ended
    until(lambda: system.names)
    assert not system.released.is_set()


def test_a_process_ends_while_names_block() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_WHILE_NAMES_BLOCK],
        capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "20 names\n", "")


def test_without_another_thread_a_name_does_not_resolve(
    system: System, lookup: NameLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as refusing:
        refusing.setattr(threading.Thread, "start", refuse)
        receiver = asked(lookup, "b1.example")
    assert (receiver.completed, receiver.found, system.names) == (1, [], [])
    again = asked(lookup, "b1.example")
    until(lambda: again.completed)
    assert again.found
