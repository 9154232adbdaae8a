"""Which limits were hit, how often, and a word about it in the log once in a while."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel

from bookied.server.limits.address_groups import plain

TELL_EVERY_S: Final = 10.0
"""How often the log has a line about one limit."""

log = Logger()


class Limit(Enum):
    """What a client can run into; the value is the metric's label."""

    CONNECTIONS = "connections"
    ADDRESS = "connections_of_address"
    CROWD = "crowding_connections"
    FRAME = "frames"
    FRAME_TIME = "frame_time"
    HALF_FRAMES = "half_frames"
    ANSWER_TIME = "response_time"
    UNSENT = "unsent_responses"
    IDLE = "idle_time"
    LOGIN = "login_time"
    READS = "reads_in_progress"
    IN_FLIGHT = "in_flight"


MEANINGS: Final = {
    Limit.CONNECTIONS: "refused connections: no more are allowed",
    Limit.ADDRESS: "refused connections: their address has its share",
    Limit.CROWD: "closed silent connections of the address that had most: others came",
    Limit.FRAME: "closed connections: a frame was too long, or could not be read",
    Limit.FRAME_TIME: "cut connections: a frame was not complete in time",
    Limit.HALF_FRAMES: "cut connections: half a frame of each kept others waiting",
    Limit.ANSWER_TIME: "cut connections: answers were not taken in time",
    Limit.UNSENT: "cut connections: too many answers are not taken, over all connections",
    Limit.IDLE: "closed connections: nothing was asked for too long",
    Limit.LOGIN: "cut connections: clients did not log in in time",
    Limit.READS: "refused reads: too many wait for the disk",
    Limit.IN_FLIGHT: "stopped reading from clients: too many requests in progress",
}
"""What the log says of each."""


L = TypeVar("L", bound=Enum)


class LimitHits(Generic[L]):
    """Counts each time a limit held; a flood of them is one line in ``TELL_EVERY_S``."""

    def __init__(self, clock: IReactorTime, meanings: Mapping[L, str], *, what: str = "") -> None:
        """Begin at 0; ``meanings`` are the limits there are, ``what`` is put before "limit"."""
        self._clock, self._meanings, self._what = clock, meanings, what
        self.counts = dict.fromkeys(meanings, 0)
        self._logged: dict[L, tuple[int, float]] = {}

    def hit(self, limit: L, who: str = "", why: object = "") -> None:
        """Count one; ``who`` and ``why`` are told of the one that gets its line."""
        self.counts[limit] += 1
        now_s = self._clock.seconds()
        logged, logged_s = self._logged.get(limit, (0, now_s - TELL_EVERY_S))
        if now_s - logged_s < TELL_EVERY_S:
            return
        self._logged[limit] = self.counts[limit], now_s
        log.emit(
            LogLevel.info if limit is Limit.IN_FLIGHT else LogLevel.warn,
            "{what}limit {limit}: {meaning}; {times} since the last word{who}{why}",
            limit=limit.value,
            what=self._what,
            meaning=self._meanings[limit],
            times=self.counts[limit] - logged,
            who=f", now {plain(who)}" if who else "",
            why=f": {why}" if why else "",
        )
