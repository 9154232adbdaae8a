"""Background jobs of the admin API, and their progress for the client that started them.

Jobs belong to the process: they end with the bookie. Each can be started again, and continues where
it stopped.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.admin.cookies import require_gone
from bkclient.client import Client
from bkclient.concurrency import wall_ms
from bkclient.errors import LedgerRecoveryError
from bkclient.replication.autorecovery_admin import how_to_repair_mark
from bkclient.replication.decommission import DecommissionProgress, decommission
from bkclient.replication.recover_bookies import (
    LedgerMove,
    LedgerOutcome,
    RecoverOptions,
    ledgers_on_bookies,
    recover_bookies,
)
from wire.errors import BookKeeperError
from wire.ids import BookieId

KEPT: Final = 100
"""Jobs that are remembered; the oldest that have ended are forgotten first."""

RUNNING_MAX: Final = 4
"""Jobs in progress; more are refused."""

log = Logger()


class JobState(enum.Enum):
    """The state of a job."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class NoSuchJobError(BookKeeperError):
    """No job has this number, or the job is forgotten."""


class JobRefusedError(BookKeeperError):
    """The same job, or the allowed number of jobs, is in progress."""


@attrs.define(eq=False)
class BackgroundJob:
    """One job. Times are milliseconds since the epoch."""

    number: int
    kind: str
    about: str
    began_ms: int
    state: JobState = JobState.RUNNING
    ended_ms: int | None = None
    done: int = 0
    total: int | None = None
    said: str = ""
    """The last message of the job: its present step, its result, or its error."""

    @property
    def is_running(self) -> bool:
        return self.state is JobState.RUNNING


Work = Callable[[BackgroundJob], Coroutine[Deferred[Any], Any, str]]
"""Does the work, updates the job's figures, and returns the result as text."""


