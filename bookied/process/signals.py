"""The signals of a bookie's process, and the stacks of its threads for SIGQUIT.

``bookied.service.start_and_stop`` defines the order of a stop.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorFromThreads

from bookied.errors import BookieExitStatus

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@attrs.frozen(kw_only=True)
class SignalActions:
    """The action of each signal; the reactor calls them."""

    stop: Callable[[], object]
    """SIGTERM and SIGINT: stop; a second signal ends the process at once."""
    reopen: Callable[[], object]
    """SIGHUP: open the log file again, and read the settings."""
    collect: Callable[[], object]
    """SIGUSR1: collect garbage."""
    dump: Callable[[], object]
    """SIGQUIT: log the state."""


class ProcessSignals:
    """The signal handlers of one process.

    Args:
        reactor: calls the actions in its thread.
        actions: the action of each signal.
    """

    def __init__(self, reactor: IReactorFromThreads, actions: SignalActions) -> None:
        self._reactor, self._actions = reactor, actions
        self.is_stopping = False
        """True if the next stop signal ends the process at once."""
        self.is_over = False
        """True if the exit status is fixed, and a stop signal changes nothing."""

    def begin(self) -> None:
        """Install the handlers."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._stop)
        handlers = {
            signal.SIGHUP: self._actions.reopen,
            signal.SIGUSR1: self._actions.collect,
            signal.SIGQUIT: self._actions.dump,
        }
        for number, action in handlers.items():
            # Python runs handlers between two instructions of any code: leave that code first.
            signal.signal(number, lambda *_, then=action: self._reactor.callFromThread(then))

    def end(self) -> None:
        """Ignore stop signals.

        When the interpreter ends, it restores the system's handlers, except those of ignored
        signals.
        """
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _stop(self, *_: object) -> None:
        if self.is_over:
            return
        if self.is_stopping:
            os._exit(BookieExitStatus.FATAL)
        self.is_stopping = True
        self._reactor.callFromThread(self._actions.stop)


def thread_stacks() -> Iterator[tuple[int, str]]:
    """Yield (thread id, stack in one line, the innermost function first) for each thread."""
    for number, frame in sys._current_frames().items():  # noqa: SLF001  # there is no other way
        yield (
            number,
            " < ".join(
                f"{entry.name} ({Path(entry.filename).name}:{entry.lineno})"
                for entry in reversed(traceback.extract_stack(frame))
            ),
        )
