"""Errors of a bookie's disks, start and stop, with their return codes and exit statuses.

A damaged file is a ``CorruptError`` with the file, the offset and the expected content (storage.md
section 18 lists when each error is raised and what it means for a running bookie). ``return_code``
is the answer to a client, ``exit_status`` the status of the process (commands.md section 6.1).
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import ClassVar, Final

from bkclient.errors import MORE_THREADS
from wire.codes import ReturnCode
from wire.errors import BookieError, BookKeeperError
from wire.records.cookie import CookieDifference

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The ``OSError`` numbers of a full disk or quota: a later attempt may succeed."""


class StorageError(BookKeeperError):
    """The bookie's storage could not carry out an operation."""


class CorruptError(StorageError):
    """A file does not match its format."""

    exit_status = 7

    def __init__(self, path: Path | str, offset: int | None, expected: str) -> None:
        """Name the file, the place and the expected content.

        Args:
            path: the file.
            offset: bytes from its start, or None for the complete file.
            expected: the expected content and the found content.
        """
        at = "" if offset is None else f" at offset {offset}"
        super().__init__(f"{path}{at}: {expected}")
        self.path, self.offset, self.expected = Path(path), offset, expected


class BadCookieError(CorruptError):
    """The VERSION file is not a readable cookie."""


class JournalFormatError(CorruptError):
    """The file is not a journal of version 1 to 6."""


class JournalRecordError(CorruptError):
    """A journal record in the middle of the file is damaged."""

    hint: ClassVar[str] = (
        "`bkctl disk check -c FILE` says what to save first; skipReplayJournalInvalidRecord=true "
        "starts without the rest of that journal, and this bookie then denies its entries"
    )


class JournalMissingError(CorruptError):
    """A journal is missing, as lastMark, the other journals or bookied.journal show."""


class DirectoryEmptiedError(CorruptError):
    """A directory has its cookie, but its files are missing."""


class LastMarkError(CorruptError):
    """The file is not a valid mark: a mark has 16 bytes and no negative number."""


class EntryLogFormatError(CorruptError):
    """The file is not an entry log of version 0 or 1."""


class EntryLogRecordError(CorruptError):
    """An entry log record is invalid; the rest of the entry log cannot be scanned."""


class LedgersMapError(CorruptError):
    """The ledgers map of an entry log is invalid; the entry log must be scanned."""


class MissingLogError(CorruptError):
    """The index points into an entry log that is missing."""


class MissingEntryError(CorruptError):
    """The index points past the end of an entry log."""


class BadEntryLengthError(CorruptError):
    """The index points to bytes that are not a record."""


class WrongEntryError(CorruptError):
    """The index points to an entry of ledger ``ledger_id``, or to overwritten ids."""

    ledger_id: int


class IndexFormatError(CorruptError):
    """The file is not an index file of version 0 or 1."""


class IndexTruncatedError(CorruptError):
    """The index file is shorter than its header, or ends within a page."""


class IndexCutError(IndexTruncatedError):
    """The index file has lost pages while this process ran."""


class IndexEntryError(CorruptError):
    """The index contains an invalid location."""


class DbRecordError(CorruptError):
    """A key or value of a RocksDB index is invalid."""


class LayoutTooOldError(CorruptError):
    """The directory has the layout of an older release; upgrade it first."""

    exit_status = 7


class LayoutTooNewError(CorruptError):
    """The directory has the layout of a newer release; only that release can use it."""

    exit_status = 7


class StatusFileError(CorruptError):
    """BOOKIE_STATUS cannot be read."""


class DatabaseInUseError(StorageError):
    """Another process has a RocksDB index open: a bookie runs on these directories."""

    exit_status = 7


class LedgerPlaceError(StorageError):
    """A ledger is in a directory where the bookie does not look for it."""

    exit_status = 7


class StorageKindError(StorageError):
    """The directories contain another kind of index than ``ledgerStorageClass`` names."""

    exit_status = 7


class NoWritableDirError(StorageError):
    """No ledger directory has space left."""


class IndexFullError(NoWritableDirError):
    """The index of some ledgers found no space in any directory.

    The index of all others is written.
    """

    def __init__(self, directory: Path, ledger_ids: Collection[int]) -> None:
        """Name the ledgers and one of the full directories."""
        some = ", ".join(map(str, sorted(ledger_ids)[:10]))
        super().__init__(f"{directory}: no space for the index of ledger {some}")
        self.directory, self.ledger_ids = directory, frozenset(ledger_ids)


class DiskWriteFailedError(StorageError):
    """A write or sync failed; only a restart, which replays the journal, can repair that."""

    exit_status = 5
    hint: ClassVar[str] = (
        "check the disk, then start the bookie again: the start replays its journals"
    )

    def __init__(self, path: Path | str, error: BaseException) -> None:
        super().__init__(f"{path}: {error}")
        self.path, self.error = Path(path), error


class StartError(BookKeeperError):
    """The bookie cannot start."""

    exit_status = 2


def return_code(error: Exception) -> ReturnCode:
    """Return the code that a client receives: a refusal's own code, EIO for any disk error."""
    return error.rc if isinstance(error, BookieError) else ReturnCode.EIO