class Jobs:
    """The jobs of one process. They belong to the reactor's thread."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._jobs: OrderedDict[int, BackgroundJob] = OrderedDict()
        self._running: dict[int, Deferred[None]] = {}
        self._last = 0

    def begin(self, kind: str, about: str, work: Work) -> BackgroundJob:
        """Start a job and return at once.

        Raises:
            JobRefusedError: the same job, or the allowed number of jobs, is in progress.
        """
        running = [self._jobs[number] for number in self._running]
        for one in running:
            if (one.kind, one.about) == (kind, about):
                raise JobRefusedError(f"job {one.number} does that already")
        if len(running) >= RUNNING_MAX:
            raise JobRefusedError(f"{len(running)} jobs are running; wait until one ends")
        self._last += 1
        job = BackgroundJob(self._last, kind, about, wall_ms(self._clock))
        self._jobs[job.number] = job
        self._forget()
        log.info("job {number}: {kind} {about}", number=job.number, kind=kind, about=about)
        running_job = Deferred.fromCoroutine(work(job))
        self._running[job.number] = running_job.addCallbacks(
            lambda said: self._ended(job, JobState.DONE, said),
            lambda failure: self._failed(job, failure),
        )
        if not job.is_running:  # The job ended before it was noted as running.
            del self._running[job.number]
        return job

    def all(self) -> tuple[BackgroundJob, ...]:
        """Return the jobs that are remembered, the newest first."""
        return tuple(reversed(self._jobs.values()))

    def get(self, number: int) -> BackgroundJob:
        """Return a job.

        Raises:
            NoSuchJobError: no job has this number.
        """
        if number not in self._jobs:
            raise NoSuchJobError(f"there is no job {number}")
        return self._jobs[number]

    def cancel(self, number: int) -> BackgroundJob:
        """Stop a job at a safe point; an ended job is unchanged.

        Raises:
            NoSuchJobError: no job has this number.
        """
        job = self.get(number)
        running = self._running.get(number)
        if running is not None:
            running.cancel()
        return job

    async def close(self) -> None:
        """Stop all jobs."""
        running = list(self._running.values())
        for one in running:
            one.cancel()
        await DeferredList(running)

    def _failed(self, job: BackgroundJob, failure: Failure) -> None:
        error = failure.value
        if failure.check(CancelledError) is not None:
            self._ended(job, JobState.CANCELLED, "cancelled; it can be asked for again")
            return
        if not isinstance(error, BookKeeperError):
            log.failure("job {number}", failure, number=job.number)
        self._ended(job, JobState.FAILED, str(error) or type(error).__name__)

    def _ended(self, job: BackgroundJob, state: JobState, said: str) -> None:
        job.state, job.said, job.ended_ms = state, said, wall_ms(self._clock)
        self._running.pop(job.number, None)
        log.info("job {number}: {said}", number=job.number, said=said)

    def _forget(self) -> None:
        ended = [number for number, job in self._jobs.items() if not job.is_running]
        for number in ended[: max(0, len(self._jobs) - KEPT)]:
            del self._jobs[number]


class Repairs:
    """The jobs that repair. They belong to the reactor's thread."""

    def __init__(self, jobs: Jobs, client: Callable[[], Client]) -> None:
        self.jobs, self._client = jobs, client

    def recover(
        self, bookie_id: BookieId, *, skip_open: bool, delete_cookie: bool
    ) -> BackgroundJob:
        """Start to copy the replicas of a bookie to other bookies.

        Raises:
            JobRefusedError: the same job, or the allowed number of jobs, is in progress.
        """
        options = RecoverOptions(
            skip_open=skip_open, skip_unrecoverable=True, delete_cookies=delete_cookie
        )

        async def work(job: BackgroundJob) -> str:
            return await _recover(self._client(), bookie_id, options, job)

        return self.jobs.begin("recover", bookie_id, work)

    async def require_gone(self, bookie_id: BookieId) -> None:
        """Raise ``IllegalOperationError`` if the bookie runs."""
        await require_gone(self._client(), [bookie_id])

    def decommission(self, bookie_id: BookieId, *, keep_cookie: bool) -> BackgroundJob:
        """Start to decommission a bookie: the cluster's workers copy its replicas.

        Raises:
            JobRefusedError: the same job, or the allowed number of jobs, is in progress.
        """

        async def work(job: BackgroundJob) -> str:
            return await _decommission(self._client(), bookie_id, job, keep_cookie=keep_cookie)

        return self.jobs.begin("decommission", bookie_id, work)


async def _recover(
    client: Client, bookie_id: BookieId, options: RecoverOptions, job: BackgroundJob
) -> str:
    listed = [one.ledger_id async for one in ledgers_on_bookies(client, [bookie_id])]
    job.total = len(listed)

    def report(move: LedgerMove) -> None:
        job.done += move.outcome in {LedgerOutcome.MOVED, LedgerOutcome.DELETED}
        job.said = f"ledger {move.ledger_id}: {move.error or move.outcome.value}"

    done = await recover_bookies(client, [bookie_id], options, report)
    left = ", ".join(f"{one.ledger_id} ({one.error or one.outcome.value})" for one in done.left)
    if left and options.delete_cookies:
        raise LedgerRecoveryError(f"the cookie stays: not all ledgers were moved: {left}")
    return f"{done.moved} ledgers moved" + (f"; left: {left}" if left else "")


async def _decommission(
    client: Client, bookie_id: BookieId, job: BackgroundJob, *, keep_cookie: bool
) -> str:
    waits = ""

    def report(step: DecommissionProgress) -> None:
        nonlocal waits
        done = step.ledgers - step.ledgers_left
        if step.stuck or done != job.done:
            waits = "; ".join(f"ledger {one.ledger_id}: {one.why}" for one in step.stuck)
        unread = (f"{why}; {how_to_repair_mark(one)}" for one, why in step.damaged.items())
        job.total, job.done = step.ledgers, done
        job.said = ": ".join((step.step, *filter(None, ("; ".join(unread), waits))))

    done = await decommission(client, bookie_id, report, keep_cookie=keep_cookie)
    cookie = "its cookie is removed" if done.cookie_deleted else "no cookie was removed"
    return f"{done.ledgers} ledgers moved, {cookie}"
