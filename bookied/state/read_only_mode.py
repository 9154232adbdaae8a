"""Read-only mode: set by the settings, by an operator, or because of the disks.

``bookied.directories.disk_fullness`` decides when a disk is full.

The bookie is read-only while any of the three asks for it; agrees with BookKeeper 4.18.0,
BookieStateManager. A read-only bookie still accepts adds of high priority (recovery) while a disk
has space for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.concurrency import wall_ms
from bookied.config.bookie import BookieConfig
from bookied.directories.disk_fullness import DiskVerdict
from bookied.directories.status_file import PersistedMode
from bookied.errors import NoSpaceError
from bookied.server.rules.add_requests import Writes
from bookied.state.bookie_state import SERVING, BookieLifecycle, Event, State
from wire.errors import BookKeeperError

log = Logger()


@attrs.frozen(kw_only=True)
class ModeEffects:
    """The functions that apply a change of the mode."""

    allow: Callable[[Writes], None]
    register: Callable[[State], None]
    keep: Callable[[PersistedMode], None]
    failed: Callable[[BookKeeperError], None]


class ReadOnlyMode:
    """The reasons to be read-only, and the changes between ``WRITABLE`` and ``READ_ONLY``.

    No change is applied before the bookie serves; ``started`` applies the mode.
    """

    def __init__(
        self,
        config: BookieConfig,
        state: BookieLifecycle,
        clock: IReactorTime,
        effects: ModeEffects,
        *,
        kept: PersistedMode | None = None,
    ) -> None:
        """Begin with ``kept``, the mode that the previous process stored."""
        self._config, self._state = config, state
        self._clock, self._effects = clock, effects
        self._status = kept or PersistedMode()
        self._verdict = DiskVerdict((), (), read_only=False, high_priority_allowed=True)
        self._out_of_space = False
        self._lacks_descriptors = self._lacks_journal_space = False

    @property
    def read_only(self) -> bool:
        """True if there is a reason to be read-only."""
        by_hand = self._config.force_read_only or self.is_read_only_by_hand
        is_unable = self._lacks_descriptors or self._lacks_journal_space
        return by_hand or is_unable or self._verdict.read_only or self._out_of_space

    @property
    def is_read_only_by_hand(self) -> bool:
        """True if an operator has made the bookie read-only."""
        return self._status.by_hand and self._status.read_only

    @property
    def is_out_of_space(self) -> bool:
        """True if a write found no space, until the next check of the disks."""
        return self._out_of_space

    @property
    def writes(self) -> Writes:
        """The adds that the bookie may accept."""
        if not self.read_only:
            return Writes.ALL
        if self._lacks_descriptors or self._lacks_journal_space or self._out_of_space:
            return Writes.NONE
        return Writes.HIGH_PRIORITY if self._verdict.high_priority_allowed else Writes.NONE

    def begin(self, verdict: DiskVerdict) -> None:
        """Note the result of the first check of the disks.

        Raises:
            NoSpaceError: the disks are full, and the settings forbid the read-only mode.
        """
        self._verdict = verdict
        if verdict.read_only and not self._config.read_only_mode:
            raise NoSpaceError(_full_message(verdict.full))

    def started(self) -> None:
        """Apply the mode, after the bookie has registered with ``read_only``."""
        self._state.move(Event.STARTED_READ_ONLY if self.read_only else Event.STARTED)
        self._effects.allow(self.writes)
        if self.read_only != self._status.read_only and not self._config.force_read_only:
            self._keep(read_only=self.read_only)

    def disks_changed(self, verdict: DiskVerdict, *, out_of_space: bool = False) -> None:
        """Apply the result of a check of the disks.

        Args:
            verdict: the result for all disks.
            out_of_space: True if a write still finds no space.
        """
        self._verdict, self._out_of_space = verdict, out_of_space
        if verdict.read_only and not self._config.read_only_mode:
            self._effects.failed(NoSpaceError(_full_message(verdict.full)))
        else:
            self._put_into_effect()

    def out_of_space(self, directory: Path) -> None:
        """Refuse adds after a write found no space, until the next check of the disks."""
        self._out_of_space = True
        if not self._config.read_only_mode and self._state.now in SERVING:
            self._effects.failed(NoSpaceError(_full_message((directory,))))
        else:
            self._put_into_effect()

    def lacks_descriptors(self, lacks: bool) -> None:  # noqa: FBT001 -- the one thing that is told
        """Refuse adds while checkpoints, which free memory and journals, cannot open files.

        This does not depend on ``readOnlyModeEnabled``, because the state ends without an operator.
        """
        if lacks != self._lacks_descriptors:
            self._lacks_descriptors = lacks
            if lacks:
                log.warn(
                    "no file descriptor is left for a checkpoint; raise the limit on open files"
                )
            self._put_into_effect()

    def journal_space(self, error: BookKeeperError | None) -> None:
        """Refuse adds while a journal has no space: ``error`` names the journal.

        None: all have space.
        """
        self._lacks_journal_space = error is not None
        if error is not None:
            log.warn("adds are refused until the journal has space: {error}", error=error)
        if error is not None and not self._config.read_only_mode and self._state.now in SERVING:
            self._effects.failed(error)
        else:
            self._put_into_effect()

    def set_by_hand(self, *, read_only: bool) -> None:
        """Apply an operator's choice; only an operator can end a read-only mode by hand."""
        self._status = PersistedMode(read_only, wall_ms(self._clock), by_hand=read_only)
        if not self._put_into_effect():
            self._effects.keep(self._status)

    def _put_into_effect(self) -> bool:
        """Change the mode if the reasons require it; return whether it changed."""
        if self._state.now not in SERVING:
            return False
        writes = self.writes
        self._effects.allow(writes)
        if (writes is Writes.ALL) == (self._state.now is State.WRITABLE):
            return False
        self._state.move(Event.TURN_WRITABLE if writes is Writes.ALL else Event.TURN_READ_ONLY)
        log.warn("the bookie is {state} now", state=self._state.now.value)
        self._keep(read_only=writes is not Writes.ALL)
        self._effects.register(self._state.now)
        return True

    def _keep(self, *, read_only: bool) -> None:
        if self._status.read_only != read_only:
            self._status = PersistedMode(read_only, wall_ms(self._clock), by_hand=False)
        self._effects.keep(self._status)


def _full_message(directories: Iterable[Path]) -> str:
    full = ", ".join(map(str, directories))
    return f"{full} is full, and readOnlyModeEnabled=false forbids to go read-only"
