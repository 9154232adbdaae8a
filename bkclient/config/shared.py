"""The settings that clients and bookies both have: the metadata service, and the largest frame.

By Java's keys (BookKeeper 4.18.0, AbstractConfiguration). ``KeepAlive`` applies TCP's settings.
"""

from __future__ import annotations

import enum
import re
import socket
from collections.abc import Iterator
from typing import Any, Final

import attrs

from bkclient.config.auth import JaasConfig, simple_name
from bkclient.config.declaration import ignored, setting
from bkclient.config.findings import SettingFinding, risky
from bkclient.config.pulsar_uri import LEDGERS_ROOT, PREFIX, as_zookeeper_uri, unserved_store

INT32_MAX: Final = 2**31 - 1
"""The largest value of a socket option, and of Java's ``int``."""


@attrs.frozen(kw_only=True)
class KeepAlive:
    """TCP's detection of a lost peer; 0 or less means the system's value.

    A value that the system does not support or refuses is ignored: only Linux limits the time of
    unconfirmed data, and it accepts up to 32,767 s and 127 probes.
    """

    idle_s: int = -1
    interval_s: int = -1
    count: int = -1
    unconfirmed_ms: int = 0

    @classmethod
    def of(cls, config: Any) -> KeepAlive:
        """Return the values in the settings of a client or a bookie."""
        return cls(
            idle_s=config.tcp_keepalive_idle_s,
            interval_s=config.tcp_keepalive_interval_s,
            count=config.tcp_keepalive_count,
            unconfirmed_ms=config.tcp_user_timeout_ms,
        )

    def apply(self, sock: socket.socket) -> None:
        """Apply it to a connection or a listening socket, from which Linux copies it."""
        for name, value in (
            ("TCP_KEEPIDLE", self.idle_s),
            ("TCP_KEEPINTVL", self.interval_s),
            ("TCP_KEEPCNT", self.count),
            ("TCP_USER_TIMEOUT", self.unconfirmed_ms),
        ):
            if value > 0 and hasattr(socket, name):
                try:
                    sock.setsockopt(
                        socket.IPPROTO_TCP, getattr(socket, name), min(value, INT32_MAX)
                    )
                except OSError as error:
                    _log().warn("{name}={value}: {error}", name=name, value=value, error=error)


def _log() -> Any:
    """Return the logger; imported here, because some readers of settings do not use Twisted."""
    from twisted.logger import Logger

    return Logger()


FACTORIES: Final = {
    "FlatLedgerManagerFactory": "flat",
    "HierarchicalLedgerManagerFactory": "hierarchical",
    "LegacyHierarchicalLedgerManagerFactory": "hierarchical",
    "LongHierarchicalLedgerManagerFactory": "longhierarchical",
}
"""Java's ledger manager classes by their simple name, with the short name in a URI."""


class LedgerManagerType(enum.Enum):
    """The short name of a tree layout, as in ``zk+hierarchical://``."""

    FLAT = "flat"
    HIERARCHICAL = "hierarchical"
    LONG_HIERARCHICAL = "longhierarchical"


def _unserved_scheme(uri: str | None) -> str | None:
    store = unserved_store(uri or "")
    if store is not None:
        return f"keeps its metadata in {store}; only ZooKeeper is served: metadata-store:zk:HOST"
    scheme = (uri or "").partition("://")[0]
    if re.match(r"etcd|zk\+ms", scheme):
        return f"names a metadata service that is not served ({scheme})"
    return None


def _chroot_problems(uri: str) -> Iterator[SettingFinding]:
    """Warn about a Pulsar URI that ends like BookKeeper's, where Pulsar means a chroot."""
    ledgers = 2 * LEDGERS_ROOT
    if uri.lower().startswith(PREFIX) and as_zookeeper_uri(uri).endswith(ledgers):
        yield risky(
            "metadataServiceUri",
            f"has its ledgers at {ledgers}, as with Pulsar's driver: there {LEDGERS_ROOT} is a"
            " chroot",
        )


def _unknown_factory(java_class: str | None) -> str | None:
    if java_class is None or simple_name(java_class) in FACTORIES:
        return None
    return f"is not a ledger manager that is supported; set one of {', '.join(FACTORIES)}"


