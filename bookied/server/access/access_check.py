"""Requests that the bookie accepts before a client has authenticated: only AUTH and START_TLS.

``bookied.server.tls_and_login`` limits the frame length until then.

Agrees with BookKeeper 4.18.0, AuthHandler.ServerSideHandler. Stricter: a refused token closes the
connection in V3 too, after the answer to it. Java's SASL plugin sends no answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bookied.server.access.login_delays import LoginDelays
from bookied.server.limits.address_groups import group_of
from bookied.server.rules.pending_request import refusal
from bookied.stats.metrics import RequestStats
from wire.codes import ProtocolVersion, ReturnCode
from wire.messages import (
    AddRequest,
    AuthRequest,
    AuthResponse,
    ErrorResponse,
    ReadRequest,
    ReplyTo,
    Request,
    Response,
)
from wire.sasl_digest_md5 import AuthenticationError

if TYPE_CHECKING:
    from cryptography import x509

REPORT_EVERY_S: Final = 60.0
"""Seconds between two log lines about the same address and kind of refusal."""

REPORTED_MAX: Final = 1000
"""Addresses and kinds that are remembered for ``REPORT_EVERY_S``; with more, all are forgotten."""

log = Logger()


ReportRefusal = Callable[[str, str, str], None]
"""A function that gets a host, a kind of refusal, and the reason."""


class AuthExchange(Protocol):
    """The authentication of one client."""

    plugin: str
    """The plugin name that the client's AUTH messages must have."""

    @property
    def user(self) -> str | None:
        """The name or role of the authenticated client; None before."""
        ...

    def answer(self, token: bytes) -> bytes:
        """Return the token to send back.

        Raises:
            AuthenticationError: the client is refused.
        """
        ...

    def tls_began(self, certificate: x509.Certificate | None) -> None:
        """Check the client's certificate, now that the connection uses TLS.

        Raises:
            AuthenticationError: the client is refused.
        """
        ...


class Authenticator(Protocol):
    """The method by which clients of a bookie authenticate."""

    def begin(self) -> AuthExchange:
        """Return a new exchange, for one connection."""
        ...


def host_of(transport: Any) -> str:
    """Return a peer's address, for the log."""
    host = str(getattr(transport.getPeer(), "host", "somebody"))
    return host.removeprefix("::ffff:")  # An IPv4 client of a dual-stack socket.


class Refusals:
    """The log of refused clients: one line a minute for each address and kind of refusal.

    An IPv6 network counts as one address.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._reported_s: dict[tuple[str, str], float] = {}

    def report(self, host: str, kind: str, why: str) -> None:
        """Log a refusal, unless one of this address and kind was logged in the last minute.

        Only ``why`` may contain text that the client chose.
        """
        now_s, key = self._clock.seconds(), (group_of(host), kind)
        if now_s - self._reported_s.get(key, -REPORT_EVERY_S) < REPORT_EVERY_S:
            return
        if len(self._reported_s) >= REPORTED_MAX:
            self._reported_s.clear()
        self._reported_s[key] = now_s
        log.warn("refused {host}: {why}", host=host, why=why)


@attrs.frozen
class Verdict:
    """The answer to a refused or AUTH request; None if its protocol has no answer for it."""

    response: Response | None
    closes: bool = False


class AccessCheck(Protocol):
    """The check of the requests of a client that has not authenticated yet."""

    @property
    def is_open(self) -> bool:
        """True if the client has authenticated and may send any request."""
        ...

    def wait_s(self, request: Request) -> float:
        """Return the seconds to wait before ``judge``; call this once for each request."""
        ...

    def judge(self, request: Request, reply_to: ReplyTo) -> Verdict:
        """Return the answer to a request, without executing the request."""
        ...

    def tls_began(self, certificate: x509.Certificate | None) -> None:
        """Check the client's certificate, now that the connection uses TLS."""
        ...


