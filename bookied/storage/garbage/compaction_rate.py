"""The pace of a collection: its rate limit, its waits for clients' adds, and its stop.

Agrees with BookKeeper 4.18.0, AbstractLogCompactor.Throttler.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from bookied.storage.ledger_storage.storage_limits import RunBlocking
from wire.errors import BookKeeperError

T = TypeVar("T")

MAKE_WAY_S: Final = 0.05
"""Seconds between two checks whether clients' entries are written."""

MAKE_WAY_TIMES_MAX: Final = 20
"""The most checks in a row: a collection that clients always delay would end in a full disk."""


class Rate:
    """A limit per second, with up to a second's amount at once after a pause.

    The next caller waits for the amount taken before, as in Guava's RateLimiter, which Java uses.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._free_s = -1.0
        """The time from which on no wait is due."""

    def take(self, amount: float, now_s: float) -> float:
        """Take an amount; return the seconds to wait before using it."""
        free_s = max(self._free_s, now_s - 1.0)
        self._free_s = free_s + amount / self._per_s
        return max(0.0, free_s - now_s)

    def slice_of(self, part_s: float) -> int:
        """Return the amount of ``part_s`` seconds, at least 1."""
        return max(1, int(self._per_s * part_s))


@attrs.frozen
class Throttle:
    """The rate limit of a compaction, in entries or in bytes a second."""

    rate: Rate
    by_bytes: bool

    def take(self, entries: int, size_bytes: int, now_s: float) -> float:
        """Return the seconds to wait before the entries may be copied."""
        return self.rate.take(size_bytes if self.by_bytes else entries, now_s)


class CollectionStoppedError(BookKeeperError):
    """The bookie stops; the collection has ended at a safe point."""


@attrs.define(eq=False)
class Pace:
    """The steps of one collector, at its rate, and none after ``stop``."""

    _clock: IReactorTime
    """For waits."""
    run_blocking: RunBlocking
    """Runs a step that blocks."""
    throttle: Throttle
    """The rate limit of copies."""
    _is_busy: Callable[[], bool]
    """Whether clients' entries wait to be written, so that copies should wait; raises an error
    that should end the collection.
    """
    _waiting: Deferred[Any] | None = attrs.field(default=None, init=False)
    _is_stopped: bool = attrs.field(default=False, init=False)

    def stop(self) -> None:
        """End waits; steps that access the disk run to their end."""
        self._is_stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    def check(self) -> None:
        """Raise ``CollectionStoppedError`` after ``stop``."""
        if self._is_stopped:
            raise CollectionStoppedError("the bookie stops")

    async def blocking(self, step: Callable[[], T]) -> T:
        """Run a step that blocks, to its end."""
        self.check()
        found: T = await self.run_blocking(step)
        return found

    async def waiting(self, what: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine that may be cancelled at any moment."""
        if self._is_stopped:
            what.close()
        self.check()
        self._waiting = waiting = Deferred.fromCoroutine(what)
        try:
            return await waiting
        except CancelledError:
            self.check()
            raise
        finally:
            self._waiting = None

    async def copying(self, entries: int, size_bytes: int) -> None:
        """Wait until the entries may be copied."""
        wait_s = self.throttle.take(entries, size_bytes, self._clock.seconds())
        if wait_s > 0:
            await self.waiting(self._pause(wait_s))
        for _ in range(MAKE_WAY_TIMES_MAX):
            if not self._is_busy():
                break
            await self.waiting(self._pause(MAKE_WAY_S))
        self.check()

    async def _pause(self, seconds: float) -> None:
        await deferLater(self._clock, seconds)
