"""A bookie's connections: bytes to requests, answers to bytes, and never more than it can hold."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHandshakeListener,
    IPushProducer,
    IReactorTime,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from bookied.metrics.stats import ADD, operation_of
from bookied.server.access.auth_gate import (
    Authenticator,
    Gate,
    NameGate,
    Refusals,
    TlsGate,
    host_of,
)
from bookied.server.access.login_delays import LoginDelays
from bookied.server.access.start_tls import Upgrade, refuse_tls
from bookied.server.fast_adds import FastAdds
from bookied.server.fast_reads import FastReads
from bookied.server.limits.address_groups import group_of
from bookied.server.limits.backpressure import Backpressure, Limits
from bookied.server.limits.hits import MEANINGS, Limit, LimitHits
from bookied.server.limits.memory import FrameRoom, UnsentAnswers
from bookied.server.limits.timeouts import Patience, Waiting, Watch
from bookied.server.read_lanes import ReadLanes, RunBlocking
from bookied.server.rules.bookie import Bookie
from bookied.server.rules.disk_read import Answer, DiskRead
from bookied.server.rules.long_poll import Cancel
from wire.codes import FRAME_BYTES_MAX, Operation, ProtocolVersion, ReturnCode
from wire.connection import TLS_BEGIN, ServerConnection
from wire.errors import LocalProtocolError, RemoteProtocolError, TlsOrderError
from wire.frames import v2, v3
from wire.ids import LedgerId
from wire.messages import (
    AddRequest,
    Received,
    ReplyTo,
    Response,
    StartTlsRequest,
    StartTlsResponse,
)

if TYPE_CHECKING:
    from bkclient.connection.tls import TlsContexts

CLOSE_S: Final = 5.0
"""How long a peer has to take its last answers before the connection is cut."""

STRANGER_FRAME_BYTES_MAX: Final = 10 * 1024
"""The longest frame of a client that has yet to show who it is, as before TLS where that is asked.

A login takes less, and what is longer would be refused when it is all there.
"""

READS_FREE: Final = 4
"""Reads of one connection that may wait for the disk however many others' do."""

READ_BYTES: Final = 128 * 1024
"""The most that one read brings. Twice Twisted's 64 KiB: fewer turns, wake-ups and records each."""

WRITE_BYTES: Final = 256 * 1024
"""Answers are gathered up to this size before they are handed to the transport."""

_LENGTH: Final = struct.Struct(">i")
_IN_ORDER: Final = frozenset({Operation.READ_ENTRY, Operation.BATCH_READ_ENTRY})

log = Logger()


