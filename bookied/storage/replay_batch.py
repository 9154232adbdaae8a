"""Replayed entries on their way to a storage: their bytes as they are, their places in the index.

Of a run only the location in the index page is looked after entry by entry.
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
    """Where the entries of one ledger go, until the batches are drained.

    ``batch`` is None for a ledger that was deleted, ``state`` for one whose index is damaged: its
    bytes are kept.
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
        """Of the page that every entry may be put into without a further look."""
        self.page: WritablePage = []

    def page_of(self, entry_id: int) -> WritablePage | None:
        """Return the page an entry belongs to; None where the index cannot have it."""
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
        # Few new locations become the page once they are many: it has to be asked for each time.
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
        self._next = self._limit = 0  # Where the batch ends now, and where its reservation does.
        self.pages = 0
        """How often entries went from one index page to another since this was last set."""
        self.undrained_bytes = 0
        """What it took since this was last set."""

    def add(
        self, heads: Sequence[EntryHead], records: bytes, targets: Mapping[int, ReplayTarget]
    ) -> None:
        """Take a run of entries, and put their locations into the index.

        Args:
            heads: of the entries.
            records: the entries, as an entry log has them.
            targets: by ledger id; all of these are of this storage.
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
        """Give the batch to storage; nothing may come between that and what set its locations."""
        if self._pieces:
            blob, counted = b"".join(self._pieces), tuple(self._counted.items())
            self._storage.adds.append(blob, counted, locations=self._entries)
            self._pieces, self._counted, self._entries = [], {}, 0
        self._next = self._limit = 0


class ConcurrentWrites:
    """Writes replayed entries to their logs in a thread, while more of them are read."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._thread: threading.Thread | None = None
        self._is_done = True

    def begin(self) -> None:
        """Write all that storages have got so far; ``wait`` before this is called again."""
        self._storages.write_soon()
        self._is_done = False
        self._thread = threading.Thread(target=self._write, name="replay-writes", daemon=True)
        self._thread.start()

    def wait(self) -> bool:
        """Return once nothing is written any more; whether all was, for ``write_out`` says why."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        return self._is_done

    def _write(self) -> None:
        self._is_done = self._storages.write_handed_over()
