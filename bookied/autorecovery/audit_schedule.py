"""The schedule of an auditor: check intervals, and the jobs that are due now or later."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from bookied.autorecovery.wait_for_work import WakeUp
from bookied.config.autorecovery import AutoRecoveryConfig

RETRY_S: Final = 10.0
"""Seconds before a failed job is tried again."""

AGAIN_S: Final = 30.0
"""Seconds before a second audit for a lost bookie.

A client that had chosen the bookie just before the loss may store the ledger or the fragment after
the first audit has passed the ledger.
"""

REQUESTS_S: Final = 60.0
"""Seconds between two checks whether an operator has requested a check."""


class AuditJob(enum.Enum):
    """The jobs, the most urgent first."""

    LOOK_AT_BOOKIES = enum.auto()
    LOOK_AT_DELAY = enum.auto()
    LOOK_AT_REQUESTS = enum.auto()
    AUDIT = enum.auto()
    AUDIT_LATER = enum.auto()
    AUDIT_AGAIN = enum.auto()
    CHECK_BOOKIES = enum.auto()
    CHECK_LEDGERS = enum.auto()
    CHECK_PLACEMENT = enum.auto()
    CHECK_REPLICAS = enum.auto()


PATIENT: Final = frozenset(
    {
        AuditJob.LOOK_AT_BOOKIES,
        AuditJob.LOOK_AT_DELAY,
        AuditJob.AUDIT,
        AuditJob.AUDIT_AGAIN,
        AuditJob.CHECK_BOOKIES,
    }
)
"""Jobs that wait until re-replication is enabled, and that are tried again when they fail."""


def check_intervals_s(config: AutoRecoveryConfig) -> dict[AuditJob, int]:
    """Return the interval of each periodic check in seconds; 0 means never."""
    return {
        AuditJob.CHECK_BOOKIES: config.bookie_check_interval_s,
        AuditJob.CHECK_LEDGERS: config.ledger_check_interval_s,
        AuditJob.CHECK_PLACEMENT: config.placement_check_interval_s,
        AuditJob.CHECK_REPLICAS: config.replicas_check_interval_s,
    }


def first_run_s(last_ms: int | None, now_ms: int, interval_s: float) -> float:
    """Return the seconds until a check is due.

    It last ended at ``last_ms``, maybe under another auditor.
    """
    if last_ms is None:
        return 0.0
    passed_s = max(0.0, (now_ms - last_ms) / 1000)
    return max(0.0, interval_s - passed_s)


class AuditSchedule:
    """The jobs that are due, the most urgent first, and the timers of later jobs."""

    def __init__(self, clock: IReactorTime, interval_s: Callable[[AuditJob], float]) -> None:
        """``interval_s`` returns the seconds after which a job is due again; 0 for never."""
        self._clock, self._interval_s = clock, interval_s
        self._wake_up = WakeUp(clock)
        self._due: set[AuditJob] = set()
        self._timers: dict[AuditJob, IDelayedCall] = {}

    def __bool__(self) -> bool:
        """Return whether a job is due."""
        return bool(self._due)

    def add(self, job: AuditJob, *, in_s: float | None = None) -> None:
        """Schedule a job now or in ``in_s`` seconds."""
        self._stop_timer(job)
        if in_s is not None:
            self._timers[job] = self._clock.callLater(in_s, self._timer_fired, job)
            return
        self._due.add(job)
        self._wake_up.wake()

    def drop(self, job: AuditJob) -> None:
        """Remove a job from the schedule."""
        self._due.discard(job)
        self._stop_timer(job)

    def take(self, first: AuditJob | None = None) -> AuditJob:
        """Remove and return the most urgent job that is due; ``first`` precedes all others."""
        job = first if first in self._due else min(self._due, key=lambda job: job.value)
        self._due.discard(job)
        interval_s = self._interval_s(job)
        if interval_s > 0:
            self.add(job, in_s=interval_s)
        return job

    async def wait(self) -> None:
        """Return when a job has been added since the last wait."""
        await self._wake_up.wait()

    def close(self) -> None:
        """Stop the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _stop_timer(self, job: AuditJob) -> None:
        timer = self._timers.pop(job, None)
        if timer is not None:
            timer.cancel()

    def _timer_fired(self, job: AuditJob) -> None:
        del self._timers[job]
        self.add(job)
