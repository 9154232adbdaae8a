"""Batches of replayed entries: their bytes, unchanged, and their locations in the index.

Of each entry of a run only the location in its index page is set one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from twisted.logger import Logger

from bookied.storage.index.format import PAGE_SLOTS
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.index.unflushed_locations import WritablePage
from bookied.storage.journal import format as layout
from bookied.storage.journal.reader import EntryHead
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.storages import Storages

log = Logger()

BATCH_BYTES: Final = 256 * 1024
_NO_PAGE: Final = -1


class ReplayTarget:
    """The destination of one ledger's entries, until the batches are drained.

    ``batch`` is None if the ledger was deleted. ``state`` is None if its index is damaged: the
    bytes of its entries are kept.
    """

    __slots__ = ("_has_place", "batch", "page", "page_no", "state")

    def __init__(
        self,
        batch: ReplayBatch | None,
        state: CachedLedger | None,
        has_place: Callable[[int], bool],
    ) -> None:
        self.batch, self.state, self._has_place = batch, state, has_place
        self.page_no = _NO_PAGE
        """The number of a page on which every entry id has a place: no further check is needed."""
        self.page: WritablePage = []

    def page_of(self, entry_id: int) -> WritablePage | None:
        """Return the page of an entry; None if the index has no place for its id."""
        self.page_no = _NO_PAGE
        if self.state is None:
            return None
        if not self._has_place(entry_id):
            log.warn(
                "entry {entry} of ledger {id}: the index has no place for this id",
                entry=entry_id,
                id=self.state.ledger_id,
            )
            return None
        page_no = entry_id // PAGE_SLOTS
        self.page = self.state.page_for_write(page_no)
        # A short list of new locations turns into a page as it grows: ask for it each time.
        if page_no in self.state.pages and self._has_place((page_no + 1) * PAGE_SLOTS - 1):
            self.page_no = page_no
        return self.page


class ReplayBatch:
    """Entries for one storage."""

    def __init__(self, storage: LedgerStorage) -> None:
        self._storage = storage
        self._pieces: list[bytes] = []
        self._counted: dict[int, int] = {}
        self._entries = 0
        self._next = self._limit = 0  # Where the batch ends, and where its reservation ends.
        self.pages = 0
        """Changes from one index page to another since the counter was last reset."""
        self.undrained_bytes = 0
        """Bytes added since the counter was last reset."""

    def add(
        self, heads: Sequence[EntryHead], records: bytes, targets: Mapping[int, ReplayTarget]
    ) -> None:
        """Add a run of entries, and put their locations into the index.

        Args:
            heads: the heads of the entries.
            records: the entries, in the format of an entry log.
            targets: by ledger id; all targets of ``heads`` are in this storage.
        """
        if self._limit - self._next < len(records):
            self.store()
            size = max(len(records), BATCH_BYTES)
            self._next = self._storage.adds.reserve(size)
            self._limit = self._next + size
        location = self._next + layout.LENGTH.size
        counted = self._counted
        for length, ledger_id, entry_id, lac in heads:
            target = targets[ledger_id]
            page: WritablePage | None = target.page
            if entry_id >> 10 != target.page_no:
                page = target.page_of(entry_id)
                self.pages += 1
            state = target.state
            if page is not None and state is not None:
                page[entry_id & 1023] = location
                if entry_id > state.last_entry:  # noqa: PLR1730 -- a call costs five times as much
                    state.last_entry = entry_id
                if lac > state.lac:  # noqa: PLR1730
                    state.lac = lac
            size = length + 4
            counted[ledger_id] = counted.get(ledger_id, 0) + size
            location += size
        self._next += len(records)
        self._entries += len(heads)
        self._pieces.append(records)
        self.undrained_bytes += len(records)

    def store(self) -> None:
        """Append the batch to storage.

        Nothing else may be appended after its locations were set.
        """
        if self._pieces:
            blob, counted = b"".join(self._pieces), tuple(self._counted.items())
            self._storage.adds.append(blob, counted, locations=self._entries)
            self._pieces, self._counted, self._entries = [], {}, 0
        self._next = self._limit = 0


class ConcurrentWrites:
    """A thread that writes replayed entries to their logs while replay reads more."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._thread: threading.Thread | None = None
        self._is_done = True

    def begin(self) -> None:
        """Start to write all entries so far; call ``wait`` before the next ``begin``."""
        self._storages.write_soon()
        self._is_done = False
        self._thread = threading.Thread(target=self._write, name="replay-writes", daemon=True)
        self._thread.start()

    def wait(self) -> bool:
        """Wait for the thread; return whether it wrote everything.

        ``write_out`` reports the error.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        return self._is_done

    def _write(self) -> None:
        self._is_done = self._storages.write_handed_over()
