"""The index files on disk: found, read, and written in an order that survives a crash.

A new file is written under another name and renamed once it is complete and synced. So every
``.idx`` has a complete header, and a bad header is damage, never our crash.
``bookied.storage.replay`` handles damage that is found at a start.
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
"""The most files open at once while a checkpoint writes."""

HIDDEN_MAX: Final = 1024
"""Files that are removed before their directories are synced."""


class IndexFiles(IndexReads):
    """The index files in some index directories (their ``current``).

    An ``IndexStore``. It inherits the reads; its parts know the paths of the files, and write them.
    Any thread may read; ``write`` belongs to one checkpoint at a time.
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
            open_files_max: the most files that stay open for reading.
            open_to_write_max: the most files that are open at once while a checkpoint writes.
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
        """The number of index files open for readers."""
        return len(self._open)

    def open(self) -> None:
        """List the ledgers that have files, and finish or undo what a crash interrupted."""
        self._places.open()

    def ledger_ids(self) -> list[int]:
        """Return the ids of the ledgers that have a file, in no order."""
        return self._places.ids()

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._places

    def path(self, ledger_id: int) -> Path | None:
        """Return a ledger's file; None if it has none."""
        return self._places.path(ledger_id)

    def begin_anew(self, ledger_id: int) -> bool:
        """Treat an empty file as missing; see ``IndexFilePlaces.begin_anew``."""
        return self._places.begin_anew(ledger_id)

    # Writing --------------------------------------------------------------------------------------

    def write(self, changes: Sequence[LedgerChange]) -> Mapping[int, CorruptError]:
        """Write changes durably; see ``IndexWrites.write``.

        Raises:
            IndexFullError: some found no disk space; all others are written.
            OSError: some may be written, some not.
        """
        return self._writes.write(changes)

    def switch(self, moves: Sequence[Move]) -> None:
        """Change the locations of entries durably; see ``IndexWrites.switch``.

        Raises:
            OSError: some may be switched, some not.
        """
        self._writes.switch(moves)

    def avoid(self, full: Collection[Path]) -> None:
        """Create no new file in full directories, unless all are full."""
        self._writes.avoid(full)

    def note_synced(self) -> None:
        """Do nothing: damage to a file is noticed when it is read."""

    # Deleting -------------------------------------------------------------------------------------

    def hide(self, ledger_id: int) -> None:
        """Forget a deleted ledger; ``remove_hidden`` removes its file."""
        for path in self._places.forget(ledger_id):
            self._open.forget(path)
            self._hidden.append(path)

    @property
    def lists_all(self) -> bool:
        """Return True: a ledger without its file is not known."""
        return True

    def remove_hidden(
        self,
        in_memory: Collection[int] = (),  # noqa: ARG002
        found: dict[int, int] | None = None,  # noqa: ARG002
    ) -> bool:
        """Remove files durably: a ledger that is created again may get its file elsewhere. Blocks.

        Raises:
            OSError: some may be left; call again.
        """
        while some := self._hidden[:HIDDEN_MAX]:
            for path in some:
                if self._files.exists(path):
                    self._files.remove(path)
            self._files.sync_dirs({path.parent: None for path in some})
            del self._hidden[: len(some)]
        return True

    def close(self) -> None:
        """Close all files."""
        self._open.close()
