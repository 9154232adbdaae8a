"""HTTP requests to endpoints of both versions, values and errors to answers."""

from __future__ import annotations

import hmac
import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IReactorTime, ITransport
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from bkclient.errors import IllegalOperationError, NoSuchLedgerError
from bkclient.metadata.api import MetadataUnavailableError
from bookied.admin import v1
from bookied.admin.control import Control, NotServingError, RefusedError
from bookied.admin.endpoints import ENDPOINTS, PREFIX, Endpoint, openapi_text
from bookied.admin.exchange import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    INTERNAL_ERROR,
    JSON,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    UNAUTHORIZED,
    UNAVAILABLE,
    Asked,
    BadRequestError,
    Reply,
)
from bookied.admin.jobs import JobRefusedError, NoSuchJobError
from bookied.admin.monitoring.http_counts import HttpCounts
from bookied.admin.monitoring.text import CONTENT_TYPE
from bookied.admin.values import Failed, Problem, Readiness, to_json
from bookied.server.access.auth_gate import host_of
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.connection.tls import TlsContexts, TlsEnd

BODY_BYTES_MAX: Final = 64 * 1024
"""A request with a longer body is cut off."""

CONNECTIONS_MAX: Final = 64
IDLE_S: Final = 60
"""How long a connection may bring nothing."""

_NO_RESOURCE: Final = Reply(
    NOT_FOUND, "<html><body><h1>Resource not found</h1></body></html>", "text/html; charset=utf-8"
)

_PROBLEMS: Final[tuple[tuple[type[BookKeeperError], int, str], ...]] = (
    (BadRequestError, BAD_REQUEST, "bad_request"),
    (NoSuchLedgerError, NOT_FOUND, "not_found"),
    (NoSuchJobError, NOT_FOUND, "not_found"),
    (JobRefusedError, CONFLICT, "refused"),
    (IllegalOperationError, CONFLICT, "refused"),
    (RefusedError, CONFLICT, "refused"),
    (NotServingError, UNAVAILABLE, "not_serving"),
    (MetadataUnavailableError, UNAVAILABLE, "metadata_unavailable"),
)

log = Logger()

_DONE: Final = Failure(ConnectionDone())


@attrs.frozen
class Credentials:
    """What a request shows of who asks.

    ``certified`` is the name in a certificate that was verified; None where none was shown.
    ``host`` is where it comes from.
    """

    authorization: str = attrs.field(default="", repr=False)
    certified: str | None = None
    host: str = ""


@attrs.frozen
class Access:
    """Who may change something: who bears the token or shows a certificate, or anybody."""

    token: str = attrs.field(default="", repr=False)
    open_to_all: bool = False

    def refusal(self, given: Credentials) -> tuple[int, str] | None:
        """Return status and reason to refuse a change; None if it is allowed."""
        if self.open_to_all or given.certified is not None:
            return None
        if not self.token:
            return FORBIDDEN, "set httpAdminToken to allow changes over HTTP"
        scheme, _, token = given.authorization.partition(" ")
        wanted = self.token.encode()
        if scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), wanted):
            return None
        return UNAUTHORIZED, "changes need the header 'Authorization: Bearer TOKEN'"


