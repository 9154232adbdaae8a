"""Connections to bookies over TCP, and the rule about silent connections."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost, DNSLookupError
from twisted.internet.error import TimeoutError as ConnectTimeoutError
from twisted.internet.interfaces import IAddress, IProtocol, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

_REASONS: Final[Mapping[type[BaseException], str]] = {
    ConnectionDone: "the bookie closed it",
    ConnectionLost: "it broke off",
    ConnectTimeoutError: "no answer in time",
}


class TcpConnect:
    """Connects over TCP; implements ``bkclient.connection.pool.Connect``."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def __call__(
        self, host: str, port: int, make_protocol: Callable[[], Protocol], timeout_s: float
    ) -> Deferred[IProtocol]:
        """Connect; see ``Connect``."""
        connecting = self._endpoint(host, port, timeout_s).connect(_OneProtocol(make_protocol))
        # Twisted's own time limit begins when the name is resolved.
        return connecting.addTimeout(timeout_s, self._reactor, _too_late)

    def _endpoint(self, host: str, port: int, timeout_s: float) -> IStreamClientEndpoint:
        from twisted.internet.endpoints import (
            HostnameEndpoint,
            TCP4ClientEndpoint,
            TCP6ClientEndpoint,
        )

        # An address needs no resolver, which is a thread pool.
        if isIPAddress(host):
            return TCP4ClientEndpoint(self._reactor, host, port, timeout_s)
        if isIPv6Address(host):
            return TCP6ClientEndpoint(self._reactor, host, port, timeout_s)
        return HostnameEndpoint(self._reactor, host.encode("idna"), port, timeout_s)


def _too_late(failure: IProtocol | Failure, timeout_s: float) -> IProtocol:
    if isinstance(failure, Failure) and failure.check(DNSLookupError):
        raise DNSLookupError(f"no answer within {timeout_s:g} s")
    raise ConnectTimeoutError


class _OneProtocol(Factory):
    """A factory of one protocol, for Twisted's endpoints."""

    noisy = False

    def __init__(self, make_protocol: Callable[[], Protocol]) -> None:
        self._make_protocol = make_protocol

    def buildProtocol(self, addr: IAddress | None) -> Protocol:  # noqa: ARG002 - Twisted's.
        """Return the protocol of the one connection."""
        return self._make_protocol()


@attrs.define(eq=False, slots=True)
class ConnectionSilence:
    """The rule that tells a silent peer from a slow one.

    A time-out during which no byte arrived makes the connection doubtful. If no byte arrives for
    about as long again, the connection is over. Any byte ends the doubt. One time-out alone proves
    nothing: after a pause of this process all timers fire before the bytes in the socket are read.
    """

    heard_s: float = float("-inf")
    """The time of the last received bytes; the reader of the connection sets it."""
    _since_s: float = 0.0
    _doubted_s: float = float("-inf")
    _over_s: float = float("inf")

    @property
    def is_doubted(self) -> bool:
        """True if a request has timed out, and no byte has arrived during that time or since."""
        return self._doubted_s > self.heard_s

    def is_over(self, now_s: float) -> bool:
        """Return whether the silence has lasted too long."""
        return self.is_doubted and now_s >= self._over_s

    def lasts_s(self, now_s: float) -> float:
        """Return the seconds of silence after a request."""
        return now_s - self._since_s

    def timed_out(self, now_s: float, waited_s: float, grace_s: float) -> None:
        """Note that a request sent ``waited_s`` ago has no answer.

        The silence may last ``grace_s`` longer.
        """
        asked_s = now_s - waited_s
        if self.heard_s < asked_s and not self.is_doubted:
            self._since_s, self._doubted_s, self._over_s = asked_s, now_s, now_s + grace_s


def reason_of(error: BaseException | None) -> str:
    """Return why a connection failed or ended, in the system's words if there are any."""
    number = getattr(error, "osError", None) or getattr(error, "errno", None)
    if isinstance(number, int):
        text = os.strerror(number)
        return text[:1].lower() + text[1:]
    for kind, words in _REASONS.items():
        if isinstance(error, kind):
            return words
    return str(error).removesuffix(".")
