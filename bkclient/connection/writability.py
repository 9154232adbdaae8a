"""Whether a connection takes more bytes, and who waits until it does."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer


@implementer(IPushProducer)
class Writability:
    """Whether one connection takes more bytes: its transport reports that to its producer.

    A connection is writable before it has a transport, and after the transport has gone.
    """

    def __init__(self) -> None:
        """Begin writable."""
        self.is_writable = True
        """Whether the transport takes more without piling it up."""
        self._transport: Any = None
        self._waiting: list[Deferred[None]] = []

    def connect(self, transport: Any) -> None:
        """Learn from now on when the transport is full."""
        self._transport = transport
        transport.registerProducer(self, True)

    def end(self) -> None:
        """Stay writable: the connection is of no use any more."""
        self._transport = None
        self.resumeProducing()

    def when_writable(self) -> Deferred[None]:
        """Return a Deferred that fires when the transport takes more, or has gone."""
        waiter: Deferred[None] = Deferred(self._forget)
        if self.is_writable:
            waiter.callback(None)
        else:
            self._waiting.append(waiter)
        return waiter

    def _forget(self, waiter: Deferred[None]) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    # Twisted calls these

    def pauseProducing(self) -> None:
        """The transport's buffer is full."""
        self.is_writable = self._transport is None

    def resumeProducing(self) -> None:
        """There is space again.

        Where the peer ended TLS while there was none, Twisted has only waited for that: the
        connection ends once nothing is produced any more.
        """
        transport = self._transport
        if transport is not None and getattr(transport, "disconnecting", False):
            transport.unregisterProducer()
        self.is_writable = True
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)

    def stopProducing(self) -> None:
        """The transport is closing; ``connectionLost`` comes."""
        self.resumeProducing()
