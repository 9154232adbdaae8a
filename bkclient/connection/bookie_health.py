"""The bookies that failed or were slow recently: readers ask them later, writers avoid them.

A bookie in ``Quarantine`` gets no new entries; ``placement.policy.read_order`` has the order of
reads.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.config.client import ClientConfig
from bkclient.errors import (
    BookieUnavailableError,
    ClientDigestMismatchError,
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


@attrs.define(eq=False)
class BookieHealth:
    """Recent failures and slowness of bookies.

    One for each client. Bounded by the number of bookies that the client has ever used.
    """

    _clock: IReactorTime
    _memory_s: float
    """Seconds that a failure is remembered; 0 for not at all."""
    _quarantine: Quarantine | None = None
    """Damaged entries count for it, too."""
    _minds_slow: bool = True
    _failed_s: dict[BookieId, float] = attrs.field(factory=dict, init=False)
    _slow_s: dict[BookieId, float] = attrs.field(factory=dict, init=False)
    _latest_s: float = attrs.field(default=float("-inf"), init=False)

    def failed(self, bookie: BookieId) -> None:
        """Note that a bookie could not be reached, or failed a request."""
        self._latest_s = self._failed_s[bookie] = self._clock.seconds()

    def read_failed(self, bookie: BookieId, error: ClientError) -> None:
        """Note a failed read that shows a fault of the bookie.

        The pool has counted the bookie's own errors, and missing answers.
        """
        self.failed(bookie)
        if self._quarantine is not None and isinstance(error, ClientDigestMismatchError):
            self._quarantine.count(bookie, error)

    def slow(self, bookie: BookieId) -> None:
        """Note that another bookie had to be asked because this one did not answer."""
        if self._minds_slow:
            self._latest_s = self._slow_s[bookie] = self._clock.seconds()

    def fine(self, bookie: BookieId) -> None:
        """Note that a bookie answered a request well."""
        if bookie in self._failed_s:
            del self._failed_s[bookie]

    @property
    def any_lately(self) -> bool:
        """Return whether any bookie has failed or been slow recently.

        Cheap, because each read asks.
        """
        return self._clock.seconds() - self._latest_s < self._memory_s

    def level(self, bookie: BookieId) -> int:
        """Return 0 for a healthy bookie, 1 for a slow one, 2 for one that failed."""
        for level, noted_s in ((2, self._failed_s), (1, self._slow_s)):
            if bookie in noted_s and self._clock.seconds() - noted_s[bookie] < self._memory_s:
                return level
        return 0

    def failing(self, bookies: Collection[BookieId]) -> frozenset[BookieId]:
        """Return those of ``bookies`` that failed lately."""
        return frozenset(bookie for bookie in bookies if self.level(bookie) > 1)
