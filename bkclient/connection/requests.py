"""The unanswered requests of one connection, and the match of answers to requests.

V3 answers are matched by transaction id. V2 has none: answers are matched by the echoed fields, so
a V2 connection may have only requests in flight whose answers differ. The pool therefore sends
fencing reads and recovery adds over V3.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Union

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bkclient.concurrency import KeyedTimers, cancel
from bkclient.errors import ClientError, RequestTimeoutError
from wire.codes import Operation, ProtocolVersion, ReturnCode
from wire.frames.bulk_reads import read_frames_v2, take_reads_v2
from wire.framing import ClientConnection
from wire.ids import BookieId, EntryId, LedgerId
from wire.messages import (
    AddRequest,
    AddResponse,
    Answer,
    AuthRequest,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    WriteLacRequest,
)

BulkAnswer = Union[bytes, Response]
"""The entry packet, or another response."""


class BulkRead:
    """A collection of answers; it fires with those that arrived, when no more can arrive.

    The caller requests missing and refused entries one by one.
    """

    def __init__(self, entries: Sequence[int]) -> None:
        self.deferred: Deferred[dict[int, BulkAnswer]] = Deferred(lambda _: self._stop_timer())
        self.entries = entries
        """The requested entries, each once."""
        self._answers: dict[int, BulkAnswer] = {}
        self._timer: IDelayedCall | None = None

    def wait(self, clock: IReactorTime, timeout_s: float, timed_out: Callable[[], object]) -> None:
        """Wait for answers for a limited time; ``timed_out`` is called if some are missing then."""
        self._timer = clock.callLater(timeout_s, self._expire, timed_out)

    def take(self, entry_id: int, answer: BulkAnswer) -> None:
        """Note the answer for a requested entry."""
        self._answers[entry_id] = answer
        if len(self._answers) == len(self.entries):
            self.finish()

    def finish(self) -> None:
        """Wait for no more answers."""
        self._stop_timer()
        if not self.deferred.called:
            self.deferred.callback(self._answers)

    def _expire(self, timed_out: Callable[[], object]) -> None:
        timed_out()
        self.finish()

    def _stop_timer(self) -> None:
        cancel(self._timer)


OPERATIONS: Final[dict[type, Operation]] = {
    AddRequest: Operation.ADD_ENTRY,
    ReadRequest: Operation.READ_ENTRY,
    BatchReadRequest: Operation.BATCH_READ_ENTRY,
    AuthRequest: Operation.AUTH,
    StartTlsRequest: Operation.START_TLS,
    WriteLacRequest: Operation.WRITE_LAC,
    ReadLacRequest: Operation.READ_LAC,
    ForceLedgerRequest: Operation.FORCE_LEDGER,
    BookieInfoRequest: Operation.GET_BOOKIE_INFO,
    ListEntriesRequest: Operation.GET_LIST_OF_ENTRIES_OF_LEDGER,
}
"""The operation of each request."""

RequestKey = Union[int, tuple[int, int], None]
"""V3: the transaction id. V2: ledger id and entry id, or a batch read's request id negated."""


@attrs.define(eq=False, slots=True)
class SentRequest:
    """An unanswered request."""

    request: Request
    deferred: Deferred[Any]
    timeout_s: float
    due_s: float = 0.0
    """The time after which it is not sent any more, if it has to wait for others."""


