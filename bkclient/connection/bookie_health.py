"""The bookies that failed or were slow recently: readers ask them later, writers avoid them.

``quarantine`` has the bookies that get no new entries; ``placement.policy.read_order`` has the
order of reads.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs
from twisted.internet.interfaces import IReactorTime

from bkclient.connection.quarantine import Quarantine
from bkclient.errors import ClientDigestMismatchError, ClientError
from wire.ids import BookieId


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