class Api:
    """Both versions of the API of one bookie; no HTTP in it."""

    def __init__(self, control: Control, access: Access) -> None:
        self._control = control
        self.access = access
        """Who may change something; may be replaced at any time."""
        self._v1 = {one.path: one for one in v1.ENDPOINTS}
        self._v2 = [(_pattern(PREFIX + one.path), one) for one in ENDPOINTS]

    async def answer(self, path: str, asked: Asked, given: Credentials | None = None) -> Reply:
        """Return the answer to a request, whatever happens."""
        path, given = path.rstrip("/") or "/", given or Credentials()
        try:
            if path in self._v1:
                return await self._answer_v1(self._v1[path], asked, given)
            if path == f"{PREFIX}/openapi.json" and asked.method == "GET":
                return Reply(200, openapi_text(), JSON)
            if path == f"{PREFIX}/metrics" and asked.method == "GET":
                return Reply(200, self._control.metrics(), CONTENT_TYPE)
            if path.startswith(PREFIX):
                return await self._answer_v2(path, asked, given)
        except Exception:  # noqa: BLE001 -- one request's trouble is not the bookie's
            log.failure("{method} {path} failed", method=asked.method, path=path)
            return Reply(INTERNAL_ERROR, "Internal Server Error")
        return _NO_RESOURCE

    async def _answer_v1(self, endpoint: v1.Endpoint, asked: Asked, given: Credentials) -> Reply:
        if asked.method not in v1.METHODS:
            return Reply(METHOD_NOT_ALLOWED, "")
        if endpoint.changes(asked.method):
            refused = self._refusal(asked.method, endpoint.path, given)
            if refused is not None:
                return Reply(*refused)
        try:
            return await endpoint.answer(self._control, asked)
        except (BookKeeperError, ValueError) as error:
            log.info("{path} failed: {error!r}", path=endpoint.path, error=error)
            return Reply(INTERNAL_ERROR, "Internal Server Error")

    def _refusal(self, method: str, path: str, given: Credentials) -> tuple[int, str] | None:
        """Return why a change is refused, and log it either way."""
        refused = self.access.refusal(given)
        if refused is None:
            who = "" if given.certified is None else f" ({given.certified})"
            log.info(
                "asked over HTTP by {host}: {method} {path}{who}",
                host=given.host,
                method=method,
                path=path,
                who=who,
            )
        else:
            log.warn(
                "refused {host} over HTTP: {method} {path}",
                host=given.host,
                method=method,
                path=path,
            )
        return refused

    async def _answer_v2(self, path: str, asked: Asked, given: Credentials) -> Reply:
        found = {
            one.method: (one, match.groupdict())
            for pattern, one in self._v2
            if (match := pattern.fullmatch(path))
        }
        if not found:
            return _failed(NOT_FOUND, "not_found", f"there is no {path}")
        if asked.method not in found:
            allowed = ", ".join(sorted(found))
            reply = _failed(METHOD_NOT_ALLOWED, "method_not_allowed", f"only {allowed}")
            return attrs.evolve(reply, headers={"Allow": allowed})
        endpoint, variables = found[asked.method]
        refused = self._refusal(asked.method, path, given) if endpoint.changes else None
        if refused is not None:
            return _failed(refused[0], "not_allowed", refused[1])
        return await self._call(endpoint, attrs.evolve(asked, path=variables))

    async def _call(self, endpoint: Endpoint, asked: Asked) -> Reply:
        try:
            unknown = asked.query.keys() - {one.name for one in endpoint.parameters}
            if unknown:
                raise BadRequestError(f"unknown: {', '.join(sorted(unknown))}")
            value = endpoint.call(self._control, asked)
            if inspect.isawaitable(value):
                value = await value
        except BookKeeperError as error:
            for kind, status, code in _PROBLEMS:
                if isinstance(error, kind):
                    return _failed(status, code, str(error))
            return _failed(INTERNAL_ERROR, "failed", str(error))
        is_unready = isinstance(value, Readiness) and not value.ready
        return Reply(UNAVAILABLE if is_unready else endpoint.status, to_json(value), JSON)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))


def _failed(status: int, code: str, message: str) -> Reply:
    return Reply(status, to_json(Failed(error=Problem(code=code, message=message))), JSON)


Answerer = Callable[[str, Asked, Credentials], Any]
"""What answers requests: a path, what is asked there, and by whom."""


# HTTP ---------------------------------------------------------------------------------------------


class _QuietSite(Site):
    """A site without an access log."""

    noisy = False
    displayTracebacks = False  # noqa: N815 -- Twisted's

    def __init__(self, answer: Answerer, clock: IReactorTime, counts: HttpCounts) -> None:
        self.counts = counts
        super().__init__(  # type: ignore[no-untyped-call]
            AdminResource(answer, counts),
            requestFactory=_BoundedRequest,
            timeout=IDLE_S,
            reactor=clock,
        )

    def acceptableProtocols(self) -> list[bytes]:  # noqa: N802 -- Twisted's
        """Speak no HTTP/2, whatever is installed: its requests have no limit here."""
        return [b"http/1.1"]

    def log(self, request: object) -> None:
        """Say nothing."""


