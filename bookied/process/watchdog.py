"""When the service manager is told that the bookie lives (systemd's watchdog, ``sd_notify(3)``).

It is told from the reactor, so that one that hangs tells nothing, and only while the journals make
progress: a bookie whose disk has stopped answering takes adds that it will never acknowledge. The
service manager then ends it, and clients go elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

TELLS_IN_TIMEOUT: Final = 4
"""How often it is told within the time that the service manager waits."""

log = Logger()


class WatchedJournal(Protocol):
    """What has work queued and gets it done: a journal."""

    @property
    def queued_bytes(self) -> int:
        """How much waits."""

    @property
    def committed_bytes(self) -> int:
        """How much was done since its start."""

    @property
    def space_error(self) -> Exception | None:
        """Why it can only wait for space: a restart would not help."""


@attrs.frozen
class _JournalProgress:
    """How far a journal was, and since when it is no further."""

    committed_bytes: int
    since_s: float


class WatchedProgress:
    """Whether each journal that has something to write wrote some of it within ``stuck_s``."""

    def __init__(self, *, stuck_s: float) -> None:
        self._stuck_s = stuck_s
        self._seen: dict[int, _JournalProgress] = {}

    def stuck(self, journals: Sequence[WatchedJournal], now_s: float) -> list[int]:
        """Return which of the journals make none, by their places."""
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
    """Tells ``alive`` a few times within ``timeout_s``, while there is reason to."""

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
        """Begin to tell, now that it serves."""
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
