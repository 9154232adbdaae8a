"""What a client has room for is sent at once; the rest waits, in order, for the reactor."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from bookied.server.client_transport import PromptConnection
from bookied.server.limits.handshake_turns import HandshakeTurns


class Reactor:
    """Remembers who is read, and who has something to send."""

    def __init__(self) -> None:
        self.readers: set[Any] = set()
        self.writers: set[Any] = set()

    def addReader(self, reader: Any) -> None:  # noqa: N802
        self.readers.add(reader)

    def removeReader(self, reader: Any) -> None:  # noqa: N802
        self.readers.discard(reader)

    def addWriter(self, writer: Any) -> None:  # noqa: N802
        self.writers.add(writer)

    def removeWriter(self, writer: Any) -> None:  # noqa: N802
        self.writers.discard(writer)


class Pair:
    """A connection of the bookie, and its client's socket."""

    def __init__(self, protocol: Any = None, turns: HandshakeTurns | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.client = socket.create_connection(listening.getsockname())
            self.own, _ = listening.accept()
        self.client.settimeout(60)
        self.own.setblocking(False)
        self.reactor = Reactor()
        self.protocol = protocol or Protocol()
        port: Any = _Port()
        reactor: Any = self.reactor
        self.clock = Clock()
        # What Twisted passes: socket, protocol, client, port, number of the session, reactor.
        self.connection = PromptConnection(
            self.own,
            self.protocol,
            ("127.0.0.1", 0),
            port,
            1,
            reactor,
            turns=turns or HandshakeTurns(self.clock),
        )
        self.protocol.makeConnection(self.connection)

    def turn(self) -> None:
        """Let each connection that waits for it send."""
        for writer in [*self.reactor.writers]:
            if (reason := writer.doWrite()) is not None:
                writer.connectionLost(Failure(reason))


class _Port:
    """What a connection asks of the port that it came by: its number, for its own name."""

    _realPortNumber = 0  # noqa: N815


@pytest.fixture
def pair() -> Iterator[Pair]:
    found = Pair()
    yield found
    found.client.close()
    found.own.close()


def test_answers_go_out_in_the_same_turn(pair: Pair) -> None:
    pair.connection.writeSequence([b"one", b"two"])
    assert pair.client.recv(100) == b"onetwo"
    assert not pair.reactor.writers


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_what_the_client_has_no_room_for_follows_in_order(pair: Pair, kind: type[bytes]) -> None:
    frames = [kind(bytes([n]) * 1_000_000) for n in range(8)]  # A batch is a bytearray.
    for frame in frames:
        pair.connection.writeSequence([frame[:1000], frame[1000:]])
    assert pair.reactor.writers
    wanted, found = b"".join(frames), bytearray()
    while len(found) < len(wanted):
        found += pair.client.recv(1 << 20)
        pair.turn()
    assert found == wanted
    assert not pair.reactor.writers
    pair.connection.writeSequence([b"more"])
    assert pair.client.recv(100) == b"more"


def test_a_client_that_has_gone_is_found_as_ever(pair: Pair) -> None:
    pair.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    pair.client.close()  # By a reset.
    pair.connection.writeSequence([b"one"])
    pair.turn()
    assert not pair.connection.connected


def test_a_connection_closes_after_what_was_written_to_it(pair: Pair) -> None:
    pair.connection.writeSequence([b"one"])
    pair.connection.loseConnection()
    pair.connection.writeSequence([b"two"])
    pair.turn()
    assert pair.client.recv(100) == b"onetwo"
    assert pair.client.recv(100) == b""
