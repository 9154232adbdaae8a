"""The background work of a bookie: garbage collection and autorecovery."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, gatherResults

from bookied.config.bookie import BookieConfig
from bookied.directories.disk_fullness import DiskVerdict
from bookied.service.dependencies import Dependencies, make_client
from bookied.stats.metrics import CollectorStats
from bookied.storage.garbage.collector import Collector
from bookied.storage.garbage.collector_state import CollectorEffects, CollectorSettings
from bookied.storage.garbage.compaction_rules import SuspendedCompactions
from bookied.storage.garbage.status import CollectorStatus
from bookied.storage.garbage.unneeded_ledgers import ClusterMembership, LedgerGarbage
from bookied.storage.storages import Storages
from wire.ids import BookieId

if TYPE_CHECKING:
    from bookied.autorecovery.auditor_and_worker import AutoRecoveryBesideBookie


def ledger_garbage(
    config: BookieConfig, parts: Dependencies, membership: ClusterMembership
) -> LedgerGarbage:
    """Return an object that looks up in the metadata which ledgers of a bookie are deleted."""
    return LedgerGarbage(
        parts.store,
        parts.clock,
        membership,
        requests_per_s=config.gc_metadata_rate,
        requests_max=config.over_replicated_requests_max,
    )


class Collectors:
    """The garbage collectors of a bookie, one for each storage.

    All methods belong to the reactor's thread.
    """

    def __init__(
        self,
        config: BookieConfig,
        parts: Dependencies,
        storages: Storages,
        effects: CollectorEffects,
    ) -> None:
        """Make a collector for each storage; ``start`` starts them."""
        self._direct = parts.threads
        settings = CollectorSettings.of(config, direct=parts.threads)
        count = len(storages)
        self._collectors = {
            storage: Collector(
                parts.files, storage, parts.clock, settings, effects, number=number, count=count
            )
            for number, storage in enumerate(storages)
        }

    def settings_changed(self, config: BookieConfig) -> None:
        """Apply changed settings; see ``Collector.settings_changed``."""
        settings = CollectorSettings.of(config, direct=self._direct)
        for collector in self._collectors.values():
            collector.settings_changed(settings)

    def start(self) -> None:
        """Start the collections at intervals."""
        for collector in self._collectors.values():
            collector.start()

    async def stop(self) -> None:
        """Start no further collection; return when those in progress have reached a safe point."""
        stopping = [Deferred.fromCoroutine(one.stop()) for one in self._collectors.values()]
        await gatherResults(stopping)

    def collect(self, *, major: bool = True, minor: bool = True) -> Deferred[list[CollectorStatus]]:
        """Collect now in all storages; see ``Collector.collect``."""
        asked = [one.collect(major=major, minor=minor) for one in self._collectors.values()]
        return gatherResults(asked)

    def statuses(self) -> Iterator[CollectorStatus]:
        """Yield the state of each collector, in the order of the storages."""
        for collector in self._collectors.values():
            yield collector.status

    def stats(self) -> Iterator[CollectorStats]:
        """Yield the durations of each collector's work, in the order of the storages."""
        for collector in self._collectors.values():
            yield collector.stats

    @property
    def suspended(self) -> SuspendedCompactions:
        """The compactions that an operator or a disk has suspended in any storage."""
        return reduce(or_, (one.suspensions.all for one in self._collectors.values()))

    @property
    def suspended_by_hand(self) -> SuspendedCompactions:
        """The compactions that an operator has suspended."""
        return reduce(or_, (one.suspensions.by_hand for one in self._collectors.values()))

    def suspend(self, suspended: SuspendedCompactions) -> None:
        """Suspend or resume compactions in all storages, for an operator; see ``Suspensions``."""
        for collector in self._collectors.values():
            collector.suspensions.suspend_by_hand(suspended)

    def disks_changed(self, verdict: DiskVerdict) -> None:
        """Apply the result of a check of the disks to each storage's directories."""
        for storage, collector in self._collectors.items():
            own = set(storage.directories.all)
            collector.disks_changed(
                nearly_full=not own.isdisjoint(verdict.nearly_full),
                full=not own.isdisjoint(verdict.full),
            )


class BackgroundWork:
    """Background work that starts when the bookie serves; before, its methods do nothing."""

    def __init__(self, config: BookieConfig) -> None:
        """Prepare; nothing starts."""
        self._config = config
        self.collectors: Collectors | None = None
        self.autorecovery: AutoRecoveryBesideBookie | None = None

    def start(
        self,
        parts: Dependencies,
        storages: Storages,
        effects: CollectorEffects,
        bookie_id: BookieId,
    ) -> None:
        """Start garbage collection and, if the settings ask for it, autorecovery."""
        self.collectors = Collectors(self._config, parts, storages, effects)
        self.collectors.start()
        self._start_autorecovery(parts, bookie_id)

    def _start_autorecovery(self, parts: Dependencies, bookie_id: BookieId) -> None:
        """Start autorecovery in a metadata session of its own, apart from the registration's."""
        if self._config.autorecovery and parts.open_store is not None:
            from bookied.autorecovery.auditor_and_worker import AutoRecoveryBesideBookie

            self.autorecovery = AutoRecoveryBesideBookie(
                # A list of the locks on ledgers then shows the bookie whose worker has each lock.
                partial(parts.open_store, lock_owner=bookie_id),
                partial(make_client, parts),
                self._config,
                bookie_id,
                parts.clock,
                parts.rng,
            )
            self.autorecovery.start()

    def disks_changed(self, verdict: DiskVerdict) -> None:
        """Apply the result of a check of the disks."""
        if self.collectors is not None:
            self.collectors.disks_changed(verdict)

    def settings_changed(self, config: BookieConfig) -> None:
        """Apply changed settings of the collection."""
        self._config = config
        if self.collectors is not None:
            self.collectors.settings_changed(config)

    def collect_garbage(
        self, *, major: bool = True, minor: bool = True
    ) -> Deferred[list[CollectorStatus]] | None:
        """Collect garbage now, with compaction if it is allowed; None before the bookie serves."""
        if self.collectors is None:
            return None
        return self.collectors.collect(major=major, minor=minor)

    async def stop_autorecovery(self) -> None:
        """Stop autorecovery; its locks and its vote are deleted."""
        if self.autorecovery is not None:
            await self.autorecovery.stop()

    async def stop_collecting(self) -> None:
        """Stop the collectors.

        Return when the collections in progress have reached a safe point.
        """
        if self.collectors is not None:
            await self.collectors.stop()
