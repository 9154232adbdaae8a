"""Readers that wait for a ledger's LAC to move (V3 long polls, wire.md 7.4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bkclient.concurrency import wall_s
from wire.errors import TooManyRequestsError
from wire.ids import LedgerId

POLLS_MAX: Final = 10_000
WAIT_S_MAX: Final = 600.0
"""The longest wait granted, whatever was asked for; Java's client asks for less than 5 s."""

Woken = Callable[["int | None"], None]
"""Gets the time of the LAC's move in milliseconds since the epoch, None if it did not move."""

Cancel = Callable[[], object]


@attrs.define(eq=False)
class _Poll:
    ledger_id: LedgerId
    previous_lac: int
    woken: Woken
    timeout: IDelayedCall | None = None


class LongPolls:
    """The polls that wait, by ledger. At ``polls_max`` of them further ones are refused.

    Agrees with BookKeeper 4.18.0, LongPollReadEntryProcessorV3: a poll ends when the LAC passes
    its ``previous_lac``, when the ledger becomes fenced, or when its time is up.
    """

    def __init__(self, clock: IReactorTime, *, polls_max: int = POLLS_MAX) -> None:
        self._clock, self._polls_max = clock, polls_max
        self._count = 0
        self.waiting: dict[LedgerId, dict[_Poll, None]] = {}
        """Oldest first, by ledger; the hot path looks here before it reports an advance."""

    def __len__(self) -> int:
        return self._count

    def wait(
        self, ledger_id: LedgerId, previous_lac: int, timeout_s: float, woken: Woken
    ) -> Cancel:
        """Call ``woken`` once the wait is over, and never after the returned function is called.

        Raises:
            TooManyRequestsError: as many polls wait as are allowed.
        """
        if self._count >= self._polls_max:
            raise TooManyRequestsError(f"{self._count} long polls are waiting")
        poll = _Poll(ledger_id, previous_lac, woken)
        wait_s = min(max(timeout_s, 0.0), WAIT_S_MAX)
        poll.timeout = self._clock.callLater(wait_s, self._end, poll, None)
        self.waiting.setdefault(ledger_id, {})[poll] = None
        self._count += 1
        return partial(self._remove, poll)

    def lac_advanced(self, ledger_id: LedgerId, lac: int) -> None:
        """Wake those whom this LAC answers, in the order they came."""
        moved_ms = int(wall_s(self._clock) * 1000)
        for poll in list(self.waiting.get(ledger_id, ())):
            if lac > poll.previous_lac:
                self._end(poll, moved_ms)

    def ledger_changed(self, ledger_id: LedgerId) -> None:
        """Wake all who wait on a ledger that has just been fenced, or deleted."""
        for poll in list(self.waiting.get(ledger_id, ())):
            self._end(poll, None)

    def _end(self, poll: _Poll, moved_ms: int | None) -> None:
        if self._remove(poll):
            poll.woken(moved_ms)

    def _remove(self, poll: _Poll) -> bool:
        polls = self.waiting.get(poll.ledger_id, {})
        if poll not in polls:
            return False  # Already woken, or cancelled by one woken before it.
        del polls[poll]
        if not polls:
            del self.waiting[poll.ledger_id]
        self._count -= 1
        assert poll.timeout is not None
        if poll.timeout.active():
            poll.timeout.cancel()
        return True
