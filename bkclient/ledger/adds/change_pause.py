"""The pause between ensemble changes that follow each other without a confirmed entry."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

CHANGES_BEFORE_PAUSE: Final = 5
"""Ensemble changes without a confirmation in between, before each waits a little."""

PAUSE_S_MAX: Final = 1.0


class ChangePause:
    """Keeps a writer from going round and round among bookies that all refuse."""

    def __init__(self, clock: IReactorTime) -> None:
        """Begin without a change."""
        self._clock, self._changes = clock, 0

    def confirmed(self) -> None:
        """Note that an entry was confirmed."""
        self._changes = 0

    async def before_change(self) -> None:
        """Wait before a change, the longer the more there were in a row; at most a second."""
        self._changes += 1
        excess = self._changes - CHANGES_BEFORE_PAUSE
        if excess > 0:
            await deferLater(self._clock, min(PAUSE_S_MAX, 0.01 * 2**excess))
