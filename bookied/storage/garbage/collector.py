"""Garbage collection of one storage: rounds of dropping ledgers, dropping logs and compaction.

A round runs a checkpoint, if there is space, and finishes or removes what an earlier compaction
left. It lists local ledgers, asks the metadata which were deleted, and drops these. It drops logs
without live entries, and compacts logs that are worth it. Any failure ends the round, and the next
round begins anew: no step leaves anything that a crash or an error could turn into loss. Disk work
is done in threads, in small steps.

Agrees with BookKeeper 4.18.0, GarbageCollectorThread, on what runs when.
"""

from __future__ import annotations

from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from bkclient.concurrency import cancel, wall_s
from bookied.errors import NO_SPACE, IndexFullError, NoWritableDirError
from bookied.stats.metrics import CollectorStats
from bookied.storage.files.files import Files
from bookied.storage.garbage import compaction_rules
from bookied.storage.garbage.collector_state import (
    CollectionRound,
    CollectorEffects,
    CollectorSettings,
)
from bookied.storage.garbage.compaction import LogCompaction, RequestedCompactions, Suspensions
from bookied.storage.garbage.compaction_in_place import InPlaceCompaction, Rewriter
from bookied.storage.garbage.compaction_rate import CollectionStoppedError, Pace, Rate, Throttle
from bookied.storage.garbage.ledger_removal import LedgerRemoval
from bookied.storage.garbage.log_removal import LogCensus
from bookied.storage.garbage.status import CollectorStatus
from bookied.storage.garbage.transactional_compaction import TransactionalCompaction
from bookied.storage.ledger_storage.entry_logs import NONE_FINISHED
from bookied.storage.ledger_storage.storage import LedgerStorage
from wire.errors import BookKeeperError

log = Logger()

BUSY_SHARE: Final = 4
"""Copies wait while more than 1/``BUSY_SHARE`` of the allowed unwritten bytes is in use."""

PRESSED_WAIT_S: Final = 10.0
"""Seconds between collections while disks are full and are collected for space."""


def _throttle(settings: CollectorSettings) -> Throttle:
    return Throttle(Rate(settings.copied_per_s), settings.throttle_by_bytes)


