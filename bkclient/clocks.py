"""The two times of a process: timers go by one that nobody can set, dates by the wall clock.

Twisted's reactor has its timers go by the wall clock. Were that set back by an hour, no time-out
would fire for an hour, and no checkpoint would begin.
"""

from __future__ import annotations

import time
from typing import Any

from twisted.internet.interfaces import IReactorTime


def make_steady(reactor: Any) -> None:
    """Have a reactor's timers go by a clock that goes on evenly; call it before there is a timer.

    ``reactor.seconds`` is the time of day as the wall clock had it at the call, plus the seconds
    since then.
    """
    begin_s = time.time() - time.monotonic()
    reactor.seconds = lambda: begin_s + time.monotonic()
    reactor.wall_s = time.time


def wall_s(clock: IReactorTime) -> float:
    """Return the time of day in seconds since 1970: what is stored, compared with others, shown.

    A clock that is not a steady reactor has one time only.
    """
    seconds: float = getattr(clock, "wall_s", clock.seconds)()
    return seconds
