"""Many alarms, few different waits, one timer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from twisted.internet.interfaces import IDelayedCall, IReactorTime

K = TypeVar("K", bound=Hashable)


class Alarms(Generic[K]):
    """Rings for each key whose wait is over and that was not dropped before.

    Keys with the same wait are due in the order they were set, so only the first of each wait has
    to be looked at. Setting and dropping cost a dictionary operation each, whatever their number.
    """

    def __init__(self, clock: IReactorTime, ring: Callable[[K], None]) -> None:
        self._clock, self._ring = clock, ring
        self._groups: dict[float, dict[K, float]] = {}
        self._timer: IDelayedCall | None = None

    def set(self, key: K, wait_s: float) -> None:
        """Ring for ``key`` after ``wait_s``, once."""
        due_s = self._clock.seconds() + wait_s
        group = self._groups.get(wait_s)
        if group is None:
            group = self._groups[wait_s] = {}
        group[key] = due_s
        if self._timer is None:
            self._timer = self._clock.callLater(wait_s, self._fire)
        elif len(group) == 1 and due_s < self._timer.getTime():
            self._timer.reset(wait_s)

    def drop(self, key: K, wait_s: float) -> None:
        """Do not ring for ``key``, which was set with this wait."""
        group = self._groups.get(wait_s)
        if group is not None:
            group.pop(key, None)

    def stop(self) -> None:
        """Drop all."""
        self._groups.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        due = self._take_due(self._clock.seconds())
        if self._groups:
            next_s = min(next(iter(group.values())) for group in self._groups.values())
            wait_s = max(0.0, next_s - self._clock.seconds())
            self._timer = self._clock.callLater(wait_s, self._fire)
        for key in due:
            self._ring(key)

    def _take_due(self, now_s: float) -> list[K]:
        due: list[K] = []
        for group in self._groups.values():
            mine = list(itertools.takewhile(lambda key: group[key] <= now_s, group))  # noqa: B023
            for key in mine:
                del group[key]
            due += mine
        self._groups = {wait_s: group for wait_s, group in self._groups.items() if group}
        return due
