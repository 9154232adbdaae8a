"""A user's preferences for the shell, as a program reads them from a file."""

from __future__ import annotations

from typing import Final

import attrs

TIMING_S: Final = 10.0
"""From this time on a command's time is told, unless set otherwise."""


@attrs.frozen(kw_only=True)
class Preferences:
    """Times are in seconds: from which on a command's time is told, and the bell rings after it.

    ``None`` is for never.
    ``audit`` is where is kept what was run: a file, or ``syslog``.
    """

    vi: bool = False
    bar: bool = True
    timing_s: float | None = TIMING_S
    bell_s: float | None = None
    audit: str | None = None
