"""Work behind an answer: begun once, followed, stopped, forgotten in the end."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bookied.admin.jobs import (
    KEPT,
    RUNNING_MAX,
    BackgroundJob,
    JobRefusedError,
    Jobs,
    JobState,
    NoSuchJobError,
)
from tests.bookied.worlds.fakes import done
from wire.errors import BookKeeperError


class Works:
    """Pieces of work that end when a test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.jobs = Jobs(self.clock)
        self.waiting: dict[int, Deferred[str]] = {}

    def begin(self, about: str) -> BackgroundJob:
        async def work(job: BackgroundJob) -> str:
            job.said = "at it"
            self.waiting[job.number] = Deferred()
            return await self.waiting[job.number]

        return self.jobs.begin("work", about, work)


@pytest.fixture
def works() -> Works:
    return Works()


def test_a_job_runs_until_its_work_is_done(works: Works) -> None:
    job = works.begin("a")
    works.clock.advance(2)
    assert (job.state, job.said, job.ended_ms) == (JobState.RUNNING, "at it", None)
    works.waiting[job.number].callback("three things done")
    assert (job.state, job.said) == (JobState.DONE, "three things done")
    assert (job.began_ms, job.ended_ms) == (0, 2000)


def test_work_that_fails_says_why_whatever_it_was(works: Works) -> None:
    first, second = works.begin("a"), works.begin("b")
    works.waiting[first.number].errback(BookKeeperError("no bookies"))
    works.waiting[second.number].errback(ValueError())
    assert [(one.state, one.said) for one in (first, second)] == [
        (JobState.FAILED, "no bookies"),
        (JobState.FAILED, "ValueError"),
    ]


def test_the_same_is_begun_once_and_again_when_it_has_ended(works: Works) -> None:
    job = works.begin("a")
    with pytest.raises(JobRefusedError, match="job 1 does that already"):
        works.begin("a")
    works.waiting[job.number].callback("")
    assert works.begin("a").number == 2
    assert [one.number for one in works.jobs.all()] == [2, 1]


def test_there_is_a_limit_to_what_is_under_way(works: Works) -> None:
    for number in range(RUNNING_MAX):
        works.begin(str(number))
    with pytest.raises(JobRefusedError, match="are running"):
        works.begin("one more")


def test_a_job_is_stopped_once(works: Works) -> None:
    job = works.begin("a")
    assert works.jobs.cancel(job.number) is job
    assert job.state is JobState.CANCELLED
    works.jobs.cancel(job.number)
    with pytest.raises(NoSuchJobError):
        works.jobs.cancel(9)


def test_the_oldest_that_have_ended_are_forgotten_and_none_that_runs(works: Works) -> None:
    running = works.begin("for ever")
    for number in range(KEPT + 5):
        works.waiting[works.begin(str(number)).number].callback("")
    assert len(works.jobs.all()) == KEPT
    assert works.jobs.get(running.number).is_running
    with pytest.raises(NoSuchJobError):
        works.jobs.get(2)


def test_the_end_of_the_process_stops_all_of_them(works: Works) -> None:
    jobs = [works.begin("a"), works.begin("b")]
    done(works.jobs.close())
    assert {one.state for one in jobs} == {JobState.CANCELLED}
