"""The page for Prometheus, with windows that end in time and the event loop's lag."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from bkclient.concurrency import cancel
from bookied.admin.monitoring.prometheus_text import Family, exposition
from bookied.stats.metrics import Summaries
from bookied.stats.quantiles import Summary

LAG_EVERY_S: Final = 0.5
"""Seconds between two measurements of the event loop's lag."""

FIRST_WINDOW_S: Final = 1.0
"""Seconds of the first window, as in Java."""

log = Logger()


class Metrics:
    """The metrics of one process. They belong to the reactor's thread."""

    def __init__(
        self,
        clock: IReactorTime,
        *,
        families: Callable[[], Iterable[Family]],
        stats: Callable[[], Iterable[Summaries]],
        window_s: float,
    ) -> None:
        """Make the page of a process.

        Args:
            clock: the reactor's clock.
            families: yields the present metrics.
            stats: yields the objects whose windows end.
            window_s: ``prometheusStatsLatencyRolloverSeconds``.
        """
        self._clock, self._families, self._stats = clock, families, stats
        self._window_s = window_s
        self.lag = Summary()
        self._due_s = 0.0
        self._rotated_s = clock.seconds()
        self._loops = [LoopingCall(self._measure_lag), LoopingCall(self._rotate)]
        for loop in self._loops:
            loop.clock = clock
        self._first = clock.callLater(FIRST_WINDOW_S, self._begin_windows)
        self._due_s = clock.seconds()
        self._loops[0].start(LAG_EVERY_S).addErrback(_crashed)

    def text(self) -> str:
        """Return the page."""
        self.lag.fold()
        return exposition(self._families())

    @property
    def window_age_s(self) -> float:
        """The seconds since the last window ended."""
        return max(0.0, self._clock.seconds() - self._rotated_s)

    def stop(self) -> None:
        """Stop the windows; the page can still be read."""
        cancel(self._first)
        for loop in self._loops:
            if loop.running:
                loop.stop()

    def _begin_windows(self) -> None:
        self._loops[1].start(self._window_s).addErrback(_crashed)

    def _measure_lag(self) -> None:
        now_s = self._clock.seconds()
        self.lag.observe(max(0.0, now_s - self._due_s) * 1000)
        self._due_s = now_s + LAG_EVERY_S

    def _rotate(self) -> None:
        self._rotated_s = self._clock.seconds()
        self.lag.rotate()
        for stats in self._stats():
            stats.rotate()


def _crashed(failure: object) -> None:
    log.failure("metrics failed", failure)  # type: ignore[arg-type]
