"""DbLedgerStorage's index: the ledgers and the locations of their entries, in two databases.

Agrees with LedgerMetadataIndex and EntryLocationIndex (4.18.0): Java bookies and we open each
other's databases. As in Java, locations are durable before their ledger is. A writer makes the
entry logs durable before.
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
    """Unknown: RocksDB opens files itself."""

    def __init__(
        self,
        directory: Path,
        open_key_values: OpenKeyValues,
        *,
        damaged: Callable[[DbRecordError], object] | None = None,
    ) -> None:
        """Prepare; nothing is read or created before ``open``.

        Args:
            directory: ``current`` of an index directory.
            open_key_values: opens a database in the directory.
            damaged: called with the error of a ledger's key or value, which is then skipped; if
                None, ``open`` raises the error.
        """
        self._directory, self._open_key_values = directory, open_key_values
        self._ledgers = RocksLedgers(directory, damaged)
        self._locations = RocksLocations(directory)
        self._is_open = False
        self._unfinished: set[int] = set()  # Ledgers that are not stored but may have locations.
        self._hidden: list[int] = []
        self._search_at: int | None = 0
        self.lists_all = False
        """See ``IndexStore``."""

    @property
    def locations_path(self) -> Path:
        """The path of the database with the locations of entries."""
        return self._locations.path

    def note_synced(self) -> None:
        """Record how much of both is durable; if that fails, the earlier note stays."""
        try:
            self._ledgers.note_synced()
            self._locations.note_synced()
        except OSError as error:
            log.warn("{path}: notes are not written: {error}", path=self._directory, error=error)

    def compact_locations(self) -> None:
        """Rewrite locations without deleted ones; see ``KeyValues.compact``. Blocks, any thread."""
        self._locations.compact()

    def open(self) -> None:
        """Open both databases and list the ledgers.

        Raises:
            DbRecordError: a key or value cannot be read: the bookie must not start.
            OSError: a database cannot be read.
            StorageError: another process has a database open.
        """
        self._ledgers.open(self._open_key_values)
        try:
            self._locations.open(self._open_key_values)
        except BaseException:
            self._ledgers.close()
            raise
        self._is_open = True

    def close(self) -> None:
        """Close both databases."""
        if self._is_open:
            self._is_open = False
            self._ledgers.close()
            self._locations.close()

    def ledger_ids(self) -> list[int]:
        """Return the ids of the stored ledgers, in no order."""
        return list(self._ledgers.ids)

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._ledgers

    def flags(self) -> int:
        """Return the storage flags; raise DbRecordError if they are not a number."""
        return self._ledgers.flags()

    def set_flags(self, flags: int) -> None:
        """Store the flags, durably; between checkpoints only."""
        self._ledgers.set_flags(flags)

    def avoid(self, full: Collection[Path]) -> None:
        """Do nothing: the index has no other directory."""

    # Reading --------------------------------------------------------------------------------------

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        """Return the stored state of a ledger; None if it is not stored.

        Raises:
            DbRecordError: the ledger's value is damaged.
        """
        if ledger_id not in self._ledgers:
            return None
        header = self._ledgers.header(ledger_id)
        last_entry = self._locations.last_entry(ledger_id)
        return LedgerOnDisk(header, -(-(last_entry + 1) // PAGE_SLOTS), last_entry)

    def load_many(self, ledger_ids: Sequence[int]) -> Iterator[tuple[int, LedgerOnDisk]]:
        """Yield what ``load`` returns for each ledger that is stored and not damaged."""
        for ledger_id in ledger_ids:
            with contextlib.suppress(CorruptError, OSError):
                stored = self.load(ledger_id)
                if stored is not None:
                    yield ledger_id, stored

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        """Return a page; slots without a key are 0."""
        return self._locations.page(ledger_id, page_no)

    def load_pages(
        self,
        pages: Sequence[tuple[int, int]],  # noqa: ARG002
    ) -> Iterator[tuple[int, int, array[int]]]:
        """Yield no page: each would need up to a thousand keys."""
        return iter(())

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Return the location of an entry, 0 if it has none.

        Raises:
            IndexEntryError: the location is impossible.
            DbRecordError: the value is not a location.
        """
        return self._locations.location(ledger_id, entry_id) if ledger_id in self._ledgers else 0

    def locations(self, entries: Sequence[tuple[int, int]]) -> list[int]:
        """Return the location of each (ledger id, entry id), 0 if none.

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
        """Yield the pages that have locations, with their numbers, ascending."""
        for page in self._locations.pages(ledger_id, first_page):
            if ledger_id not in self._ledgers:
                return
            yield page

    # Writing --------------------------------------------------------------------------------------

    def write(self, changes: Sequence[LedgerChange]) -> Mapping[int, CorruptError]:
        """Write changes durably; return no damaged ledgers, because RocksDB finds damage itself.

        The entries that the new locations point at must be durable already.

        Raises:
            IndexFullError: no disk space; some changes may be written, and all must be written
                again.
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
        """Change, durably, the location of entries whose location is the old or the new one.

        Raises:
            DbRecordError: a location is not valid.
            OSError: some may be switched, some not.
        """
        self._locations.switch(move for move in moves if move[0] in self._ledgers)

    # Deleting -------------------------------------------------------------------------------------

    def hide(self, ledger_id: int) -> None:
        """Forget a deleted ledger; ``remove_hidden`` removes its keys."""
        if ledger_id in self._ledgers or ledger_id in self._unfinished or not self.lists_all:
            self._ledgers.hide(ledger_id)
            self._unfinished.discard(ledger_id)
            self._hidden.append(ledger_id)

    def begin_anew(self, ledger_id: int) -> bool:  # noqa: ARG002
        """Return False: a key has its complete value, or does not exist."""
        return False

    def remove_hidden(
        self, in_memory: Collection[int] = (), found: dict[int, int] | None = None
    ) -> bool:
        """Remove keys of hidden ledgers durably; list some ledgers again that have only locations.

        Return whether all ledgers with locations are listed.

        Locations are removed first, as in Java: so no deletion leaves locations of a ledger that is
        not stored. A crash leaves them before the ledger is stored, and then replay has it in
        memory. Otherwise its row was lost. The locations stay in either case: replay may have only
        the last entries. Garbage collection removes the ledger if it was deleted.

        Raises:
            OSError: some may be left; call again.
        """
        hidden = list(self._hidden)
        unlisted, then_at = self._locations.find_unlisted(self._ledgers.ids, self._search_at)
        if found is not None and not self.lists_all:
            # The search cannot find them once this checkpoint has stored them.
            new = [one for one in list(in_memory) if one not in self._ledgers]
            last = {one: self._locations.last_entry(one) for one in new if one not in hidden}
            found |= {one: entry_id for one, entry_id in last.items() if entry_id >= 0}
        lost = [one for one in unlisted if one not in hidden and one not in in_memory]
        self._ledgers.restore(lost)
        # Only now: after an error the same ledgers are found again.
        self._search_at, self.lists_all = then_at, then_at is None
        self._locations.remove(hidden)
        self._ledgers.remove(hidden)
        self._hidden = self._hidden[len(hidden) :]
        return self.lists_all
