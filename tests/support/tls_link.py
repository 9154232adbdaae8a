"""Two protocols joined in memory, over transports that can begin TLS as a reactor's do."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure


class LinkTransport(StringTransport):
    """One side: gathers what is written; ``startTLS`` puts TLS between it and its protocol."""

    def __init__(self, protocol: Any, clock: Clock, *, is_client: bool) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", "192.0.2.1", 4711))
        self._clock = clock
        self.protocol, self._is_client = protocol, is_client
        self.bufferSize = 65536
        """The most that one read takes, as Twisted's connections have it."""
        self.is_aborted = False
        self._tls: Any = None
        protocol.makeConnection(self)

    def startTLS(self, creator: Any, normal: bool = True) -> None:  # noqa: FBT001, FBT002, N802
        producer = self.producer
        self.unregisterProducer()
        factory = TLSMemoryBIOFactory(creator, self._is_client, None, self._clock)
        self._tls = factory.protocol(factory, self.protocol, False)
        self.protocol = self._tls
        self._tls.makeConnection(_Below(self))
        if producer is not None:
            self._tls.registerProducer(producer, True)

    def registerProducer(self, producer: Any, streaming: bool) -> None:  # noqa: FBT001, N802
        if self._tls is None:
            self.producer, self.streaming = producer, streaming
        else:
            self._tls.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:  # noqa: N802
        if self._tls is None:
            self.producer = None
        else:
            self._tls.unregisterProducer()

    def write(self, data: bytes) -> None:
        if self._tls is None:
            super().write(data)
        else:
            self._tls.write(data)

    def writeSequence(self, data: Any) -> None:  # noqa: N802
        self.write(b"".join(data))

    def loseConnection(self) -> None:  # noqa: N802
        if self._tls is None:
            super().loseConnection()
        else:
            self._tls.loseConnection()

    def abortConnection(self) -> None:  # noqa: N802
        self.is_aborted = self.disconnecting = True


class _Below:
    """The transport below TLS."""

    def __init__(self, transport: LinkTransport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def registerProducer(self, producer: Any, _streaming: bool) -> None:  # noqa: FBT001, N802
        self._transport.producer = producer

    def unregisterProducer(self) -> None:  # noqa: N802
        self._transport.producer = None

    def write(self, data: bytes) -> None:
        StringTransport.write(self._transport, data)

    def loseConnection(self) -> None:  # noqa: N802
        StringTransport.loseConnection(self._transport)


class Link:
    """A connection between two protocols. Bytes move when the test says so.

    ``clock`` is the reactor of both ends, where one of them waits for its turn.
    """

    def __init__(self, client: Any, server: Any, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self.client = LinkTransport(client, self._clock, is_client=True)
        self.server = LinkTransport(server, self._clock, is_client=False)
        self.is_closed = False

    def settle(self) -> None:
        """Carry bytes both ways until there are none, then the end, if one side closed."""
        self._clock.advance(0)  # TLS gathers what is written until the reactor's next turn.
        while self._carry(self.client, self.server) + self._carry(self.server, self.client):
            self._clock.advance(0)
        is_seen = self.client.disconnecting and self.server.producerState != "paused"
        if (is_seen or self.server.disconnecting) and not self.is_closed:
            self.is_closed = True
            for side in (self.client, self.server):
                side.protocol.connectionLost(Failure(ConnectionDone()))

    @staticmethod
    def _carry(source: LinkTransport, target: LinkTransport) -> int:
        if target.producerState == "paused":
            return 0  # It does not read; what was written stays on the way.
        data = source.value()
        source.clear()
        at = 0
        while at < len(data):
            part = data[at : at + target.bufferSize]
            target.protocol.dataReceived(part)
            at += len(part)
        return len(data)
