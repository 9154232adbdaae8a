"""The collectors of one bookie, one for each storage, as one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_

from twisted.internet.defer import Deferred, gatherResults

from bookied.config.bookie import BookieConfig
from bookied.directories.disk_fullness import DiskVerdict
from bookied.service.dependencies import Dependencies
from bookied.stats.metrics import CollectorStats
from bookied.storage.garbage.collector import Collector
from bookied.storage.garbage.collector_settings import CollectorSettings
from bookied.storage.garbage.collector_state import CollectorEffects
from bookied.storage.garbage.compaction_rules import SuspendedCompactions
from bookied.storage.garbage.status import CollectorStatus
from bookied.storage.garbage.unneeded_ledgers import ClusterMembership, LedgerGarbage
from bookied.storage.storages import Storages


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
