"""Counts, sums and quantiles of many values, cheap enough for the hot path.

A value falls into a bucket of its power of two, cut in 32: what is told of it is at most 1.6 % off,
and the largest is told exactly. Quantiles are those of the last window that has ended, as Java's
are (BookKeeper 4.18.0, DataSketchesOpStatsLogger); count and sum go on for good.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import frexp, nan
from typing import Final

QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)

_CUTS: Final = 5
"""Buckets of one power of two, as a power of two."""
_SCALE: Final = 2 << _CUTS
_LEAST: Final = 1e-6
"""What is less, or none at all, counts as this."""


class Series:
    """One series of values: ``observe`` belongs to one thread, the rest to the reactor's."""

    __slots__ = (
        "_largest",
        "_last",
        "_last_largest",
        "_quantiles",
        "_window",
        "count",
        "total",
    )

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._window: dict[int, int] = {}
        self._largest = 0.0
        self._last: dict[int, int] = {}
        self._last_largest = 0.0
        self._quantiles: list[float] = []
        """Those of the last window, once somebody has asked."""

    def observe(self, value: float, count: int = 1) -> None:
        """Count ``value`` that many times."""
        self.count += count
        self.total += value * count
        if value > self._largest:  # noqa: PLR1730 -- likewise
            self._largest = value
        mantissa, exponent = frexp(value if value > _LEAST else _LEAST)  # noqa: FURB136 -- max() costs more
        bucket = (exponent << _CUTS) + int(mantissa * _SCALE)
        window = self._window
        window[bucket] = window.get(bucket, 0) + count

    def observe_all(self, values: Iterable[tuple[float, int]]) -> None:
        """Count many values, each with how often it is meant; as ``observe``, and faster."""
        window, largest = self._window, self._largest
        for value, count in values:
            self.count += count
            self.total += value * count
            if value > largest:  # noqa: PLR1730 -- max() costs more
                largest = value
            mantissa, exponent = frexp(value if value > _LEAST else _LEAST)  # noqa: FURB136
            bucket = (exponent << _CUTS) + int(mantissa * _SCALE)
            window[bucket] = window.get(bucket, 0) + count
        self._largest = largest

    def rotate(self) -> None:
        """End a window; its quantiles are shown until the next ends."""
        self._last, self._window = self._window, {}
        self._last_largest, self._largest = self._largest, 0.0
        self._quantiles = []

    def least(self) -> float:
        """Return the least of the last window; not a number where nothing was seen."""
        return _middle(min(self._last)) if self._last else nan

    def quantiles(self) -> list[float]:
        """Return the values at ``QUANTILES``; not a number where nothing was seen."""
        if not self._quantiles:
            self._quantiles = self._find_quantiles() if self._last else [nan] * len(QUANTILES)
        return self._quantiles

    def _find_quantiles(self) -> list[float]:
        buckets = iter(sorted(self._last.items()))
        seen = sum(self._last.values())
        found: list[float] = []
        passed = bucket = 0
        for share in QUANTILES:
            while passed < share * seen:
                bucket, count = next(buckets)
                passed += count
            found.append(min(_middle(bucket), self._last_largest))
        found[-1] = self._last_largest
        return found


class Summary:
    """A series for what went well and one for what did not; milliseconds unless it says bytes."""

    __slots__ = ("failure", "success")

    def __init__(self) -> None:
        self.success, self.failure = Series(), Series()

    def observe(self, value: float, *, ok: bool = True) -> None:
        """Count one value."""
        (self.success if ok else self.failure).observe(value)

    def rotate(self) -> None:
        """End a window."""
        self.success.rotate()
        self.failure.rotate()


def _middle(bucket: int) -> float:
    # The mantissa is at least a half, so its bucket is never below half of the scale.
    half = _SCALE >> 1
    exponent, mantissa = divmod(bucket - half, half)
    return float((mantissa + half + 0.5) / _SCALE * 2.0**exponent)
