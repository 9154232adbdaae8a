"""Jobs come in their order, when they are due, and come again after their interval."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bookied.autorecovery.audit_schedule import AuditJob, AuditSchedule, first_run_s

DAY_MS = 86_400_000


def _schedule(clock: Clock) -> AuditSchedule:
    return AuditSchedule(clock, lambda job: 60 if job is AuditJob.CHECK_BOOKIES else 0)


def test_the_most_urgent_job_is_taken_first_but_for_one_that_is_named() -> None:
    agenda = _schedule(Clock())
    for job in (
        AuditJob.CHECK_REPLICAS,
        AuditJob.CHECK_LEDGERS,
        AuditJob.AUDIT,
        AuditJob.CHECK_PLACEMENT,
    ):
        agenda.add(job)
    assert agenda.take(first=AuditJob.CHECK_PLACEMENT) is AuditJob.CHECK_PLACEMENT
    assert agenda.take(first=AuditJob.CHECK_PLACEMENT) is AuditJob.AUDIT
    assert [agenda.take(), agenda.take()] == [AuditJob.CHECK_LEDGERS, AuditJob.CHECK_REPLICAS]
    assert not agenda


def test_a_job_with_an_interval_comes_again() -> None:
    clock = Clock()
    agenda = _schedule(clock)
    agenda.add(AuditJob.CHECK_BOOKIES)
    assert agenda.take() is AuditJob.CHECK_BOOKIES
    clock.advance(59)
    assert not agenda
    clock.advance(1)
    assert agenda


def test_a_job_for_later_rings_when_it_is_due_and_not_once_it_is_dropped() -> None:
    clock = Clock()
    agenda = _schedule(clock)
    agenda.add(AuditJob.AUDIT_LATER, in_s=5)
    agenda.add(AuditJob.AUDIT, in_s=10)
    rung = Deferred.fromCoroutine(agenda.wait())
    agenda.drop(AuditJob.AUDIT_LATER)
    clock.advance(9)
    assert not rung.called
    clock.advance(1)
    assert rung.called
    assert agenda.take() is AuditJob.AUDIT


def test_no_timer_is_left_of_one_that_is_closed() -> None:
    clock = Clock()
    agenda = _schedule(clock)
    agenda.add(AuditJob.AUDIT, in_s=10)
    agenda.close()
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("last_ms", "due_s"),
    [(None, 0), (0, 0), (9 * DAY_MS, 0), (10 * DAY_MS - 1000, 86_399), (11 * DAY_MS, 86_400)],
)
def test_a_check_goes_on_where_another_auditor_left_it(last_ms: int | None, due_s: float) -> None:
    assert first_run_s(last_ms, 10 * DAY_MS, 86_400) == due_s
