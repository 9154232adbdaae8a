"""One connection to one bookie: bytes in and out, time-outs, and the end of the connection.

Everything except plain adds is a request with a Deferred (``requests``). Plain adds use an
``AddStream``: many frames in one write, acks reported as lists, no object for an add.

Agrees with BookKeeper 4.18.0, PerChannelBookieClient.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IHandshakeListener, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from bkclient.config.client import ClientConfig
from bkclient.config.shared import KeepAlive
from bkclient.connection.add_stream import AddStream, AddStreams, Writability
from bkclient.connection.requests import BulkAnswer, RequestsInFlight, SentRequest
from bkclient.connection.security.tls_reads import start_tls
from bkclient.connection.tcp import ConnectionSilence, reason_of
from bkclient.errors import BookieUnavailableError, ClientError, RequestTimeoutError, SecurityError
from wire.codes import FRAME_BYTES_MAX, Operation, ProtocolVersion
from wire.errors import RemoteProtocolError
from wire.framing import ClientConnection
from wire.ids import BookieId, LedgerId
from wire.messages import AddRequest, Answer, Request

if TYPE_CHECKING:
    from bkclient.connection.request_trace import RequestTrace
    from bkclient.connection.security.tls_contexts import TlsEnd

log = Logger()

READ_BYTES: Final = 256 * 1024
"""Bytes of one read of a socket: answers with many entries are as large."""


ANSWER_BYTES_MORE: Final = 10 * 1024
"""Bytes of an answer above ``nettyMaxFrameSizeBytes``: bookies of Pulsar take that by default."""


@attrs.frozen(kw_only=True)
class ChannelSettings:
    """The settings of each connection of a client."""

    answer_bytes_max: int = FRAME_BYTES_MAX + ANSWER_BYTES_MORE
    add_timeout_s: float = 5.0
    """Seconds that an add may take."""
    read_timeout_s: float = 5.0
    """Seconds that any other request may take, unless the request says otherwise."""
    no_delay: bool = True
    keepalive: bool = True
    keepalive_times: KeepAlive = attrs.field(factory=KeepAlive)

    @classmethod
    def of(cls, config: ClientConfig) -> ChannelSettings:
        """Return the settings of a client's configuration."""
        return cls(
            answer_bytes_max=config.frame_bytes_max + ANSWER_BYTES_MORE,
            add_timeout_s=config.add_timeout_s,
            read_timeout_s=config.read_timeout_s,
            no_delay=config.tcp_no_delay,
            keepalive=config.tcp_keepalive,
            keepalive_times=KeepAlive.of(config),
        )


