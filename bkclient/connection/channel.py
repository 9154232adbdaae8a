"""One connection to one bookie: requests out, answers matched, time-outs.

Everything but plain adds and bulk reads is a request with a Deferred. Plain adds go through an
``AddStream``: many frames in one write, acks reported as lists, no object for an add.

V3 answers are matched by transaction id. V2 has none: its answers are matched by what they echo,
so on a V2 connection only things may be in flight whose answers cannot be mistaken for each other.
The pool therefore sends fencing reads and recovery adds over V3.

Agrees with BookKeeper 4.18.0, PerChannelBookieClient.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Union

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHandshakeListener, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from bkclient.concurrency import Alarms
from bkclient.config.keep_alive import KeepAlive
from bkclient.connection.add_stream import AddStream
from bkclient.connection.bulk_read import BulkAnswer, BulkRead
from bkclient.connection.operations import OPERATIONS
from bkclient.connection.tcp import Silence, reason_of
from bkclient.errors import (
    BookieUnavailableError,
    ClientError,
    RequestTimeoutError,
    SecurityError,
    WriteFailedError,
    refusal,
)
from wire.codes import Operation, ProtocolVersion, ReturnCode
from wire.connection import ClientConnection
from wire.errors import RemoteProtocolError
from wire.frames.adds import Key, take_acks_v2, take_acks_v3
from wire.frames.reads import match_read_v2, match_read_v3, read_frames_v2, read_frames_v3
from wire.frames.varint import encode_varint
from wire.ids import BookieId, LedgerId
from wire.messages import (
    AddRequest,
    AddResponse,
    Answer,
    BatchReadRequest,
    BatchReadResponse,
    ErrorResponse,
    ReadRequest,
    ReadResponse,
    Request,
)

if TYPE_CHECKING:
    from bkclient.connection.request_trace import RequestTrace
    from bkclient.connection.tls import TlsEnd

log = Logger()

RequestKey = Union[int, tuple[int, int], None]
"""V3: the transaction id. V2: ledger id and entry id, or a batch read's request id negated."""


@attrs.define(eq=False, slots=True)
class _Pending:
    """A request whose answer is awaited."""

    request: Request
    deferred: Deferred[Any]
    timeout_s: float


