"""A port that serves metrics and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bookied.admin.exchange import NOT_FOUND, Asked, Reply
from bookied.admin.monitoring.http_counts import HttpCounts
from bookied.admin.monitoring.text import CONTENT_TYPE
from bookied.exit_status import BookieStopError
from bookied.runtime.listener import BoundPort

if TYPE_CHECKING:
    from bkclient.connection.tls import TlsContexts

PATH: Final = "/metrics"

log = Logger()


def listen(
    listener: Any,
    clock: IReactorTime,
    host: str,
    port: int,
    answer: Callable[..., Any],
    counts: HttpCounts,
    contexts: TlsContexts | None = None,
) -> BoundPort:
    """Serve HTTP on a port, whoever answers; in TLS if there are contexts.

    Raises:
        BookieStopError: it cannot be had.
    """
    from bookied.admin.web import site

    bound: BoundPort = listener.bind(_bindable(host), port)
    bound.listen(site(answer, clock, counts, contexts))
    scheme = "HTTP" if contexts is None else "HTTPS"
    log.info("{scheme} on {host}, port {port}", scheme=scheme, host=host, port=bound.port)
    return bound


def listen_for_metrics(
    listener: Any,
    clock: IReactorTime,
    host: str,
    port: int,
    page: Callable[[], str],
    counts: HttpCounts,
) -> BoundPort | None:
    """Serve a page of metrics; None where the port cannot be had, which is no reason to stop."""

    async def answer(path: str, _asked: Asked, _given: object) -> Reply:
        if path.rstrip("/") == PATH:
            return Reply(200, page(), CONTENT_TYPE)
        return Reply(NOT_FOUND, "only /metrics is here; httpServerEnabled=true brings the rest")

    try:
        return listen(listener, clock, host, port, answer, counts)
    except BookieStopError as error:
        log.warn("no metrics: {error}", error=error)
        return None


def _bindable(host: str) -> str:
    """Return the address to bind: empty for all, of both families."""
    return "" if host in {"0.0.0.0", "::"} else host  # noqa: S104 -- the operator said so
