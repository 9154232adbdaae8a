"""The start of a bookie or of autorecovery, and the exit status of a failed start.

For the warning of a port without login or TLS, see ``bookied.service.client_port``. For the time
that a start waits for ZooKeeper, see ``zkTimeout`` in ``bkclient.metadata.zookeeper.session``.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bkclient.errors import lacks_threads
from bkclient.metadata.errors import (
    IncompatibleLayoutError,
    MetadataUnavailableError,
    NotInitializedError,
)
from bookied.errors import (
    NO_SPACE,
    BookieExitStatus,
    BookieStopError,
    DamagedError,
    MetadataStartError,
    NoSpaceError,
    StorageError,
    ThreadsError,
    WrongLayoutError,
)
from bookied.storage.files.read_errors import LOST
from wire.errors import BookKeeperError

log = Logger()

_NOT_THE_FILE: Final = frozenset(
    {errno.ENOENT, errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ENXIO, errno.EFBIG}
)
"""The ``OSError`` numbers if another kind of file, or a dangling link, has the file's name."""

_NOT_THE_FILE_FIX: Final = "; put the bookie's own file back, or run `bkctl disk check`"
_DISK_FIX: Final = (
    "; if the disk has failed, replace it, and copy the bookie's ledgers from other bookies with "
    "`bkctl recover`"
)


class StopRequestedError(BookieStopError):
    """A stop was requested during the start."""

    exit_status = BookieExitStatus.OK


class ServiceStart:
    """The start of one service. ``abandon`` undoes a start that fails or that a stop ends."""

    def __init__(self, abandon: Callable[[], Awaitable[None]]) -> None:
        self._abandon = abandon
        self._ended: Deferred[None] | None = None
        self.stop_wanted = False

    async def run(self, begin: Callable[[], Awaitable[None]]) -> None:
        """Start the service.

        Raises:
            BookieStopError, StorageError: the service cannot start; all started parts have ended.
        """
        self._ended = Deferred()
        try:
            await begin()
        except GeneratorExit:  # The process has ended: nothing can be awaited or undone.
            raise
        except BaseException as error:
            try:
                await self._abandon()
            except Exception:  # noqa: BLE001 -- the first error is what the process ends with
                log.failure("a start that failed could not be undone")
            raise start_error(error) from error
        finally:
            self._ended.callback(None)

    async def ended(self) -> None:
        """Return when no start is in progress."""
        if self._ended is not None:
            await self._ended

    def require_no_stop(self) -> None:
        """Return, unless a stop was requested.

        Raises:
            StopRequestedError: a stop was requested.
        """
        if self.stop_wanted:
            raise StopRequestedError("told to stop while starting")


def start_error(error: BaseException) -> BaseException:
    """Return a failure of a start as an error with an exit status."""
    if isinstance(error, (BookieStopError, StorageError)):
        return error
    if lacks_threads(error):
        return ThreadsError()
    if isinstance(error, NotInitializedError):
        return MetadataStartError(f"{error}; {error.hint}")
    if isinstance(error, IncompatibleLayoutError):
        return WrongLayoutError(str(error))
    if isinstance(error, MetadataUnavailableError):
        return MetadataStartError(f"the metadata service cannot be reached: {error}")
    if isinstance(error, BookKeeperError):
        return MetadataStartError(str(error))
    if isinstance(error, OSError):
        if error.errno in NO_SPACE:
            return NoSpaceError(f"no space to start: {named(error)}; free some, and start again")
        fix = _NOT_THE_FILE_FIX if error.errno in _NOT_THE_FILE else ""
        fix = _DISK_FIX if error.errno in LOST else fix
        return DamagedError(f"the directories cannot be read or written: {named(error)}{fix}")
    return error


def named(error: Exception) -> str:
    """Return the error's text, with its path in front if known: of a rename, the new name."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename2 or error.filename}: {error.strerror}"
    return str(error)
