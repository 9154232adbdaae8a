"""How much one read of a connection in TLS takes, and how its plain text reaches the protocol."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.interfaces import IHandshakeListener, IProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

RECORDS_MAX: Final = 64
"""About so many records are decrypted in one turn of the reactor: 0.25 ms."""

READ_BYTES_MIN: Final = 1024


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

    def end_read(self, read_bytes: int) -> None:
        """Hand over what a read of so many bytes brought."""
        records, self._records = self._records, []
        if records:
            self.read_bytes_max = max(READ_BYTES_MIN, RECORDS_MAX * (read_bytes // len(records)))
            self._protocol.dataReceived(b"".join(records))
        if self._has_ended:
            self._has_ended = False
            self._protocol.readConnectionLost()

    # Called by TLS -----------------------------------------------------------------------------

    def makeConnection(self, transport: object) -> None:  # noqa: N802 - Twisted's.
        """Do nothing: the protocol has its transport already."""

    def connectionMade(self) -> None:
        """Do nothing: the protocol was connected before TLS."""

    def handshakeCompleted(self) -> None:  # noqa: N802 - Twisted's.
        """Tell the protocol, if it wants to hear of it."""
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
