"""A port that serves only metrics, and the metrics of a process that runs only autorecovery."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from bookied.admin.http.allowed_hosts import AllowedHosts
from bookied.admin.http.messages import NOT_FOUND, HttpReply, HttpRequest
from bookied.admin.monitoring import autorecovery_metrics, bookied_metrics
from bookied.admin.monitoring.http_metrics import HttpCounts
from bookied.admin.monitoring.metrics_page import Metrics
from bookied.admin.monitoring.prometheus_text import CONTENT_TYPE, Family
from bookied.config.bookie import BookieConfig
from bookied.errors import BookieStopError
from bookied.server.listener import BoundPort
from bookied.service.autorecovery import AutoRecoveryService
from bookied.service.dependencies import Dependencies

if TYPE_CHECKING:
    from bkclient.connection.security.tls_contexts import TlsContexts


PATH: Final = "/metrics"

log = Logger()


def listen(
    parts: Dependencies,
    host: str,
    port: int,
    answer: Callable[..., Any],
    counts: HttpCounts,
    hosts: AllowedHosts,
    contexts: TlsContexts | None = None,
) -> BoundPort:
    """Serve HTTP on a port, with any handler; in TLS if there are contexts.

    Raises:
        BookieStopError: it cannot be had.
    """
    from bookied.admin.http.site import site

    bound: BoundPort = parts.listener.bind(_bindable(host), port)
    bound.listen(site(answer, parts.clock, counts, contexts, hosts, parts.give_way))
    scheme = "HTTP" if contexts is None else "HTTPS"
    log.info("{scheme} on {host}, port {port}", scheme=scheme, host=host, port=bound.port)
    return bound


def listen_for_metrics(
    parts: Dependencies,
    config: BookieConfig,
    page: Callable[[], str],
    counts: HttpCounts,
    hosts: AllowedHosts,
) -> BoundPort | None:
    """Serve a page of metrics; None where the port cannot be had, which is no reason to stop."""

    async def answer(path: str, _asked: HttpRequest, _given: object) -> HttpReply:
        if path.rstrip("/") == PATH:
            return HttpReply(200, page(), CONTENT_TYPE)
        return HttpReply(NOT_FOUND, "only /metrics is here; httpServerEnabled=true brings the rest")

    try:
        return listen(parts, config.stats_host, config.stats_port, answer, counts, hosts)
    except BookieStopError as error:
        log.warn("metrics are not served: {error}", error=error)
        return None


def _bindable(host: str) -> str:
    """Return the address to bind: empty for all, of both families."""
    return "" if host in {"0.0.0.0", "::"} else host  # noqa: S104 -- the operator said so


class RepairMetrics:
    """Serves them on the statistics' port, where that can be had: a bookie may be beside it."""

    def __init__(self, service: AutoRecoveryService) -> None:
        self._service, self._config = service, service.config
        self._port: BoundPort | None = None
        self._http = HttpCounts(service.parts.clock)
        self.metrics = Metrics(
            service.parts.clock,
            families=self._families,
            stats=lambda: (service.stats.auditor, service.stats.worker),
            window_s=service.config.stats_window_s,
        )

    def start(self) -> None:
        """Serve, if the port is free."""
        parts, hosts = self._service.parts, AllowedHosts(self._names)
        self._port = listen_for_metrics(parts, self._config, self.metrics.text, self._http, hosts)

    def _names(self) -> frozenset[str]:
        config = self._config
        names = (socket.gethostname(), config.stats_host, *config.http_allowed_hosts)
        return frozenset(map(str.lower, names))

    def reload(self) -> None:
        """Take note of SIGHUP: there is nothing that is read again."""

    async def close(self) -> None:
        """Serve no more."""
        self.metrics.stop()
        if self._port is not None:
            await self._port.close()

    def _families(self) -> Iterator[Family]:
        yield from autorecovery_metrics.families(self._service.stats, prefix="")
        yield from bookied_metrics.of_process(self.metrics.lag)
        yield from self._http.families()
