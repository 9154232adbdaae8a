"""RepeatedFailure: the log lines of what fails again and again, as in an outage."""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

REASONS_MAX: Final = 20
"""Reasons that are remembered; with more they are told again."""

log = Logger()


class RepeatedFailure:
    """Logs why a thing fails: each reason once, and how often it failed when it works again."""

    def __init__(self, what: str) -> None:
        """``what``: how the log lines begin, such as "cannot read the vote"."""
        self._what, self._times = what, 0
        self._reasons: set[str] = set()

    def failed(self, error: Exception) -> None:
        """Note a failure."""
        self._times += 1
        why = str(error)
        if why in self._reasons:
            return
        if len(self._reasons) == REASONS_MAX:
            self._reasons.clear()
        self._reasons.add(why)
        log.warn("{what}: {why}", what=self._what, why=why)

    def worked(self) -> None:
        """Note that it works."""
        if self._times > 1:
            log.info(
                "{what}: failed {times} times, works again", what=self._what, times=self._times
            )
        self._times = 0
        self._reasons.clear()
