"""The HTTP API of one bookie: requests of both versions to endpoints, values and errors to answers.

``Access`` and ``paths_without_token`` decide who may send which request. ``http.site`` has the
connections.
"""

from __future__ import annotations

import hmac
import inspect
import re
from typing import Final

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.logger import Logger

from bkclient.errors import IllegalOperationError, IncorrectParameterError, NoSuchLedgerError
from bkclient.metadata.errors import MetadataUnavailableError
from bookied.admin.control.operations import Control
from bookied.admin.http.requests_and_replies import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    INTERNAL_ERROR,
    JSON,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    UNAUTHORIZED,
    UNAVAILABLE,
    BadHttpRequestError,
    Credentials,
    HttpReply,
    HttpRequest,
)
from bookied.admin.jobs import JobRefusedError, NoSuchJobError
from bookied.admin.monitoring.prometheus_text import CONTENT_TYPE
from bookied.admin.paths_without_token import OPEN
from bookied.admin.v1 import endpoints as v1
from bookied.admin.v2.endpoints import ENDPOINTS, PREFIX, V2Endpoint, openapi_text
from bookied.admin.v2.handlers import body_of
from bookied.admin.v2.values import ApiError, ErrorAnswer, Readiness, to_json
from bookied.errors import ChangeRefusedError, NotServingError
from wire.errors import BookKeeperError

HEAVY_AT_ONCE: Final = 2
"""Requests in progress whose answers grow with the number of ledgers in the cluster."""

_NO_RESOURCE: Final = HttpReply(
    NOT_FOUND, "<html><body><h1>Resource not found</h1></body></html>", "text/html; charset=utf-8"
)

_PROBLEMS: Final[tuple[tuple[type[BookKeeperError], int, str], ...]] = (
    (BadHttpRequestError, BAD_REQUEST, "bad_request"),
    (IncorrectParameterError, BAD_REQUEST, "bad_request"),
    (NoSuchLedgerError, NOT_FOUND, "not_found"),
    (NoSuchJobError, NOT_FOUND, "not_found"),
    (JobRefusedError, CONFLICT, "refused"),
    (IllegalOperationError, CONFLICT, "refused"),
    (ChangeRefusedError, CONFLICT, "refused"),
    (NotServingError, UNAVAILABLE, "not_serving"),
    (MetadataUnavailableError, UNAVAILABLE, "metadata_unavailable"),
)

log = Logger()


@attrs.frozen
class Access:
    """The rule for requests that are not open: the client needs the token or a certificate.

    With ``open_to_all`` every client may change things.
    """

    token: str = attrs.field(default="", repr=False)
    open_to_all: bool = False

    def refusal(
        self, credentials: Credentials, *, reads_entries: bool = False
    ) -> tuple[int, str] | None:
        """Return status and reason to refuse a request that is not open; None if it is allowed.

        ``open_to_all`` applies to changes only, because the entries of a ledger are protected by
        its password.
        """
        if credentials.certified is not None or (self.open_to_all and not reads_entries):
            return None
        if not self.token:
            return FORBIDDEN, "set httpAdminToken to allow this over HTTP"
        scheme, _, token = credentials.authorization.partition(" ")
        wanted = self.token.encode()
        if scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), wanted):
            return None
        return UNAUTHORIZED, "this needs the header 'Authorization: Bearer TOKEN'"


