"""How long a connection may keep us waiting: half frames, answers not taken, silence, no login."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bookied.server.limits.limit_hits import Limit

LOOK_S_MAX: Final = 5.0
LOOK_S_MIN: Final = 0.05

LOOKS: Final = 4
"""How often it is looked in the shortest of the times; a connection gets so much longer at most."""


@attrs.frozen(kw_only=True)
class Timeouts:
    """The longest times, in seconds; None is for ever."""

    frame_s: float | None = None
    """For all of a frame to come, while it is read."""
    answer_s: float | None = None
    """For a client to take its answers, from when the transport has enough of them."""
    idle_s: float | None = None
    """Without a byte from a client that waits for nothing."""
    login_s: float | None = None
    """For a client to show who it is, from when it was first seen not to have."""

    @property
    def interval_s(self) -> float | None:
        """How often to look; None for never."""
        all_of_them = (self.frame_s, self.answer_s, self.idle_s, self.login_s)
        given = [one for one in all_of_them if one is not None]
        return max(LOOK_S_MIN, min(LOOK_S_MAX, min(given) / LOOKS)) if given else None


@attrs.define
class WaitTimes:
    """Since when one connection keeps us waiting, in the clock's seconds; None where it does not.

    ``frame_s`` and ``unauthenticated_s`` are moved on by ``overdue`` while the connection is not
    read for our sake: a client that does not take its refusals gets no more time for that.
    """

    heard_s: float
    frame_s: float | None = None
    answer_s: float | None = None
    unauthenticated_s: float | None = None
    is_idle: bool = True
    is_read: bool = True

    def overdue(self, timeouts: Timeouts, now_s: float) -> Limit | None:
        """Return which time is up."""
        if self.frame_s is not None and not self.is_read:
            self.frame_s = now_s
        if self.unauthenticated_s is not None and not self.is_read and self.answer_s is None:
            self.unauthenticated_s = now_s
        if _is_up(self.unauthenticated_s, timeouts.login_s, now_s):
            return Limit.LOGIN
        if _is_up(self.answer_s, timeouts.answer_s, now_s):
            return Limit.ANSWER_TIME
        if _is_up(self.frame_s, timeouts.frame_s, now_s):
            return Limit.FRAME_TIME
        if self.is_idle and self.is_read and _is_up(self.heard_s, timeouts.idle_s, now_s):
            return Limit.IDLE
        return None

    def is_silent_since(self, then_s: float) -> bool:
        """Whether nothing has come since, and the client waits for nothing that it would take."""
        waits = not self.is_idle and self.frame_s is None and self.answer_s is None
        return self.heard_s <= then_s and not waits


def _is_up(since_s: float | None, longest_s: float | None, now_s: float) -> bool:
    return since_s is not None and longest_s is not None and now_s - since_s >= longest_s


class WatchedConnection(Protocol):
    """What a connection is here."""

    @property
    def waiting(self) -> WaitTimes:
        """How things stand."""

    def time_is_up(self, limit: Limit) -> None:
        """End it."""


@attrs.define(eq=False)
class TimeoutWatch:
    """Looks at all connections as long as there are any."""

    _clock: IReactorTime
    _timeouts: Timeouts
    _connections: Callable[[], Collection[WatchedConnection]]
    _timer: IDelayedCall | None = attrs.field(default=None, init=False)

    def begin(self) -> None:
        """Go on looking, now that there is a connection."""
        interval_s = self._timeouts.interval_s
        if self._timer is None and interval_s is not None:
            self._timer = self._clock.callLater(interval_s, self._check_all)

    def end(self) -> None:
        """Look no more, until ``begin``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self, timeouts: Timeouts) -> None:
        """Be as patient from now on."""
        self._timeouts = timeouts
        self.end()
        if self._connections():
            self.begin()

    def _check_all(self) -> None:
        self._timer = None
        now_s = self._clock.seconds()
        connections = list(self._connections())
        for connection in connections:
            limit = connection.waiting.overdue(self._timeouts, now_s)
            if limit is not None:
                connection.time_is_up(limit)
        if connections:
            self.begin()
