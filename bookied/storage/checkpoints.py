"""The schedule of checkpoints: at an interval, and earlier to limit memory and replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookied.errors import NO_SPACE, DiskWriteFailedError, StorageError
from bookied.storage.files.open_files import NO_DESCRIPTOR
from bookied.storage.journal.writer import Journal
from bookied.storage.storages import Storages

LOOK_S: Final = 0.5
"""Seconds between two checks of whether a checkpoint is due."""

FAILURES_MAX: Final = 3
"""Disk failures in a row that stop the bookie: without checkpoints its journals fill their disk."""

SAY_AGAIN_S: Final = 60.0
"""Seconds after which an unchanged failure is logged again."""

_PASSING: Final = NO_SPACE | NO_DESCRIPTOR
"""Errors that can end without a restart: no disk space, no file descriptors."""

log = Logger()


class Checkpoints:
    """The checkpoints of a bookie: one at a time, every ``interval_s`` while there are changes.

    A failed checkpoint is retried after the next interval; the journals keep what it would have
    covered. ``failed`` is called with an error that no retry can fix, and after ``FAILURES_MAX``
    disk failures in a row. ``lacks_descriptors`` is called with True when a checkpoint could not
    open files for lack of descriptors, and with False after a success: in between the bookie
    accepts no adds.
    """

    def __init__(
        self,
        clock: IReactorTime,
        storages: Storages,
        journals: Sequence[Journal],
        *,
        run_blocking: Callable[[Callable[[], Any]], Deferred[Any]],
        failed: Callable[[Exception], None],
        lacks_descriptors: Callable[[bool], object] = lambda lacks: None,  # noqa: ARG005
        switch_threads_soon: Callable[[bool], object] = lambda _: None,
    ) -> None:
        self._clock, self._storages, self._journals = clock, storages, journals
        self._run_blocking, self._failed = run_blocking, failed
        self._lacks_descriptors = lacks_descriptors
        self._switch_threads_soon = switch_threads_soon
        self._loop: LoopingCall = LoopingCall(self._check)
        self._loop.clock = clock
        self._ended: Deferred[Any] | None = None
        self._running = DeferredLock()
        self._interval_s = 0.0
        self._last_s = clock.seconds()
        self._failures = 0
        self._said, self._said_s = "", 0.0

    def start(self, interval_s: float) -> None:
        """Start to check whether a checkpoint is due."""
        self._interval_s, self._last_s = interval_s, self._clock.seconds()
        self._ended = self._loop.start(min(LOOK_S, interval_s), now=False).addErrback(self._crashed)

    async def now(self) -> None:
        """Run a checkpoint, after one in progress; return when it has ended.

        Raises:
            StorageError: the checkpoint failed; the journals keep what it would have covered.
            OSError: likewise.
        """
        async with self._running:
            self._last_s = self._clock.seconds()
            # The checkpoint's thread works on the index for about a second.
            self._switch_threads_soon(True)
            try:
                await self._storages.checkpoint(self._journals, self._run_blocking)
            finally:
                self._switch_threads_soon(False)

    async def between(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` in a thread while no checkpoint is in progress; return its value."""
        async with self._running:
            return await self._run_blocking(work)

    async def stop(self) -> None:
        """Start no more checkpoints; return when the one in progress has ended."""
        if self._loop.running:
            self._loop.stop()
        if self._ended is not None:
            await self._ended

    def _check(self) -> Deferred[None] | None:
        self._storages.drop_idle()
        waited_s = self._clock.seconds() - self._last_s
        is_time = waited_s >= self._interval_s and self._storages.has_changes
        if not is_time and not self._storages.needs_checkpoint:
            return None
        return Deferred.fromCoroutine(self._checkpoint())

    async def _checkpoint(self) -> None:
        try:
            await self.now()
        except DiskWriteFailedError:
            raise
        except (StorageError, OSError) as error:
            is_failure = isinstance(error, OSError) and error.errno not in _PASSING
            self._failures = self._failures + 1 if is_failure else 0
            if self._failures == FAILURES_MAX:
                raise
            if isinstance(error, OSError) and error.errno in NO_DESCRIPTOR:
                self._lacks_descriptors(True)
            self._say(error)
        else:
            if self._said:
                self._said = ""
                log.info("a checkpoint has succeeded again")
            self._failures = 0
            self._lacks_descriptors(False)

    def _say(self, error: Exception) -> None:
        """Log a failure; the same text once in ``SAY_AGAIN_S``, because a disk may stay full."""
        text, now_s = str(error), self._clock.seconds()
        if text == self._said and now_s < self._said_s + SAY_AGAIN_S:
            return
        self._said, self._said_s = text, now_s
        log.warn("a checkpoint failed and is retried: {error}", error=error)

    def _crashed(self, failure: Failure) -> None:
        error = failure.value
        assert isinstance(error, Exception)
        self._failed(error)
