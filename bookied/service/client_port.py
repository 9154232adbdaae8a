"""The port on which a bookie serves its clients, with what keeps strangers out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from twisted.logger import Logger

from bkclient.errors import SecurityError
from bookied.config.bookie import BookieConfig
from bookied.directories.identity import listen_host
from bookied.errors import SecurityStartError
from bookied.runtime.dependencies import Parts
from bookied.runtime.listener import BoundPort
from bookied.server.access.auth_gate import Authenticator
from bookied.server.access.open_port import open_port
from bookied.server.context import AccessRules
from bookied.server.rules.bookie import Bookie
from bookied.server.server import BookieServer
from bookied.service.server_settings import connection_settings, server_limits
from bookied.storage.ledger_storage.limits import StorageLimits

if TYPE_CHECKING:
    from bkclient.connection.security.tls import TlsContexts

log = Logger()


class ClientPort:
    """Bound early, so that no other process takes it; served once there is a bookie to answer."""

    def __init__(self, config: BookieConfig, parts: Parts) -> None:
        """Load keys and passwords; what is off is not even loaded.

        Raises:
            SecurityStartError: one of them cannot be used.
        """
        self._config, self._parts = config, parts
        self._tls, self._auth = _open_security(config, parts)
        self._bound: BoundPort | None = None
        self.server: BookieServer | None = None

    @property
    def has_tls(self) -> bool:
        return self._tls is not None

    def bind(self) -> int:
        """Take the port that the settings name, or a free one; return it.

        Raises:
            PortInUseError: another process has it.
            AddressError: the address is not ours, or we may not have the port.
        """
        parts = self._parts
        host = listen_host(self._config, parts.host)
        self._bound = parts.listener.bind(host, self._config.port)
        return self._bound.port

    def serve(self, bookie: Bookie, storage: StorageLimits) -> None:
        """Answer clients from now on."""
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
        self._bound.listen(self.server)
        if said := open_port(config, listen_host(config, parts.host), self._bound.port):
            log.warn("{said}", said=said)

    def synced(self, done: list[Any]) -> None:
        """Answer the adds that a journal has made durable."""
        if self.server is not None:
            self.server.on_synced(done)

    def reload(self) -> None:
        """Read keys, certificates and passwords again; connections that are there go on."""
        for one in (self._tls, self._parts.greeting):
            if one is not None:
                one.reload()
        if self._auth is not None:
            from bookied.server.access.authenticators import open_again

            self._auth = open_again(self._auth, self._config)
        if self.server is not None:
            self.server.access = attrs.evolve(self.server.access, auth=self._auth)

    def settings_changed(self, config: BookieConfig, storage: StorageLimits | None) -> None:
        """Go by other limits; ``storage`` has its own once it is open."""
        self._config = config
        if self.server is not None and storage is not None:
            self.server.take(
                server_limits(config, storage),
                connection_settings(config, self._parts.open_files_max, storage),
            )

    async def close(self) -> None:
        """Take no new connections."""
        if self._bound is not None:
            await self._bound.close()

    async def drain(self, wait_s: float) -> None:
        """Let clients take their last answers for this long, then cut them off."""
        if self.server is not None:
            await self.server.drain(wait_s)


def _open_security(
    config: BookieConfig, parts: Parts
) -> tuple[TlsContexts | None, Authenticator | None]:
    settings, tls, auth = config.tls, None, None
    try:
        if settings is not None:
            from bkclient.connection.security.tls import TlsContexts

            tls = TlsContexts(settings, parts.clock, is_client=False)
        if config.auth_factory:
            from bookied.server.access.authenticators import open_authenticator

            auth = open_authenticator(config)
    except SecurityError as error:
        raise SecurityStartError(str(error)) from error
    return tls, auth
