"""What of the cluster's repair can be asked for over HTTP: jobs that run beside the bookie."""

from __future__ import annotations

from collections.abc import Callable

from bkclient.admin.cookies import insist_gone
from bkclient.client import Client
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
from bookied.admin.jobs import BackgroundJob, Jobs
from wire.ids import BookieId


class Repairs:
    """Begins the jobs. Belongs to the reactor's thread."""

    def __init__(self, jobs: Jobs, client: Callable[[], Client]) -> None:
        self.jobs, self._client = jobs, client

    def recover(
        self, bookie_id: BookieId, *, skip_open: bool, delete_cookie: bool
    ) -> BackgroundJob:
        """Begin to move what is on a bookie to others.

        Raises:
            JobRefusedError: that job is in progress, or too many others.
        """
        options = RecoverOptions(
            skip_open=skip_open, skip_unrecoverable=True, delete_cookies=delete_cookie
        )

        async def work(job: BackgroundJob) -> str:
            return await _recover(self._client(), bookie_id, options, job)

        return self.jobs.begin("recover", bookie_id, work)

    async def insist_gone(self, bookie_id: BookieId) -> None:
        """Raise ``IllegalOperationError`` where a bookie runs."""
        await insist_gone(self._client(), [bookie_id])

    def decommission(self, bookie_id: BookieId, *, keep_cookie: bool) -> BackgroundJob:
        """Begin to take a bookie out: the cluster's workers move what is on it.

        Raises:
            JobRefusedError: that job is in progress, or too many others.
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
