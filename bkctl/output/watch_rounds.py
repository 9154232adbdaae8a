"""The rounds of one watched command, for the code that prints its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bkctl.output.units import rfc3339

if TYPE_CHECKING:
    from bkctl.output.views import View


class WatchRounds:
    """The rounds of one watched command, for its emitters."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self.number = 0
        self.seen: list[tuple[View, Any, Mapping[str, Any]]] = []
        """The values of this round, each with its machine form."""
        self._cells: dict[tuple[Any, ...], str] = {}
        self._before: dict[tuple[Any, ...], str] = {}

    @property
    def now_ms(self) -> int:
        return int(self._clock_s() * 1000)

    @property
    def at(self) -> str:
        """The current time (RFC 3339), for the lines of this round."""
        return rfc3339(self.now_ms)

    def begin(self) -> None:
        """Begin the next round."""
        self.number += 1
        self._before, self._cells, self.seen = self._cells, {}, []

    def see(self, view: View, value: Any, record: Mapping[str, Any]) -> None:
        """Record a shown value."""
        self.seen.append((view, value, record))

    def is_new(self, key: tuple[Any, ...], text: str) -> bool:
        """Return whether a cell has changed since the last round."""
        self._cells[key] = text
        return self.number > 1 and self._before.get(key) != text
