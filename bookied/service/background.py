"""What a bookie does for itself beside serving: it collects garbage, and repairs ledgers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookied.config.bookie import BookieConfig
from bookied.directories.disk_fullness import DiskVerdict
from bookied.service.dependencies import Dependencies, make_client
from bookied.service.garbage_collectors import Collectors
from bookied.storage.garbage.collector_state import CollectorEffects
from bookied.storage.garbage.status import CollectorStatus
from bookied.storage.storages import Storages
from wire.ids import BookieId

if TYPE_CHECKING:
    from bookied.autorecovery.sessions import AutoRecoveryBesideBookie


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
