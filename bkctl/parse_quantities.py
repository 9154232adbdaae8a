"""Sizes and times as people write them."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

_SIZE: Final = {
    "": 1,
    "b": 1,
    **{unit: 1024**n for n, unit in enumerate(("k", "m", "g", "t"), 1)},
    **{f"{unit}ib": 1024**n for n, unit in enumerate(("k", "m", "g", "t"), 1)},
    **{f"{unit}b": 1000**n for n, unit in enumerate(("k", "m", "g", "t"), 1)},
}
_SECONDS: Final = {
    "": 1.0,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}

SIZE_MAX: Final = 2**62
DURATION_S_MAX: Final = 36500 * 86400.0
"""More than any use; clocks and waits of the system support a few times as much."""


def parse_size(text: str) -> int:
    """Return the bytes of ``512``, ``64k``, ``1MiB`` (binary) or ``20MB`` (decimal).

    Raises:
        ValueError: the text is not a size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text.strip())
    if match is None or match[2].lower() not in _SIZE:
        raise ValueError(f"{text!r} is not a size; try 512, 64k, 1MiB or 20MB")
    size = float(match[1]) * _SIZE[match[2].lower()]
    if size > SIZE_MAX:
        raise ValueError(f"{match[0][:40]} is too large: the maximum is {SIZE_MAX} bytes")
    return int(size)


def parse_duration(text: str) -> float:
    """Return the seconds of ``90``, ``1.5s``, ``30m``, ``7d`` or ``1h30m``.

    Raises:
        ValueError: the text is not a duration.
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhdw]|$)", text.strip())
    if not parts or "".join(a + b for a, b in parts) != text.strip():
        raise ValueError(f"{text!r} is not a duration; try 90, 30m, 7d or 1h30m")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds > DURATION_S_MAX:
        raise ValueError(f"{text.strip()[:40]} is too long: the maximum is 36500d, a hundred years")
    return seconds


FIRST_MS: Final = -62_135_424_000_000
LAST_MS: Final = 253_402_214_399_999
"""The latest time that Python and Spark support in every time zone, on the last day but one of year
9999; the earliest is on the third day of year 1.
"""


def parse_time_ms(text: str) -> int:
    """Return ms since 1970, from their number or from ISO 8601; UTC without a zone.

    Raises:
        ValueError: the text is neither.
    """
    word = text.strip()
    if re.fullmatch(r"\d{1,15}", word):
        return int(word)
    try:
        return _iso_8601_ms(word, dt.timezone.utc)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not a time; try 2026-01-31, 2026-01-31T14:05:09Z or ms since 1970"
        ) from None


def parse_time_or_age_ms(text: str, now_s: float) -> int:
    """Return ms since 1970, as ``parse_time_ms``; also from an age: ``10m`` ago.

    Raises:
        ValueError: the text is neither.
    """
    word = text.strip()
    try:
        return _age_ms(word, now_s) if _is_age(word) else parse_time_ms(word)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not a time; try 2026-01-31, 2026-01-31T14:05:09Z, ms since 1970, or 10m "
            "for ten minutes ago"
        ) from None


def _is_age(word: str) -> bool:
    return re.search(r"[a-z]$", word) is not None


def _age_ms(word: str, now_s: float) -> int:
    return int((now_s - parse_duration(word)) * 1000)


def _iso_8601_ms(text: str, zone: dt.tzinfo | None) -> int:
    """Return ms since 1970; ``zone`` applies to a text without one, None is this machine's."""
    moment = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return int(moment.timestamp() * 1000)


def parse_moment_ms(text: str, now_s: float, *, utc: bool) -> int:
    """Return ms since 1970 from ISO 8601, as in tables, or from an age: ``1h`` ago.

    A text without a zone is in this machine's zone, or in UTC.

    Raises:
        ValueError: the text is neither.
    """
    word = text.strip()
    try:
        if _is_age(word):
            return _age_ms(word, now_s)
        if not word.isdecimal():
            return _iso_8601_ms(word, dt.timezone.utc if utc else None)
    except (ValueError, OverflowError):
        pass
    raise ValueError(
        f"{text!r} is not a time; try 2026-01-31, '2026-01-31 14:05:09', 2026-01-31T14:05:09Z, or "
        "1h for an hour ago"
    )
