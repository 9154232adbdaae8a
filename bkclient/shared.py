"""One run of something, awaited by many."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")


class Shared(Generic[T]):
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
