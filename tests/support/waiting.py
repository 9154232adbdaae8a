"""Waiting for what another thread or another process brings about: a condition with a deadline."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import HasFileno

T = TypeVar("T")

PAUSE_S = 0.02
PAUSE_S_MAX = 0.1

TIMEOUT_S = 180.0
"""How long is waited for what comes at once on a machine that has nothing else to do."""

START_S = 180.0
"""How long a server or a JVM may take to start, on a machine that does much else."""


_CLOSING_S = 30.0


class NotInTimeError(AssertionError):
    """The condition did not hold before the deadline."""


def pause_after(waited_s: float, pause_s: float = PAUSE_S) -> float:
    """Return how long to pause: longer after a long wait, which costs the others less CPU so."""
    return max(pause_s, min(waited_s / 10, PAUSE_S_MAX))


def until(
    condition: Callable[[], T],
    what: str | Callable[[], str] = "the condition did not hold",
    *,
    timeout_s: float = TIMEOUT_S,
    check: Callable[[], object] = lambda: None,
    pause_s: float = PAUSE_S,
) -> T:
    """Ask again and again until a condition holds; return the true value it gave.

    ``what`` says what is wrong where it never holds: a text, or what makes one then. ``check`` runs
    before each pause and raises where waiting on is of no use. ``pause_s`` is the shortest pause.

    Raises:
        NotInTimeError: the condition does not hold after ``timeout_s``.
    """
    began_s = time.monotonic()
    while not (found := condition()):
        check()
        waited_s = time.monotonic() - began_s
        if waited_s > timeout_s:
            raise NotInTimeError(what if isinstance(what, str) else what())
        time.sleep(pause_after(waited_s, pause_s))
    return found


def sessions() -> list[threading.Thread]:
    """Return the threads that kazoo runs here: one for each session of ZooKeeper."""
    return [thread for thread in threading.enumerate() if "zk_loop" in thread.name]


def until_sessions_are_closed() -> None:
    """See that no session of ZooKeeper is left over.

    Its thread would draw from ``random``, which Hypothesis takes for a strategy that does: a
    property test to come would fail.
    """
    until(lambda: not sessions(), lambda: f"not closed: {sessions()}", timeout_s=_CLOSING_S)


def is_readable(file: int | HasFileno, timeout_s: float = 0.0) -> bool:
    """Wait until a file has something to read, an end or an error included; say whether it has.

    Any number of a descriptor will do: ``select.select`` refuses those above 1,023.
    """
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
