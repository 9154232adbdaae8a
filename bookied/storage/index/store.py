"""IndexStore: what keeps, beside the entry logs, which ledgers there are and where entries lie.

In memory a ledger's locations are pages of 1024, whatever the store (``index.ledger_pages``); a
store reads and writes them as such. ``IndexFiles`` keeps a file for each ledger, ``RocksIndex`` two
RocksDB databases.
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
    """The index of one log-id space. Everything blocks; see each method for the thread.

    Reading is for any thread; ``write`` and ``remove_hidden`` belong to one checkpoint at a time;
    the rest to the owner of the ledgers in memory, and never while a checkpoint runs.
    """

    @property
    def writes_locations(self) -> bool:
        """Whether it writes single locations, and so wants ``LedgerChange.before``."""

    @property
    def keeps_limbo(self) -> bool:
        """Whether it has a place for a ledger's limbo."""

    @property
    def open_count(self) -> int:
        """How many files it has open for readers."""

    def open(self) -> None:
        """Find the ledgers that are here, and tidy up what a crash left half done.

        Raises:
            OSError: it cannot be read.
            CorruptError: it is damaged as a whole.
        """

    def ledger_ids(self) -> list[int]:
        """Return the ledgers that are here, in no order."""

    def __contains__(self, ledger_id: object) -> bool: ...

    # Reading --------------------------------------------------------------------------------------

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        """Return what is stored of a ledger; None if nothing.

        Raises:
            CorruptError: it is damaged.
            OSError: it cannot be read.
        """

    def load_many(self, ledger_ids: Sequence[int]) -> Iterator[tuple[int, LedgerOnDisk]]:
        """Give what ``load`` returns for each ledger; those are left out that it has none of.

        Also those that it cannot read: ``load`` says why.
        """

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        """Return the 1024 locations of entries ``page_no << 10`` and on, 0 for none.

        Raises:
            CorruptError: the page is lost.
        """

    def load_pages(self, pages: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, array[int]]]:
        """Give (ledger id, page number, page) for the pages that are quick to read.

        The others are left out, as are those that cannot be read: ``load_page`` says why.
        """

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Return where an entry is, 0 if nowhere.

        Raises:
            IndexEntryError: no entry can be there.
        """

    def locations(self, entries: Sequence[tuple[int, int]]) -> list[int]:
        """Return where each (ledger id, entry id) is, 0 if nowhere; cheaper than one by one.

        Raises:
            CorruptError: a location is not valid.
            OSError: it cannot be read.
        """

    def pages(self, ledger_id: int, first_page: int = 0) -> Iterator[tuple[int, array[int]]]:
        """Give the pages of a ledger that may hold something, with their numbers, ascending.

        ``first_page``: none before it.
        """

    # Writing: a checkpoint ------------------------------------------------------------------------

    def write(self, changes: Sequence[LedgerChange]) -> Mapping[int, CorruptError]:
        """Put changes on disk; on return they are durable. Return ledgers found to be damaged.

        What a change's locations point at must be durable already.

        Raises:
            OSError: some may be written, some not; write them again.
            StorageError: likewise.
        """

    # Writing: compaction --------------------------------------------------------------------------

    def switch(self, moves: Sequence[Move]) -> None:
        """Point entries elsewhere whose location is still the old one; durable on return.

        A location that is the new one already is written again: a failed attempt leaves unknown
        what the disk has. Ledgers that are gone are passed over. A crash leaves each location as it
        was or as it shall be, never anything else. Never beside a ``write``.

        Raises:
            CorruptError: the index of a ledger is damaged.
            OSError: some may be switched, some not. So for ``StorageError``.
        """

    def begin_anew(self, ledger_id: int) -> bool:
        """Take what is stored of a ledger for nothing, if nothing was ever written; say whether."""

    # Deleting -------------------------------------------------------------------------------------

    def hide(self, ledger_id: int) -> None:
        """Forget a ledger that is deleted, in memory only; unknown ones are passed over."""

    def remove_hidden(self) -> None:
        """Remove from the disk, durably, what was hidden; a crash before brings it back.

        Raises:
            OSError: some may be left; call again. So for ``StorageError``.
        """

    def note_synced(self) -> None:
        """Put down, before a mark relies on it, how much is durable: a later loss is noticed."""

    # Otherwise ------------------------------------------------------------------------------------

    def avoid(self, full: Collection[Path]) -> None:
        """Put no new file into directories that are full, unless there is no other."""

    def close(self) -> None:
        """Release all files."""
