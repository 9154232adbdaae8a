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

DIRECT_REQUESTS_MAX: Final = 32
"""Requests of clients that do not wait; then the other clients of that turn wait for the next."""

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

    The requests of a client that sends a few and waits for their answers are taken as soon as they
    are read. So that they are read soon, one turn of the reactor takes one request of those that
    wait, after which others are read. Each turn in which no other client asks takes one more, up to
    ``TURN_REQUESTS_MAX``. Each connection is in here at most once.

    Hundreds of clients that send one request each would make a turn long. So clients that are read
    after ``DIRECT_REQUESTS_MAX`` of them wait for the next turn, which takes as many. While any of
    these clients waits, a turn takes as many less those of clients that did not have to wait.
    Addresses take turns: many connections of one address keep no other address waiting for all of
    them.

    Work that counts as more requests than the turn had left shortens the next turns by as many. So
    turns that take nothing follow a part of a large batch while others ask; after
    ``EMPTY_TURNS_MAX`` of them one request is taken nevertheless.

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
        self._waiting: dict[str, dict[TurnTaker, None]] = {}
        """By address, the next one first."""
        self._crowd: set[TurnTaker] = set()
        """Those of them that would not wait in another turn."""
        self._direct = 0
        self.is_crowded = False
        """Whether those that are read in this turn of the reactor have to wait for the next."""
        self._turn: IDelayedCall | None = None
        self._requests_max = 1
        self._overdrawn = 0
        self._empty_turns = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def slice_requests(self) -> int:
        """How many requests a connection may take that does not wait."""
        return CROWDED_SLICE_REQUESTS if self._waiting else SLICE_REQUESTS

    def take_directly(self, requests: int) -> None:
        """Count requests of a client that does not wait."""
        self._direct += requests
        if self._direct >= DIRECT_REQUESTS_MAX and not self.is_crowded:
            self.is_crowded = True
            self._clock.callLater(0, self._end_crowd)

    def _end_crowd(self) -> None:
        self.is_crowded, self._direct = False, 0

    def wait_in_crowd(self, client: TurnTaker, address: str) -> None:
        """As ``wait``, for a client that would not wait in another turn."""
        self.wait(client, address)
        self._crowd.add(client)
        self._requests_max = max(self._requests_max, DIRECT_REQUESTS_MAX)

    def wait(self, client: TurnTaker, address: str = "") -> None:
        """Call a connection's ``take_turn`` once, after those of the address that wait already."""
        self._waiting.setdefault(address, {}).setdefault(client)
        if self._turn is None:
            self._clients_wait(True)
            self._turn = self._clock.callLater(0, self._take_turn)

    def leave(self, client: TurnTaker, address: str = "") -> None:
        """Forget a connection that is closed."""
        mine = self._waiting.get(address, {})
        mine.pop(client, None)
        self._crowd.discard(client)
        if not mine:
            self._waiting.pop(address, None)

    def _next(self) -> TurnTaker:
        address, mine = next(iter(self._waiting.items()))
        client = next(iter(mine))
        del mine[client], self._waiting[address]
        if mine:
            self._waiting[address] = mine
        self._crowd.discard(client)
        return client

    def others_ask(self) -> None:
        """Keep the next turns short: a client that does not wait for its turn has asked."""
        left = DIRECT_REQUESTS_MAX - self._direct if self._crowd else 0
        self._requests_max = max(1, left)

    def count(self, requests: int) -> None:
        """Count work that was done out of turn like work that a turn had no space for."""
        self._overdrawn = min(self._overdrawn + requests, TURN_REQUESTS_MAX)

    def _take_turn(self) -> None:
        self._direct = 0
        left, owed = self._requests_max - self._overdrawn, 0
        self._requests_max = min(self._requests_max + 1, TURN_REQUESTS_MAX)
        if left <= 0 and self._empty_turns == EMPTY_TURNS_MAX:
            left, owed = 1, -left
        takes = left > 0
        self._empty_turns = 0 if takes else self._empty_turns + 1
        try:
            while left > 0 and self._waiting:
                left -= max(1, self._next().take_turn(min(left, SLICE_REQUESTS)))
        finally:
            self._overdrawn = min(owed + max(0, -left), TURN_REQUESTS_MAX)
            self._turn = None
            if self._waiting:
                self._turn = self._clock.callLater(0, self._take_turn)
            else:
                self._clients_wait(False)
        if takes:
            self._give_way()
