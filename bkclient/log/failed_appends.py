"""AppendRepair: continues a log's writer after a failed add.

It fixes the ends of the ledgers, and appends the entries that are not in them to a new ledger, in
order (ledgers2logs.md section 4). It retries for a limited time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import attrs
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.concurrency import Waiters, doubled_s
from bkclient.errors import ClientError, UnexpectedConditionError
from bkclient.log.append_queue import DEPOSED, NOT_WITH_TIME, Append, AppendQueue
from bkclient.log.errors import AppendUnknownError, LogUnwritableError
from bkclient.log.open_segments import Segments

PAUSE_S_FIRST: Final = 0.1
PAUSE_S_MAX: Final = 3.0

CALM_S: Final = 10.0
"""Seconds without an attempt after which pauses begin from the shortest again."""


class RetrySchedule:
    """Attempts at once, then after longer and longer pauses, up to a time without progress.

    Pauses continue in spite of progress: each attempt may cost a ledger, and a writer whose every
    ledger fails after an entry or two must not fill the cluster with ledgers.
    """

    def __init__(self, clock: IReactorTime, rng: Random, limit_s: float) -> None:
        self._clock, self._rng, self.limit_s = clock, rng, limit_s
        self._stuck_s: float | None = None
        """The time since which attempts have made no progress, if there were any."""
        self._tried_s = 0.0
        self._tries = 0

    def progressed(self) -> None:
        """Note that an append was acknowledged: the time limit begins again."""
        self._stuck_s = None

    def next_pause_s(self) -> float | None:
        """Return the seconds before the next attempt; None: give up."""
        now_s = self._clock.seconds()
        if self._stuck_s is None:
            self._stuck_s = now_s
        elif now_s - self._stuck_s >= self.limit_s:
            return None
        if now_s - self._tried_s > CALM_S:
            self._tries = 0
        pause_s = min(self._grown_pause_s(), max(0.0, self._stuck_s + self.limit_s - now_s))
        self._tries, self._tried_s = self._tries + 1, now_s + pause_s
        return pause_s

    def _grown_pause_s(self) -> float:
        if self._tries == 0:
            return 0.0
        return self._rng.uniform(0.5, 1.0) * doubled_s(PAUSE_S_FIRST, self._tries - 1, PAUSE_S_MAX)


log = Logger()


@attrs.define(eq=False)
class AppendRepair:
    """The repair of a log; at most one is in progress.

    Args:
        changing: the lock for changes of the ledgers; rolls and the writer's end use it, too.
        send: sends an append to the current ledger.
        lose: ends the writer.
    """

    _segments: Segments
    _queue: AppendQueue
    _retries: RetrySchedule
    _clock: IReactorTime
    _changing: DeferredLock
    _send: Callable[[Append], None]
    _lose: Callable[[ClientError], None]
    _is_cancelled: bool = attrs.field(default=False, init=False)
    _waiters: Waiters = attrs.field(factory=Waiters, init=False)
    in_progress: bool = attrs.field(default=False, init=False)
    """True while the ledgers accept no appends."""

    def begin(self, error: ClientError) -> None:
        """Begin to repair the failure ``error``, unless a repair is in progress."""
        if not self.in_progress:
            self.in_progress = True
            Deferred.fromCoroutine(self._repair(error)).addErrback(self._broke)

    def cancel(self) -> None:
        """Stop at the next step: the writer has ended."""
        self._is_cancelled = True
        self._waiters.wake()

    def when_over(self) -> Deferred[None]:
        """Return a Deferred that fires when a repair, or the writer, has ended."""
        return self._waiters.wait()

    def _broke(self, failure: Failure) -> None:
        log.failure("repairing a log", failure)
        self._lose(UnexpectedConditionError(repr(failure.value)))

    async def _repair(self, error: ClientError) -> None:
        await self._changing.acquire()
        try:
            if self._is_cancelled:
                return
            if isinstance(error, DEPOSED):
                self._lose(error)
                return
            await self._retry(error)
        except ClientError as again:
            self._lose(again)
        finally:
            # Before any other caller continues: its appends are for the new ledger.
            self.in_progress = False
            self._changing.release()
            self._waiters.wake()

    async def _retry(self, error: ClientError) -> None:
        """Retry until a new ledger accepts entries, or the time limit is reached.

        Raises:
            LogUnwritableError: the time limit is reached.
            ClientError: an error that no retry changes.
        """
        name = self._segments.name
        # The ledger's error also says that the outcome is unknown, which this repair determines.
        cause = error.__cause__ or error
        log.warn("log {name}: {error}; going on in a new ledger", name=name, error=cause)
        while True:
            pause_s = self._retries.next_pause_s()
            if pause_s is None:
                raise self._gave_up(error) from error
            if pause_s:
                await deferLater(self._clock, pause_s)
            if self._is_cancelled:
                return
            try:
                await self._attempt()
            except NOT_WITH_TIME:
                raise
            except ClientError as again:
                if str(again) != str(error):
                    log.warn("log {name}: {error}; trying on", name=name, error=again)
                error = again
            else:
                return

    def _gave_up(self, error: ClientError) -> LogUnwritableError:
        limit_s = self._retries.limit_s
        return LogUnwritableError(f"log {self._segments.name}: given up after {limit_s} s: {error}")

    async def _attempt(self) -> None:
        """Fix the ends of the ledgers, and append the entries that are in none to a new ledger."""
        segments, queue = self._segments, self._queue
        await segments.confirm_leading()
        for segment in segments.open:
            last = await segments.end_of(segment)
            if segment is segments.current and last >= 0 and queue.has_hole_before(segment):
                # The missing entries could only be appended after the existing ones.
                raise AppendUnknownError("a ledger lost entries that later ones were to follow")
            queue.fix_end(segment, last)
            segments.forget_previous(segment)
        queue.settle()
        queue.detach()
        await segments.start_over()
        # An append that is too large fails at once, and its caller may append another.
        while unsent := [append for append in queue if append.segment is None]:
            for append in unsent:
                self._send(append)
