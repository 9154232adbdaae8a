"""The index files on disk: found, read, and written in the order that a crash survives.

A new file is written under another name and renamed once it is complete and synced: so every
``.idx`` has a whole header, and a bad one is damage, never a crash of ours. Damage that
a start meets is for ``bookied.storage.replay``.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from bookied.errors import CorruptError
from bookied.storage.files.files import Files
from bookied.storage.files.open_files import OpenFiles
from bookied.storage.index.index_files.paths import IndexFilePlaces
from bookied.storage.index.index_files.reads import IndexReads
from bookied.storage.index.index_files.writes import IndexWrites
from bookied.storage.index.ledger_pages import LedgerChange, Move

OPEN_TO_WRITE_MAX: Final = 128
"""Files open at once while a checkpoint writes."""

HIDDEN_MAX: Final = 1024
"""Files removed before their directories are synced."""


class IndexFiles(IndexReads):
    """The index files in some index directories (their ``current``).

    An ``IndexStore``. How files are read is inherited; where they are, and how they are written,
    are its parts.
    Reading is for any thread; ``write`` for one checkpoint at a time.
    """

    writes_locations: Final = False
    keeps_limbo: Final = False

    def __init__(
        self,
        files: Files,
        directories: Sequence[Path],
        *,
        rng: random.Random | None = None,
        open_files_max: int = 1024,
        open_to_write_max: int = OPEN_TO_WRITE_MAX,
    ) -> None:
        """Prepare; nothing is read before ``open``.

        Args:
            files: the disk.
            directories: the ``current`` directory of each; they exist.
            rng: picks the directory of a new file among the writable ones.
            open_files_max: how many stay open for reading.
            open_to_write_max: how many are open at once while a checkpoint writes.
        """
        opened = OpenFiles(files, files_max=open_files_max)
        super().__init__(IndexFilePlaces(files, directories), opened)
        self._files = files
        self._hidden: list[Path] = []
        self._writes = IndexWrites(
            files,
            directories,
            self._places,
            self._open,
            rng=rng or random.Random(),
            open_to_write_max=open_to_write_max,
        )

    @property
    def open_count(self) -> int:
        """How many index files are open for readers."""
        return len(self._open)

    def open(self) -> None:
        """List the ledgers that are here, and finish or undo what a crash left half done."""
        self._places.open()

    def ledger_ids(self) -> list[int]:
        """Return the ledgers that have a file, in no order."""
        return self._places.ids()

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._places

    def path(self, ledger_id: int) -> Path | None:
        """Return a ledger's file; None if it has none."""
        return self._places.path(ledger_id)

    def begin_anew(self, ledger_id: int) -> bool:
        """Take an empty file for none; see ``IndexFilePlaces.begin_anew``."""
        return self._places.begin_anew(ledger_id)

    # Writing --------------------------------------------------------------------------------------

    def write(self, changes: Sequence[LedgerChange]) -> Mapping[int, CorruptError]:
        """Put changes on disk, durably; see ``IndexWrites.write``.

        Raises:
            IndexFullError: some found no space anywhere; all others are written.
            OSError: some may be written, some not.
        """
        return self._writes.write(changes)

    def switch(self, moves: Sequence[Move]) -> None:
        """Point entries elsewhere, durably; see ``IndexWrites.switch``.

        Raises:
            OSError: some may be switched, some not.
        """
        self._writes.switch(moves)

    def avoid(self, full: Collection[Path]) -> None:
        """Put no new file into directories that are full, unless all are."""
        self._writes.avoid(full)

    def note_synced(self) -> None:
        """Do nothing: damage to a file is noticed when it is read."""

    # Deleting -------------------------------------------------------------------------------------

    def hide(self, ledger_id: int) -> None:
        """Forget a ledger that is deleted; ``remove_hidden`` takes its file away."""
        for path in self._places.forget(ledger_id):
            self._open.forget(path)
            self._hidden.append(path)

    def remove_hidden(self) -> None:
        """Remove files durably: a ledger that comes again may get its file elsewhere. Blocks.

        Raises:
            OSError: some may be left; call again.
        """
        while some := self._hidden[:HIDDEN_MAX]:
            for path in some:
                if self._files.exists(path):
                    self._files.remove(path)
            self._files.sync_dirs({path.parent: None for path in some})
            del self._hidden[: len(some)]

    def close(self) -> None:
        """Release all files."""
        self._open.close()