class BookieServer(Factory):
    """Makes a ``BookieConnection`` of each client, and lets none outrun the disks.

    ``on_synced`` belongs to the journals: what they call on the reactor, once a group.
    """

    noisy = False

    def __init__(
        self,
        bookie: Bookie,
        clock: IReactorTime,
        run_blocking: RunBlocking,
        *,
        limits: Limits | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        tcp_keep_alive: bool = True,
        connections_max: int | None = None,
        tls: TlsContexts | None = None,
        tls_required: bool = False,
        auth: Authenticator | None = None,
        address_connections_max: int | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Serve ``bookie``.

        Args:
            bookie: the rules.
            clock: the reactor.
            run_blocking: runs a disk read, such as ``partial(deferToThreadPool, reactor, pool)``.
            limits: when to let clients wait; the default takes the storage's own limits.
            frame_bytes_max: ``nettyMaxFrameSizeBytes``; a longer frame closes its connection.
            tcp_keep_alive: ``serverSockKeepalive``.
            connections_max: further clients are turned away, or their descriptors would be those
                that journals and logs need; None for no limit.
            tls: what is offered to clients that ask for it with START_TLS.
            tls_required: whether they may do nothing before.
            auth: how clients show who they are before they may do anything else.
            address_connections_max: the same for the clients of one address; see ``group_of``.
            patience: how long clients may keep the bookie waiting; for ever where it is not given.
        """
        self.bookie, self.clock, self.run_blocking = bookie, clock, run_blocking
        self.limits = limits or Limits(
            unwritten_bytes_max=bookie.storages.limits.unwritten_bytes_max
        )
        self.frame_bytes_max, self.tcp_keep_alive = frame_bytes_max, tcp_keep_alive
        self.fast_adds = FastAdds(bookie, frame_bytes_max=frame_bytes_max)
        self.stats = bookie.stats
        self.tls, self.tls_required, self.auth = tls, tls_required, auth
        self.refusals = Refusals(clock)
        self.login_delays = LoginDelays(clock)
        self.fast_reads = FastReads(bookie.storages, bookie.stats)
        self.backpressure = Backpressure(
            self.limits,
            clock,
            lambda: bookie.storages.unwritten_bytes,
            pause=self._pause_all,
            resume=self._resume_all,
        )
        self._paused_ns = 0
        self.half_frames = FrameRoom(
            clock,
            bytes_max=self.limits.half_frames_bytes_max,
            is_reading=lambda: not self.backpressure.is_paused,
        )
        self.unsent = UnsentAnswers(clock, bytes_max=self.limits.unsent_bytes_max)
        self.connections: set[BookieConnection] = set()
        self.connections_broken = 0
        """How many ended without an end: reset, or given up by the system for silence."""
        self.reads_pending = 0
        self.connections_max = connections_max
        self.address_connections_max = address_connections_max
        self._by_group: Counter[str] = Counter()
        self.hits = LimitHits(clock, MEANINGS)
        self._watch = Watch(clock, patience or Patience(), lambda: self.connections)
        self._is_in_group = False
        self._unflushed: list[BookieConnection] = []
        self._drained: Deferred[None] | None = None
        self._cut: IDelayedCall | None = None

    def buildProtocol(self, addr: IAddress | None) -> BookieConnection | None:
        """Accept a client; while draining, or beyond a limit, it is turned away at once."""
        host = str(getattr(addr, "host", ""))
        if self._drained is not None or self._refuses(host):
            return None
        return BookieConnection(self)

    def _refuses(self, host: str) -> bool:
        if _is_full(len(self.connections), self.connections_max):
            self.hits.hit(Limit.CONNECTIONS, host, f"{len(self.connections)} are open")
        elif _is_full(self._by_group[group_of(host)], self.address_connections_max):
            open_now = self._by_group[group_of(host)]
            self.hits.hit(Limit.ADDRESS, host, f"{open_now} of {group_of(host)} are open")
        else:
            return False
        return True

    def bound(
        self,
        limits: Limits,
        patience: Patience,
        *,
        connections_max: int | None,
        address_connections_max: int | None,
    ) -> None:
        """Take other limits from now on; connections that are there stay."""
        self.limits = self.backpressure.limits = limits
        self.half_frames.bytes_max = limits.half_frames_bytes_max
        self.unsent.bytes_max = limits.unsent_bytes_max
        self.connections_max = connections_max
        self.address_connections_max = address_connections_max
        self._watch.take(patience)

    def on_synced(self, done: Iterable[Callable[[], object]]) -> None:
        """Tell everyone whose records a journal group has made durable; one write a connection."""
        self._is_in_group = True
        try:
            for each in done:
                self._tell(each)
        finally:
            self._is_in_group = False
        unflushed, self._unflushed = self._unflushed, []
        for connection in unflushed:
            connection.flush()

    def refuses_read(self, waiting: int) -> bool:
        """Whether a read that needs the disk is refused to a client of which so many wait."""
        if self.reads_pending < self.limits.reads_pending_max or waiting < READS_FREE:
            return False
        self.hits.hit(Limit.READS)
        return True

    @property
    def held_back(self) -> int:
        """How many clients are not read, for too much is under way."""
        return len(self.connections) if self.backpressure.is_paused else 0

    def _tell(self, done: Callable[[], object]) -> None:
        try:
            done()
        except Exception:  # noqa: BLE001 -- one client's trouble is not the others'
            log.failure("an answer could not be given")

    def flush_soon(self, connection: BookieConnection) -> None:
        """Send what ``connection`` has gathered, at the end of the journal group if in one."""
        if self._is_in_group:
            self._unflushed.append(connection)
        else:
            connection.flush()

    def drain(self, timeout_s: float) -> Deferred[None]:
        """Take no more requests, answer those there are, close; cut what takes too long.

        Long polls are dropped. The caller has closed the port already.
        """
        if self._drained is None:
            self._drained = Deferred()
            self._cut = self.clock.callLater(timeout_s, self._cut_all)
            for connection in list(self.connections):
                connection.drain()
        if not self.connections:
            self._finish_draining()
        return self._drained

    def connection_made(self, connection: BookieConnection, host: str) -> None:
        """Take a connection in."""
        self.connections.add(connection)
        self._by_group[group_of(host)] += 1
        self._watch.begin()

    def connection_lost(self, connection: BookieConnection, host: str) -> None:
        """Forget a connection."""
        self.connections.discard(connection)
        group = group_of(host)
        self._by_group[group] -= 1
        if not self._by_group[group]:
            del self._by_group[group]
        if not self.connections:
            self._watch.end()
        if self._drained is not None and not self.connections:
            self._finish_draining()

    def _finish_draining(self) -> None:
        if self._cut is not None and self._cut.active():
            self._cut.cancel()
        if self._drained is not None and not self._drained.called:
            self._drained.callback(None)

    def _cut_all(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    def _pause_all(self) -> None:
        self.hits.hit(Limit.IN_FLIGHT)
        self._paused_ns = self.stats.now_ns()
        for connection in self.connections:
            connection.update_reading()

    def _resume_all(self) -> None:
        self.stats.blocked_wait.note(self.stats.since_us(self._paused_ns))
        for connection in list(self.connections):
            connection.update_reading()


def _is_full(count: int, count_max: int | None) -> bool:
    return count_max is not None and count >= count_max


class _Reply:
    """Where the answer to one request goes. Called with it, once."""

    __slots__ = (
        "_connection",
        "_reply_to",
        "_size_bytes",
        "adds",
        "began_ns",
        "is_given",
        "operation",
    )

    def __init__(
        self, connection: BookieConnection, received: Received, size_bytes: int, began_ns: int
    ) -> None:
        self._connection, self._reply_to = connection, received.reply_to
        self._size_bytes = size_bytes
        self.adds = 1 if isinstance(received.request, AddRequest) else 0
        self.operation, self.began_ns = operation_of(received.request), began_ns
        self.is_given = False

    def __call__(self, answer: Answer) -> None:
        self._connection.answered(self, answer, self._reply_to)

    def settle(self, backpressure: Backpressure) -> None:
        assert not self.is_given, "two answers to one request"
        self.is_given = True
        backpressure.answered(self._size_bytes, self.adds)


@implementer(IPushProducer, IHandshakeListener)
class BookieConnection(Protocol):
    """One client. Frames are taken off in order; answers come when they are ready.

    Reading stops while the client does not take its answers (more than the transport's 64 KiB wait
    to be sent), while the bookie as a whole has too much in flight, and for good once the framing
    is broken. Adds are answered in the order they came, as their journal syncs them.

    From the answer to START_TLS to the end of the handshake nothing goes out but the handshake.
    """

    def __init__(self, server: BookieServer) -> None:
        self._server, self._bookie = server, server.bookie
        self._backpressure = server.backpressure
        self._fast_adds, self._fast_reads = server.fast_adds, server.fast_reads
        self._add_took = server.stats.requests[ADD].success
        self._wire = ServerConnection(frame_bytes_max=server.frame_bytes_max)
        # What has come of a frame that is not all there, and how long that frame is; also whole
        # frames, while the client does not take its answers.
        self._rest: list[bytes] = []
        self._rest_bytes = self._frame_bytes = 0
        self._out: list[bytes] = []
        self._out_bytes = self._out_answers = 0
        self._unanswered = 0
        self._polls: dict[_Reply, Cancel] = {}
        self._reads: set[_Reply] = set()
        self._lanes = ReadLanes(
            server.run_blocking,
            self._may_fetch,
            self._fetch_failed,
            server.stats,
            self._fetch_settled,
        )
        self._cut: IDelayedCall | None = None
        self._is_corked = self._is_closing = self._is_lost = self._is_draining = False
        self._output_is_full = self._is_stopped = False
        self._is_reading = True
        self._upgrade: Upgrade | None = None
        self._gate: Gate | None = None
        self._host = ""
        self._waiting = Waiting(server.clock.seconds())

    # Called by the transport -------------------------------------------------------------------

    def connectionMade(self) -> None:
        """Start serving a client."""
        transport = self._transport()
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
            self._transport().bufferSize = READ_BYTES  # Of Twisted's own transports alone.
            transport.setTcpKeepAlive(self._server.tcp_keep_alive)
        transport.registerProducer(self, True)
        server = self._server
        self._host = str(getattr(transport.getPeer(), "host", ""))
        self._stand_before(self._tls_gate() if server.tls_required else self._name_gate())
        server.connection_made(self, self._host)
        self.update_reading()

    def dataReceived(self, data: bytes) -> None:
        """Obey the frames that are whole now."""
        if self._is_closing:
            return
        self._waiting.heard_s = self._server.clock.seconds()
        if self._rest:
            self._rest.append(data)
            self._rest_bytes += len(data)
            if self._rest_bytes < self._frame_bytes:
                self._server.half_frames.note(self, self._rest_bytes)
                return
            data = b"".join(self._rest)
        self._obey(data)

    def handshakeCompleted(self) -> None:  # noqa: N802 - Twisted's.
        """Go on in TLS."""
        assert self._upgrade is not None
        self._upgrade.completed()
        if self._gate is not None:
            self._gate.tls_began(self._upgrade.end.peer_certificate())
            self._pass_gate()
        self.flush()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Drop what nobody will hear; adds under way are stored all the same."""
        if not (self._is_closing or reason.check(ConnectionDone)):
            self._server.connections_broken += 1
        self._is_lost = self._is_closing = True
        if self._upgrade is not None:
            self._upgrade.lost(reason.value)
        if self._cut is not None and self._cut.active():
            self._cut.cancel()
        self._rest, self._out = [], []
        self._server.half_frames.release(self)
        self._server.unsent.taken(self)
        self._drop_polls()
        self._lanes.close()
        self._server.reads_pending -= len(self._reads)
        for reply in self._reads:
            self._settle(reply)
        self._reads.clear()
        self._server.connection_lost(self, self._host)

    def pauseProducing(self) -> None:
        """Stop making answers: the client does not take them as fast as we do."""
        self._output_is_full = True
        self._waiting.answer_s = self._server.clock.seconds()
        self.update_reading()

    def resumeProducing(self) -> None:
        """Go on with what had to wait."""
        self._output_is_full = False
        self._waiting.answer_s = None
        self._server.unsent.taken(self)
        self._go_on()

    def _go_on(self) -> None:
        """Take up what had to wait."""
        self._is_stopped = False
        if self._rest and self._rest_bytes >= self._frame_bytes and not self._is_ending:
            self._obey(b"".join(self._rest))
        self._lanes.start()
        self.update_reading()

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    # Called by the server and its parts --------------------------------------------------------

    def update_reading(self) -> None:
        """Read from the client, or not, as things stand."""
        server = self._server
        is_paused = (
            self._output_is_full
            or self._is_stopped
            or self._backpressure.is_paused
            or server.half_frames.is_waiting(self)
        )
        wanted = not (is_paused or self._is_ending)
        self._waiting.is_read = wanted
        if wanted != self._is_reading:
            self._is_reading = wanted
            transport = self._transport()
            transport.resumeProducing() if wanted else transport.pauseProducing()

    @property
    def waiting(self) -> Waiting:
        """For how long it keeps the bookie waiting."""
        self._waiting.is_idle = not (self._unanswered or self._rest_bytes)
        if not self._rest_bytes:
            self._waiting.frame_s = None
        if self._gate is None:
            self._waiting.stranger_s = None
        elif self._waiting.stranger_s is None:
            self._waiting.stranger_s = self._server.clock.seconds()
        return self._waiting

    @property
    def _is_ending(self) -> bool:
        return self._is_closing or self._is_draining

    def answered(self, reply: _Reply, answer: Answer, reply_to: ReplyTo) -> None:
        """Send an answer, or queue it if it needs the disk or must not overtake one that does."""
        if self._is_closing:
            self._settle(reply)
            return
        if isinstance(answer, DiskRead) and self._server.refuses_read(len(self._reads)):
            answer = answer.failed(ReturnCode.ETOOMANYREQUESTS)
        self._polls.pop(reply, None)
        ledger_id = answer.ledger_id if hasattr(answer, "ledger_id") else LedgerId(0)
        waits = reply_to.operation in _IN_ORDER and self._lanes.is_waiting(ledger_id)
        if not (waits or isinstance(answer, DiskRead)):
            self._send(reply, reply_to, answer)
            return
        self._reads.add(reply)
        self._server.reads_pending += 1
        self._lanes.put(ledger_id, answer, partial(self._read_done, reply, reply_to))
        if not self._is_corked:
            self._lanes.start()

    def adds_synced(self, responses: bytes, size_bytes: int, adds: int, began_ns: int) -> None:
        """Send the prebuilt answers to a batch of adds that is durable now."""
        stats = self._server.stats
        self._add_took.note((stats.now_ns() - began_ns) // 1000, adds)
        self._backpressure.answered(size_bytes, adds)
        self._out_answers += adds
        self._put_out(responses)
        self._count_answer()

    def flush(self) -> None:
        """Hand all gathered answers to the transport."""
        if self._out and not self._is_lost and not self._is_upgrading:
            out, size_bytes = self._out, self._out_bytes
            stats, answers = self._server.stats, self._out_answers
            self._out, self._out_bytes, self._out_answers = [], 0, 0
            began_ns = stats.now_ns()
            self._transport().writeSequence(out)
            stats.channel_write.success.note((stats.now_ns() - began_ns) // 1000, answers)
            stats.packets_sent += answers
            if self._output_is_full:
                self._server.unsent.add(self, size_bytes)

    def drain(self) -> None:
        """Take no more requests and close once the last is answered."""
        self._is_draining = True
        self._drop_polls()
        self.update_reading()
        if self._unanswered == 0:
            self._close()

    def time_is_up(self, limit: Limit) -> None:
        """Cut the connection for what it does not do; a silent one is closed in order."""
        if self._is_closing:
            return
        self._server.hits.hit(limit, self._host)
        self._close() if limit is Limit.IDLE else self.abort()

    def abort(self) -> None:
        """Cut the connection, whatever is still to be sent."""
        self._is_closing = True
        self._transport().abortConnection()

    # In ----------------------------------------------------------------------------------------

    def _obey(self, data: bytes) -> None:
        self._is_corked = True
        try:
            self._take_frames(data)
        except TlsOrderError as error:
            server = self._server
            refuse_tls(server.stats, server.refusals.tell, host_of(self._transport()), error)
            self._close()
        except RemoteProtocolError as error:
            self._server.hits.hit(Limit.FRAME, self._host, error)
            self._close()
        except Exception:  # noqa: BLE001 -- a bug met by one client must not stop the others
            log.failure("closing {peer}", peer=self._transport().getPeer())
            self._close()
        finally:
            self._is_corked = False
        self.flush()
        self._lanes.start()
        if self._upgrade is not None and not self._is_closing:
            self._upgrade.go_on()

    def _take_frames(self, data: bytes) -> None:
        at, end = 0, len(data)
        if self._frame_bytes:
            self._frame_bytes = 0
            self._server.half_frames.release(self)
        while not (self._output_is_full or self._is_closing or self._lanes.is_full):
            begin = at
            if self._is_upgrading:
                if data.startswith(TLS_BEGIN[:1], at):
                    self._upgrade_with(data[at:])
                    return
            elif self._gate is None:
                at = self._take_reads(data, self._take_adds(data, at))
            if end - at < _LENGTH.size:
                break
            frame_bytes = _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            if end - at < frame_bytes <= self._wire.frame_bytes_max:
                self._frame_bytes = frame_bytes
                self._server.half_frames.note(self, end - at)
                break
            if at > begin:
                continue  # What follows may be plain too, but of another kind or journal.
            # A length that is too large or negative goes there as well, to be refused.
            self._handle(data[at : at + max(frame_bytes, _LENGTH.size)])
            at += frame_bytes
        self._is_stopped = self._lanes.is_full
        self._rest = [data[at:]] if at < end else []
        self._rest_bytes = end - at
        self._note_rest(is_new=at > 0)
        if self._is_stopped:
            self.update_reading()

    def _note_rest(self, *, is_new: bool) -> None:
        """Count what is left: whole frames behind answers not taken, or the begin of a frame."""
        waiting = self._waiting
        if not self._rest_bytes or self._output_is_full or self._is_stopped:
            waiting.frame_s = None
            if self._rest_bytes and self._output_is_full:
                self._server.unsent.add(self, self._rest_bytes)
        elif is_new or waiting.frame_s is None:
            waiting.frame_s = waiting.heard_s

    def _take_adds(self, data: bytes, at: int) -> int:
        after, adds = self._fast_adds.take(data, at, self.adds_synced)
        if adds:
            self._unanswered += 1
            self._backpressure.received(after - at, adds)
        return after

    def _take_reads(self, data: bytes, at: int) -> int:
        after, answers, reads = self._fast_reads.take(data, at, self._lanes.is_waiting, WRITE_BYTES)
        if answers:
            self._out_answers += reads
            self._put_out(*answers)
        return after

    def _handle(self, frame: bytes) -> None:
        self._wire.receive_data(frame)
        received = self._wire.next_event()
        if not isinstance(received, Received):
            raise RemoteProtocolError("a malformed frame")
        if self._upgrade is not None and not self._upgrade.is_over:
            self._upgrade.insist_allowed(received.request)
        reply = _Reply(self, received, len(frame), self._server.stats.now_ns())
        self._unanswered += 1
        self._backpressure.received(len(frame), reply.adds)
        try:
            cancel = self._answer(received, reply)
        except BaseException:
            if not reply.is_given:
                self._settle(reply)  # Nothing else will: the connection is about to be closed.
            raise
        if cancel is not None and not reply.is_given:
            self._polls[reply] = cancel

    def _answer(self, received: Received, reply: _Reply) -> Cancel | None:
        request, server, gate = received.request, self._server, self._gate
        begins_tls = isinstance(request, StartTlsRequest)
        if begins_tls and server.tls is not None:
            server.stats.packets_received += 1
            self._offer_tls(reply, received.reply_to, server.tls)
            return None
        if gate is not None and not begins_tls:
            server.stats.packets_received += 1
            return self._ask_gate(gate, received, reply)
        refused_before = server.stats.keys_refused
        cancel = self._bookie.handle(request, received.reply_to, reply)
        server.stats.handled(request, reply.began_ns)
        if server.stats.keys_refused != refused_before:
            self._tell_of_wrong_key(request)
        return cancel

    def _tell_of_wrong_key(self, request: Any) -> None:
        why = f"it does not give the password that ledger {request.ledger_id} was made with"
        self._server.refusals.tell(host_of(self._transport()), "key", why)

    # Who it is, and TLS ------------------------------------------------------------------------

    def _ask_gate(self, gate: Gate, received: Received, reply: _Reply) -> Cancel | None:
        """Answer a client that has not shown who it is, later where its address guesses."""
        wait_s = gate.wait_s(received.request)
        if not wait_s:
            self._answer_of_gate(gate, received, reply)
            return None
        late = self._server.clock.callLater(wait_s, self._answer_late, gate, received, reply)
        return late.cancel

    def _answer_late(self, gate: Gate, received: Received, reply: _Reply) -> None:
        self._polls.pop(reply, None)
        self._answer_of_gate(gate, received, reply)
        self.flush()

    def _answer_of_gate(self, gate: Gate, received: Received, reply: _Reply) -> None:
        verdict = gate.judge(received.request, received.reply_to)
        self._pass_gate()
        if verdict.response is None:
            self._settle(reply)
        else:
            self._send(reply, received.reply_to, verdict.response)
        if verdict.closes:
            self._close()

    def _name_gate(self) -> Gate | None:
        server, host = self._server, host_of(self._transport())
        if server.auth is None:
            return None
        stats, tell = server.stats, server.refusals.tell
        return NameGate(server.auth.begin(), stats, host, tell, server.login_delays)

    def _tls_gate(self) -> Gate:
        server = self._server
        return TlsGate(server.stats, host_of(self._transport()), server.refusals.tell)

    def _pass_gate(self) -> None:
        if self._gate is not None and self._gate.is_open:
            self._stand_before(None)

    def _stand_before(self, gate: Gate | None) -> None:
        """Have a gate before the client, or none; strangers get short frames."""
        self._gate = gate
        largest = self._server.frame_bytes_max
        self._wire.frame_bytes_max = (
            largest if gate is None else min(largest, STRANGER_FRAME_BYTES_MAX)
        )

    @property
    def _is_upgrading(self) -> bool:
        return self._upgrade is not None and not self._upgrade.is_over

    def _offer_tls(self, reply: _Reply, reply_to: ReplyTo, tls: TlsContexts) -> None:
        """Agree to START_TLS, in clear, and wait for the first record.

        Whatever was shown before is forgotten: somebody on the way could have shown it.
        """
        if self._upgrade is not None:
            raise TlsOrderError("START_TLS twice")
        self._send(reply, reply_to, StartTlsResponse(ReturnCode.EOK))
        self.flush()
        server = self._server
        self._stand_before(self._name_gate())
        tell = server.refusals.tell
        self._upgrade = Upgrade(tls.end(), self._transport(), server.clock, server.stats, tell)

    def _upgrade_with(self, data: bytes) -> None:
        """Have the handshake begin with ``data``, once nobody is busy with what came before it."""
        assert self._upgrade is not None
        self._rest, self._rest_bytes = [], 0
        self._upgrade.begin(data)

    # Out ---------------------------------------------------------------------------------------

    def _send(self, reply: _Reply, reply_to: ReplyTo, response: Response) -> None:
        encode = (
            v3.encode_response if reply_to.version is ProtocolVersion.V3 else v2.encode_response
        )
        try:
            self._out_answers += 1
            self._put_out(encode(response, reply_to))
            self._server.stats.answered(reply.operation, response, reply.began_ns)
        except LocalProtocolError:
            log.failure("no answer to {reply_to}", reply_to=reply_to)
            self._close()
        self._settle(reply)

    def _put_out(self, *frames: bytes) -> None:
        if self._is_closing:
            return
        is_first = not self._out
        self._out += frames
        self._out_bytes += sum(map(len, frames))
        if self._out_bytes >= WRITE_BYTES:
            self.flush()
        elif is_first and not self._is_corked:
            self._server.flush_soon(self)

    def _read_done(self, reply: _Reply, reply_to: ReplyTo, response: Response) -> None:
        self._reads.discard(reply)
        self._server.reads_pending -= 1
        self._send(reply, reply_to, response)

    def _may_fetch(self) -> bool:
        return not (self._output_is_full or self._is_closing)

    def _fetch_settled(self) -> None:
        """Go on with the requests that were left for too many answers waited already."""
        if self._is_stopped and not (self._lanes.is_full or self._output_is_full or self._is_lost):
            self._go_on()

    def _fetch_failed(self, failure: Failure) -> None:
        log.failure("closing {peer}", failure, peer=self._transport().getPeer())
        self._close()

    def _settle(self, reply: _Reply) -> None:
        reply.settle(self._backpressure)
        self._count_answer()

    def _count_answer(self) -> None:
        self._unanswered -= 1
        if self._is_draining and self._unanswered == 0 and not self._is_closing:
            self._close()

    def _drop_polls(self) -> None:
        for reply, cancel in self._polls.items():
            cancel()
            self._settle(reply)
        self._polls.clear()

    def _close(self) -> None:
        """Send what has been answered, then close; cut if the client does not take it."""
        if self._is_closing:
            return
        self.flush()
        self._is_closing = True
        self._rest = []
        self.update_reading()
        transport = self._transport()
        transport.unregisterProducer()
        transport.loseConnection()
        if self._upgrade is not None and self._upgrade.is_over:
            # The end of TLS is an exchange: whoever does not read waits for its answer in vain.
            transport.resumeProducing()
        self._cut = self._server.clock.callLater(CLOSE_S, transport.abortConnection)

    def _transport(self) -> Any:
        """Return what is ITransport, IConsumer, IPushProducer and mostly ITCPTransport in one."""
        return self.transport
