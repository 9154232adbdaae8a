"""The admin server and the metrics server of a process: bound, served and closed."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.errors import SecurityError
from bookied.admin.control.operations import Control
from bookied.admin.http.allowed_hosts import AllowedHosts
from bookied.admin.http.requests_and_replies import NOT_FOUND, HttpReply, HttpRequest
from bookied.admin.monitoring import metrics_with_java_names, metrics_with_own_names
from bookied.admin.monitoring.http_metrics import HttpCounts
from bookied.admin.monitoring.metrics_page import Metrics
from bookied.admin.monitoring.prometheus_text import CONTENT_TYPE, Family, gauge
from bookied.config.bookie import BookieConfig
from bookied.config.reload import SettingsSource
from bookied.errors import BookieExitStatus, BookieStopError, SecurityStartError
from bookied.server.listener import BoundPort
from bookied.service.autorecovery import AutoRecoveryService
from bookied.service.dependencies import Dependencies
from bookied.service.start_and_stop import BookieService
from bookied.stats.metrics import Summaries
from wire.records.bookie_service_info import Endpoint

if TYPE_CHECKING:
    from bkclient.connection.security.tls_contexts import TlsContexts

PATH: Final = "/metrics"


def listen(
    parts: Dependencies,
    host: str,
    port: int,
    answer: Callable[..., Any],
    counts: HttpCounts,
    hosts: AllowedHosts,
    contexts: TlsContexts | None = None,
) -> BoundPort:
    """Serve HTTP on a port, with any handler; with TLS if there are contexts.

    Raises:
        BookieStopError: the port cannot be bound.
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
    """Serve a page of metrics; return None if the port cannot be bound, and go on without it."""

    async def answer(path: str, _asked: HttpRequest, _credentials: object) -> HttpReply:
        if path.rstrip("/") == PATH:
            return HttpReply(200, page(), CONTENT_TYPE)
        return HttpReply(NOT_FOUND, "only /metrics is here; httpServerEnabled=true brings the rest")

    try:
        return listen(parts, config.stats_host, config.stats_port, answer, counts, hosts)
    except BookieStopError as error:
        log.warn("metrics are not served: {error}", error=error)
        return None


def _bindable(host: str) -> str:
    """Return the address to bind: empty for all addresses of both families."""
    return "" if host in {"0.0.0.0", "::"} else host  # noqa: S104 -- the operator said so


class RepairMetrics:
    """The metrics of autorecovery on the statistics port, unless a bookie uses that port."""

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
        """Do nothing on SIGHUP: this server has no files."""

    async def close(self) -> None:
        """Stop serving."""
        self.metrics.stop()
        if self._port is not None:
            await self._port.close()

    def _families(self) -> Iterator[Family]:
        yield from metrics_with_own_names.of_autorecovery(self._service.stats, prefix="")
        yield from metrics_with_own_names.of_process(self.metrics.lag)
        yield from self._http.families()


def stats_of(service: BookieService) -> Iterator[Summaries]:
    """Yield the objects with windows."""
    if service.parts.metadata_stats is not None:
        yield service.parts.metadata_stats
    if service.server is not None:
        yield service.server.stats
    if service.engine is not None:
        for journal in service.engine.journals:
            yield journal.stats
        for storage in service.engine.storages:
            yield storage.stats
    if service.background.collectors is not None:
        yield from service.background.collectors.stats()
    if service.background.autorecovery is not None:
        yield service.background.autorecovery.stats.auditor
        yield service.background.autorecovery.stats.worker


HTTP_SERVER: Final = "httpserver"
"""The name under which Java publishes the endpoint."""

log = Logger()


class TokenFileError(BookieStopError):
    """The token of the HTTP admin API cannot be read."""

    exit_status = BookieExitStatus.INVALID_CONFIGURATION


