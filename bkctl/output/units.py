"""Numbers and times in the forms for people. Machine forms never use them."""

from __future__ import annotations

import itertools
import time
from typing import Final

_KIBI: Final = 1024
_WITH_FRACTION_S: Final = 10
_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def human_bytes(count: float) -> str:
    """Return ``12.3 GiB``; below 1 KiB plain bytes."""
    for unit in _BINARY:
        if abs(count) < _KIBI or unit == _BINARY[-1]:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KIBI
    raise AssertionError("unreachable")


def human_count(value: float) -> str:
    """Return ``987``, ``12.3k`` or ``4.5M``: rates and counts where space is scarce."""
    for unit in ("", "k", "M", "G"):
        if abs(value) < 999.5:  # noqa: PLR2004 -- what would be written with four digits
            return f"{value:.1f}{unit}" if unit or 0 < value < 10 else f"{value:.0f}"  # noqa: PLR2004
        value /= 1000
    return f"{value:.1f}T"


def human_ms(value: float | None) -> str:
    """Return milliseconds with three digits at most: ``0.42 ms``, ``17.3 ms``, ``2.1 s``."""
    if value is None:
        return "-"
    for limit, form in ((10, "{:.2f} ms"), (100, "{:.1f} ms"), (1000, "{:.0f} ms")):
        if value < limit:
            return form.format(value)
    return f"{value / 1000:.1f} s"


def free_of(free: int | None, total: int | None) -> str:
    """Return ``12.0 GiB free of 100.0 GiB``."""
    if free is None or total is None:
        return ""
    return f"{human_bytes(free)} free of {human_bytes(total)}"


def counted(count: int, what: str) -> str:
    """Return ``1 ledger``, ``2 ledgers`` or ``0 entries`` for ``ledger`` and ``entry``.

    Supported are words in ``ry`` or ``py``, and words whose plural ends in a plain ``s``.
    """
    if count == 1:
        return f"1 {what}"
    return f"{count} {what[:-1]}ies" if what.endswith(("ry", "py")) else f"{count} {what}s"


_MILLISECONDS_BELOW_S: Final = 0.9995
_TENTHS_BELOW_MS: Final = 9.95


def human_duration(seconds: float) -> str:
    """Return ``4d2h``, ``3m20s``, ``7.5s``, ``420ms`` or ``0.42ms``: two units at most."""
    if 0 < seconds < _MILLISECONDS_BELOW_S:
        return _human_ms(seconds * 1000)
    if seconds < _WITH_FRACTION_S:
        return f"{seconds:.1f}s" if seconds else "0s"
    rest = round(seconds)
    for (unit, size), (lower, part) in itertools.pairwise(_UNITS):
        if rest >= size:
            count, rest = divmod(rest, size)
            return f"{count}{unit}{rest // part}{lower}" if rest // part else f"{count}{unit}"
    return f"{rest}s"


def _human_ms(ms: float) -> str:
    digits = 0 if ms >= _TENTHS_BELOW_MS else 1 if ms >= 1 else 2
    return f"{ms:.{digits}f}ms"


def human_time(time_ms: int, *, utc: bool) -> str:
    """Return ``2026-01-31 14:05:09+01:00`` in the reader's zone; in UTC with a ``Z``."""
    # Not strftime: it checks the time zone's file at each call.
    moment = time.gmtime(time_ms / 1000) if utc else time.localtime(time_ms / 1000)
    text = "{:04d}-{:02d}-{:02d} {:02d}:{:02d}:{:02d}".format(*moment[:6])
    offset_min = moment.tm_gmtoff // 60
    if not offset_min:
        return f"{text}Z"
    hours, minutes = divmod(abs(offset_min), 60)
    return f"{text}{'-' if offset_min < 0 else '+'}{hours:02d}:{minutes:02d}"


def rfc3339(time_ms: int) -> str:
    """Return ``2026-01-31T14:05:09.123Z``."""
    seconds, ms = divmod(time_ms, 1000)
    moment = time.gmtime(seconds)
    return "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}.{:03d}Z".format(*moment[:6], ms)


def human_latency(seconds: float | None) -> str:
    """Return seconds in the form of ``human_ms``."""
    return human_ms(None if seconds is None else seconds * 1000)
