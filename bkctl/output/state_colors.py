"""The colour of each state on a terminal, in tables and in drawings."""

from __future__ import annotations

from typing import Final

GREEN, YELLOW, RED = "32", "33", "31"

STATE_COLORS: Final = {
    "open": GREEN, "writable": GREEN, "up": GREEN, "ready": GREEN, "ok": GREEN,
    "intact": GREEN,
    "in-recovery": YELLOW, "read-only": YELLOW, "starting": YELLOW, "stopping": YELLOW,
    "unknown": YELLOW,
    "down": RED, "unreachable": RED, "failed": RED, "missing": RED,
    "damaged": RED, "differing": RED, "unreadable": RED,
}  # fmt: skip
"""The colour code of each state; other states have no colour."""
