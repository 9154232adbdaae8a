"""The change of one connection from clear text to TLS.

Agrees with BookKeeper 4.18.0, BookieRequestProcessor.processStartTLSRequestV3. One difference: Java
sends a second answer to START_TLS if the handshake ends before the client is authenticated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from bookied.server.access.access_check import ReportRefusal, host_of
from bookied.stats.metrics import RequestStats
from wire.errors import TlsOrderError
from wire.messages import AuthRequest, Request

if TYPE_CHECKING:
    from bkclient.connection.security.tls_contexts import TlsEnd

HANDSHAKE_S: Final = 30.0
"""Seconds that a client has for the handshake after the answer to START_TLS."""

log = Logger()


def refuse_tls(stats: RequestStats, report: ReportRefusal, host: str, why: object) -> None:
    """Count and log a connection that fails because of TLS; the caller closes the connection."""
    stats.tls_failures += 1
    report(host, "tls", f"no TLS: {why}")


class TlsUpgrade:
    """The time from the answer to START_TLS to the end of the handshake.

    Java's client may send its first AUTH in clear after START_TLS and before its first TLS record.
    So the transport starts TLS only when that record arrives.
    """

    def __init__(
        self,
        end: TlsEnd,
        transport: Any,
        clock: IReactorTime,
        stats: RequestStats,
        report: ReportRefusal,
    ) -> None:
        self.end = end
        self.is_over = False
        """Whether the handshake has ended and the connection uses TLS."""
        self._transport, self._stats, self._report = transport, stats, report
        self._first: bytes | None = None
        self._was_asked = False
        self._timer: IDelayedCall | None = clock.callLater(HANDSHAKE_S, self._expire)

    def require_allowed(self, request: Request) -> None:
        """Allow one AUTH without TLS after START_TLS.

        Raises:
            TlsOrderError: the request is another one, or a second AUTH. Java's client sends only
                one AUTH there; an attacker on the network could insert others in the client's name.
        """
        if self._was_asked or not isinstance(request, AuthRequest):
            raise TlsOrderError("a request without TLS after START_TLS")
        self._was_asked = True

    def begin(self, data: bytes) -> None:
        """Keep the first bytes of TLS for ``go_on``."""
        self._first = data

    def go_on(self) -> None:
        """Begin the handshake if ``begin`` has its first bytes. May call the connection back."""
        if self._first is None:
            return
        first, self._first = self._first, None
        self._transport.startTLS(self.end, True)
        receive = getattr(self._transport, "receive_tls", self._transport.protocol.dataReceived)
        receive(first)

    def completed(self) -> None:
        """Stop the timer and count the handshake, which has ended."""
        self.is_over = True
        self._stop_timer()
        self._stats.tls_handshakes += 1
        log.debug("{peer} uses {what}", peer=self._transport.getPeer(), what=self.end.version)

    def lost(self, error: BaseException | None) -> None:
        """Stop the timer; report the lost connection if TLS was the reason."""
        self._stop_timer()
        why = self.end.why_lost(error)
        if why is not None:
            self._refuse(why)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _expire(self) -> None:
        self._timer = None
        self._refuse(f"no handshake within {HANDSHAKE_S:g} s")
        self._transport.abortConnection()

    def _refuse(self, why: str) -> None:
        refuse_tls(self._stats, self._report, host_of(self._transport), why)
