"""The disks of a bookie, for an operator."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from bookied.directories.disk_fullness import DiskSample, total_and_free
from bookied.errors import NotServingError
from bookied.service.start_and_stop import BookieService
from bookied.storage.journal.mark import LastMark

LOGS: Final = "log"
JOURNALS: Final = "txn"
INDEXES: Final = "idx"


class DiskControl:
    """The free space of the disks, and the bookie's files on them."""

    def __init__(self, service: BookieService) -> None:
        self._service, self._parts = service, service.parts

    async def sizes(self) -> tuple[int, int]:
        """Return total and free bytes of the ledger directories."""
        ask = partial(total_and_free, self._parts.files, self._service.directories)
        total, free = await self._parts.run_blocking(ask)
        return total, free

    def samples(self) -> tuple[DiskSample, ...]:
        """Return the samples of the last check of the disks."""
        disks = self._service.disk_mode
        return () if disks is None else disks.watch.samples

    def full(self) -> frozenset[Path]:
        """Return the full directories."""
        disks = self._service.disk_mode
        return frozenset(() if disks is None else disks.watch.verdict.full)

    async def last_marks(self) -> list[LastMark]:
        """Return the position in each journal where a replay would begin."""
        engine = self._service.engine
        if engine is None:
            raise NotServingError("the storage is not open yet")
        read = partial(engine.storages.marks.read, len(engine.journals))
        marks: list[LastMark] = await self._parts.run_blocking(read)
        return marks

    async def files(self, kind: str) -> list[str]:
        """Return the names of the files of one kind: ``JOURNALS``, ``LOGS`` or ``INDEXES``."""
        found = self._service.directories
        directories = {
            JOURNALS: found.journal_dirs,
            LOGS: found.ledger_dirs,
            INDEXES: found.index_dirs,
        }[kind]
        names: list[str] = await self._parts.run_blocking(partial(_names, directories, kind))
        return names


def _names(directories: tuple[Path, ...], ending: str) -> list[str]:
    # Files may vanish during the walk; rglob skips them.
    found = [path for one in directories for path in one.rglob(f"*.{ending}")]
    return [path.name for path in sorted(found, key=lambda path: path.name)]
