"""Log lines of repeated failures, such as in an outage."""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

REASONS_MAX: Final = 20
"""Reasons that are remembered of one failure; after more, reasons are logged again."""

log = Logger()


def note_reason(reasons: set[str], why: str) -> bool:
    """Note the reason of a failure; return whether it is new."""
    if why in reasons:
        return False
    if len(reasons) == REASONS_MAX:
        reasons.clear()
    reasons.add(why)
    return True


class RepeatedFailure:
    """A logger that logs each reason once, and the number of failures after a success."""

    def __init__(self, what: str) -> None:
        """``what`` is the begin of the log lines, such as "cannot read the vote"."""
        self._what, self._times = what, 0
        self._reasons: set[str] = set()

    def failed(self, error: Exception) -> None:
        """Note a failure."""
        self._times += 1
        why = str(error)
        if note_reason(self._reasons, why):
            log.warn("{what}: {why}", what=self._what, why=why)

    def worked(self) -> None:
        """Note a success."""
        if self._times > 1:
            log.info(
                "{what}: failed {times} times, works again", what=self._what, times=self._times
            )
        self._times = 0
        self._reasons.clear()
