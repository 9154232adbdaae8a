"""Pauses before a failed repair is tried again, which a bookie that registers ends."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from bkclient.metadata.api import BookieRegistry, Watch
from bookied.repair.autorecovery.wake_up import WakeUp
from wire.errors import BookKeeperError
from wire.ids import BookieId


class RepairPauses:
    """The pauses of one worker: a bookie that registers may have the entries that a repair lacked.

    Args:
        store: where bookies are registered.
        clock: to wait by.
        changed: called when a bookie may have registered; ``look`` then has work.
    """

    def __init__(
        self, store: BookieRegistry, clock: IReactorTime, changed: Callable[[], None]
    ) -> None:
        self._store, self._clock, self._changed = store, clock, changed
        self._waiting: set[WakeUp] = set()
        self._watch: Watch | None = None
        self._is_changed = False
        self._registered = frozenset[BookieId](), frozenset[BookieId]()

    async def begin(self) -> None:
        """Watch the registered bookies, if that has not begun yet."""
        if self._watch is None:
            self._watch = await self._store.watch_bookies(self._note_change)
            self._note_change()

    def end(self) -> None:
        """Watch no more."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def look(self) -> None:
        """End the pauses if a bookie has registered or become writable since the last look."""
        if not self._is_changed:
            return
        self._is_changed = False
        store, before = self._store, self._registered
        try:
            self._registered = await store.writable_bookies(), await store.read_only_bookies()
        except BookKeeperError:
            self._is_changed = True
            raise
        if any(now - then for now, then in zip(self._registered, before, strict=True)):
            for pause in tuple(self._waiting):
                pause.wake()

    async def wait(self, seconds: float) -> None:
        """Return after a time, or when ``look`` has seen a bookie register."""
        pause = WakeUp(self._clock)
        self._waiting.add(pause)
        try:
            await pause.wait(seconds)
        finally:
            self._waiting.discard(pause)

    def _note_change(self) -> None:
        self._is_changed = True
        self._changed()
