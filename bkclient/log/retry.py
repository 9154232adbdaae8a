"""RetrySchedule: when a log's writer retries, and when it gives up: a rule about time."""

from __future__ import annotations

from random import Random
from typing import Final

from twisted.internet.interfaces import IReactorTime

PAUSE_S_FIRST: Final = 0.1
PAUSE_S_MAX: Final = 3.0

CALM_S: Final = 10.0
"""After so long without a try, pauses begin from the shortest again."""


class RetrySchedule:
    """Tries at once, then after longer and longer pauses, until there was no progress for too long.

    Pauses go on where progress is made in between: each try may cost a ledger, and a writer whose
    every ledger fails after an entry or two must not fill the cluster with them.
    """

    def __init__(self, clock: IReactorTime, rng: Random, limit_s: float) -> None:
        self._clock, self._rng, self.limit_s = clock, rng, limit_s
        self._stuck_s: float | None = None
        """Since when there has been no progress, if something was tried since."""
        self._tried_s = 0.0
        self._tries = 0

    def progressed(self) -> None:
        """Note that an append was acknowledged: the time to retry begins anew."""
        self._stuck_s = None

    def next_pause_s(self) -> float | None:
        """Return how long to wait before the next try; None: give up."""
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
        pause_s = PAUSE_S_FIRST * 2.0 ** min(self._tries - 1, 10)
        return self._rng.uniform(0.5, 1.0) * min(PAUSE_S_MAX, pause_s)
