"""A process that may start no more threads, as the system refuses them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def threads_left(count: int) -> Iterator[None]:
    """Let so many threads start in this block; each later one fails."""
    start, begun = threading.Thread.start, 0

    def limited(thread: threading.Thread) -> None:
        nonlocal begun
        if begun >= count:
            raise RuntimeError("can't start new thread")
        begun += 1
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        yield