@attrs.frozen(kw_only=True)
class SharedConfig(JaasConfig):
    """The metadata service, and settings in which clients and bookies must agree."""

    metadata_service_uri: str | None = setting(
        None,
        key="metadataServiceUri",
        group="Metadata service",
        doc="Metadata service: zk+hierarchical://host:port;host:port/ledgers or sqlite:///path; "
        "Pulsar's metadata-store:zk:host:port,host:port too.",
        refuse=_unserved_scheme,
    )
    zk_servers: tuple[str, ...] = setting(
        (), key="zkServers", doc="ZooKeeper servers, if metadataServiceUri is not set."
    )
    zk_ledgers_root_path: str = setting(
        "/ledgers",
        key="zkLedgersRootPath",
        doc="Root of the metadata in ZooKeeper, with zkServers.",
    )
    ledger_manager_type: LedgerManagerType | None = setting(
        None,
        key="ledgerManagerType",
        doc="Layout of the metadata in ZooKeeper, with zkServers.",
        default_text="hierarchical",
    )
    ledger_manager_factory_class: str | None = setting(
        None,
        key="ledgerManagerFactoryClass",
        doc="Layout of the metadata by its Java class; overrides ledgerManagerType.",
        refuse=_unknown_factory,
    )
    zk_timeout_ms: int = setting(
        10_000,
        key="zkTimeout",
        minimum=1,
        doc="Timeout of the ZooKeeper session.",
    )
    zk_request_rate_limit: float = setting(
        0,
        key="zkRequestRateLimit",
        unit="requests/s",
        minimum=0,
        doc="Requests to ZooKeeper; 0 means no limit.",
    )
    zk_enable_security: bool = setting(
        False,
        key="zkEnableSecurity",
        doc="Create znodes that only clients with the same login can use. Needs zkDigestAuthFile "
        "or SASL.",
    )
    zk_digest_path: str = setting(
        "",
        key="zkDigestAuthFile",
        doc="File with USER:PASSWORD for ZooKeeper's digest scheme. Not a key of Java, which has "
        "SASL: a section Client in saslJaasConfigFile.",
    )
    ledger_metadata_version: int = setting(
        -1,
        key="ledgerMetadataVersion",
        minimum=-1,
        maximum=3,
        doc="Format in which ledger metadata is written; -1 is the newest.",
    )
    store_creation_time: bool = setting(
        False,
        key="storeSystemTimeAsLedgerCreationTime",
        doc="Store the time of creation (ctime) in ledger metadata.",
    )
    store_mark_time: bool = setting(
        True,
        key="storeSystemTimeAsLedgerUnderreplicatedMarkTime",
        doc="Store the current time when a ledger is marked under-replicated.",
    )
    frame_bytes_max: int = setting(
        5_242_880,
        key="nettyMaxFrameSizeBytes",
        group="Limits",
        minimum=1024,
        maximum=INT32_MAX,
        doc="Largest message. Clients and bookies must have the same value.",
    )

    @property
    def service_uri(self) -> str | None:
        """The URI of the metadata service, from any of its keys; ``None`` without one.

        A Pulsar URI becomes a ZooKeeper URI.
        """
        if self.metadata_service_uri is not None:
            return as_zookeeper_uri(self.metadata_service_uri)
        if not self.zk_servers:
            return None
        return f"zk+{self._layout}://{';'.join(self.zk_servers)}{self.zk_ledgers_root_path}"

    def cross_check(self) -> Iterator[SettingFinding]:
        """Warn if ``zkServers`` names other servers than the URI, which wins."""
        uri = self.metadata_service_uri
        if uri is None:
            return
        yield from _chroot_problems(uri)
        if not self.zk_servers:
            return
        uri = as_zookeeper_uri(uri)
        hosts = set(re.split(r"[;,]", uri.partition("://")[2].partition("/")[0]))
        if hosts != set(self.zk_servers):
            yield risky("zkServers", f"not used: metadataServiceUri wins, and it names {uri}")

    @property
    def _layout(self) -> str:
        if self.ledger_manager_factory_class is not None:
            return FACTORIES[simple_name(self.ledger_manager_factory_class)]
        kind = self.ledger_manager_type or LedgerManagerType.HIERARCHICAL
        return kind.value


SHARED_OTHER_KEYS: Final = (
    *ignored(
        "the ZooKeeper client has its own pauses",
        "zkRetryBackoffStartMs",
        "zkRetryBackoffMaxMs",
        f"zkRetryBackoffMaxRetries={INT32_MAX}",
    ),
    *ignored("TLS is always OpenSSL's", "tlsProvider=OpenSSL"),
)
"""Keys of bookies and clients that have no effect."""
