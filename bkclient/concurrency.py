"""Concurrency: a limited number of tasks, a shared task, a rate limit, timers, and clocks."""

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
R = TypeVar("R")


async def for_each(
    items: Iterable[T], work: Callable[[T], Coroutine[Deferred[Any], Any, object]], at_once: int
) -> None:
    """Run ``work`` for each item, ``at_once`` of them in parallel; items are consumed when needed.

    An ``at_once`` below 1 counts as 1. The first error ends all tasks and is raised unchanged. So
    does a cancellation. On return no task is in progress.
    """
    iterator = iter(items)

    async def go_on(item: T) -> None:
        await work(item)
        for following in iterator:
            await work(following)

    running = [Deferred.fromCoroutine(go_on(item)) for item in islice(iterator, max(1, at_once))]
    try:
        await DeferredList(running, fireOnOneErrback=True, consumeErrors=True)
    except FirstError as error:
        for one in running:
            one.cancel()
        await DeferredList(running, consumeErrors=True)
        error.subFailure.raiseException()


async def map_each(
    items: Iterable[T], work: Callable[[T], Coroutine[Deferred[Any], Any, R]], at_once: int
) -> list[R]:
    """Return the results of ``work`` in the order of ``items``; otherwise as ``for_each``."""
    found: dict[int, R] = {}

    async def keep(numbered: tuple[int, T]) -> None:
        number, item = numbered
        found[number] = await work(item)

    await for_each(enumerate(items), keep, at_once)
    return [found[number] for number in range(len(found))]


SAVED_S: Final = 1.0
"""Seconds for which unused requests are saved, as in Guava's limiter."""

WAIT_S_MIN: Final = 0.001
"""The shortest wait; a shorter one would take a turn of the reactor for each request."""


SILENT_S: Final = 1.0
"""Seconds after which the log says what a closing client waits for."""


class RateLimit:
    """A limit on requests a second, with a second's worth at once after a pause.

    Agrees with BookKeeper 4.18.0, LedgerHandle's throttler. A request that exceeds the remaining
    allowance is allowed; later requests wait longer.
    """

    def __init__(self, clock: IReactorTime, per_s: float) -> None:
        self._clock, self._each_s = clock, 1.0 / per_s
        self._next_s = clock.seconds()

    def allowance(self) -> int:
        """Return the number of requests that are allowed now."""
        ahead_s = self._clock.seconds() - self._next_s
        return 0 if ahead_s < 0 else int(min(ahead_s, SAVED_S) / self._each_s) + 1

    def take(self, requests: int) -> None:
        """Count requests that are sent now."""
        oldest_s = self._clock.seconds() - SAVED_S
        self._next_s = max(self._next_s, oldest_s) + requests * self._each_s

    @property
    def wait_s(self) -> float:
        """Return the seconds until the next request is allowed; 0 if it is allowed now."""
        left_s = self._next_s - self._clock.seconds()
        return max(left_s, WAIT_S_MIN) if left_s > 0 else 0.0

    def turn(self, requests: int) -> Deferred[None]:
        """Count requests.

        Return a Deferred that fires when they are allowed, in the order of calls.
        """
        wait_s = self.wait_s
        self.take(requests)
        turn: Deferred[None] = Deferred(lambda _turn: call.cancel())
        if wait_s:
            call = self._clock.callLater(wait_s, turn.callback, None)
        else:
            turn.callback(None)
        return turn


def rate_limit(clock: IReactorTime, per_s: float) -> RateLimit | None:
    """Return a limit; ``None`` for 0, which means no limit."""
    return RateLimit(clock, per_s) if per_s > 0 else None


def doubled_s(first_s: float, times: int, most_s: float) -> float:
    """Return a pause that was doubled ``times`` times, at most ``most_s``.

    Without a bound on ``times`` a thousand failures would overflow a float.
    """
    return min(most_s, first_s * 2.0 ** min(times, 50))


def cancel(call: IDelayedCall | None) -> None:
    """Cancel a delayed call, unless there is none or it has run."""
    if call is not None and call.active():
        call.cancel()


K = TypeVar("K", bound=Hashable)


class KeyedTimers(Generic[K]):
    """Timers by key; a timer that was not dropped calls back with its key.

    Keys with the same wait are due in the order in which they were set, so only the first of each
    wait is checked. Setting and dropping cost one dictionary operation each, whatever their number.
    """

    def __init__(self, clock: IReactorTime, ring: Callable[[K], None]) -> None:
        self._clock, self._ring = clock, ring
        self._groups: dict[float, dict[K, float]] = {}
        self._timer: IDelayedCall | None = None

    def set(self, key: K, wait_s: float) -> None:
        """Call back for ``key`` after ``wait_s``, once."""
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
        """Drop the timer of ``key``, which was set with this wait."""
        group = self._groups.get(wait_s)
        if group is not None:
            group.pop(key, None)

    def stop(self) -> None:
        """Drop all timers."""
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
    """One run of a coroutine for many callers; cancelling a ``wait`` stops only that wait.

    So an interrupted caller does not leave the work half done for the others.
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
    """Callers that wait for one event, each with a Deferred; cancelled ones are forgotten."""

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
        """Never fire this Deferred."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def wake(self) -> None:
        """Fire all waiting Deferreds."""
        for waiter in self._take():
            waiter.callback(None)

    def fail(self, error: Callable[[], Exception]) -> None:
        """Fail all waiting Deferreds, each with an error of its own."""
        for waiter in self._take():
            waiter.errback(error())

    def _take(self) -> Iterator[Deferred[None]]:
        """Yield all waiting Deferreds, except those that a callback cancels meanwhile."""
        waiting, self._waiting = self._waiting, []
        return (waiter for waiter in waiting if not waiter.called)


def use_steady_clock(reactor: Any) -> None:
    """Use a monotonic clock for a reactor's timers; call this before the first timer.

    Twisted's timers use the wall clock: if it were set back by an hour, no time-out would fire and
    no checkpoint would begin for an hour. After this call ``reactor.seconds`` has an arbitrary
    zero, and ``wall_s`` has the time of day.
    """
    reactor.seconds, reactor.wall_s = time.monotonic, time.time


def wall_clock(clock: IReactorTime) -> Callable[[], float]:
    """Return a function that returns the time of day in seconds since 1970; see ``wall_s``."""
    seconds: Callable[[], float] = getattr(clock, "wall_s", clock.seconds)
    return seconds


def wall_s(clock: IReactorTime) -> float:
    """Return the time of day in seconds since 1970, for stored and displayed times.

    A clock that is not a steady reactor has only one time.
    """
    return wall_clock(clock)()


def wall_ms(clock: IReactorTime) -> int:
    """Return the time of day in whole milliseconds; see ``wall_s``."""
    return int(wall_s(clock) * 1000)
