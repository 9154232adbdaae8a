"""A bound on the work of a call: how many lines of Python it runs, whatever the machine's speed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class TooManyStepsError(BaseException):
    """The call ran more lines than it may; no ``except Exception`` holds it back."""


@contextmanager
def at_most(steps_max: int) -> Iterator[None]:
    """Fail where the body runs more than so many lines of Python, all that it calls included.

    Of this thread only. A loop that C runs counts for one line: give such code little memory.
    """
    left = steps_max

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        left -= event == "line"
        if left < 0:
            where = f"{frame.f_code.co_name}, line {frame.f_lineno}"
            raise TooManyStepsError(f"more than {steps_max} steps, at last in {where}")
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        yield
    finally:
        sys.settrace(before)
