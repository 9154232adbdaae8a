"""When work that goes on prints its next line, where no line can move: logs, pipes, cron mails."""

from __future__ import annotations

from typing import Final

import attrs

FIRST_LINE_S: Final = 2.0
SILENCE_S_MAX: Final = 30.0


@attrs.define
class LinePace:
    """How long to be silent before the next line: 2 s, and twice as long after each line."""

    silence_s: float = FIRST_LINE_S

    def printed(self) -> None:
        """Take note of a line."""
        self.silence_s = min(2 * self.silence_s, SILENCE_S_MAX)
