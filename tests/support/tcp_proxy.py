"""A TCP proxy that spoils connections on purpose: for tests with real sockets.

    proxy = TcpProxy(the_reactor(), server_port)
    call(proxy.start)
    ...                                # connect to proxy.port
    call(proxy.to_client.hold)         # answers wait, requests pass
    call(proxy.heal)                   # all goes on, what was held first

Its methods are for the reactor's thread.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Any, ClassVar

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure


class Traffic(enum.Enum):
    """What becomes of the bytes in one direction."""

    PASSES = enum.auto()
    WAITS = enum.auto()
    """They stay where they are, the end of the connection too: the sender's buffers fill up."""
    VANISHES = enum.auto()
    """They are taken and lost, the end of the connection too; such a one cannot be healed."""


class Way:
    """One direction of all connections."""

    def __init__(self) -> None:
        self.traffic = Traffic.PASSES
        self.delay_s = 0.0
        """How long bytes are under way, if they pass; set it while nothing is."""
        self.flows: set[Flow] = set()

    def hold(self) -> None:
        """Have bytes wait from now on."""
        self._turn(Traffic.WAITS)

    def swallow(self) -> None:
        """Have bytes vanish from now on."""
        self._turn(Traffic.VANISHES)

    def open(self) -> None:
        """Have bytes pass again, those first that waited."""
        self._turn(Traffic.PASSES)

    def _turn(self, traffic: Traffic) -> None:
        self.traffic = traffic
        for flow in tuple(self.flows):
            flow.turned()


class Flow:
    """The bytes of one direction of one connection, on their way from one end to the other."""

    def __init__(self, reactor: Any, way: Way) -> None:
        self._reactor, self._way = reactor, way
        self._due: deque[tuple[float, bytes | None]] = deque()
        self._source: End | None = None
        self._target: End | None = None
        self.lost_some = False
        self.is_forgotten = False
        """Whether all that comes vanishes from now on, whatever the traffic on this way is."""
        way.flows.add(self)

    def connect(self, *, source: End | None = None, target: End | None = None) -> None:
        """Learn of an end; what came before waits for it."""
        self._source, self._target = source or self._source, target or self._target
        self.turned()

    def turned(self) -> None:
        """Act on the traffic as it is now."""
        waits = self._way.traffic is Traffic.WAITS
        if self._source is not None and self._source.is_connected:
            transport = self._source.transport
            (transport.pauseProducing if waits else transport.resumeProducing)()
        self._pump()

    def take(self, data: bytes | None) -> None:
        """Take bytes in; ``None`` is the end of the connection."""
        if self._way.traffic is Traffic.VANISHES or self.is_forgotten:
            self.lost_some = True
            return
        self._due.append((self._reactor.seconds() + self._way.delay_s, data))
        self._pump()

    def drop(self) -> None:
        """Nothing of this is wanted any more."""
        self._due.clear()
        self._way.flows.discard(self)

    def _pump(self) -> None:
        while self._due and self._target is not None and self._way.traffic is not Traffic.WAITS:
            wait_s = self._due[0][0] - self._reactor.seconds()
            if wait_s > 0:
                self._reactor.callLater(wait_s, self._pump)
                return
            _, data = self._due.popleft()
            self._target.deliver(data)


class Link:
    """One connection through the proxy: a client's end, the server's end, two flows between."""

    def __init__(self, proxy: TcpProxy, client: End) -> None:
        self.proxy, self.client = proxy, client
        self.server: End | None = None
        self.up = Flow(proxy.reactor, proxy.to_server)
        self.down = Flow(proxy.reactor, proxy.to_client)

    def connected(self, server: End) -> None:
        """Let the flows begin: the server is reached."""
        if not self.client.is_connected:
            server.transport.abortConnection()
            return
        self.server = server
        server.take, server.ended = self.from_server, self.ended
        self.up.connect(target=server)
        self.down.connect(source=server)

    def from_client(self, data: bytes) -> None:
        """Take what the client sent."""
        self.up.take(data)

    def from_server(self, data: bytes) -> None:
        """Take what the server sent."""
        self.down.take(data)

    def ended(self, end: End) -> None:
        """Tell the other end, unless this way is spoiled."""
        (self.up if end is self.client else self.down).take(None)
        if self.server is None or not (self.client.is_connected or self.server.is_connected):
            self.forget()

    @property
    def lost_some(self) -> bool:
        """Whether bytes have vanished, so that nothing sensible can follow."""
        return self.up.lost_some or self.down.lost_some

    def cut(self) -> None:
        """End the connection on both sides with a reset."""
        self.forget()
        for end in (self.client, self.server):
            if end is not None:
                end.transport.abortConnection()

    def forget(self) -> None:
        """Drop what is under way."""
        self.up.drop()
        self.down.drop()
        self.proxy.links.discard(self)


