"""The limits of HTTP in a bookie: connections, memory, and time on the reactor.

All HTTP connections of a port together keep at most ``ANSWERS_BYTES_MAX`` of unsent answers in
memory, and about 300 KiB each besides.
"""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IReactorTime

from bookied.server.limits.limit_hits import Limit, NamedLimit

CONNECTIONS_MAX: Final = 64
SHARE_OF_ADDRESS: Final = 2
"""One address, or one network of IPv6, may have half of the connections."""

BODY_BYTES_MAX: Final = 64 * 1024
"""The connection of a request with a longer body is closed."""

CHUNKS_MAX: Final = 32
"""The connection of a body with more chunks is closed: a chunk takes 0.02 ms, even of one byte."""

READ_BYTES: Final = 4096
"""Bytes that one turn of the reactor reads of a connection."""

HEADER_BYTES_MAX: Final = 16 * 1024
"""A request with a longer header is refused."""

HEADER_LINES_MAX: Final = 100
"""A request with more lines in its header is refused: a line takes 0.01 ms."""

QUERY_FIELDS_MAX: Final = 100
"""A request with more fields in its query is refused."""

ANSWERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of unsent answers over all connections."""

IDLE_S: Final = 60
"""Seconds that a connection may send nothing."""

REQUEST_S: Final = 10
"""Seconds from the first to the last byte of a request."""

ANSWER_S: Final = 120
"""Seconds from the last byte of a request until its answer is sent completely."""

STALL_S: Final = 2
"""Seconds after which a client that reads nothing may be disconnected for another one."""

SHARE: Final = 4
"""HTTP may use a quarter of the reactor's time."""

REQUEST_COST_S: Final = 0.00025
"""The least time that a request counts as: its parsing and sending are not measured."""

BURST_S: Final = 0.01
"""The time that HTTP may use at once beyond its share."""


def connections_max() -> int:
    """Return the largest number of connections: a sixteenth of the descriptors at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(CONNECTIONS_MAX, max(2, soft // 16))


class HttpLimit(NamedLimit):
    """A limit that a client of HTTP can reach."""

    CONNECTIONS = Limit.CONNECTIONS.value
    ADDRESS = Limit.ADDRESS.value
    WAITING = "waiting_connections", "closed connections that had no whole request: others came"
    STALLED = (
        "stalled_connections",
        "closed connections that did not take their answers: others came",
    )
    CROWD = "crowding_connections", "closed connections of the address that had most: others came"
    REQUEST_TIME = "request_time", "cut connections: a request was not complete in time"
    ANSWER_TIME = "answer_time", "cut connections: an answer was not taken in time"
    BODY = "body", "cut connections: the body of a request is too long"
    UNSENT = (
        "unsent_answers",
        "refused requests: too many answers are not taken, over all connections",
    )
    TOKEN = "token", "refused requests without the token or a certificate"
    TLS = "tls", "failed TLS handshakes"
    PROTOCOL = "protocol", "closed connections: the client does not speak HTTP"
    HOST = "host", "refused requests for other hosts: httpServerAllowedHosts can name them"


class UnsentAnswers:
    """The number of unsent bytes of answers; a single answer always fits."""

    def __init__(self) -> None:
        self.held_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Reserve bytes; return whether the limit allows them."""
        if self.held_bytes and self.held_bytes + size_bytes > ANSWERS_BYTES_MAX:
            return False
        self.held_bytes += size_bytes
        return True

    def hold(self, size_bytes: int) -> None:
        """Reserve a few bytes beyond the limit, for the answer that the limit is reached."""
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Release bytes."""
        self.held_bytes -= size_bytes
        assert self.held_bytes >= 0


class HttpTurns:
    """The turns of HTTP requests, in at most ``1 / SHARE`` of the reactor's time.

    Requests that need less are answered at once. No more requests wait than there are connections.
    Addresses take turns, so that many requests of one address delay another address by one only.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._paid_s = clock.seconds()
        self._is_called = False

    def ask(self, group: str, work: Callable[[], None]) -> None:
        """Run work for an address, now or in its turn."""
        self._waiting.setdefault(group, deque()).append(work)
        if not self._is_called:
            self._run()

    def _run(self) -> None:
        self._is_called = False
        began_s = self._clock.seconds()
        if self._paid_s <= began_s + BURST_S:
            self._next()()
            took_s = max(REQUEST_COST_S, self._clock.seconds() - began_s)
            self._paid_s = max(began_s, self._paid_s) + SHARE * took_s
        if self._waiting:
            self._is_called = True
            wait_s = self._paid_s - BURST_S - self._clock.seconds()
            self._clock.callLater(max(0.0, wait_s), self._run)

    def _next(self) -> Callable[[], None]:
        group = next(iter(self._waiting))
        mine = self._waiting.pop(group)
        work = mine.popleft()
        if mine:
            self._waiting[group] = mine
        return work
