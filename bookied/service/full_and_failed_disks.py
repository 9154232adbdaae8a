"""What the disks mean for a bookie: whether it takes adds, and where its new files go.

Agrees with BookKeeper 4.18.0, LedgerDirsManager and BookieStateManager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
from twisted.logger import Logger

from bookied.config.bookie import BookieConfig
from bookied.directories.disk_fullness import DiskLimits, DiskVerdict, DiskWatch, sample_disks
from bookied.directories.roots import Directories
from bookied.directories.status_file import PersistedMode, read_status, write_status
from bookied.service.dependencies import Dependencies
from bookied.service.fatal_errors import FatalErrors
from bookied.state.bookie_state import BookieLifecycle
from bookied.state.read_only_mode import ModeEffects, ReadOnlyMode
from bookied.storage.storages import Storages

log = Logger()


@attrs.frozen(kw_only=True)
class DiskEffects(ModeEffects):
    """Who obeys what the disks and the operator say."""

    judged: Callable[[DiskVerdict], None]
    """Gets each verdict after the first that may differ from the one before."""
    disk_failed: Callable[[Exception], None]


class DiskMode:
    """Keeps mode and directories in step with the disks, from ``begin`` to ``stop``."""

    def __init__(
        self,
        config: BookieConfig,
        parts: Dependencies,
        found: Directories,
        state: BookieLifecycle,
        storages: Storages,
        effects: DiskEffects,
        *,
        kept: PersistedMode,
        may_be_new: Callable[[], bool],
    ) -> None:
        """Begin with nothing asked.

        Args:
            config: what the operator allows.
            parts: disks, threads and clock.
            found: the directories.
            state: is moved between writable and read-only.
            storages: where new files go.
            effects: who obeys.
            kept: the mode before the start, as ``stored_status`` returns it.
            may_be_new: whether directories may be missing, for cookies are to be written yet.
        """
        self._config, self._storages, self._effects = config, storages, effects
        self.mode = ReadOnlyMode(config, state, parts.clock, effects, kept=kept)
        self.watch = DiskWatch(
            parts.clock,
            lambda: sample_disks(parts.files, found, may_be_new=may_be_new()),
            DiskLimits.of(config),
            run_blocking=parts.run_blocking,
            was_read_only=kept.read_only,
            changed=self._judged,
            failed=effects.disk_failed,
            is_awaited=lambda: self.mode.is_out_of_space or storages.lacks_space,
        )

    async def begin(self) -> None:
        """Look at the disks once, before anything is written.

        Raises:
            NoSpaceError: they are full, and the bookie may not be read-only.
            OSError: a disk cannot be asked.
        """
        verdict = await self.watch.check_once()
        self._choose_directories(verdict)
        self.mode.begin(verdict)

    def start(self) -> None:
        """Put the mode into effect, now that the bookie is registered; look on every interval."""
        self.mode.started()
        self.watch.start(self._config.disk_check_interval_ms / 1000)

    def stop(self) -> None:
        """Look no more."""
        self.watch.stop()

    def settings_changed(self, config: BookieConfig) -> None:
        """Go by other limits from the next look on."""
        self._config = config
        self.watch.limits = DiskLimits.of(config)

    def directory_full(self, directory: Path) -> None:
        """Obey a write that found no space, rather than wait for the next look at the disks."""
        log.warn("no space left in {directory}", directory=directory)
        if self._config.read_only_on_any_full or self._storages.is_out_of_space:
            self.mode.out_of_space(directory)

    def _judged(self, verdict: DiskVerdict) -> None:
        self._choose_directories(verdict)
        self.mode.disks_changed(verdict, out_of_space=self._storages.is_out_of_space)
        self._effects.judged(verdict)

    def _choose_directories(self, verdict: DiskVerdict) -> None:
        """Say where new files go; on full disks anywhere, for recovery adds and replay."""
        self._storages.avoid(verdict.full, verdict.nearly_full, verdict.tight)


def keep_status(
    config: BookieConfig,
    parts: Dependencies,
    found: Directories,
    errors: FatalErrors,
    status: PersistedMode,
) -> None:
    """Keep a mode for the next start, where it is to be kept."""
    if config.persist_status:
        keep = partial(write_status, parts.files, found.ledger_dirs, status)
        parts.run_blocking(keep).addErrback(errors.part_crashed)


async def stored_status(
    config: BookieConfig, parts: Dependencies, found: Directories
) -> PersistedMode:
    """Return the mode that was in effect before the start, where it is to be kept."""
    if not config.persist_status:
        return PersistedMode()
    status: PersistedMode = await parts.run_blocking(
        partial(read_status, parts.files, found.ledger_dirs)
    )
    return status
