"""Texts about disabled autorecovery: since when, for how long, and why."""

from __future__ import annotations

import time
from typing import Final

from bkclient.replication import autorecovery_admin
from bkclient.replication.autorecovery_admin import Pause
from bkctl.output.units import human_duration

_TEXT_MAX: Final = 200
"""Maximum characters of the reason; the metadata may have a megabyte."""


def reminder(note: bytes) -> str:
    """Return the reminder that autorecovery is disabled, from the stored note.

    It is empty before the end of a pause that has an end.
    """
    pause, now_s = autorecovery_admin.decode_pause(note), time.time()
    if pause.until_ms is not None and now_s * 1000 < pause.until_ms:
        return ""
    return f"bkctl: autorecovery is disabled{pause_text(pause, now_s)}"


def pause_text(pause: Pause, now_s: float) -> str:
    """Return who disabled autorecovery, when, for how long and why, as the end of a sentence."""
    words = []
    if pause.user is not None or pause.host is not None:
        by = "@".join(one for one in (pause.user, pause.host) if one)
        words.append(f" by {by:.{_TEXT_MAX}}")
    if pause.since_ms is not None:
        words.append(f", {human_duration(max(0, now_s - pause.since_ms / 1000))} ago")
    if pause.until_ms is not None:
        left_s = pause.until_ms / 1000 - now_s
        end = human_duration(abs(left_s))
        words.append(f", should have ended {end} ago" if left_s < 0 else f", for another {end}")
    if pause.reason is not None:
        words.append(f" ({pause.reason:.{_TEXT_MAX}})")
    return "".join(words)
