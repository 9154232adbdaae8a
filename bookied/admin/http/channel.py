"""One HTTP connection: one request at a time, and answers only as fast as the client reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.web.http import HTTPChannel
from twisted.web.server import Request
from zope.interface import implementer

from bkclient.concurrency import cancel
from bookied.admin.http.limits import (
    ANSWER_S,
    HEADER_BYTES_MAX,
    HEADER_LINES_MAX,
    REQUEST_S,
    HttpLimit,
)
from wire.other_protocols import TLS_BEGIN

CHUNK_BYTES: Final = 64 * 1024
"""Bytes of an answer that are written together."""


class RequestCutError(Exception):
    """The connection was closed in the middle of a request: other received bytes are dropped."""


class AdminChannel(HTTPChannel):
    """One connection. The next request is handled in a later turn of the reactor.

    Requests sent ahead wait in 16 KiB and in the client's own buffers: the connection is not read
    until the previous answer has been sent, except for what the system buffers.
    """

    totalHeadersSize = HEADER_BYTES_MAX  # noqa: N815 -- Twisted's
    maxHeaders = HEADER_LINES_MAX  # noqa: N815 -- Twisted's

    site: Any
    transport: Any
    since_s = 0.0
    """The time since which the connection waits for a request, or for the rest of one."""

    is_busy = False
    """True while a request is not answered, or its answer is not sent completely."""

    stalled_since_s: float | None = None
    """The time since which the client reads nothing of its answer; None while it reads."""

    _call: IDelayedCall | None = None
    _answered: Request | None = None
    _is_cut = _has_begun = False

    def connectionMade(self) -> None:
        """Start to wait for a request."""
        self.since_s = self.site.clock.seconds()
        super().connectionMade()  # type: ignore[no-untyped-call]

    def dataReceived(self, data: bytes) -> None:
        """Parse received bytes; the first bytes of a request start its time limit."""
        if self._is_cut:
            return
        if not self._has_begun:
            self._has_begun = True
            if why := _other_protocol(data):
                self._refuse_protocol(why)
                return
        if not self.is_busy and self._call is None:
            self._watch(REQUEST_S, HttpLimit.REQUEST_TIME)
        with contextlib.suppress(RequestCutError):
            super().dataReceived(data)  # type: ignore[no-untyped-call]
        self.site.give_way()

    def _refuse_protocol(self, why: str) -> None:
        """Close the connection with an HTTP answer, so that the peer sees the port's protocol."""
        self._is_cut = True
        self.site.counts.hit(HttpLimit.PROTOCOL, self.site.host_of(self.transport), why)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.transport.loseConnection()

    def lineReceived(self, line: bytes) -> None:
        """Parse a line of a request's header; refuse one that continues the line before.

        Continuation lines count as one header, which could have as many lines as bytes.
        """
        if line.startswith((b" ", b"\t")):
            self._respondToBadRequestAndDisconnect()  # type: ignore[no-untyped-call]
        else:
            super().lineReceived(line)  # type: ignore[no-untyped-call]

    def headerReceived(self, line: bytes) -> bool:
        """Parse a header.

        Close the connection if a body's length has more digits than Python parses.
        """
        try:
            return bool(super().headerReceived(line))  # type: ignore[no-untyped-call]
        except ValueError:
            self.cut(HttpLimit.BODY)
            return False

    def allContentReceived(self) -> None:
        """Handle a complete request."""
        self.is_busy = True
        self._watch(ANSWER_S, HttpLimit.ANSWER_TIME)
        super().allContentReceived()  # type: ignore[no-untyped-call]

    def requestDone(self, request: Request) -> None:  # noqa: N802 -- Twisted's
        """Handle the next request in a later turn, after the answer to this one has been sent."""
        self._answered = request
        if not self._waitingForTransport:
            self.site.clock.callLater(0, self._go_on)

    def pauseProducing(self) -> None:
        """Pause: the transport's buffer is full."""
        self.stalled_since_s = self.site.clock.seconds()
        super().pauseProducing()  # type: ignore[no-untyped-call]

    def resumeProducing(self) -> None:
        """Resume: the client has read the buffered bytes."""
        self.stalled_since_s = None
        super().resumeProducing()  # type: ignore[no-untyped-call]
        if self._answered is not None:
            self.site.clock.callLater(0, self._go_on)

    def _go_on(self) -> None:
        if self._answered is None or self._waitingForTransport:
            return
        request, self._answered = self._answered, None
        self.is_busy, self.since_s = False, self.site.clock.seconds()
        self._unwatch()
        if self._dataBuffer:
            self._watch(REQUEST_S, HttpLimit.REQUEST_TIME)
        super().requestDone(request)  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Any) -> None:  # type: ignore[override]
        """Drop waiting requests."""
        self._unwatch()
        self._answered = None
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def _watch(self, wait_s: float, limit: HttpLimit) -> None:
        self._unwatch()
        self._call = self.site.clock.callLater(wait_s, self._is_late, limit)

    def _unwatch(self) -> None:
        cancel(self._call)
        self._call = None

    def _is_late(self, limit: HttpLimit) -> None:
        self._call = None
        self.cut(limit)

    def cut(self, limit: HttpLimit) -> None:
        """Close the connection at once, and count the limit; further received bytes are ignored."""
        if self._is_cut:
            return
        self._is_cut = True
        self.site.counts.hit(limit, self.site.host_of(self.transport))
        self.transport.abortConnection()

    def forceAbortClient(self) -> None:  # noqa: N802 -- Twisted's
        """Close the connection at once; Twisted's version logs a line for each."""
        self._abortingCall = None
        self.transport.abortConnection()


def _other_protocol(begin: bytes) -> str:
    """Return the client's protocol if its first bytes cannot be HTTP; else ""."""
    if begin.startswith(TLS_BEGIN):
        return "TLS; httpServerTlsEnable is false"
    if begin.startswith(b"\0"):  # A length prefix of a frame of at most 16 MiB.
        return "the bookie protocol; bookiePort is another port"
    return ""


@implementer(IPushProducer)
class AnswerBody:
    """The body of an answer, sent in chunks as its client reads."""

    def __init__(self, request: Request, body: bytes, written: Callable[[int], None]) -> None:
        """Prepare; ``begin`` sends.

        ``written`` is called with the bytes that are no longer in memory.
        """
        self._request, self._rest, self._written = request, memoryview(body), written
        self._is_paused = self._is_over = False

    def begin(self) -> None:
        """Send as much as the transport accepts now; the rest follows later."""
        self._request.registerProducer(self, True)
        self.resumeProducing()

    def pauseProducing(self) -> None:
        """Pause: the transport's buffer is full."""
        self._is_paused = True

    def resumeProducing(self) -> None:
        """Resume sending."""
        self._is_paused = False
        while self._rest and not self._is_paused and not self._is_over:
            chunk, self._rest = self._rest[:CHUNK_BYTES], self._rest[CHUNK_BYTES:]
            self._written(len(chunk))
            self._request.write(bytes(chunk))
        if not self._rest and not self._is_over:
            self._is_over = True
            self._request.unregisterProducer()
            self._request.finish()

    def stopProducing(self) -> None:
        """Stop: the client has disconnected."""
        self._is_over = True
        self._written(len(self._rest))
        self._rest = memoryview(b"")
