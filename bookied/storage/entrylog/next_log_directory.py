"""The choice of the ledger directory for the next entry log, by free disk space."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from pathlib import Path


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
