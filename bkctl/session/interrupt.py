"""The effect of Ctrl-C, SIGTERM and the time limit on a command.

The first signal ends a wait at once or, inside ``stopping()``, asks the command to stop at a safe
point. The second signal ends the process at once, without any clean-up that could hang. So does the
end of ``GRACE_S`` after SIGTERM or the time limit, which need no second signal.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bkctl.environment_and_streams import leave
from bkctl.errors import Interrupted
from bkctl.exit_status import ExitStatus
from bkctl.output.units import human_duration

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

GRACE_S: Final = 10.0
"""Seconds for a command to reach a safe point after SIGTERM or its time limit."""

ECHO_S: Final = 0.5
"""Seconds in which a second signal counts as the first: some senders signal a process and its
group.
"""

_STATUS: Final = {
    signal.SIGINT: ("interrupted", ExitStatus.INTERRUPTED),
    signal.SIGTERM: ("stopped by SIGTERM", ExitStatus.TERMINATED),
    signal.SIGALRM: ("time limit reached", ExitStatus.TIME_LIMIT),
}


class Stop:
    """A request to end a long piece of work; the work checks ``reason`` between its steps."""

    def __init__(self) -> None:
        self.reason: Interrupted | None = None
        self._waiting = False

    def __bool__(self) -> bool:
        return self.reason is not None

    def wait_for(self, function: Callable[..., T], *args: Any) -> T | None:
        """Return ``function(*args)``; None if a signal ended it."""
        try:
            self._waiting = True
            return function(*args) if self.reason is None else None
        except Interrupted:
            if self.reason is None:
                raise
            return None
        finally:
            self._waiting = False

    def ask(self, reason: Interrupted) -> None:
        """Request the end; called by the signal handler."""
        self.reason = reason
        if self._waiting:
            raise reason


class Interrupts:
    """The signal handlers of one command. Outside the main thread they are not installed."""

    def __init__(
        self,
        timeout_s: float = 0.0,
        *,
        at_once: Callable[[int, str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``at_once`` is called at a second signal, with a status and the last words."""
        self.last_words = ""
        """The state that a command leaves if it is ended at once."""
        self.waits_for: Callable[[], str] = str
        """Returns the current work: ``waiting for the cluster``; "" if it is unknown."""
        self._timeout_s, self._at_once, self._clock = timeout_s, at_once or leave, clock
        self._stop: Stop | None = None
        self._first_s: float | None = None
        self._first_status = ExitStatus.DONE
        self._ends_s = float("inf")
        self._has_grace = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _STATUS:
                self._before[number] = signal.signal(number, self._handle)
            signal.setitimer(signal.ITIMER_REAL, self._timeout_s)
        if self._timeout_s:
            self._ends_s = self._clock() + self._timeout_s
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    @property
    def left_s(self) -> float:
        """The seconds until the time limit; infinite without one."""
        return max(0.0, self._ends_s - self._clock())

    @contextlib.contextmanager
    def stopping(self) -> Iterator[Stop]:
        """Let the work in this block stop at its next safe point instead of at once."""
        assert self._stop is None, "one stop at a time"
        self._stop = Stop()
        try:
            yield self._stop
        finally:
            self._stop = None

    def _handle(self, number: int, _: FrameType | None) -> None:
        words, status = _STATUS[signal.Signals(number)]
        now_s = self._clock()
        if self._first_s is None:
            self._first_s, self._first_status = now_s, status
        elif number != signal.SIGALRM and now_s - self._first_s > ECHO_S:
            self._at_once(status, self.last_words)
        elif self._stop is None:
            if number == signal.SIGALRM and self._has_grace:
                # The clean-up takes too long. Or a finalizer was interrupted, and nothing ended.
                self._at_once(self._first_status, self.last_words)
            return
        elif self._stop and number == signal.SIGALRM:
            # The safe point was not reached in time either.
            self._at_once(self._first_status, self.last_words)
        if number == signal.SIGALRM:
            words += f" after {human_duration(self._timeout_s)}"
            if self._stop is None and (waits_for := self.waits_for()):
                words += f", while {waits_for}"
        reason = Interrupted(words, status)
        if number == signal.SIGALRM:
            self._has_grace = True
        if number == signal.SIGALRM or (number == signal.SIGTERM and self._stop is not None):
            signal.setitimer(signal.ITIMER_REAL, GRACE_S)
        if self._stop is None:
            raise reason
        if not self._stop:
            self._stop.ask(reason)
