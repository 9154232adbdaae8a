"""What the client logs, as a command shows it."""

from __future__ import annotations

import io

from twisted.logger import LogLevel

from bkctl.session.stderr_log import LogLines


def test_what_a_terminal_would_obey_is_not_in_a_line() -> None:
    stderr = io.StringIO()
    event = {"log_level": LogLevel.warn, "log_format": "{id} is odd", "id": "b\x1b[2J\r\nc"}
    LogLines(lambda: stderr)(event)
    assert stderr.getvalue() == "bkctl: warn: b\\x1b[2J c is odd\n"
