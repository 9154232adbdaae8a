"""The messages to systemd's watchdog that the bookie works (``sd_notify(3)``).

The reactor sends them, so that a reactor that hangs sends none. They are sent only while the
journals make progress: a bookie whose disk does not answer accepts adds that it never acknowledges.
Without messages the service manager ends the bookie, and clients use other bookies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

TELLS_IN_TIMEOUT: Final = 4
"""Messages within the time-out of the service manager."""

log = Logger()


class WatchedJournal(Protocol):
    """A journal, as the watchdog sees it."""

    @property
    def queued_bytes(self) -> int:
        """The bytes that wait to be written."""

    @property
    def committed_bytes(self) -> int:
        """The bytes written since the start."""

    @property
    def space_error(self) -> Exception | None:
        """The error of a journal without space; a restart would not help."""


@attrs.frozen
class _JournalProgress:
    """The committed bytes of a journal, and the time since which they are unchanged."""

    committed_bytes: int
    since_s: float


class WatchedProgress:
    """A check that each journal with queued bytes writes some of them within ``stuck_s``."""

    def __init__(self, *, stuck_s: float) -> None:
        self._stuck_s = stuck_s
        self._seen: dict[int, _JournalProgress] = {}

    def stuck(self, journals: Sequence[WatchedJournal], now_s: float) -> list[int]:
        """Return the indexes of the journals without progress."""
        found = []
        for place, journal in enumerate(journals):
            before = self._seen.get(place)
            is_idle = not journal.queued_bytes or journal.space_error is not None
            if before is None or is_idle or journal.committed_bytes != before.committed_bytes:
                before = self._seen[place] = _JournalProgress(journal.committed_bytes, now_s)
            if now_s - before.since_s >= self._stuck_s:
                found.append(place)
        return found


class Watchdog:
    """A timer that calls ``alive`` within ``timeout_s`` while all journals make progress."""

    def __init__(
        self,
        clock: IReactorTime,
        journals: Sequence[WatchedJournal],
        alive: Callable[[], None],
        *,
        timeout_s: float,
    ) -> None:
        self._clock, self._journals, self._alive = clock, journals, alive
        self._every_s = timeout_s / TELLS_IN_TIMEOUT
        self._progress = WatchedProgress(stuck_s=timeout_s)
        self._was_stuck = False
        self._loop: LoopingCall = LoopingCall(self._check)
        self._loop.clock = clock

    def start(self) -> None:
        """Start the timer; call this when the bookie serves."""
        self._loop.start(self._every_s)

    def _check(self) -> None:
        stuck = self._progress.stuck(self._journals, self._clock.seconds())
        if not stuck:
            self._alive()
        elif not self._was_stuck:
            log.critical(
                "journal {journals} does not write its queued entries; the watchdog gets no sign",
                journals=", ".join(map(str, stuck)),
            )
        self._was_stuck = bool(stuck)
