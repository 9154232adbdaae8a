"""Steps that a signal must not cut in two."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let signals wait for the end of this block, which must be short.

    py4j keeps one connection a thread: a call that is left half way would give its answer to the
    next one, and the clean-up would be the one that goes wrong.
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
