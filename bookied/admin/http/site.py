"""An HTTP server on a port: connections, requests and their limits, without the answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IReactorTime, ITransport
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from bookied.admin.http.allowed_hosts import AllowedHosts
from bookied.admin.http.channel import AdminChannel, AnswerBody, RequestCutError
from bookied.admin.http.limits import (
    BODY_BYTES_MAX,
    CHUNKS_MAX,
    IDLE_S,
    QUERY_FIELDS_MAX,
    READ_BYTES,
    SHARE_OF_ADDRESS,
    STALL_S,
    HttpLimit,
    HttpTurns,
    UnsentAnswers,
    connections_max,
)
from bookied.admin.http.requests_and_replies import (
    BAD_REQUEST,
    FORBIDDEN,
    MISDIRECTED,
    UNAUTHORIZED,
    UNAVAILABLE,
    Credentials,
    HttpReply,
    HttpRequest,
)
from bookied.admin.monitoring.http_metrics import HttpCounts
from bookied.server.access.access_check import host_of
from bookied.server.limits.address_groups import group_of

if TYPE_CHECKING:
    from bkclient.connection.security.tls_contexts import TlsContexts, TlsEnd

_BUSY: Final = HttpReply(UNAVAILABLE, "too many answers wait for their clients; ask again later")

_ABSOLUTE: Final = re.compile(r"https?://(?P<host>[^/?]*)", re.IGNORECASE)
"""The begin of a complete URI in a request line."""

log = Logger()

_DONE: Final = Failure(ConnectionDone())

Answerer = Callable[[str, HttpRequest, Credentials], Any]
"""Returns the answer to a request: path, request, credentials."""


class _QuietSite(Site):
    """A site without an access log, and without HTTP/2, which these limits do not cover."""

    noisy = False
    displayTracebacks = False  # noqa: N815 -- Twisted's

    protocol = AdminChannel  # type: ignore[assignment]
    host_of = staticmethod(host_of)

    def __init__(
        self,
        answer: Answerer,
        clock: IReactorTime,
        counts: HttpCounts,
        hosts: AllowedHosts,
        give_way: Callable[[], object],
    ) -> None:
        self.counts, self.clock, self.give_way = counts, clock, give_way
        super().__init__(  # type: ignore[no-untyped-call]
            AdminResource(answer, clock, counts, hosts),
            requestFactory=_BoundedRequest,
            timeout=IDLE_S,
            reactor=clock,
        )

    def log(self, request: object) -> None:
        """Log nothing."""


class AdminResource(Resource):
    """The resource of every path."""

    isLeaf = True  # noqa: N815 -- Twisted's

    def __init__(
        self, answer: Answerer, clock: IReactorTime, counts: HttpCounts, hosts: AllowedHosts
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._answer, self._counts, self._hosts = answer, counts, hosts
        self._unsent, self._turns = UnsentAnswers(), HttpTurns(clock)

    def render(self, request: Request) -> int:
        """Answer one request, now or later.

        If the client has disconnected, the answer is dropped.
        """
        gone = request.notifyFinish()
        gone.addErrback(lambda _failure: None)
        refused = self._refusal(request)
        work = partial(self._begin, request, gone)
        if refused is not None:
            work = partial(self._send, refused, request, gone)
        self._turns.ask(_connection_of(request).group, work)
        return NOT_DONE_YET

    def _refusal(self, request: Request) -> HttpReply | None:
        try:
            host, _ = request.getHeader("Host"), request.getHeader("Authorization")
        except UnicodeDecodeError:
            return HttpReply(BAD_REQUEST, "the header Host or Authorization is not UTF-8")
        if len(request.requestHeaders.getRawHeaders("Host", [])) > 1:
            return HttpReply(BAD_REQUEST, "more than one Host")
        named, _ = _target_of(request)
        if named == "":
            return HttpReply(BAD_REQUEST, "the URI of the request names no host")
        if named is not None and self._hosts.allows(host):
            host = named
        if self._hosts.allows(host):
            return None
        self._counts.hit(HttpLimit.HOST, host_of(request.channel.transport))
        return HttpReply(
            MISDIRECTED, f"{host!r} is not the name of this host; see httpServerAllowedHosts"
        )

    def _begin(self, request: Request, gone: Deferred[None]) -> None:
        if gone.called:
            return
        assert request.content is not None
        _, target = _target_of(request)
        address, _, query = target.partition("?")
        try:
            fields = parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError:
            many = HttpReply(BAD_REQUEST, f"more than {QUERY_FIELDS_MAX} fields in the query")
            self._send(many, request, gone)
            return
        asked = HttpRequest(
            method=request.method.decode("latin-1"),
            query=dict(fields),
            body=request.content.read(),
        )
        answering = Deferred.fromCoroutine(self._answer(address, asked, _credentials(request)))
        gone.addCallback(lambda _done: answering.cancel())
        answering.addCallback(self._send, request, gone)
        answering.addErrback(_ended)

    def _send(self, reply: HttpReply, request: Request, gone: Deferred[None]) -> None:
        if reply.status in {UNAUTHORIZED, FORBIDDEN}:
            asked = f"{request.method.decode('latin-1')} {_target_of(request)[1].partition('?')[0]}"
            self._counts.hit(HttpLimit.TOKEN, host_of(request.channel.transport), asked[:200])
        if gone.called:
            self._counts.answered(reply.status)
            return
        body = reply.body.encode("utf-8", "replace")
        if not self._unsent.take(len(body)):
            self._counts.hit(HttpLimit.UNSENT, host_of(request.channel.transport))
            reply, body = _BUSY, _BUSY.body.encode()
            self._unsent.hold(len(body))
        self._counts.answered(reply.status)
        _set_head(reply, request)
        request.setHeader("Content-Length", str(len(body)))
        if request.method == b"HEAD":
            self._unsent.give_back(len(body))
            body = b""
        sending = AnswerBody(request, body, self._unsent.give_back)
        gone.addCallback(lambda _done: sending.stopProducing())
        sending.begin()


def _target_of(request: Request) -> tuple[str | None, str]:
    """Return the host in the request line, path and query.

    Clients of a proxy send a complete URI, which a server must accept (RFC 9112, 3.2.2). Other
    clients send no host in that line: None.
    """
    uri = request.uri.decode("latin-1")
    found = _ABSOLUTE.match(uri)
    if found is None:
        return None, uri
    target = uri[found.end() :]
    return found["host"], target if target.startswith("/") else "/" + target


def _connection_of(request: Request) -> _Connection:
    connection = request.channel.transport
    assert isinstance(connection, _Connection)
    return connection


def _credentials(request: Request) -> Credentials:
    connection = _connection_of(request)
    authorization = request.getHeader("Authorization") or ""
    return Credentials(authorization, connection.certified, host_of(connection))


def _set_head(reply: HttpReply, request: Request) -> None:
    request.setResponseCode(reply.status, HTTPStatus(reply.status).phrase.encode("ascii"))
    request.setHeader("Content-Type", reply.content_type)
    request.setHeader("Cache-Control", "no-store")
    for name, value in reply.headers.items():
        request.setHeader(name, value)


def _ended(failure: Failure) -> None:
    log.debug("an HTTP request was cancelled: {failure}", failure=failure.getErrorMessage())


class _BoundedRequest(Request):
    """A request whose body has a limit, announced or not.

    Twisted would parse cookies, query, forms and path before the request has its turn: 64 KiB of
    form fields took 50 ms.
    """

    channel: AdminChannel
    _seen_bytes = _seen_parts = 0

    def parseCookies(self) -> None:  # noqa: N802 -- Twisted's
        """Do nothing: no answer depends on cookies."""

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Answer the request."""
        assert self.content is not None
        self.content.seek(0)
        self.args: dict[bytes, list[bytes]] = {}
        self.method, self.uri, self.clientproto, self.path = command, path, version, b"/"
        self.process()  # type: ignore[no-untyped-call]

    def gotLength(self, length: int | None) -> None:  # noqa: N802 -- Twisted's
        """Refuse a body that is too long before it arrives."""
        if length is not None and length > BODY_BYTES_MAX:
            self.channel.cut(HttpLimit.BODY)
            length = 0
        super().gotLength(length)  # type: ignore[no-untyped-call]

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 -- Twisted's
        """Count and keep a chunk of the body."""
        self._seen_bytes += len(data)
        self._seen_parts += 1
        if self._seen_bytes > BODY_BYTES_MAX or self._seen_parts > CHUNKS_MAX:
            self.channel.cut(HttpLimit.BODY)
            raise RequestCutError
        super().handleContentChunk(data)  # type: ignore[no-untyped-call]


