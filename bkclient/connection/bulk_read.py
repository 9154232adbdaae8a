"""Many plain reads of one ledger at one bookie: one write, one Deferred."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Union

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from wire.frames.bulk_reads import PlainRead
from wire.messages import Response

BulkAnswer = Union[PlainRead, Response]


class BulkRead:
    """Collects answers; fires with those that came, when all have or none will any more.

    What is missing then, or refused, the caller asks for one by one.
    """

    def __init__(self, entries: Sequence[int], keys: Sequence[Hashable]) -> None:
        self.deferred: Deferred[dict[int, BulkAnswer]] = Deferred(lambda _: self._stop_timer())
        self.entries, self.keys = entries, keys
        """What was asked for, and what each answer is matched by, in the same order."""
        self._entry_of = dict(zip(keys, entries, strict=True))
        self._answers: dict[int, BulkAnswer] = {}
        self._timer: IDelayedCall | None = None

    def wait(self, clock: IReactorTime, timeout_s: float, timed_out: Callable[[], object]) -> None:
        """Wait for answers so long, and no longer; ``timed_out`` hears of it if there are none."""
        self._timer = clock.callLater(timeout_s, self._expire, timed_out)

    def take(self, key: Hashable, answer: BulkAnswer) -> None:
        """Take the answer with this key."""
        self._answers[self._entry_of.pop(key)] = answer
        if not self._entry_of:
            self.finish()

    def finish(self) -> None:
        """Wait for no more answers."""
        self._entry_of.clear()
        self._stop_timer()
        if not self.deferred.called:
            self.deferred.callback(self._answers)

    def _expire(self, timed_out: Callable[[], object]) -> None:
        timed_out()
        self.finish()

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
