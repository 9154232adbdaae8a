"""The port on which a bookie serves its clients, with its TLS and authentication."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import attrs
from twisted.logger import Logger

from bkclient.errors import SecurityError
from bookied.config.bookie import BookieConfig
from bookied.directories.bookie_id import listen_host
from bookied.errors import SecurityStartError
from bookied.server.access.access_check import Authenticator
from bookied.server.limits.backpressure import SHARED_ADDS_BYTES, ServerLimits
from bookied.server.limits.connections import ConnectionSettings
from bookied.server.limits.timeouts import Timeouts
from bookied.server.listener import BoundPort
from bookied.server.rules.request_rules import Bookie
from bookied.server.server import BookieServer
from bookied.server.shared_by_connections import AccessRules
from bookied.service.dependencies import Dependencies
from bookied.storage.ledger_storage.storage_limits import StorageLimits

SPARE_FILES: Final = 256
"""Descriptors for journals, marks, the metadata service, the log, and short use."""

_UNLIMITED: Final = 2**62


def _connections_max(
    config: BookieConfig, open_files_max: int | None, storage: StorageLimits
) -> int | None:
    """Return the largest number of client connections, which storage leaves descriptors for."""
    asked = config.connections_max or None
    if open_files_max is None:
        return asked
    for_reading = storage.open_logs_max + storage.open_indexes_max
    files = for_reading + storage.open_to_write_max + SPARE_FILES
    most = max(open_files_max - files, open_files_max // 8)
    return most if asked is None else min(asked, most)


def connection_settings(
    config: BookieConfig, open_files_max: int | None, storage: StorageLimits
) -> ConnectionSettings:
    """Return the number of connections and the limits of each.

    Args:
        config: the bookie's settings.
        open_files_max: the process's limit on descriptors; None if unknown.
        storage: the limits of the storage, with its descriptors.
    """
    count_max = _connections_max(config, open_files_max, storage)
    return ConnectionSettings(
        count_max=count_max,
        of_address_max=config.address_connections_max or _half(count_max),
        timeouts=_timeouts(config),
        frame_bytes_max=config.frame_bytes_max,
        tcp_keep_alive=config.tcp_keepalive,
    )


def _half(connections_max: int | None) -> int | None:
    return None if connections_max is None else max(1, connections_max // 2)


def _timeouts(config: BookieConfig) -> Timeouts:
    cuts = config.close_on_response_timeout and config.response_wait_ms >= 0
    return Timeouts(
        frame_s=config.frame_wait_ms / 1000 or None,
        answer_s=config.response_wait_ms / 1000 if cuts else None,
        idle_s=config.idle_wait_ms / 1000 or None,
        login_s=config.login_wait_ms / 1000 or None,
    )


def server_limits(config: BookieConfig, storage: StorageLimits) -> ServerLimits:
    """Return the limits on memory for the requests of all connections."""
    return ServerLimits(
        in_flight_bytes_max=config.journal_queue_bytes_max,
        unwritten_bytes_max=storage.unwritten_bytes_max,
        adds_max=config.adds_in_progress_max or None,
        shared_adds_bytes_max=SHARED_ADDS_BYTES * len(config.journal_directories),
        reads_pending_max=config.reads_in_progress_max or _UNLIMITED,
        half_frames_bytes_max=config.half_frames_bytes_max,
        unsent_bytes_max=config.unsent_bytes_max,
    )


if TYPE_CHECKING:
    from bkclient.connection.security.tls_contexts import TlsContexts

log = Logger()


class ClientPort:
    """A port that is bound early, before another process can take it, and served later."""

    def __init__(self, config: BookieConfig, parts: Dependencies) -> None:
        """Load keys and passwords; modules of features that are off are not loaded.

        Raises:
            SecurityStartError: a key or password cannot be used.
        """
        self._config, self._parts = config, parts
        self._tls, self._auth = _open_security(config, parts)
        self._bound: BoundPort | None = None
        self.server: BookieServer | None = None

    @property
    def has_tls(self) -> bool:
        return self._tls is not None

    def bind(self) -> int:
        """Bind the port of the settings, or a free port; return the port.

        Raises:
            PortInUseError: another process uses the port.
            AddressError: the address is not of this host, or the process may not use the port.
        """
        parts = self._parts
        host = listen_host(self._config, parts.host)
        self._bound = parts.listener.bind(host, self._config.port)
        return self._bound.port

    def serve(self, bookie: Bookie, storage: StorageLimits) -> None:
        """Start answering clients."""
        assert self._bound is not None
        config, parts = self._config, self._parts
        self.server = BookieServer(
            bookie,
            parts.clock,
            parts.run_reads,
            limits=server_limits(config, storage),
            settings=connection_settings(config, parts.open_files_max, storage),
            access=AccessRules(tls=self._tls, tls_required=config.tls_required, auth=self._auth),
            clients_wait=parts.switch_threads_soon,
            give_way=parts.give_way,
        )
        parts.watch_events(self.server.before_event)
        self._bound.listen(self.server)
        if said := open_port_warning(config, listen_host(config, parts.host), self._bound.port):
            log.warn("{said}", said=said)

    def synced(self, done: list[Any]) -> None:
        """Answer the adds that a journal has made durable."""
        if self.server is not None:
            self.server.on_synced(done)

    def reload(self) -> None:
        """Read keys, certificates and passwords again; existing connections are unchanged."""
        for one in (self._tls, self._parts.greeting):
            if one is not None:
                one.reload()
        if self._auth is not None:
            from bookied.server.access.authenticators import open_again

            self._auth = open_again(self._auth, self._config)
        if self.server is not None:
            self.server.access = attrs.evolve(self.server.access, auth=self._auth)

    def settings_changed(self, config: BookieConfig, storage: StorageLimits | None) -> None:
        """Apply changed limits; ``storage`` has the limits of an open storage."""
        self._config = config
        if self.server is not None and storage is not None:
            self.server.take(
                server_limits(config, storage),
                connection_settings(config, self._parts.open_files_max, storage),
            )

    async def close(self) -> None:
        """Accept no further connections."""
        if self._bound is not None:
            await self._bound.close()

    async def drain(self, wait_s: float) -> None:
        """Wait at most ``wait_s`` until clients have read their last answers.

        Close their connections.
        """
        if self.server is not None:
            await self.server.drain(wait_s)


def _open_security(
    config: BookieConfig, parts: Dependencies
) -> tuple[TlsContexts | None, Authenticator | None]:
    settings, tls, auth = config.tls, None, None
    try:
        if settings is not None:
            from bkclient.connection.security.tls_contexts import TlsContexts

            tls = TlsContexts(settings, parts.clock, is_client=False)
        if config.auth_factory:
            from bookied.server.access.authenticators import open_authenticator

            auth = open_authenticator(config)
    except SecurityError as error:
        raise SecurityStartError(str(error)) from error
    return tls, auth


def open_port_warning(config: BookieConfig, listen_host: str, port: int) -> str | None:
    """Return a warning, with the settings, about a port that every host can use; else ``None``.

    Java's bookie is as open by default. ``listen_host`` is empty for all addresses of the machine.
    """
    asks_names = config.has_sasl or config.has_roles
    if asks_names or (config.tls_required and config.tls_client_authentication):
        return None
    if listen_host and ip_address(listen_host.partition("%")[0]).is_loopback:
        return None
    where = f"address {listen_host}" if listen_host else "every address (listeningInterface)"
    if config.tls_required:
        tls = ""
    elif config.has_tls:
        tls = ", also without TLS (tlsRequired)"
    else:
        tls = ", without TLS (tlsProviderFactoryClass, tlsRequired)"
    return (
        f"port {port} takes entries from every host that reaches it: on {where}, without a"
        f" login (bookieAuthProviderFactoryClass){tls}"
    )
