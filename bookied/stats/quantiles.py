"""Counts, sums and quantiles of many values, cheap enough for the hot path.

A value is noted as an integer, and many are counted together: in a bucket of its power of two,
divided by 32, so that a reported value is at most 1.6 % off. The largest value is exact. Quantiles
are of the last complete window, as in Java (BookKeeper 4.18.0, DataSketchesOpStatsLogger). If that
window is empty, they are of the running window, which Java does not report. Count and sum are since
the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import frexp, nan
from typing import Final

MICROSECONDS: Final = 1000.0
"""Microseconds in a millisecond: latencies are noted in microseconds, reported in milliseconds."""
WHOLE: Final = 1.0

NOTED_MAX: Final = 1024
"""Different values that are noted before they are counted."""

QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)

_CUTS: Final = 5
"""The power of two of the buckets in one power of two."""
_SCALE: Final = 2 << _CUTS
_LEAST: Final = 1e-6
"""The smallest counted value; smaller values and 0 count as this."""


class Series:
    """One series of values.

    ``note`` and ``observe`` belong to one thread and only note a value; ``fold`` counts the notes.
    The other methods report counted values.
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
        """``scale`` is the number of noted units, which are integers, in a value of 1."""
        self._scale = scale
        self._noted: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self._window: dict[int, int] = {}
        self._largest = 0.0
        self._last: dict[int, int] = {}
        self._last_largest = 0.0
        self._quantiles: list[float] = []
        """The quantiles of the last window, after they were first read."""

    def note(self, units: int, count: int = 1) -> None:
        """Note a value in units, ``count`` times."""
        noted = self._noted
        noted[units] = noted.get(units, 0) + count
        if len(noted) > NOTED_MAX:
            self.fold()

    def share(self, units: int, count: int) -> None:
        """Note ``count`` equal values with the sum ``units``."""
        each, more = divmod(units, count)
        self.note(each, count - more)
        if more:
            self.note(each + 1, more)

    def observe(self, value: float, count: int = 1) -> None:
        """Note a value, ``count`` times."""
        self.note(int(value * self._scale), count)

    def fold(self) -> None:
        """Count the noted values."""
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
        """End a window; its quantiles are reported until the next window ends."""
        self.fold()
        self._last, self._window = self._window, {}
        self._last_largest, self._largest = self._largest, 0.0
        self._quantiles = []

    def least(self) -> float:
        """Return the smallest value of the window; NaN without a value."""
        window = self._last or self._window
        return _middle(min(window)) if window else nan

    def seen(self) -> tuple[int, int]:
        """Return the numbers of values in the last window and in the present one.

        The quantiles are of the last window, or of the present one if the last is empty.
        """
        return sum(self._last.values()), sum(self._window.values())

    def quantiles(self) -> list[float]:
        """Return the values at ``QUANTILES``; NaN without a value."""
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
    """A series of successes and a series of failures."""

    __slots__ = ("failure", "success")

    def __init__(self, scale: float = MICROSECONDS) -> None:
        """The series are of milliseconds, unless the scale is ``WHOLE``."""
        self.success, self.failure = Series(scale), Series(scale)

    def note(self, units: int, *, ok: bool = True) -> None:
        """Note one value, in units."""
        (self.success if ok else self.failure).note(units)

    def observe(self, value: float, *, ok: bool = True) -> None:
        """Note one value."""
        (self.success if ok else self.failure).observe(value)

    @contextmanager
    def timed(self, seconds: Callable[[], float]) -> Iterator[None]:
        """Observe the milliseconds of a block; a block that raises is a failure."""
        began_s, ok = seconds(), False
        try:
            yield
            ok = True
        finally:
            self.observe((seconds() - began_s) * 1000, ok=ok)

    def fold(self) -> None:
        """Count the noted values."""
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
