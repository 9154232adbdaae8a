"""The settings of the HTTP admin server and of metrics."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

import attrs

from bkclient.settings import Finding, FindingKind, Severity, setting

PROMETHEUS: Final = "PrometheusMetricsProvider"
"""The simple name of the one provider whose text is served here."""


_OPEN: Final = "is no loopback address: whoever reaches it can read all that the bookie tells"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@attrs.frozen(kw_only=True, slots=False)  # One of several bases.
class AdminConfig:
    """Where a bookie is asked over HTTP, and by whom."""

    http_enabled: bool = setting(
        False,
        key="httpServerEnabled",
        group="HTTP admin server and metrics",
        doc="Serve the HTTP admin API.",
    )
    http_port: int = setting(
        8080, key="httpServerPort", minimum=0, maximum=65_535, doc="Its port; 0 for any."
    )
    http_host: str = setting(
        "127.0.0.1",
        key="httpServerHost",
        doc="The address it listens at. Java's default is 0.0.0.0.",
    )
    http_token: str = setting(
        "",
        key="httpAdminToken",
        doc="What a request that changes anything has to bear: 'Authorization: Bearer TOKEN'.",
        secret=True,
    )
    http_token_file: str = setting(
        "",
        key="httpAdminTokenFile",
        doc="A file with that token, which wins over httpAdminToken; SIGHUP has it read again.",
    )
    http_open_writes: bool = setting(
        False,
        key="httpAdminAllowUnauthenticatedWrites",
        doc="Let requests that change something do without a token, as Java does.",
    )
    stats_provider: str = setting(
        "",
        key="statsProviderClass",
        doc="PrometheusMetricsProvider serves metrics on prometheusStatsHttpPort where the admin "
        "server, which serves them always, is off.",
    )
    stats_http_enabled: bool = setting(
        True, key="prometheusStatsHttpEnable", doc="Whether that provider has a port of its own."
    )
    stats_host: str = setting(
        "127.0.0.1",
        key="prometheusStatsHttpAddress",
        doc="The address of that port. Java's default is 0.0.0.0.",
    )
    stats_port: int = setting(
        8000, key="prometheusStatsHttpPort", minimum=0, maximum=65_535, doc="That port."
    )
    stats_window_s: int = setting(
        60,
        key="prometheusStatsLatencyRolloverSeconds",
        unit="s",
        minimum=1,
        doc="How long each window lasts of which quantiles are told.",
    )

    @property
    def serves_stats_alone(self) -> bool:
        """Whether metrics have a port of their own."""
        named = self.stats_provider.rpartition(".")[2] == PROMETHEUS
        return named and self.stats_http_enabled and not self.http_enabled

    def admin_problems(self) -> Iterator[Finding]:
        """Give what cannot be provided, and what is open to more than was perhaps meant."""
        name = self.stats_provider.rpartition(".")[2]
        if name and name not in {PROMETHEUS, "NullStatsProvider"}:
            yield _warning(
                "statsProviderClass", f"'{self.stats_provider}' is not offered; {PROMETHEUS} is"
            )
        if self.http_enabled and not _is_loopback(self.http_host):
            yield _warning("httpServerHost", _OPEN)
        if self.serves_stats_alone and not _is_loopback(self.stats_host):
            yield _warning("prometheusStatsHttpAddress", _OPEN)
        if self.http_enabled and self.http_open_writes:
            message = "lets anybody who reaches the port change things"
            yield _warning("httpAdminAllowUnauthenticatedWrites", message)


def _warning(key: str, message: str) -> Finding:
    return Finding(Severity.WARNING, FindingKind.RISKY, key, message)
