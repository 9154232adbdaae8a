"""A bookie's HTTP admin API for commands: one request, one answer, errors of bkctl.

Runs on the main thread and blocks. ``/api/v2`` is used if the bookie has it, ``/api/v1`` for Java
bookies.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs

from bkclient.config.declaration import MASKED, is_secret_key
from bkclient.errors import BookieUnavailableError
from bkctl.bookies.http.timed_http import TimedConnection, body_of
from bkctl.errors import CommandError, ConflictError, NothingFoundError, RefusedError

if TYPE_CHECKING:
    from bkclient.config.tls import TlsSettings

TIMEOUT_S: Final = 30.0
"""Seconds for one answer without ``--timeout``."""

REASON_CHARS_MAX: Final = 1000

_OK: Final = range(200, 300)
_NOT_SO: Final = frozenset({400, 409, 503})


class HttpAddress(NamedTuple):
    """The address of a bookie's HTTP server, and its TLS settings; None without TLS."""

    host: str
    port: int
    tls: TlsSettings | None = None


@attrs.frozen
class AdminAnswer:
    """The answer of an endpoint."""

    status: int
    body: str

    @property
    def ok(self) -> bool:
        return self.status in _OK

    @property
    def json(self) -> Any:
        """The body as JSON.

        Raises:
            CommandError: the body is not JSON.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise CommandError(f"the answer is not JSON: {self.body[:80]!r}") from error

    @property
    def reason(self) -> str:
        """The bookie's reason for an error."""
        try:
            return str(json.loads(self.body)["error"]["message"])[:REASON_CHARS_MAX]
        except (ValueError, KeyError, TypeError, RecursionError):
            body = self.body[:REASON_CHARS_MAX]
            return " ".join(body.split()) or f"status {self.status}"


class AdminClient:
    """A client of one bookie's API. Every request has the ``token``, unless it is empty."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: TlsSettings | None = None,
        *,
        token: str = "",
        timeout_s: float = TIMEOUT_S,
        trace: Callable[[str], object] = lambda _: None,
        profile: str = "NAME",
    ) -> None:
        """``trace`` is called with each request, as a curl command.

        ``profile`` is the current profile's name, for the hint of a refusal.
        """
        self._address = HttpAddress(host, port, tls)
        self._token, self._timeout_s, self._trace = token, timeout_s, trace
        self._profile = profile
        self._speaks_v2: bool | None = None

    @property
    def speaks_v2(self) -> bool:
        """True for a bookied; requested once."""
        if self._speaks_v2 is None:
            self._speaks_v2 = self.request("GET", "/api/v2/bookie").ok
        return self._speaks_v2

    def request(self, method: str, path: str, body: object = None) -> AdminAnswer:
        """Return the bookie's answer, with any status.

        Raises:
            BookieUnavailableError: the bookie does not answer.
            SecurityError: the TLS handshake failed.
        """
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        sent = None if body is None else json.dumps(body)
        shown_body = None if body is None else json.dumps(_masked(body))
        self._trace(as_curl(method, self._address, path, shown_body, with_token=bool(self._token)))
        try:
            with contextlib.closing(self._connection()) as connection:
                connection.request(method, path, body=sent, headers=headers)
                with connection.getresponse() as response:
                    text = body_of(response).decode("utf-8", "replace")
                    return AdminAnswer(response.status, text)
        except (TimeoutError, OSError, http.client.HTTPException) as error:
            where = f"{self._address.host}:{self._address.port}"
            raise BookieUnavailableError(f"no HTTP at {where}: {_why_none(error)}") from error

    def _connection(self) -> http.client.HTTPConnection:
        host, port, tls = self._address
        if tls is None:
            return TimedConnection(host, port, timeout=self._timeout_s)
        from bkctl.bookies.http.https import HttpsConnection

        return HttpsConnection(host, port, self._timeout_s, tls)

    def ask(self, method: str, path: str, body: object = None) -> AdminAnswer:
        """Return a successful answer.

        Raises:
            BookieUnavailableError: the bookie does not answer.
            RefusedError: the token is missing or wrong, or the bookie has no token.
            NothingFoundError: the requested object does not exist.
            ConflictError: the bookie cannot do that now, or its settings forbid it.
            CommandError: the bookie failed.
        """
        answer = self.request(method, path, body)
        if answer.ok:
            return answer
        if answer.status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            raise self._refusal(answer)
        if answer.status in _NOT_SO:
            raise ConflictError(answer.reason)
        if answer.status == http.client.NOT_FOUND:
            raise NothingFoundError(answer.reason)
        raise CommandError(f"the bookie failed: {answer.reason}")

    def require_allowed(self) -> None:
        """Return if the bookie accepts changes from this client; change nothing.

        Raises:
            RefusedError: the token is missing or wrong, or the bookie has no token.
        """
        # The endpoint needs the token, and reads nothing without a ledger.
        answer = self.request("GET", "/api/v1/ledger/read")
        if answer.status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            raise self._refusal(answer)

    def _refusal(self, answer: AdminAnswer) -> RefusedError:
        if answer.status == http.client.FORBIDDEN:
            return RefusedError(answer.reason)
        return self._wrong_token()

    def _wrong_token(self) -> RefusedError:
        rejects = "rejects this admin token" if self._token else "requires its admin token"
        return RefusedError(
            f"the bookie {rejects}",
            next_step="name the token's file with --token-file FILE, or for all commands: bkctl "
            f"profile edit {self._profile} --admin-token-file FILE; on the bookie's host "
            "-c bk_server.conf has it; `bkctl local` keeps the token in DIR/admin-token",
        )


def _why_none(error: Exception) -> object:
    """Return the reason why a request had no HTTP answer."""
    if isinstance(error, http.client.RemoteDisconnected):
        return (
            "the server closed the connection without a response; is it the bookie's own port, or"
            " HTTPS? (--http https://HOST:PORT)"
        )
    if isinstance(error, http.client.BadStatusLine):
        line = str(error)
        if line.startswith(("\x15\x03", "\x16\x03")):
            return "the server speaks TLS; try --http https://HOST:PORT"
        return f"the server does not speak HTTP: {line[:80]!r}"
    return getattr(error, "strerror", None) or error


def _masked(body: object) -> object:
    """Return a body with its secrets masked; their keys mark them."""
    if not isinstance(body, Mapping):
        return body
    return {key: MASKED if is_secret_key(key) else value for key, value in body.items()}


def as_curl(
    method: str, address: HttpAddress, path: str, body: str | None, *, with_token: bool
) -> str:
    """Return the command line of curl for the same request, without the token."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    words = ["curl", *(() if method == "GET" else ("-X", method))]
    words += ["-H", "Authorization: Bearer ***"] if with_token else []
    words += [] if body is None else ["--data", body]
    scheme = "http" if address.tls is None else "https"
    return shlex.join([*words, f"{scheme}://{host}:{address.port}{path}"])
