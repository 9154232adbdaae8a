"""The bookie's port: bound early, so that a port in use stops the start; served only when ready.

Between ``bind`` and ``listen`` clients are refused by the system, rather than kept waiting for a
replay to end.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, cast

from twisted.internet import main, tcp
from twisted.internet.defer import maybeDeferred
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IReactorSocket

from bkclient.config.client import KeepAlive
from bkclient.connection.security.tls_reads import TlsReads
from bookied.errors import AddressError, PortInUseError

BACKLOG: Final = 512

ACCEPTS_MAX: Final = 1
"""Connections that one turn of the reactor accepts. Each takes 0.3 ms, from accept to close."""


GATHER_BYTES: Final = 64 * 1024
"""Answers of so many bytes are handed to the system in pieces; copying fewer costs less."""

GATHER_MAX: Final = 64
"""Pieces handed to the system at once; more are joined. It takes 1,024 at most."""

SEND_BYTES: Final = 1024 * 1024
"""The most that a turn of the reactor sends to one client: 0.3 ms."""

_NOT_NOW: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS})


class BoundPort(Protocol):
    """A port that is ours and not yet served, or served."""

    @property
    def port(self) -> int: ...

    def listen(self, factory: IProtocolFactory) -> None:
        """Accept connections from now on.

        Raises:
            PortInUseError: another process has begun to listen there.
        """
        ...

    async def close(self) -> None:
        """Accept no more connections; the accepted ones stay."""
        ...


class Listener(Protocol):
    """Where ports come from."""

    def bind(self, host: str, port: int) -> BoundPort:
        """Take a port; ``host`` is an address of this machine, or empty for all of them.

        Raises:
            PortInUseError: another process has it.
            AddressError: the address is not ours, or we may not have the port.
        """
        ...


class TcpListener:
    """TCP ports on a Twisted reactor."""

    def __init__(self, reactor: IReactorSocket, keep_alive: KeepAlive | None = None) -> None:
        self._reactor, self._keep_alive = reactor, keep_alive or KeepAlive()

    def bind(self, host: str, port: int) -> BoundPort:
        sock = _bind(host, port)
        self._keep_alive.apply(sock)
        return _TcpPort(self._reactor, sock)


class _TcpPort:
    def __init__(self, reactor: IReactorSocket, sock: socket.socket) -> None:
        self._reactor = reactor
        self._socket: socket.socket | None = sock
        self._listening: IListeningPort | None = None
        self.port: int = sock.getsockname()[1]

    def listen(self, factory: IProtocolFactory) -> None:
        assert self._socket is not None, "a closed port"
        try:
            self._socket.listen(BACKLOG)
        except OSError as error:
            raise PortInUseError(f"port {self.port} is in use by another process") from error
        self._socket.setblocking(False)
        self._listening = self._reactor.adoptStreamPort(
            self._socket.fileno(), self._socket.family, cast("Any", factory)
        )
        _accept_few(self._listening)
        self._listening.transport = PromptConnection  # type: ignore[attr-defined]
        self._close_socket()  # The reactor has a duplicate.

    async def close(self) -> None:
        self._close_socket()
        if self._listening is not None:
            listening, self._listening = self._listening, None
            await maybeDeferred(listening.stopListening)

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class PromptConnection(tcp.Server):
    """A client's connection that sends at once what the system takes.

    Twisted sends in the next turn of the reactor, and tells epoll before and after it that there is
    something to send. That costs more than the answer to a few requests.
    """

    _tls_reads: TlsReads | None = None

    def startTLS(self, ctx: object, normal: bool = True) -> None:  # noqa: FBT001, FBT002, N802
        """Put TLS between the connection and its protocol; see ``ITLSTransport``."""
        self._tls_reads = self.protocol = TlsReads(self.protocol)
        super().startTLS(ctx, normal)  # type: ignore[no-untyped-call]

    def doRead(self) -> Any:
        """Read what has come, in TLS as much as one turn of the reactor can decrypt."""
        reads = self._tls_reads
        if reads is None:
            return super().doRead()
        try:
            data = self.socket.recv(min(self.bufferSize, reads.read_bytes_max))
        except OSError as error:
            return None if error.errno in _NOT_NOW else main.CONNECTION_LOST
        if not data:
            return main.CONNECTION_DONE
        self.protocol.dataReceived(data)
        reads.end_read(len(data))
        return None

    def writeSequence(self, iovec: Iterable[bytes]) -> None:  # noqa: N802 -- Twisted's name
        """Send the frames, after those that wait; see ``ITransport``."""
        if self.TLS or not self.connected or self.disconnecting or self._has_waiting():
            super().writeSequence(iovec)  # type: ignore[no-untyped-call]
            return
        frames = list(iovec)
        size_bytes = sum(map(len, frames))
        if len(frames) > GATHER_MAX or size_bytes < GATHER_BYTES:
            frames = [b"".join(frames)]
        sent = self._send(frames if size_bytes <= SEND_BYTES else _first(frames, SEND_BYTES))
        # What is not a number is the reason why the connection is lost: the next turn finds it too.
        left = sent if isinstance(sent, int) else 0
        for number, frame in enumerate(frames):
            if left < len(frame):
                self._keep(frame, left, frames[number + 1 :])
                return
            left -= len(frame)

    def writeSomeData(self, data: bytes | memoryview) -> int | ConnectionLost:  # noqa: N802
        """Send what the system takes, more at once than Twisted's 128 KiB."""
        return self._send((memoryview(data)[:SEND_BYTES],))

    def _send(self, buffers: Sequence[bytes | memoryview]) -> int | ConnectionLost:
        """Return how many bytes the system took, or why the connection is lost."""
        try:
            return int(self.socket.sendmsg(buffers))
        except OSError as error:
            if error.errno in _NOT_NOW:
                return 0
            return main.CONNECTION_LOST

    def _keep(self, frame: bytes, sent: int, others: Sequence[bytes]) -> None:
        """Have the reactor send the rest of a frame, and others behind it; nothing is copied."""
        self.dataBuffer, self.offset = frame, sent
        self._tempDataBuffer.extend(others)
        self._tempDataLen += sum(map(len, others))
        self._maybePauseProducer()  # type: ignore[no-untyped-call]
        self.startWriting()  # type: ignore[no-untyped-call]

    def _has_waiting(self) -> bool:
        return bool(self._tempDataBuffer) or len(self.dataBuffer) > self.offset


def _first(frames: Sequence[bytes], size_bytes: int) -> list[bytes | memoryview]:
    """Return the begin of some frames, so many bytes of it."""
    some: list[bytes | memoryview] = []
    for frame in frames:
        some.append(memoryview(frame)[:size_bytes])
        size_bytes -= len(frame)
        if size_bytes <= 0:
            break
    return some


def _accept_few(port: Any) -> None:
    """Have a port of Twisted's accept at most ``ACCEPTS_MAX`` connections at a time.

    Twisted accepts as many as there are, and hundreds at a time where clients keep connecting and
    leaving. Those in the backlog wait for the next turn.
    """
    do_read = port.doRead

    def accept() -> Any:
        port.numberAccepts = ACCEPTS_MAX
        return do_read()

    port.doRead = accept


def _bind(host: str, port: int) -> socket.socket:
    dual = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise _bind_error(host, port, error) from error
    return sock


def _bind_error(host: str, port: int, error: OSError) -> Any:
    if error.errno == errno.EADDRINUSE:
        return PortInUseError(f"port {port} is in use by another process")
    where = f"{host or 'all addresses'}, port {port}"
    return AddressError(f"cannot listen on {where}: {error.strerror or error}")
