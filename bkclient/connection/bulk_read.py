"""Many plain reads of one ledger at one bookie: one write, one Deferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Union

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from wire.messages import Response

BulkAnswer = Union[bytes, Response]
"""The entry packet, or what else came."""


class BulkRead:
    """Collects answers; fires with those that came, when all have or none will any more.

    What is missing then, or refused, the caller asks for one by one.
    """

    def __init__(self, entries: Sequence[int]) -> None:
        self.deferred: Deferred[dict[int, BulkAnswer]] = Deferred(lambda _: self._stop_timer())
        self.entries = entries
        """What was asked for, each once."""
        self._answers: dict[int, BulkAnswer] = {}
        self._timer: IDelayedCall | None = None

    def wait(self, clock: IReactorTime, timeout_s: float, timed_out: Callable[[], object]) -> None:
        """Wait for answers so long, and no longer; ``timed_out`` hears of it if there are none."""
        self._timer = clock.callLater(timeout_s, self._expire, timed_out)

    def take(self, entry_id: int, answer: BulkAnswer) -> None:
        """Take the answer for an entry that was asked for."""
        self._answers[entry_id] = answer
        if len(self._answers) == len(self.entries):
            self.finish()

    def finish(self) -> None:
        """Wait for no more answers."""
        self._stop_timer()
        if not self.deferred.called:
            self.deferred.callback(self._answers)

    def _expire(self, timed_out: Callable[[], object]) -> None:
        timed_out()
        self.finish()

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
