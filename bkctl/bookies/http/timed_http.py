"""HTTP over a socket, with a time limit for the whole exchange and a maximum size of answers.

``http.client`` limits only each read, and no body: a peer that sends a byte now and then, or
without end, would block a command for ever.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any, Final

BODY_BYTES_MAX: Final = 64 << 20
"""More than any bookie sends; a page of metrics has less than 1 MiB."""

_PIECE_BYTES: Final = 64 << 10


class TimedConnection(http.client.HTTPConnection):
    """A connection to an HTTP server; the timeout covers all its operations together."""

    def connect(self) -> None:
        """Connect.

        Raises:
            OSError: the server does not answer.
        """
        assert self.timeout is not None
        ends_s = time.monotonic() + self.timeout
        super().connect()
        stream: Any = TimedStream(self.sock, ends_s)
        self.sock = stream


class Stream:
    """The methods of a socket that ``http.client`` uses, over a connected socket.

    ``http.client`` closes it before the body is read: the socket is closed with its reader.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._is_read = sock, False

    def read_into(self, buffer: Any) -> int:
        """Read some bytes; return 0 after the end."""
        raise NotImplementedError

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return the reader of the answers."""
        self._is_read = True
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """Close the connection, unless its reader is in use."""
        if not self._is_read:
            self._sock.close()

    def end(self) -> None:
        """Close the connection."""
        self._sock.close()


class TimedStream(Stream):
    """A connected socket with a deadline."""

    def __init__(self, sock: socket.socket, ends_s: float) -> None:
        super().__init__(sock)
        self._ends_s = ends_s

    def sendall(self, data: bytes) -> None:
        """Send all bytes."""
        self._in_time().sendall(data)

    def recv(self, size: int) -> bytes:
        """Return some bytes; empty after the end."""
        return self._in_time().recv(size)

    def read_into(self, buffer: Any) -> int:
        return self._in_time().recv_into(buffer)

    def _in_time(self) -> socket.socket:
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left_s)
        return self._sock


class _Reader(io.RawIOBase):
    """The reader of a stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._stream.read_into(buffer)

    def close(self) -> None:
        self._stream.end()
        super().close()


def body_of(response: http.client.HTTPResponse) -> bytearray:
    """Return the body of an answer.

    Raises:
        http.client.HTTPException: the body is too long, or ends too early.
    """
    body, piece = bytearray(), memoryview(bytearray(_PIECE_BYTES))
    while size := response.readinto(piece):
        body += piece[:size]
        if len(body) > BODY_BYTES_MAX:
            raise http.client.HTTPException(f"the answer has more than {BODY_BYTES_MAX} bytes")
    if response.length:
        raise http.client.HTTPException(f"the answer ends {response.length} bytes too early")
    return body
