"""What is said on a new connection before the first request: START_TLS.

Agrees with BookKeeper 4.18.0, PerChannelBookieClient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.internet.interfaces import IReactorTime

from bkclient.channel import BookieChannel
from bkclient.config import ClientConfig
from bkclient.errors import RequestTimeoutError, SecurityError
from wire.codes import ReturnCode
from wire.messages import StartTlsRequest

if TYPE_CHECKING:
    from bkclient.tls.contexts import TlsContexts


class Greeting:
    """How each connection of a client begins.

    Args:
        clock: for time-outs.
        tls: our end of TLS; ``None`` to speak in clear.
    """

    def __init__(self, clock: IReactorTime, tls: TlsContexts | None) -> None:
        self._clock, self._tls = clock, tls

    def reload(self) -> None:
        """Read keys and certificates again, for the connections to come."""
        if self._tls is not None:
            self._tls.reload()

    async def say(self, channel: BookieChannel, host: str) -> None:
        """Say it on a connection that was just made to ``host``; close it where that fails.

        Raises:
            SecurityError: TLS could not be set up.
            RequestTimeoutError: it took too long.
            BookieUnavailableError: the connection went.
        """
        try:
            if self._tls is not None:
                await self._start_tls(channel, self._tls, host)
        except Exception as error:
            closing = SecurityError(f"no TLS with bookie {channel.bookie_id}: given up")
            channel.close(error if isinstance(error, SecurityError) else closing)
            raise

    async def _start_tls(self, channel: BookieChannel, tls: TlsContexts, host: str) -> None:
        bookie, timeout_s = channel.bookie_id, float(tls.settings.timeout_s)
        answer = await channel.request(StartTlsRequest(), timeout_s=timeout_s)
        if answer.rc is not ReturnCode.EOK:
            raise SecurityError(
                f"no TLS with bookie {bookie}: it has none to offer (it says {answer.rc.name});"
                " tlsProviderFactoryClass is not set there"
            )
        handshake: Deferred[None] = channel.start_tls(tls.end(host))
        try:
            await handshake.addTimeout(timeout_s, self._clock)
        except TwistedTimeoutError as error:
            text = f"bookie {bookie} did not end the TLS handshake in {timeout_s:g} s"
            raise RequestTimeoutError(text) from error


def greeting_of(config: ClientConfig, clock: IReactorTime) -> Greeting | None:
    """Return how a client's connections begin; ``None``: with the first request.

    Raises:
        SecurityError: keys or certificates cannot be used.
    """
    settings = config.tls
    if settings is None:
        return None
    from bkclient.tls.contexts import TlsContexts

    return Greeting(clock, TlsContexts(settings, clock, is_client=True))
