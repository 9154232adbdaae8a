"""The bookies that failed too often recently, and get no new entries for a time.

``bookie_health`` has the bookies that readers ask later.
"""

from __future__ import annotations

import random
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.config.client import ClientConfig
from bkclient.errors import (
    BookieUnavailableError,
    ClientError,
    ClientLedgerFencedError,
    NoSuchEntryInLedgerError,
    NoSuchLedgerOnBookieError,
    ReadOnlyBookieClientError,
)
from wire.ids import BookieId

log = Logger()

EXPECTED: Final = (
    BookieUnavailableError,
    NoSuchEntryInLedgerError,
    NoSuchLedgerOnBookieError,
    ClientLedgerFencedError,
    ReadOnlyBookieClientError,
)
"""Errors that do not show a fault: PerChannelBookieClient.EXPECTED_BK_OPERATION_ERRORS.

A lost connection is not counted; ``unreachable`` counts failures to connect.
"""


class Quarantine:
    """A count of each bookie's errors in an interval.

    With too many, the bookie is left out for a time.

    All requests count, as in Java: the pool counts all except adds, each ``Member`` the adds.
    Entries that fail their digest count here, but not in Java.

    Nothing runs by itself: an interval ends at the next question or count.
    """

    def __init__(self, clock: IReactorTime, rng: random.Random, config: ClientConfig) -> None:
        self._clock, self._rng, self._config = clock, rng, config
        self._ends_s = clock.seconds() + config.health_check_interval_s
        self._errors: dict[BookieId, int] = {}
        self._until_s: dict[BookieId, float] = {}

    def count(self, bookie: BookieId, error: ClientError, requests: int = 1) -> None:
        """Count failed requests of a bookie, unless the error is usual."""
        if not self._config.health_check or isinstance(error, EXPECTED):
            return
        self._end_intervals()
        self._errors[bookie] = self._errors.get(bookie, 0) + requests

    def unreachable(self, bookie: BookieId) -> None:
        """Count a failure to connect, if the settings ask for it."""
        if self._config.health_check and self._config.quarantine_on_connect_error:
            self._end_intervals()
            self._errors[bookie] = self._errors.get(bookie, 0) + 1

    def members(self) -> frozenset[BookieId]:
        """Return the bookies that are in quarantine now."""
        if not self._config.health_check:
            return frozenset()
        self._end_intervals()
        now_s = self._clock.seconds()
        self._until_s = {one: until_s for one, until_s in self._until_s.items() if until_s > now_s}
        return frozenset(self._until_s)

    def clear(self) -> None:
        """End the quarantine of all bookies."""
        self._until_s.clear()

    def _end_intervals(self) -> None:
        now_s = self._clock.seconds()
        if now_s < self._ends_s:
            return
        config, ended_s, errors = self._config, self._ends_s, self._errors
        self._errors = {}
        self._ends_s = now_s + config.health_check_interval_s
        for bookie, count in errors.items():
            ill = count >= config.health_check_errors_max
            if ill and self._rng.random() < config.quarantine_ratio:
                self._until_s[bookie] = ended_s + config.quarantine_s
                log.warn(
                    "bookie {bookie} failed {count} requests: no new entries for {seconds} s",
                    bookie=bookie,
                    count=count,
                    seconds=config.quarantine_s,
                )