class BookieExitStatus(enum.IntEnum):
    """The exit statuses of the process."""

    OK = 0
    """The bookie stopped on request."""
    INVALID_CONFIGURATION = 1
    """An option, settings file, address or directory is invalid."""
    CANNOT_START_NOW = 2
    """The cause may pass: the metadata service cannot be reached, or port or directories are in
    use.
    """
    SESSION_LOST = 3
    """The metadata session was lost and could not be renewed in time."""
    NOT_REGISTERED = 4
    """The bookie could not register, or another process has registered its id."""
    FATAL = 5
    """A part of the running bookie failed for good: a journal, a disk, or the program."""
    WRONG_IDENTITY = 6
    """The cookie or the instance id does not match; a restart will not help."""
    DAMAGED = 7
    """Data on the disks is damaged or missing; a restart will not help."""
    WARNINGS = 9
    """``--check-config`` found only warnings; the status of ``bkctl config check``, too."""
    PROBLEMS = 10
    """``--check-config`` found settings that a start would refuse."""


MEANING: Final = {
    BookieExitStatus.OK: "stopped as asked",
    BookieExitStatus.INVALID_CONFIGURATION: "bad configuration or directory",
    BookieExitStatus.CANNOT_START_NOW: "cannot start now (metadata service unreachable, port or "
    "directories in use)",
    BookieExitStatus.SESSION_LOST: "metadata session lost for good",
    BookieExitStatus.NOT_REGISTERED: "not registered",
    BookieExitStatus.FATAL: "failed while running",
    BookieExitStatus.WRONG_IDENTITY: "cookie or instance id does not match",
    BookieExitStatus.DAMAGED: "damaged or missing data",
    BookieExitStatus.WARNINGS: "--check-config found warnings",
    BookieExitStatus.PROBLEMS: "--check-config found errors",
}
"""The meaning of each status in help and manual."""

OF_AUTORECOVERY: Final = (
    BookieExitStatus.OK,
    BookieExitStatus.INVALID_CONFIGURATION,
    BookieExitStatus.CANNOT_START_NOW,
    BookieExitStatus.SESSION_LOST,
    BookieExitStatus.FATAL,
    BookieExitStatus.WARNINGS,
    BookieExitStatus.PROBLEMS,
)
"""The statuses of ``bookied autorecovery``; after a lost session it must be started again."""


class BookieStopError(BookKeeperError):
    """The bookie's process ends; the message has the reason."""

    exit_status: ClassVar[int] = BookieExitStatus.FATAL


class AddressError(BookieStopError):
    """The bookie's own address cannot be determined, or must not be used."""

    exit_status = BookieExitStatus.INVALID_CONFIGURATION


class OpenFilesError(BookieStopError):
    """The limit on open files is too low for a bookie."""

    exit_status = BookieExitStatus.INVALID_CONFIGURATION


class ThreadsError(BookieStopError):
    """The process can start no more threads."""

    def __init__(self) -> None:
        super().__init__(f"the process can start no more threads; {MORE_THREADS}")


class SecurityStartError(BookieStopError):
    """Keys, certificates or passwords named in the settings cannot be used."""

    exit_status = BookieExitStatus.INVALID_CONFIGURATION


class DirectoryError(BookieStopError):
    """A configured directory cannot be used: not a directory, or not readable and writable."""

    exit_status = BookieExitStatus.INVALID_CONFIGURATION


class DirectoryInUseError(BookieStopError):
    """Another bookie runs on this directory."""

    exit_status = BookieExitStatus.CANNOT_START_NOW


class PortInUseError(BookieStopError):
    """The bookie's port cannot be bound."""

    exit_status = BookieExitStatus.CANNOT_START_NOW


class MetadataStartError(BookieStopError):
    """The metadata service cannot be reached, or contains no cluster."""

    exit_status = BookieExitStatus.CANNOT_START_NOW


class WrongLayoutError(BookieStopError):
    """The metadata service has another layout than the settings name."""

    exit_status = BookieExitStatus.INVALID_CONFIGURATION


class SessionLostError(BookieStopError):
    """The metadata session was lost and could not be renewed in time."""

    exit_status = BookieExitStatus.SESSION_LOST


class RegistrationError(BookieStopError):
    """The bookie could not register, or lost its registration for good."""

    exit_status = BookieExitStatus.NOT_REGISTERED


class WrongIdentityError(BookieStopError):
    """The cookies do not agree with the settings or with the cluster."""

    exit_status = BookieExitStatus.WRONG_IDENTITY

    def __init__(
        self, message: str, differences: Iterable[CookieDifference] = (), *, advice: str = ""
    ) -> None:
        self.differences = tuple(differences)
        parts = (message, *map(str, self.differences), advice)
        super().__init__("; ".join(filter(None, parts)))


class DamagedError(BookieStopError):
    """Data on the disks is damaged or missing, and a restart cannot repair it."""

    exit_status = BookieExitStatus.DAMAGED


class NoSpaceError(BookieStopError):
    """The disks are full, and the settings forbid the read-only mode."""

    exit_status = BookieExitStatus.FATAL


class RunTimeError(BookieStopError):
    """A part of the running bookie failed for good."""

    exit_status = BookieExitStatus.FATAL


class UnflushedStopError(BookieStopError):
    """The bookie stopped without writing entries that are only in its journals."""


class StopTimeoutError(BookieStopError):
    """The bookie did not stop in time: a disk hangs or is very slow."""

    exit_status = BookieExitStatus.FATAL


# Requests of an operator that fail


class NotServingError(BookKeeperError):
    """The bookie is starting or stopping."""


class TooMuchError(BookKeeperError):
    """The answer would need too much of the bookie's memory."""


class ChangeRefusedError(BookKeeperError):
    """The bookie's settings forbid the change."""
