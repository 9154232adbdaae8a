"""Why a bookie, or autorecovery, did not start: as the status that its process ends with."""

from __future__ import annotations

from bkclient.metadata.api import (
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
    WrongLayoutError,
)
from wire.errors import BookKeeperError


class StopRequestedError(BookieStopError):
    """The bookie was told to stop while it started."""

    exit_status = BookieExitStatus.OK


def start_error(error: BaseException) -> BaseException:
    """Return a start's failure as what the process ends with."""
    if isinstance(error, (BookieStopError, StorageError)):
        return error
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
        return DamagedError(f"the directories cannot be read or written: {named(error)}")
    return error


def named(error: Exception) -> str:
    """Return what failed, with its path in front where it is known."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
