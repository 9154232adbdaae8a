"""Child processes of tests, and waiting for what they bring about."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bkctl.commands.local.child_process import ChildProcess
from tests.support.waiting import until

T = TypeVar("T")

LINES_MAX = 50
"""How much of its log is shown of a child that fails."""


def until_child(child: ChildProcess, condition: Callable[[], T], *, timeout_s: float = 60.0) -> T:
    """Wait for what a child brings about; fail with its log at the deadline, or when it ends."""

    def runs() -> None:
        assert child.returncode is None, child.log_tail(LINES_MAX)

    return until(condition, lambda: child.log_tail(LINES_MAX), timeout_s=timeout_s, check=runs)
