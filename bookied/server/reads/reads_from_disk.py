"""The answers of one connection that wait for the disk: fetched in batches, sent in order.

The reading threads are those of ``bookied.service.threads``, ``numReadWorkerThreads`` of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookied.server.limits.request_turns import Turns
from bookied.server.rules.answer_from_disk import Answer, DiskRead
from bookied.stats.metrics import RequestStats
from wire.ids import LedgerId
from wire.messages import BatchReadResponse, ReadResponse, Response

LANES: Final = 4
"""Concurrent fetches of one connection."""

BATCH_MAX: Final = 64
BATCH_BYTES: Final = 1024 * 1024
"""A fetch ends after this many reads or bytes, whichever is first."""

HELD_BYTES_MAX: Final = 1024 * 1024
"""Bytes of entries that may wait behind disk reads before no more requests are accepted."""

HELD_MAX: Final = 1024
"""Answers that may wait before no more requests are accepted: a full garbage collection visits
ten objects for each answer.
"""

PART_REQUESTS: Final = 2
PART_REQUEST_BYTES: Final = 256 * 1024
"""A part of a batch from memory counts as ``PART_REQUESTS``, plus one for each of these bytes.

512 entries take 90 µs, however small. 1 MiB takes 20 µs to copy and 400 µs to send.
"""

RunBlocking = Callable[[Callable[[], Any]], "Deferred[Any]"]
"""A function that runs a function in a thread: ``partial(deferToThreadPool, reactor, pool)``."""

Deliver = Callable[[Response], None]


@attrs.define(eq=False)
class _WaitingRead:
    ledger_id: LedgerId
    answer: Answer
    deliver: Deliver
    size_bytes: int
    is_fetched: bool = False


class DiskReadQueues:
    """The queues of answers that wait for the disk: answers about one ledger stay in order.

    While ``may_fetch`` returns False, because the client does not read its answers, nothing is
    fetched or delivered. While ``is_full``, the caller must accept no request. So the memory of one
    client is bounded by ``LANES`` fetches, as many unfinished batches, ``HELD_MAX`` answers and
    ``HELD_BYTES_MAX``. ``settled`` is called after each fetch.

    An answer that needs no disk but lets other clients have their turn waits in ``turns``.
    """

    def __init__(
        self,
        run_blocking: RunBlocking,
        run_long: RunBlocking,
        turns: Turns,
        may_fetch: Callable[[], bool],
        failed: Callable[[Failure], None],
        stats: RequestStats,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        self._run_blocking, self._run_long, self._turns = run_blocking, run_long, turns
        self._may_fetch, self._failed = may_fetch, failed
        self._stats, self._settled = stats, settled
        self.held_bytes = self._held = 0
        self._queues: dict[int, deque[_WaitingRead]] = {}
        self._waiting_of: Counter[LedgerId] = Counter()
        self._fetching: set[int] = set()
        self._pauses: set[_Pause] = set()

    def is_waiting(self, ledger_id: LedgerId) -> bool:
        """Return whether an answer about this ledger must queue behind others."""
        return ledger_id in self._waiting_of

    @property
    def is_busy(self) -> bool:
        """True if any answer waits."""
        return bool(self._queues)

    @property
    def is_full(self) -> bool:
        """True if the waiting answers have reached a limit."""
        return self.held_bytes > HELD_BYTES_MAX or self._held >= HELD_MAX

    def put(self, ledger_id: LedgerId, answer: Answer, deliver: Deliver) -> None:
        """Queue an answer; call ``start`` after all answers of one read are queued."""
        waiting = _WaitingRead(ledger_id, answer, deliver, _entry_bytes(answer))
        self._waiting_of[ledger_id] += 1
        self.held_bytes += waiting.size_bytes
        self._held += 1
        if _is_pause(waiting):
            # This part was read at once, out of turn.
            self._turns.count(_part_requests(waiting.size_bytes))
        self._queues.setdefault(ledger_id % LANES, deque()).append(waiting)

    def start(self) -> None:
        """Start a fetch for each lane that has none in progress, unless the client is slow."""
        for lane in list(self._queues):
            self._start(lane)

    def close(self) -> None:
        """Drop the waiting answers, and the result of a fetch in progress."""
        for pause in self._pauses:
            self._turns.leave(pause)
        self._pauses.clear()
        self._queues.clear()
        self._waiting_of.clear()
        self.held_bytes = self._held = 0

    def _start(self, lane: int) -> None:
        queue = self._queues.get(lane)
        if queue is None or lane in self._fetching or not self._may_fetch():
            return
        while queue and self._may_fetch() and self._settle(queue[0]):
            self._forget(queue.popleft())
        if not queue:
            self._queues.pop(lane, None)
        if not (queue and self._may_fetch()):
            return
        self._fetching.add(lane)
        if _is_pause(queue[0]):
            pause = _Pause(lane, self._go_on)
            self._pauses.add(pause)
            self._turns.wait(pause)
            return
        reads: list[_WaitingRead] = []
        for waiting in queue:
            if isinstance(waiting.answer, DiskRead) and not waiting.is_fetched:
                is_long = waiting.answer.is_long
                if not (is_long and reads):
                    reads.append(waiting)
                if is_long or len(reads) == BATCH_MAX:
                    break
        fetch = _Fetch(reads, self._stats.now_ns)
        run = self._run_long if _is_long(reads[0]) else self._run_blocking
        fetching = run(fetch.run)
        fetching.addCallback(self._fetched, lane, fetch)
        fetching.addErrback(self._failed)

    def _forget(self, waiting: _WaitingRead) -> None:
        self._held = max(0, self._held - 1)  # Zero after ``close``.
        self._waiting_of[waiting.ledger_id] -= 1
        if self._waiting_of[waiting.ledger_id] <= 0:  # Zero after ``close``.
            del self._waiting_of[waiting.ledger_id]

    def _go_on(self, pause: _Pause) -> int:
        """Continue with the first answer of a lane, after other clients have had their turn.

        Returns:
            The number of requests that the next part counts as.
        """
        self._pauses.discard(pause)
        self._fetching.discard(pause.lane)
        queue, new_bytes = self._queues.get(pause.lane), 0
        if queue:
            first = queue[0]
            first.is_fetched = True
            old_bytes = first.size_bytes
            try:
                self._start(pause.lane)
            except Exception:  # noqa: BLE001 - As a bug met in a thread: the connection ends.
                self._failed(Failure())
            new_bytes = max(0, _entry_bytes(first.answer) - old_bytes)
        self._settled()
        return _part_requests(new_bytes)

    def _fetched(self, count: int, lane: int, fetch: _Fetch) -> None:
        self._fetching.discard(lane)
        stats = self._stats
        stats.disk_wait.success.note((fetch.began_ns - fetch.asked_ns) // 1000, count)
        stats.disk_read.success.note(stats.since_us(fetch.began_ns) // count, count)
        if lane in self._queues:
            self._start(lane)
        self._settled()

    def _settle(self, waiting: _WaitingRead) -> bool:
        """Deliver an answer if it is ready; return whether the next may follow."""
        if isinstance(waiting.answer, DiskRead):
            if not waiting.is_fetched:
                return False
            waiting.answer = waiting.answer.answer()
            waiting.is_fetched = False
        if isinstance(waiting.answer, DiskRead):  # The answer needs another disk read.
            self.held_bytes += waiting.answer.held_bytes - waiting.size_bytes
            waiting.size_bytes = waiting.answer.held_bytes
            return False
        self.held_bytes -= waiting.size_bytes
        waiting.deliver(waiting.answer)
        return True


def _entry_bytes(answer: Answer) -> int:
    """Return the bytes of entries that an answer has in memory before its disk read."""
    if isinstance(answer, DiskRead):
        return answer.held_bytes
    if isinstance(answer, ReadResponse):
        return len(answer.entry or b"")
    if isinstance(answer, BatchReadResponse):
        return answer.entries.size_bytes
    return 0


def _is_pause(waiting: _WaitingRead) -> bool:
    return isinstance(waiting.answer, DiskRead) and waiting.answer.fetch_blocking is None


def _is_long(waiting: _WaitingRead) -> bool:
    return isinstance(waiting.answer, DiskRead) and waiting.answer.is_long


def _part_requests(size_bytes: int) -> int:
    return PART_REQUESTS + size_bytes // PART_REQUEST_BYTES


class _Pause:
    """A lane that waits for its turn."""

    def __init__(self, lane: int, go_on: Callable[[_Pause], int]) -> None:
        self.lane, self._go_on = lane, go_on

    def take_turn(self, requests_max: int) -> int:  # noqa: ARG002 -- it cannot be divided
        """Continue; return the number of requests that the part counts as."""
        return self._go_on(self)


class _Fetch:
    """A job for a thread of the pool, which records the time when it began."""

    def __init__(self, reads: list[_WaitingRead], now_ns: Callable[[], int]) -> None:
        self._reads, self._now_ns = reads, now_ns
        self.asked_ns = self.began_ns = now_ns()

    def run(self) -> int:
        """Read from the disk and return the number of fetched answers. Blocks."""
        self.began_ns = self._now_ns()
        size_bytes = 0
        for count, waiting in enumerate(self._reads, 1):
            assert isinstance(waiting.answer, DiskRead)
            size_bytes += waiting.answer.fetch()
            waiting.is_fetched = True
            if size_bytes >= BATCH_BYTES:
                return count
        return len(self._reads)
