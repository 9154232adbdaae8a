"""Pauses before a failed repair is tried again, which a bookie that registers ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IReactorTime

from bkclient.metadata.api import BookieRegistry, Watch
from bookied.repair.autorecovery.wake_up import WakeUp
from wire.errors import BookKeeperError
from wire.ids import BookieId

AGAIN_S: Final = 60.0
"""A bookie that ended the pauses ends them again after this time: it may register all the time."""


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
        self._ended_s: dict[BookieId, float] = {}
        """When a registration of these bookies ended the pauses."""

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
        """End the pauses if a bookie has registered or become writable since the last look.

        A bookie that ended them less than ``AGAIN_S`` ago is left for a later look.
        """
        if not self._is_changed:
            return
        self._is_changed = False
        store, before = self._store, self._registered
        try:
            registered = await store.writable_bookies(), await store.read_only_bookies()
        except BookKeeperError:
            self._is_changed = True
            raise
        now_s = self._clock.seconds()
        self._ended_s = {b: at for b, at in self._ended_s.items() if now_s - at < AGAIN_S}
        new = {b for now, then in zip(registered, before, strict=True) for b in now - then}
        later = new & self._ended_s.keys()
        writable, read_only = registered
        self._registered = writable - later, read_only - later
        self._is_changed |= bool(later)
        if self._waiting and new != later:
            self._ended_s |= dict.fromkeys(new - later, now_s)
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
