"""When to stop reading from clients: too much received that is not yet answered or written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime

RECHECK_S: Final = 0.01
"""How often to look whether the entry log has caught up; nobody calls us when it has."""


@attrs.frozen(kw_only=True)
class Limits:
    """What a bookie takes on before it lets clients wait, and what it refuses outright.

    At ``in_flight_bytes_max`` of requests without an answer, at ``unwritten_bytes_max`` of entries
    not yet in an entry log, or at ``adds_max`` adds without an answer, reading from every client
    stops; it goes on at half of each. Reads that wait for the disk beyond ``reads_pending_max``
    are answered ETOOMANYREQUESTS, but for a few of each connection. ``None`` is no limit.
    ``shared_room`` keeps the last two; beside them each connection may hold one read, and what its
    transport takes before it is full.
    """

    in_flight_bytes_max: int = 32 * 1024 * 1024
    unwritten_bytes_max: int | None = None
    adds_max: int | None = None  # maxAddsInProgressLimit
    reads_pending_max: int = 10_000  # maxPendingReadRequestsPerThread
    half_frames_bytes_max: int = 64 * 1024 * 1024
    unsent_bytes_max: int = 64 * 1024 * 1024


class Backpressure:
    """Counts what is in flight and says when reading is to stop and to go on.

    ``pause`` and ``resume`` are called in turn, ``pause`` first. One read of each connection may
    still arrive after a pause, so the bound is exceeded by that much.
    """

    def __init__(
        self,
        limits: Limits,
        clock: IReactorTime,
        unwritten_bytes: Callable[[], int],
        *,
        pause: Callable[[], None],
        resume: Callable[[], None],
    ) -> None:
        self.limits, self._clock, self._unwritten_bytes = limits, clock, unwritten_bytes
        self._pause, self._resume = pause, resume
        self._rechecking = False
        self.in_flight_bytes = 0
        self.adds_in_flight = 0
        self.is_paused = False

    def received(self, size_bytes: int, adds: int = 0) -> None:
        """Count a request, or a batch of adds."""
        self.in_flight_bytes += size_bytes
        self.adds_in_flight += adds
        if not self.is_paused and self._is_over(1):
            self.is_paused = True
            self._pause()
            self._recheck_later()

    def answered(self, size_bytes: int, adds: int = 0) -> None:
        """Count what ``received`` counted out again."""
        self.in_flight_bytes -= size_bytes
        self.adds_in_flight -= adds
        assert self.in_flight_bytes >= 0 <= self.adds_in_flight
        if self.is_paused:
            self._resume_if_fit()

    def _resume_if_fit(self) -> None:
        if self.is_paused and not self._is_over(2):
            self.is_paused = False
            self._resume()

    def _is_over(self, divisor: int) -> bool:
        limits = self.limits
        return (
            self.in_flight_bytes > limits.in_flight_bytes_max // divisor
            or (limits.adds_max is not None and self.adds_in_flight > limits.adds_max // divisor)
            or (
                limits.unwritten_bytes_max is not None
                and self._unwritten_bytes() > limits.unwritten_bytes_max // divisor
            )
        )

    def _recheck_later(self) -> None:
        if not self._rechecking and self.limits.unwritten_bytes_max is not None:
            self._rechecking = True
            self._clock.callLater(RECHECK_S, self._recheck)

    def _recheck(self) -> None:
        self._rechecking = False
        self._resume_if_fit()
        if self.is_paused:
            self._recheck_later()
