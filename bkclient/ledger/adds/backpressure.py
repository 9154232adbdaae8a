"""Who waits until more adds may be pushed."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from bkclient.connection.writability import Writability


class WaitForSpace:
    """Wakes those who wait when there is space for more adds.

    Args:
        has_space: whether there is space, or no adds are taken any more.
        full_connection: returns the writability of a full connection, if that is the reason.
    """

    def __init__(
        self, has_space: Callable[[], bool], full_connection: Callable[[], Writability | None]
    ) -> None:
        self._has_space, self._full_connection = has_space, full_connection
        self._waiting: list[Deferred[None]] = []

    async def wait(self) -> None:
        """Return when there is space."""
        while not self._has_space():
            waiter: Deferred[None] = Deferred()
            self._waiting.append(waiter)
            # Not for the connection alone: its bookie may be replaced, and it stay full for ever.
            full = self._full_connection()
            if full is None:
                await waiter
                continue
            drained = full.when_writable()
            drained.addCallbacks(lambda _, waiter=waiter: _fire(waiter), lambda _: None)
            try:
                await waiter
            finally:
                drained.cancel()

    def wake(self) -> None:
        """Wake them if there is space now."""
        if self._waiting and self._has_space():
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                _fire(waiter)


def _fire(waiter: Deferred[None]) -> None:
    if not waiter.called:
        waiter.callback(None)
