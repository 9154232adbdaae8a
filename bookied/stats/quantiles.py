"""Counts, sums and quantiles of many values, cheap enough for the hot path.

A value is noted as a whole number, and many are counted at a time: in a bucket of its power of two,
cut in 32, so that what is told of it is at most 1.6 % off; the largest is told exactly. Quantiles
are those of the last window that has ended, as Java's are (BookKeeper 4.18.0,
DataSketchesOpStatsLogger). Where that window is empty, they are those of the running window, which
Java does not tell. Count and sum go on for good.
"""

from __future__ import annotations

from math import frexp, nan
from typing import Final

MICROSECONDS: Final = 1000.0
"""In a millisecond: what latencies are noted in, as Java's are."""
WHOLE: Final = 1.0

NOTED_MAX: Final = 1024
"""Different values that are noted before they are counted."""

QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)

_CUTS: Final = 5
"""Buckets of one power of two, as a power of two."""
_SCALE: Final = 2 << _CUTS
_LEAST: Final = 1e-6
"""What is less, or none at all, counts as this."""


class Series:
    """One series of values.

    ``note`` and ``observe`` belong to one thread and only take a note; ``fold`` counts the notes.
    What is told is what was folded.
    """

    __slots__ = (
        "_largest",
        "_last",
        "_last_largest",
        "_noted",
        "_quantiles",
        "_scale",
        "_window",
        "count",
        "total",
    )

    def __init__(self, scale: float = MICROSECONDS) -> None:
        """``scale`` is how many units of a note, which is a whole number, make a value of 1."""
        self._scale = scale
        self._noted: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self._window: dict[int, int] = {}
        self._largest = 0.0
        self._last: dict[int, int] = {}
        self._last_largest = 0.0
        self._quantiles: list[float] = []
        """Those of the last window, once a scrape has asked."""

    def note(self, units: int, count: int = 1) -> None:
        """Note a value, in units, that many times."""
        noted = self._noted
        noted[units] = noted.get(units, 0) + count
        if len(noted) > NOTED_MAX:
            self.fold()

    def share(self, units: int, count: int) -> None:
        """Note so many values that make ``units`` together, one as great as the other."""
        each, more = divmod(units, count)
        self.note(each, count - more)
        if more:
            self.note(each + 1, more)

    def observe(self, value: float, count: int = 1) -> None:
        """Note a value that many times."""
        self.note(int(value * self._scale), count)

    def fold(self) -> None:
        """Count what was noted."""
        noted, self._noted = self._noted, {}
        for units, count in noted.items():
            value = max(0, units) / self._scale
            self.count += count
            self.total += value * count
            self._largest = max(self._largest, value)
            mantissa, exponent = frexp(max(value, _LEAST))
            bucket = (exponent << _CUTS) + int(mantissa * _SCALE)
            self._window[bucket] = self._window.get(bucket, 0) + count

    def rotate(self) -> None:
        """End a window; its quantiles are shown until the next ends."""
        self.fold()
        self._last, self._window = self._window, {}
        self._last_largest, self._largest = self._largest, 0.0
        self._quantiles = []

    def least(self) -> float:
        """Return the least of the window; not a number where nothing was seen."""
        window = self._last or self._window
        return _middle(min(window)) if window else nan

    def seen(self) -> tuple[int, int]:
        """Return how many values are in the last window and in the current one.

        The quantiles are of the last window, or of the current one if the last is empty.
        """
        return sum(self._last.values()), sum(self._window.values())

    def quantiles(self) -> list[float]:
        """Return the values at ``QUANTILES``; not a number where nothing was seen."""
        if not self._last:
            return _quantiles(self._window, self._largest)
        if not self._quantiles:
            self._quantiles = _quantiles(self._last, self._last_largest)
        return self._quantiles


def _quantiles(window: dict[int, int], largest: float) -> list[float]:
    if not window:
        return [nan] * len(QUANTILES)
    buckets = iter(sorted(window.items()))
    seen = sum(window.values())
    found: list[float] = []
    passed = bucket = 0
    for share in QUANTILES:
        while passed < share * seen:
            bucket, count = next(buckets)
            passed += count
        found.append(min(_middle(bucket), largest))
    found[-1] = largest
    return found


class Summary:
    """A series for what went well and one for what did not."""

    __slots__ = ("failure", "success")

    def __init__(self, scale: float = MICROSECONDS) -> None:
        """Milliseconds, unless the scale is ``WHOLE``."""
        self.success, self.failure = Series(scale), Series(scale)

    def note(self, units: int, *, ok: bool = True) -> None:
        """Note one value, in units."""
        (self.success if ok else self.failure).note(units)

    def observe(self, value: float, *, ok: bool = True) -> None:
        """Note one value."""
        (self.success if ok else self.failure).observe(value)

    def fold(self) -> None:
        """Count what was noted."""
        self.success.fold()
        self.failure.fold()

    def rotate(self) -> None:
        """End a window."""
        self.success.rotate()
        self.failure.rotate()


def _middle(bucket: int) -> float:
    # The mantissa is at least a half, so its bucket is never below half of the scale.
    half = _SCALE >> 1
    exponent, mantissa = divmod(bucket - half, half)
    return float((mantissa + half + 0.5) / _SCALE * 2.0**exponent)
