"""How many requests one turn of the reactor takes, and which client is next.

Requests that need a decision of their own take 20 to 80 µs each, and one read of a connection
brings up to 1,600 of them. Without turns, a few clients that send without pause would keep all
others waiting for seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

SLICE_REQUESTS: Final = 16
"""Requests of one connection that are taken before other connections have their turn."""

CROWDED_SLICE_REQUESTS: Final = 4
"""The same while others wait for their turn: many slices may come in one turn of the reactor."""

TURN_REQUESTS_MAX: Final = 32
"""Requests of waiting connections that one turn of the reactor takes, if no other client asks."""

EMPTY_TURNS_MAX: Final = 8
"""Turns in a row that take nothing since work was done out of turn; then one request is taken."""


class TurnTaker(Protocol):
    """A connection that has more requests than a slice."""

    def take_turn(self, requests_max: int) -> int:
        """Take at most so many requests; return how many. To go on, ``wait`` again.

        Work that cannot be divided may count as more than ``requests_max``.
        """


class Turns:
    """Connections that have used up their slice, served round robin.

    A client that sends a few requests and waits for their answers is never in here: its requests
    are taken as soon as they are read. So that it is read soon, one turn of the reactor takes one
    request of those that wait, after which others are read. Each turn in which no other client
    asks takes one more, up to ``TURN_REQUESTS_MAX``. Each connection is in here at most once.

    Work that counts as more requests than the turn had left shortens the next turns by as many. So
    turns that take nothing follow a part of a large batch while others ask; after
    ``EMPTY_TURNS_MAX`` of them one request is taken all the same.

    ``clients_wait`` gets True when the first has to wait, and False when none does any more. Each
    turn that takes something ends with ``give_way``.
    """

    def __init__(
        self,
        clock: IReactorTime,
        clients_wait: Callable[[bool], object],
        give_way: Callable[[], object] = lambda: None,
    ) -> None:
        self._clock, self._clients_wait, self._give_way = clock, clients_wait, give_way
        self._waiting: dict[TurnTaker, None] = {}
        self._turn: IDelayedCall | None = None
        self._requests_max = 1
        self._overdrawn = 0
        self._empty_turns = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def slice_requests(self) -> int:
        """How many requests a connection may take that does not wait."""
        return CROWDED_SLICE_REQUESTS if self._waiting else SLICE_REQUESTS

    def wait(self, client: TurnTaker) -> None:
        """Call a connection's ``take_turn`` once, after those that wait already."""
        self._waiting.setdefault(client)
        if self._turn is None:
            self._clients_wait(True)
            self._turn = self._clock.callLater(0, self._take_turn)

    def leave(self, client: TurnTaker) -> None:
        """Forget a connection that is closed."""
        self._waiting.pop(client, None)

    def others_ask(self) -> None:
        """Keep the next turns short: a client that does not wait for its turn has asked."""
        self._requests_max = 1

    def count(self, requests: int) -> None:
        """Count work that was done out of turn like work that a turn had no space for."""
        self._overdrawn = min(self._overdrawn + requests, TURN_REQUESTS_MAX)

    def _take_turn(self) -> None:
        left, owed = self._requests_max - self._overdrawn, 0
        self._requests_max = min(self._requests_max + 1, TURN_REQUESTS_MAX)
        if left <= 0 and self._empty_turns == EMPTY_TURNS_MAX:
            left, owed = 1, -left
        takes = left > 0
        self._empty_turns = 0 if takes else self._empty_turns + 1
        try:
            while left > 0 and self._waiting:
                client = next(iter(self._waiting))
                del self._waiting[client]
                left -= max(1, client.take_turn(min(left, SLICE_REQUESTS)))
        finally:
            self._overdrawn = min(owed + max(0, -left), TURN_REQUESTS_MAX)
            self._turn = None
            if self._waiting:
                self._turn = self._clock.callLater(0, self._take_turn)
            else:
                self._clients_wait(False)
        if takes:
            self._give_way()
