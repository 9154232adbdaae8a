"""Copies of confirmed entries that bookies have not acknowledged when their writer closes."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime


class LastCopies:
    """The bookies of closed writers that still have copies to acknowledge.

    An entry is confirmed by its ack quorum. Without a wait, a client that ends just after the close
    leaves entries with fewer copies than the write quorum.
    """

    def __init__(self) -> None:
        """Begin with no copy."""
        self._owing: set[object] = set()
        self._waiting: list[Deferred[None]] = []

    def expect(self, member: object) -> None:
        """Count a bookie until ``settled``."""
        self._owing.add(member)

    def settled(self, member: object) -> None:
        """Forget a bookie: it has acknowledged all its copies, or failed."""
        self._owing.discard(member)
        if not self._owing:
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                waiter.callback(None)

    async def wait(self, clock: IReactorTime, timeout_s: float) -> None:
        """Wait until no bookie owes an answer, at most ``timeout_s``."""
        if not self._owing:
            return
        waiter: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiter)
        waiter.addTimeout(timeout_s, clock, onTimeoutCancel=lambda _result, _timeout: None)
        await waiter
