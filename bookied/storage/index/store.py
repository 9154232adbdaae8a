"""IndexStore: the stored ledgers of a bookie, and the locations of their entries in entry logs.

In memory the locations of a ledger are pages of 1024, in any store (``index.ledger_pages``). A
store reads and writes these pages. ``IndexFiles`` has a file for each ledger, ``RocksIndex`` has
two RocksDB databases.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bookied.errors import CorruptError
from bookied.storage.index.ledger_pages import LedgerChange, LedgerOnDisk, Move

__all__ = ["IndexStore"]


class IndexStore(Protocol):
    """The index of one log-id space. Every method blocks.

    Any thread may read. ``write`` and ``remove_hidden`` belong to one checkpoint at a time. The
    other methods belong to the owner of the ledgers in memory, and never run during a checkpoint.
    """

    @property
    def writes_locations(self) -> bool:
        """True if the store writes single locations, and so needs ``LedgerChange.before``."""

    @property
    def keeps_limbo(self) -> bool:
        """True if the store keeps a ledger's limbo."""

    @property
    def open_count(self) -> int:
        """The number of files open for readers."""

    def open(self) -> None:
        """Find the stored ledgers, and finish or undo what a crash interrupted.

        Raises:
            OSError: the index cannot be read.
            CorruptError: the whole index is damaged.
        """

    def ledger_ids(self) -> list[int]:
        """Return the ids of the stored ledgers, in no order."""

    def __contains__(self, ledger_id: object) -> bool: ...

    # Reading --------------------------------------------------------------------------------------

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        """Return the stored state of a ledger; None if it is not stored.

        Raises:
            CorruptError: the ledger's index is damaged.
            OSError: the index cannot be read.
        """

    def load_many(self, ledger_ids: Sequence[int]) -> Iterator[tuple[int, LedgerOnDisk]]:
        """Yield what ``load`` returns for each ledger that is stored and readable.

        ``load`` reports the error of an unreadable ledger.
        """

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        """Return the 1024 locations of entries ``page_no << 10`` and on, 0 for none.

        Raises:
            CorruptError: the page is lost.
        """

    def load_pages(self, pages: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, array[int]]]:
        """Yield (ledger id, page number, page) for the pages that are quick to read.

        The others are left out, as are unreadable pages: ``load_page`` reports the error.
        """

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Return the location of an entry, 0 if it has none.

        Raises:
            IndexEntryError: no entry can be at the stored location.
        """

    def locations(self, entries: Sequence[tuple[int, int]]) -> list[int]:
        """Return the location of each (ledger id, entry id), 0 if none; cheaper than single calls.

        Raises:
            CorruptError: a location is not valid.
            OSError: the index cannot be read.
        """

    def pages(self, ledger_id: int, first_page: int = 0) -> Iterator[tuple[int, array[int]]]:
        """Yield the pages of a ledger that may have locations, with their numbers, ascending.

        ``first_page``: skip the pages before it.
        """

    # Writing: a checkpoint ------------------------------------------------------------------------

    def write(self, changes: Sequence[LedgerChange]) -> Mapping[int, CorruptError]:
        """Write changes durably; return ledgers found to be damaged.

        The entries that the new locations point at must be durable already.

        Raises:
            OSError: some changes may be written, some not; write them again.
            StorageError: likewise.
        """

    # Writing: compaction --------------------------------------------------------------------------

    def switch(self, moves: Sequence[Move]) -> None:
        """Change, durably, the location of entries that still have the old location.

        A location that is already the new one is written again: after a failed attempt the state of
        the disk is unknown. Deleted ledgers are skipped. A crash leaves each location old or new,
        never anything else. Never runs beside a ``write``.

        Raises:
            CorruptError: the index of a ledger is damaged.
            OSError: some may be switched, some not. So for ``StorageError``.
        """

    def begin_anew(self, ledger_id: int) -> bool:
        """Forget a ledger's index if it was never written to; return whether that is so."""

    # Deleting -------------------------------------------------------------------------------------

    def hide(self, ledger_id: int) -> None:
        """Remove a deleted ledger from memory only; unknown ledgers are ignored."""

    @property
    def lists_all(self) -> bool:
        """True if ``ledger_ids`` has all ledgers, also if ``remove_hidden`` has failed."""

    def remove_hidden(
        self, in_memory: Collection[int] = (), found: dict[int, int] | None = None
    ) -> bool:
        """Remove hidden ledgers from disk, durably; after a crash before that, they are back.

        Return whether ``ledger_ids`` has all ledgers; if not, each call adds some.

        ``in_memory`` are ledgers that exist and may not be stored yet; any thread may look them up.
        Those that nevertheless have locations are noted in ``found`` with their highest entry.

        Raises:
            OSError: some may be left; call again. So for ``StorageError``.
        """

    def note_synced(self) -> None:
        """Record how much is durable, before a mark relies on it: a later loss is then noticed."""

    # Otherwise ------------------------------------------------------------------------------------

    def avoid(self, full: Collection[Path]) -> None:
        """Create no new file in full directories, unless all are full."""

    def close(self) -> None:
        """Close all files."""
