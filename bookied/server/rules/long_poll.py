"""Readers that wait for a ledger's LAC to move (V3 long polls, wire.md 7.4)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bkclient.concurrency import wall_ms
from wire.errors import TooManyRequestsError
from wire.ids import LedgerId

POLLS_MAX: Final = 10_000
WAIT_S_MAX: Final = 600.0
"""The longest wait in seconds, whatever the client requests; Java's client requests under 5 s."""

ENDS_IN_TURN: Final = 16
"""Polls that one turn of the reactor answers: 1 ms."""

Woken = Callable[["int | None"], None]
"""A callback that gets the time of the LAC's move in ms since the epoch.

None if it did not move.
"""

Cancel = Callable[[], object]


@attrs.define(eq=False)
class _WaitingPoll:
    number: int
    address: str
    ledger_id: LedgerId
    previous_lac: int
    until_s: float
    woken: Woken
    is_over: bool = False


class LongPolls:
    """The waiting polls by ledger: at most ``polls_max``.

    At the limit, a new poll ends the oldest poll of the address with most polls, as if its time
    were up. A new poll of that address itself is refused.

    Agrees with BookKeeper 4.18.0, LongPollReadEntryProcessorV3: a poll ends when the LAC passes its
    ``previous_lac``, when the ledger becomes fenced, or when its time is up. If many polls end
    together, they are answered in several turns, so that other clients do not wait.
    """

    def __init__(self, clock: IReactorTime, *, polls_max: int = POLLS_MAX) -> None:
        self._clock, self._polls_max = clock, polls_max
        self._number = 0
        self.waiting: dict[LedgerId, list[tuple[int, int, _WaitingPoll]]] = {}
        """By ledger, the lowest LAC first.

        The hot path checks this before it reports an advance.
        """
        self._by_time: list[tuple[float, int, _WaitingPoll]] = []
        self._by_address: dict[str, dict[_WaitingPoll, None]] = {}
        self._woken: deque[tuple[_WaitingPoll, int | None]] = deque()
        self._turn: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._by_time)

    def wait(
        self,
        ledger_id: LedgerId,
        previous_lac: int,
        timeout_s: float,
        woken: Woken,
        address: str = "",
    ) -> Cancel:
        """Call ``woken`` at the end of the wait, unless the returned function is called before.

        Raises:
            TooManyRequestsError: ``polls_max`` polls wait, and no other address has more.
        """
        if len(self) >= self._polls_max and not self._end_one_of_most(address):
            raise TooManyRequestsError(f"{len(self)} long polls are waiting")
        self._number += 1
        until_s = self._clock.seconds() + min(max(timeout_s, 0.0), WAIT_S_MAX)
        poll = _WaitingPoll(self._number, address, ledger_id, previous_lac, until_s, woken)
        insort(self.waiting.setdefault(ledger_id, []), (previous_lac, poll.number, poll))
        insort(self._by_time, (until_s, poll.number, poll))
        self._by_address.setdefault(address, {})[poll] = None
        if self._by_time[0][-1] is poll:
            self._set_turn()
        return partial(self._end, poll)

    def _end_one_of_most(self, address: str) -> bool:
        """End a poll of the address with most polls; return False if ``address`` has as many."""
        most = max(self._by_address.values(), key=len, default={})
        if len(most) <= len(self._by_address.get(address, ())) + 1:
            return False
        poll = next(iter(most))
        self._end(poll)
        poll.woken(None)
        return True

    def lac_advanced(self, ledger_id: LedgerId, lac: int) -> None:
        """Wake the polls that wait for an LAC below this one."""
        passed = bisect_left(self.waiting.get(ledger_id, ()), (lac,))
        if passed:
            self._wake(ledger_id, passed, wall_ms(self._clock))

    def ledger_changed(self, ledger_id: LedgerId) -> None:
        """Wake all polls of a ledger that was just fenced or deleted."""
        if ledger_id in self.waiting:
            self._wake(ledger_id, len(self.waiting[ledger_id]), None)

    def _wake(self, ledger_id: LedgerId, count: int, moved_ms: int | None) -> None:
        """End the first ``count`` polls of a ledger, in the next turns."""
        is_turn_set = bool(self._woken)
        self._woken.extend((poll, moved_ms) for *_, poll in self.waiting[ledger_id][:count])
        self._forget(ledger_id, 0, count)
        if not is_turn_set:
            self._set_turn()

    def _take_turn(self) -> None:
        self._turn = None
        now_s = self._clock.seconds()
        try:
            for _ in range(ENDS_IN_TURN):
                if self._woken:
                    poll, moved_ms = self._woken.popleft()
                elif self._by_time and self._by_time[0][0] <= now_s:
                    poll, moved_ms = self._by_time[0][-1], None
                else:
                    break
                if self._end(poll):
                    poll.woken(moved_ms)
        finally:
            self._set_turn()

    def _set_turn(self) -> None:
        """Schedule the next turn for the time when the next poll ends."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        if self._by_time:
            due_s = 0.0 if self._woken else self._by_time[0][0] - self._clock.seconds()
            self._turn = self._clock.callLater(max(0.0, due_s), self._take_turn)

    def _end(self, poll: _WaitingPoll) -> bool:
        """Remove a poll; return whether it was still waiting."""
        if poll.is_over:
            return False
        poll.is_over = True
        del self._by_time[bisect_left(self._by_time, (poll.until_s, poll.number))]
        of_address = self._by_address[poll.address]
        del of_address[poll]
        if not of_address:
            del self._by_address[poll.address]
        polls = self.waiting.get(poll.ledger_id, [])
        at = bisect_left(polls, (poll.previous_lac, poll.number))
        if at < len(polls) and polls[at][-1] is poll:
            self._forget(poll.ledger_id, at, at + 1)
        if not self._by_time:
            self._woken.clear()
            self._set_turn()
        return True

    def _forget(self, ledger_id: LedgerId, begin: int, end: int) -> None:
        polls = self.waiting[ledger_id]
        del polls[begin:end]
        if not polls:
            del self.waiting[ledger_id]
