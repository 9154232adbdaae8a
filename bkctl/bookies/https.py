"""HTTP in TLS, blocking: pyOpenSSL below ``http.client``, with the keys that Twisted's end has.

Python's own ``ssl`` reads keys from PEM files only; ``TlsContexts`` knows PKCS12, Java's names of
versions and suites, and why a handshake failed.
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
from bkctl.bookies.timed_http import Stream, TimedConnection

_PIECE_BYTES: Final = 64 * 1024

T = TypeVar("T")


class HttpsConnection(TimedConnection):
    """A connection with an HTTP server in TLS."""

    default_port = 443

    def __init__(self, host: str, port: int, timeout_s: float, settings: TlsSettings) -> None:
        """Read keys and certificates.

        Raises:
            SecurityError: they cannot be used.
        """
        super().__init__(host, port, timeout=timeout_s)
        # One connection: it ends before the files change.
        self._end = TlsContexts(settings, Clock(), is_client=True).end(host)

    def connect(self) -> None:
        """Connect, and finish the handshake.

        Raises:
            OSError: no server answers.
            SecurityError: TLS did not come about; it says why.
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
            SecurityError: it failed.
        """
        self._run(self._connection.do_handshake)

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
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
        """Do one step of TLS, with as many bytes each way as it needs."""
        while True:
            try:
                value = step()
            except SSL.WantReadError:
                self._flush()
                self._fill()
            except SSL.ZeroReturnError:
                raise
            except SSL.Error as error:
                self._flush()  # The alert that tells the server.
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