class AdminResource(Resource):
    """Every path there is."""

    isLeaf = True  # noqa: N815 -- Twisted's

    def __init__(self, answer: Answerer, counts: HttpCounts) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._answer, self._counts = answer, counts

    def render(self, request: Request) -> int:
        """Answer one request, now or later; nobody is told if its client has gone meanwhile."""
        assert request.content is not None
        address, _, query = request.uri.decode("latin-1").partition("?")
        asked = Asked(
            method=request.method.decode("latin-1"),
            query=dict(parse_qsl(query, keep_blank_values=True)),
            body=request.content.read(),
        )
        answering = Deferred.fromCoroutine(self._answer(address, asked, _credentials(request)))
        gone = request.notifyFinish()
        gone.addErrback(lambda _failure: answering.cancel())
        answering.addCallback(self._send, request, gone)
        answering.addErrback(_ended)
        return NOT_DONE_YET

    def _send(self, reply: Reply, request: Request, gone: Deferred[None]) -> None:
        self._counts.answered(reply.status)
        if not gone.called:
            _write(reply, request)


def _credentials(request: Request) -> Credentials:
    connection = request.channel.transport
    assert isinstance(connection, _Connection)
    authorization = request.getHeader("Authorization") or ""
    return Credentials(authorization, connection.certified, host_of(connection))


def _write(reply: Reply, request: Request) -> None:
    request.setResponseCode(reply.status)
    request.setHeader("Content-Type", reply.content_type)
    request.setHeader("Cache-Control", "no-store")
    for name, value in reply.headers.items():
        request.setHeader(name, value)
    if request.method != b"HEAD":
        request.write(reply.body.encode("utf-8", "replace"))
    request.finish()


def _ended(failure: Failure) -> None:
    log.debug("a request was given up: {failure}", failure=failure.getErrorMessage())


class _BoundedRequest(Request):
    """A request whose body has a limit, announced or not."""

    _seen_bytes = 0

    def gotLength(self, length: int | None) -> None:  # noqa: N802 -- Twisted's
        """Refuse a body before it comes."""
        if length is not None and length > BODY_BYTES_MAX:
            self._cut()
            length = 0
        super().gotLength(length)  # type: ignore[no-untyped-call]

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 -- Twisted's
        """Take a part of the body."""
        self._seen_bytes += len(data)
        if self._seen_bytes > BODY_BYTES_MAX:
            self._cut()
            return
        super().handleContentChunk(data)  # type: ignore[no-untyped-call]

    def _cut(self) -> None:
        log.info("a request with a body of more than {limit} bytes was cut", limit=BODY_BYTES_MAX)
        self.channel.site.counts.bodies_cut += 1  # type: ignore[attr-defined]
        self.channel.forceAbortClient()


class _Connection(ProtocolWrapper):
    """One connection, in TLS from its first byte where the server has that."""

    _end: TlsEnd | None = None

    def makeConnection(self, transport: ITransport) -> None:  # noqa: N802 -- Twisted's
        """Begin TLS, then HTTP."""
        contexts = self.factory.contexts
        if contexts is not None:
            self._end = contexts.end()
            transport.startTLS(self._end, True)  # type: ignore[attr-defined]
        super().makeConnection(transport)  # type: ignore[no-untyped-call]

    @property
    def certified(self) -> str | None:
        """The name in the client's certificate; None where it has shown none."""
        certificate = None if self._end is None else self._end.peer_certificate()
        return None if certificate is None else certificate.subject.rfc4514_string()

    def connectionLost(self, reason: Failure = _DONE) -> None:
        """Say why, where it was for TLS."""
        why = None if self._end is None else self._end.why_lost(reason.value)
        if why is not None:
            log.warn("no TLS over HTTP with {host}: {why}", host=host_of(self), why=why)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


class _BoundedFactory(WrappingFactory):
    """No more than so many connections at a time; others are turned away."""

    noisy = False
    protocol = _Connection

    def __init__(self, served: _QuietSite, contexts: TlsContexts | None) -> None:
        super().__init__(served)  # type: ignore[no-untyped-call]
        self.contexts, self._counts = contexts, served.counts

    def buildProtocol(self, addr: IAddress | None) -> ProtocolWrapper | None:  # type: ignore[override]
        if len(self.protocols) >= CONNECTIONS_MAX:
            self._counts.connections_refused += 1
            return None
        return super().buildProtocol(addr)


def site(
    answer: Answerer,
    clock: IReactorTime,
    counts: HttpCounts,
    contexts: TlsContexts | None = None,
) -> _BoundedFactory:
    """Return what serves the answers of ``Api.answer`` on a port, in TLS if there are contexts."""
    return _BoundedFactory(_QuietSite(answer, clock, counts), contexts)
