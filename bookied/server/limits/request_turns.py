"""The number of requests that one turn of the reactor handles, and the order of the clients.

Requests that are handled one by one take 20 to 80 µs each, and one read of a connection brings up
to 1,600 of them. Without turns, a few clients that send without pause would make all others wait
for seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

SLICE_REQUESTS: Final = 16
"""Requests of one connection that are handled before other connections have their turn."""

CROWDED_SLICE_REQUESTS: Final = 4
"""The same while others wait for their turn: one turn of the reactor may have many slices."""

TURN_REQUESTS_MAX: Final = 32
"""Requests of waiting connections that one reactor turn handles, if no other client asks."""

DIRECT_REQUESTS_MAX: Final = 32
"""Requests of clients that do not wait; after them the other clients wait for the next turn."""

EMPTY_TURNS_MAX: Final = 8
"""Consecutive turns without a request after work out of turn; the next turn handles one request."""


class TurnTaker(Protocol):
    """A connection that has more requests than a slice."""

    def take_turn(self, requests_max: int) -> int:
        """Handle at most ``requests_max`` requests; return how many. To continue, ``wait`` again.

        Indivisible work may count as more than ``requests_max``.
        """


class AddressQueue:
    """Clients that wait, round robin by address; each is queued at most once."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[TurnTaker, None]] = {}
        """By address, the next one first."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, client: TurnTaker, address: str) -> None:
        """Queue a client after the others of its address."""
        self._waiting.setdefault(address, {}).setdefault(client)

    def leave(self, client: TurnTaker, address: str) -> None:
        """Remove a client, if it waits."""
        mine = self._waiting.get(address, {})
        mine.pop(client, None)
        if not mine:
            self._waiting.pop(address, None)

    def next(self) -> TurnTaker:
        """Remove and return the client that has waited longest at the next address."""
        address, mine = next(iter(self._waiting.items()))
        client = next(iter(mine))
        del mine[client], self._waiting[address]
        if mine:
            self._waiting[address] = mine  # To the end, after the other addresses.
        return client


class Turns:
    """The connections that have used up their slice, served round robin.

    A client that sends a few requests and waits for the answers is served as soon as it is read. To
    read such clients soon, one turn of the reactor handles one request of the waiting connections
    and then reads others. After each turn in which no other client asks, the next turn handles one
    more, up to ``TURN_REQUESTS_MAX``. Each connection is queued at most once.

    Hundreds of clients that send one request each would make a turn long. So clients that are read
    after ``DIRECT_REQUESTS_MAX`` requests wait for the next turn, which handles as many. While any
    of these clients waits, requests of clients that did not wait reduce a turn by as many.
    Addresses take turns: many connections of one address do not make other addresses wait for all
    of them.

    Work that counts as more requests than the turn had left shortens the next turns by as many. So
    a part of a large batch is followed by turns that handle nothing, while others ask. After
    ``EMPTY_TURNS_MAX`` of these turns one request is handled in any case.

    ``clients_wait`` gets True when the first client has to wait, and False when the last has had
    its turn. Each turn that handles a request ends with ``give_way``.
    """

    def __init__(
        self,
        clock: IReactorTime,
        clients_wait: Callable[[bool], object],
        give_way: Callable[[], object] = lambda: None,
    ) -> None:
        self._clock, self._clients_wait, self._give_way = clock, clients_wait, give_way
        self._waiting = AddressQueue()
        self._crowd: set[TurnTaker] = set()
        """Waiting connections that would not wait in another turn."""
        self._direct = 0
        self.is_crowded = False
        """Whether connections that are read in this turn of the reactor wait for the next."""
        self._turn: IDelayedCall | None = None
        self._requests_max = 1
        self._overdrawn = 0
        self._empty_turns = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def slice_requests(self) -> int:
        """The number of requests that a connection may send without waiting."""
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
        """Queue a client that would not wait in another turn; see ``wait``."""
        self.wait(client, address)
        self._crowd.add(client)
        self._requests_max = max(self._requests_max, DIRECT_REQUESTS_MAX)

    def wait(self, client: TurnTaker, address: str = "") -> None:
        """Call a connection's ``take_turn`` once, after the others of its address that wait."""
        self._waiting.put(client, address)
        if self._turn is None:
            self._clients_wait(True)
            self._turn = self._clock.callLater(0, self._take_turn)

    def leave(self, client: TurnTaker, address: str = "") -> None:
        """Remove a connection that is closed."""
        self._waiting.leave(client, address)
        self._crowd.discard(client)

    def _next(self) -> TurnTaker:
        client = self._waiting.next()
        self._crowd.discard(client)
        return client

    def others_ask(self) -> None:
        """Keep the next turns short: a client that does not wait for its turn has asked."""
        left = DIRECT_REQUESTS_MAX - self._direct if self._crowd else 0
        self._requests_max = max(1, left)

    def count(self, requests: int) -> None:
        """Count work out of turn: the next turns are shorter by ``requests``."""
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
