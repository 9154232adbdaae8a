"""What all connections together may hold of frames half received and of answers not taken.

A connection alone is bounded: by the size of a frame, by the transport's buffer and by a few
fetches. Thousands of them are not, were it not for these. Both belong to the reactor's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bookied.server.limits.limit_hits import Limit

FREE_BYTES: Final = 4 * 1024
"""What each connection may hold of a frame without being counted."""

LOOK_S: Final = 1.0
LOOKS_MAX: Final = 3
"""How often a half frame may be met while others wait for the memory that it has."""

WAITING_LOOKS_MAX: Final = 5
"""The same for one that waits itself: so those that do not grow do not take turns for ever."""

STUCK_S: Final = 2.0
"""How long a client may leave its answers while they all are more than half of what may be."""


class ClientMemory(Protocol):
    """What a connection is here."""

    def update_reading(self) -> None:
        """Look again whether to read."""

    def time_is_up(self, limit: Limit) -> None:
        """Cut the connection."""


@attrs.define
class _Half:
    size_bytes: int = 0
    is_waiting: bool = False
    looks: int = 0


class HalfFrames:
    """What is here of frames that are not whole, over all connections.

    Beyond the bound a client whose half frame grows is not read until there is memory again; it
    loses nothing. The one whose frame began first always goes on, or none would. Those that do
    not end their frame while others wait are cut, after ``LOOKS_MAX`` seconds of it, or a little
    later where they are among those that wait.
    """

    def __init__(
        self, clock: IReactorTime, *, bytes_max: int, is_reading: Callable[[], bool] = lambda: True
    ) -> None:
        """Begin with all space free; time in which ``is_reading`` says no does not count."""
        self._clock, self.bytes_max, self._is_reading = clock, bytes_max, is_reading
        self._halves: dict[ClientMemory, _Half] = {}
        self._timer: IDelayedCall | None = None
        self.held_bytes = 0

    def note(self, client: ClientMemory, size_bytes: int) -> None:
        """Note how much is here by now of a client's half frame; see ``is_waiting``."""
        if size_bytes <= FREE_BYTES:
            return
        half = self._halves.setdefault(client, _Half())
        self.held_bytes += size_bytes - half.size_bytes
        half.size_bytes = size_bytes
        if self._is_over and client is not self._first:
            half.is_waiting = True
            client.update_reading()
            self._check_later()

    def is_waiting(self, client: ClientMemory) -> bool:
        """Whether a client must not be read for now."""
        return client in self._halves and self._halves[client].is_waiting

    def release(self, client: ClientMemory) -> None:
        """Give memory back, if any was taken: the frame is complete, or the client gone."""
        half = self._halves.pop(client, None)
        if half is None:
            return
        self.held_bytes -= half.size_bytes
        for other, its in list(self._halves.items()):
            if its.is_waiting and (not self._is_over or other is self._first):
                its.is_waiting = False
                other.update_reading()

    @property
    def _is_over(self) -> bool:
        return self.held_bytes > self.bytes_max

    @property
    def _first(self) -> ClientMemory:
        return next(iter(self._halves))

    def _check_later(self) -> None:
        if self._timer is None:
            self._timer = self._clock.callLater(LOOK_S, self._cut_stuck)

    def _cut_stuck(self) -> None:
        self._timer = None
        if not any(half.is_waiting for half in self._halves.values()):
            return
        for client, half in list(self._halves.items()) if self._is_reading() else ():
            half.looks += 1
            if half.looks >= (WAITING_LOOKS_MAX if half.is_waiting else LOOKS_MAX):
                client.time_is_up(Limit.HALF_FRAMES)
        self._check_later()


@attrs.define
class _Unsent:
    size_bytes: int
    since_s: float


class UnsentAnswers:
    """Answers that were written and that clients have not read, over all connections.

    No other client waits for them. At half of the bound, clients are dropped that have read nothing
    for ``STUCK_S``. At the bound, the client that has been stalled longest is dropped at once.
    """

    def __init__(self, clock: IReactorTime, *, bytes_max: int) -> None:
        self._clock, self.bytes_max = clock, bytes_max
        self._unsent: dict[ClientMemory, _Unsent] = {}  # The longest wait is first.
        self._timer: IDelayedCall | None = None
        self.size_bytes = 0

    def add(self, client: ClientMemory, size_bytes: int) -> None:
        """Count what is held for a client whose buffer is full."""
        unsent = self._unsent.setdefault(client, _Unsent(0, self._clock.seconds()))
        unsent.size_bytes += size_bytes
        self.size_bytes += size_bytes
        # One alone is bounded by what a connection may hold.
        while self.size_bytes > self.bytes_max and len(self._unsent) > 1:
            self._cut(next(iter(self._unsent)))
        self._check_later()

    def taken(self, client: ClientMemory) -> None:
        """Count out a client that has taken all, or is gone."""
        unsent = self._unsent.pop(client, None)
        if unsent is not None:
            self.size_bytes -= unsent.size_bytes

    def _cut(self, client: ClientMemory) -> None:
        self.taken(client)
        client.time_is_up(Limit.UNSENT)

    def _check_later(self) -> None:
        if self._timer is None and self.size_bytes > self.bytes_max // 2:
            self._timer = self._clock.callLater(STUCK_S, self._cut_stuck)

    def _cut_stuck(self) -> None:
        self._timer = None
        if self.size_bytes > self.bytes_max // 2:
            until_s = self._clock.seconds() - STUCK_S
            for client in [one for one, its in self._unsent.items() if its.since_s <= until_s]:
                self._cut(client)
        self._check_later()
