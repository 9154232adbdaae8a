"""How much one read of a connection in TLS takes, and how its plain text reaches the protocol."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.interfaces import IHandshakeListener, IProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

RECORDS_MAX: Final = 64
"""About so many records are decrypted in one turn of the reactor: 0.25 ms."""

READ_BYTES_MIN: Final = 1024

HEAD_BYTES: Final = 5
"""What a record begins with: type, version, length."""

TINY_RECORDS_MIN: Final = 16
TINY_BYTES: Final = 16
"""Every request is longer: so many records with less plain text in each bring no request."""


class Records:
    """Where the records of a stream begin."""

    def __init__(self) -> None:
        self._left = 0
        """Bytes of the record at hand that are still to come."""
        self._head = b""
        """The begin of a head, less than ``HEAD_BYTES``."""

    def fitting(self, data: bytes | memoryview) -> int:
        """Return how many bytes of ``data`` to take so that at most ``RECORDS_MAX`` begin there."""
        return self._walk(data, RECORDS_MAX)[0]

    def take(self, data: bytes) -> int:
        """Take what comes next; return how many records begin there."""
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
    """Put TLS between a connection of the reactor's and its protocol, with ``TlsReads`` behind it.

    For a transport whose ``bufferSize`` is how much it reads at once, as Twisted's clients have it.
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
    """Stands between TLS and a connection's protocol: each read is one call, not each record.

    A record may hold a single byte. Without this a read of 128 KiB made 5,700 calls.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._records: list[bytes] = []
        self._has_ended = False
        self.read_bytes_max = READ_BYTES_MIN
        """How much to read next, by how long the records of the last read were."""
        self.stream = Records()
        self.is_greeted = False
        """Whether the handshake is over."""

    def end_read(self, read_bytes: int) -> int:
        """Hand over what a read of so many bytes brought; return how long the plain text is."""
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
        """Tell the protocol, if it wants to hear of it."""
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
        """Tell the protocol; plain text that it has not been given is dropped."""
        self._records.clear()
        self._protocol.connectionLost(reason)
