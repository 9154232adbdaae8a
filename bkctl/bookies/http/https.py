"""HTTP in TLS, blocking: pyOpenSSL below ``http.client``, with the same keys as Twisted's TLS.

Python's own ``ssl`` reads keys only from PEM files; ``TlsContexts`` supports PKCS12 and Java's
names of versions and suites, and explains a failed handshake.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from OpenSSL import SSL
from twisted.internet.task import Clock

from bkclient.config.tls import TlsSettings
from bkclient.connection.security.tls_contexts import TlsContexts, TlsEnd
from bkclient.errors import SecurityError
from bkctl.bookies.http.timed_http import Stream, TimedConnection

_PIECE_BYTES: Final = 64 * 1024

T = TypeVar("T")


class HttpsConnection(TimedConnection):
    """A TLS connection to an HTTP server."""

    default_port = 443

    def __init__(self, host: str, port: int, timeout_s: float, settings: TlsSettings) -> None:
        """Read keys and certificates.

        Raises:
            SecurityError: they cannot be used.
        """
        super().__init__(host, port, timeout=timeout_s)
        # The connection is closed before the files change, so they are not read again.
        self._end = TlsContexts(settings, Clock(), is_client=True).end(host)

    def connect(self) -> None:
        """Connect, and finish the handshake.

        Raises:
            OSError: the server does not answer.
            SecurityError: the handshake failed; the error has the reason.
        """
        super().connect()
        stream: Any = TlsStream(self.sock, self._end)
        self.sock = stream
        stream.shake_hands()


class TlsStream(Stream):
    """TLS over a connected socket."""

    def __init__(self, sock: socket.socket, end: TlsEnd) -> None:
        super().__init__(sock)
        self._end = end
        self._connection = end.clientConnectionForTLS(None)
        self._connection.set_connect_state()

    def shake_hands(self) -> None:
        """Finish the handshake.

        Raises:
            SecurityError: the handshake failed.
        """
        self._run(self._connection.do_handshake)

    def sendall(self, data: bytes) -> None:
        """Send all bytes."""
        left = data
        while left:
            sent = self._run(partial(self._connection.send, left[:_PIECE_BYTES]))
            left = left[sent:]

    def read_into(self, buffer: Any) -> int:
        try:
            return self._run(partial(self._connection.recv_into, buffer))
        except SSL.ZeroReturnError:
            return 0

    def _run(self, step: Callable[[], T]) -> T:
        """Do one step of TLS, with as many bytes in each direction as it needs."""
        while True:
            try:
                value = step()
            except SSL.WantReadError:
                self._flush()
                self._fill()
            except SSL.ZeroReturnError:
                raise
            except SSL.Error as error:
                self._flush()  # Sends the TLS alert to the server.
                raise SecurityError(f"no TLS: {self._end.why_lost(error)}") from error
            else:
                self._flush()
                return value

    def _fill(self) -> None:
        data = self._sock.recv(_PIECE_BYTES)
        if not data:
            raise ConnectionResetError("the server closed the connection, TLS or not")
        self._connection.bio_write(data)

    def _flush(self) -> None:
        while True:
            try:
                data = self._connection.bio_read(_PIECE_BYTES)
            except SSL.WantReadError:
                return
            self._sock.sendall(data)
