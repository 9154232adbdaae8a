"""The settings of one bookie: the class behind ``bookied --conf``.

``BookieConfig`` reads an unmodified Java ``bk_server.conf`` (BookKeeper 4.18.0,
ServerConfiguration). A setting that bookied does not support is refused if ignoring it would lose
safety, and otherwise reported; see ``java_keys``. The modules beside this one declare the keys by
group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

import attrs

from bkclient.config.client import ClientConfig
from bkclient.config.declaration import OtherKey, setting
from bkclient.config.findings import Findings, SettingFinding, Severity, invalid, risky
from bkclient.config.properties import Properties, user_name
from bkclient.config.settings import load
from bkclient.config.shared import SharedConfig
from bookied.config.admin import AdminConfig
from bookied.config.auth import BookieAuthConfig
from bookied.config.autorecovery import AutoRecoveryConfig
from bookied.config.db import DbStorageConfig
from bookied.config.disks import DiskConfig
from bookied.config.garbage import CollectorConfig
from bookied.config.java_keys import BOOKIE_OTHER_KEYS
from bookied.config.journal import JournalConfig
from bookied.config.limits import LimitsConfig
from bookied.config.storage import LedgerConfig, StorageClass
from bookied.config.tls import BookieTlsConfig

LEVELS: Final = ("debug", "info", "warn", "error", "critical")
"""The log levels, lowest first."""

__all__ = ["BookieConfig", "StorageClass", "load_bookie_config", "load_client_config"]

_CLIENT_LOGIN: Final = "clientAuthProviderFactoryClass"


def _not_an_umask(text: str) -> str | None:
    if re.fullmatch("0?[0-7]{3}", text) is None:
        return "is not an octal number of three digits, as 027"
    return "takes permissions from the bookie itself" if int(text, 8) & 0o700 else None


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class IdentityConfig:
    """The id and address of a bookie, and the address it listens on."""

    port: int = setting(
        3181,
        key="bookiePort",
        group="Identity and network",
        minimum=0,
        maximum=65_535,
        doc="Port that the bookie listens on; 0 (any free port) needs allowEphemeralPorts.",
    )
    allow_ephemeral_ports: bool = setting(
        False, key="allowEphemeralPorts", doc="Allow port 0, for tests."
    )
    bookie_id: str | None = setting(
        None,
        key="bookieId",
        doc="The bookie's permanent id; by default its address and port.",
    )
    advertised_address: str | None = setting(
        None,
        key="advertisedAddress",
        doc="Host name or address under which clients reach the bookie.",
    )
    listening_interface: str | None = setting(
        None,
        key="listeningInterface",
        doc="Network interface to listen on; the bookie advertises the address of the interface. "
        "If not set, the bookie listens on all interfaces. bookied also accepts an IPv4 "
        "address here.",
    )
    allow_loopback: bool = setting(
        False, key="allowLoopback", doc="Allow a loopback address as the bookie's address."
    )
    use_host_name: bool = setting(
        False,
        key="useHostNameAsBookieID",
        doc="Use the host name instead of the IP address in the bookie id.",
    )
    use_short_host_name: bool = setting(
        False, key="useShortHostName", doc="Use the host name only up to its first dot."
    )
    tcp_no_delay: bool = setting(True, key="serverTcpNoDelay", doc="Disable Nagle's algorithm.")
    tcp_keepalive: bool = setting(
        True,
        key="serverSockKeepalive",
        doc="Send TCP keep-alive probes.",
    )
    tcp_keepalive_idle_s: int = setting(
        -1,
        key="serverTcpKeepIdle",
        doc="Idle time before the first keep-alive probe; -1 uses the system's value.",
    )
    tcp_keepalive_interval_s: int = setting(
        -1,
        key="serverTcpKeepIntvl",
        doc="Pause between keep-alive probes; -1 uses the system's value.",
    )
    tcp_keepalive_count: int = setting(
        -1,
        key="serverTcpKeepCnt",
        doc="Unanswered keep-alive probes before the connection is closed; -1 uses the system's "
        "value.",
    )
    tcp_user_timeout_ms: int = setting(
        0,
        key="serverTcpUserTimeoutMs",
        minimum=0,
        doc="How long sent bytes may stay unacknowledged by the peer before the system closes the "
        "connection; 0 uses the system's value.",
    )
    permitted_users: tuple[str, ...] = setting(
        (), key="permittedStartupUsers", doc="Users who may start the bookie; any user if empty."
    )
    file_umask: str = setting(
        "027",
        key="fileUmask",
        doc="Umask (octal) for the bookie's directories and files, in addition to the umask of "
        "the process. 027 makes directories 0750 and files 0640. Not a key of Java.",
        refuse=_not_an_umask,
    )

    @property
    def umask(self) -> int:
        """The permission bits that new directories and files do not get."""
        return int(self.file_umask, 8)

    def identity_problems(self) -> Iterator[SettingFinding]:
        """Yield settings of the identity that Java's validate() or start refuses."""
        if self.port == 0 and not self.allow_ephemeral_ports:
            yield invalid("bookiePort", "is 0, which only allowEphemeralPorts=true permits")
        if self.permitted_users and user_name() not in self.permitted_users:
            allowed = ", ".join(self.permitted_users)
            why = f"user {user_name()} may not start it ({allowed})"
            yield invalid("permittedStartupUsers", why)


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class LogConfig:
    """The settings of the log."""

    log_level: str = setting(
        "info",
        key="logLevel",
        reloads=True,
        group="Log",
        choices=LEVELS,
        doc="Lowest level to log. --log-level and BOOKIE_ROOT_LOG_LEVEL override this setting.",
    )


