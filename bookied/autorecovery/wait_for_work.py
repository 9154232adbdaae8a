"""Waits that end when there may be work."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TwistedTimeoutError
from twisted.internet.interfaces import IReactorTime

from bkclient.concurrency import wall_s
from bkclient.metadata.tree.store import MetadataStore
from bkclient.replication.autorecovery_admin import end_of_pause


class WakeUp:
    """A signal for one waiting task; a signal without a waiting task ends the next wait at once."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._rung = False
        self._waiter: Deferred[None] | None = None

    def wake(self) -> None:
        """End the wait."""
        self._rung = True
        if self._waiter is not None and not self._waiter.called:
            self._waiter.callback(None)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return after a signal since the last wait, or after ``timeout_s``."""
        if not self._rung:
            self._waiter = Deferred()
            if timeout_s is not None:
                self._waiter.addTimeout(timeout_s, self._clock)
            try:
                await self._waiter
            except TwistedTimeoutError:
                pass
            finally:
                self._waiter = None
        self._rung = False


PAUSE_LOOK_S_MAX: Final = 3600.0
"""Seconds after which the end of a pause is read again, because clocks may be set."""


async def until_enabled(store: MetadataStore, clock: IReactorTime) -> None:
    """Return when re-replication is enabled; enable it when an operator's pause is over."""
    if await store.replication_enabled():
        return
    wake_up = WakeUp(clock)
    watch = await store.watch_replication_enabled(wake_up.wake)
    try:
        while not await store.replication_enabled():
            left_s = await end_of_pause(store, wall_s(clock))
            if left_s != 0:
                await wake_up.wait(left_s and min(left_s, PAUSE_LOOK_S_MAX))
    finally:
        watch.cancel()
