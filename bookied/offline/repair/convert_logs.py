"""Entry logs during a conversion between one space of log ids and one for each directory.

DbLedgerStorage reads a ledger's logs from the ledger's own directory, and each directory numbers
its own logs. The other storages share one numbering over all directories. A log gets a second name,
staged until ``publish``; ``discard`` removes staged names.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Final

import attrs

from bookied.storage.entrylog import format as log_layout
from bookied.storage.entrylog.log_list import list_logs
from bookied.storage.files.files import Files, link_or_copy
from bookied.storage.index.store import IndexStore
from wire.errors import BookKeeperError

STAGED: Final = ".CONVERTING"
"""Suffix of a staged file."""

_STAGED_LOG: Final = f".log{STAGED}"


class ConversionRefusedError(BookKeeperError):
    """A conversion cannot begin in the present state of the directories."""

    exit_status: ClassVar[int] = 4


@attrs.frozen
class RenumberedLog:
    """A log that needs another id, because an earlier directory has a log with its id."""

    directory: Path
    old: int
    new: int


@attrs.frozen
class LogPlaces:
    """The entry logs of ledger directories (their ``current``), in configured order."""

    files: Files
    directories: tuple[Path, ...]

    def misplaced(self, index: IndexStore) -> list[tuple[Path, Path]]:
        """Return (log, directory that needs it) for logs that are in another directory."""
        count = len(self.directories)
        if count == 1:
            return []
        homes = list_logs(self.files, self.directories)
        needed: set[tuple[int, int]] = set()
        for ledger_id in index.ledger_ids():
            for _, page in index.pages(ledger_id):
                needed |= {(place >> 32, ledger_id % count) for place in page if place > 0}
        return [
            (homes[log_id], self.directories[number])
            for log_id, number in sorted(needed)
            if log_id in homes and homes[log_id].parent != self.directories[number]
        ]

    def place(self, misplaced: Iterable[tuple[Path, Path]]) -> int:
        """Stage logs in the directories that need them; return how many."""
        placed = 0
        for log, directory in misplaced:
            self._stage(log, directory / log.name)
            placed += 1
        return placed

    def renumbering(self) -> list[RenumberedLog]:
        """Return new ids for logs whose id an earlier directory also has.

        Raises:
            ConversionRefusedError: a compaction has not ended, or there are no ids left.
        """
        names = [(d, n) for d in self.directories for n in self.files.list(d)]
        unfinished = [d / n for d, n in names if n.endswith((".compacting", ".compacted"))]
        if unfinished:
            raise ConversionRefusedError(
                f"{unfinished[0]}: a compaction has not ended; start and stop the bookie once"
            )
        by_dir = [
            (directory, log_id)
            for directory in self.directories
            for log_id in sorted(list_logs(self.files, [directory]))
        ]
        taken: set[int] = set()
        moved: list[tuple[Path, int]] = []
        for directory, log_id in by_dir:
            if log_id in taken:
                moved.append((directory, log_id))
            taken.add(log_id)
        free = max(taken, default=-1) + 1
        renumbered = [RenumberedLog(at, old, free + n) for n, (at, old) in enumerate(moved)]
        if renumbered and renumbered[-1].new > log_layout.LOG_ID_MAX:
            raise ConversionRefusedError("there are no free entry log ids after the highest one")
        return renumbered

    def renumber(self, renumbered: Iterable[RenumberedLog]) -> None:
        """Stage logs under their new ids; call ``remove_old`` once no index has the old ids."""
        for one in renumbered:
            old = one.directory / log_layout.file_name(one.old)
            self._stage(old, one.directory / log_layout.file_name(one.new))

    def remove_old(self, renumbered: Iterable[RenumberedLog]) -> None:
        """Remove the old names of logs that have new ones; may be repeated."""
        for one in renumbered:
            path = one.directory / log_layout.file_name(one.old)
            if self.files.exists(path):
                self.files.remove(path)
            self.files.sync_dir(one.directory)

    def _stage(self, log: Path, wanted: Path) -> None:
        staged = wanted.with_name(wanted.name + STAGED)
        link_or_copy(self.files, log, staged)
        self.files.sync_dir(wanted.parent)

    def publish(self) -> None:
        """Rename all staged logs to their final names; may be repeated."""
        for directory in self.directories:
            for name in self._staged(directory):
                final = directory / name.removesuffix(STAGED)
                self.files.rename(directory / name, final)
            self.files.sync_dir(directory)

    def discard(self) -> None:
        """Remove all staged names."""
        for directory in self.directories:
            for name in self._staged(directory):
                self.files.remove(directory / name)

    def _staged(self, directory: Path) -> list[str]:
        return [name for name in self.files.list(directory) if name.endswith(_STAGED_LOG)]
