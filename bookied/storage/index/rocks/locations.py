"""The database ``locations``: the location of each entry.

Agrees with EntryLocationIndex (4.18.0).
"""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import starmap
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from bookied.errors import CorruptError
from bookied.storage.index import format as pages
from bookied.storage.index.format import PAGE_SLOTS
from bookied.storage.index.index_files.reads import check_location
from bookied.storage.index.key_value_store import IndexDatabase
from bookied.storage.index.ledger_pages import LedgerChange, Move
from bookied.storage.index.rocks import format as layout

log = Logger()

READ_AT_ONCE: Final = 256
"""Locations read in one call, which keeps the interpreter's lock."""

SEARCHED_AT_ONCE: Final = 256
"""Ledgers checked in one checkpoint until all are checked, once bookied has used the database."""


class RocksLocations(IndexDatabase):
    """The database of locations, also of ledgers that are not stored; pages are made from it."""

    def __init__(self, directory: Path) -> None:
        """See ``RocksIndex``."""
        super().__init__(directory / layout.LOCATIONS)

    def compact(self) -> None:
        """Rewrite the database without deleted keys; see ``KeyValues.compact``.

        Blocks, any thread.
        """
        self._rows.compact()

    def last_entry(self, ledger_id: int) -> int:
        """Return the last entry that has a location; -1 if none has."""
        found = self._rows.floor(layout.location_key(ledger_id, layout.ENTRY_ID_LIMIT))
        if found is None:
            return -1
        other_id, entry_id = layout.decode_location_key(found[0], self.path)
        return entry_id if other_id == ledger_id else -1

    def page(self, ledger_id: int, page_no: int) -> array[int]:
        """Return a page; slots without a key are 0."""
        page = pages.decode_page(b"")
        first = page_no * PAGE_SLOTS
        begin, end = _page_begin(ledger_id, page_no), _page_begin(ledger_id, page_no + 1)
        for key, value in self._rows.items(begin, end, PAGE_SLOTS):
            _, entry_id = layout.decode_location_key(key, self.path)
            page[entry_id - first] = layout.decode_number(value, key, self.path)
        return page

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Return the location of an entry, 0 if it has none.

        Raises:
            IndexEntryError: the location is impossible.
            DbRecordError: the value is not a location.
        """
        if not 0 <= entry_id <= layout.ENTRY_ID_LIMIT:
            return 0
        key = layout.location_key(ledger_id, entry_id)
        return self._decode(key, self._rows.get(key))

    def locations(self, entries: Sequence[tuple[int, int]]) -> list[int]:
        """Return the location of each (ledger id, entry id), as ``location`` does."""
        are_possible = all(0 <= entry_id <= layout.ENTRY_ID_LIMIT for _, entry_id in entries)
        if not are_possible:
            return [self.location(*entry) for entry in entries]
        found: list[int] = []
        for begin in range(0, len(entries), READ_AT_ONCE):
            keys = list(starmap(layout.location_key, entries[begin : begin + READ_AT_ONCE]))
            found += self._decode_all(keys, self._rows.get_many(keys))
        return found

    def _decode_all(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> Sequence[int]:
        found = layout.decode_locations(values)
        return list(map(self._decode, keys, values)) if found is None else found

    def _decode(self, key: bytes, value: bytes | None) -> int:
        if value is None:
            return 0
        return check_location(layout.decode_number(value, key, self.path), self.path, None)

    def pages(self, ledger_id: int, first_page: int = 0) -> Iterator[tuple[int, array[int]]]:
        """Yield the pages that have locations, with their numbers, ascending."""
        begin, end = _page_begin(ledger_id, first_page), layout.ledger_range(ledger_id)[1]
        while found := self._rows.items(begin, end, 1):
            _, entry_id = layout.decode_location_key(found[0][0], self.path)
            page_no = entry_id // PAGE_SLOTS
            yield page_no, self.page(ledger_id, page_no)
            begin = _page_begin(ledger_id, page_no + 1)

    def write(self, changes: Sequence[LedgerChange]) -> None:
        """Store the locations of changes, durably."""
        self._rows.put(_locations(changes))
        self._rows.sync()

    def switch(self, moves: Iterable[Move]) -> None:
        """Change, durably, the location of entries whose location is the old or the new one."""
        self._rows.put(self._switched(list(moves)))
        self._rows.sync()

    def _switched(self, moves: Sequence[Move]) -> Iterator[tuple[bytes, bytes]]:
        places = self.locations([move[:2] for move in moves])
        for (ledger_id, entry_id, old, new), place in zip(moves, places, strict=True):
            if place in (old, new):
                yield layout.location_key(ledger_id, entry_id), layout.encode_location(new)

    def remove(self, ledger_ids: Collection[int]) -> None:
        """Remove all locations of ledgers, durably."""
        if ledger_ids:
            self._rows.delete_ranges(map(layout.ledger_range, ledger_ids))
            self._rows.sync()

    def find_unlisted(
        self, stored: Collection[int], at: int | None
    ) -> tuple[list[int], int | None]:
        """Return some ledgers from ``at`` on that have locations and are not stored.

        Also return where to continue the search, None after the last ledger. After damage it
        continues at the next stored ledger: one damaged block must not end all checkpoints. Never
        call it while a checkpoint writes: ledgers being written are not stored yet either.
        """
        unlisted: list[int] = []
        ids: list[int] = []
        searched = 0
        while at is not None and not (self.is_noted and searched == SEARCHED_AT_ONCE):
            searched += 1
            try:
                found = self._rows.items(layout.location_key(at, 0), layout.LEDGER_KEYS_END, 1)
                if not found:
                    return unlisted, None
                ledger_id, _ = layout.decode_location_key(found[0][0], self.path)
            except (CorruptError, OSError) as error:
                if isinstance(error, OSError) and error.errno != errno.EIO:
                    raise
                if not ids:
                    log.warn("passed over damaged locations: {error}", error=error)
                    ids = sorted(stored)
                place = bisect_right(ids, at)
                at = ids[place] if place < len(ids) else None
                continue
            if ledger_id not in stored:
                unlisted.append(ledger_id)
            at = None if ledger_id == layout.ENTRY_ID_LIMIT else ledger_id + 1
        return unlisted, at


def _page_begin(ledger_id: int, page_no: int) -> bytes:
    """Return the first key of a page; no entry has the highest possible id."""
    return layout.location_key(ledger_id, min(page_no * PAGE_SLOTS, layout.ENTRY_ID_LIMIT))


def _locations(changes: Sequence[LedgerChange]) -> Iterator[tuple[bytes, bytes]]:
    key, value = layout.location_key, layout.encode_location
    for change in changes:
        for page_no, native in change.pages:
            first = page_no * PAGE_SLOTS
            for slot, location in layout.changed_slots(change.before.get(page_no), native):
                yield key(change.ledger_id, first + slot), value(location)
        for page_no, slots in change.new:
            first = page_no * PAGE_SLOTS
            for slot, location in slots.items():
                yield key(change.ledger_id, first + slot), value(location)
