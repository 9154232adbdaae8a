"""Whose adds wait so that those of others do not wait long: a queue that connections share.

An add waits for all that the journal was given before it. A connection that sends without pause
would fill that queue up to the limit of what may be in flight, and every other connection's adds
would stand behind tens of megabytes.
"""

from __future__ import annotations

from typing import Final, Protocol

from twisted.internet.interfaces import IReactorTime

ADDS_LATELY_S: Final = 1.0
"""For so long, and up to twice that, a connection that has added is one of those that add."""


class Adder(Protocol):
    """A connection that adds."""

    adds: int
    """How many of its adds have no answer."""
    adds_bytes: int
    """What they take."""
    added_in: int
    """The period in which it added last; 0 for never."""


class SharedAdds:
    """Adds without an answer of all connections, and which connections have more than their share.

    One that adds alone has no limit here: what waits is its own.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.size_bytes = self._adds = 0
        self._period, self._ends_s = 1, -ADDS_LATELY_S
        self._adders = self._adders_before = 0

    def received(self, adder: Adder, size_bytes: int, adds: int) -> None:
        """Count adds of a connection, which ``adder.adds`` has already."""
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
        """Count what ``received`` counted out again."""
        adder.adds_bytes -= size_bytes
        self.size_bytes -= size_bytes
        self._adds -= adds

    def is_over_share(self, adder: Adder, bytes_max: int, add_bytes: int) -> bool:
        """Whether more than ``bytes_max`` wait, of several, and too much of it is this one's.

        Each add counts ``add_bytes`` beside its own.
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