class _Connection(ProtocolWrapper):
    """One connection, with TLS from its first byte if the server uses TLS."""

    _end: TlsEnd | None = None
    group = ""
    """The address or network of the client."""
    is_given_up = False
    """True if the connection was closed for another one, and is about to end."""

    def makeConnection(self, transport: ITransport) -> None:  # noqa: N802 -- Twisted's
        """Start TLS, then HTTP."""
        transport.bufferSize = READ_BYTES  # type: ignore[attr-defined]
        contexts = self.factory.contexts
        if contexts is not None:
            self._end = contexts.end()
            transport.startTLS(self._end, True)  # type: ignore[attr-defined]
        super().makeConnection(transport)  # type: ignore[no-untyped-call]

    @property
    def channel(self) -> AdminChannel:
        """The HTTP protocol of the connection."""
        assert isinstance(self.wrappedProtocol, AdminChannel)
        return self.wrappedProtocol

    @property
    def certified(self) -> str | None:
        """The name in the client's certificate; None without one."""
        certificate = None if self._end is None else self._end.peer_certificate()
        return None if certificate is None else certificate.subject.rfc4514_string()

    def give_up(self, limit: HttpLimit) -> None:
        """Close the connection for another one."""
        self.is_given_up = True
        self.channel.cut(limit)

    def connectionLost(self, reason: Failure = _DONE) -> None:
        """Log the reason if TLS ended the connection."""
        why = None if self._end is None else self._end.why_lost(reason.value)
        if why is not None:
            self.channel.site.counts.hit(HttpLimit.TLS, host_of(self), why)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


