"""Requests that no client means, over HTTP: each is refused, and none is an error of ours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Protocol
from twisted.internet.testing import StringTransport
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from bookied.admin.http.site import site
from bookied.admin.monitoring.http_metrics import HttpCounts
from bookied.admin.v1 import endpoints as v1
from bookied.admin.v2.endpoints import ENDPOINTS, PREFIX
from tests.bookied.admin.conftest import PATIENCE_S, TOKEN, Operator

PATHS = sorted(
    {one.path for one in v1.ENDPOINTS}
    | {PREFIX + one.path for one in ENDPOINTS}
    | {f"{PREFIX}/metrics", f"{PREFIX}/openapi.json", "/", "//", "/api/v2", "/%00", "/\xff"}
)
METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH", "get", "X" * 50)

NUMBERS = (
    *("", "-1", "%2B1", "00", "1e5", "1.0", "0x1", "NaN", "null", "true", "..", "x" * 3000),
    *(str(2**63 - 1), str(2**63), str(-(2**63) - 1), "1" * 5000, "%D9%A1", "%FF", "%zz", "%0A"),
)
QUERIES = (
    *("ledger_id", "page", "start_entry_id", "end_entry_id", "limit", "after", "enabled", "type"),
    *("file_type", "print_metadata", "missingreplica", "nonsense"),
)
KEYS = (
    *("readOnly", "read_only", "forceMajor", "major", "key", "value", "gcWaitTime", "path"),
    *("suspendMajor", "resumeMinor", "entryLocationRocksDBCompact", "entryLocations"),
    *("minor_suspended", "enabled", "lost_bookie_recovery_delay_s", "delay_seconds"),
    *("bookie_src", "bookie_id", "delete_cookie"),
)
VALUES = (
    *("null", "-1", "1.5", "1e400", "NaN", str(2**63), "1" * 5000, '""', '"x"', '"\\ud800"'),
    *("[]", "[null]", "[[1]]", "{}", f'"{"y" * 3000}"'),
)
BODIES = (
    *(b"", b" ", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"\0", b"9" * 60_000, b"[" * 60_000),
    *(b'{"a":' * 10_000, '{"a": 1}'.encode("utf-16"), b'{"\\ud800": 1}'),
    *(f'{{"{key}": {value}}}'.encode() for key in KEYS for value in VALUES),
    b'{"entryLocationRocksDBCompact": true, "entryLocations": "/x"}',
)


class Sender:
    """Sends one request of bytes after the other, each over a connection of its own."""

    def __init__(self, operator: Operator) -> None:
        self._world = operator.world
        self._factory = site(operator.api.answer, self._world.clock, HttpCounts(self._world.clock))

    def status(self, method: str, target: str, body: bytes = b"") -> int:
        return int(self.answer(method, target, body)[9:12])

    def answer(self, method: str, target: str, body: bytes = b"") -> bytes:
        connection, transport = self._connect()
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: b\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.dataReceived(head.encode("latin-1") + body)
        if not transport.value():  # It waits for its turn, or for a bookie that is not there.
            self._world.run_for(PATIENCE_S)
        connection.connectionLost(Failure(ConnectionDone()))
        return transport.value()

    def _connect(self) -> tuple[Protocol, StringTransport]:
        connection, transport = self._factory.buildProtocol(ADDRESS), StringTransport()
        assert connection is not None
        connection.makeConnection(transport)
        return connection, transport


ADDRESS = IPv4Address("TCP", "127.0.0.1", 1)


@pytest.fixture
def failures() -> Iterator[list[Any]]:
    """Give what is logged with a traceback meanwhile."""
    found: list[Any] = []

    def keep(event: Any) -> None:
        if "log_failure" in event:
            found.append(event["log_failure"])

    globalLogPublisher.addObserver(keep)
    yield found
    globalLogPublisher.removeObserver(keep)


@pytest.mark.parametrize("path", PATHS)
def test_a_malformed_request_is_the_client_s_error(
    operator: Operator, failures: list[Any], path: str
) -> None:
    sender, rng = Sender(operator), random.Random(path)
    queries = [f"{name}={text}" for name in QUERIES for text in NUMBERS]
    asked: list[tuple[str, str, bytes]] = [
        *((method, _filled(path, "7"), b"") for method in METHODS),
        *(("GET", _filled(path, number), b"") for number in NUMBERS if "{" in path),
        *(("GET", f"{path}?ledger_id={number}", b"") for number in NUMBERS),
        *(("GET", f"{_filled(path, '7')}?{query}", b"") for query in rng.sample(queries, 40)),
        *(("PUT", _filled(path, "7"), body) for body in rng.sample(BODIES, 40)),
        *(("POST", _filled(path, "7"), body) for body in rng.sample(BODIES, 20)),
    ]
    wrong = [
        (status, method, target[:80], body[:80])
        for method, target, body in asked
        if (status := sender.status(method, target, body)) >= 500
    ]
    assert wrong == []
    assert failures == []


@pytest.mark.parametrize(
    "path", ["/metrics", "/heartbeat", f"{PREFIX}/metrics", f"{PREFIX}/openapi.json", "/nothing"]
)
def test_head_is_answered_as_get_without_the_body(operator: Operator, path: str) -> None:
    sender = Sender(operator)
    (head, none), (got, body) = (
        sender.answer(method, path).split(b"\r\n\r\n", 1) for method in ("HEAD", "GET")
    )
    assert none == b""
    assert body
    assert head.splitlines()[0] == got.splitlines()[0]
    assert int(_length(head)) > 0
    if "metrics" not in path:  # The one counts the other.
        assert _length(head) == _length(got) == b"%d" % len(body)


def _length(head: bytes) -> bytes:
    (found,) = (one for one in head.splitlines() if one.lower().startswith(b"content-length:"))
    return found.split()[1]


def _filled(path: str, number: str) -> str:
    return path.replace("{ledger_id}", number).replace("{job_id}", number)