class Api:
    """Both versions of the API of one bookie, without HTTP."""

    def __init__(self, control: Control, access: Access) -> None:
        self._control = control
        self.access = access
        """The rule for changes; may be replaced at any time."""
        self._v1 = {one.path: one for one in v1.ENDPOINTS}
        self._heavy = DeferredSemaphore(HEAVY_AT_ONCE)
        self._v2 = [(_pattern(PREFIX + one.path), one) for one in ENDPOINTS]

    async def answer(
        self, path: str, asked: HttpRequest, credentials: Credentials | None = None
    ) -> HttpReply:
        """Return the answer to a request; every error becomes an answer."""
        path, credentials = path.rstrip("/") or "/", credentials or Credentials()
        if asked.method == "HEAD":  # Handled like GET; ``_send`` leaves out the body.
            asked = attrs.evolve(asked, method="GET")
        try:
            if path in self._v1:
                return await self._answer_v1(self._v1[path], asked, credentials)
            if path == f"{PREFIX}/openapi.json" and asked.method == "GET":
                return HttpReply(200, openapi_text(), JSON)
            if path == f"{PREFIX}/metrics" and asked.method == "GET":
                return HttpReply(200, self._control.metrics(), CONTENT_TYPE)
            if path.startswith(PREFIX):
                return await self._answer_v2(path, asked, credentials)
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001 -- one request's trouble is not the bookie's
            log.failure("{method} {path} failed", method=asked.method, path=path)
            return HttpReply(INTERNAL_ERROR, "Internal Server Error")
        return _NO_RESOURCE

    async def _answer_v1(
        self, endpoint: v1.V1Endpoint, asked: HttpRequest, credentials: Credentials
    ) -> HttpReply:
        if asked.method not in v1.METHODS:
            return HttpReply(METHOD_NOT_ALLOWED, "")
        if endpoint.is_guarded(asked.method):
            refused = self._refusal(
                asked.method, endpoint.path, credentials, reads_entries=endpoint.reads_entries
            )
            if refused is not None:
                return HttpReply(*refused)
        try:
            if endpoint.is_heavy:
                return await self._heavy.run(
                    lambda: Deferred.fromCoroutine(endpoint.answer(self._control, asked))
                )
            return await endpoint.answer(self._control, asked)
        except BookKeeperError as error:
            status, _ = _status_of(error)
            if status != INTERNAL_ERROR:
                return HttpReply(status, str(error))
            log.info("{path} failed: {error!r}", path=endpoint.path, error=error)
            return HttpReply(status, "Internal Server Error")

    def _refusal(
        self, method: str, path: str, credentials: Credentials, *, reads_entries: bool = False
    ) -> tuple[int, str] | None:
        """Return the reason to refuse a request that is not open; log an allowed one."""
        refused = self.access.refusal(credentials, reads_entries=reads_entries)
        if refused is None:
            who = "" if credentials.certified is None else f" ({credentials.certified})"
            log.info(
                "HTTP request of {host}: {method} {path}{who}",
                host=credentials.host,
                method=method,
                path=path,
                who=who,
            )
        return refused

    async def _answer_v2(
        self, path: str, asked: HttpRequest, credentials: Credentials
    ) -> HttpReply:
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
        is_open = not endpoint.changes and PREFIX + endpoint.path in OPEN
        refused = None if is_open else self._refusal(asked.method, path, credentials)
        if refused is not None:
            return _failed(refused[0], "not_allowed", refused[1])
        return await self._call(endpoint, attrs.evolve(asked, path=variables))

    async def _call(self, endpoint: V2Endpoint, asked: HttpRequest) -> HttpReply:
        try:
            unknown = asked.query.keys() - {one.name for one in endpoint.parameters}
            if unknown:
                raise BadHttpRequestError(f"unknown: {', '.join(sorted(unknown))}")
            body = () if endpoint.takes is None else (body_of(asked, endpoint.takes),)
            value = endpoint.call(self._control, asked, *body)
            if inspect.isawaitable(value):
                value = await value
        except BookKeeperError as error:
            return _failed(*_status_of(error), str(error))
        is_unready = isinstance(value, Readiness) and not value.ready
        return HttpReply(UNAVAILABLE if is_unready else endpoint.status, to_json(value), JSON)


def _status_of(error: BookKeeperError) -> tuple[int, str]:
    """Return the HTTP status of an error, and its code in ``/api/v2``."""
    for kind, status, code in _PROBLEMS:
        if isinstance(error, kind):
            return status, code
    return INTERNAL_ERROR, "failed"


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))


def _failed(status: int, code: str, message: str) -> HttpReply:
    return HttpReply(status, to_json(ErrorAnswer(error=ApiError(code=code, message=message))), JSON)