class TcpProxy:
    """Forwards connections on ``port`` to ``server_port``, both on 127.0.0.1."""

    link_type: ClassVar[type[Link]] = Link

    def __init__(self, reactor: Any, server_port: int = 0) -> None:
        self.reactor, self.server_port = reactor, server_port
        self.port = 0
        self.accepts = True
        """Whether new connections are taken; else they are reset at once."""
        self.to_server, self.to_client = Way(), Way()
        self.links: set[Link] = set()
        self._listening: Any = None

    def start(self) -> None:
        """Listen on a free port."""
        self._listening = self.reactor.listenTCP(0, _factory(self._client), interface="127.0.0.1")
        self.port = self._listening.getHost().port

    async def stop(self) -> None:
        """Listen no more, and cut all connections."""
        self.cut()
        await self._listening.stopListening()

    def cut(self) -> None:
        """Cut all connections with a reset, on both sides."""
        for link in tuple(self.links):
            link.cut()

    def hold(self) -> None:
        """Stall: nothing passes either way, and nothing is lost."""
        self.to_server.hold()
        self.to_client.hold()

    def swallow(self) -> None:
        """Be half-open: whatever is sent vanishes, and nobody is told."""
        self.to_server.swallow()
        self.to_client.swallow()

    def forget(self) -> None:
        """Be half-open for the connections there are; those to come pass."""
        for link in self.links:
            link.up.is_forgotten = link.down.is_forgotten = True

    def delay(self, delay_s: float) -> None:
        """Let bytes be under way for so long, in each direction."""
        self.to_server.delay_s = self.to_client.delay_s = delay_s

    def heal(self) -> None:
        """Work again; connections that lost bytes are cut."""
        self.accepts = True
        self.delay(0.0)
        for link in tuple(self.links):
            if link.lost_some:
                link.cut()
        self.to_server.open()
        self.to_client.open()

    def _client(self) -> End:
        return End(self._accepted)

    def _accepted(self, client: End) -> None:
        if not self.accepts:
            client.transport.abortConnection()
            return
        link = self.link_type(self, client)
        self.links.add(link)
        client.take, client.ended = link.from_client, link.ended
        link.down.connect(target=client)
        link.up.connect(source=client)
        endpoint: Any = TCP4ClientEndpoint(self.reactor, "127.0.0.1", self.server_port)
        reached: Deferred[End] = endpoint.connect(_factory(lambda: End(link.connected)))
        reached.addErrback(lambda _: link.cut())


class End(Protocol):
    """One socket of a link."""

    transport: Any

    def __init__(self, made: Any) -> None:
        self._made = made
        self.take: Any = None
        self.ended: Any = None
        self.is_connected = False

    def connectionMade(self) -> None:
        self.is_connected = True
        self.transport.setTcpNoDelay(True)
        self._made(self)

    def dataReceived(self, data: bytes) -> None:
        self.take(data)

    def deliver(self, data: bytes | None) -> None:
        """Send what came through; after ``None`` nothing comes any more."""
        if data is None:
            self.transport.loseConnection()
        else:
            self.transport.write(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.is_connected = False
        if self.ended is not None:
            self.ended(self)


def _factory(make: Any) -> Any:
    factory: Any = Factory()
    factory.noisy = False
    factory.buildProtocol = lambda _address: make()
    return factory