class Collector:
    """The garbage collector of one storage: the schedule of rounds, and the order of their steps.

    A round drops ledgers, then logs, then compacts. All methods belong to the reactor's thread.
    """

    def __init__(
        self,
        files: Files,
        storage: LedgerStorage,
        clock: IReactorTime,
        settings: CollectorSettings,
        effects: CollectorEffects,
        *,
        number: int = 0,
        count: int = 1,
    ) -> None:
        """Store the settings; ``start`` begins the rounds.

        Args:
            files: the disk.
            storage: the storage to collect.
            clock: schedules the rounds.
            settings: as configured.
            effects: the collector's callbacks.
            number: the index of this collector among the bookie's: their first rounds are spread.
            count: the number of the bookie's collectors.
        """
        self._storage, self._clock = storage, clock
        self._first_wait_s = settings.wait_s * (1 + (number + 1) / count)
        self._pace = Pace(clock, effects.run_blocking, _throttle(settings), self._is_busy)
        self._collection = collection = CollectionRound(
            files=files,
            storage=storage,
            clock=clock,
            pace=self._pace,
            effects=effects,
            settings=settings,
        )
        parts, at_once = (files, storage, self._pace), settings.outstanding_max
        self._transactional = TransactionalCompaction(
            *parts, outstanding_max=at_once, direct=settings.direct
        )
        rewriter: Rewriter = self._transactional
        if not settings.transactional:
            rewriter = InPlaceCompaction(*parts, outstanding_max=at_once)
        self.suspensions = Suspensions()
        """Compactions that must not begin, and that end after the current log."""
        self._ledgers = LedgerRemoval(collection)
        self._census = LogCensus(collection)
        self._compaction = LogCompaction(collection, self._census, self.suspensions, rewriter)
        self._begun = NONE_FINISHED
        self._is_pressed = False
        self._call: IDelayedCall | None = None
        self._round: Deferred[None] | None = None
        self._wanted: RequestedCompactions | None = None
        self._asked: list[Deferred[CollectorStatus]] = []
        self._is_stopping = False

    @property
    def status(self) -> CollectorStatus:
        """The state and totals of the collector, and the time of the next round."""
        next_s = None
        if self._call is not None and self._call.active():
            next_s = wall_s(self._clock) + self._call.getTime() - self._clock.seconds()
        return attrs.evolve(self._collection.status, next_s=next_s)

    @property
    def stats(self) -> CollectorStats:
        """The number and duration of the collector's steps."""
        return self._collection.stats

    # When -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the periodic rounds."""
        self._ledgers.start()
        self._call_later(self._first_wait_s)

    def settings_changed(self, settings: CollectorSettings) -> None:
        """Use new settings from now on; the way of copying stays unchanged."""
        self._collection.settings, self._pace.throttle = settings, _throttle(settings)
        if self._call is not None and self._call.active():
            self._call_later(min(settings.wait_s, self._call.getTime() - self._clock.seconds()))

    async def stop(self) -> None:
        """Begin nothing more; return when the round in progress has reached a safe point."""
        self._is_stopping = True
        self._pace.stop()
        cancel(self._call)
        if self._round is not None:
            await self._round
        self._answer_all()

    def collect(self, *, major: bool = True, minor: bool = True) -> Deferred[CollectorStatus]:
        """Collect now, or after the round in progress; return the status after the round.

        Args:
            major: run a major compaction, if allowed.
            minor: otherwise run a minor compaction, if allowed.
        """
        done: Deferred[CollectorStatus] = Deferred()
        self._asked.append(done)
        self._want(RequestedCompactions(major, minor))
        return done

    def _want(self, wanted: RequestedCompactions) -> None:
        self._wanted = wanted if self._wanted is None else self._wanted | wanted
        if self._is_stopping:
            self._answer_all()
        elif self._round is None:
            self._call_later(0)

    def disks_changed(self, *, nearly_full: bool, full: bool) -> None:
        """Suspend or request work after a check of the storage's disks."""
        collects = self._collection.settings.collects_when_full
        suspended = compaction_rules.suspended_by_disks(
            nearly_full=nearly_full, full=full, collects_when_full=collects
        )
        self.suspensions.suspend_by_disks(suspended)
        was_pressed, self._is_pressed = self._is_pressed, collects and (nearly_full or full)
        if self._is_pressed and not was_pressed:
            self._want(RequestedCompactions())

    def _call_later(self, wait_s: float) -> None:
        cancel(self._call)
        self._call = self._clock.callLater(wait_s, self._begin)

    def _begin(self) -> None:
        wanted, self._wanted = self._wanted, None
        asked, self._asked = self._asked, []
        self._round = Deferred.fromCoroutine(self._run(wanted, is_asked=bool(asked)))
        self._round.addBoth(self._ended, asked)

    def _ended(self, _: object, asked: list[Deferred[CollectorStatus]]) -> None:
        self._round = None
        self._answer(asked)
        if self._is_stopping:
            return
        if self._wanted is not None:
            self._call_later(0)
        elif self._is_pressed:
            self._wanted = RequestedCompactions()
            self._call_later(min(PRESSED_WAIT_S, self._collection.settings.wait_s))
        else:
            self._call_later(self._collection.settings.wait_s)

    def _answer_all(self) -> None:
        asked, self._asked = self._asked, []
        self._answer(asked)

    def _answer(self, asked: list[Deferred[CollectorStatus]]) -> None:
        for one in asked:
            one.callback(self.status)

    def _is_busy(self) -> bool:
        storage = self._storage
        if storage.is_out_of_space:
            raise NoWritableDirError("a ledger directory has no space left")
        return storage.unwritten_bytes > storage.limits.unwritten_bytes_max // BUSY_SHARE

    # A round --------------------------------------------------------------------------------------

    async def _run(self, wanted: RequestedCompactions | None, *, is_asked: bool) -> None:
        began_s = self._clock.seconds()
        self._collection.note(is_running=True, is_forced=wanted is not None)
        error = None
        try:
            await self._collect(wanted, is_asked=is_asked)
        except CollectionStoppedError:
            log.info("garbage collection stopped because the bookie stops")
        except (BookKeeperError, OSError) as failed:
            error = f"{type(failed).__name__}: {failed}"
            log.warn("garbage collection failed and is retried: {error}", error=error)
        except Exception as failed:  # noqa: BLE001 -- a bookie without collection is better than none
            error = f"{type(failed).__name__}: {failed}"
            log.failure("garbage collection failed", Failure())
        took_s, now_s = self._clock.seconds() - began_s, wall_s(self._clock)
        self._collection.status = self._collection.status.round_ended(now_s - took_s, now_s, error)
        self._collection.stats.thread.observe(took_s * 1000, ok=error is None)

    async def _collect(self, wanted: RequestedCompactions | None, *, is_asked: bool) -> None:
        pace, storage, effects = self._pace, self._storage, self._collection.effects
        pace.check()
        await storage.relocation.switch((), effects.run_blocking)
        is_all_in_files = await self._checkpoint()
        left = await self._transactional.tidy(storage.directories.all)
        with self.stats.ledgers.timed(self._clock.seconds):
            await self._ledgers.drop()
        # An operator who asks for a collection wants the space, which may be in the active log.
        if is_asked and storage.logs.end_if_dead(frozenset(storage.ledgers.ids())):
            is_all_in_files = await self._checkpoint()
        with self.stats.logs.timed(self._clock.seconds):
            await self._census.drop(self._begun, left)
        if is_all_in_files:
            await self._compaction.compact(wanted)

    async def _checkpoint(self) -> bool:
        """Run a checkpoint and note which logs are finished; return whether there was disk space.

        Without space, only logs that an earlier checkpoint has covered are collected. Their removal
        frees space on a full disk.
        """
        begun = self._storage.logs.begun()
        try:
            await self._collection.effects.checkpoint()
        except (IndexFullError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in NO_SPACE:
                raise
            log.warn("collecting without a checkpoint: {error}", error=error)
            return False
        self._begun = begun
        return True
