"""HTTP over a socket whose whole exchange has a time limit, and whose answers have a largest size.

``http.client`` limits each read alone, and no body: a peer that sends a byte now and then, or
without end, would keep a command for ever.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any, Final

BODY_BYTES_MAX: Final = 64 << 20
"""More than any bookie answers; a page of metrics has less than 1 MiB."""

_PIECE_BYTES: Final = 64 << 10


class TimedConnection(http.client.HTTPConnection):
    """A connection with an HTTP server; the time-out is of all that is done with it."""

    def connect(self) -> None:
        """Connect.

        Raises:
            OSError: no server answers.
        """
        assert self.timeout is not None
        ends_s = time.monotonic() + self.timeout
        super().connect()
        stream: Any = TimedStream(self.sock, ends_s)
        self.sock = stream


class Stream:
    """Over a connected socket, what ``http.client`` asks of a socket.

    ``http.client`` closes it before the body is read: it ends when its reader is closed, too.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._is_read = sock, False

    def read_into(self, buffer: Any) -> int:
        """Read some bytes; none after the end."""
        raise NotImplementedError

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return what answers are read from."""
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
    """A connected socket until a time."""

    def __init__(self, sock: socket.socket, ends_s: float) -> None:
        super().__init__(sock)
        self._ends_s = ends_s

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        self._in_time().sendall(data)

    def recv(self, size: int) -> bytes:
        """Return some bytes; none after the end."""
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
    """Reads from a stream."""

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
        http.client.HTTPException: it is too long, or ends too early.
    """
    body, piece = bytearray(), memoryview(bytearray(_PIECE_BYTES))
    while size := response.readinto(piece):
        body += piece[:size]
        if len(body) > BODY_BYTES_MAX:
            raise http.client.HTTPException(f"the answer has more than {BODY_BYTES_MAX} bytes")
    if response.length:
        raise http.client.HTTPException(f"the answer ends {response.length} bytes too early")
    return body
