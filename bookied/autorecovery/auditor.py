"""The auditor: the one process of a cluster that detects lost bookies and marks their ledgers.

The auditor runs while it is elected; ``sessions`` has the election. Its jobs run strictly one after
another: reactions to bookies that register or vanish, to a new delay, and periodic checks. The
auditor keeps no state that a restart would lose.

Agrees with BookKeeper 4.18.0, Auditor. Stricter: a failed audit is tried again and does not end the
auditor; a delay counts as written again by its version, not because a watch fired; and an audit for
a lost bookie runs twice, for ledgers that are stored during the first.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Final

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from bkclient.client import Client
from bkclient.concurrency import wall_ms, wall_s
from bkclient.metadata.errors import UNREADABLE
from bkclient.metadata.versions_and_watches import NEW, Versioned, Watch
from bkclient.replication.autorecovery_admin import CHECK_REQUESTED_MS
from bkclient.replication.replica_check import LedgerChecker
from bookied.autorecovery.audit_schedule import (
    AGAIN_S,
    PATIENT,
    REQUESTS_S,
    RETRY_S,
    AuditJob,
    AuditSchedule,
    check_intervals_s,
    first_run_s,
)
from bookied.autorecovery.audits import (
    DisabledError,
    audit_bookies,
    check_all_ledgers,
    check_placement,
    check_replicas,
    overdue_marks,
)
from bookied.autorecovery.lost_bookies import Audit, AuditLater, Command, LostBookies
from bookied.autorecovery.repeated_failure import RepeatedFailure
from bookied.autorecovery.wait_for_work import until_enabled
from bookied.config.autorecovery import AutoRecoveryConfig
from bookied.stats.metrics import AuditorStats
from bookied.stats.quantiles import Summary
from wire.errors import BookKeeperError
from wire.ids import BookieId

log = Logger()

STORED_AS: Final = {
    AuditJob.CHECK_LEDGERS: "all-ledgers",
    AuditJob.CHECK_PLACEMENT: "placement",
    AuditJob.CHECK_REPLICAS: "replicas",
}
"""Checks whose last end is kept in the store."""


class Auditor:
    """One term of an auditor. All methods belong to the reactor's thread."""

    def __init__(
        self,
        client: Client,
        config: AutoRecoveryConfig,
        bookie_id: BookieId,
        rng: random.Random,
        stats: AuditorStats | None = None,
    ) -> None:
        """Prepare a term.

        Args:
            client: a client over the session in which the election was won.
            config: intervals and limits.
            bookie_id: the elected id.
            rng: chooses the entries that checks read.
            stats: counts results.
        """
        self._stats = AuditorStats() if stats is None else stats
        self._client, self._store, self._clock = client, client.store, client.cluster.clock
        self._config, self._bookie_id = config, bookie_id
        self._checker = LedgerChecker(
            client=client,
            rng=rng,
            percentage=config.verified_percentage,
            reads_at_once=config.check_reads_max,
        )
        self._intervals_s = check_intervals_s(config)
        every_s = {**self._intervals_s, AuditJob.LOOK_AT_REQUESTS: REQUESTS_S}
        self._schedule = AuditSchedule(self._clock, lambda job: every_s.get(job, 0))
        self._checked_ms: dict[AuditJob, int | None] = {}
        """The end of each check, as read at the start or written here; never a request."""
        self._failures: dict[AuditJob, RepeatedFailure] = {}
        self._watches: list[Watch] = []
        self._lost: LostBookies | None = None
        self._has_audited = False
        counted = self._stats
        self._jobs: dict[AuditJob, tuple[Callable[[], Awaitable[None]], Summary | None]] = {
            AuditJob.LOOK_AT_BOOKIES: (self._look_at_bookies, None),
            AuditJob.LOOK_AT_DELAY: (self._look_at_delay, None),
            AuditJob.LOOK_AT_REQUESTS: (self._look_at_requests, None),
            AuditJob.AUDIT: (self._audit_twice, counted.audit),
            AuditJob.AUDIT_AGAIN: (self._audit, counted.audit),
            AuditJob.CHECK_BOOKIES: (self._check_bookies, counted.audit),
            AuditJob.CHECK_LEDGERS: (self._check_ledgers, counted.check_ledgers),
            AuditJob.CHECK_PLACEMENT: (self._check_placement, counted.check_placement),
            AuditJob.CHECK_REPLICAS: (self._check_replicas, counted.check_replicas),
        }
        """The function of each job, and the summary of its durations."""

    async def run(self) -> None:
        """Audit until cancelled, or until another process is the auditor.

        Raises:
            MetadataStoreError: the auditor could not start.
        """
        log.info("{bookie_id} is the auditor", bookie_id=self._bookie_id)
        try:
            await self._begin()
            await self._schedule.wait()
            while await self._is_auditor():
                while self._schedule:
                    await self._try(self._next_job())
                await self._schedule.wait()
            log.warn("{bookie_id} is not the auditor any more", bookie_id=self._bookie_id)
        finally:
            self._end()

    async def _begin(self) -> None:
        store = self._store
        delay = await self._published_delay()
        self._lost = LostBookies(await store.known_bookies(), delay)
        self._watches = [
            await store.watch_bookies(lambda: self._schedule.add(AuditJob.LOOK_AT_BOOKIES)),
            await store.watch_lost_bookie_recovery_delay(
                lambda: self._schedule.add(AuditJob.LOOK_AT_DELAY)
            ),
        ]
        self._schedule.add(AuditJob.CHECK_BOOKIES)
        now_ms = wall_ms(self._clock)
        for job in STORED_AS:
            last_ms = await self._stored_ms(job)
            # The previous auditor may not have run a requested check.
            is_requested = last_ms is not None and now_ms - last_ms >= CHECK_REQUESTED_MS
            self._checked_ms[job] = None if is_requested else last_ms
            interval_s = self._intervals_s[job]
            if interval_s > 0:
                self._schedule.add(job, in_s=first_run_s(last_ms, now_ms, interval_s))
        self._schedule.add(AuditJob.LOOK_AT_REQUESTS, in_s=REQUESTS_S)

    async def _published_delay(self) -> Versioned[int]:
        """Return the delay in the store; if the store has none, publish the configured one.

        The configured delay also applies while the store cannot be read, so that a lost bookie is
        noticed.
        """
        delay_s = self._config.lost_bookie_recovery_delay_s
        try:
            stored = await self._store.versioned_recovery_delay()
        except UNREADABLE as error:
            log.warn("{error}; the delay is {s} s for now", error=error, s=delay_s)
            return Versioned(delay_s, NEW)
        if stored is None:
            await self._store.set_lost_bookie_recovery_delay(delay_s)
            stored = await self._store.versioned_recovery_delay()
            assert stored is not None
        return stored

    def _end(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._schedule.close()

    async def _is_auditor(self) -> bool:
        """Return whether the vote still exists: an operator can delete it."""
        try:
            return await self._store.current_auditor() == self._bookie_id
        except BookKeeperError as error:
            log.info("cannot read which bookie is the auditor: {error}", error=error)
            return True

    # Jobs

    def _next_job(self) -> AuditJob:
        """Remove and return the most urgent job.

        The first audit precedes all others, without delay.

        An audit whose delay is over is like any other audit: if it fails, the loss or return of
        other bookies must not delay or cancel it.
        """
        job = self._schedule.take(first=None if self._has_audited else AuditJob.CHECK_BOOKIES)
        return AuditJob.AUDIT if job is AuditJob.AUDIT_LATER else job

    async def _try(self, job: AuditJob) -> None:
        """Run a job; schedule it again if it fails and no later job replaces it."""
        failure = self._failures.setdefault(job, RepeatedFailure(f"{job.name} failed"))
        try:
            if await self._may_do(job):
                await self._timed(job)
                failure.worked()
            else:
                self._stats.checks_skipped += 1
        except CancelledError:
            raise
        except DisabledError:
            self._stats.checks_skipped += 1
            log.info("stopped {job}: autorecovery is disabled", job=job.name)
            if job in PATIENT:
                self._schedule.add(job)
        except Exception as error:  # noqa: BLE001 - a bug must not end the audits for good.
            if isinstance(error, BookKeeperError):
                failure.failed(error)
            else:
                log.failure("{job} failed", job=job.name)
            if job in PATIENT:
                self._schedule.add(job, in_s=RETRY_S)

    async def _timed(self, job: AuditJob) -> None:
        do, took = self._jobs[job]
        with nullcontext() if took is None else took.timed(self._clock.seconds):
            await (self._noted(job, do) if job in STORED_AS else do())

    async def _may_do(self, job: AuditJob) -> bool:
        assert self._lost is not None
        if job is AuditJob.LOOK_AT_REQUESTS:
            return True
        if job in PATIENT:
            await until_enabled(self._store, self._clock)
        if job not in self._intervals_s or not (self._lost.is_waiting and self._has_audited):
            return job in PATIENT or await self._store.replication_enabled()
        # The check would report the losses that the delay holds back.
        log.info("skipped {job}: an audit follows", job=job.name)
        return False

    async def _look_at_bookies(self) -> None:
        assert self._lost is not None
        self._obey(self._lost.seen(await self._store.registered_bookies()))

    async def _look_at_delay(self) -> None:
        assert self._lost is not None
        self._obey(self._lost.delay_stored(await self._published_delay()))

    async def _look_at_requests(self) -> None:
        """Start the checks whose stored time another process has changed: an operator's request.

        A request waits while the check would be skipped, and remains until a check has ended.
        """
        assert self._lost is not None
        if self._lost.is_waiting or not await self._store.replication_enabled():
            return
        for job, stored_as in STORED_AS.items():
            stored_ms = await self._stored_ms(job)
            if stored_ms not in {None, self._checked_ms[job]}:
                log.info("{check}: the check was requested", check=stored_as)
                self._schedule.add(job)

    async def _stored_ms(self, job: AuditJob) -> int | None:
        """Return the stored end of a check; None if it is missing or cannot be read."""
        try:
            return await self._store.check_time(STORED_AS[job])
        except UNREADABLE as error:
            if job not in self._checked_ms:  # Once in a term
                log.warn("{error}", error=error)
            return None

    def _obey(self, commands: list[Command]) -> None:
        for command in commands:
            if command is Audit.NOW:
                self._schedule.add(AuditJob.AUDIT)
            elif command is Audit.CANCELLED:
                self._stats.delayed_audits_cancelled += 1
                self._schedule.drop(AuditJob.AUDIT_LATER)
            else:
                assert isinstance(command, AuditLater)
                self._stats.audits_delayed += 1
                log.info(
                    "a bookie is lost; its ledgers are marked in {s} s unless it returns",
                    s=command.delay_s,
                )
                self._schedule.add(AuditJob.AUDIT_LATER, in_s=command.delay_s)

    async def _audit_twice(self) -> None:
        """Audit for a bookie that was just lost; audit again later while a bookie is missing."""
        await self._audit()
        if await self._store.known_bookies() - await self._store.registered_bookies():
            self._schedule.add(AuditJob.AUDIT_AGAIN, in_s=AGAIN_S)

    async def _audit(self) -> None:
        assert self._lost is not None
        self._lost.audited()
        found = await audit_bookies(self._store, self._clock.seconds)
        self._lost.audited(found.marked)
        stats = self._stats
        stats.walk.observe(found.walk_s * 1000)
        stats.publish.observe(found.publish_s * 1000)
        stats.marked.success.note(found.ledgers)
        stats.marked_bytes.success.note(found.size_bytes)
        stats.audited_s = wall_s(self._clock)

    async def _check_bookies(self) -> None:
        await (self._audit() if self._has_audited else self._audit_twice())
        self._has_audited = True
        self._schedule.add(AuditJob.LOOK_AT_BOOKIES)

    async def _check_ledgers(self) -> None:
        at_once = self._config.ledgers_checked_at_once
        await check_all_ledgers(self._client, self._checker, at_once, self._stats.checked)

    async def _check_placement(self) -> None:
        config = self._config
        if config.overdue_marks_s > 0:
            overdue = await overdue_marks(self._store, config.overdue_marks_s, wall_ms(self._clock))
            self._stats.overdue = len(overdue)
        misplaced = await check_placement(self._client, repair=config.repair_placement)
        self._stats.misplaced = len(misplaced)

    async def _check_replicas(self) -> None:
        found = (await check_replicas(self._client)).values()
        lost = [one for one in found if one.without_any]
        short = [one for one in found if one.below_ack_quorum and not one.without_any]
        self._stats.without_a_replica = len(lost)
        self._stats.below_ack_quorum = len(short)
        self._stats.below_write_quorum = len(found) - len(lost) - len(short)

    async def _noted(self, job: AuditJob, check: Callable[[], Awaitable[None]]) -> None:
        """Run a check and store its end, unless the check was requested again during the run."""
        before_ms = await self._stored_ms(job)
        await check()
        if await self._stored_ms(job) == before_ms:
            now_ms = self._checked_ms[job] = wall_ms(self._clock)
            await self._store.set_check_time(STORED_AS[job], now_ms)