@implementer(IHandshakeListener)
class BookieChannel(Protocol):
    """One connection to one bookie.

    Args:
        clock: for time-outs.
        bookie_id: the bookie at the other end; for messages only.
        protocol: V2 or V3, for the life of the connection.
        next_txn_id: returns transaction ids; shared by all channels of a client.
        settings: the settings of each connection.
    """

    def __init__(
        self,
        clock: IReactorTime,
        bookie_id: BookieId,
        *,
        protocol: ProtocolVersion = ProtocolVersion.V3,
        next_txn_id: Callable[[], int] | None = None,
        settings: ChannelSettings = ChannelSettings(),
    ) -> None:
        self.bookie_id, self.protocol, self.settings = bookie_id, protocol, settings
        self.lost: ClientError | None = None
        """The reason why the connection has ended; None while it is usable."""
        self.writability = Writability()
        """The state of the transport's buffer."""
        self._clock = clock
        self._connection = ClientConnection(protocol, settings.answer_bytes_max)
        self._decode = self._connection.decode
        self.next_txn_id = itertools.count(1).__next__ if next_txn_id is None else next_txn_id
        self._requests = RequestsInFlight(
            clock, bookie_id, self._connection, self.next_txn_id, self.write, self.timed_out
        )
        self.streams = AddStreams(bookie_id, protocol)
        """The writers that use the connection."""
        self._silence = ConnectionSilence()
        self._tls_end: TlsEnd | None = None
        self._handshake: Deferred[None] | None = None
        self.on_lost: Callable[[BookieChannel], None] = lambda _channel: None
        self.trace: RequestTrace | None = None
        """Logs each request; streams that are already open are not traced."""

    # Twisted calls these

    def connectionMade(self) -> None:
        """Set up the socket, and register for its full buffer."""
        transport: Any = self.transport
        settings = self.settings
        if hasattr(transport, "setTcpNoDelay"):
            transport.bufferSize = READ_BYTES
            transport.setTcpNoDelay(settings.no_delay)
            transport.setTcpKeepAlive(settings.keepalive)
            settings.keepalive_times.apply(transport.getHandle())
        self.writability.connect(transport)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Fail everything in flight: the bookie may have executed the requests."""
        why = None if self._tls_end is None else self._tls_end.why_lost(reason.value)
        if why is not None:
            self._fail_all(SecurityError(f"no TLS with bookie {self.bookie_id}: {why}"))
            return
        text = f"connection to bookie {self.bookie_id} was lost: {reason_of(reason.value)}"
        self._fail_all(BookieUnavailableError(text))

    def handshakeCompleted(self) -> None:  # noqa: N802 - Twisted's.
        """Note that TLS protects everything sent from now on."""
        handshake, self._handshake = self._handshake, None
        if handshake is not None and self.lost is None:
            handshake.callback(None)

    def close(self, error: ClientError) -> None:
        """Close the connection; everything in flight fails with ``error``."""
        if self.lost is None:
            idle = self.writability.is_writable and not self.in_flight
            self._fail_all(error)
            self._drop_connection(gently=idle)

    def _drop_connection(self, *, gently: bool) -> None:
        transport: Any = self.transport
        if transport is None:
            return
        transport.unregisterProducer()
        if gently:
            transport.loseConnection()
        else:
            transport.abortConnection()

    def start_tls(self, end: TlsEnd) -> Deferred[None]:
        """Start TLS, to which the bookie has agreed; the Deferred fires after the handshake.

        Raises (through the Deferred):
            SecurityError: the handshake failed, or bytes arrived in clear after the bookie had
                agreed: an attacker on the way could have sent them.
            BookieUnavailableError: the connection was lost.
        """
        if self._connection.buffer:
            return fail(SecurityError(f"bookie {self.bookie_id} did not begin TLS when it should"))
        transport: Any = self.transport
        handshake: Deferred[None] = Deferred()
        self._tls_end = end
        start_tls(transport, end)
        self._handshake = handshake
        return handshake

    def is_usable(self) -> bool:
        """Return whether more requests may be sent.

        A connection that has been silent for too long is closed here, if nothing is in flight.
        """
        silence = self._silence
        if silence.is_doubted and silence.is_over(self._clock.seconds()) and not self.in_flight:
            self._give_up()
        return self.lost is None

    @property
    def in_flight(self) -> int:
        """The number of unanswered requests."""
        return len(self._requests) + self.streams.in_flight

    # Requests

    def request(self, request: Request, *, timeout_s: float | None = None) -> Deferred[Any]:
        """Send a request; the Deferred fires with its ``Response``, whatever its code.

        Its cancellation ends only the wait, not the bookie's work.

        Raises (through the Deferred, never before this returns):
            RequestTimeoutError: no answer in time.
            BookieUnavailableError: the connection was lost.
        """
        adds = isinstance(request, AddRequest)
        if timeout_s is None:
            settings = self.settings
            timeout_s = settings.add_timeout_s if adds else settings.read_timeout_s
        deferred: Deferred[Any] = Deferred()
        if adds:
            self.streams.asked += 1
            deferred.addBoth(self.streams.answered)
        if self.trace is not None:
            self.trace.request(self.bookie_id, self._clock, request, deferred)
        if self.lost is not None:
            self._clock.callLater(0, deferred.errback, self.lost)
        else:
            self._requests.send(SentRequest(request, deferred, timeout_s))
        return deferred

    def write(self, data: bytes) -> None:
        """Write complete frames."""
        assert self.transport is not None, "not connected"
        self.transport.write(data)

    # Bulk reads

    def read_many(
        self, ledger_id: LedgerId, entries: Sequence[int], timeout_s: float
    ) -> Deferred[dict[int, BulkAnswer]]:
        """Read entries with one write, over V2; the Deferred fires with the answers by entry id.

        It never fails. The result lacks entries that were not answered in time, or before the
        connection was lost, and entries that another read of this connection waits for.
        """
        bulk, frames = self._requests.bulk(ledger_id, entries)
        asked = bulk.entries
        if self.trace is not None:
            self.trace.bulk(self.bookie_id, self._clock, ledger_id, asked, bulk.deferred)
        if self.lost is not None or not asked:
            self._clock.callLater(0, bulk.finish)
        else:
            self._requests.send_bulk(ledger_id, bulk, frames, timeout_s)
        return bulk.deferred

    # Adds

    def open_stream(
        self,
        ledger_id: LedgerId,
        acked: Callable[[list[int]], None],
        failed: Callable[[list[int], ClientError], None],
    ) -> AddStream:
        """Start to send a ledger's plain adds.

        A V2 connection can have one stream a ledger, because their acks are alike.
        """
        make = AddStream if self.trace is None else self.trace.stream
        timeout_s = self.settings.add_timeout_s
        stream = make(self, self._clock, ledger_id, timeout_s, acked, failed)
        self.streams.add(stream)
        return stream

    def forget_stream(self, stream: AddStream) -> None:
        """Remove a stream; late answers to it are ignored."""
        self.streams.forget(stream)

    # Answers

    def dataReceived(self, data: bytes) -> None:
        """Match received answers: runs of plain acks and entries together, others one by one."""
        connection, take_runs = self._connection, self._take_runs
        self._silence.heard_s = self._clock.seconds()
        connection.receive_data(data)
        try:
            take_runs(connection.buffer)
            while self.lost is None and (payload := connection.next_payload()) is not None:
                self._take(self._decode(payload))
                take_runs(connection.buffer)
        except RemoteProtocolError as error:
            text = f"bookie {self.bookie_id} sent an invalid answer: {error}"
            log.warn("{text}", text=text)
            self.close(BookieUnavailableError(text))

    def _take_runs(self, buffer: bytearray) -> None:
        self.streams.take_plain(buffer)
        self._requests.take_reads(buffer)

    def _take(self, answer: Answer) -> None:
        if answer.operation is not Operation.ADD_ENTRY or not self.streams.take(answer):
            self._requests.take(answer)

    # Time-outs and the end

    def timed_out(self, waited_s: float) -> None:
        """Note a request without an answer; fail everything in flight after too long a silence.

        After a time-out that is shorter than others, the bookie still has the usual time; that of
        adds, if a writer may wait that long.
        """
        now_s, usual_s = self._clock.seconds(), self.settings.read_timeout_s
        if self.streams:
            usual_s = max(usual_s, self.settings.add_timeout_s)
        self._silence.timed_out(now_s, waited_s, max(waited_s, usual_s))
        if self.lost is None and self._silence.is_over(now_s):
            self._give_up()

    def _give_up(self) -> None:
        """Close a silent connection; the next request makes a new one."""
        silent_s = self._silence.lasts_s(self._clock.seconds())
        text = f"bookie {self.bookie_id} has sent nothing for {silent_s:.1f} s, though it was asked"
        log.warn("{text}: closing its connection", text=text)
        self._fail_all(RequestTimeoutError(text))
        self._drop_connection(gently=False)

    def _fail_all(self, error: ClientError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        fail, streams = self._requests.end(), self.streams.end()
        self.on_lost(self)
        self.writability.end()
        handshake, self._handshake = self._handshake, None
        if handshake is not None:
            handshake.errback(error)
        fail(error)
        for stream in streams:
            stream.lose(error)
