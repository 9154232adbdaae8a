"""The effects of full and failed disks: read-only mode, and the directories for new files.

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
    """The functions that apply changes of the disks and of the operator's choice."""

    judged: Callable[[DiskVerdict], None]
    """Called with each verdict after the first that may differ from the one before."""
    disk_failed: Callable[[Exception], None]


class DiskMode:
    """The bookie's mode and its directories for new files, kept up to date with the disks."""

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
        """Prepare; no disk is checked yet.

        Args:
            config: the settings.
            parts: disks, threads and clock.
            found: the directories.
            state: the state that changes between writable and read-only.
            storages: the storages that choose directories for new files.
            effects: the functions that apply changes.
            kept: the mode before the start, as ``stored_status`` returns it.
            may_be_new: returns True if directories may be missing because cookies are not written.
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
        """Check the disks once, before the first write.

        Raises:
            NoSpaceError: the disks are full, and the settings forbid the read-only mode.
            OSError: a disk does not answer.
        """
        verdict = await self.watch.check_once()
        self._choose_directories(verdict)
        self.mode.begin(verdict)

    def start(self) -> None:
        """Apply the mode of a bookie that has registered; check the disks at intervals."""
        self.mode.started()
        self.watch.start(self._config.disk_check_interval_ms / 1000)

    def stop(self) -> None:
        """Stop checking the disks."""
        self.watch.stop()

    def settings_changed(self, config: BookieConfig) -> None:
        """Apply changed limits from the next check on."""
        self._config = config
        self.watch.limits = DiskLimits.of(config)

    def directory_full(self, directory: Path) -> None:
        """Treat the directory as full after a write without space, before the next check."""
        log.warn("no space left in {directory}", directory=directory)
        if self._config.read_only_on_any_full or self._storages.is_out_of_space:
            self.mode.out_of_space(directory)

    def _judged(self, verdict: DiskVerdict) -> None:
        self._choose_directories(verdict)
        self.mode.disks_changed(verdict, out_of_space=self._storages.is_out_of_space)
        self._effects.judged(verdict)

    def _choose_directories(self, verdict: DiskVerdict) -> None:
        """Choose the directories for new files.

        If all disks are full, any, for recovery adds and replay.
        """
        self._storages.avoid(verdict.full, verdict.nearly_full, verdict.tight)


def keep_status(
    config: BookieConfig,
    parts: Dependencies,
    found: Directories,
    errors: FatalErrors,
    status: PersistedMode,
) -> None:
    """Store the mode for the next start, if the settings ask for it."""
    if config.persist_status:
        keep = partial(write_status, parts.files, found.ledger_dirs, status)
        parts.run_blocking(keep).addErrback(errors.part_crashed)


async def stored_status(
    config: BookieConfig, parts: Dependencies, found: Directories
) -> PersistedMode:
    """Return the stored mode of the previous process, if the settings ask for it."""
    if not config.persist_status:
        return PersistedMode()
    status: PersistedMode = await parts.run_blocking(
        partial(read_status, parts.files, found.ledger_dirs)
    )
    return status
