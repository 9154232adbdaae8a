"""The time of the next progress line where no line can be redrawn: logs, pipes, cron mails."""

from __future__ import annotations

from typing import Final

import attrs

FIRST_LINE_S: Final = 2.0
SILENCE_S_MAX: Final = 30.0


@attrs.define
class LinePace:
    """The silence before the next line: 2 s, doubled after each line, at most 30 s."""

    silence_s: float = FIRST_LINE_S

    def printed(self) -> None:
        """Double the silence after a line."""
        self.silence_s = min(2 * self.silence_s, SILENCE_S_MAX)
