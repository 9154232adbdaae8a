"""DbLedgerStorage's index: which ledgers there are, and where entries lie, in two databases.

Agrees with LedgerMetadataIndex and EntryLocationIndex (4.18.0), so that a Java bookie opens what we
wrote and we what it wrote. Locations are durable before the ledger that has them is, as in Java;
a writer has the entry logs durable before.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from bookied.errors import DbRecordError, IndexFullError
from bookied.storage.index import format as pages
from bookied.storage.index import rocks_format as layout
from bookied.storage.index.file_reads import check_location
from bookied.storage.index.format import PAGE_SLOTS
from bookied.storage.index.key_values import KeyValues, OpenKeyValues
from bookied.storage.index.ledger_pages import LedgerChange, Move, StoredLedger

log = Logger()

LISTED_AT_ONCE: Final = 4096
"""Ledgers read at once when the index is opened."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

SWEPT_AT_ONCE: Final = 256
"""Ledgers looked at in one checkpoint until the sweep is through."""


class RocksIndex:
    """The databases ``ledgers`` and ``locations`` in one index directory (its ``current``).

    An ``IndexStore``. All ledger ids are in memory, at some 100 bytes each; all else is read when
    it is asked for.
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
        self._damaged = damaged
        self._directory = directory
        self._ledgers_path = directory / layout.LEDGERS
        self._locations_path = directory / layout.LOCATIONS
        self._open_key_values = open_key_values
        self._ledgers: KeyValues
        self._locations: KeyValues
        self._is_open = False
        self._stored: set[int] = set()
        self._rebuilt: set[int] = set()  # Those of them that have a key of 16 bytes only.
        self._stale: set[int] = set()  # Those that have one beside that of 8 bytes.
        self._unfinished: set[int] = set()  # Perhaps with locations, and not stored.
        self._hidden: list[int] = []
        self._sweep_at: int | None = 0

    @property
    def locations_path(self) -> Path:
        """The database with the places of entries."""
        return self._locations_path

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
        self._ledgers = self._open_key_values(self._ledgers_path)
        try:
            self._list()
            self._locations = self._open_key_values(self._locations_path)
        except BaseException:
            self._ledgers.close()
            raise
        self._is_open = True

    def _list(self) -> None:
        begin = b""
        while items := self._ledgers.items(begin, layout.LEDGER_KEYS_END, LISTED_AT_ONCE):
            for key, value in items:
                try:
                    self._take_in(key, value)
                except DbRecordError as error:
                    if self._damaged is None:
                        raise
                    self._damaged(error)
            begin = items[-1][0] + b"\0"
        self.flags()

    def _take_in(self, key: bytes, value: bytes) -> None:
        """Note a ledger; its shorter key comes first and is what counts."""
        ledger_id = layout.decode_ledger_key(key, self._ledgers_path)
        is_there = layout.decode_ledger(value, key, self._ledgers_path) is not None
        if ledger_id in self._stored:
            self._stale.add(ledger_id)
        elif is_there:
            self._stored.add(ledger_id)
            if len(key) > len(layout.ledger_key(0)):
                self._rebuilt.add(ledger_id)

    def ledger_ids(self) -> list[int]:
        """Return the ledgers that are stored, in no order."""
        return list(self._stored)

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id in self._stored

    # Reading --------------------------------------------------------------------------------------

    def load(self, ledger_id: int) -> StoredLedger | None:
        """Return what is stored of a ledger; None if nothing.

        Raises:
            DbRecordError: it is damaged.
        """
        if ledger_id not in self._stored:
            return None
        is_rebuilt = ledger_id in self._rebuilt
        key = layout.long_ledger_key(ledger_id) if is_rebuilt else layout.ledger_key(ledger_id)
        value = self._ledgers.get(key)
        header = None
        if value is not None:
            header = layout.decode_ledger(value, key, self._ledgers_path)
        if header is None:
            raise DbRecordError(self._ledgers_path, None, f"ledger {ledger_id} is there no more")
        last_entry = self._last_entry(ledger_id)
        return StoredLedger(header, -(-(last_entry + 1) // PAGE_SLOTS), last_entry)

    def _last_entry(self, ledger_id: int) -> int:
        found = self._locations.floor(layout.location_key(ledger_id, layout.ENTRY_ID_LIMIT))
        if found is None:
            return -1
        other_id, entry_id = layout.decode_location_key(found[0], self._locations_path)
        return entry_id if other_id == ledger_id else -1

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        """Return a page; slots that have no key are 0."""
        page = pages.decode_page(b"")
        first = page_no * PAGE_SLOTS
        begin, end = _page_begin(ledger_id, page_no), _page_begin(ledger_id, page_no + 1)
        for key, value in self._locations.items(begin, end, PAGE_SLOTS):
            _, entry_id = layout.decode_location_key(key, self._locations_path)
            page[entry_id - first] = layout.decode_number(value, key, self._locations_path)
        return page

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Return where an entry is, 0 if nowhere.

        Raises:
            IndexEntryError: the location cannot be.
            DbRecordError: it is no location.
        """
        if ledger_id not in self._stored or not 0 <= entry_id <= layout.ENTRY_ID_LIMIT:
            return 0
        key = layout.location_key(ledger_id, entry_id)
        value = self._locations.get(key)
        if value is None:
            return 0
        location = layout.decode_number(value, key, self._locations_path)
        return check_location(location, self._locations_path, None)

    def pages(self, ledger_id: int) -> Iterator[tuple[int, array[int]]]:
        """Give the pages that hold something, with their numbers, ascending."""
        begin, end = layout.ledger_range(ledger_id)
        while ledger_id in self._stored and (found := self._locations.items(begin, end, 1)):
            _, entry_id = layout.decode_location_key(found[0][0], self._locations_path)
            page_no = entry_id // PAGE_SLOTS
            yield page_no, self.load_page(ledger_id, page_no)
            begin = _page_begin(ledger_id, page_no + 1)

    # Writing: a checkpoint ------------------------------------------------------------------------

    def write(self, changes: Sequence[LedgerChange]) -> None:
        """Put changes on disk; on return they are durable.

        What a change's locations point at must be durable already.

        Raises:
            IndexFullError: there is no space; some may be written, and all are to be again.
            OSError: some may be written, some not.
        """
        try:
            self._write_locations([change for change in changes if change.pages])
            self._write_ledgers([change for change in changes if change.header is not None])
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            ledger_ids = [change.ledger_id for change in changes]
            raise IndexFullError(self._directory, ledger_ids) from error

    def _write_locations(self, changes: Sequence[LedgerChange]) -> None:
        if changes:
            self._unfinished.update(one.ledger_id for one in changes)
            self._locations.put(_locations(changes))
            self._locations.sync()

    def _write_ledgers(self, changes: Sequence[LedgerChange]) -> None:
        if changes:
            headers = [(one.ledger_id, one.header) for one in changes if one.header is not None]
            self._ledgers.put(
                (layout.ledger_key(ledger_id), layout.encode_ledger(header))
                for ledger_id, header in headers
            )
            longer = self._rebuilt.intersection(ledger_id for ledger_id, _ in headers)
            self._ledgers.delete(map(layout.long_ledger_key, longer))
            self._ledgers.sync()
            self._rebuilt -= longer
            self._stored.update(ledger_id for ledger_id, _ in headers)
        self._unfinished -= self._stored

    # Writing: compaction --------------------------------------------------------------------------

    def switch(self, moves: Sequence[Move]) -> None:
        """Point entries elsewhere whose location is the old one, or new already; durable then.

        Raises:
            DbRecordError: a location is not valid.
            OSError: some may be switched, some not.
        """
        self._locations.put(self._switched(moves))
        self._locations.sync()

    def _switched(self, moves: Iterable[Move]) -> Iterator[tuple[bytes, bytes]]:
        for ledger_id, entry_id, old, new in moves:
            if self.location(ledger_id, entry_id) in (old, new):
                yield layout.location_key(ledger_id, entry_id), layout.encode_location(new)

    # Deleting -------------------------------------------------------------------------------------

    def hide(self, ledger_id: int) -> None:
        """Forget a ledger that is deleted; ``remove_hidden`` takes its keys away."""
        if ledger_id in self._stored or ledger_id in self._unfinished:
            self._stored.discard(ledger_id)
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
        orphans = self._find_orphans()
        self._remove_locations(hidden + orphans)
        self._remove_ledgers(hidden)
        self._rebuilt.difference_update(hidden)
        self._hidden = self._hidden[len(hidden) :]

    def _remove_locations(self, ledger_ids: Collection[int]) -> None:
        if ledger_ids:
            self._locations.delete_ranges(map(layout.ledger_range, ledger_ids))
            self._locations.sync()

    def _remove_ledgers(self, ledger_ids: Collection[int]) -> None:
        """Remove ledgers' keys, and those that a rebuild left beside newer ones.

        Java would let the older one win at its next start (storage.md D10).
        """
        if ledger_ids or self._stale:
            self._ledgers.delete(map(layout.ledger_key, ledger_ids))
            self._ledgers.delete(map(layout.long_ledger_key, (*ledger_ids, *self._stale)))
            self._ledgers.sync()
            self._stale.clear()

    def _find_orphans(self) -> list[int]:
        """Look on for ledgers with locations that are not stored: a crash amid their deletion.

        At the beginning of a checkpoint only: what is being written has no ledger yet either. Once
        through all of them there is no more to find.
        """
        orphans = []
        for _ in range(SWEPT_AT_ONCE):
            if self._sweep_at is None:
                break
            begin = layout.location_key(self._sweep_at, 0)
            found = self._locations.items(begin, layout.LEDGER_KEYS_END, 1)
            if not found:
                self._sweep_at = None
                break
            ledger_id, _ = layout.decode_location_key(found[0][0], self._locations_path)
            if ledger_id not in self._stored:
                orphans.append(ledger_id)
            is_last = ledger_id == layout.ENTRY_ID_LIMIT
            self._sweep_at = None if is_last else ledger_id + 1
        if orphans:
            log.info("removing the locations of {count} ledgers that are gone", count=len(orphans))
        return orphans

    # Flags ----------------------------------------------------------------------------------------

    def flags(self) -> int:
        """Return the storage flags.

        Raises:
            DbRecordError: they are no number.
        """
        value = self._ledgers.get(layout.FLAGS_KEY)
        if value is None:
            return 0
        return layout.decode_number(value, layout.FLAGS_KEY, self._ledgers_path)

    def set_flags(self, flags: int) -> None:
        """Store the flags, durably; between checkpoints only."""
        self._ledgers.put([(layout.FLAGS_KEY, layout.encode_location(flags))])
        self._ledgers.sync()

    # Otherwise ------------------------------------------------------------------------------------

    def avoid(self, full: Collection[Path]) -> None:
        """Go on: there is no other directory for it."""

    def close(self) -> None:
        """Release both databases."""
        if self._is_open:
            self._is_open = False
            self._ledgers.close()
            self._locations.close()


def _page_begin(ledger_id: int, page_no: int) -> bytes:
    """Return the first key of a page; there is no entry with the highest id of all."""
    return layout.location_key(ledger_id, min(page_no * PAGE_SLOTS, layout.ENTRY_ID_LIMIT))


def _locations(changes: Sequence[LedgerChange]) -> Iterator[tuple[bytes, bytes]]:
    key, value = layout.location_key, layout.encode_location
    for change in changes:
        for page_no, native in change.pages:
            first = page_no * PAGE_SLOTS
            for slot, location in layout.changed_slots(change.before.get(page_no), native):
                yield key(change.ledger_id, first + slot), value(location)
