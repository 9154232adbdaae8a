"""The id and the ledger directory of the next entry log.

Files keep an id from being used twice; free disk space decides about the directory.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from bookied.errors import NO_SPACE
from bookied.storage.entrylog import format as layout
from bookied.storage.files.files import Files

log = Logger()

IDS_AT_ONCE_MAX: Final = 1000
"""Upper limit of ids in use but not yet noted; an id that is lower by more has started over."""


class LogIds:
    """The source of log ids, in rising order; after the highest possible id they start over.

    ``give_out`` belongs to the reactor's thread, ``note`` to any thread. Noted ids are for the next
    start, which must not use an id again.
    """

    def __init__(self, files: Files, directories: Sequence[Path]) -> None:
        self._files, self._directories = files, tuple(directories)
        self.next = 0
        """Higher than any id in use; may be set before the first ``give_out``."""
        self.turn = 0
        """Restarts of the ids since this object was created."""
        self._noting = threading.Lock()
        self._last_id = -1

    def give_out(self) -> int:
        """Return the next log id, for any writer of that log."""
        log_id = self._free_id()
        self.next = log_id + 1
        return log_id

    def _free_id(self) -> int:
        """Return the next free id; after the highest possible id the ids start over."""
        log_id = self.next
        while log_id > layout.LOG_ID_MAX or self._is_used(log_id):
            if log_id >= layout.LOG_ID_MAX:
                self.turn += 1
            log_id = log_id + 1 if log_id < layout.LOG_ID_MAX else 0
        return log_id

    def _is_used(self, log_id: int) -> bool:
        name = layout.file_name(log_id)
        names = (name, f"{name}.compacting")
        return any(self._files.exists(path / one) for path in self._directories for one in names)

    def note(self, log_id: int) -> None:
        """Note a used id in every directory; full directories are skipped, as in Java.

        A writer that is a little late notes a lower id, which was given out before: the higher one
        stays.
        """
        with self._noting:
            is_late = 0 <= self._last_id - log_id < IDS_AT_ONCE_MAX
            self._last_id = log_id = self._last_id if is_late else log_id
            self._write(log_id)

    def _write(self, log_id: int) -> None:
        for directory in self._directories:
            try:
                self._files.write_atomic(directory / layout.LAST_ID, b"%x\n" % log_id)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                log.warn("no space for {name} in {path}", name=layout.LAST_ID, path=directory)


class LogDirectories:
    """The ledger directories of one storage, and which of them have space.

    A directory can always be chosen: if all are full, entries go to the least full ones while
    writes succeed. A directory that a write found full counts as full until the next check of the
    disks (``avoid``). Belongs to the reactor's thread, except ``other_than`` and ``note_full``.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        *,
        rng: random.Random | None = None,
        on_full: Callable[[Path], object] = lambda path: None,  # noqa: ARG005
    ) -> None:
        """Treat all directories as having space.

        Args:
            directories: their ``current`` directories, in configured order; they exist.
            rng: picks the directory of a new log among the writable ones.
            on_full: called with a directory in which a write found no space. From any thread.
        """
        self.all = tuple(directories)
        self.writable: Sequence[Path] = self.all
        """The directories that are not full; the disk monitor calls ``avoid``."""
        self._best: Sequence[Path] = self.all
        self._without_space: frozenset[Path] = frozenset()
        self._rng = rng or random.Random()
        self._on_full = on_full

    def avoid(
        self,
        full: Collection[Path],
        nearly_full: Collection[Path] = (),
        tight: Collection[Path] = (),
    ) -> set[Path]:
        """Note the result of a disk check; return the directories whose active log should end.

        Args:
            full: get new files only if all directories are full.
            nearly_full: get new entry logs only if no other directory is left.
            tight: those full directories that should not even get an entry log then.
        """
        self._without_space = frozenset()
        best: Sequence[Path] = self.all
        for worse in (tight, full, nearly_full):
            best = _without(best, worse)
        self._best = best
        self.writable = _without(self.all, full)
        return set(self.all).difference(best)

    def choose(self) -> Path:
        """Return the directory of the next entry log."""
        return self._rng.choice(_without(self._best, self._without_space))

    def other_than(self, full: Path) -> Path | None:
        """Return a directory that is not known to be full, instead of ``full``. Any thread."""
        for group in (self._best, self.all):
            others = [one for one in group if one != full and one not in self._without_space]
            if others:
                return self._rng.choice(others)
        return None

    def note_full(self, directory: Path) -> None:
        """Note that a write found no space in a directory. Any thread."""
        self._without_space |= {directory}
        self._on_full(directory)

    @property
    def any_without_space(self) -> bool:
        """True if a write has found a directory full since the last check of the disks."""
        return bool(self._without_space)


def _without(directories: Sequence[Path], full: Collection[Path]) -> Sequence[Path]:
    return tuple(one for one in directories if one not in full) or directories