@attrs.frozen(kw_only=True)
class BookieConfig(
    LogConfig,
    BookieAuthConfig,
    BookieTlsConfig,
    AutoRecoveryConfig,
    AdminConfig,
    LimitsConfig,
    CollectorConfig,
    DiskConfig,
    DbStorageConfig,
    LedgerConfig,
    JournalConfig,
    SharedConfig,
    IdentityConfig,
):
    """The settings of one bookie; ``key`` is the name in a Java ``bk_server.conf``."""

    other_keys: ClassVar[tuple[OtherKey, ...]] = BOOKIE_OTHER_KEYS

    @property
    def high_priority_bytes_min(self) -> int:
        """The space that recovery adds need while the bookie is read-only."""
        least = self._high_priority_bytes_min
        return self.entry_log_bytes_min(self.log_bytes_max) if least is None else least

    @property
    def has_client(self) -> bool:
        """True if the bookie is a client of other bookies: for repair, or for the admin API.

        The admin API has no client if no certificate of other bookies could be trusted.
        """
        for_admin = self.http_enabled and (not self.has_tls or bool(self.tls_trust_store))
        return self.autorecovery or self.check_integrity or for_admin

    def cross_check(self) -> Iterator[SettingFinding]:
        """Yield the settings that contradict each other."""
        yield from super().cross_check()
        yield from self.identity_problems()
        yield from self.journal_problems()
        yield from self.ledger_problems()
        yield from self.disk_problems()
        yield from self.collector_problems()
        yield from self.limits_problems()
        yield from self.admin_problems()
        yield from self.tls_problems()
        wants_certificates = self.has_tls and self.tls_client_authentication
        yield from self.auth_problems(wants_certificates=wants_certificates)
        if self.service_uri is None:
            yield invalid("metadataServiceUri", "is not set; give it here or with --metadata-uri")


def load_bookie_config(
    properties: Properties, *, strict: bool = False
) -> tuple[BookieConfig, Findings]:
    """Return a bookie's settings; client keys may be in the same file.

    Raises:
        ConfigError: at least one value is refused.
    """
    config, findings = load(BookieConfig, properties, also=(ClientConfig,), strict=strict)
    if config.autorecovery and config.has_sasl and _CLIENT_LOGIN not in properties.entries:
        message = (
            f"is set without {_CLIENT_LOGIN}: this bookie's auditor and replication worker"
            " cannot log in to bookies, and repair nothing"
        )
        key = "bookieAuthProviderFactoryClass"
        origin = properties.entries[key].origin
        findings = (*findings, risky(key, message, origin))
    return config, findings


def load_client_config(properties: Properties) -> ClientConfig:
    """Return the client's settings in a bookie's file, for autorecovery.

    Raises:
        ConfigError: at least one value is refused.
    """
    return load(ClientConfig, properties, also=(BookieConfig,))[0]


def worst(findings: Iterable[SettingFinding]) -> Severity:
    """Return the worst severity among ``findings``; ``NOTE`` if there are none."""
    order = (Severity.NOTE, Severity.WARNING, Severity.ERROR)
    return max((found.severity for found in findings), key=order.index, default=Severity.NOTE)
