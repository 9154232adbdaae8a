"""What all connections together may hold of frames half received and of answers not taken.

A connection alone is bounded: by the size of a frame, by the transport's buffer and by a few
fetches. Thousands of them are not, were it not for these. Both belong to the reactor's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

FREE_BYTES: Final = 64 * 1024
"""A frame up to here needs no leave: a read may bring as much anyway."""

STUCK_S: Final = 10.0
"""How long a client may stand still while others wait for the room that it has."""

log = Logger()


class Client(Protocol):
    """What a connection is here."""

    def update_reading(self) -> None:
        """Look again whether to read."""

    def abort(self) -> None:
        """Cut the connection."""


@attrs.define
class _Claim:
    size_bytes: int
    since_s: float


class FrameRoom:
    """Room for frames of which only a part is here.

    A frame longer than ``FREE_BYTES`` is received only once there is room for all of it, first come
    first served; a client that is not read meanwhile loses nothing. One that has room and does not
    send the rest is cut after ``STUCK_S`` if others wait.
    """

    def __init__(
        self,
        clock: IReactorTime,
        *,
        bytes_max: int,
        is_reading: Callable[[], bool] = lambda: True,
    ) -> None:
        """Begin with all room free; without ``is_reading`` nobody is cut for standing still."""
        self._clock, self._bytes_max, self._is_reading = clock, bytes_max, is_reading
        self._held: dict[Client, _Claim] = {}
        self._waiting: dict[Client, int] = {}
        self._look: IDelayedCall | None = None
        self.held_bytes = 0

    def claim(self, client: Client, size_bytes: int) -> None:
        """Ask for room for a frame of so many bytes; see ``is_waiting``."""
        if size_bytes <= FREE_BYTES:
            return
        if self._waiting or not self._fits(size_bytes):
            self._waiting[client] = size_bytes
            client.update_reading()
            self._look_later()
        else:
            self._hold(client, size_bytes)

    def is_waiting(self, client: Client) -> bool:
        """Whether a client must not be read for now."""
        return client in self._waiting

    def release(self, client: Client) -> None:
        """Take back what was claimed, if anything: the frame is whole, or the client gone."""
        claim = self._held.pop(client, None)
        if claim is not None:
            self.held_bytes -= claim.size_bytes
        elif self._waiting.pop(client, None) is None:
            return
        while self._waiting:
            first, size_bytes = next(iter(self._waiting.items()))
            if not self._fits(size_bytes):
                break
            del self._waiting[first]
            self._hold(first, size_bytes)
            first.update_reading()

    def _fits(self, size_bytes: int) -> bool:
        # A single frame goes through whatever the bound, or it would wait for ever.
        return not self._held or self.held_bytes + size_bytes <= self._bytes_max

    def _hold(self, client: Client, size_bytes: int) -> None:
        self._held[client] = _Claim(size_bytes, self._clock.seconds())
        self.held_bytes += size_bytes

    def _look_later(self) -> None:
        if self._look is None:
            self._look = self._clock.callLater(STUCK_S, self._cut_stuck)

    def _cut_stuck(self) -> None:
        self._look = None
        if not self._waiting:
            return
        until_s = self._clock.seconds() - STUCK_S
        stuck = [one for one, claim in self._held.items() if claim.since_s <= until_s]
        for client in stuck if self._is_reading() else ():
            log.warn("cutting a connection that does not send the rest of its frame")
            client.abort()
        self._look_later()


class UnsentAnswers:
    """Answers that were written and that clients do not take.

    Above the bound nothing is fetched from disk for anybody, and nobody is read, until it is half
    of that again; clients that have taken nothing for ``STUCK_S`` by then are cut.
    """

    def __init__(self, clock: IReactorTime, *, bytes_max: int, changed: Callable[[], None]) -> None:
        """Begin with none; ``changed`` is called when ``is_over`` has."""
        self._clock, self._bytes_max, self._changed = clock, bytes_max, changed
        self._unsent: dict[Client, _Claim] = {}
        self._look: IDelayedCall | None = None
        self.size_bytes = 0
        self.is_over = False

    def add(self, client: Client, size_bytes: int) -> None:
        """Count what was written to a client whose buffer is full."""
        claim = self._unsent.setdefault(client, _Claim(0, self._clock.seconds()))
        claim.size_bytes += size_bytes
        self.size_bytes += size_bytes
        if not self.is_over and self.size_bytes > self._bytes_max:
            self.is_over = True
            self._look_later()
            self._changed()

    def taken(self, client: Client) -> None:
        """Count out a client that has taken all, or is gone."""
        claim = self._unsent.pop(client, None)
        if claim is None:
            return
        self.size_bytes -= claim.size_bytes
        if self.is_over and self.size_bytes <= self._bytes_max // 2:
            self.is_over = False
            self._changed()

    def _look_later(self) -> None:
        if self._look is None:
            self._look = self._clock.callLater(STUCK_S, self._cut_stuck)

    def _cut_stuck(self) -> None:
        self._look = None
        if not self.is_over:
            return
        until_s = self._clock.seconds() - STUCK_S
        for client in [one for one, claim in self._unsent.items() if claim.since_s <= until_s]:
            log.warn("cutting a connection that does not take its answers")
            client.abort()
        self._look_later()
