"""DbLedgerStorage's index: which ledgers there are, and where entries lie, in two databases.

Agrees with LedgerMetadataIndex and EntryLocationIndex (4.18.0), so that a Java bookie opens what we
wrote and we what it wrote. Locations are durable before the ledger that has them is, as in Java;
a writer has the entry logs durable before.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from bookied.errors import NO_SPACE, CorruptError, DbRecordError, IndexFullError
from bookied.storage.index.format import PAGE_SLOTS
from bookied.storage.index.key_value_store import OpenKeyValues
from bookied.storage.index.ledger_pages import LedgerChange, LedgerOnDisk, Move
from bookied.storage.index.rocks.ledgers import RocksLedgers
from bookied.storage.index.rocks.locations import RocksLocations

log = Logger()


class RocksIndex:
    """The databases ``ledgers`` and ``locations`` in one index directory (its ``current``).

    An ``IndexStore``.
    """

    writes_locations: Final = True
    keeps_limbo: Final = True

    open_count: Final = 0
    """How many files RocksDB has open is its own business."""

    def __init__(
        self,
        directory: Path,
        open_key_values: OpenKeyValues,
        *,
        damaged: Callable[[DbRecordError], object] | None = None,
    ) -> None:
        """Prepare; nothing is read or made before ``open``.

        Args:
            directory: ``current`` of an index directory.
            open_key_values: opens a database in there.
            damaged: gets what is wrong with a ledger's key or value, which is passed over then; if
                None, ``open`` raises it.
        """
        self._directory, self._open_key_values = directory, open_key_values
        self._ledgers = RocksLedgers(directory, damaged)
        self._locations = RocksLocations(directory)
        self._is_open = False
        self._unfinished: set[int] = set()  # Perhaps with locations, and not stored.
        self._hidden: list[int] = []

    @property
    def locations_path(self) -> Path:
        """The database with the places of entries."""
        return self._locations.path

    def note_synced(self) -> None:
        """Put down how much of both is durable; where that fails the note before stays."""
        try:
            self._ledgers.note_synced()
            self._locations.note_synced()
        except OSError as error:
            log.warn("{path}: notes are not written: {error}", path=self._directory, error=error)

    def compact_locations(self) -> None:
        """Rewrite it without what was deleted; see ``KeyValues.compact``. Blocks, any thread."""
        self._locations.compact()

    def open(self) -> None:
        """Open both databases and list the ledgers.

        Raises:
            DbRecordError: a key or value cannot be read; with that the bookie must not start.
            OSError: a database cannot be read.
            StorageError: another process has it open.
        """
        self._ledgers.open(self._open_key_values)
        try:
            self._locations.open(self._open_key_values)
        except BaseException:
            self._ledgers.close()
            raise
        self._is_open = True

    def close(self) -> None:
        """Release both databases."""
        if self._is_open:
            self._is_open = False
            self._ledgers.close()
            self._locations.close()

    def ledger_ids(self) -> list[int]:
        """Return the ledgers that are stored, in no order."""
        return list(self._ledgers.ids)

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._ledgers

    def flags(self) -> int:
        """Return the storage flags; raise DbRecordError where they are not a number."""
        return self._ledgers.flags()

    def set_flags(self, flags: int) -> None:
        """Store the flags, durably; between checkpoints only."""
        self._ledgers.set_flags(flags)

    def avoid(self, full: Collection[Path]) -> None:
        """Go on: there is no other directory for it."""

    # Reading --------------------------------------------------------------------------------------

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        """Return what is stored of a ledger; None if nothing.

        Raises:
            DbRecordError: it is damaged.
        """
        if ledger_id not in self._ledgers:
            return None
        header = self._ledgers.header(ledger_id)
        last_entry = self._locations.last_entry(ledger_id)
        return LedgerOnDisk(header, -(-(last_entry + 1) // PAGE_SLOTS), last_entry)

    def load_many(self, ledger_ids: Sequence[int]) -> Iterator[tuple[int, LedgerOnDisk]]:
        """Give what ``load`` returns for each ledger that is here and not damaged."""
        for ledger_id in ledger_ids:
            with contextlib.suppress(CorruptError, OSError):
                stored = self.load(ledger_id)
                if stored is not None:
                    yield ledger_id, stored

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        """Return a page; slots that have no key are 0."""
        return self._locations.page(ledger_id, page_no)

    def load_pages(
        self,
        pages: Sequence[tuple[int, int]],  # noqa: ARG002
    ) -> Iterator[tuple[int, int, array[int]]]:
        """Give none: a page is up to a thousand keys here."""
        return iter(())

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Return where an entry is, 0 if nowhere.

        Raises:
            IndexEntryError: the location cannot be.
            DbRecordError: it is not a location.
        """
        return self._locations.location(ledger_id, entry_id) if ledger_id in self._ledgers else 0

    def locations(self, entries: Sequence[tuple[int, int]]) -> list[int]:
        """Return where each (ledger id, entry id) is, 0 if nowhere.

        Raises:
            IndexEntryError: a location is not valid.
            DbRecordError: a value is not a location.
        """
        found = self._locations.locations(entries)
        stored = self._ledgers
        return [
            place if ledger_id in stored else 0
            for (ledger_id, _), place in zip(entries, found, strict=True)
        ]

    def pages(self, ledger_id: int, first_page: int = 0) -> Iterator[tuple[int, array[int]]]:
        """Give the pages that hold something, with their numbers, ascending."""
        for page in self._locations.pages(ledger_id, first_page):
            if ledger_id not in self._ledgers:
                return
            yield page

    # Writing --------------------------------------------------------------------------------------

    def write(self, changes: Sequence[LedgerChange]) -> Mapping[int, CorruptError]:
        """Put changes on disk; on return they are durable. RocksDB looks for damage itself.

        What a change's locations point at must be durable already.

        Raises:
            IndexFullError: there is no space; some may be written, and all are to be again.
            OSError: some may be written, some not.
        """
        try:
            self._write_locations([change for change in changes if change.pages or change.new])
            self._write_ledgers(changes)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            ledger_ids = [change.ledger_id for change in changes]
            raise IndexFullError(self._directory, ledger_ids) from error
        return {}

    def _write_locations(self, changes: Sequence[LedgerChange]) -> None:
        if changes:
            self._unfinished.update(one.ledger_id for one in changes)
            self._locations.write(changes)

    def _write_ledgers(self, changes: Sequence[LedgerChange]) -> None:
        self._ledgers.write(
            [(one.ledger_id, one.header) for one in changes if one.header is not None]
        )
        self._unfinished.difference_update(self._ledgers.ids)

    def switch(self, moves: Sequence[Move]) -> None:
        """Point entries elsewhere whose location is the old one, or new already; durable then.

        Raises:
            DbRecordError: a location is not valid.
            OSError: some may be switched, some not.
        """
        self._locations.switch(move for move in moves if move[0] in self._ledgers)

    # Deleting -------------------------------------------------------------------------------------

    def hide(self, ledger_id: int) -> None:
        """Forget a ledger that is deleted; ``remove_hidden`` takes its keys away."""
        if ledger_id in self._ledgers or ledger_id in self._unfinished:
            self._ledgers.hide(ledger_id)
            self._unfinished.discard(ledger_id)
            self._hidden.append(ledger_id)

    def begin_anew(self, ledger_id: int) -> bool:  # noqa: ARG002
        """Say no: a key is there with all its value, or not at all."""
        return False

    def remove_hidden(self) -> None:
        """Remove keys durably, and a part of what has no ledger; locations go first, as in Java.

        Raises:
            OSError: some may be left; call again.
        """
        hidden = list(self._hidden)
        self._locations.remove(hidden + self._locations.find_orphans(self._ledgers.ids))
        self._ledgers.remove(hidden)
        self._hidden = self._hidden[len(hidden) :]
