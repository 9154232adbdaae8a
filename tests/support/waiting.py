"""Waiting for what another thread or another process brings about: a condition with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_S = 0.02

START_S = 180.0
"""How long a server or a JVM may take to start, on a machine that does much else."""


class NotInTimeError(AssertionError):
    """The condition did not hold before the deadline."""


def until(
    condition: Callable[[], T],
    what: str | Callable[[], str] = "the condition did not hold",
    *,
    timeout_s: float = 60.0,
    check: Callable[[], object] = lambda: None,
    pause_s: float = PAUSE_S,
) -> T:
    """Ask again and again until a condition holds; return the true value it gave.

    ``what`` says what is wrong where it never holds: a text, or what makes one then. ``check`` runs
    before each pause and raises where waiting on is of no use.

    Raises:
        NotInTimeError: the condition does not hold after ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        check()
        if time.monotonic() > deadline_s:
            raise NotInTimeError(what if isinstance(what, str) else what())
        time.sleep(pause_s)
    return found
