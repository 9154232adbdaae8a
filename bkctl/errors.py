"""The command line's own errors, and the texts of all errors.

``bkctl`` returns the ``exit_status`` of the error that ended a command. The hint of a client's
error is an attribute of its class in ``bkclient.errors``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import ClassVar

from bkctl.exit_status import ExitStatus
from wire.errors import BookKeeperError


class CommandError(BookKeeperError):
    """The command could not do what was asked.

    ``next_step`` overrides the hint of the class: a sentence or a command to try. ``status``
    overrides its exit status.
    """

    def __init__(self, message: str, *, next_step: str = "", status: int | None = None) -> None:
        super().__init__(message)
        if next_step:
            self.hint = next_step  # type: ignore[misc] # this one's own
        if status is not None:
            self.exit_status = status  # type: ignore[misc] # that of another process


class UsageError(CommandError):
    """The command line, or a setting, cannot be used as it is."""

    exit_status: ClassVar[int] = ExitStatus.USAGE


class NothingFoundError(CommandError):
    """The named object does not exist."""

    exit_status: ClassVar[int] = ExitStatus.NOT_FOUND


@contextlib.contextmanager
def file_errors(path: object) -> Iterator[None]:
    """Raise a NothingFoundError that names ``path`` in place of an error of the system."""
    try:
        yield
    except OSError as error:
        raise NothingFoundError(f"{path}: {error.strerror or error}") from error


class RefusedError(CommandError):
    """Not done: the user did not confirm, or a safety check refused."""

    exit_status: ClassVar[int] = ExitStatus.REFUSED
    unasked: bool = False
    """True if no user could be asked, so that every further question is refused as well."""


class TimeLimitError(CommandError):
    """The time limit was reached; the work is incomplete."""

    exit_status: ClassVar[int] = ExitStatus.TIME_LIMIT


class ConflictError(CommandError):
    """The object is not in the required state."""

    exit_status: ClassVar[int] = ExitStatus.CONFLICT


class PartlyDoneError(CommandError):
    """A part of the work was done; the output says what is missing."""

    exit_status: ClassVar[int] = ExitStatus.PARTLY


class WarningsError(CommandError):
    """A check found only warnings."""

    exit_status: ClassVar[int] = ExitStatus.WARNINGS


class ProblemsError(CommandError):
    """A check found problems; the output names them."""

    exit_status: ClassVar[int] = ExitStatus.PROBLEMS


class PagerLeftError(BrokenPipeError):
    """The user quit the pager before it had read everything. Stdout itself is unchanged."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or --timeout ended the command; ``exit_status`` says which."""

    def __init__(self, reason: str, exit_status: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_status = exit_status


def error_name(kind: type[BaseException]) -> str:
    """Return the stable name of a kind of error: ``BK-NO-SUCH-LEDGER``."""
    words = re.sub(r"(Error|Exception)$", "", kind.__name__)
    words = words.removeprefix("Client") or words
    return "BK-" + re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", words).upper()


def error_message(error: BaseException) -> str:
    """Return the error's message in one line: its own text, else that of its class."""
    if text := " ".join(str(error).split()):
        return text.removesuffix(".")
    text = ((type(error).__doc__ or "").strip().splitlines() or [""])[0].removesuffix(".")
    return text[:1].lower() + text[1:] or type(error).__name__
