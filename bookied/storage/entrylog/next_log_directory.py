"""Which ledger directory takes the next entry log, by how full the disks are."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from pathlib import Path


class LogDirectories:
    """The ledger directories of one storage, and which of them have space.

    There is always one to choose: where all are full, entries go to the least full as long as a
    write works. What a write has found full counts until the next look at the disks (``avoid``).
    Belongs to the reactor's thread, but for ``other_than`` and ``note_full``.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        *,
        rng: random.Random | None = None,
        on_full: Callable[[Path], object] = lambda path: None,  # noqa: ARG005
    ) -> None:
        """Take all for empty enough.

        Args:
            directories: their ``current`` directories, in configured order; they exist.
            rng: picks the directory of a new log among the writable ones.
            on_full: called with a directory in which a write found no space. From any thread.
        """
        self.all = tuple(directories)
        self.writable: Sequence[Path] = self.all
        """Those that are not full; the watch of the disks says what to ``avoid``."""
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
        """Note what a look at the disks has found; return which should end the log they have.

        Args:
            full: take new files only while all are.
            nearly_full: take new entry logs only while no other is left.
            tight: those of the full ones that should not even take an entry log then.
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
        """Return one that is not known to be full, in place of one found full. Any thread."""
        for group in (self._best, self.all):
            others = [one for one in group if one != full and one not in self._without_space]
            if others:
                return self._rng.choice(others)
        return None

    def note_full(self, directory: Path) -> None:
        """Remember that a write found no space there. Any thread."""
        self._without_space |= {directory}
        self._on_full(directory)

    @property
    def any_without_space(self) -> bool:
        """Whether a write has found any of them full since the last look at the disks."""
        return bool(self._without_space)


def _without(directories: Sequence[Path], full: Collection[Path]) -> Sequence[Path]:
    return tuple(one for one in directories if one not in full) or directories
