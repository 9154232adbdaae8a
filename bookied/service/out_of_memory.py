"""The end of a process that gets no more memory.

What a ``MemoryError`` interrupts may be half done, and the next request needs memory too: a bookie
that went on would stay registered and close one connection after the other.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from zope.interface import implementer

from bookied.errors import BookieStopError


class OutOfMemoryError(BookieStopError):
    """The process gets no more memory."""


@implementer(ILogObserver)
class OutOfMemoryWatch:
    """Ends the process after the first ``MemoryError`` in the log, where unhandled errors are.

    Args:
        call_from_thread: runs a function with arguments on the reactor.
        fail: gets the error that ends the process.
    """

    def __init__(
        self, call_from_thread: Callable[..., object], fail: Callable[[OutOfMemoryError], None]
    ) -> None:
        self._call, self._fail = call_from_thread, fail

    def begin(self) -> None:
        """Hear of all that is logged."""
        globalLogPublisher.addObserver(self)

    def __call__(self, event: LogEvent) -> None:
        # What a transport raises is logged the old way, under the second name.
        failure = event.get("log_failure") or event.get("failure")
        if failure is not None and failure.check(MemoryError):
            globalLogPublisher.removeObserver(self)
            self._call(
                self._fail,
                OutOfMemoryError(
                    "the process gets no more memory: raise `ulimit -v`, or MemoryMax of its unit"
                ),
            )
