"""HTTP in memory: requests as bytes, answers as bytes."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from bookied.admin.exchange import JSON, Asked, Reply
from bookied.admin.monitoring.http_counts import HttpCounts
from bookied.admin.web import BODY_BYTES_MAX, CONNECTIONS_MAX, IDLE_S, Access, Credentials, site


class Transport(StringTransport):
    aborted = False

    def abortConnection(self) -> None:  # noqa: N802 -- Twisted's
        self.aborted = self.disconnecting = True


class Server:
    """The site with a canned answer."""

    def __init__(self, reply: Reply | None = None) -> None:
        self.clock = Clock()
        self.asked: list[tuple[str, Asked, Credentials]] = []
        self.given_up = 0
        self.reply = reply
        self.counts = HttpCounts()
        self.factory = site(self.answer, self.clock, self.counts)

    async def answer(self, path: str, asked: Asked, given: Credentials) -> Reply:
        self.asked.append((path, asked, given))
        if self.reply is not None:
            return self.reply
        return await Deferred(self._give_up)

    def _give_up(self, _answer: object) -> None:
        self.given_up += 1

    def connect(self) -> tuple[Protocol, Transport]:
        protocol, transport = self.factory.buildProtocol(None), Transport()
        assert protocol is not None
        protocol.makeConnection(transport)
        return protocol, transport


def test_a_request_becomes_a_value_and_the_answer_bytes() -> None:
    server = Server(Reply(200, '{"a": "ä"}', JSON, {"Allow": "GET"}))
    protocol, transport = server.connect()
    protocol.dataReceived(
        b"PUT /api/v1/x?page=2&name=a%20b&flag HTTP/1.1\r\nHost: b\r\n"
        b"Authorization: Bearer t\r\nContent-Length: 4\r\n\r\nbody"
    )
    query = {"page": "2", "name": "a b", "flag": ""}
    who = Credentials("Bearer t", host="192.168.1.1")
    assert server.asked == [("/api/v1/x", Asked(method="PUT", query=query, body=b"body"), who)]
    head, _, body = transport.value().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: application/json" in head
    assert b"Allow: GET" in head
    assert '{"a": "ä"}'.encode() in body


def test_a_client_that_leaves_early_gets_nothing_and_costs_nothing() -> None:
    server = Server()
    protocol, transport = server.connect()
    protocol.dataReceived(b"GET /slow HTTP/1.1\r\nHost: b\r\n\r\n")
    protocol.connectionLost(Failure(ConnectionLost()))
    assert server.given_up == 1
    assert transport.value() == b""
    assert server.factory.protocols == {}


def test_a_body_that_is_too_long_cuts_the_connection_announced_or_not() -> None:
    server = Server(Reply(200, "fine"))
    protocol, transport = server.connect()
    announced = b"PUT / HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n"
    protocol.dataReceived(announced % (BODY_BYTES_MAX + 1))
    assert transport.aborted
    protocol, transport = server.connect()
    protocol.dataReceived(b"PUT / HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(BODY_BYTES_MAX // 4096 + 1):
        protocol.dataReceived(b"1000\r\n" + bytes(4096) + b"\r\n")
    assert transport.aborted
    protocol.connectionLost(Failure(ConnectionLost()))
    assert server.asked == []
    assert server.counts.bodies_cut == 2


def test_connections_are_counted_and_idle_ones_end() -> None:
    server = Server(Reply(200, "fine"))
    held = [server.connect() for _ in range(CONNECTIONS_MAX)]
    assert server.factory.buildProtocol(None) is None
    assert server.counts.connections_refused == 1
    server.clock.advance(IDLE_S + 1)
    assert all(transport.disconnecting for _, transport in held)
    held[0][0].connectionLost(Failure(ConnectionLost()))
    assert server.factory.buildProtocol(None) is not None


def test_only_the_token_opens() -> None:
    access = Access("t0ken")
    assert access.refusal(Credentials("Bearer t0ken")) is None
    assert access.refusal(Credentials("bearer  t0ken")) is None
    for given in ("", "t0ken", "Basic t0ken", "Bearer t0ke", "Bearer t0ken2", "Bearer tökén"):
        refused = access.refusal(Credentials(given))
        assert refused is not None, given
        assert refused[0] == 401, given
    assert "t0ken" not in repr(access)
