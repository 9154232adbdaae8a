"""The connection of one client, as Twisted sees it: when it is read and when it is closed."""

from __future__ import annotations

from functools import partial
from typing import Any, Final
from typing import Protocol as Interface

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IDelayedCall,
    IHalfCloseableProtocol,
    IHandshakeListener,
    IPushProducer,
    ITCPTransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from bkclient.concurrency import cancel
from bookied.server.answer_buffer import AnswerBuffer
from bookied.server.answer_order import Replies
from bookied.server.client_transport import IN_PIECES_BYTES
from bookied.server.frame_dispatch import FrameDispatch
from bookied.server.limits.backpressure import ConnectionLoad
from bookied.server.limits.limit_hits import Limit
from bookied.server.limits.request_turns import SLICE_REQUESTS
from bookied.server.limits.timeouts import WaitTimes
from bookied.server.reads.reads_from_disk import BATCH_MAX
from bookied.server.shared_by_connections import ServerContext
from bookied.server.tls_and_login import Admission
from wire.errors import RemoteProtocolError, TlsOrderError
from wire.framing import ServerConnection

CLOSE_S: Final = 5.0
"""Seconds that a client has to read its last answers before the connection is cut."""

HELD_BYTES_MAX: Final = 4096
"""A client that has sent no more is still read while it waits for its turn: a pause costs more."""

log = Logger()


class ConnectionOwner(Interface):
    """The registry of the connections, which also flushes their answers: ``BookieServer``."""

    def connection_made(self, connection: BookieConnection, host: str) -> None:
        """Register a connection."""

    def connection_lost(self, connection: BookieConnection, host: str, *, broken: bool) -> None:
        """Remove a connection; ``broken`` if the client did not close it in order."""

    def flush_soon(self, answers: AnswerBuffer) -> None:
        """Flush at the end of the current journal group, or now if there is no group."""


