"""A replication worker: takes marks one by one and repairs their ledgers.

The worker deletes a mark only after a check of the complete ledger that began after the last change
of the mark. The lock only keeps other workers away: it vanishes with the session, and repairs are
stored by compare-and-swap. A worker can die between any two steps; the next worker begins from the
metadata.

Agrees with BookKeeper 4.18.0, ReplicationWorker. Stricter: a writer is fenced only if a bookie is
lost, or if an entry that was confirmed before the grace period is still missing, and never while
re-replication is disabled; a ledger that lost entries for good is reported once; and a problem with
one ledger ends its repair, not the worker.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.task import deferLater
from twisted.logger import Logger

from bkclient.client import Client
from bkclient.concurrency import rate_limit, wall_s
from bkclient.errors import ClientClosedError, ClientError, MetadataStoreError, NoSuchLedgerError
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import Watch
from bkclient.placement.policy import Ensemble, spread
from bkclient.quorum.fragments import (
    LedgerFragment,
    MissingPlaces,
    fragments_of,
    is_lost,
    needs_recovery,
    swap_between,
)
from bkclient.replication.fragment_copy import ByteRate, FragmentRepairer, UnreadableEntryError
from bkclient.replication.replica_check import LedgerChecker, LedgerView, view_ledger
from bookied.autorecovery.repair_retries import RepairFailures, RepairPauses
from bookied.autorecovery.repeated_failure import RepeatedFailure
from bookied.autorecovery.wait_for_work import WakeUp, until_enabled
from bookied.config.autorecovery import AutoRecoveryConfig
from bookied.stats.metrics import WorkerStats
from wire.errors import BookKeeperError, MetadataFormatError
from wire.ids import LedgerId

log = Logger()

LOOK_AGAIN_S: Final = 60.0
"""Seconds between two searches for marks without a watch that reports marks."""

LOCKED_MAX: Final = 1000
"""Ledgers whose locks are kept during a pause; with more the worker itself waits."""


REPORTED_MAX: Final = 10
"""Unrepaired fragments of one ledger that have their own log line."""


class RepairOutcome(enum.Enum):
    """The result of one pass over a ledger."""

    INTACT = enum.auto()
    """Every replica is in its place, or the ledger is deleted."""
    OPEN = enum.auto()
    """The incomplete fragment may still grow: the writer gets time to repair it."""
    LACKING = enum.auto()
    """Some entries could not be copied; a later attempt may succeed."""
    LOST = enum.auto()
    """Some entries cannot be on any bookie."""


class Worker:
    """One worker. All methods belong to the reactor's thread."""

    def __init__(
        self,
        client: Client,
        config: AutoRecoveryConfig,
        rng: random.Random,
        stats: WorkerStats | None = None,
    ) -> None:
        """Prepare. The locks belong to the session of ``client``.

        ``rng`` chooses the entries to check.
        """
        self._stats = WorkerStats() if stats is None else stats
        self._client, self._store, self._clock = client, client.store, client.cluster.clock
        self._config, self._rng = config, rng
        self._checker = LedgerChecker(
            client=client,
            rng=rng,
            percentage=config.verified_percentage,
            reads_at_once=config.check_reads_max,
        )
        self._repairer = FragmentRepairer(
            cluster=client.cluster,
            rate=ByteRate(self._clock, client.config.repair_bytes_per_s),
            batch_entries=client.config.repair_batch_entries,
            report=lambda copied: self._stats.copied(copied.size_bytes, copied.copies),
        )
        self._failures = RepairFailures(config.failed_ledger_grace_ms / 1000)
        self._wake_up = WakeUp(self._clock)
        self._unrepaired: list[str] = []  # Reasons, for fragments of the present ledger.
        self._locked: dict[LedgerId, Deferred[None]] = {}
        self._pauses = RepairPauses(self._store, self._clock, self._wake_up.wake)
        self._watch: Watch | None = None
        self._not_locked = RepeatedFailure("cannot lock an under-replicated ledger")
        self._limit = rate_limit(self._clock, config.repairs_per_s)

    async def run(self) -> None:
        """Repair until cancelled."""
        try:
            while True:
                try:
                    if self._watch is None:
                        self._watch = await self._store.watch_underreplicated(self._wake_up.wake)
                    await self._pauses.begin()
                    await self._take_one()
                except BookKeeperError as error:
                    self._not_locked.failed(error)
                    await self._rest()
        except CancelledError:
            await self._let_go()
            raise

    async def _take_one(self) -> None:
        """Repair a marked ledger without a lock, or wait for one."""
        await until_enabled(self._store, self._clock)
        await self._pauses.look()
        if len(self._locked) >= LOCKED_MAX:
            await self._wake_up.wait(LOOK_AGAIN_S)
            return
        if self._limit is not None:
            await self._limit.turn(1)
        ledger_id = await self._store.poll_underreplicated()
        self._not_locked.worked()
        if ledger_id is None:
            await self._wake_up.wait(LOOK_AGAIN_S)
        elif await self.repair(ledger_id) not in {RepairOutcome.INTACT, RepairOutcome.OPEN}:
            await self._rest()

    async def _rest(self) -> None:
        await deferLater(self._clock, self._config.repair_backoff_ms / 1000)

    async def _let_go(self) -> None:
        """End the waits. The locks vanish with the session."""
        self._pauses.end()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        locked = list(self._locked.values())
        for waiting in locked:
            waiting.cancel()
        await DeferredList(locked, consumeErrors=True)

    # One ledger

    async def repair(self, ledger_id: LedgerId) -> RepairOutcome:
        """Repair a ledger that this worker has locked; delete its mark and its lock as needed."""
        began_s, before = self._clock.seconds(), self._stats.entries_written
        outcome = await self._repair(ledger_id)
        took_ms = (self._clock.seconds() - began_s) * 1000
        self._stats.repair.observe(took_ms, ok=outcome is RepairOutcome.INTACT)
        self._stats.ledgers += self._stats.entries_written > before
        return outcome

    async def _repair(self, ledger_id: LedgerId) -> RepairOutcome:
        self._unrepaired = []
        try:
            outcome, ledger = await self._pass(ledger_id)
        except NoSuchLedgerError:
            log.info("ledger {id} was deleted; its mark is deleted, too", id=ledger_id)
            outcome, ledger = RepairOutcome.INTACT, None
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - no ledger may end the worker.
            why = str(error) or repr(error)
            if not isinstance(error, BookKeeperError):
                log.failure("repairing ledger {id}", id=ledger_id)
            elif self._failures.is_news(ledger_id, why):
                log.warn("ledger {id} is not repaired: {why}", id=ledger_id, why=why)
            self._stats.failed(ledger_id, wall_s(self._clock), why)
            is_away = isinstance(error, MetadataUnavailableError)
            pause_s = 0.0 if is_away else self._failures.failed(ledger_id)
            self._hold(ledger_id, self._pauses.wait(pause_s))
            return RepairOutcome.LACKING
        if self._unrepaired and self._failures.is_news(ledger_id, "\n".join(self._unrepaired)):
            _report_fragments(ledger_id, self._unrepaired)
        if outcome is RepairOutcome.INTACT:
            await self._remove_mark(ledger_id)
        elif outcome is RepairOutcome.OPEN:
            assert ledger is not None
            self._hold(ledger_id, self._see_to_writer(ledger))
        else:
            self._stats.deferred += 1
            self._hold(ledger_id, self._pauses.wait(self._pause_of(ledger_id, outcome)))
        return outcome

    async def _remove_mark(self, ledger_id: LedgerId) -> None:
        self._failures.forget(ledger_id)
        self._stats.repaired(ledger_id)
        try:
            await self._store.mark_replicated(ledger_id)
        except BookKeeperError as error:
            log.warn("cannot delete the mark of ledger {id}: {error}", id=ledger_id, error=error)
            self._hold(ledger_id, self._pauses.wait(0))

    async def _pass(self, ledger_id: LedgerId) -> tuple[RepairOutcome, LedgerView]:
        """Copy missing replicas, then check the complete ledger again."""
        ledger = await view_ledger(self._client, ledger_id)
        available = await self._store.registered_bookies()
        checker = await _checker_of_mark(self._checker, self._store, ledger_id)
        lacks = await checker.check(ledger, available)
        for lack in lacks:
            if lack.fragment.is_closed:
                await self._repair_missing(ledger, lack)
        is_open = any(not lack.fragment.is_closed for lack in lacks)
        if is_open or needs_recovery(ledger.metadata, available):
            return RepairOutcome.OPEN, ledger
        moves = [] if lacks else await self._spread(ledger)
        if lacks or moves:
            ledger = await view_ledger(self._client, ledger_id)
            available = await self._store.registered_bookies()
            lacks = await checker.check(ledger, available)
        if any(is_lost(lack.fragment, available) for lack in lacks):
            return RepairOutcome.LOST, ledger
        is_known = ledger.lac is not None and not needs_recovery(ledger.metadata, available)
        if lacks or not all(moves) or not is_known:
            return RepairOutcome.LACKING, ledger
        return RepairOutcome.INTACT, ledger

    async def _spread(self, ledger: LedgerView) -> list[bool]:
        """Move fragments of a closed ledger that violate the placement policy, if configured.

        Return for each fragment whether it was moved. A fragment without a better placement is left
        out: the auditor will check it again.
        """
        cluster, metadata = self._client.cluster, ledger.metadata
        if not self._config.repair_placement or not metadata.is_closed:
            return []
        writable = await self._store.writable_bookies()
        await cluster.learn_racks(writable | metadata.all_bookies())
        moves = []
        for fragment in fragments_of(metadata, None):
            ensemble = spread(
                cluster.placement,
                fragment.ensemble,
                fragment.write_quorum,
                writable=writable,
                rng=self._rng,
            )
            if ensemble is not None and ensemble != fragment.ensemble:
                moves.append(await self._move(ledger, fragment, ensemble))
        self._stats.respread += any(moves)
        return moves

    async def _move(self, ledger: LedgerView, fragment: LedgerFragment, ensemble: Ensemble) -> bool:
        swap = swap_between(fragment, ensemble)
        try:
            await self._repairer.carry_out(ledger, MissingPlaces(fragment, tuple(swap.new)), swap)
        except (NoSuchLedgerError, MetadataStoreError):
            raise
        except ClientError as error:
            self._report(ledger, fragment, error)
            return False
        return True

    async def _repair_missing(self, ledger: LedgerView, lack: MissingPlaces) -> None:
        """Repair one fragment; an error must not stop the repair of other fragments."""
        fragment, ledger_id = lack.fragment, ledger.ledger_id
        try:
            first = self._failures.to_read_first(ledger_id, fragment.first, fragment.last)
            if first:
                await self._repairer.try_reading(ledger, first)
                self._failures.readable(ledger_id, first)
            await self._repairer.repair(ledger, lack)
        except (NoSuchLedgerError, MetadataStoreError):
            raise
        except UnreadableEntryError as error:
            self._failures.unreadable(ledger_id, error.entry_id)
            self._stats.unreadable += 1
            self._report(ledger, fragment, error)
        except ClientError as error:
            self._report(ledger, fragment, error)

    def _report(self, ledger: LedgerView, fragment: LedgerFragment, error: ClientError) -> None:
        why = f"the fragment at entry {fragment.first}: {error}"
        self._stats.failed(ledger.ledger_id, wall_s(self._clock), why)
        self._unrepaired.append(why)

    # Waiting ledgers with their locks

    def _hold(self, ledger_id: LedgerId, wait: Coroutine[Deferred[Any], Any, None]) -> None:
        """Keep the lock until ``wait`` has ended, then allow the next repair of the ledger."""
        self._locked[ledger_id] = Deferred.fromCoroutine(self._wait_and_release(ledger_id, wait))

    async def _wait_and_release(
        self, ledger_id: LedgerId, wait: Coroutine[Deferred[Any], Any, None]
    ) -> None:
        try:
            await wait
        except CancelledError:
            self._locked.pop(ledger_id, None)
            raise
        except NoSuchLedgerError:
            log.info("ledger {id} was deleted while it waited", id=ledger_id)
        except BookKeeperError as error:
            log.warn("ledger {id}: {error}", id=ledger_id, error=error)
        except Exception:  # noqa: BLE001 - no ledger may end the worker.
            log.failure("ledger {id} while it waited", id=ledger_id)
        await self._release(ledger_id)
        self._locked.pop(ledger_id, None)
        self._wake_up.wake()

    async def _release(self, ledger_id: LedgerId) -> None:
        """Release a lock, with repeated attempts.

        A lock that stays keeps every worker from the ledger.
        """
        not_released = RepeatedFailure(f"cannot release the lock of ledger {ledger_id}")
        while True:
            try:
                await self._store.release_lock(ledger_id)
            except ClientClosedError:
                return
            except BookKeeperError as error:
                not_released.failed(error)
                await self._rest()
            else:
                not_released.worked()
                return

    def _pause_of(self, ledger_id: LedgerId, outcome: RepairOutcome) -> float:
        if outcome is not RepairOutcome.LOST:
            return self._failures.failed(ledger_id)
        if self._failures.lost(ledger_id):
            log.error(
                "ledger {id} has entries without a replica in service; the repair is retried "
                "every {seconds} s",
                id=ledger_id,
                seconds=self._config.failed_ledger_grace_ms / 1000,
            )
        return self._config.failed_ledger_grace_ms / 1000

    async def _see_to_writer(self, before: LedgerView) -> None:
        """Wait for the writer's repair; recover the ledger if the writer has not repaired it."""
        await deferLater(self._clock, self._config.open_ledger_grace_ms / 1000)
        if not await self._store.replication_enabled():
            return
        ledger_id = before.ledger_id
        ledger = await view_ledger(self._client, ledger_id)
        available = await self._store.registered_bookies()
        if not needs_recovery(ledger.metadata, available):
            # Entries confirmed during the wait may still be on their way to their last bookie.
            ledger = attrs.evolve(ledger, lac=before.lac) if ledger.lac is not None else ledger
            lacks = await self._checker.check(ledger, available)
            if all(lack.fragment.is_closed for lack in lacks):
                return
        if self._failures.is_news(ledger_id, "recovery"):
            log.warn("ledger {id} lacks replicas at its end: recovering it", id=ledger_id)
        try:
            reader = await self._client.open_ledger(ledger_id, recover=True)
        except NoSuchLedgerError:
            raise
        except ClientError as error:
            if self._failures.is_news(ledger_id, str(error)):
                log.warn("ledger {id} cannot be recovered now: {error}", id=ledger_id, error=error)
            await self._pauses.wait(self._failures.failed(ledger_id))
        else:
            reader.close()


def _report_fragments(ledger_id: LedgerId, reasons: list[str]) -> None:
    for why in reasons[:REPORTED_MAX]:
        log.warn("ledger {id} is not repaired: {why}", id=ledger_id, why=why)
    if (more := len(reasons) - REPORTED_MAX) > 0:
        log.warn("ledger {id}: {more} more fragments are not repaired", id=ledger_id, more=more)


async def _checker_of_mark(
    checker: LedgerChecker, store: MetadataStore, ledger_id: LedgerId
) -> LedgerChecker:
    """Return the checker of a marked ledger, which reads the marked replicas completely.

    The audit that marked the ledger may have read other samples.
    """
    mark = None
    if checker.percentage:
        with suppress(MetadataFormatError):
            mark = await store.underreplicated(ledger_id)
    return checker if mark is None else attrs.evolve(checker, in_full=mark.replicas)