class TlsRequired:
    """The check that refuses all requests before START_TLS, so that no password is sent in clear.

    After START_TLS the connection has another check, or none.
    """

    is_open = False

    def __init__(self, stats: RequestStats, host: str, report: ReportRefusal) -> None:
        self._stats, self._host, self._report = stats, host, report

    def wait_s(self, request: Request) -> float:  # noqa: ARG002
        """Return 0: a refusal needs no delay."""
        return 0.0

    def judge(self, request: Request, reply_to: ReplyTo) -> Verdict:
        """Refuse the request."""
        self._stats.requests_unauthenticated += 1
        self._report(self._host, "clear", "it sent a request without TLS, but tlsRequired is set")
        return _refused(request, reply_to)

    def tls_began(self, certificate: x509.Certificate | None) -> None:
        """Do nothing; never called, because START_TLS replaces this check."""


def _refused(request: Request, reply_to: ReplyTo) -> Verdict:
    """Return Java's answer to a request of a client that has not authenticated."""
    if reply_to.version is not ProtocolVersion.V2:
        return Verdict(ErrorResponse(ReturnCode.EUA))
    if isinstance(request, (AddRequest, ReadRequest)):
        return Verdict(refusal(request, reply_to, ReturnCode.EUA))
    return Verdict(None, closes=True)


@attrs.define(eq=False)
class AuthRequired:
    """The check of one client that must authenticate."""

    _proof: AuthExchange
    _stats: RequestStats
    _host: str
    _report: ReportRefusal
    _delays: LoginDelays
    _is_turned_away: bool = attrs.field(default=False, init=False)

    @property
    def is_open(self) -> bool:
        """True if the client has authenticated and may send any request."""
        return self._proof.user is not None

    def wait_s(self, request: Request) -> float:
        """Return the seconds that a password of this address has to wait."""
        if not isinstance(request, AuthRequest) or not request.payload:
            return 0.0
        wait_s = self._delays.wait_s(self._host)
        self._is_turned_away = wait_s is None
        return wait_s or 0.0

    def judge(self, request: Request, reply_to: ReplyTo) -> Verdict:
        """Return the answer to AUTH; refuse any other request."""
        if isinstance(request, AuthRequest):
            return self._authenticate(request, is_v2=reply_to.version is ProtocolVersion.V2)
        self._stats.requests_unauthenticated += 1
        why = "it sent a request before it authenticated"
        self._report(self._host, "stranger", why)
        return _refused(request, reply_to)

    def _authenticate(self, request: AuthRequest, *, is_v2: bool) -> Verdict:
        wanted = self._proof.plugin
        if request.plugin != wanted:
            why = f"its plugin is {request.plugin[:40]!r}, but this bookie uses {wanted}"
            self._refuse("plugin", why)
            return Verdict(None if is_v2 else ErrorResponse(ReturnCode.EUA), closes=is_v2)
        refused = Verdict(None if is_v2 else ErrorResponse(ReturnCode.EUA), closes=True)
        if self._is_turned_away:
            self._refuse("guesses", "it has sent too many wrong passwords lately")
            return refused
        try:
            token = self._proof.answer(request.payload)
        except AuthenticationError as error:
            self._delays.failed(self._host)
            self._refuse("proof", str(error))
            return refused
        self._note_success()
        return Verdict(AuthResponse(ReturnCode.EOK, wanted, token))

    def tls_began(self, certificate: x509.Certificate | None) -> None:
        """Check the client's certificate, now that the connection uses TLS."""
        try:
            self._proof.tls_began(certificate)
        except AuthenticationError as error:
            self._refuse("proof", str(error))
        self._note_success()

    def _note_success(self) -> None:
        if self.is_open:
            self._stats.auth_successes += 1
            log.debug("{host} is authenticated as {user}", host=self._host, user=self._proof.user)

    def _refuse(self, kind: str, why: str) -> None:
        self._stats.auth_failures += 1
        self._report(self._host, kind, why)
