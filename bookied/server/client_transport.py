"""The transport of a client: answers are sent at once, and the rest as the client reads."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from socket import MSG_PEEK
from typing import Any, Final

from twisted.internet import main, tcp
from twisted.internet.error import ConnectionLost

from bkclient.connection.security.tls_reads import (
    READ_BYTES_MIN,
    TINY_BYTES,
    TINY_RECORDS_MIN,
    TlsReads,
)
from bookied.server.limits.handshake_turns import HandshakeTurns

GATHER_BYTES: Final = 64 * 1024
"""Answers of this size are sent as separate pieces; joining fewer bytes costs less."""

GATHER_MAX: Final = 64
"""Pieces in one ``sendmsg``; more pieces are joined first. The system accepts at most 1,024."""

SEND_BYTES: Final = 1024 * 1024
"""Bytes that one turn of the reactor sends to one client, at most: 0.3 ms."""

IN_PIECES_BYTES: Final = 4096
"""``read_bytes`` of a client that sends requests in pieces: as many as a large read."""

_NOT_NOW: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS})


class PromptConnection(tcp.Server):
    """A client's connection that sends at once the bytes that the system accepts.

    Twisted sends in the next turn of the reactor and changes the epoll registration before and
    after. That costs more than the answers to a few requests.
    """

    _tls_reads: TlsReads | None = None
    _is_waiting = _is_wanted = False
    read_bytes = 0
    """Bytes of the last read. ``PromptReactor`` uses this and ``shares_turns``."""
    shares_turns = False
    """Whether several addresses add, so that each turn of the reactor reads some of them."""

    def __init__(self, *args: Any, turns: HandshakeTurns) -> None:
        """Create a connection; ``turns`` delays reads of TLS bytes that bring no request."""
        self._turns = turns
        super().__init__(*args)
        self._host = str(self.client[0])

    def startTLS(self, ctx: object, normal: bool = True) -> None:  # noqa: FBT001, FBT002, N802
        """Put TLS between the connection and its protocol; the handshake waits for its turn."""
        self._tls_reads = self.protocol = TlsReads(self.protocol)
        super().startTLS(ctx, normal)  # type: ignore[no-untyped-call]
        self._wait_for_turn()

    def doRead(self) -> Any:
        """Read received bytes.

        In TLS, read at most the bytes that one turn of the reactor can decrypt.
        """
        reads = self._tls_reads
        if reads is None:
            return super().doRead()
        size_bytes = min(self.bufferSize, reads.read_bytes_max)
        try:
            # Thousands of small records may follow a large one.
            if size_bytes > READ_BYTES_MIN:
                size_bytes = reads.stream.fitting(self.socket.recv(size_bytes, MSG_PEEK)) or 1
            data = self.socket.recv(size_bytes)
        except OSError as error:
            return None if error.errno in _NOT_NOW else main.CONNECTION_LOST
        if not data:
            return main.CONNECTION_DONE
        self.read_bytes = len(data)
        self.receive_tls(data)
        return None

    def _dataReceived(self, data: bytes | None) -> Any:
        self.read_bytes = len(data or b"")
        return super()._dataReceived(data)

    def receive_tls(self, data: bytes) -> None:
        """Decrypt received bytes and pass them to the protocol.

        Reading pauses until the client's next turn in two cases: the handshake is not complete (it
        may contain a hundred certificates), or the records are nearly empty.
        """
        reads = self._tls_reads
        assert reads is not None
        records = reads.stream.take(data)
        self.protocol.dataReceived(data)
        plain_bytes = reads.end_read(len(data))
        is_tiny = records >= TINY_RECORDS_MIN and plain_bytes < records * TINY_BYTES
        if is_tiny:
            reads.read_bytes_max = READ_BYTES_MIN
        if self.connected and (is_tiny or not reads.is_greeted):
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        self._is_waiting = True
        super().stopReading()  # type: ignore[no-untyped-call]
        self._turns.wait(self, self._host)

    def take_turn(self, requests_max: int) -> int:  # noqa: ARG002 -- one read
        """Resume reading, after a part of the handshake or after nearly empty records."""
        self._is_waiting = False
        if self._is_wanted and self.connected:
            super().startReading()  # type: ignore[no-untyped-call]
        return 1

    def startReading(self) -> None:  # noqa: N802 -- Twisted's name
        """Read, unless the client waits for its turn."""
        self._is_wanted = True
        if not self._is_waiting:
            super().startReading()  # type: ignore[no-untyped-call]

    def stopReading(self) -> None:  # noqa: N802 -- Twisted's name
        """Stop reading."""
        self._is_wanted = False
        super().stopReading()  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Any) -> None:
        """Leave the handshake turns and notify the protocol; see ``IReadDescriptor``."""
        self._turns.leave(self, self._host)
        super().connectionLost(reason)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:  # noqa: N802 -- Twisted's name
        """Send the frames, after the frames that wait; see ``ITransport``."""
        if self.TLS:
            super().writeSequence(iovec)  # type: ignore[no-untyped-call]
            return
        frames = list(iovec)
        if not self.connected:
            return
        if self.disconnecting or self._has_waiting():
            self._queue(frames)
            return
        size_bytes = sum(map(len, frames))
        if len(frames) > GATHER_MAX or size_bytes < GATHER_BYTES:
            frames = [b"".join(frames)]
        sent = self._send(frames if size_bytes <= SEND_BYTES else _first(frames, SEND_BYTES))
        # Not a number: the reason why the connection is lost. The next turn detects the loss again.
        left = sent if isinstance(sent, int) else 0
        for number, frame in enumerate(frames):
            if left < len(frame):
                self._keep(frame, left, frames[number + 1 :])
                return
            left -= len(frame)

    def writeSomeData(self, data: bytes | memoryview) -> int | ConnectionLost:  # noqa: N802
        """Send the bytes that the system accepts, up to 1 MiB; Twisted sends 128 KiB."""
        return self._send((memoryview(data)[:SEND_BYTES],))

    def _send(self, buffers: Sequence[bytes | memoryview]) -> int | ConnectionLost:
        """Return the number of bytes sent, or the reason why the connection is lost."""
        try:
            return int(self.socket.sendmsg(buffers))
        except OSError as error:
            if error.errno in _NOT_NOW:
                return 0
            return main.CONNECTION_LOST

    def _keep(self, frame: bytes, sent: int, others: Sequence[bytes]) -> None:
        """Have the reactor send the rest of a frame and the frames after it, without a copy."""
        self.dataBuffer, self.offset = frame, sent
        self._queue(others)

    def _queue(self, frames: Sequence[bytes]) -> None:
        """Have the reactor send frames.

        Twisted's own method rejects a bytearray, which batches are.
        """
        self._tempDataBuffer.extend(frames)
        self._tempDataLen += sum(map(len, frames))
        self._maybePauseProducer()  # type: ignore[no-untyped-call]
        self.startWriting()  # type: ignore[no-untyped-call]

    def _has_waiting(self) -> bool:
        return bool(self._tempDataBuffer) or len(self.dataBuffer) > self.offset


def _first(frames: Sequence[bytes], size_bytes: int) -> list[bytes | memoryview]:
    """Return the first ``size_bytes`` of the frames."""
    some: list[bytes | memoryview] = []
    for frame in frames:
        some.append(memoryview(frame)[:size_bytes])
        size_bytes -= len(frame)
        if size_bytes <= 0:
            break
    return some
