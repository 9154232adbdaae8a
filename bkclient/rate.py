"""So many requests a second."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

SAVED_S: Final = 1.0
"""How long what is not used is kept for later, as in Guava's limiter."""

WAIT_S_MIN: Final = 0.001
"""A shorter wait would be a turn of the reactor for each request."""


class RateLimit:
    """Lets so many requests go a second, and up to a second's worth at once after a pause.

    Agrees with BookKeeper 4.18.0, LedgerHandle's throttler. A request that is larger than what is
    left goes too; those after it wait the longer.
    """

    def __init__(self, clock: IReactorTime, per_s: float) -> None:
        self._clock, self._each_s = clock, 1.0 / per_s
        self._next_s = clock.seconds()

    def allowance(self) -> int:
        """Return how many may go now."""
        ahead_s = self._clock.seconds() - self._next_s
        return 0 if ahead_s < 0 else int(min(ahead_s, SAVED_S) / self._each_s) + 1

    def take(self, requests: int) -> None:
        """Count requests that go now."""
        oldest_s = self._clock.seconds() - SAVED_S
        self._next_s = max(self._next_s, oldest_s) + requests * self._each_s

    @property
    def wait_s(self) -> float:
        """How long until the next may go; 0 where it may now."""
        left_s = self._next_s - self._clock.seconds()
        return max(left_s, WAIT_S_MIN) if left_s > 0 else 0.0

    def turn(self, requests: int) -> Deferred[None]:
        """Count requests, and return what fires when they may go, in the order of the calls."""
        wait_s = self.wait_s
        self.take(requests)
        turn: Deferred[None] = Deferred(lambda _turn: call.cancel())
        if wait_s:
            call = self._clock.callLater(wait_s, turn.callback, None)
        else:
            turn.callback(None)
        return turn


def rate_limit(clock: IReactorTime, per_s: float) -> RateLimit | None:
    """Return a limit; ``None`` where 0 says that there is none."""
    return RateLimit(clock, per_s) if per_s > 0 else None
