"""A TCP proxy before ZooKeeper that can cut a connection between a write and its answer."""

from __future__ import annotations

import struct
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

HEADER = struct.Struct(">iii")  # frame length, xid, operation
REPLY = struct.Struct(">ii")  # frame length, xid

CREATE, DELETE, SET_DATA = 1, 2, 5
WRITES = frozenset({CREATE, DELETE, SET_DATA, 15, 14})  # 15 is create2, 14 is multi


class ZooKeeperProxy:
    """Forwards to a server. ``lose_answer()`` cuts after the next write was answered, unheard."""

    def __init__(self, reactor: Any, server_port: int) -> None:
        self._reactor, self.server_port = reactor, server_port
        self.port = 0
        self.answers_to_lose = 0
        self.lost = 0
        self.accepts = True
        self.frozen = False
        self._listening: Any = None
        self.sides: set[ClientSide] = set()

    def start(self) -> None:
        factory: Any = Factory.forProtocol(ClientSide)
        factory.proxy = self
        factory.noisy = False
        self._listening = self._reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.port = self._listening.getHost().port

    async def stop(self) -> None:
        self.cut()
        await self._listening.stopListening()

    def lose_answer(self, count: int = 1) -> None:
        """Cut the connection when the next writes have been applied, each before its answer."""
        self.answers_to_lose = count

    def cut(self) -> None:
        """Cut all connections."""
        for side in tuple(self.sides):
            side.transport.abortConnection()

    def freeze(self) -> None:
        """Take what is sent, and pass nothing on."""
        self.frozen = True

    def thaw(self) -> None:
        """Work again; connections from before are cut."""
        self.frozen = False
        self.cut()

    def connect(self, side: ClientSide) -> Deferred[ServerSide]:
        endpoint: Any = TCP4ClientEndpoint(self._reactor, "127.0.0.1", self.server_port)
        factory: Any = Factory.forProtocol(ServerSide)
        factory.side = side
        factory.noisy = False
        connecting: Deferred[ServerSide] = endpoint.connect(factory)
        return connecting


class ClientSide(Protocol):
    """The connection from a client."""

    factory: Any
    transport: Any

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        self.proxy: ZooKeeperProxy = self.factory.proxy
        self.server: ServerSide | None = None
        self.early = b""
        self.buffer = b""
        self.greeted = False
        self.doomed_xid: int | None = None
        if not self.proxy.accepts:
            self.transport.abortConnection()
            return
        self.proxy.sides.add(self)
        self.proxy.connect(self).addCallbacks(
            self.connected_on, lambda _: self.transport.abortConnection()
        )

    def connected_on(self, server: ServerSide) -> None:
        self.server = server
        server.transport.write(self.early)

    def dataReceived(self, data: bytes) -> None:
        if self.proxy.frozen:
            return
        self.watch(data)
        if self.server is None:
            self.early += data
        else:
            self.server.transport.write(data)

    def watch(self, data: bytes) -> None:
        """Look for a write whose answer is to be lost."""
        self.buffer += data
        while len(self.buffer) >= HEADER.size:
            length, xid, operation = HEADER.unpack_from(self.buffer)
            if len(self.buffer) < length + 4:
                return
            self.buffer = self.buffer[length + 4 :]
            if not self.greeted:
                self.greeted = True
            elif operation in WRITES and self.proxy.answers_to_lose and self.doomed_xid is None:
                self.proxy.answers_to_lose -= 1
                self.doomed_xid = xid

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.proxy.sides.discard(self)
        if self.server is not None:
            self.server.transport.abortConnection()


class ServerSide(Protocol):
    """The connection to the server."""

    factory: Any
    transport: Any

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        self.side: ClientSide = self.factory.side
        self.buffer = b""
        self.greeted = False

    def dataReceived(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= REPLY.size:
            length, xid = REPLY.unpack_from(self.buffer)
            if len(self.buffer) < length + 4:
                return
            frame, self.buffer = self.buffer[: length + 4], self.buffer[length + 4 :]
            if self.greeted and xid == self.side.doomed_xid:
                self.side.proxy.lost += 1
                self.side.transport.abortConnection()
                self.transport.abortConnection()
                return
            self.greeted = True
            self.side.transport.write(frame)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.side.transport.abortConnection()
