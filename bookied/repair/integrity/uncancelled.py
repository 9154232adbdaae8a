"""Work on the disk that goes on to its end, though the waiting caller has been cancelled."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")


class UncancelledRuns:
    """Runs what must not be left in the middle: a thread would go on with it beside the next.

    All methods belong to the reactor's thread.
    """

    def __init__(self) -> None:
        self._under_way: set[Deferred[Any]] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Begin; return what fires with the value. Cancelling that ends the waiting only."""
        waiting: Deferred[T] = Deferred()
        running = Deferred.fromCoroutine(work)
        self._under_way.add(running)

        def ended(result: Any) -> None:
            self._under_way.discard(running)
            if isinstance(result, Failure):
                waiting.errback(result)
            else:
                waiting.callback(result)

        running.addBoth(ended)
        return waiting

    async def ended(self) -> None:
        """Return once nothing is in progress any more, however it has ended."""
        while self._under_way:
            await next(iter(self._under_way))
