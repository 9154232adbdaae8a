"""The audit log of the shell: every command that was run, in a file or in the system's log."""

from __future__ import annotations

import json
import os
import pwd
import syslog
import time
from collections.abc import Callable
from typing import Final

from shell.command_line import Line, quoted
from shell.secret import masked

SYSLOG: Final = "syslog"
"""The value for the system's log, in place of a file's path."""


class AuditLog:
    """A log of who ran which command, where, when, and with which status. Secrets are masked."""

    def __init__(
        self, program: str, target: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        """``target`` is the path of a file to append to, or ``SYSLOG``."""
        self._program, self._target, self._clock = program, target, clock

    def add(self, place: str, line: Line, status: int) -> None:
        """Log one line that was run.

        Raises:
            OSError: the line cannot be logged.
        """
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        fields = {"user": user_name(), "place": place, "line": as_typed(line), "status": status}
        if self._target == SYSLOG:
            _log(self._program, json.dumps(fields))
        else:
            _append(self._target, json.dumps({"time": moment, **fields}) + "\n")


def as_typed(line: Line) -> str:
    """Return a line as it could be typed, with its secrets masked."""
    if line.system:
        return masked(f"!{line.system}")
    to = ">>" if line.append else ">"
    parts = [
        *map(quoted, line.words),
        f"< {quoted(line.read_from)}" if line.read_from else "",
        f"{to} {quoted(line.write_to)}" if line.write_to else "",
        f"| {line.pipe}" if line.pipe else "",
    ]
    return masked(" ".join(filter(None, parts)))


def user_name() -> str:
    """Return the name of the process's user, whatever the environment says.

    The number if unnamed.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _append(path: str, text: str) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(number, text.encode())  # One write: other processes append to the file, too.
    finally:
        os.close(number)


def _log(program: str, text: str) -> None:
    syslog.openlog(program)
    syslog.syslog(syslog.LOG_NOTICE, text)
