"""The first error after which a bookie cannot go on, reported once by any of its parts.

After a ``MemoryError`` the interrupted work may be half done, and the next request needs memory,
too: the bookie would stay registered and close one connection after the other.
``bookied.storage.journal.writer`` says which failed write of a journal is fatal.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import ILogObserver, LogEvent, Logger, globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from bkclient.errors import lacks_threads
from bookied.errors import BookieStopError, DiskWriteFailedError, RunTimeError, ThreadsError
from bookied.service.start_failures import named
from wire.errors import BookKeeperError

log = Logger()


class FatalErrors:
    """The errors of all parts, in the reactor's thread.

    Args:
        report_failure: called with the first error that ends the bookie.
        is_ending: returns True if the bookie ends already, and no error matters.
    """

    def __init__(
        self, report_failure: Callable[[BookKeeperError], None], is_ending: Callable[[], bool]
    ) -> None:
        self._report_failure, self._is_ending = report_failure, is_ending
        self.has_failed = False

    def fail(self, error: BookKeeperError) -> None:
        """Report an error that has an exit status."""
        if self.has_failed or self._is_ending():
            return
        self.has_failed = True
        hint = f"; {error.hint}" if error.hint else ""
        log.critical("the bookie cannot continue: {error}{hint}", error=error, hint=hint)
        self._report_failure(error)

    def part_failed(self, error: Exception) -> None:
        """Report the error of a part; log the stack of an unexpected error."""
        if isinstance(error, BookKeeperError):
            self.fail(error)
        elif isinstance(error, OSError):
            self.disk_failed(error)
        elif lacks_threads(error):
            self.fail(ThreadsError())
        else:
            log.failure("a part of the bookie failed", Failure(error))
            self.fail(RunTimeError(f"{type(error).__name__}: {error}"))

    def part_crashed(self, failure: Failure) -> None:
        """Report the failure of a ``Deferred``."""
        assert isinstance(failure.value, Exception)
        self.part_failed(failure.value)

    def disk_failed(self, error: Exception) -> None:
        """Report the error of a disk that does not answer."""
        self.fail(RunTimeError(f"a disk failed: {named(error)}; {DiskWriteFailedError.hint}"))


class OutOfMemoryError(BookieStopError):
    """The process cannot allocate more memory."""


@implementer(ILogObserver)
class OutOfMemoryWatch:
    """A log observer that ends the process after the first unhandled ``MemoryError``.

    Args:
        call_from_thread: runs a function with arguments on the reactor.
        fail: called with the error that ends the process.
    """

    def __init__(
        self, call_from_thread: Callable[..., object], fail: Callable[[OutOfMemoryError], None]
    ) -> None:
        self._call, self._fail = call_from_thread, fail

    def begin(self) -> None:
        """Observe the log from now on."""
        globalLogPublisher.addObserver(self)

    def __call__(self, event: LogEvent) -> None:
        # Errors of transports are logged the old way, under the second name.
        failure = event.get("log_failure") or event.get("failure")
        if isinstance(failure, Failure) and failure.check(MemoryError):
            globalLogPublisher.removeObserver(self)
            self._call(
                self._fail,
                OutOfMemoryError(
                    "the process gets no more memory: raise `ulimit -v`, or MemoryMax of its unit"
                ),
            )