class RequestsInFlight:
    """Requests and bulk reads, each sent when its answer cannot be confused with another's."""

    def __init__(
        self,
        clock: IReactorTime,
        bookie_id: BookieId,
        connection: ClientConnection,
        next_txn_id: Callable[[], int],
        write: Callable[[bytes], None],
        timed_out: Callable[[float], None],
    ) -> None:
        """Begin with nothing in flight.

        Args:
            clock: for time-outs.
            bookie_id: the bookie at the other end; for messages only.
            connection: encodes requests.
            next_txn_id: returns transaction ids.
            write: sends frames.
            timed_out: called with the seconds of each request without an answer.
        """
        self._clock, self._bookie_id, self._connection = clock, bookie_id, connection
        self._next_txn_id, self._write, self._timed_out = next_txn_id, write, timed_out
        self._is_v2 = connection.protocol is ProtocolVersion.V2
        self._pending: dict[RequestKey, SentRequest] = {}
        self._waiting: dict[RequestKey, deque[SentRequest]] = {}
        self._bulks: dict[RequestKey, BulkRead] = {}  # The bulk read that waits for each key.
        self._alarms: KeyedTimers[RequestKey] = KeyedTimers(clock, self._expire)
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._pending) + len(self._bulks)

    def send(self, pending: SentRequest) -> None:
        """Send a request; in V2 when no other with the same key is in flight."""
        if not self._is_v2:
            txn_id = self._next_txn_id()
            self._send(txn_id, pending, self._connection.send(pending.request, txn_id))
            return
        key = _key_v2(pending.request)
        if self._is_out(key):
            pending.due_s = self._clock.seconds() + pending.timeout_s
            self._waiting.setdefault(key, deque()).append(pending)
        else:
            self._send(key, pending, self._connection.send(pending.request))

    def _send(self, key: RequestKey, pending: SentRequest, frame: bytes) -> None:
        self._pending[key] = pending
        self._alarms.set(key, pending.timeout_s)
        self._write(frame)

    def _is_out(self, key: RequestKey) -> bool:
        return key in self._pending or key in self._bulks

    def bulk(self, ledger_id: LedgerId, entries: Sequence[int]) -> tuple[BulkRead, bytes]:
        """Return a bulk read and its frames, for ``send_bulk``; V2 only.

        It leaves out the entries that another read of this connection waits for.
        """
        assert self._is_v2, "bulk reads go over V2"
        asked = [entry for entry in dict.fromkeys(entries) if not self._is_out((ledger_id, entry))]
        bulk = BulkRead(asked)
        bulk.deferred.addBoth(self._forget_bulk, ledger_id, bulk)
        return bulk, read_frames_v2(ledger_id, asked)

    def send_bulk(
        self, ledger_id: LedgerId, bulk: BulkRead, frames: bytes, timeout_s: float
    ) -> None:
        """Send a bulk read; it ends itself when the time is over."""
        self._bulks.update(((ledger_id, entry), bulk) for entry in bulk.entries)
        bulk.wait(self._clock, timeout_s, lambda: self._timed_out(timeout_s))
        self._write(frames)

    def _forget_bulk(self, result: Any, ledger_id: LedgerId, bulk: BulkRead) -> Any:
        """Ignore later answers to a bulk read; send the reads that waited for its keys."""
        for entry_id in bulk.entries:
            key = ledger_id, entry_id
            if self._bulks.get(key) is bulk:
                del self._bulks[key]
                self._send_waiting(key)
        return result

    def take_reads(self, buffer: bytearray) -> None:
        """Handle the plain answers at the start of a buffer while a bulk read waits for some."""
        if not self._bulks:
            return
        for ledger_id, entry_id, packet in take_reads_v2(buffer, self._connection.frame_bytes_max):
            key = ledger_id, entry_id
            bulk = self._bulks.pop(key, None)
            if bulk is not None:
                bulk.take(entry_id, packet)
                self._send_waiting(key)
            else:
                ids = LedgerId(ledger_id), EntryId(entry_id)
                response = ReadResponse(ReturnCode.EOK, *ids, packet)
                self.take(Answer(response, Operation.READ_ENTRY, 0))

    def take(self, answer: Answer) -> None:
        """Pass an answer to its request; late and unexpected answers are ignored."""
        key = self._key_of(answer)
        response = answer.response
        if isinstance(response, ReadResponse) and (bulk := self._bulks.pop(key, None)) is not None:
            bulk.take(response.entry_id, response)
            self._send_waiting(key)
            return
        pending = self._pending.get(key)
        if pending is None or OPERATIONS[type(pending.request)] is not answer.operation:
            return
        del self._pending[key]
        self._alarms.drop(key, pending.timeout_s)
        self._send_waiting(key)
        pending.deferred.callback(answer.response)

    def _key_of(self, answer: Answer) -> RequestKey:
        if not self._is_v2:
            return answer.txn_id
        response = answer.response
        if isinstance(response, BatchReadResponse):
            return -response.request_id
        if isinstance(response, (ReadResponse, AddResponse)):
            return response.ledger_id, response.entry_id
        return None

    def _send_waiting(self, key: RequestKey) -> None:
        """Send the request that has waited longest for a key, unless the key is in flight again.

        A request that has waited for its time-out fails: otherwise each would take its own time-out
        in turn.
        """
        waiting = self._waiting.get(key)
        if waiting is None or self._has_ended:
            return
        overdue: list[SentRequest] = []
        while waiting and waiting[0].due_s <= self._clock.seconds():
            overdue.append(waiting.popleft())
        if waiting and not self._is_out(key):
            pending = waiting.popleft()
            self._send(key, pending, self._connection.send(pending.request))
        if not waiting:
            del self._waiting[key]
        for pending in overdue:
            pending.deferred.errback(self._not_answered(pending))

    def _expire(self, key: RequestKey) -> None:
        pending = self._pending.pop(key, None)
        if pending is None:
            return  # Another time-out at the same moment has ended the connection.
        self._timed_out(pending.timeout_s)
        self._send_waiting(key)
        pending.deferred.errback(self._not_answered(pending))

    def _not_answered(self, pending: SentRequest) -> RequestTimeoutError:
        what = type(pending.request).__name__
        return RequestTimeoutError(
            f"bookie {self._bookie_id} did not answer {what} in {pending.timeout_s:g} s"
        )

    def end(self) -> Callable[[ClientError], None]:
        """Send nothing more; return a function that fails everything in flight."""
        self._has_ended = True
        self._alarms.stop()
        requests = [*self._pending.values(), *itertools.chain(*self._waiting.values())]
        bulks = dict.fromkeys(self._bulks.values())
        self._pending, self._waiting, self._bulks = {}, {}, {}

        def fail(error: ClientError) -> None:
            for pending in requests:
                pending.deferred.errback(error)
            for bulk in bulks:
                bulk.finish()

        return fail


def _key_v2(request: Request) -> RequestKey:
    if isinstance(request, BatchReadRequest):
        return -request.request_id
    if isinstance(request, (ReadRequest, AddRequest)):
        # Plain adds are not sent as requests, so an add and a read of one entry never meet.
        return request.ledger_id, request.entry_id
    return None
