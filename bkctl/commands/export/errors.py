"""The errors of an export, and the line of a Java stack trace that has the reason."""

from __future__ import annotations

import json
import re
import socket
from typing import TYPE_CHECKING, Final

from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkctl.commands.export.outcome import ExportReport


FAILURE_MARK: Final = "BKCTL-EXPORT-FAILURE "
"""The text before a task's failure as JSON: Spark passes on only text."""


class TaskError(BookKeeperError):
    """A task of an export failed; the message has the host and the reason."""

    def __init__(self, where: str, cause: BaseException) -> None:
        failure = {"where": where, "error": type(cause).__name__, "message": str(cause)}
        self.sentence = _sentence(failure)
        """The failure as a sentence."""
        super().__init__(f"{FAILURE_MARK}{json.dumps(failure)}")


def failure_in(text: str) -> str | None:
    """Return a task's failure as one sentence; None if the text contains no failure."""
    at = text.find(FAILURE_MARK)
    if at < 0:
        return None
    try:
        failure, _ = json.JSONDecoder().raw_decode(text[at + len(FAILURE_MARK) :])
        return _sentence(failure)
    except (ValueError, TypeError, KeyError):
        return None  # The text was cut off.


def _sentence(failure: dict[str, str]) -> str:
    where = f"{failure['where']}: " if failure["where"] else ""
    return f"{where}{failure['message']} ({failure['error']})"


def host() -> str:
    """Return the name of this host, for messages."""
    return socket.gethostname()


class ExportError(BookKeeperError):
    """The export failed; earlier exports are unchanged, and no partial files are left."""


class SparkMissingError(ExportError):
    """PySpark is not installed here."""

    exit_status = 4
    hint = "pip install '.[spark]' in the checkout of bkctl; exports below 4 GiB need only pyarrow"


class ArrowMissingError(ExportError):
    """The library pyarrow is not installed here."""

    exit_status = 4
    hint = "pip install pyarrow"


class SparkStartError(ExportError):
    """Spark does not start: the master cannot be reached, or a setting is wrong."""

    exit_status = 5


class DeltaMissingError(ExportError):
    """The library ``deltalake`` is not installed here."""

    exit_status = 4
    hint = "pip install '.[spark,delta]' in the checkout of bkctl"


class ExportReadError(ExportError):
    """A task could not connect, or no bookie returns an entry that it should hold."""


class ExportWriteError(ExportError):
    """The target cannot be written: permissions, a full disk, or a file system unknown here."""

    hint = "--to takes a directory where this user may create files"


class ExportVerifyError(ExportError):
    """Files do not match the plan, or the record of earlier exports."""


class EarlierFilesError(ExportVerifyError):
    """Files of earlier exports are missing or changed; new entries are exported nevertheless.

    ``report`` is that of the export.
    """

    def __init__(self, message: str, report: ExportReport, hint: str) -> None:
        super().__init__(message)
        self.report = report
        self.hint = hint  # type: ignore[misc] # of these files


class ForeignFilesError(ExportError):
    """The target holds files that no such export of this cluster made."""

    exit_status = 4
    hint = "export to another directory, or move these files away"


class TableChangedError(ExportError):
    """The Delta table of an export is no longer what the export made."""

    exit_status = 4
    hint = "bring `_delta_log` back from a copy, or export to another directory"


class ExportBusyError(ExportError):
    """Another export writes to the same target."""

    exit_status = 4
    hint = "wait for the other export to end"


_CAUSE: Final = re.compile(r"^\s*Caused by: (.+)$", re.MULTILINE)
_JAVA_CLASS: Final = re.compile(r"^(?:[a-z_][\w$]*\.)+([A-Z][\w$]*): ")
_PYTHON: Final = re.compile(r'Cannot run program "([^"]+)"[^:]*: (?:error=\d+, )?(.+)')
_PYTHON_HINT: Final = "set PYSPARK_PYTHON to a Python that each worker has, with bkctl installed"


def plain_cause(error: BaseException) -> str:
    """Return the innermost cause of Spark's error, as one line without a stack trace."""
    text = str(error)
    python = _PYTHON.search(text)
    if python is not None:
        return f"a worker cannot start {python[1]}: {python[2].strip()} ({_PYTHON_HINT})"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = _CAUSE.findall(text)
    missing = [line for line in lines if line.startswith("ModuleNotFoundError: ")]
    if missing:
        return f"a worker's Python lacks a module: {missing[-1]} ({_PYTHON_HINT})"
    if causes:
        return _without_class(causes[-1].strip())
    # py4j puts the call on the first line, and the exception on the second.
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return _without_class(lines[1].removeprefix(": "))
    return _without_class(lines[0]) if lines else type(error).__name__


def start_cause(error: BaseException) -> str:
    """Return the reason why Spark did not start, as one line."""
    cause = plain_cause(error)
    # If no master answers, Spark only logs this, and stops itself.
    is_lost = cause.startswith("Cannot call methods on a stopped SparkContext")
    return "no master answers there, or the master refused the application" if is_lost else cause


def _without_class(line: str) -> str:
    return _JAVA_CLASS.sub("", line)


def translated(error: BaseException) -> BaseException:
    """Return the error to raise for a failed job: a task's failure, or Spark's innermost cause."""
    if isinstance(error, ExportError):
        return error
    reported = failure_in(str(error))
    if reported is None:
        return ExportError(f"Spark could not run the export: {plain_cause(error)}")
    if " cannot write " in reported.partition(":")[0]:
        return ExportWriteError(reported)
    return ExportReadError(reported)
