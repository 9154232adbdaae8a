"""What was run, kept for others to read: in a file, or in the system's log."""

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
"""In place of a file's path: the system's log."""


class AuditLog:
    """Tells who ran what, where, when, and how it ended. Secrets are masked."""

    def __init__(
        self, program: str, target: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        """``target`` is the path of a file, which is appended to, or ``SYSLOG``."""
        self._program, self._target, self._clock = program, target, clock

    def add(self, place: str, line: Line, status: int) -> None:
        """Keep one line that was run.

        Raises:
            OSError: it cannot be kept.
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
    """Return who really runs this, whatever the environment says; in containers a bare number."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _append(path: str, text: str) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(number, text.encode())  # In one piece: other processes write there too.
    finally:
        os.close(number)


def _log(program: str, text: str) -> None:
    syslog.openlog(program)
    syslog.syslog(syslog.LOG_NOTICE, text)
