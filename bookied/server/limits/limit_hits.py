"""The count of hits of each limit, with an occasional log line."""

from __future__ import annotations

from enum import Enum
from typing import Final, Generic, TypeVar

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel

from bookied.server.limits.address_groups import plain

TELL_EVERY_S: Final = 10.0
"""Seconds between two log lines about one limit."""

log = Logger()


class NamedLimit(Enum):
    """A limit that a client can hit: the label of the metric, and the text of the log line."""

    def __init__(self, label: str, meaning: str) -> None:
        self.label, self.meaning = label, meaning


class Limit(NamedLimit):
    """The limits of clients of the bookie protocol."""

    CONNECTIONS = "connections", "refused connections: no more are allowed"
    ADDRESS = "connections_of_address", "refused connections: their address has its share"
    CROWD = (
        "crowding_connections",
        "closed silent connections of the address that had most: others came",
    )
    FRAME = "frames", "closed connections: a frame was too long, or could not be read"
    FRAME_TIME = "frame_time", "cut connections: a frame was not complete in time"
    HALF_FRAMES = "half_frames", "cut connections: half a frame of each kept others waiting"
    ANSWER_TIME = "response_time", "cut connections: answers were not taken in time"
    UNSENT = (
        "unsent_responses",
        "cut connections: too many answers are not taken, over all connections",
    )
    IDLE = "idle_time", "closed connections: nothing was asked for too long"
    LOGIN = "login_time", "cut connections: clients did not log in in time"
    READS = "reads_in_progress", "refused reads: too many wait for the disk"
    IN_FLIGHT = "in_flight", "stopped reading from clients: too many requests in progress"


L = TypeVar("L", bound=NamedLimit)


class LimitHits(Generic[L]):
    """The number of hits of each limit; many hits are one log line in ``TELL_EVERY_S``."""

    def __init__(self, clock: IReactorTime, limits: type[L], *, what: str = "") -> None:
        """Begin at 0 for each of ``limits``; log lines have ``what`` before the word "limit"."""
        self._clock, self._what = clock, what
        self.counts = dict.fromkeys(limits, 0)
        self._logged: dict[L, tuple[int, float]] = {}

    def hit(self, limit: L, who: str = "", why: object = "") -> None:
        """Count a hit; if this hit is logged, the line has ``who`` and ``why``."""
        self.counts[limit] += 1
        now_s = self._clock.seconds()
        logged, logged_s = self._logged.get(limit, (0, now_s - TELL_EVERY_S))
        if now_s - logged_s < TELL_EVERY_S:
            return
        self._logged[limit] = self.counts[limit], now_s
        log.emit(
            LogLevel.info if limit is Limit.IN_FLIGHT else LogLevel.warn,
            "{what}limit {limit}: {meaning}; {times} since the last line{who}{why}",
            limit=limit.label,
            what=self._what,
            meaning=limit.meaning,
            times=self.counts[limit] - logged,
            who=f", now {plain(who)}" if who else "",
            why=f": {why}" if why else "",
        )
