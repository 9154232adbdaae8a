"""Jobs come in their order, when they are due, and come again after their interval."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bookied.repair.autorecovery.audit_schedule import Agenda, Job, first_run_s

DAY_MS = 86_400_000


def _agenda(clock: Clock) -> Agenda:
    return Agenda(clock, lambda job: 60 if job is Job.CHECK_BOOKIES else 0)


def test_the_most_urgent_job_is_taken_first_but_for_one_that_is_named() -> None:
    agenda = _agenda(Clock())
    for job in (Job.CHECK_REPLICAS, Job.CHECK_LEDGERS, Job.AUDIT, Job.CHECK_PLACEMENT):
        agenda.add(job)
    assert agenda.take(first=Job.CHECK_PLACEMENT) is Job.CHECK_PLACEMENT
    assert agenda.take(first=Job.CHECK_PLACEMENT) is Job.AUDIT
    assert [agenda.take(), agenda.take()] == [Job.CHECK_LEDGERS, Job.CHECK_REPLICAS]
    assert not agenda


def test_a_job_with_an_interval_comes_again() -> None:
    clock = Clock()
    agenda = _agenda(clock)
    agenda.add(Job.CHECK_BOOKIES)
    assert agenda.take() is Job.CHECK_BOOKIES
    clock.advance(59)
    assert not agenda
    clock.advance(1)
    assert agenda


def test_a_job_for_later_rings_when_it_is_due_and_not_once_it_is_dropped() -> None:
    clock = Clock()
    agenda = _agenda(clock)
    agenda.add(Job.AUDIT_LATER, in_s=5)
    agenda.add(Job.AUDIT, in_s=10)
    rung = Deferred.fromCoroutine(agenda.wait())
    agenda.drop(Job.AUDIT_LATER)
    clock.advance(9)
    assert not rung.called
    clock.advance(1)
    assert rung.called
    assert agenda.take() is Job.AUDIT


def test_no_timer_is_left_of_one_that_is_closed() -> None:
    clock = Clock()
    agenda = _agenda(clock)
    agenda.add(Job.AUDIT, in_s=10)
    agenda.close()
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("last_ms", "due_s"),
    [(None, 0), (0, 0), (9 * DAY_MS, 0), (10 * DAY_MS - 1000, 86_399), (11 * DAY_MS, 86_400)],
)
def test_a_check_goes_on_where_another_auditor_left_it(last_ms: int | None, due_s: float) -> None:
    assert first_run_s(last_ms, 10 * DAY_MS, 86_400) == due_s
