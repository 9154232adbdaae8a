"""Many things at a time: a few in flight, one run for many callers, a rate, timers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from twisted.internet.defer import Deferred, DeferredList, FirstError
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

T = TypeVar("T")


async def for_each(
    items: Iterable[T], work: Callable[[T], Coroutine[Deferred[Any], Any, object]], at_once: int
) -> None:
    """Do ``work`` on each item, on ``at_once`` of them at a time; items are taken when it is time.

    The first error ends all of it and is raised as it was. So does cancelling. Whatever was in
    progress is cancelled and has ended by then.
    """
    iterator = iter(items)

    async def go_on(item: T) -> None:
        await work(item)
        for following in iterator:
            await work(following)

    under_way = [Deferred.fromCoroutine(go_on(item)) for item in islice(iterator, at_once)]
    try:
        await DeferredList(under_way, fireOnOneErrback=True, consumeErrors=True)
    except FirstError as error:
        for one in under_way:
            one.cancel()
        await DeferredList(under_way, consumeErrors=True)
        error.subFailure.raiseException()


SAVED_S: Final = 1.0
"""How long what is not used is kept for later, as in Guava's limiter."""

WAIT_S_MIN: Final = 0.001
"""A shorter wait would be a turn of the reactor for each request."""


SILENT_S: Final = 1.0
"""After this time the log says what a client waits for at its end."""


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


def doubled_s(first_s: float, times: int, most_s: float) -> float:
    """Return a pause that was doubled so many times, at most ``most_s``.

    Without a bound on ``times`` a thousand failures would be more than a float holds.
    """
    return min(most_s, first_s * 2.0 ** min(times, 50))


K = TypeVar("K", bound=Hashable)


class KeyedTimers(Generic[K]):
    """Rings for each key whose wait is over and that was not dropped before.

    Keys with the same wait are due in the order they were set, so only the first of each wait has
    to be looked at. Setting and dropping cost a dictionary operation each, whatever their number.
    """

    def __init__(self, clock: IReactorTime, ring: Callable[[K], None]) -> None:
        self._clock, self._ring = clock, ring
        self._groups: dict[float, dict[K, float]] = {}
        self._timer: IDelayedCall | None = None

    def set(self, key: K, wait_s: float) -> None:
        """Ring for ``key`` after ``wait_s``, once."""
        due_s = self._clock.seconds() + wait_s
        group = self._groups.get(wait_s)
        if group is None:
            group = self._groups[wait_s] = {}
        group[key] = due_s
        if self._timer is None:
            self._timer = self._clock.callLater(wait_s, self._fire)
        elif len(group) == 1 and due_s < self._timer.getTime():
            self._timer.reset(wait_s)

    def drop(self, key: K, wait_s: float) -> None:
        """Do not ring for ``key``, which was set with this wait."""
        group = self._groups.get(wait_s)
        if group is not None:
            group.pop(key, None)

    def stop(self) -> None:
        """Drop all."""
        self._groups.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        due = self._take_due(self._clock.seconds())
        if self._groups:
            next_s = min(next(iter(group.values())) for group in self._groups.values())
            wait_s = max(0.0, next_s - self._clock.seconds())
            self._timer = self._clock.callLater(wait_s, self._fire)
        for key in due:
            self._ring(key)

    def _take_due(self, now_s: float) -> list[K]:
        due: list[K] = []
        for group in self._groups.values():
            mine = list(itertools.takewhile(lambda key: group[key] <= now_s, group))  # noqa: B023
            for key in mine:
                del group[key]
            due += mine
        self._groups = {wait_s: group for wait_s, group in self._groups.items() if group}
        return due


class SharedRun(Generic[T]):
    """Runs a coroutine once. Each ``wait`` gets its result; cancelling a wait stops only the wait.

    So a caller that is interrupted does not leave the work half done for the others.
    """

    def __init__(self, work: Coroutine[Deferred[Any], Any, T]) -> None:
        self._waiting: list[Deferred[T]] = []
        self._result: T | Failure | None = None
        self._done = False
        self._failed: Callable[[], None] = lambda: None
        Deferred.fromCoroutine(work).addBoth(self._finish)

    def on_failure(self, failed: Callable[[], None]) -> None:
        """Call ``failed`` if the work fails, or has failed."""
        self._failed = failed
        if self._done and isinstance(self._result, Failure):
            failed()

    def _finish(self, result: T | Failure) -> None:
        self._result, self._done = result, True
        waiting, self._waiting = self._waiting, []
        if isinstance(result, Failure):
            self._failed()
        for waiter in waiting:
            if not waiter.called:
                self._give(waiter)

    def _give(self, waiter: Deferred[T]) -> None:
        if isinstance(self._result, Failure):
            waiter.errback(self._result)
        else:
            waiter.callback(self._result)  # type: ignore[arg-type]

    async def wait(self) -> T:
        """Return the result, or raise the error."""
        waiter: Deferred[T] = Deferred()
        if self._done:
            self._give(waiter)
        else:
            self._waiting.append(waiter)
        return await waiter


class Waiters:
    """Callers that wait for one event, each by a Deferred; one that is cancelled is forgotten."""

    def __init__(self) -> None:
        """Begin without a caller."""
        self._waiting: list[Deferred[None]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self) -> Deferred[None]:
        """Return a Deferred that fires at the next ``wake``."""
        waiter: Deferred[None] = Deferred(self.forget)
        self._waiting.append(waiter)
        return waiter

    async def wait_within(self, timeout_s: float, clock: IReactorTime) -> None:
        """Return at the next ``wake``, or after ``timeout_s``."""
        await self.wait().addTimeout(timeout_s, clock, lambda _result, _timeout_s: None)

    def forget(self, waiter: Deferred[None]) -> None:
        """Do not fire this Deferred any more."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def wake(self) -> None:
        """Fire all that wait now."""
        for waiter in self._take():
            waiter.callback(None)

    def fail(self, error: Callable[[], Exception]) -> None:
        """Fail all that wait now, each with an error of its own."""
        for waiter in self._take():
            waiter.errback(error())

    def _take(self) -> Iterator[Deferred[None]]:
        """Yield all that wait, without those that are cancelled by what runs for another."""
        waiting, self._waiting = self._waiting, []
        return (waiter for waiter in waiting if not waiter.called)


def use_steady_clock(reactor: Any) -> None:
    """Have a reactor's timers go by a clock that goes on evenly; call it before there is a timer.

    Twisted's timers go by the wall clock: were that set back by an hour, no time-out would fire for
    an hour, and no checkpoint would begin. From the call on ``reactor.seconds`` counts from any
    moment, and ``wall_s`` has the time of day.
    """
    reactor.seconds, reactor.wall_s = time.monotonic, time.time


def wall_clock(clock: IReactorTime) -> Callable[[], float]:
    """Return what tells the time of day in seconds since 1970; see ``wall_s``."""
    seconds: Callable[[], float] = getattr(clock, "wall_s", clock.seconds)
    return seconds


def wall_s(clock: IReactorTime) -> float:
    """Return the time of day in seconds since 1970: what is stored, compared with others, shown.

    A clock that is not a steady reactor has one time only.
    """
    return wall_clock(clock)()


def wall_ms(clock: IReactorTime) -> int:
    """Return the time of day in whole milliseconds; see ``wall_s``."""
    return int(wall_s(clock) * 1000)
