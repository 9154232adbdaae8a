"""The metrics of a process that runs autorecovery alone."""

from __future__ import annotations

from collections.abc import Iterator

from bookied.admin.metrics_port import listen_for_metrics
from bookied.admin.monitoring import own_names, repair_names
from bookied.admin.monitoring.http_counts import HttpCounts
from bookied.admin.monitoring.page import Metrics
from bookied.admin.monitoring.text import Family
from bookied.runtime.listener import BoundPort
from bookied.service.autorecovery import AutoRecoveryService


class RepairMetrics:
    """Serves them on the statistics' port, where that can be had: a bookie may be beside it."""

    def __init__(self, service: AutoRecoveryService) -> None:
        self._service, self._config = service, service.config
        self._port: BoundPort | None = None
        self._http = HttpCounts()
        self.metrics = Metrics(
            service.parts.clock,
            families=self._families,
            stats=lambda: (service.stats.auditor, service.stats.worker),
            window_s=service.config.stats_window_s,
        )

    def start(self) -> None:
        """Serve, if the port is free."""
        parts, config = self._service.parts, self._config
        self._port = listen_for_metrics(
            parts.listener,
            parts.clock,
            config.stats_host,
            config.stats_port,
            self.metrics.text,
            self._http,
        )

    def reload(self) -> None:
        """Take note of SIGHUP: there is nothing that is read again."""

    async def close(self) -> None:
        """Serve no more."""
        self.metrics.stop()
        if self._port is not None:
            await self._port.close()

    def _families(self) -> Iterator[Family]:
        yield from repair_names.families(self._service.stats, prefix="")
        yield from own_names.of_process(self.metrics.lag)
        yield from self._http.families()
