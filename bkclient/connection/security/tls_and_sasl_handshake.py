"""The start of a new connection, before the first request: START_TLS, then SASL.

Agrees with BookKeeper 4.18.0, PerChannelBookieClient, AuthHandler.ClientSideHandler and
SASLClientAuthProvider, except for the order: TLS starts before authentication, whose first message
Java's client sends in clear.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.config.client import ClientConfig
from bkclient.config.jaas import Login, read_jaas
from bkclient.connection.channel import BookieChannel
from bkclient.errors import (
    BookieUnavailableError,
    ClientError,
    ClientUnauthorizedError,
    LoginCutOffError,
    LoginRefusedError,
    RequestTimeoutError,
    SecurityError,
)
from wire.codes import ReturnCode
from wire.messages import AUTH_DISABLED, SASL, AuthRequest, AuthResponse, StartTlsRequest
from wire.sasl_digest_md5 import AuthenticationError, DigestMd5Client

if TYPE_CHECKING:
    from bkclient.connection.security.tls_contexts import TlsContexts

AUTH_S: Final = 10.0
"""Seconds for each answer of a bookie during authentication."""

log = Logger()


class Greeting:
    """The start of each connection of a client.

    Args:
        clock: for time-outs.
        tls: this end of TLS; ``None`` for connections in clear.
        read_login: returns the name and password; ``None`` for no authentication.
        requires_auth: True to refuse a bookie that requires no authentication.
    """

    def __init__(
        self,
        clock: IReactorTime,
        tls: TlsContexts | None = None,
        read_login: Callable[[], Login] | None = None,
        *,
        requires_auth: bool = False,
    ) -> None:
        """Read the name and password.

        Raises:
            SecurityError: they cannot be read.
        """
        self._clock, self._tls = clock, tls
        self._read_login, self._requires_auth = read_login, requires_auth
        self._login = None if read_login is None else read_login()

    def reload(self) -> None:
        """Read keys, certificates and passwords again, for new connections."""
        if self._tls is not None:
            self._tls.reload()
        if self._read_login is not None:
            try:
                self._login = self._read_login()
            except SecurityError as error:
                log.warn("the old identity stays in use: {error}", error=error)

    async def say(self, channel: BookieChannel, host: str) -> None:
        """Start TLS and authenticate on a new connection to ``host``; close it on failure.

        Raises:
            SecurityError: TLS failed.
            ClientUnauthorizedError: the bookie refuses the login, or has another identity.
            RequestTimeoutError: it took too long.
            BookieUnavailableError: the connection was lost.
        """
        try:
            if self._tls is not None:
                await self._start_tls(channel, self._tls, host)
            if self._login is not None:
                await self._authenticate(channel, self._login)
        except Exception as error:
            given_up = BookieUnavailableError(
                f"the handshake with bookie {channel.bookie_id} was cancelled"
            )
            channel.close(error if isinstance(error, ClientError) else given_up)
            raise

    async def _start_tls(self, channel: BookieChannel, tls: TlsContexts, host: str) -> None:
        bookie, timeout_s = channel.bookie_id, float(tls.settings.timeout_s)
        answer = await channel.request(StartTlsRequest(), timeout_s=timeout_s)
        if answer.rc is not ReturnCode.EOK:
            raise SecurityError(
                f"bookie {bookie} does not offer TLS (it answered {answer.rc.name});"
                " set tlsProviderFactoryClass there"
            )
        handshake: Deferred[None] = channel.start_tls(tls.end(host))
        try:
            await handshake.addTimeout(timeout_s, self._clock)
        except TwistedTimeoutError as error:
            text = f"bookie {bookie} did not end the TLS handshake in {timeout_s:g} s"
            raise RequestTimeoutError(text) from error

    async def _authenticate(self, channel: BookieChannel, login: Login) -> None:
        """Exchange tokens until both ends are authenticated, or the bookie requires no login."""
        who = f"bookie {channel.bookie_id} rejects user {login.user!r}"
        exchange, token = DigestMd5Client(login.user, login.password, secrets.token_urlsafe), b""
        while not exchange.is_done:
            answer = await self._exchange(channel, token, who)
            if answer.plugin == AUTH_DISABLED and self._requires_auth:
                raise ClientUnauthorizedError(
                    f"bookie {channel.bookie_id} does not authenticate clients, but"
                    " clientAuthRequired is set here"
                )
            if answer.plugin == AUTH_DISABLED:
                log.debug("bookie {bookie} requires no authentication", bookie=channel.bookie_id)
                return
            if answer.plugin != SASL:
                raise ClientUnauthorizedError(f"{who}: it speaks of plugin {answer.plugin!r}")
            try:
                token = exchange.answer(answer.payload)
            except AuthenticationError as error:
                raise ClientUnauthorizedError(f"{who}: {error}") from error

    async def _exchange(self, channel: BookieChannel, token: bytes, who: str) -> AuthResponse:
        try:
            answer = await channel.request(AuthRequest(SASL, token), timeout_s=AUTH_S)
        except RequestTimeoutError as error:
            # Java's bookie answers nothing at all to a wrong password.
            raise RequestTimeoutError(
                f"{who}: it does not answer. Java's bookies do this after a wrong password, and "
                "if they require Kerberos (GSSAPI)"
            ) from error
        except BookieUnavailableError as error:
            # V2 bookies refuse a client in this way; but the bookie may have died as well.
            raise LoginCutOffError(
                f"{who}: it closed the connection. In V2 bookies do that after a wrong password,"
                " for unknown or refused users, and without TLS if they require TLS"
            ) from error
        if not isinstance(answer, AuthResponse) or answer.rc is not ReturnCode.EOK:
            raise LoginRefusedError(
                f"{who}: wrong password, unknown or refused user, or the bookie requires TLS "
                f"(answer: {answer.rc.name})"
            )
        return answer


def greeting_of(config: ClientConfig, clock: IReactorTime) -> Greeting | None:
    """Return the start of a client's connections; ``None`` without TLS and authentication.

    Raises:
        SecurityError: keys, certificates or passwords cannot be used.
    """
    settings, tls = config.tls, None
    if settings is None and not config.has_sasl:
        return None
    if settings is not None:
        from bkclient.connection.security.tls_contexts import TlsContexts

        tls = TlsContexts(settings, clock, is_client=True)

    def read_login() -> Login:
        return read_jaas(config.jaas_path).login(config.jaas_section)

    login = read_login if config.has_sasl else None
    return Greeting(clock, tls, login, requires_auth=config.auth_required)
