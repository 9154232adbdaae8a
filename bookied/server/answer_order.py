"""The requests of one client that are not answered yet, and the order of their answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from twisted.logger import Logger
from twisted.python.failure import Failure

from bookied.server.answer_buffer import AnswerBuffer
from bookied.server.limits.backpressure import ConnectionLoad
from bookied.server.reads.reads_from_disk import DiskReadQueues
from bookied.server.rules.answer_from_disk import Answer, DiskRead
from bookied.server.rules.long_poll import Cancel
from bookied.server.shared_by_connections import ServerContext
from bookied.stats.metrics import ADD, operation_of
from wire.codes import Operation, ProtocolVersion, ReturnCode
from wire.errors import LocalProtocolError
from wire.frames import v2, v3
from wire.ids import LedgerId
from wire.messages import AddRequest, ReceivedRequest, Response

REQUEST_BYTES: Final = 1024
"""Bytes that a request occupies besides its own while it waits for its answer."""

DROPPED_AT_ONCE: Final = 64
"""Unanswered requests of a lost client that one turn of the reactor drops: 0.6 ms."""

_IN_ORDER: Final = frozenset({Operation.READ_ENTRY, Operation.BATCH_READ_ENTRY})

log = Logger()


class Reply:
    """The receiver of the answer to one request. Call it once, with the answer."""

    __slots__ = ("_replies", "adds", "began_ns", "is_given", "operation", "reply_to", "size_bytes")

    def __init__(
        self, replies: Replies, received: ReceivedRequest, size_bytes: int, began_ns: int
    ) -> None:
        self._replies, self.reply_to = replies, received.reply_to
        self.size_bytes = size_bytes
        self.adds = 1 if isinstance(received.request, AddRequest) else 0
        self.operation, self.began_ns = operation_of(received.request), began_ns
        self.is_given = False

    def __call__(self, answer: Answer) -> None:
        self._replies.answer(self, answer)


class Replies:
    """The requests of one client that are not answered yet.

    Answers are sent when they are ready. Only reads of one ledger keep their order, and some of
    these need the disk first (``DiskReadQueues``). ``begin`` counts a request as in flight;
    ``settle`` counts it out exactly once, with an answer or without.
    """

    def __init__(
        self,
        shared: ServerContext,
        answers: AnswerBuffer,
        load: ConnectionLoad,
        *,
        fetched: Callable[[], None],
        failed: Callable[[Failure], None],
        close: Callable[[], object],
        finished: Callable[[], object],
    ) -> None:
        """Begin without requests.

        Args:
            shared: the limits of all connections.
            answers: the buffer for the answers.
            load: the requests in flight of this client.
            fetched: called when a disk fetch has ended.
            failed: gets the reason why a disk read failed; the connection must be closed.
            close: closes the connection.
            finished: called when no request waits for an answer any more.
        """
        self._clock, self._stats = shared.clock, shared.stats
        self._backpressure = shared.backpressure
        self._pending_reads, self._answers = shared.pending_reads, answers
        self._load = load
        self._close, self._finished = close, finished
        self._add_took = shared.stats.requests[ADD].success
        self._polls: dict[Reply, Cancel] = {}
        self._reads: set[Reply] = set()
        self.lanes = DiskReadQueues(
            shared.run_blocking,
            shared.run_long,
            shared.turns,
            self._may_fetch,
            failed,
            shared.stats,
            fetched,
        )
        self.count = 0
        """Number of requests, or batches of adds, that wait for their answer."""

    def begin(self, received: ReceivedRequest, size_bytes: int) -> Reply:
        """Count a request as in flight; return the receiver of its answer."""
        size_bytes += REQUEST_BYTES
        reply = Reply(self, received, size_bytes, self._stats.now_ns())
        self.count += 1
        self._backpressure.received(self._load, size_bytes, reply.adds)
        return reply

    def begin_adds(self, size_bytes: int, adds: int) -> None:
        """Count a batch of adds as in flight; ``adds_synced`` answers the batch."""
        self.count += 1
        self._backpressure.received(self._load, size_bytes, adds)

    def drop_adds(self, size_bytes: int, adds: int) -> None:
        """Count out a batch of adds that cannot be stored, and close the connection."""
        self._backpressure.answered(self._load, size_bytes, adds)
        self.count -= 1
        self._close()

    def keep_poll(self, reply: Reply, cancel: Cancel) -> None:
        """Store the function that cancels a waiting request."""
        self._polls[reply] = cancel

    def adds_synced(self, responses: bytes, size_bytes: int, adds: int, began_ns: int) -> None:
        """Send the prebuilt answers to a batch of adds that is durable."""
        self._add_took.note((self._stats.now_ns() - began_ns) // 1000, adds)
        self._backpressure.answered(self._load, size_bytes, adds)
        self._answers.put((responses,), adds)
        self.count -= 1
        if not self.count:
            self._finished()

    def answer(self, reply: Reply, answer: Answer) -> None:
        """Send an answer; queue it if it needs the disk or must not overtake another that does."""
        self.forget_poll(reply)
        if self._answers.is_closed:
            self.settle(reply)
            return
        if isinstance(answer, DiskRead) and self._pending_reads.refuses(len(self._reads)):
            answer = answer.failed(ReturnCode.ETOOMANYREQUESTS)
        ledger_id = answer.ledger_id if hasattr(answer, "ledger_id") else LedgerId(0)
        waits = reply.reply_to.operation in _IN_ORDER and self.lanes.is_waiting(ledger_id)
        if not (waits or isinstance(answer, DiskRead)):
            self.send(reply, answer)
            return
        self._reads.add(reply)
        self._pending_reads.count += 1
        self.lanes.put(ledger_id, answer, partial(self._read_done, reply))
        if not self._answers.is_corked:
            self.lanes.start()

    def send(self, reply: Reply, response: Response) -> None:
        """Send an answer now."""
        reply_to = reply.reply_to
        try:
            if reply_to.version is ProtocolVersion.V3:
                frames: tuple[bytes, ...] = (v3.encode_response(response, reply_to),)
            else:
                frames = v2.encode_frames(response, reply_to)
            self._answers.put(frames, 1)
            self._stats.answered(reply.operation, response, reply.began_ns)
        except LocalProtocolError:
            log.failure("no answer to {reply_to}", reply_to=reply_to)
            self._close()
        self.settle(reply)

    def forget_poll(self, reply: Reply) -> None:
        """Remove the cancel function of a request that is being answered."""
        self._polls.pop(reply, None)

    def settle(self, reply: Reply) -> None:
        """Count out a request that was answered or will not be answered."""
        assert not reply.is_given, "two answers to one request"
        reply.is_given = True
        self._backpressure.answered(self._load, reply.size_bytes, reply.adds)
        self.count -= 1
        if not self.count:
            self._finished()

    def _read_done(self, reply: Reply, response: Response) -> None:
        self._reads.discard(reply)
        self._pending_reads.count -= 1
        self.send(reply, response)

    def _may_fetch(self) -> bool:
        return not (self._answers.is_stalled or self._answers.is_closed)

    def drop_polls(self) -> None:
        """Cancel the waiting requests without an answer, ``DROPPED_AT_ONCE`` in each turn."""
        for _ in range(min(DROPPED_AT_ONCE, len(self._polls))):
            reply, cancel = self._polls.popitem()  # The last ones are cheapest to cancel.
            cancel()
            self.settle(reply)
        if self._polls:
            self._clock.callLater(0, self.drop_polls)

    def drop(self) -> None:
        """Send no more answers: the connection is lost. Adds are still stored."""
        self.drop_polls()
        self.lanes.close()
        self._drop_reads()

    def _drop_reads(self) -> None:
        for _ in range(min(DROPPED_AT_ONCE, len(self._reads))):
            self._pending_reads.count -= 1
            self.settle(self._reads.pop())
        if self._reads:
            self._clock.callLater(0, self._drop_reads)
