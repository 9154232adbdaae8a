"""A bookie's HTTP admin API as a command sees it: one request, one answer, errors of our own.

Runs on the main thread and blocks. ``/api/v2`` is used where there is one, ``/api/v1`` against Java
bookies.
"""

from __future__ import annotations

import http.client
import json
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs

from bkclient.config.declaration import MASKED, is_secret_key
from bkclient.errors import BookieUnavailableError
from bkctl.bookies.timed_http import TimedConnection, body_of
from bkctl.errors import CommandError, ConflictError, NothingFoundError, RefusedError

if TYPE_CHECKING:
    from bkclient.config.tls import TlsSettings

TIMEOUT_S: Final = 30.0
"""How long one answer may take, where no ``--timeout`` is given."""

REASON_CHARS_MAX: Final = 1000

_OK: Final = range(200, 300)
_NOT_SO: Final = frozenset({400, 409, 503})


class HttpAddress(NamedTuple):
    """Where a bookie's HTTP server listens, and the TLS that it speaks; None for none."""

    host: str
    port: int
    tls: TlsSettings | None = None


@attrs.frozen
class AdminAnswer:
    """What an endpoint answered."""

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
        """Why it is no answer, in the bookie's words."""
        try:
            return str(json.loads(self.body)["error"]["message"])[:REASON_CHARS_MAX]
        except (ValueError, KeyError, TypeError, RecursionError):
            body = self.body[:REASON_CHARS_MAX]
            return " ".join(body.split()) or f"status {self.status}"


class AdminClient:
    """Asks one bookie. ``token`` goes with every request, where there is one."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: TlsSettings | None = None,
        *,
        token: str = "",
        timeout_s: float = TIMEOUT_S,
        tell: Callable[[str], object] = lambda _: None,
        profile: str = "NAME",
    ) -> None:
        """``tell`` hears of each request, as a command that does the same.

        ``profile`` is the one in use, for the hint of a refusal.
        """
        self._address = HttpAddress(host, port, tls)
        self._token, self._timeout_s, self._tell = token, timeout_s, tell
        self._profile = profile
        self._speaks_v2: bool | None = None

    @property
    def speaks_v2(self) -> bool:
        """Whether it is a bookie of ours; asked once."""
        if self._speaks_v2 is None:
            self._speaks_v2 = self.request("GET", "/api/v2/bookie").ok
        return self._speaks_v2

    def request(self, method: str, path: str, body: object = None) -> AdminAnswer:
        """Return what the bookie answers, whatever its status.

        Raises:
            BookieUnavailableError: it does not answer.
            SecurityError: TLS does not come about.
        """
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        sent = None if body is None else json.dumps(body)
        shown_body = None if body is None else json.dumps(_masked(body))
        self._tell(as_curl(method, self._address, path, shown_body, with_token=bool(self._token)))
        connection = self._connection()
        try:
            connection.request(method, path, body=sent, headers=headers)
            with connection.getresponse() as response:
                return AdminAnswer(response.status, body_of(response).decode("utf-8", "replace"))
        except (TimeoutError, OSError, http.client.HTTPException) as error:
            where = f"{self._address.host}:{self._address.port}"
            raise BookieUnavailableError(f"no HTTP at {where}: {_why_none(error)}") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port, tls = self._address
        if tls is None:
            return TimedConnection(host, port, timeout=self._timeout_s)
        from bkctl.bookies.https import HttpsConnection

        return HttpsConnection(host, port, self._timeout_s, tls)

    def ask(self, method: str, path: str, body: object = None) -> AdminAnswer:
        """Return a good answer.

        Raises:
            BookieUnavailableError: it does not answer.
            RefusedError: the token is missing or wrong, or the bookie has none.
            NothingFoundError: there is no such thing.
            ConflictError: the bookie cannot do that now, or its settings forbid it.
            CommandError: it failed.
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

    def insist_allowed(self) -> None:
        """Return if the bookie takes changes from us; nothing is changed.

        Raises:
            RefusedError: the token is missing or wrong, or the bookie has none.
        """
        # Reading entries needs the token, and without a ledger nothing is read.
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
    """Return why a request had no HTTP answer."""
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
    """Return a body without the secrets, which their keys mark."""
    if not isinstance(body, Mapping):
        return body
    return {key: MASKED if is_secret_key(key) else value for key, value in body.items()}


def as_curl(
    method: str, address: HttpAddress, path: str, body: str | None, *, with_token: bool
) -> str:
    """Return the command line of curl that asks the same; the token is not told."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    words = ["curl", *(() if method == "GET" else ("-X", method))]
    words += ["-H", "Authorization: Bearer ***"] if with_token else []
    words += [] if body is None else ["--data", body]
    scheme = "http" if address.tls is None else "https"
    return shlex.join([*words, f"{scheme}://{host}:{address.port}{path}"])