class _BoundedFactory(WrappingFactory):
    """A limit on the connections, of all addresses and of one address.

    At the limit a new connection replaces the one that has waited longest without a complete
    request, or whose client has read nothing of its answer for longest. So a client that keeps all
    of them open does not keep a probe out. If all have requests in progress, the oldest connection
    of the address with most is closed. A new connection of the address that would have most itself
    is refused.
    """

    noisy = False
    protocol = _Connection

    def __init__(self, served: _QuietSite, contexts: TlsContexts | None) -> None:
        super().__init__(served)  # type: ignore[no-untyped-call]
        self.contexts, self._counts = contexts, served.counts
        self._connections_max, self._clock = connections_max(), served.clock

    def buildProtocol(self, addr: IAddress | None) -> ProtocolWrapper | None:  # type: ignore[override]
        host = str(getattr(addr, "host", ""))
        group = group_of(host)
        open_now = [one for one in self.protocols if not one.is_given_up]
        mine = [one for one in open_now if one.group == group]
        limit = None
        if len(mine) >= self._connections_max // SHARE_OF_ADDRESS:
            limit = None if self._make_room(mine) else HttpLimit.ADDRESS
        elif len(open_now) >= self._connections_max:
            has_space = self._make_room(open_now) or _thin_out(open_now, len(mine))
            limit = None if has_space else HttpLimit.CONNECTIONS
        if limit is not None:
            self._counts.hit(limit, host)
            return None
        connection = super().buildProtocol(addr)
        if isinstance(connection, _Connection):
            connection.group = group
        return connection

    def _make_room(self, open_now: list[_Connection]) -> bool:
        """Close the connection that has waited or stalled longest; return whether one was found."""
        waiting = {one: one.channel.since_s for one in open_now if not one.channel.is_busy}
        stalled_s = self._clock.seconds() - STALL_S
        stalled = {
            one: since_s
            for one in open_now
            if (since_s := one.channel.stalled_since_s) is not None and since_s <= stalled_s
        }
        for found, limit in ((waiting, HttpLimit.WAITING), (stalled, HttpLimit.STALLED)):
            if found:
                min(found, key=found.__getitem__).give_up(limit)
                return True
        return False


def _thin_out(open_now: list[_Connection], own_number: int) -> bool:
    """Close the oldest connection of the address with most, if another address needs one."""
    group, number = Counter(one.group for one in open_now).most_common(1)[0]
    if number <= own_number + 1:
        return False
    next(one for one in open_now if one.group == group).give_up(HttpLimit.CROWD)
    return True


def site(
    answer: Answerer,
    clock: IReactorTime,
    counts: HttpCounts,
    contexts: TlsContexts | None = None,
    hosts: AllowedHosts | None = None,
    give_way: Callable[[], object] = lambda: None,
) -> _BoundedFactory:
    """Return a factory that serves ``answer`` on a port, with TLS if there are contexts.

    ``give_way`` lets the journals' threads run; called whenever a client has sent bytes.
    """
    names = hosts or AllowedHosts(frozenset)
    return _BoundedFactory(_QuietSite(answer, clock, counts, names, give_way), contexts)
