"""One client of a bookie, as Twisted sees it: when it is read, and when it is closed."""

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

from bookied.server.answer_buffer import AnswerBuffer
from bookied.server.answer_order import Replies
from bookied.server.context import ServerContext
from bookied.server.frame_dispatch import FrameDispatch
from bookied.server.limits.backpressure import ConnectionLoad
from bookied.server.limits.limit_hits import Limit
from bookied.server.limits.request_turns import SLICE_REQUESTS
from bookied.server.limits.timeouts import WaitTimes
from bookied.server.reads.reads_from_disk import BATCH_MAX
from bookied.server.tls_and_login import Admission
from wire.errors import RemoteProtocolError, TlsOrderError
from wire.framing import ServerConnection

CLOSE_S: Final = 5.0
"""How long a peer has to take its last answers before the connection is cut."""

HELD_BYTES_MAX: Final = 4096
"""A client that has sent no more waits for its turn and is read meanwhile: a pause costs more."""

log = Logger()


class ConnectionOwner(Interface):
    """Who counts connections and flushes them; ``BookieServer`` is one."""

    def connection_made(self, connection: BookieConnection, host: str) -> None:
        """Take a connection in."""

    def connection_lost(self, connection: BookieConnection, host: str, *, broken: bool) -> None:
        """Forget a connection; ``broken`` where it ended without an end."""

    def flush_soon(self, answers: AnswerBuffer) -> None:
        """Flush at the end of the journal group if in one, else now."""


