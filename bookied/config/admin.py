"""The settings of the HTTP admin server and of metrics."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

import attrs

from bkclient.config.auth import simple_name
from bkclient.config.declaration import setting
from bkclient.config.findings import SettingFinding, invalid, risky
from bkclient.config.tls import StoreFile, StoreType, TlsSettings, store_type

PROMETHEUS: Final = "PrometheusMetricsProvider"
"""The simple name of the one metrics provider that bookied implements."""


_OPEN: Final = (
    "is not a loopback address, so every host that reaches it can read what the bookie publishes"
)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class AdminConfig:
    """The settings of the HTTP admin server and its clients."""

    http_enabled: bool = setting(
        False,
        key="httpServerEnabled",
        group="HTTP admin server and metrics",
        doc="Serve the HTTP admin API.",
    )
    http_port: int = setting(
        8080,
        key="httpServerPort",
        minimum=0,
        maximum=65_535,
        doc="Port of the HTTP admin API; 0 is any free port.",
    )
    http_host: str = setting(
        "127.0.0.1",
        key="httpServerHost",
        doc="Address of the HTTP admin API. Java's default is 0.0.0.0.",
    )
    http_token: str = setting(
        "",
        key="httpAdminToken",
        doc="Token that a client sends as 'Authorization: Bearer TOKEN' to change settings or "
        "state, or to read entries.",
        secret=True,
    )
    http_token_file: str = setting(
        "",
        key="httpAdminTokenFile",
        doc="File with the token; overrides httpAdminToken. SIGHUP reads the file again.",
    )
    http_open_writes: bool = setting(
        False,
        key="httpAdminAllowUnauthenticatedWrites",
        doc="Accept changes without a token, as Java does. Reading entries always needs a token.",
    )
    http_allowed_hosts: tuple[str, ...] = setting(
        (),
        key="httpServerAllowedHosts",
        doc="More host names to accept in a request's 'Host' header; * accepts any. IP addresses, "
        "this host's names and names outside public DNS are always accepted. The check stops "
        "web pages of other sites.",
    )
    http_tls: bool = setting(False, key="httpServerTlsEnable", doc="Serve HTTP only over TLS.")
    http_key_store_type: StoreType = store_type("httpServerKeyStoreType", "key")
    http_key_store: str = setting(
        "", key="httpServerKeyStorePath", doc="File with the HTTP server's key."
    )
    http_key_store_password: str = setting(
        "",
        key="httpServerKeyStorePassword",
        doc="Password of the file in httpServerKeyStorePath.",
        secret=True,
    )
    http_certificate_path: str = setting(
        "",
        key="httpServerCertificatePath",
        doc="File with the certificate of the HTTP server's key, and its chain. Only with a PEM "
        "key store.",
    )
    http_trust_store_type: StoreType = store_type("httpServerTrustStoreType", "trust")
    http_trust_store: str = setting(
        "",
        key="httpServerTrustStorePath",
        doc="File with the certificate authorities of clients. A client with a certificate from "
        "one of the authorities may make changes without the token.",
    )
    http_trust_store_password: str = setting(
        "",
        key="httpServerTrustStorePassword",
        doc="Password of the file in httpServerTrustStorePath.",
        secret=True,
    )
    http_client_authentication: bool = setting(
        True,
        key="httpServerTlsClientAuthentication",
        doc="Refuse clients without a certificate, as Java does. If false, clients without a "
        "certificate may read, and may make changes with the token.",
    )
    stats_provider: str = setting(
        "",
        key="statsProviderClass",
        doc="PrometheusMetricsProvider serves metrics on prometheusStatsHttpPort if "
        "httpServerEnabled is false. The admin server always serves metrics.",
    )
    stats_http_enabled: bool = setting(
        True, key="prometheusStatsHttpEnable", doc="Serve metrics on prometheusStatsHttpPort."
    )
    stats_host: str = setting(
        "127.0.0.1",
        key="prometheusStatsHttpAddress",
        doc="Address of prometheusStatsHttpPort. Java's default is 0.0.0.0.",
    )
    stats_port: int = setting(
        8000,
        key="prometheusStatsHttpPort",
        minimum=0,
        maximum=65_535,
        doc="Port that serves metrics if httpServerEnabled is false; 0 is any free port.",
    )
    stats_window_s: int = setting(
        60,
        key="prometheusStatsLatencyRolloverSeconds",
        minimum=1,
        doc="Length of the window over which latency quantiles are computed.",
    )

    @property
    def serves_stats_alone(self) -> bool:
        """True if metrics have a port of their own."""
        named = simple_name(self.stats_provider) == PROMETHEUS
        return named and self.stats_http_enabled and not self.http_enabled

    @property
    def https(self) -> TlsSettings | None:
        """The TLS settings of the HTTP server; ``None`` without TLS."""
        if not (self.http_enabled and self.http_tls):
            return None
        return TlsSettings(
            certificate_path=self.http_certificate_path,
            certificate_key="httpServerCertificatePath",
            key_store=StoreFile(
                key="httpServerKeyStorePath",
                type=self.http_key_store_type,
                path=self.http_key_store,
                password=self.http_key_store_password,
            ),
            trust_store=StoreFile(
                key="httpServerTrustStorePath",
                type=self.http_trust_store_type,
                path=self.http_trust_store,
                password=self.http_trust_store_password,
            ),
            client_authentication=self.http_client_authentication,
            asks_certificate=bool(self.http_trust_store),
        )

    def admin_problems(self) -> Iterator[SettingFinding]:
        """Yield settings that cannot be used, and settings that may allow more than intended."""
        name = simple_name(self.stats_provider)
        if name and name not in {PROMETHEUS, "NullStatsProvider"}:
            yield risky(
                "statsProviderClass", f"'{self.stats_provider}' is not offered; {PROMETHEUS} is"
            )
        if self.http_enabled and not _is_loopback(self.http_host):
            yield risky("httpServerHost", _OPEN)
        if self.serves_stats_alone and not _is_loopback(self.stats_host):
            yield risky("prometheusStatsHttpAddress", _OPEN)
        if self.http_enabled and self.http_open_writes:
            message = "lets every client that reaches the port change the bookie"
            yield risky("httpAdminAllowUnauthenticatedWrites", message)
        if self.https is not None:
            yield from self._https_problems()

    def _https_problems(self) -> Iterator[SettingFinding]:
        if not self.http_key_store:
            yield invalid("httpServerKeyStorePath", "is not set, and TLS needs the server's key")
        if self.http_key_store_type is StoreType.PEM and not self.http_certificate_path:
            yield invalid("httpServerCertificatePath", "is not set, and a key in PEM needs it")
        if self.http_client_authentication and not self.http_trust_store:
            message = "is not set, and httpServerTlsClientAuthentication needs it"
            yield invalid("httpServerTrustStorePath", message)
