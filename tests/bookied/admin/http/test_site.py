"""HTTP in memory: requests as bytes, answers as bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

from bookied.admin.api import Access
from bookied.admin.http.allowed_hosts import AllowedHosts
from bookied.admin.http.limits import (
    ANSWER_S,
    ANSWERS_BYTES_MAX,
    BODY_BYTES_MAX,
    CHUNKS_MAX,
    CONNECTIONS_MAX,
    IDLE_S,
    READ_BYTES,
    REQUEST_COST_S,
    REQUEST_S,
    SHARE,
    STALL_S,
    HttpLimit,
    HttpTurns,
)
from bookied.admin.http.requests_and_replies import JSON, Credentials, HttpReply, HttpRequest
from bookied.admin.http.site import site
from bookied.admin.monitoring.http_metrics import HttpCounts


class Transport(StringTransport):
    aborted = False

    def abortConnection(self) -> None:  # noqa: N802 -- Twisted's
        self.aborted = self.disconnecting = True


class Server:
    """The site with a canned answer."""

    def __init__(self, reply: HttpReply | None = None) -> None:
        self.clock = Clock()
        self.asked: list[tuple[str, HttpRequest, Credentials]] = []
        self.given_up = 0
        self.reply = reply
        self.counts = HttpCounts(self.clock)
        self.gave_way = 0
        self.factory = site(self.answer, self.clock, self.counts, give_way=self._give_way)

    def _give_way(self) -> None:
        self.gave_way += 1

    async def answer(self, path: str, asked: HttpRequest, given: Credentials) -> HttpReply:
        self.asked.append((path, asked, given))
        if self.reply is not None:
            return self.reply
        return await Deferred(self._give_up)

    def _give_up(self, _answer: object) -> None:
        self.given_up += 1

    def connect(self, host: str = "10.0.0.1", transport: Any = None) -> tuple[Protocol, Any]:
        protocol, transport = self.factory.buildProtocol(address(host)), transport or Transport()
        assert protocol is not None
        protocol.makeConnection(transport)
        return protocol, transport


def address(host: str) -> IPv4Address | IPv6Address:
    return IPv6Address("TCP", host, 1) if ":" in host else IPv4Address("TCP", host, 1)


def test_a_request_becomes_a_value_and_the_answer_bytes() -> None:
    server = Server(HttpReply(200, '{"a": "ä"}', JSON, {"Allow": "GET"}))
    protocol, transport = server.connect()
    protocol.dataReceived(
        b"PUT /api/v1/x?page=2&name=a%20b&flag HTTP/1.1\r\nHost: b\r\n"
        b"Authorization: Bearer t\r\nContent-Length: 4\r\n\r\nbody"
    )
    query = {"page": "2", "name": "a b", "flag": ""}
    who = Credentials("Bearer t", host="192.168.1.1")
    assert server.asked == [
        ("/api/v1/x", HttpRequest(method="PUT", query=query, body=b"body"), who)
    ]
    head, _, body = transport.value().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: application/json" in head
    assert b"Allow: GET" in head
    assert '{"a": "ä"}'.encode() in body


def test_the_journals_threads_may_run_whenever_a_client_has_sent_something() -> None:
    server = Server(HttpReply(200, "fine"))
    protocol, _ = server.connect()
    for part in (b"GET / HTTP/1.1\r\n", b"Host: b\r\n", b"\r\n"):
        protocol.dataReceived(part)
    assert server.gave_way == 3


@pytest.mark.parametrize("status", [401, 403])
def test_refused_requests_are_counted_and_told_once_in_a_while(status: int) -> None:
    server, events = Server(HttpReply(status, "no")), list[LogEvent]()
    globalLogPublisher.addObserver(events.append)
    try:
        for _ in range(50):
            protocol, _ = server.connect()
            protocol.dataReceived(b"PUT /api/v1/bookie/gc?a=b HTTP/1.1\r\nHost: b\r\n\r\n")
            server.clock.advance(0.1)
    finally:
        globalLogPublisher.removeObserver(events.append)
    (told,) = [one for one in map(formatEvent, events) if "limit token" in one]
    assert told.endswith("; 1 since the last line, now 192.168.1.1: PUT /api/v1/bookie/gc")
    assert server.counts._hits.counts[HttpLimit.TOKEN] == 50


def test_a_client_that_leaves_early_gets_nothing_and_costs_nothing() -> None:
    server = Server()
    protocol, transport = server.connect()
    protocol.dataReceived(b"GET /slow HTTP/1.1\r\nHost: b\r\n\r\n")
    protocol.connectionLost(Failure(ConnectionLost()))
    assert server.given_up == 1
    assert transport.value() == b""
    assert server.factory.protocols == {}


def test_a_body_that_is_too_long_cuts_the_connection_announced_or_not() -> None:
    server = Server(HttpReply(200, "fine"))
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


def test_a_body_in_ever_so_many_chunks_cuts_the_connection_once() -> None:
    server = Server(HttpReply(200, "fine"))
    head = b"PUT / HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n"
    protocol, transport = server.connect()
    protocol.dataReceived(head + b"1\r\nx\r\n" * CHUNKS_MAX + b"0\r\n\r\n")
    assert [asked.body for _, asked, _ in server.asked] == [b"x" * CHUNKS_MAX]
    protocol, transport = server.connect()
    protocol.dataReceived(head + b"1\r\nx\r\n" * (CHUNKS_MAX + 100))
    assert transport.aborted
    assert server.counts.bodies_cut == 1
    assert transport.bufferSize == READ_BYTES, "one read has few chunks"
    protocol.connectionLost(Failure(ConnectionLost()))


def test_the_chunks_after_those_of_a_connection_that_is_cut_are_not_read() -> None:
    """One read has 680 of them, which takes 14 ms."""
    server = Server(HttpReply(200, "fine"))
    protocol, transport = server.connect()
    protocol.dataReceived(b"PUT / HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n")
    protocol.dataReceived(b"1\r\nx\r\n" * (CHUNKS_MAX + 1) + b"no chunk\r\n")
    assert transport.aborted
    assert transport.value() == b"", "who reads on answers 400"
    protocol.connectionLost(Failure(ConnectionLost()))


def test_a_length_that_python_does_not_read_cuts_the_connection() -> None:
    server = Server(HttpReply(200, "fine"))
    protocol, transport = server.connect()
    length = b"9" * (sys.int_info.default_max_str_digits + 1)
    protocol.dataReceived(b"PUT / HTTP/1.1\r\nHost: b\r\nContent-Length: %b\r\n\r\n" % length)
    assert transport.aborted
    assert server.asked == []


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (b"\x16\x03\x01\x02\0\x01", "TLS; httpServerTlsEnable is false"),
        (b"\0\0\0\x10\x0a\x0c", "the bookie protocol; bookiePort is another port"),
    ],
)
def test_a_client_that_does_not_speak_http_is_answered_in_http(begin: bytes, said: str) -> None:
    server, events = Server(), list[LogEvent]()
    globalLogPublisher.addObserver(events.append)
    try:
        protocol, transport = server.connect()
        protocol.dataReceived(begin)
        protocol.dataReceived(b"more")
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert transport.value() == b"HTTP/1.1 400 Bad Request\r\n\r\n"
    assert transport.disconnecting
    assert hits(server) == {"protocol": 1}
    assert any(said in str(formatEvent(event)) for event in events)


def test_idle_connections_end() -> None:
    server = Server(HttpReply(200, "fine"))
    held = [server.connect() for _ in range(3)]
    server.clock.advance(IDLE_S + 1)
    assert all(transport.disconnecting for _, transport in held)


# Limits -------------------------------------------------------------------------------------------

GET = b"GET /x HTTP/1.1\r\nHost: b\r\n\r\n"


def hits(server: Server) -> dict[str, int]:
    (family,) = (one for one in server.counts.families() if "limit_hits" in one.name)
    return {labels["limit"]: int(count) for labels, count in family.samples if count}


def test_of_connections_that_wait_the_oldest_goes_for_another_one() -> None:
    server = Server()
    busy = [server.connect(f"10.0.0.{number}") for number in range(CONNECTIONS_MAX - 2)]
    for protocol, _ in busy:
        protocol.dataReceived(GET)
    silent = server.connect("10.0.1.1")
    server.clock.advance(1)
    slow = server.connect("10.0.1.2")
    slow[0].dataReceived(GET[:9])
    for number, gone in enumerate((silent, slow)):
        server.connect(f"10.0.2.{number}")[0].dataReceived(GET)
        assert gone[1].aborted
    assert server.factory.buildProtocol(address("10.0.3.1")) is None
    assert not any(transport.aborted for _, transport in busy)
    assert hits(server) == {"waiting_connections": 2, "connections": 1}
    busy[0][0].connectionLost(Failure(ConnectionLost()))
    assert server.factory.buildProtocol(address("10.0.3.1")) is not None


def full(server: Server, transport: type[Transport]) -> list[tuple[Protocol, Any]]:
    """Hold all connections from two addresses, each with a request."""
    held = [
        server.connect(f"10.0.0.{number % 2}", transport()) for number in range(CONNECTIONS_MAX)
    ]
    for protocol, _ in held:
        protocol.dataReceived(GET)
    server.clock.pump([0.001] * CONNECTIONS_MAX)
    return held


def test_clients_that_take_no_answers_keep_nobody_out() -> None:
    server = Server(HttpReply(200, "x" * 100_000))
    held = full(server, Slow)
    server.clock.advance(STALL_S)
    probe, answer = server.connect("10.0.1.1")
    probe.dataReceived(GET)
    assert answer.value()[9:12] == b"200"
    assert [transport.aborted for _, transport in held[:2]] == [True, False]
    assert hits(server) == {"stalled_connections": 1}


def test_addresses_that_ask_all_the_time_keep_no_other_out() -> None:
    server = Server()
    held = full(server, Transport)
    for number in range(2):
        server.connect(f"10.0.1.{number}")[0].dataReceived(GET)
    assert [transport.aborted for _, transport in held[:3]] == [True, True, False]
    assert server.factory.buildProtocol(address("10.0.0.1")) is None
    assert hits(server) == {"crowding_connections": 2, "connections": 1}


@pytest.mark.parametrize("hosts", ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::%d"])
def test_an_address_has_a_share_of_the_connections(hosts: str) -> None:
    server = Server()
    for number in range(CONNECTIONS_MAX // 2):
        server.connect(hosts.replace("%d", str(number)))[0].dataReceived(GET)
    assert server.factory.buildProtocol(address(hosts.replace("%d", "f"))) is None
    assert server.factory.buildProtocol(address("10.0.0.2")) is not None
    assert hits(server) == {"connections_of_address": 1}


def test_requests_that_come_at_once_are_answered_one_in_a_turn() -> None:
    server = Server(HttpReply(200, "fine"))
    protocol, transport = server.connect()
    protocol.dataReceived(GET * 500)
    assert len(server.asked) == 1
    server.clock.advance(0)
    assert 1 < len(server.asked) < 500
    server.clock.pump([0.001] * int(500 * REQUEST_COST_S * SHARE * 1000))
    assert len(server.asked) == 500
    assert transport.value().count(b"HTTP/1.1 200") == 500


def test_requests_that_are_refused_wait_for_their_turn_too() -> None:
    server = Server(HttpReply(200, "fine"))
    transports = []
    for number in range(30):
        protocol, transport = server.connect(f"10.0.0.{number}")
        protocol.dataReceived(b"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n")
        transports.append(transport)
    assert sum(bool(one.value()) for one in transports) < 30
    server.clock.pump([0.001] * int(30 * REQUEST_COST_S * SHARE * 1000))
    assert all(one.value().startswith(b"HTTP/1.1 421") for one in transports)


def test_nothing_is_answered_while_answers_are_not_taken() -> None:
    server = Server(HttpReply(200, "x" * 1_000_000))
    protocol, transport = server.connect()
    protocol.dataReceived(GET * 500)
    transport.producer.pauseProducing()
    held = len(transport.value())
    for _ in range(10):
        server.clock.advance(0)
    assert len(server.asked) == 1
    assert len(transport.value()) == held
    transport.producer.resumeProducing()
    server.clock.advance(0)
    server.clock.advance(0)
    assert len(server.asked) >= 2


class Slow(Transport):
    """Takes 64 KiB, and more when it is told to, as a socket does."""

    room_bytes = 65536

    def write(self, data: bytes) -> None:
        super().write(data)
        self.room_bytes -= len(data)
        if self.room_bytes < 0 and self.producer is not None:
            self.producer.pauseProducing()

    def take(self, count: int = 65536) -> None:
        self.room_bytes = count
        if self.producer is not None:
            self.producer.resumeProducing()


def test_an_answer_is_sent_as_it_is_taken_and_the_next_one_after_it() -> None:
    server = Server(HttpReply(200, "x" * 1_000_000))
    protocol, transport = server.connect(transport=Slow())
    protocol.dataReceived(GET * 2)
    for _ in range(40):
        server.clock.advance(0)
        assert len(transport.value()) <= 200_000 + 65536 * 40
        if len(server.asked) == 2:
            break
        transport.take()
    assert len(transport.value()) >= 1_000_000
    assert len(server.asked) == 2


def test_all_answers_that_are_not_taken_have_a_bound() -> None:
    server = Server(HttpReply(200, "x" * (ANSWERS_BYTES_MAX // 4)))
    held = [server.connect(f"10.0.0.{number}", Slow()) for number in range(6)]
    for protocol, _ in held:
        protocol.dataReceived(GET)
    told = [transport.value()[9:12] for _, transport in held]
    assert told == [b"200"] * 4 + [b"503"] * 2
    assert hits(server) == {"unsent_answers": 2}
    for protocol, _ in held[:2]:
        protocol.connectionLost(Failure(ConnectionLost()))
    protocol, transport = server.connect("10.0.1.1", Slow())
    protocol.dataReceived(GET)
    assert transport.value()[9:12] == b"200"


def test_a_request_has_to_come_whole_in_time_however_it_drips() -> None:
    server = Server(HttpReply(200, "fine"))
    protocol, transport = server.connect()
    for byte in GET[: REQUEST_S - 1]:
        protocol.dataReceived(bytes([byte]))
        server.clock.advance(1)
    assert not transport.aborted
    server.clock.advance(1)
    assert transport.aborted
    assert hits(server) == {"request_time": 1}


def test_a_second_request_has_its_own_time() -> None:
    server = Server(HttpReply(200, "fine"))
    protocol, transport = server.connect()
    protocol.dataReceived(GET + GET[:5])
    server.clock.advance(0)
    server.clock.advance(REQUEST_S - 1)
    protocol.dataReceived(GET[5:])
    server.clock.advance(REQUEST_S + 1)
    assert not transport.aborted
    assert len(server.asked) == 2


def test_an_answer_has_to_be_taken_in_time() -> None:
    server = Server(HttpReply(200, "x" * 1_000_000))
    protocol, transport = server.connect(transport=Slow())
    protocol.dataReceived(GET)
    for _ in range(ANSWER_S // 10):
        server.clock.advance(10)
        transport.take(1)
    assert transport.aborted
    assert hits(server) == {"answer_time": 1}


def test_http_has_a_part_of_the_reactors_time() -> None:
    clock = Clock()
    turns, done = HttpTurns(clock), list[float]()

    def work() -> None:
        done.append(clock.seconds())
        clock.advance(0.02)

    for _ in range(50):
        turns.ask("10.0.0.1", work)
    clock.pump([0.001] * 3000)
    assert len(done) == 50
    assert 50 * 0.02 * (SHARE - 1) < done[-1] - done[0] < 50 * 0.02 * (SHARE + 1)


def test_a_request_waits_for_one_of_each_other_address_and_no_more() -> None:
    clock = Clock()
    turns, done = HttpTurns(clock), list[str]()

    def work(name: str) -> None:
        done.append(name)
        clock.advance(0.02)

    for name in ("a", "a", "b", "a", "b", "probe", "a"):
        turns.ask(name, partial(work, name))
    clock.pump([0.001] * 1000)
    assert done == ["a", "a", "b", "probe", "a", "b", "a"]


CALLS_MAX = 5000
"""What a request of 64 KiB may cost in calls of functions; one of 100 bytes has 600."""


def calls(do: Callable[[], object]) -> int:
    """Return how many functions ``do`` calls, those in C included."""
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


def posted(kind: bytes, body: bytes) -> bytes:
    head = b"POST / HTTP/1.1\r\nHost: b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (kind, len(body)) + body


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (posted(b"application/x-www-form-urlencoded", b"a=1&" * 16_000), 200),
        (posted(b"multipart/form-data; boundary=b", b"--b\r\n\r\n\r\n" * 5000), 200),
        (posted(b"multipart/form-data", b"no form"), 200),
        (b"GET / HTTP/1.1\r\nHost: b\r\nCookie: " + b"a=1;" * 4000 + b"\r\n\r\n", 200),
        (b"GET " + b"/" * 16_000 + b" HTTP/1.1\r\nHost: b\r\n\r\n", 200),
        (b"GET /?" + b"a=1&" * 4000 + b" HTTP/1.1\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: b\r\nX: y\r\n" + b" \r\n" * 5000 + b"\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: b\r\n" + b"X: y\r\n" * 499 + b"\r\n", 400),
    ],
    ids=["form", "parts", "no parts", "cookies", "path", "query", "folded lines", "headers"],
)
def test_a_request_of_many_parts_costs_little_more_than_another(asked: bytes, status: int) -> None:
    server = Server(HttpReply(200, "fine"))
    protocol, transport = server.connect()
    assert calls(lambda: protocol.dataReceived(asked)) < CALLS_MAX
    assert transport.value().startswith(b"HTTP/1.1 %d " % status)


# Whom a request is for, and what it shows ---------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("10.0.0.1", True), ("10.0.0.1:8080", True), ("[2001:db8::1]:8080", True), ("[::1]", True),
        ("localhost:8080", True), ("bookie1:8080", True), ("bookie-0.bookie.ns.svc", True),
        ("b1.ns.svc.cluster.local:8080", True), ("b1.example.org", True), ("B1.example.ORG.", True),
        ("evil.example.org", False), ("b1.example.org.evil.com:8080", False),
        ("1.2.3.4.nip.io", False),
        (None, True), ("", True), ("[fe80::1%25]", True), ("bookie_1:", True),
    ],
)  # fmt: skip
def test_names_that_a_stranger_may_own_are_refused(host: str | None, *, is_ours: bool) -> None:
    assert AllowedHosts(lambda: frozenset({"b1.example.org"})).allows(host) == is_ours
    assert AllowedHosts(lambda: frozenset({"*"})).allows(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.com#.local", "evil.com/.local", "evil.com?.local", "a@evil.com", "evil\\.local",
        "evil.com:.local", "b:evil.com", "b:80:81", "b:123456", "[evil]evil.com", "[::1].evil.com",
        "[::1", "[evil]", "[1]", "b ä", "a b", "evil.com,b", "evil.com%00.local",
    ],
)  # fmt: skip
@pytest.mark.parametrize("names", [frozenset({"b1.example.org"}), frozenset({"*"})])
def test_what_is_not_a_host_and_a_port_is_refused(host: str, names: frozenset[str]) -> None:
    assert not AllowedHosts(lambda: names).allows(host)


def test_a_request_with_two_hosts_is_not_answered() -> None:
    server = Server(HttpReply(200, "secret"))
    protocol, transport = server.connect()
    protocol.dataReceived(b"GET / HTTP/1.1\r\nHost: evil.com\r\nHost: b\r\n\r\n")
    assert transport.value().startswith(b"HTTP/1.1 400")
    assert server.asked == []


def test_a_request_for_another_host_is_not_answered() -> None:
    server = Server(HttpReply(200, "secret"))
    protocol, transport = server.connect()
    protocol.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: rebound.evil.com:8080\r\n\r\n")
    assert transport.value().startswith(b"HTTP/1.1 421 Misdirected Request")
    assert b"secret" not in transport.value()
    assert server.asked == []
    assert hits(server) == {"host": 1}


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        (b"http://b/metrics", "/metrics"),
        (b"HTTPS://10.0.0.1:8080/api/v1/x?page=2", "/api/v1/x"),
        (b"http://b", "/"),
        (b"http://b?page=2", "/"),
        (b"http://[::1]:80//x", "//x"),
        (b"/x?u=http://evil.com/", "/x"),
    ],
)
def test_a_request_may_have_a_complete_uri(uri: bytes, path: str) -> None:
    server = Server(HttpReply(200, "fine"))
    protocol, transport = server.connect()
    protocol.dataReceived(b"GET " + uri + b" HTTP/1.1\r\nHost: b\r\n\r\n")
    assert transport.value().startswith(b"HTTP/1.1 200 ")
    assert [asked[0] for asked in server.asked] == [path]
    if b"page" in uri:
        assert server.asked[0][1].query == {"page": "2"}


@pytest.mark.parametrize(
    ("uri", "host", "status"),
    [
        (b"http://evil.com/x", b"b", 421),
        (b"http://b/x", b"evil.com", 421),
        (b"http://b@evil.com/x", b"b", 421),
        (b"http://evil.com\\b/x", b"b", 421),
        (b"http://evil.com#.local/x", b"b", 421),
        (b"http:///x", b"b", 400),
        (b"http://?x", b"b", 400),
    ],
)
def test_a_complete_uri_must_name_this_host_as_must_the_header(
    uri: bytes, host: bytes, status: int
) -> None:
    server = Server(HttpReply(200, "secret"))
    protocol, transport = server.connect()
    protocol.dataReceived(b"GET " + uri + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert transport.value().startswith(b"HTTP/1.1 %d " % status)
    assert server.asked == []


@pytest.mark.parametrize("header", [b"Authorization: Bearer \xff", b"Host: \xff"])
def test_a_header_that_is_no_text_is_a_bad_request(header: bytes) -> None:
    server = Server(HttpReply(200, "fine"))
    protocol, transport = server.connect()
    protocol.dataReceived(b"GET / HTTP/1.1\r\n" + header + b"\r\n\r\n")
    assert transport.value().startswith(b"HTTP/1.1 400 ")
    assert server.asked == []


def test_reading_entries_needs_the_token_even_where_changes_do_not() -> None:
    for token in ("", "t0ken"):
        access = Access(token, open_to_all=True)
        assert access.refusal(Credentials()) is None
        assert access.refusal(Credentials(), reads_entries=True) is not None
    assert access.refusal(Credentials("Bearer t0ken"), reads_entries=True) is None
    assert access.refusal(Credentials(certified="CN=me"), reads_entries=True) is None


def test_only_the_token_opens() -> None:
    access = Access("t0ken")
    assert access.refusal(Credentials("Bearer t0ken")) is None
    assert access.refusal(Credentials("bearer  t0ken")) is None
    for given in ("", "t0ken", "Basic t0ken", "Bearer t0ke", "Bearer t0ken2", "Bearer tökén"):
        refused = access.refusal(Credentials(given))
        assert refused is not None, given
        assert refused[0] == 401, given
    assert "t0ken" not in repr(access)
