"""Peers that are gone without a word: a live bookie lets go of them, and serves the others.

Those that vanish drop all that comes in, confirmations and probes of the system too, as a machine
without power does. Those behind the proxy look well to the system, as behind a load balancer whose
other side is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from tests.bookied.worlds.raw_client import RawClient
from tests.live.bookied.attacked_bookie import Live, WellBehaved, kept_service
from tests.support.reactor import call, run, the_reactor
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import until
from wire.codes import ReturnCode
from wire.frames import v2
from wire.ids import EntryId, LedgerId
from wire.messages import ReadRequest

pytestmark = pytest.mark.processes

IDLE_S, SYSTEM_S = 10.0, 3.0
PEERS = 20
SO_ATTACH_FILTER = 26
_RETURN_NOTHING = struct.pack("=HBBI", 0x06, 0, 0, 0)
"""The program ``ret #0`` of the socket filter: no byte of any packet is let through."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    found = Live(
        tmp_path_factory.mktemp("half-open"),
        serverIdleTimeoutMs=int(IDLE_S * 1000),
        serverTcpKeepIdle=1,
        serverTcpKeepIntvl=1,
        serverTcpKeepCnt=2,
        serverTcpUserTimeoutMs=int(SYSTEM_S * 1000),
    )
    yield found
    found.process.kill()


@pytest.fixture(autouse=True)
def service(live: Live, request: pytest.FixtureRequest) -> Iterator[WellBehaved]:
    with kept_service(live.port, request.node.name) as client:
        yield client


def vanish(sock: socket.socket) -> None:
    """Have a connection's end drop all that comes in; it still sends."""
    program = ctypes.create_string_buffer(_RETURN_NOTHING, len(_RETURN_NOTHING))
    filter_of_one = struct.pack("@HP", 1, ctypes.addressof(program))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_of_one)
    # At last it goes with a reset, and the system tries nothing for its sake.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextlib.contextmanager
def let_go(live: Live, *, after_s: float) -> Iterator[None]:
    """Wait after the block until only the client that behaves is left; it is not too early.

    That it is in time is told by which of the limits it was.
    """
    until(lambda: live.metrics()["bookied_connections"] == PEERS + 1)
    began_s = time.monotonic()
    yield
    until(lambda: live.metrics()["bookied_connections"] == 1)
    assert time.monotonic() - began_s > after_s / 2


def test_silent_peers_that_vanish_are_found_by_the_system(live: Live) -> None:
    broken, idle = live.metrics()["bookied_connections_broken_total"], live.hits("idle_time")
    with live.hostiles(PEERS), let_go(live, after_s=SYSTEM_S):
        for sock in live.of:
            vanish(sock)
    assert live.metrics()["bookied_connections_broken_total"] == broken + PEERS
    assert live.hits("idle_time") == idle


def test_peers_that_vanish_before_their_answers_are_found_by_the_system(live: Live) -> None:
    with RawClient(live.port) as client:
        assert client.add(70, 0, b"x" * 100_000) is ReturnCode.EOK
    broken, idle = live.metrics()["bookied_connections_broken_total"], live.hits("idle_time")
    read = v2.encode_request(ReadRequest(LedgerId(70), EntryId(0)))
    with live.hostiles(PEERS), let_go(live, after_s=SYSTEM_S):
        for sock in live.of:
            vanish(sock)
            sock.sendall(read * 5)
    assert live.metrics()["bookied_connections_broken_total"] == broken + PEERS
    assert live.hits("idle_time") == idle
    assert live.memory("answers not taken") == 0


def test_peers_behind_a_link_that_swallows_all_are_found_by_their_silence(live: Live) -> None:
    idle = live.hits("idle_time")
    proxy = TcpProxy(the_reactor(), live.port)
    call(proxy.start)
    try:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(RawClient(proxy.port)) for _ in range(PEERS)]
            assert [one.add(71, at) for at, one in enumerate(clients)] == [ReturnCode.EOK] * PEERS
            began_s = time.monotonic()
            with let_go(live, after_s=IDLE_S):
                call(proxy.swallow)
                for at, client in enumerate(clients):
                    client.send_add(71, PEERS + at, b"never comes")
        assert live.hits("idle_time") == idle + PEERS
        assert live.said_once_in_a_while("idle_time", began_s)
    finally:
        run(proxy.stop())