@implementer(IPushProducer, IHandshakeListener, IHalfCloseableProtocol)
class BookieConnection(Protocol):
    """One client. Frames are taken off in order; answers come when they are ready.

    Reading stops while the client does not take its answers (more than the transport's 64 KiB wait
    to be sent), while the bookie as a whole has too much in flight, and for good once the framing
    is broken. Adds are answered in the order they came, as their journal syncs them.

    From the answer to START_TLS to the end of the handshake nothing goes out but the handshake.
    A client that ends its half of the connection gets its answers, but for long polls.
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
        self._turns = 0  # Since reads from the disk were begun.
        self._host = ""

    # Called by the transport -------------------------------------------------------------------

    def connectionMade(self) -> None:
        """Start serving a client."""
        transport = self._transport()
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
            transport.setTcpKeepAlive(self._shared.tcp_keep_alive)
        transport.registerProducer(self, True)
        self._host = str(getattr(transport.getPeer(), "host", ""))
        self._answers.begin(transport.writeSequence)
        self._admission.begin(transport)
        self._shared.backpressure.begin(self._load)
        self._owner.connection_made(self, self._host)
        self.update_reading()

    def dataReceived(self, data: bytes) -> None:
        """Obey the frames that are complete now."""
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
        if not dispatch.is_waiting:
            turns.others_ask()

    def handshakeCompleted(self) -> None:  # noqa: N802 - Twisted's.
        """Go on in TLS."""
        self._answers.is_held = False
        self._admission.handshake_completed()
        self._answers.flush()

    def readConnectionLost(self) -> None:  # noqa: N802 - Twisted's.
        """Answer what has come, then close: the client sends nothing more."""
        self._is_ended = True
        self._replies.drop_polls()
        self.update_reading()
        self._close_if_done()

    def writeConnectionLost(self) -> None:  # noqa: N802 - Twisted's.
        """Do nothing: the bookie never ends its half alone."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Drop answers that cannot be sent; adds in progress are still stored."""
        broken = not (self._is_closing or self._is_ended or reason.check(ConnectionDone))
        self._is_lost = self._is_closing = True
        self._admission.lost(reason.value)
        if self._cut is not None and self._cut.active():
            self._cut.cancel()
        self._dispatch.drop()
        self._answers.drop()
        self._shared.half_frames.release(self)
        self._shared.unsent.taken(self)
        self._shared.turns.leave(self, self._admission.address)
        self._shared.handshakes.leave(self, self._host)
        self._shared.backpressure.end(self._load)
        self._replies.drop()
        self._owner.connection_lost(self, self._host, broken=broken)
        # What is left of the connection refers to itself, and may wait long for a full collection
        # of garbage. A transport in TLS has 50 KB, and an error has the frames that it passed.
        self.transport = None
        reason.cleanFailure()

    def pauseProducing(self) -> None:
        """Stop making answers: the client does not take them as fast as we do."""
        self._answers.is_stalled = True
        self._dispatch.waiting.answer_s = self._shared.clock.seconds()
        self.update_reading()

    def resumeProducing(self) -> None:
        """Go on with what had to wait."""
        self._answers.is_stalled = False
        self._dispatch.waiting.answer_s = None
        self._shared.unsent.taken(self)
        self._go_on()

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    # Called by the server and its parts --------------------------------------------------------

    def update_reading(self) -> None:
        """Read from the client, or not, as things stand."""
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
            if self._dispatch.is_handshake_next:
                shared.handshakes.wait(self, self._host)
            else:
                shared.turns.wait(self, self._admission.address)
        wanted = not (is_paused or self._is_closing or self._is_draining or self._is_ended)
        self._dispatch.waiting.is_read = wanted
        if wanted != self._is_reading:
            self._is_reading = wanted
            transport = self._transport()
            transport.resumeProducing() if wanted else transport.pauseProducing()

    def _update_read_size(self) -> None:
        # Of Twisted's own transports alone.
        self._transport().bufferSize = self._shared.backpressure.read_bytes_max(self._load)

    def take_turn(self, requests_max: int) -> int:
        """Take some of the requests that are here already; return how many were taken."""
        if self._is_closing or self._is_draining or self._load.is_held:
            return 0  # When reading goes on, ``update_reading`` has the connection wait again.
        self._dispatch.is_waiting = False
        self._go_on(requests_max)
        # No turns are left out after one with large entries: it was long, and has ended.
        return min(self._dispatch.requests_taken, requests_max)

    @property
    def waiting(self) -> WaitTimes:
        """For how long it keeps the bookie waiting."""
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
        """Take no more requests and close once the last is answered."""
        self._is_draining = True
        self._replies.drop_polls()
        self.update_reading()
        self._close_if_done()

    def time_is_up(self, limit: Limit) -> None:
        """Cut the connection for what it does not do; a silent one is closed in order."""
        if self._is_closing:
            return
        self._shared.hits.hit(limit, self._host)
        self._close() if limit is Limit.IDLE else self.abort()

    def abort(self) -> None:
        """Cut the connection, whatever is still to be sent."""
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
        """Take up what had to wait."""
        intake = self._dispatch
        intake.is_stopped = False
        is_ending = self._is_closing or self._is_draining
        if intake.has_frames and not (intake.is_waiting or is_ending):
            self._obey(requests_max=requests_max)
        self._start_fetches()
        self.update_reading()
        self._close_if_done()

    def _start_fetches(self) -> None:
        """Read from the disk what came together; with more to come soon, a full batch at least.

        As many turns later at the latest: a client may always have more to come.
        """
        self._turns += 1
        has_more = self._dispatch.is_waiting and self._replies.count < BATCH_MAX
        if not has_more or self._turns >= BATCH_MAX:
            self._turns = 0
            if self._replies.lanes.is_busy:
                self._shared.fast_adds.store()
            self._replies.lanes.start()
            if self._dispatch.is_stopped_for_nothing:
                # All was answered at once: no fetch ends that would have it go on.
                self._dispatch.is_stopped, self._dispatch.is_waiting = False, True
                self.update_reading()

    def _fetched(self) -> None:
        """Go on with the requests that were left for too many answers waited already."""
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
        """Send what has been answered, then close; cut if the client does not take it."""
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
            # The end of TLS is an exchange: without reading, its answer never comes.
            transport.resumeProducing()
        self._cut = self._shared.clock.callLater(CLOSE_S, transport.abortConnection)

    def _transport(self) -> Any:
        """Return what is ITransport, IConsumer, IPushProducer and mostly ITCPTransport in one."""
        return self.transport
