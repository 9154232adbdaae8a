"""The errors of logs, and their meaning for the caller."""

from __future__ import annotations

from typing import ClassVar

from bkclient.errors import ClientError, IncorrectParameterError


class LogError(ClientError):
    """The log could not carry out the operation."""


class NotLeaderError(LogError):
    """Another client has opened the log for writing; pending entries were not appended."""

    exit_status: ClassVar[int] = 7
    hint: ClassVar[str] = (
        "a log has one writer at a time: stop the other writer, or leave the log to it"
    )


class LogUnwritableError(LogError):
    """The log could not be written, and its writer has ended; the entry was not appended.

    No other writer has opened the log: it can be opened again.
    """

    exit_status: ClassVar[int] = 5
    hint: ClassVar[str] = (
        "open the log again once enough bookies are writable; logWriterPatienceSec is how long a "
        "writer waits"
    )


class AppendUnknownError(LogError):
    """The entry may be in the log or not; read the end of the log before appending it again."""

    exit_status: ClassVar[int] = 6


class LogWriterClosedError(LogError):
    """The writer was closed; the entry was not appended."""

    exit_status: ClassVar[int] = 7


class LogSealedError(LogError):
    """The log was sealed: nothing more can be appended."""

    exit_status: ClassVar[int] = 7


class EarlierBatchError(LogError):
    """The log has a later batch of the stream; the entries of this batch were not appended.

    The log may have other entries as the batch of this number.
    """

    exit_status: ClassVar[int] = 7
    hint: ClassVar[str] = "a copied or restored checkpoint is in use: begin with a new checkpoint"


class DifferentBatchError(LogError):
    """The log has this batch of the stream with another number of entries; none were appended."""

    exit_status: ClassVar[int] = 7
    hint: ClassVar[str] = (
        "a copied or restored checkpoint is in use, or the query was changed: begin with a new "
        "checkpoint, or keep the entries of the log with failOnDataLoss=false at the sink"
    )


class LogTrimmedError(LogError):
    """The position is before the first entry of the log; earlier entries were trimmed."""

    exit_status: ClassVar[int] = 3
    hint: ClassVar[str] = "read from the earliest entry"


class LogDamagedError(LogError):
    """A ledger of the log is missing, or the log's record cannot be read."""

    hint: ClassVar[str] = (
        "`bkctl log show NAME` shows lost ledgers. `bkctl cluster restore FILE --ledger LEDGER_ID` "
        "stores their metadata again from a backup; `bkctl log trim NAME --before INDEX:0` gives "
        "up the log before INDEX"
    )

    @classmethod
    def unreadable(cls, what: str, error: Exception) -> LogDamagedError:
        """Return the error for a malformed stored value, from its decoder's error."""
        if isinstance(error, KeyError):
            why = f"{error!s:.40} is missing"
        elif isinstance(error, UnicodeDecodeError):
            why = "it is not UTF-8"
        elif isinstance(error, (ValueError, IncorrectParameterError)):
            why = f"{error!s:.200}"
        else:
            why = "a part of it has another form"
        return cls(f"{what} cannot be read: {why}")


class NoSuchCursorError(LogError):
    """The log or topic has no cursor of this name."""

    exit_status: ClassVar[int] = 3
    hint: ClassVar[str] = "`bkctl log cursors NAME` shows the cursors of a log or topic"


class LogInUseError(LogError):
    """The log still has entries."""

    exit_status: ClassVar[int] = 7