class AdminServer:
    """The server of a bookie's admin API, or only of its metrics, for the life of the process."""

    def __init__(
        self,
        service: BookieService,
        *,
        version: str = "",
        config_warnings: int = 0,
        source: SettingsSource | None = None,
        obey: Callable[[BookieConfig], None] | None = None,
    ) -> None:
        self._service, self._config = service, service.config
        self._version, self._config_warnings = version, config_warnings
        self._clock: IReactorTime = service.parts.clock
        self._port: BoundPort | None = None
        self._api: Any = None
        self._tls: TlsContexts | None = None
        self._http = HttpCounts(self._clock)
        self.metrics = Metrics(
            self._clock,
            families=self._families,
            stats=partial(stats_of, service),
            window_s=self._config.stats_window_s,
        )
        self.control = Control(service, self.metrics.text, source, obey)

    def start(self) -> None:
        """Serve; call this before the bookie starts, so that probes learn that it is not ready.

        Raises:
            BookieStopError: the port cannot be bound, or the token or a TLS file cannot be read.
        """
        parts, config, hosts = self._service.parts, self._config, AllowedHosts(self._names)
        if config.http_enabled:
            self._api, self._tls = self._make_api(), self._make_tls()
            host, port, answer = config.http_host, config.http_port, self._api.answer
            self._port = listen(parts, host, port, answer, self._http, hosts, self._tls)
            self._publish()
        else:
            self._port = listen_for_metrics(parts, config, self.metrics.text, self._http, hosts)

    def _names(self) -> frozenset[str]:
        """Return the names of this host in its settings and registration."""
        config, identity = self._config, self._service.identity
        names = {socket.gethostname(), config.http_host, *config.http_allowed_hosts}
        if config.advertised_address:
            names.add(config.advertised_address.strip())
        if identity is not None:
            names |= {identity.host, identity.bookie_id.rpartition(":")[0] or identity.bookie_id}
        return frozenset(name.lower().rstrip(".") for name in names)

    async def close(self) -> None:
        """Stop serving."""
        self.metrics.stop()
        if self._port is not None:
            await self._port.close()
        await self.control.close()

    @property
    def port(self) -> int:
        """The bound port."""
        assert self._port is not None
        return self._port.port

    def reload(self) -> None:
        """Read the TLS files and the token again; after an error the old ones stay."""
        if self._tls is not None:
            self._tls.reload()
        if self._api is None or not self._config.http_token_file:
            return
        try:
            self._api.access = self._access()
        except TokenFileError as error:
            log.warn("{error}; the token stays as it was", error=error)
        else:
            log.info("the token of the HTTP admin API was read again")

    def _make_api(self) -> Any:
        from bookied.admin.api import Api

        return Api(self.control, self._access())

    def _make_tls(self) -> TlsContexts | None:
        """Return the TLS contexts.

        Versions, suites and revocations are those of the bookie's port.
        """
        config, settings = self._config, self._config.https
        if settings is None:
            return None
        from bkclient.connection.security.tls_contexts import TlsContexts

        settings = attrs.evolve(
            settings,
            versions=config.tls_versions,
            suites=config.tls_suites,
            revoked_path=config.tls_revoked_path,
            refresh_s=config.tls_refresh_s,
        )
        try:
            return TlsContexts(settings, self._clock, is_client=False)
        except SecurityError as error:
            raise SecurityStartError(str(error)) from error

    def _access(self) -> Any:
        from bookied.admin.api import Access

        return Access(_token(self._config), self._config.http_open_writes)

    def _families(self) -> Iterator[Family]:
        service, autorecovery = self._service, self._service.background.autorecovery
        for stats in stats_of(service):
            stats.settle()
        yield from metrics_with_java_names.families(service)
        if autorecovery is not None:
            yield from metrics_with_own_names.of_autorecovery(autorecovery.stats)
        yield gauge("bookied_info", 1, self._info())
        yield gauge("bookied_config_warnings", self._config_warnings)
        yield gauge("bookied_latency_window_age_seconds", round(self.metrics.window_age_s, 3))
        yield from metrics_with_own_names.families(service)
        yield from metrics_with_own_names.of_process(self.metrics.lag)
        yield from self._http.families()

    def _publish(self) -> None:
        protocol = "http" if self._tls is None else "https"
        endpoint = Endpoint(HTTP_SERVER, self.port, self._config.http_host, protocol)
        self._service.other_endpoints = (endpoint,)

    def _info(self) -> dict[str, str]:
        identity = self._service.identity
        return {
            "version": self._version,
            "bookieId": "" if identity is None else identity.bookie_id,
            "port": "" if identity is None else str(identity.port),
            "state": self._service.state.now.value,
        }


def _token(config: BookieConfig) -> str:
    """Return the token that a change needs; empty if no token is valid.

    Raises:
        TokenFileError: the file cannot be read, or is empty.
    """
    if not config.http_token_file:
        return config.http_token
    where = f"httpAdminTokenFile: {config.http_token_file}"
    try:
        token = Path(config.http_token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenFileError(f"{where} cannot be read: {error}") from error
    if not token:
        raise TokenFileError(f"{where} is empty")
    return token
