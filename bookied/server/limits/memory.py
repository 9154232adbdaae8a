"""The memory of all connections together for incomplete frames and for unread answers.

One connection is bounded by the frame size, the transport's buffer and a few fetches. These limits
bound thousands of connections. All methods belong to the reactor's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bookied.server.limits.limit_hits import Limit

FREE_BYTES: Final = 4 * 1024
"""Bytes of a frame that each connection may have without being counted."""

LOOK_S: Final = 1.0
LOOKS_MAX: Final = 3
"""Checks that an incomplete frame survives while other frames wait for its memory."""

WAITING_LOOKS_MAX: Final = 5
"""The same for a frame that waits itself: so frames that do not grow cannot take turns for ever."""

STUCK_S: Final = 2.0
"""Seconds that a client may leave its answers unread while all unread answers exceed half the
limit.
"""


class ClientMemory(Protocol):
    """The interface of a connection for the memory limits."""

    def update_reading(self) -> None:
        """Decide again whether to read from the client."""

    def time_is_up(self, limit: Limit) -> None:
        """Cut the connection."""


@attrs.define
class _HalfFrame:
    size_bytes: int = 0
    is_waiting: bool = False
    looks: int = 0


class HalfFrames:
    """The incomplete frames of all connections.

    Above the limit, a client whose frame grows is not read until memory is free; no bytes are lost.
    The client whose frame began first is always read, so that at least one frame completes. If a
    frame does not complete while others wait, its client is cut after ``LOOKS_MAX`` seconds, or
    after ``WAITING_LOOKS_MAX`` if the client waits itself.
    """

    def __init__(
        self, clock: IReactorTime, *, bytes_max: int, is_reading: Callable[[], bool] = lambda: True
    ) -> None:
        """Begin without frames; time in which ``is_reading`` returns False does not count."""
        self._clock, self.bytes_max, self._is_reading = clock, bytes_max, is_reading
        self._halves: dict[ClientMemory, _HalfFrame] = {}
        self._timer: IDelayedCall | None = None
        self.held_bytes = 0

    def note(self, client: ClientMemory, size_bytes: int) -> None:
        """Record the received bytes of a client's incomplete frame; see ``is_waiting``."""
        if size_bytes <= FREE_BYTES:
            return
        half = self._halves.setdefault(client, _HalfFrame())
        self.held_bytes += size_bytes - half.size_bytes
        half.size_bytes = size_bytes
        if self._is_over and client is not self._first:
            half.is_waiting = True
            client.update_reading()
            self._check_later()

    def is_waiting(self, client: ClientMemory) -> bool:
        """Return whether the client must not be read now."""
        return client in self._halves and self._halves[client].is_waiting

    def release(self, client: ClientMemory) -> None:
        """Count out a client's frame, if any: it is complete or the connection is lost."""
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

    No other client waits for them. At half of the limit, clients are dropped that have read nothing
    for ``STUCK_S``. At the limit, the client that has been stalled longest is dropped at once.
    """

    def __init__(self, clock: IReactorTime, *, bytes_max: int) -> None:
        self._clock, self.bytes_max = clock, bytes_max
        self._unsent: dict[ClientMemory, _Unsent] = {}  # The longest stalled is first.
        self._timer: IDelayedCall | None = None
        self.size_bytes = 0

    def add(self, client: ClientMemory, size_bytes: int) -> None:
        """Count answers to a client whose transport buffer is full."""
        unsent = self._unsent.setdefault(client, _Unsent(0, self._clock.seconds()))
        unsent.size_bytes += size_bytes
        self.size_bytes += size_bytes
        # A single client is bounded by the limits of one connection.
        while self.size_bytes > self.bytes_max and len(self._unsent) > 1:
            self._cut(next(iter(self._unsent)))
        self._check_later()

    def taken(self, client: ClientMemory) -> None:
        """Count out a client that has read all answers or whose connection is lost."""
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
