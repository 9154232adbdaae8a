"""What a bookie does for itself beside serving: it collects garbage, and repairs ledgers."""

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
from bookied.storage.garbage.collector_settings import CollectorSettings
from bookied.storage.garbage.collector_state import CollectorEffects
from bookied.storage.garbage.compaction_rules import SuspendedCompactions
from bookied.storage.garbage.status import CollectorStatus
from bookied.storage.garbage.unneeded_ledgers import ClusterMembership, LedgerGarbage
from bookied.storage.storages import Storages
from wire.ids import BookieId

if TYPE_CHECKING:
    from bookied.autorecovery.sessions import AutoRecoveryBesideBookie


def ledger_garbage(
    config: BookieConfig, parts: Dependencies, membership: ClusterMembership
) -> LedgerGarbage:
    """Return what asks the metadata which ledgers of a bookie are gone."""
    return LedgerGarbage(
        parts.store,
        parts.clock,
        membership,
        requests_per_s=config.gc_metadata_rate,
        requests_max=config.over_replicated_requests_max,
    )


class Collectors:
    """All methods belong to the reactor's thread."""

    def __init__(
        self,
        config: BookieConfig,
        parts: Dependencies,
        storages: Storages,
        effects: CollectorEffects,
    ) -> None:
        """Make a collector for each storage; ``start`` begins."""
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
        """Go by other settings; see ``Collector.settings_changed``."""
        settings = CollectorSettings.of(config, direct=self._direct)
        for collector in self._collectors.values():
            collector.settings_changed(settings)

    def start(self) -> None:
        """Collect every so often from now on."""
        for collector in self._collectors.values():
            collector.start()

    async def stop(self) -> None:
        """Begin nothing more; return when all that is in progress has come to a safe point."""
        stopping = [Deferred.fromCoroutine(one.stop()) for one in self._collectors.values()]
        await gatherResults(stopping)

    def collect(self, *, major: bool = True, minor: bool = True) -> Deferred[list[CollectorStatus]]:
        """Collect now in all storages; see ``Collector.collect``."""
        asked = [one.collect(major=major, minor=minor) for one in self._collectors.values()]
        return gatherResults(asked)

    def statuses(self) -> Iterator[CollectorStatus]:
        """Give what each collector does and has done, in the order of the storages."""
        for collector in self._collectors.values():
            yield collector.status

    def stats(self) -> Iterator[CollectorStats]:
        """Give how long each takes for what, in the order of the storages."""
        for collector in self._collectors.values():
            yield collector.stats

    @property
    def suspended(self) -> SuspendedCompactions:
        """Which compactions an operator or a disk has suspended in any storage."""
        return reduce(or_, (one.suspensions.all for one in self._collectors.values()))

    @property
    def suspended_by_hand(self) -> SuspendedCompactions:
        """Which compactions an operator has suspended."""
        return reduce(or_, (one.suspensions.by_hand for one in self._collectors.values()))

    def suspend(self, suspended: SuspendedCompactions) -> None:
        """Obey the operator in all storages; see ``Suspensions``."""
        for collector in self._collectors.values():
            collector.suspensions.suspend_by_hand(suspended)

    def disks_changed(self, verdict: DiskVerdict) -> None:
        """Obey what a look at the disks has found: each for the directories of its storage."""
        for storage, collector in self._collectors.items():
            own = set(storage.directories.all)
            collector.disks_changed(
                nearly_full=not own.isdisjoint(verdict.nearly_full),
                full=not own.isdisjoint(verdict.full),
            )


class BackgroundWork:
    """Begins when the bookie serves; before that all its methods do nothing."""

    def __init__(self, config: BookieConfig) -> None:
        """Begin nothing yet."""
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
        """Collect garbage and, where the settings say so, repair ledgers from now on."""
        self.collectors = Collectors(self._config, parts, storages, effects)
        self.collectors.start()
        self._start_autorecovery(parts, bookie_id)

    def _start_autorecovery(self, parts: Dependencies, bookie_id: BookieId) -> None:
        """Begin to repair, in a metadata session apart from the registration's."""
        if self._config.autorecovery and parts.open_store is not None:
            from bookied.autorecovery.sessions import AutoRecoveryBesideBookie

            self.autorecovery = AutoRecoveryBesideBookie(
                # Who lists the locks on ledgers sees which bookie's worker has each.
                partial(parts.open_store, lock_owner=bookie_id),
                partial(make_client, parts),
                self._config,
                bookie_id,
                parts.clock,
                parts.rng,
            )
            self.autorecovery.start()

    def disks_changed(self, verdict: DiskVerdict) -> None:
        """Obey what a look at the disks has found."""
        if self.collectors is not None:
            self.collectors.disks_changed(verdict)

    def settings_changed(self, config: BookieConfig) -> None:
        """Collect by other settings."""
        self._config = config
        if self.collectors is not None:
            self.collectors.settings_changed(config)

    def collect_garbage(
        self, *, major: bool = True, minor: bool = True
    ) -> Deferred[list[CollectorStatus]] | None:
        """Collect garbage now, compaction included where it is allowed; None before it serves."""
        if self.collectors is None:
            return None
        return self.collectors.collect(major=major, minor=minor)

    async def stop_autorecovery(self) -> None:
        """Repair no more; its locks and its vote are given back."""
        if self.autorecovery is not None:
            await self.autorecovery.stop()

    async def stop_collecting(self) -> None:
        """Collect no more; return when what is in progress has come to a safe point."""
        if self.collectors is not None:
            await self.collectors.stop()
