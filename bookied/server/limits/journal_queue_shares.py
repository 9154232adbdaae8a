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

FIRST_READ_BYTES: Final = 16 * 1024
"""Bytes of one read from a connection that has not added yet, while several addresses add."""

READ_BYTES_MIN: Final = 2 * 1024
"""Shorter reads would cost more than they save."""


class Adder(Protocol):
    """A connection that adds."""

    adds: int
    """Number of its unanswered adds."""
    adds_bytes: int
    """Total bytes of these adds."""
    added_in: int
    """The period of its last add; 0 for never."""
    add_bytes: int
    """The average size of its last adds."""
    address: str
    """The address of its client."""


class SharedAdds:
    """The unanswered adds of all connections, and the check whether one exceeds its share.

    A connection that adds alone has no limit: only its own adds wait. Addresses have equal shares,
    and so have the connections of one address.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.size_bytes = self._adds = 0
        self._period, self._ends_s = 1, -ADDS_LATELY_S
        self._adders: dict[str, int] = {}
        """Number of adding connections of each address, in this period or the one before."""
        self._adders_now: dict[str, int] = {}

    def received(self, adder: Adder, size_bytes: int, adds: int) -> None:
        """Count adds of a connection, which ``adder.adds`` already includes."""
        if self._clock.seconds() >= self._ends_s:
            self._begin_period()
        if adder.added_in != self._period:
            if adder.added_in != self._period - 1:
                self._adders[adder.address] = self._adders.get(adder.address, 0) + 1
            self._adders_now[adder.address] = self._adders_now.get(adder.address, 0) + 1
            adder.added_in = self._period
        adder.adds_bytes += size_bytes
        adder.add_bytes = size_bytes // adds
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
        if not self.is_over(bytes_max, add_bytes):
            return False
        sharers = self._sharers(adder)
        return sharers > 1 and (adder.adds_bytes + adder.adds * add_bytes) * sharers > bytes_max

    def is_over(self, bytes_max: int, add_bytes: int) -> bool:
        """Return whether all connections together exceed ``bytes_max``."""
        return self.size_bytes + self._adds * add_bytes > bytes_max

    @property
    def several_add(self) -> bool:
        """True if clients of several addresses have added lately."""
        return len(self._adders) > 1

    def read_bytes_max(self, adder: Adder, most: int, bytes_max: int, add_bytes: int) -> int:
        """Return the maximum size of a read: ``most``, or less while several addresses add.

        One turn of the reactor reads from all connections, and every add waits until the turn has
        ended. So one read of each of the connections returns at most twice ``bytes_max`` together.
        """
        if not self.several_add:
            return most
        if not adder.add_bytes:
            return min(most, FIRST_READ_BYTES)
        share = 2 * bytes_max // self._sharers(adder)
        plain = share * adder.add_bytes // (adder.add_bytes + add_bytes)
        return min(most, max(READ_BYTES_MIN, plain))

    def _sharers(self, adder: Adder) -> int:
        """Return the number of shares if all shares were as large as this connection's."""
        return len(self._adders) * self._adders.get(adder.address, 1)

    def _begin_period(self) -> None:
        now_s = self._clock.seconds()
        if now_s < self._ends_s + ADDS_LATELY_S:
            self._adders = dict(self._adders_now)
            self._period += 1
        else:
            self._adders = {}
            self._period += 2
        self._adders_now, self._ends_s = {}, now_s + ADDS_LATELY_S
