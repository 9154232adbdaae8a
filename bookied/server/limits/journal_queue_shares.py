"""Shares of the connections in the journals' queue, so that no client's adds wait long.

An add waits for all adds that the journal got before. A connection that sends without pause would
fill the queue up to the in-flight limit, and the adds of every other connection would wait for tens
of megabytes.
"""

from __future__ import annotations

from typing import Final, Protocol

from twisted.internet.interfaces import IReactorTime

ADDS_LATELY_S: Final = 1.0
"""Seconds, at most doubled, that a connection counts as adding after its last add."""


class Adder(Protocol):
    """A connection that adds."""

    adds: int
    """Number of its unanswered adds."""
    adds_bytes: int
    """Total bytes of these adds."""
    added_in: int
    """The period of its last add; 0 for never."""


class SharedAdds:
    """The unanswered adds of all connections, and the check whether one exceeds its share.

    A connection that adds alone has no limit: only its own adds wait.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.size_bytes = self._adds = 0
        self._period, self._ends_s = 1, -ADDS_LATELY_S
        self._adders = self._adders_before = 0

    def received(self, adder: Adder, size_bytes: int, adds: int) -> None:
        """Count adds of a connection, which ``adder.adds`` already includes."""
        if self._clock.seconds() >= self._ends_s:
            self._begin_period()
        if adder.added_in != self._period:
            self._adders_before -= adder.added_in == self._period - 1
            self._adders += 1
            adder.added_in = self._period
        adder.adds_bytes += size_bytes
        self.size_bytes += size_bytes
        self._adds += adds

    def answered(self, adder: Adder, size_bytes: int, adds: int) -> None:
        """Count out what ``received`` has counted."""
        adder.adds_bytes -= size_bytes
        self.size_bytes -= size_bytes
        self._adds -= adds

    def is_over_share(self, adder: Adder, bytes_max: int, add_bytes: int) -> bool:
        """Return whether several connections exceed ``bytes_max`` and this one exceeds its share.

        Each add counts ``add_bytes`` more than its size.
        """
        if self.size_bytes + self._adds * add_bytes <= bytes_max:
            return False
        sharers = self._adders + self._adders_before
        return sharers > 1 and (adder.adds_bytes + adder.adds * add_bytes) * sharers > bytes_max

    def _begin_period(self) -> None:
        now_s = self._clock.seconds()
        if now_s < self._ends_s + ADDS_LATELY_S:
            self._adders_before = self._adders
            self._period += 1
        else:
            self._adders_before = 0
            self._period += 2
        self._adders, self._ends_s = 0, now_s + ADDS_LATELY_S
