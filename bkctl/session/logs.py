"""The client's log events on stderr, one line each, while a command runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    globalLogBeginner,
)
from zope.interface import implementer

from bkctl.output.forms.text import safe

_OURS = ("bkclient", "bookied", "wire")
_begun: list[LogLevelFilterPredicate] = []


@implementer(ILogObserver)
class LogLines:
    """Writes events as lines to a stream, which is asked for at each of them."""

    def __init__(self, stderr: Callable[[], TextIO]) -> None:
        self._stderr = stderr

    def __call__(self, event: LogEvent) -> None:
        level = event.get("log_level")
        name = "info" if level is None else level.name
        text = safe(" ".join(formatEvent(event).split()))
        stderr = self._stderr()
        if not stderr.closed:
            print(f"bkctl: {name}: {text}", file=stderr, flush=True)


def start_logging(level: str, stderr: Callable[[], TextIO]) -> None:
    """Show our events from ``level`` on, and errors of the libraries.

    ``stderr`` is asked for at each event: a shell puts another in its place while it prompts.
    Twisted takes observers once in a process, so a later call only sets the level.
    """
    if not _begun:
        predicate = LogLevelFilterPredicate(defaultLogLevel=LogLevel.error)
        _begun.append(predicate)
        observer = FilteringLogObserver(LogLines(stderr), [predicate])
        globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    for namespace in _OURS:
        _begun[0].setLogLevelForNamespace(namespace, LogLevel.levelWithName(level))
