"""RepeatedFailure: the log lines of what fails again and again, as in an outage."""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

REASONS_MAX: Final = 20
"""Reasons that are remembered of one failure; with more they are logged again."""

log = Logger()


def note_reason(reasons: set[str], why: str) -> bool:
    """Note why something failed; return whether that was not one of the reasons before."""
    if why in reasons:
        return False
    if len(reasons) == REASONS_MAX:
        reasons.clear()
    reasons.add(why)
    return True


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
        if note_reason(self._reasons, why):
            log.warn("{what}: {why}", what=self._what, why=why)

    def worked(self) -> None:
        """Note that it works."""
        if self._times > 1:
            log.info(
                "{what}: failed {times} times, works again", what=self._what, times=self._times
            )
        self._times = 0
        self._reasons.clear()
