"""Blocks that a signal must not interrupt."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay signals until the end of this block, which must be short.

    py4j has one connection for each thread. After an interrupted call, the next call, for example
    of the clean-up, would receive its answer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda signum, _frame: received.append(signum))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(signal.Signals(received[0]))
