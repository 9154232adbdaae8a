"""Looks at the disks now and then, and tells what it means for the bookie.

Agrees with BookKeeper 4.18.0, LedgerDirsMonitor, but for a directory that vanishes: Java makes it
anew, empty, and goes on; here it is a failed disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookied.directories.disk_fullness import DiskLimits, DiskSample, DiskVerdict, judge

log = Logger()


class DiskWatch:
    """Samples the disks every ``interval_s``, from a thread, and judges on the reactor.

    ``changed`` gets each verdict that differs from the one before, and every one while it
    ``is_awaited``: a write may find no space between two looks that both find enough. ``failed``
    gets the error of a disk that cannot be asked any more, after which the watch has ended.
    """

    def __init__(
        self,
        clock: IReactorTime,
        sample: Callable[[], tuple[DiskSample, ...]],
        limits: DiskLimits,
        *,
        run_blocking: Callable[[Callable[[], Any]], Deferred[Any]],
        was_read_only: bool = False,
        changed: Callable[[DiskVerdict], None],
        failed: Callable[[Exception], None],
        is_awaited: Callable[[], bool] = lambda: False,
    ) -> None:
        self._sample, self.limits, self._run_blocking = sample, limits, run_blocking
        self._changed, self._failed = changed, failed
        self._is_awaited = is_awaited
        self._loop: LoopingCall = LoopingCall(self._look)
        self._loop.clock = clock
        self.verdict = DiskVerdict((), (), was_read_only, high_priority_allowed=True)
        self.samples: tuple[DiskSample, ...] = ()
        """What the last look saw."""

    async def look_once(self) -> DiskVerdict:
        """Sample and judge now, without telling anybody.

        Raises:
            OSError: a disk cannot be asked.
        """
        self.samples = await self._run_blocking(self._sample)
        self.verdict = judge(self.samples, self.limits, was_read_only=self.verdict.read_only)
        return self.verdict

    def start(self, interval_s: float) -> None:
        """Look every ``interval_s`` from now on, first after one interval."""
        self._loop.start(interval_s, now=False).addErrback(self._ended)

    def stop(self) -> None:
        """Look no more."""
        if self._loop.running:
            self._loop.stop()

    def _look(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._look_and_tell())

    async def _look_and_tell(self) -> None:
        before = self.verdict
        after = await self.look_once()
        if not self._loop.running or (after == before and not self._is_awaited()):
            return
        for directory in after.full:
            if directory not in before.full:
                log.warn("{directory} is full", directory=directory)
        for directory in after.nearly_full:
            if directory not in before.nearly_full:
                log.warn("{directory} is almost full", directory=directory)
        self._changed(after)

    def _ended(self, failure: Failure) -> None:
        error = failure.value
        assert isinstance(error, Exception)
        self._failed(error)
