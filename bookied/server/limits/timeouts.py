"""The time limits of a connection: slow frames, unread answers, silence, login."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bookied.server.limits.limit_hits import Limit

LOOK_S_MAX: Final = 5.0
LOOK_S_MIN: Final = 0.05

LOOKS: Final = 4
"""Checks within the shortest timeout, which is the precision of all timeouts."""


@attrs.frozen(kw_only=True)
class Timeouts:
    """The longest times, in seconds; None for no limit."""

    frame_s: float | None = None
    """Seconds until a frame is complete, while its client is read."""
    answer_s: float | None = None
    """Seconds for a client to read its answers, after the transport's buffer was full."""
    idle_s: float | None = None
    """Seconds without a byte from a client that waits for no answer."""
    login_s: float | None = None
    """Seconds for a client to authenticate, after it was first seen unauthenticated."""

    @property
    def interval_s(self) -> float | None:
        """The seconds between two checks; None for never."""
        all_of_them = (self.frame_s, self.answer_s, self.idle_s, self.login_s)
        limits_s = [one for one in all_of_them if one is not None]
        return max(LOOK_S_MIN, min(LOOK_S_MAX, min(limits_s) / LOOKS)) if limits_s else None


@attrs.define
class WaitTimes:
    """The times since which one connection keeps the bookie waiting, by the clock.

    None if it does not.

    ``overdue`` restarts ``frame_s`` and ``unauthenticated_s`` while the bookie does not read the
    connection. A client that does not read its refusals gets no extra time for its login.
    """

    heard_s: float
    frame_s: float | None = None
    answer_s: float | None = None
    unauthenticated_s: float | None = None
    is_idle: bool = True
    is_read: bool = True

    def overdue(self, timeouts: Timeouts, now_s: float) -> Limit | None:
        """Return the timeout that has expired, or None."""
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
        """Return whether the client has been silent since, and waits for no answer it reads."""
        waits = not self.is_idle and self.frame_s is None and self.answer_s is None
        return self.heard_s <= then_s and not waits


def _is_up(since_s: float | None, longest_s: float | None, now_s: float) -> bool:
    return since_s is not None and longest_s is not None and now_s - since_s >= longest_s


class WatchedConnection(Protocol):
    """The interface of a connection for ``TimeoutWatch``."""

    @property
    def waiting(self) -> WaitTimes:
        """The times since which the connection keeps the bookie waiting."""

    def time_is_up(self, limit: Limit) -> None:
        """End the connection, which is over ``limit``."""


@attrs.define(eq=False)
class TimeoutWatch:
    """The periodic check of all connections, while any is open."""

    _clock: IReactorTime
    _timeouts: Timeouts
    _connections: Callable[[], Collection[WatchedConnection]]
    _timer: IDelayedCall | None = attrs.field(default=None, init=False)

    def begin(self) -> None:
        """Start the checks: a connection was opened."""
        interval_s = self._timeouts.interval_s
        if self._timer is None and interval_s is not None:
            self._timer = self._clock.callLater(interval_s, self._check_all)

    def end(self) -> None:
        """Stop the checks, until ``begin``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self, timeouts: Timeouts) -> None:
        """Use these timeouts from now on."""
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
