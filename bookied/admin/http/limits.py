"""What HTTP may take of a bookie, for any client: connections, memory, time on the reactor.

All HTTP connections of a port together hold at most ``ANSWERS_BYTES_MAX`` of answers that are not
taken yet, and some 300 KiB each beside that.
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
"""One address may have a half of them; of IPv6, one network."""

BODY_BYTES_MAX: Final = 64 * 1024
"""A request with a longer body is cut off."""

CHUNKS_MAX: Final = 32
"""A request whose body comes in more parts is cut off: a part takes 0.02 ms, also with one byte."""

READ_BYTES: Final = 4096
"""How much one turn of the reactor reads of a connection."""

HEADER_BYTES_MAX: Final = 16 * 1024
"""A request with a longer header is refused."""

HEADER_LINES_MAX: Final = 100
"""A request with more lines in its header is refused: a line takes 0.01 ms."""

QUERY_FIELDS_MAX: Final = 100
"""A request with more fields in its query is refused."""

ANSWERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Answers that wait for their clients to take them, over all connections."""

IDLE_S: Final = 60
"""How long a connection may bring nothing."""

REQUEST_S: Final = 10
"""How long a request may take to come, from its first byte to its last."""

ANSWER_S: Final = 120
"""How long it may take then until its answer is taken."""

STALL_S: Final = 2
"""A client that takes nothing of its answer for so long may be closed for another one."""

SHARE: Final = 4
"""HTTP has a fourth of the reactor's time at most."""

REQUEST_COST_S: Final = 0.00025
"""What a request takes at least: it is parsed before its turn, and its answer is sent after it."""

BURST_S: Final = 0.01
"""What it may take at once beyond that."""


def connections_max() -> int:
    """Return how many connections there may be: a sixteenth of the descriptors at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(CONNECTIONS_MAX, max(2, soft // 16))


class HttpLimit(NamedLimit):
    """What a client of HTTP can run into."""

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
    """Counts the bytes of answers that clients have not taken; one answer always fits."""

    def __init__(self) -> None:
        self.held_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Hold so many bytes; say whether there was space for them."""
        if self.held_bytes and self.held_bytes + size_bytes > ANSWERS_BYTES_MAX:
            return False
        self.held_bytes += size_bytes
        return True

    def hold(self, size_bytes: int) -> None:
        """Hold a few bytes in any case: those of the answer that the bound is reached."""
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Hold so many bytes less."""
        self.held_bytes -= size_bytes
        assert self.held_bytes >= 0


class HttpTurns:
    """Who answers when: one after another, and in ``1 / SHARE`` of the reactor's time at most.

    As long as it takes less, all are answered at once. Waiting ones are as many as connections.
    Addresses take turns, so that many requests of one keep no other waiting for all of them.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._paid_s = clock.seconds()
        self._is_called = False

    def ask(self, group: str, work: Callable[[], None]) -> None:
        """Do a piece of work for an address, now or when it is its turn."""
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
