"""The bookie's port: bound early, so that a port in use stops the start; served only when ready.

Between ``bind`` and ``listen`` the system refuses clients. Otherwise they would wait until the
journal replay ends.
"""

from __future__ import annotations

import errno
import socket
from functools import partial
from typing import Any, Final, Protocol, cast

from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IReactorSocket

from bkclient.config.shared import KeepAlive
from bookied.errors import AddressError, PortInUseError
from bookied.server.client_transport import PromptConnection
from bookied.server.limits.handshake_turns import HandshakeTurns

BACKLOG: Final = 512

UNSENT_BYTES: Final = 128 * 1024
"""Bytes of a client's answers that the system buffers beyond those already sent.

The default is megabytes, which bookied would read and copy for each client that reads nothing.
"""

ACCEPTS_MAX: Final = 1
"""Connections that one turn of the reactor accepts. Each takes 0.3 ms, from accept to close."""


class BoundPort(Protocol):
    """A port that is bound, and served after ``listen``."""

    @property
    def port(self) -> int: ...

    def listen(self, factory: IProtocolFactory) -> None:
        """Accept connections from now on.

        Raises:
            PortInUseError: another process has begun to listen on the port.
        """
        ...

    async def close(self) -> None:
        """Accept no more connections; open connections remain."""
        ...


class Listener(Protocol):
    """A factory of bound ports."""

    def bind(self, host: str, port: int) -> BoundPort:
        """Bind a port; ``host`` is an address of this machine, or empty for all addresses.

        Raises:
            PortInUseError: another process uses the port.
            AddressError: the address is not of this machine, or the port is not permitted.
        """
        ...


class TcpListener:
    """TCP ports on a Twisted reactor. The TLS clients of all ports share one queue of turns."""

    def __init__(self, reactor: IReactorSocket, keep_alive: KeepAlive | None = None) -> None:
        self._reactor, self._keep_alive = reactor, keep_alive or KeepAlive()
        self._turns = HandshakeTurns(cast("Any", reactor))

    def bind(self, host: str, port: int) -> BoundPort:
        sock = _bind(host, port)
        self._keep_alive.apply(sock)
        return _TcpPort(self._reactor, sock, self._turns)


class _TcpPort:
    def __init__(self, reactor: IReactorSocket, sock: socket.socket, turns: HandshakeTurns) -> None:
        self._reactor, self._turns = reactor, turns
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
        self._listening.transport = partial(  # type: ignore[attr-defined]
            PromptConnection, turns=self._turns
        )
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


def _accept_few(port: Any) -> None:
    """Have a Twisted port accept at most ``ACCEPTS_MAX`` connections in one turn of the reactor.

    Twisted accepts all waiting connections: hundreds, if clients connect and leave all the time.
    With this, the others wait in the backlog for the next turn.
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
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # Connections inherit it from the port.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
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
