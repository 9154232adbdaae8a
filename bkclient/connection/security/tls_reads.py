"""The size of one read of a connection with TLS, and the delivery of its plain text."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.interfaces import IHandshakeListener, IProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

RECORDS_MAX: Final = 64
"""The approximate number of records that one turn of the reactor decrypts: 0.25 ms."""

READ_BYTES_MIN: Final = 1024

HEAD_BYTES: Final = 5
"""The header of a record: type, version, length."""

TINY_RECORDS_MIN: Final = 16
TINY_BYTES: Final = 16
"""Every request is longer: a record with less plain text brings no request."""


class Records:
    """The borders of the records in a stream."""

    def __init__(self) -> None:
        self._left = 0
        """Bytes of the present record that are still missing."""
        self._head = b""
        """The begin of a header, less than ``HEAD_BYTES``."""

    def fitting(self, data: bytes | memoryview) -> int:
        """Return the number of bytes of ``data`` in which at most ``RECORDS_MAX`` records begin."""
        return self._walk(data, RECORDS_MAX)[0]

    def take(self, data: bytes) -> int:
        """Note the next bytes; return the number of records that begin in them."""
        _, records, self._left, self._head = self._walk(data, len(data))
        return records

    def _walk(self, data: bytes | memoryview, records_max: int) -> tuple[int, int, int, bytes]:
        at, records, head = min(self._left, len(data)), 0, self._head
        left = self._left - at
        while at < len(data) and records < records_max:
            more = bytes(data[at : at + HEAD_BYTES - len(head)])
            head, at = head + more, at + len(more)
            if len(head) < HEAD_BYTES:
                break
            left, head, records = head[3] << 8 | head[4], b"", records + 1
            taken = min(left, len(data) - at)
            at, left = at + taken, left - taken
        return at, records, left, head


def start_tls(transport: Any, end: object) -> None:
    """Put TLS between a connection of the reactor and its protocol, with ``TlsReads`` behind it.

    The ``bufferSize`` of the transport is the size of its reads, as for Twisted's clients.
    """
    reads, read_bytes_max = TlsReads(transport.protocol), transport.bufferSize
    transport.protocol = reads
    transport.startTLS(end, True)
    decrypt = transport.protocol.dataReceived

    def received(data: bytes) -> None:
        decrypt(data)
        reads.end_read(len(data))
        transport.bufferSize = min(read_bytes_max, reads.read_bytes_max)

    transport.protocol.dataReceived = received


@implementer(IProtocol, IHandshakeListener)
class TlsReads:
    """A layer between TLS and a connection's protocol: one call for each read, not for each record.

    A record may have a single byte. Without this layer a read of 128 KiB made 5,700 calls.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._records: list[bytes] = []
        self._has_ended = False
        self.read_bytes_max = READ_BYTES_MIN
        """The size of the next read, by the lengths of the records of the last read."""
        self.stream = Records()
        self.is_greeted = False
        """True after the handshake."""

    def end_read(self, read_bytes: int) -> int:
        """Deliver the plain text of a read of ``read_bytes``; return its length."""
        records, self._records = self._records, []
        plain_bytes = sum(map(len, records))
        if records:
            self.read_bytes_max = max(READ_BYTES_MIN, RECORDS_MAX * (read_bytes // len(records)))
            self._protocol.dataReceived(b"".join(records))
        if self._has_ended:
            self._has_ended = False
            self._protocol.readConnectionLost()
        return plain_bytes

    # Called by TLS -----------------------------------------------------------------------------

    def makeConnection(self, transport: object) -> None:  # noqa: N802 - Twisted's.
        """Do nothing: the protocol has its transport already."""

    def connectionMade(self) -> None:
        """Do nothing: the protocol was connected before TLS."""

    def handshakeCompleted(self) -> None:  # noqa: N802 - Twisted's.
        """Notify the protocol, if it has a method for that."""
        self.is_greeted = True
        if IHandshakeListener.providedBy(self._protocol):
            self._protocol.handshakeCompleted()

    def dataReceived(self, data: bytes) -> None:
        """Keep the plain text of one record."""
        self._records.append(data)

    def ended(self) -> None:
        """Note that the peer has ended its half of TLS."""
        self._has_ended = True

    def connectionLost(self, reason: Failure) -> None:
        """Notify the protocol; undelivered plain text is dropped."""
        self._records.clear()
        self._protocol.connectionLost(reason)
