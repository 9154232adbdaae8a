"""How often a TLS handshake begins, and whose is next."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bookied.server.limits.address_groups import group_of
from bookied.server.limits.request_turns import TurnTaker

HANDSHAKE_GAP_S: Final = 0.004
"""From one handshake to the next.

A handshake takes 1 to 3 ms of the reactor with all that belongs to it: accept, keys, close.
"""


class HandshakeTurns:
    """Connections that wait to begin TLS: one each ``HANDSHAKE_GAP_S``, of each address in turn.

    So clients that do nothing but handshakes leave most of the reactor's time to others, and a
    client of another address waits for one of theirs.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: dict[str, dict[TurnTaker, None]] = {}
        self._turn: IDelayedCall | None = None
        self._next_s = 0.0

    def wait(self, client: TurnTaker, host: str) -> None:
        """Call a connection's ``take_turn`` once, when a handshake may begin."""
        self._waiting.setdefault(group_of(host), {}).setdefault(client)
        if self._turn is None:
            wait_s = max(0.0, self._next_s - self._clock.seconds())
            self._turn = self._clock.callLater(wait_s, self._take_turn)

    def leave(self, client: TurnTaker, host: str) -> None:
        """Forget a connection that is closed."""
        self._waiting.get(group_of(host), {}).pop(client, None)

    def _take_turn(self) -> None:
        self._turn = None
        client = self._next()
        if client is None:
            return
        try:
            client.take_turn(1)
        finally:
            self._next_s = self._clock.seconds() + HANDSHAKE_GAP_S
            if self._waiting and self._turn is None:
                self._turn = self._clock.callLater(HANDSHAKE_GAP_S, self._take_turn)

    def _next(self) -> TurnTaker | None:
        """Take out the client that waits longest of the address that is next."""
        while self._waiting:
            group = next(iter(self._waiting))
            clients = self._waiting.pop(group)
            if clients:
                client = next(iter(clients))
                del clients[client]
                if clients:
                    self._waiting[group] = clients  # After the others.
                return client
        return None
