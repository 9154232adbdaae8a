"""What a client may do before it has authenticated: only that, and begin TLS.

How long its frames may be until then: ``bookied.server.tls_and_login``.

Agrees with BookKeeper 4.18.0, AuthHandler.ServerSideHandler. Stricter: a refused token closes the
connection in V3 too, after its answer, where Java's SASL plugin leaves the client without any.
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
"""How often it is told that one host is refused for one kind of reason."""

REPORTED_MAX: Final = 1000
"""Hosts and kinds of reasons that are remembered for that; beyond it all are forgotten."""

log = Logger()


ReportRefusal = Callable[[str, str, str], None]
"""Takes a host, a kind of reason, and the reason."""


class AuthExchange(Protocol):
    """One client's attempt to show who it is."""

    plugin: str
    """The name that its messages must bear."""

    @property
    def user(self) -> str | None:
        """Who it is, once that is shown."""
        ...

    def answer(self, token: bytes) -> bytes:
        """Return what to send back.

        Raises:
            AuthenticationError: refused.
        """
        ...

    def tls_began(self, certificate: x509.Certificate | None) -> None:
        """Hear that the connection is in TLS now, and what the client has shown for that.

        Raises:
            AuthenticationError: refused.
        """
        ...


class Authenticator(Protocol):
    """How clients of a bookie show who they are."""

    def begin(self) -> AuthExchange:
        """Return what one connection needs."""
        ...


def host_of(transport: Any) -> str:
    """Return a peer's address, for the log."""
    host = str(getattr(transport.getPeer(), "host", "somebody"))
    return host.removeprefix("::ffff:")  # One that came by IPv4 to a socket for both.


class Refusals:
    """Tells of clients that are refused: each address and kind of reason once in a while.

    An IPv6 network counts as one address.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._reported_s: dict[tuple[str, str], float] = {}

    def report(self, host: str, kind: str, why: str) -> None:
        """Log it, unless that was done lately; what the client chose is in ``why`` only."""
        now_s, key = self._clock.seconds(), (group_of(host), kind)
        if now_s - self._reported_s.get(key, -REPORT_EVERY_S) < REPORT_EVERY_S:
            return
        if len(self._reported_s) >= REPORTED_MAX:
            self._reported_s.clear()
        self._reported_s[key] = now_s
        log.warn("refused {host}: {why}", host=host, why=why)


@attrs.frozen
class Verdict:
    """What becomes of a request; without a response there is none to give in its protocol."""

    response: Response | None
    closes: bool = False


class AccessCheck(Protocol):
    """Decides about requests of a client that is not authenticated yet."""

    @property
    def is_open(self) -> bool:
        """Whether the client may ask for anything."""
        ...

    def wait_s(self, request: Request) -> float:
        """Return how long to wait before a request is judged; called once for each."""
        ...

    def judge(self, request: Request, reply_to: ReplyTo) -> Verdict:
        """Answer a request, which is not obeyed."""
        ...

    def tls_began(self, certificate: x509.Certificate | None) -> None:
        """Hear that the connection is in TLS now."""
        ...


class TlsRequired:
    """Refuses all requests before START_TLS, where nothing is served in clear, passwords included.

    A connection that begins TLS has another check from then on, or none.
    """

    is_open = False

    def __init__(self, stats: RequestStats, host: str, report: ReportRefusal) -> None:
        self._stats, self._host, self._report = stats, host, report

    def wait_s(self, request: Request) -> float:  # noqa: ARG002
        """Return 0: a refusal takes no time."""
        return 0.0

    def judge(self, request: Request, reply_to: ReplyTo) -> Verdict:
        """Refuse a request, whatever it is."""
        self._stats.requests_unauthenticated += 1
        self._report(self._host, "clear", "it asks without TLS, and tlsRequired is set")
        return _refused(request, reply_to)

    def tls_began(self, certificate: x509.Certificate | None) -> None:
        """Hear of TLS: never, for then there is another check."""


def _refused(request: Request, reply_to: ReplyTo) -> Verdict:
    """Return the refusal of what only others may ask, as Java's bookie gives it."""
    if reply_to.version is not ProtocolVersion.V2:
        return Verdict(ErrorResponse(ReturnCode.EUA))
    if isinstance(request, (AddRequest, ReadRequest)):
        return Verdict(refusal(request, reply_to, ReturnCode.EUA))
    return Verdict(None, closes=True)


@attrs.define(eq=False)
class AuthRequired:
    """What one client may do until it has authenticated."""

    _proof: AuthExchange
    _stats: RequestStats
    _host: str
    _report: ReportRefusal
    _delays: LoginDelays
    _is_turned_away: bool = attrs.field(default=False, init=False)

    @property
    def is_open(self) -> bool:
        """Whether the client may ask for anything."""
        return self._proof.user is not None

    def wait_s(self, request: Request) -> float:
        """Return how long a password of this address has to wait."""
        if not isinstance(request, AuthRequest) or not request.payload:
            return 0.0
        wait_s = self._delays.wait_s(self._host)
        self._is_turned_away = wait_s is None
        return wait_s or 0.0

    def judge(self, request: Request, reply_to: ReplyTo) -> Verdict:
        """Answer a request of a client that has not authenticated."""
        if isinstance(request, AuthRequest):
            return self._authenticate(request, is_v2=reply_to.version is ProtocolVersion.V2)
        self._stats.requests_unauthenticated += 1
        why = "it sent a request before it authenticated"
        self._report(self._host, "stranger", why)
        return _refused(request, reply_to)

    def _authenticate(self, request: AuthRequest, *, is_v2: bool) -> Verdict:
        wanted = self._proof.plugin
        if request.plugin != wanted:
            why = f"it speaks of plugin {request.plugin[:40]!r}, where {wanted} is wanted"
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
        """Hear that the connection is in TLS now."""
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