@implementer(IPushProducer, IHandshakeListener, IHalfCloseableProtocol)
class BookieConnection(Protocol):
    """The connection of one client. Frames are handled in order; answers are sent when ready.

    Reading stops while the client does not read its answers (more than the transport's 64 KiB wait
    to be sent) and while the whole bookie has too much in flight. After a broken frame it stops for
    good. Adds are answered in order of arrival, as their journal syncs them.

    After the answer to START_TLS, no answer is sent before the handshake has ended. A client that
    closes its half of the connection still gets its answers, except those to long polls.
    """

    def __init__(self, shared: ServerContext, owner: ConnectionOwner) -> None:
        self._shared, self._owner = shared, owner
        framing = ServerConnection(frame_bytes_max=shared.frame_bytes_max)
        self._answers = AnswerBuffer(
            shared.stats, flush_soon=owner.flush_soon, stalled=partial(shared.unsent.add, self)
        )
        self._load = ConnectionLoad(self.update_reading)
        self._replies = Replies(
            shared,
            self._answers,
            self._load,
            fetched=self._fetched,
            failed=self._fail,
            close=self._close,
            finished=self._close_if_done,
        )
        self._admission = Admission(shared, framing)
        self._dispatch = FrameDispatch(
            shared,
            self,
            framing,
            admission=self._admission,
            answers=self._answers,
            replies=self._replies,
            close=self._close,
        )
        self._cut: IDelayedCall | None = None
        self._is_closing = self._is_lost = self._is_draining = self._is_ended = False
        self._is_reading = True
        self._turns = 0  # Turns since the last start of disk reads.
        self._host = ""
        self._reader: Any = None

    # Called by the transport -------------------------------------------------------------------

    def connectionMade(self) -> None:
        """Begin to serve the client."""
        self._reader = transport = self._transport()
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
            transport.setTcpKeepAlive(self._shared.tcp_keep_alive)
        transport.registerProducer(self, True)
        self._host = str(getattr(transport.getPeer(), "host", ""))
        self._answers.begin(transport.writeSequence)
        self._admission.begin(transport)
        self._load.address = self._admission.address
        self._shared.backpressure.begin(self._load)
        self._owner.connection_made(self, self._host)
        self.update_reading()

    def dataReceived(self, data: bytes) -> None:
        """Handle the frames that are complete now."""
        if self._is_closing:
            return
        turns, dispatch = self._shared.turns, self._dispatch
        dispatch.waiting.heard_s = self._shared.clock.seconds()
        if turns.is_crowded and dispatch.hold(data):
            wait = turns.wait_in_crowd if dispatch.holds_few else turns.wait
            wait(self, self._admission.address)
            if len(data) > HELD_BYTES_MAX:
                self.update_reading()
            return
        self._obey(data, turns.slice_requests)
        if dispatch.requests_taken:
            turns.take_directly(dispatch.requests_taken)
        if self._load.adds:
            self._update_read_size()
        if dispatch.has_rest and not self._is_lost:  # Pieces do not delay complete requests.
            self._reader.read_bytes = max(len(data), IN_PIECES_BYTES)
        if not dispatch.is_waiting:
            turns.others_ask()

    def handshakeCompleted(self) -> None:  # noqa: N802 - Twisted's.
        """Continue in TLS."""
        self._answers.is_held = False
        self._admission.handshake_completed()
        self._answers.flush()

    def readConnectionLost(self) -> None:  # noqa: N802 - Twisted's.
        """Answer the received requests, then close: the client sends no more."""
        self._is_ended = True
        self._replies.drop_polls()
        self.update_reading()
        self._close_if_done()

    def writeConnectionLost(self) -> None:  # noqa: N802 - Twisted's.
        """Do nothing: the bookie never closes only its half."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Drop the unsent answers; adds in progress are still stored."""
        broken = not (self._is_closing or self._is_ended or reason.check(ConnectionDone))
        self._is_lost = self._is_closing = True
        self._admission.lost(reason.value)
        cancel(self._cut)
        self._dispatch.drop()
        self._answers.drop()
        self._shared.half_frames.release(self)
        self._shared.unsent.taken(self)
        self._shared.turns.leave(self, self._admission.address)
        self._shared.handshakes.leave(self, self._admission.address)
        self._shared.backpressure.large_adds.leave(self, self._admission.address)
        self._shared.backpressure.end(self._load)
        self._replies.drop()
        self._owner.connection_lost(self, self._host, broken=broken)
        # The remaining objects refer to each other and may wait long for a full garbage collection.
        # A TLS transport has 50 KB, and an error keeps the frames of its traceback.
        self.transport = self._reader = None
        reason.cleanFailure()

    def pauseProducing(self) -> None:
        """Stop making answers: the client reads too slowly."""
        self._answers.is_stalled = True
        self._dispatch.waiting.answer_s = self._shared.clock.seconds()
        self.update_reading()

    def resumeProducing(self) -> None:
        """Continue with the requests that had to wait."""
        self._answers.is_stalled = False
        self._dispatch.waiting.answer_s = None
        self._shared.unsent.taken(self)
        self._go_on()

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    # Called by the server and its parts --------------------------------------------------------

    def update_reading(self) -> None:
        """Start or stop reading from the client, whichever is right now."""
        if self._is_lost:
            return
        shared = self._shared
        self._update_read_size()
        is_paused = (
            self._answers.is_stalled
            or self._dispatch.is_stopped
            or self._dispatch.is_waiting
            or self._load.is_held
            or shared.half_frames.is_waiting(self)
        )
        if self._dispatch.is_waiting and not self._load.is_held:
            self._dispatch.turns.wait(self, self._admission.address)
        wanted = not (is_paused or self._is_closing or self._is_draining or self._is_ended)
        self._dispatch.waiting.is_read = wanted
        if wanted != self._is_reading:
            self._is_reading = wanted
            transport = self._transport()
            transport.resumeProducing() if wanted else transport.pauseProducing()

    def _update_read_size(self) -> None:
        # Only Twisted's transports use ``bufferSize``; in TLS that is the one below ``transport``.
        self._reader.bufferSize = self._shared.backpressure.read_bytes_max(self._load)
        self._reader.shares_turns = self._shared.backpressure.several_add

    def take_turn(self, requests_max: int) -> int:
        """Handle some of the received requests; return how many."""
        if self._is_closing or self._is_draining or self._load.is_held:
            return 0  # When reading resumes, ``update_reading`` queues the connection again.
        self._dispatch.is_waiting = False
        self._go_on(requests_max)
        # A turn with large entries was long, but has ended: no later turns are skipped for it.
        return min(self._dispatch.requests_taken, requests_max)

    @property
    def waiting(self) -> WaitTimes:
        """The times since which the client keeps the bookie waiting."""
        waiting = self._dispatch.waiting
        waiting.is_idle = not (self._replies.count or self._dispatch.has_rest)
        if not self._dispatch.has_rest:
            waiting.frame_s = None
        if self._admission.check is None:
            waiting.unauthenticated_s = None
        elif waiting.unauthenticated_s is None:
            waiting.unauthenticated_s = self._shared.clock.seconds()
        return waiting

    def drain(self) -> None:
        """Accept no more requests; close after the last answer."""
        self._is_draining = True
        self._replies.drop_polls()
        self.update_reading()
        self._close_if_done()

    def time_is_up(self, limit: Limit) -> None:
        """End the connection, which is over ``limit``: close if idle, else cut."""
        if self._is_closing:
            return
        self._shared.hits.hit(limit, self._host)
        self._close() if limit is Limit.IDLE else self.abort()

    def abort(self) -> None:
        """Cut the connection without sending the remaining answers."""
        self._is_closing = self._answers.is_closed = True
        if not self._is_lost:
            self._transport().abortConnection()

    # In and out --------------------------------------------------------------------------------

    def _obey(self, data: bytes = b"", requests_max: int = SLICE_REQUESTS) -> None:
        self._answers.is_corked = True
        unwritten = self._shared.backpressure.begin_read(self._load)
        try:
            self._dispatch.take(data, requests_max=requests_max)
        except TlsOrderError as error:
            self._admission.refuse_tls(error)
            self._close()
        except RemoteProtocolError as error:
            self._shared.hits.hit(Limit.FRAME, self._host, error)
            self._close()
        except Exception:  # noqa: BLE001 -- a bug met by one client must not stop the others
            log.failure("closing the connection of {peer}", peer=self._transport().getPeer())
            self._close()
        finally:
            self._answers.is_corked = False
        self._shared.backpressure.end_read(self._load, unwritten)
        self._answers.flush()
        self._start_fetches()
        if self._answers.is_held and not self._is_closing:
            self._admission.go_on()

    def _go_on(self, requests_max: int = SLICE_REQUESTS) -> None:
        """Continue with the requests that had to wait."""
        intake = self._dispatch
        intake.is_stopped = False
        is_ending = self._is_closing or self._is_draining
        if intake.has_frames and not (intake.is_waiting or is_ending):
            self._obey(requests_max=requests_max)
        self._start_fetches()
        self.update_reading()
        self._close_if_done()

    def _start_fetches(self) -> None:
        """Start the disk reads of the requests so far; if more requests wait, in full batches.

        Start them after ``BATCH_MAX`` turns in any case: a client may send without pause.
        """
        self._turns += 1
        has_more = self._dispatch.is_waiting and self._replies.count < BATCH_MAX
        if not has_more or self._turns >= BATCH_MAX:
            self._turns = 0
            if self._replies.lanes.is_busy:
                self._shared.fast_adds.store()
            self._replies.lanes.start()
            if self._dispatch.is_stopped_for_nothing:
                # All requests were answered at once, so no end of a fetch resumes the connection.
                self._dispatch.is_stopped, self._dispatch.is_waiting = False, True
                self.update_reading()

    def _fetched(self) -> None:
        """Continue with the requests that waited because too many answers were queued."""
        if self._dispatch.is_stopped_for_nothing and not self._is_lost:
            self._go_on()

    def _close_if_done(self) -> None:
        is_over = self._is_draining or (
            self._is_ended
            and not self._dispatch.is_waiting
            and not self._dispatch.is_stopped
            and not self._answers.is_stalled
            and not self._answers.is_corked
        )
        if is_over and not self._replies.count:
            self._close()

    def _fail(self, failure: Failure) -> None:
        log.failure("closing the connection of {host}", failure, host=self._host)
        self._close()

    def _close(self) -> None:
        """Send the answers, then close; cut if the client does not read them."""
        if self._is_closing:
            return
        self._answers.flush()
        self._is_closing = self._answers.is_closed = True
        self._dispatch.drop()
        self.update_reading()
        transport = self._transport()
        transport.unregisterProducer()
        transport.loseConnection()
        if self._admission.is_in_tls:
            # The end of TLS is an exchange: its answer must be read.
            transport.resumeProducing()
        self._cut = self._shared.clock.callLater(CLOSE_S, transport.abortConnection)

    def _transport(self) -> Any:
        """Return the transport: ITransport, IConsumer, IPushProducer and mostly ITCPTransport."""
        return self.transport
