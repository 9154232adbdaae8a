"""Resolution of host names in separate threads, many in parallel.

For a name whose server does not answer, the system's resolver takes 10 s and more, and cannot be
interrupted. In the reactor's thread pool ten such names would delay the requests to ZooKeeper.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.interfaces import (
    IAddress,
    IHostnameResolver,
    IHostResolution,
    IResolutionReceiver,
)
from zope.interface import implementer

LOOKUPS_MAX: Final = 512
"""Names that are resolved in parallel. Most threads only wait: each costs about 50 KB."""

_ADDRESSES: Final = {socket.AF_INET: IPv4Address, socket.AF_INET6: IPv6Address}


@implementer(IHostnameResolver)
class NameLookup:
    """Twisted's resolver of host names, for a reactor. A process ends without waiting for it."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._turns = DeferredSemaphore(LOOKUPS_MAX)

    def resolveHostName(  # noqa: N802 - Twisted's.
        self,
        resolutionReceiver: IResolutionReceiver,  # noqa: N803
        hostName: str,  # noqa: N803
        portNumber: int = 0,  # noqa: N803
        addressTypes: Sequence[type[IAddress]] | None = None,  # noqa: N803
        transportSemantics: str = "TCP",  # noqa: N803
    ) -> IHostResolution:
        """Pass the addresses of a name to the receiver; none if it cannot be resolved."""

        def done(addresses: list[IPv4Address | IPv6Address]) -> None:
            for address in addresses:
                if addressTypes is None or isinstance(address, tuple(addressTypes)):
                    resolutionReceiver.addressResolved(address)
            resolutionReceiver.resolutionComplete()

        resolution = _Resolution(hostName)
        resolutionReceiver.resolutionBegan(resolution)
        self._turns.run(
            self._in_a_thread, lambda: _addresses(hostName, portNumber, transportSemantics)
        ).addCallback(done)
        return resolution

    def _in_a_thread(
        self, work: Callable[[], list[IPv4Address | IPv6Address]]
    ) -> Deferred[list[IPv4Address | IPv6Address]]:
        found: Deferred[list[IPv4Address | IPv6Address]] = Deferred()

        def run() -> None:
            self._reactor.callFromThread(found.callback, work())

        try:
            threading.Thread(target=run, name="name-lookup", daemon=True).start()
        except RuntimeError:  # The system refuses more threads.
            found.callback([])
        return found


@implementer(IHostResolution)
class _Resolution:
    def __init__(self, name: str) -> None:
        self.name = name

    def cancel(self) -> None:
        """Do nothing: the system's resolver cannot be interrupted."""


def _addresses(name: str, port: int, transport: str) -> list[IPv4Address | IPv6Address]:
    kind = socket.SOCK_STREAM if transport == "TCP" else socket.SOCK_DGRAM
    try:
        found = socket.getaddrinfo(name, port, type=kind)
    except (OSError, ValueError, OverflowError):  # OverflowError is for a port beyond C's numbers.
        return []
    return [
        _ADDRESSES[family](transport, *where)
        for family, _, _, _, where in found
        if family in _ADDRESSES
    ]
