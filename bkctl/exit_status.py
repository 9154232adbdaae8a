"""The effects and exit statuses of commands. Imported at every start, so it imports nothing heavy.

The exit status of an error is an attribute of its class: ``bkclient.errors``, ``bkctl.errors``.
"""

from __future__ import annotations

import enum
from typing import Final


class Effect(enum.Enum):
    """The effect of a command on a cluster; it decides how the command asks before it acts."""

    READ = "reads only"
    REVERSIBLE = "changes data, metadata or settings, and deletes no existing entry"
    FENCES = "fences a writer"
    LOSES_DATA = "deletes data or metadata for good"


class Facility(enum.Enum):
    """A facility of every command, unless its declaration leaves it out."""

    PROFILE = "its unset options come from the profile"
    """Left out of commands that must run whatever the file of profiles contains."""
    WATCH = "it can be run again and again, if it only reads"
    """Left out of commands that never end by themselves, or whose output never changes."""


class ExitStatus(enum.IntEnum):
    """Every exit status of ``bkctl``; scripts may rely on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5
    TIME_LIMIT = 6
    CONFLICT = 7
    PARTLY = 8
    WARNINGS = 9
    PROBLEMS = 10
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141
    TERMINATED = 143


FAILURES: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT)
"""The failures of every command that connects to a cluster."""
CHANGE_FAILURES: Final = (
    *FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.CONFLICT,
)  # fmt: skip
"""The failures of a command that changes a named object."""

MEANING: Final = {
    ExitStatus.DONE: "done",
    ExitStatus.FAILED: "the operation failed",
    ExitStatus.USAGE: "wrong usage, or an invalid setting",
    ExitStatus.NOT_FOUND: "no such ledger, entry, bookie or file",
    ExitStatus.REFUSED: "refused: not confirmed, no terminal to ask, wrong password, safety check",
    ExitStatus.UNREACHABLE: "metadata service or bookies unreachable",
    ExitStatus.TIME_LIMIT: "time limit reached, or the outcome is not known",
    ExitStatus.CONFLICT: "conflict: changed underneath, fenced, or not in the state required",
    ExitStatus.PARTLY: "partly done; the output says what is missing",
    ExitStatus.WARNINGS: "a check found only warnings",
    ExitStatus.PROBLEMS: "a check found problems",
    ExitStatus.INTERRUPTED: "interrupted by Ctrl-C",
    ExitStatus.OUTPUT_CLOSED: "the reader of stdout closed the pipe",
    ExitStatus.TERMINATED: "stopped by SIGTERM",
}