@implementer(IPushProducer, IHandshakeListener)
class BookieChannel(Protocol):
    """One connection to one bookie.

    Args:
        clock: for time-outs.
        bookie_id: the bookie at the other end; for messages only.
        protocol: V2 or V3, for the whole life of the connection.
        next_txn_id: where transaction ids come from; shared by all channels of a client.
        add_timeout_s: how long an add may take.
        read_timeout_s: how long anything else may take, unless the request says.
    """

    def __init__(
        self,
        clock: IReactorTime,
        bookie_id: BookieId,
        *,
        protocol: ProtocolVersion = ProtocolVersion.V3,
        next_txn_id: Callable[[], int] | None = None,
        frame_bytes_max: int = 5_242_880,
        add_timeout_s: float = 5.0,
        read_timeout_s: float = 5.0,
        no_delay: bool = True,
        keepalive: bool = True,
        keepalive_times: KeepAlive | None = None,
    ) -> None:
        self.bookie_id, self.protocol = bookie_id, protocol
        self.lost: ClientError | None = None
        """Why the connection is of no use any more."""
        self.writable = True
        """Whether the transport takes more without piling it up."""
        self._clock = clock
        self._connection = ClientConnection(protocol, frame_bytes_max)
        self._is_v2 = protocol is ProtocolVersion.V2
        self._take_acks = take_acks_v2 if self._is_v2 else take_acks_v3
        self._match_read = match_read_v2 if self._is_v2 else match_read_v3
        self._decode = self._connection.decode
        self.next_txn_id = itertools.count(1).__next__ if next_txn_id is None else next_txn_id
        self._add_timeout_s, self._read_timeout_s = add_timeout_s, read_timeout_s
        self._no_delay, self._keepalive = no_delay, keepalive
        self._keepalive_times = keepalive_times or KeepAlive()
        self._pending: dict[RequestKey, _Pending] = {}
        self._adds_asked = 0
        """How many adds are out as requests, so that their acks are not for streams."""
        self._waiting: dict[RequestKey, deque[_Pending]] = {}
        self._bulks: dict[RequestKey, BulkRead] = {}
        self._streams: dict[int, list[AddStream]] = {}
        self._alarms: Alarms[RequestKey] = Alarms(clock, self._expire)
        self._silence = Silence()
        self._on_writable: list[Deferred[None]] = []
        self._tls_end: TlsEnd | None = None
        self._handshake: Deferred[None] | None = None
        self.on_lost: Callable[[BookieChannel], None] = lambda _channel: None
        self.trace: RequestTrace | None = None
        """Who hears of each request; streams that are open by then go on as they are."""

    # Twisted calls these

    def connectionMade(self) -> None:
        """Set the socket up, and learn when it is full."""
        transport: Any = self.transport
        if hasattr(transport, "setTcpNoDelay"):
            transport.setTcpNoDelay(self._no_delay)
            transport.setTcpKeepAlive(self._keepalive)
            self._keepalive_times.apply(transport.getHandle())
        transport.registerProducer(self, True)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Fail everything in flight: what was asked may have been done."""
        why = None if self._tls_end is None else self._tls_end.why_lost(reason.value)
        if why is not None:
            self._fail_all(SecurityError(f"no TLS with bookie {self.bookie_id}: {why}"))
            return
        text = f"connection to bookie {self.bookie_id} was lost: {reason_of(reason.value)}"
        self._fail_all(BookieUnavailableError(text))

    def handshakeCompleted(self) -> None:  # noqa: N802 - Twisted's.
        """TLS is there: what is sent from now on is in it."""
        handshake, self._handshake = self._handshake, None
        if handshake is not None and self.lost is None:
            handshake.callback(None)

    def pauseProducing(self) -> None:
        """The transport's buffer is full."""
        self.writable = False

    def resumeProducing(self) -> None:
        """There is space again.

        Where the peer ended TLS while there was none, Twisted has only waited for that: the
        connection ends once nobody produces any more.
        """
        transport: Any = self.transport
        if self.lost is None and getattr(transport, "disconnecting", False):
            transport.unregisterProducer()
        self.writable = True
        waiting, self._on_writable = self._on_writable, []
        for waiter in waiting:
            waiter.callback(None)

    def stopProducing(self) -> None:
        """The transport is closing; ``connectionLost`` comes."""
        self.resumeProducing()

    def when_writable(self) -> Deferred[None]:
        """Return a Deferred that fires when the transport takes more, or has gone."""
        waiter: Deferred[None] = Deferred(self._forget_waiter)
        if self.writable or self.lost is not None:
            waiter.callback(None)
        else:
            self._on_writable.append(waiter)
        return waiter

    def _forget_waiter(self, waiter: Deferred[None]) -> None:
        if waiter in self._on_writable:
            self._on_writable.remove(waiter)

    def close(self, error: ClientError) -> None:
        """Close the connection; everything in flight fails with ``error``."""
        if self.lost is None:
            idle = self.writable and not self.in_flight
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
        """Go on in TLS, as the bookie has agreed to; the Deferred fires when the handshake is over.

        Raises (through the Deferred):
            SecurityError: it failed.
            BookieUnavailableError: the connection went.
        """
        transport: Any = self.transport
        handshake: Deferred[None] = Deferred()
        self._tls_end = end
        transport.startTLS(end, True)
        self._handshake = handshake
        return handshake

    def is_usable(self) -> bool:
        """Return whether to send anything more.

        A connection that nothing came on for too long is closed here, if nothing is in flight.
        """
        silence = self._silence
        if silence.is_doubted and silence.is_over(self._clock.seconds()) and not self.in_flight:
            self._give_up()
        return self.lost is None

    @property
    def in_flight(self) -> int:
        """How many requests wait for an answer."""
        adds = sum(len(stream.outstanding) for stream in self._all_streams())
        return len(self._pending) + len(self._bulks) + adds

    # Requests

    def request(self, request: Request, *, timeout_s: float | None = None) -> Deferred[Any]:
        """Send a request; the Deferred fires with its ``Response``, whatever its code says.

        Cancelling it lets go of the answer, not of what the bookie does.

        Raises (through the Deferred, never before this returns):
            RequestTimeoutError: no answer in time.
            BookieUnavailableError: the connection went.
        """
        adds = isinstance(request, AddRequest)
        if timeout_s is None:
            timeout_s = self._add_timeout_s if adds else self._read_timeout_s
        deferred: Deferred[Any] = Deferred()
        if adds:
            self._adds_asked += 1
            deferred.addBoth(self._add_answered)
        if self.trace is not None:
            self.trace.request(self.bookie_id, self._clock, request, deferred)
        pending = _Pending(request, deferred, timeout_s)
        if self.lost is not None:
            self._clock.callLater(0, _fail, deferred, self.lost)
            return deferred
        if self._is_v2:
            self._request_v2(pending)
        else:
            txn_id = self.next_txn_id()
            self._send(txn_id, pending, self._connection.send(request, txn_id))
        return deferred

    def _add_answered(self, result: Any) -> Any:
        self._adds_asked -= 1
        return result

    def _request_v2(self, pending: _Pending) -> None:
        """Send it, unless one with the same key is in flight: that one's answer comes first."""
        key = self._key_v2(pending.request)
        if key in self._pending or key in self._bulks:
            self._waiting.setdefault(key, deque()).append(pending)
        else:
            self._send(key, pending, self._connection.send(pending.request))

    def _key_v2(self, request: Request) -> RequestKey:
        if isinstance(request, BatchReadRequest):
            return -request.request_id
        if isinstance(request, (ReadRequest, AddRequest)):
            # Plain adds do not come this way, so an add and a read of one entry never meet.
            return request.ledger_id, request.entry_id
        return None

    def _send(self, key: RequestKey, pending: _Pending, frame: bytes) -> None:
        assert self.transport is not None, "not connected"
        self._pending[key] = pending
        self._alarms.set(key, pending.timeout_s)
        self.transport.write(frame)

    def write(self, data: bytes) -> None:
        """Write whole frames, for an ``AddStream``."""
        assert self.transport is not None, "not connected"
        self.transport.write(data)

    # Bulk reads

    def read_many(
        self, ledger_id: LedgerId, entries: Sequence[int], timeout_s: float
    ) -> Deferred[dict[int, BulkAnswer]]:
        """Read entries with one write; the Deferred fires with the answers by entry id.

        It never fails. Entries that were not answered in time, or before the connection went, are
        not in the result; nor are those that another read of this connection is out for (V2).
        """
        if self._is_v2:
            asked = [e for e in entries if not self._is_out(ledger_id, e)]
            keys: list[RequestKey] = [(ledger_id, entry_id) for entry_id in asked]
            frames = read_frames_v2(ledger_id, asked)
        else:
            asked, txn_ids = list(entries), [self.next_txn_id() for _ in entries]
            keys, frames = list[RequestKey](txn_ids), read_frames_v3(ledger_id, asked, txn_ids)
        bulk = BulkRead(asked, keys)
        bulk.deferred.addBoth(self._forget_bulk, keys, bulk)
        if self.trace is not None:
            self.trace.bulk(self.bookie_id, self._clock, ledger_id, asked, bulk.deferred)
        if self.lost is not None or not asked:
            self._clock.callLater(0, bulk.finish)
            return bulk.deferred
        self._bulks.update(dict.fromkeys(keys, bulk))
        bulk.wait(self._clock, timeout_s, lambda: self.timed_out(timeout_s))
        self.write(frames)
        return bulk.deferred

    def _is_out(self, ledger_id: LedgerId, entry_id: int) -> bool:
        key = (ledger_id, entry_id)
        return key in self._pending or key in self._bulks

    def _forget_bulk(self, result: Any, keys: list[RequestKey], bulk: BulkRead) -> Any:
        """Take no more answers for it; reads that waited for these keys go out."""
        for key in keys:
            if self._bulks.get(key) is bulk:
                del self._bulks[key]
                self._send_waiting(key)
        return result

    # Adds

    def open_stream(
        self,
        ledger_id: LedgerId,
        acked: Callable[[list[int]], None],
        failed: Callable[[list[int], ClientError], None],
    ) -> AddStream:
        """Begin to send a ledger's plain adds.

        On a V2 connection there can be one stream a ledger: their acks look alike.
        """
        make = AddStream if self.trace is None else self.trace.stream
        stream = make(self, self._clock, ledger_id, self._add_timeout_s, acked, failed)
        streams = self._streams.setdefault(ledger_id, [])
        assert not (self._is_v2 and streams), f"two writers of ledger {ledger_id}"
        streams.append(stream)
        return stream

    def has_stream(self, ledger_id: LedgerId) -> bool:
        """Return whether a stream of this ledger is open."""
        return ledger_id in self._streams

    def forget_stream(self, stream: AddStream) -> None:
        """Drop a stream; late answers to it are ignored."""
        streams = self._streams.get(stream.ledger_id, [])
        if stream in streams:
            streams.remove(stream)
        if not streams:
            self._streams.pop(stream.ledger_id, None)

    def _all_streams(self) -> list[AddStream]:
        return list(itertools.chain.from_iterable(self._streams.values()))

    # Answers

    def dataReceived(self, data: bytes) -> None:
        """Match what came in: runs of plain acks at once, everything else one by one."""
        connection = self._connection
        self._silence.heard_s = self._clock.seconds()
        connection.receive_data(data)
        try:
            self._take_plain_acks()
            while self.lost is None and (payload := connection.next_payload()) is not None:
                if not (self._bulks and self._take_bulk(payload)):
                    self._take(self._decode(payload))
                self._take_plain_acks()
        except RemoteProtocolError as error:
            text = f"bookie {self.bookie_id} sent what is no answer: {error}"
            log.warn("{text}", text=text)
            self.close(BookieUnavailableError(text))

    def _take_plain_acks(self) -> None:
        """Take the plain acks at the start of the buffer, run by run."""
        if self._adds_asked:
            return
        while runs := self._take_acks(self._connection.buffer):
            for ledger_id, keys in runs:
                for stream in tuple(self._streams.get(ledger_id, ())):
                    stream.take_acks(keys)

    def _take_bulk(self, payload: bytes) -> bool:
        """Take a plain answer to a bulk read without decoding it; ``False`` for any other."""
        found = self._match_read(payload)
        if found is None:
            return False
        key: RequestKey = (found.ledger_id, found.key) if self._is_v2 else found.key
        bulk = self._bulks.pop(key, None)
        if bulk is None:
            return False
        bulk.take(key, found)
        self._send_waiting(key)
        return True

    def _take(self, answer: Answer) -> None:
        if answer.operation is Operation.ADD_ENTRY and self._take_add(answer):
            return
        self._finish(self._key_of(answer), answer)

    def _take_add(self, answer: Answer) -> bool:
        """Give an add's answer to its stream; ``False`` when it was asked as a request."""
        response = answer.response
        assert isinstance(response, (AddResponse, ErrorResponse))
        ledger_id = None if isinstance(response, ErrorResponse) else response.ledger_id
        key: Key = encode_varint(answer.txn_id)
        if self._is_v2:
            assert isinstance(response, AddResponse)
            key = response.entry_id
        stream = self._stream_that_awaits(ledger_id, key)
        if stream is None:
            return False
        if response.rc is ReturnCode.EOK:
            stream.take_acks((key,))
        else:
            entry = stream.outstanding[key]
            text = f"bookie {self.bookie_id} refused entry {entry} of ledger {stream.ledger_id}"
            stream.take_refusal(key, refusal(response.rc, WriteFailedError, text))
        return True

    def _stream_that_awaits(self, ledger_id: int | None, key: Key) -> AddStream | None:
        streams = self._all_streams() if ledger_id is None else self._streams.get(ledger_id, [])
        return next((one for one in streams if key in one.outstanding), None)

    def _key_of(self, answer: Answer) -> RequestKey:
        if not self._is_v2:
            return answer.txn_id
        response = answer.response
        if isinstance(response, BatchReadResponse):
            return -response.request_id
        if isinstance(response, (ReadResponse, AddResponse)):
            return response.ledger_id, response.entry_id
        return None

    def _finish(self, key: RequestKey, answer: Answer) -> None:
        bulk = self._bulks.get(key)
        if bulk is not None and answer.operation is Operation.READ_ENTRY:
            del self._bulks[key]
            bulk.take(key, answer.response)
            self._send_waiting(key)
            return
        pending = self._pending.get(key)
        if pending is None or OPERATIONS[type(pending.request)] is not answer.operation:
            return  # Too late, or never asked for.
        del self._pending[key]
        self._alarms.drop(key, pending.timeout_s)
        self._send_waiting(key)
        pending.deferred.callback(answer.response)

    def _send_waiting(self, key: RequestKey) -> None:
        """Send what has waited longest for a key, unless that is out again."""
        waiting = self._waiting.get(key)
        if waiting is None or self.lost is not None or key in self._pending or key in self._bulks:
            return
        pending = waiting.popleft()
        if not waiting:
            del self._waiting[key]
        self._send(key, pending, self._connection.send(pending.request))

    # Time-outs and the end

    def timed_out(self, waited_s: float) -> None:
        """Note that something had no answer; all in flight fails where nothing came for too long.

        After a time-out that is shorter than others, the bookie still has the usual time; that of
        adds, where there is a writer who may wait so long.
        """
        now_s, usual_s = self._clock.seconds(), self._read_timeout_s
        if self._streams:
            usual_s = max(usual_s, self._add_timeout_s)
        self._silence.timed_out(now_s, waited_s, max(waited_s, usual_s))
        if self.lost is None and self._silence.is_over(now_s):
            self._give_up()

    def _give_up(self) -> None:
        """End a connection that nothing comes on; the next request makes a new one."""
        silent_s = self._silence.lasts_s(self._clock.seconds())
        text = f"bookie {self.bookie_id} has sent nothing for {silent_s:.1f} s, though it was asked"
        log.warn("{text}: its connection is given up", text=text)
        self._fail_all(RequestTimeoutError(text))
        self._drop_connection(gently=False)

    def _expire(self, key: RequestKey) -> None:
        pending = self._pending.pop(key, None)
        if pending is None:
            return  # Another time-out at the same moment has ended the connection.
        self.timed_out(pending.timeout_s)
        what = type(pending.request).__name__
        text = f"bookie {self.bookie_id} did not answer {what} in {pending.timeout_s:g} s"
        self._send_waiting(key)
        pending.deferred.errback(RequestTimeoutError(text))

    def _fail_all(self, error: ClientError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        self._alarms.stop()
        requests = [*self._pending.values(), *itertools.chain(*self._waiting.values())]
        streams, bulks = self._all_streams(), dict.fromkeys(self._bulks.values())
        self._pending, self._waiting, self._streams, self._bulks = {}, {}, {}, {}
        self.on_lost(self)
        self.resumeProducing()
        handshake, self._handshake = self._handshake, None
        if handshake is not None:
            handshake.errback(error)
        for pending in requests:
            pending.deferred.errback(error)
        for stream in streams:
            stream.lose(error)
        for bulk in bulks:
            bulk.finish()


def _fail(deferred: Deferred[Any], error: ClientError) -> None:
    deferred.errback(error)
