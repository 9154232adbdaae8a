"""The rate of TLS handshakes, and the order of the clients that wait for one."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bookied.server.limits.address_groups import group_of
from bookied.server.limits.request_turns import AddressQueue, TurnTaker

HANDSHAKE_GAP_S: Final = 0.004
"""Seconds from one handshake to the next.

With accept, keys and close, a handshake takes 1 to 3 ms of the reactor.
"""


class HandshakeTurns:
    """The connections that wait to begin TLS: one each ``HANDSHAKE_GAP_S``, round robin by address.

    So clients that do nothing but handshakes leave most of the reactor's time to others. A client
    of another address waits for only one of their handshakes.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting = AddressQueue()
        self._turn: IDelayedCall | None = None
        self._next_s = 0.0

    def wait(self, client: TurnTaker, host: str) -> None:
        """Call the connection's ``take_turn`` once, when a handshake may begin."""
        self._waiting.put(client, group_of(host))
        if self._turn is None:
            wait_s = max(0.0, self._next_s - self._clock.seconds())
            self._turn = self._clock.callLater(wait_s, self._take_turn)

    def leave(self, client: TurnTaker, host: str) -> None:
        """Remove a connection that is closed."""
        self._waiting.leave(client, group_of(host))

    def _take_turn(self) -> None:
        self._turn = None
        if not self._waiting:
            return
        try:
            self._waiting.next().take_turn(1)
        finally:
            self._next_s = self._clock.seconds() + HANDSHAKE_GAP_S
            if self._waiting and self._turn is None:
                self._turn = self._clock.callLater(HANDSHAKE_GAP_S, self._take_turn)
