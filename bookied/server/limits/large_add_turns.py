"""The order of large adds, so that small adds of other clients do not wait for many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bookied.server.limits.request_turns import AddressQueue, TurnTaker

LARGE_FRAME_BYTES: Final = 64 * 1024
"""Smallest frame that waits for its turn, if it arrives in pieces."""


class LargeAddTurns:
    """The connections whose large frame has arrived and waits for the journals.

    An add waits for everything that its journal got before. Shares limit the adds of a connection
    only after they were taken, so with frames of 5 MiB each connection would exceed its share by
    5 MiB. While ``must_wait`` returns True, large frames stay in memory as incomplete frames do.
    When it returns False, one of them is taken, from one address after the other.
    """

    def __init__(self, clock: IReactorTime, must_wait: Callable[[], bool]) -> None:
        self._clock, self.must_wait = clock, must_wait
        self._waiting = AddressQueue()
        self._turn: IDelayedCall | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, client: TurnTaker, address: str) -> None:
        """Call the connection's ``take_turn`` once, when its frame may be taken."""
        self._waiting.put(client, address)
        self.go_on()

    def leave(self, client: TurnTaker, address: str) -> None:
        """Remove a connection that is closed."""
        self._waiting.leave(client, address)

    def go_on(self) -> None:
        """Take the next frame in the next turn of the reactor; call when adds were answered."""
        if self._waiting and self._turn is None and not self.must_wait():
            self._turn = self._clock.callLater(0, self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        try:
            if self._waiting and not self.must_wait():
                self._waiting.next().take_turn(1)
        finally:
            self.go_on()
