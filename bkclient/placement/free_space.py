"""The free space of bookies, and a random choice weighted by it.

Agrees with BookKeeper 4.18.0: WeightedRandomSelectionImpl in the weights, and BookieInfoReader in
the intervals. Bookies are asked when a choice is made, not by a timer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.concurrency import cancel
from bkclient.connection.pool import BookiePool
from bkclient.errors import ReadFailedError, refusal
from wire.codes import BookieInfoFlag, ReturnCode
from wire.ids import BookieId
from wire.messages import BookieInfoRequest, BookieInfoResponse, Response

log = Logger()

FIRST_WAIT_S: Final = 1.0
"""Seconds that a choice waits for bookies that have never reported their free space."""


def ask_sizes(pool: BookiePool, bookie: BookieId) -> Deferred[BookieInfoResponse]:
    """Ask a bookie for its disk sizes.

    Raises (through the Deferred):
        ClientError: the bookie did not answer.
    """

    def checked(response: Response) -> BookieInfoResponse:
        if response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, ReadFailedError, f"bookie {bookie}, disk sizes")
        assert isinstance(response, BookieInfoResponse)
        return response

    both = BookieInfoFlag.TOTAL_DISK_CAPACITY | BookieInfoFlag.FREE_DISK_SPACE
    answer: Deferred[Any] = pool.send(
        bookie, BookieInfoRequest(both), timeout_s=pool.config.bookie_info_timeout_s
    )
    return answer.addCallback(checked)


@attrs.define(eq=False)
class FreeSpace:
    """The reported free bytes of bookies; each is asked again after an interval.

    Args:
        clock: the clock.
        ask: asks one bookie.
        interval_s: between two answers of a bookie.
        retry_s: after a failure.
    """

    _clock: IReactorTime
    _ask: Callable[[BookieId], Deferred[int]]
    _interval_s: float
    _retry_s: float
    _free: dict[BookieId, int] = attrs.field(factory=dict, init=False)
    _due_s: dict[BookieId, float] = attrs.field(factory=dict, init=False)

    def of(self, bookie: BookieId) -> int:
        """Return a bookie's free bytes; 0 while unknown."""
        return self._free.get(bookie, 0)

    async def learn(self, bookies: Collection[BookieId]) -> None:
        """Ask the bookies that are due; wait a moment for those that have never reported.

        Bookies that are not in ``bookies`` are forgotten.
        """
        now_s = self._clock.seconds()
        for gone in self._due_s.keys() - set(bookies):
            del self._due_s[gone]
            self._free.pop(gone, None)
        new: list[Deferred[None]] = []
        for bookie in sorted(bookies):
            if self._due_s.get(bookie, now_s) > now_s:
                continue
            self._due_s[bookie] = now_s + self._interval_s
            asked = self._ask(bookie).addCallbacks(
                self._heard, self._not_heard, callbackArgs=(bookie,), errbackArgs=(bookie,)
            )
            if bookie not in self._free:
                new.append(asked)
        if new:
            await self._wait_for(new)

    async def _wait_for(self, asked: Sequence[Deferred[None]]) -> None:
        waiter: Deferred[None] = Deferred()

        def go_on(_result: object = None) -> None:
            if not waiter.called:
                waiter.callback(None)

        timer = self._clock.callLater(FIRST_WAIT_S, go_on)
        DeferredList(asked).addCallback(go_on)
        try:
            await waiter
        finally:
            cancel(timer)

    def _heard(self, free_bytes: int, bookie: BookieId) -> None:
        if bookie in self._due_s:
            self._free[bookie] = free_bytes

    def _not_heard(self, failure: Failure, bookie: BookieId) -> None:
        log.info(
            "cannot read the free space of bookies: {error}", error=failure.value, bookie=bookie
        )
        if bookie in self._due_s:
            self._due_s[bookie] = self._clock.seconds() + self._retry_s
            self._free.pop(bookie, None)


def weights(free_bytes: Sequence[int], multiple_max: int) -> list[float]:
    """Return the relative probability of each bookie.

    A full or unknown bookie counts as the smallest other one; none counts as more than
    ``multiple_max`` times the median. 0 or less means no limit.
    """
    if max(free_bytes, default=0) <= 0:
        return [1.0] * len(free_bytes)
    least = min(free for free in free_bytes if free > 0)
    import statistics

    most = multiple_max * statistics.median(free_bytes)
    heavy = [float(free if free > 0 else least) for free in free_bytes]
    return [min(weight, most) for weight in heavy] if most > 0 else heavy


class WeightedDraw:
    """A random choice of bookies by their free space; see ``bkclient.placement.Draw``."""

    def __init__(
        self, rng: random.Random, free_of: Callable[[BookieId], int], multiple_max: int
    ) -> None:
        self._rng, self._free_of, self._multiple_max = rng, free_of, multiple_max

    def __call__(self, bookies: Sequence[BookieId], count: int) -> list[BookieId]:
        """Return ``count`` different bookies, in the order of their choice."""
        left, drawn = list(bookies), list[BookieId]()
        chances = weights([self._free_of(bookie) for bookie in left], self._multiple_max)
        for _ in range(count):
            (at,) = self._rng.choices(range(len(left)), chances)
            drawn.append(left.pop(at))
            del chances[at]
        return drawn
