"""Connections to bookies over TCP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.interfaces import IAddress, IProtocol, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol


class TcpConnect:
    """How a bookie is reached in earnest; implements ``bkclient.pool.Connect``."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def __call__(
        self, host: str, port: int, make_protocol: Callable[[], Protocol], timeout_s: float
    ) -> Deferred[IProtocol]:
        """Connect; see ``Connect``."""
        return self._endpoint(host, port, timeout_s).connect(_OneProtocol(make_protocol))

    def _endpoint(self, host: str, port: int, timeout_s: float) -> IStreamClientEndpoint:
        # An address needs no resolver, and the resolver is a thread pool.
        if isIPAddress(host):
            return TCP4ClientEndpoint(self._reactor, host, port, timeout_s)
        if isIPv6Address(host):
            return TCP6ClientEndpoint(self._reactor, host, port, timeout_s)
        return HostnameEndpoint(self._reactor, host.encode("idna"), port, timeout_s)


class _OneProtocol(Factory):
    """Builds what it is told to; Twisted's endpoints want a factory."""

    noisy = False

    def __init__(self, make_protocol: Callable[[], Protocol]) -> None:
        self._make_protocol = make_protocol

    def buildProtocol(self, addr: IAddress | None) -> Protocol:  # noqa: ARG002 - Twisted's.
        """Return the protocol of the one connection."""
        return self._make_protocol()
