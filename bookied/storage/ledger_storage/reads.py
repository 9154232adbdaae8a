"""Reads of entries: from memory, from the page cache, from files."""

from __future__ import annotations

import re
import struct
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from bookied.errors import CorruptError, IndexCutError, IndexEntryError, MissingLogError
from bookied.stats.metrics import StorageStats
from bookied.storage.entrylog.entry_rows import EntryRows
from bookied.storage.entrylog.format import is_possible
from bookied.storage.entrylog.reader import EntryLogReader, WantedEntry
from bookied.storage.index import file_names
from bookied.storage.index import format as layout
from bookied.storage.index.format import PAGE_SLOTS
from bookied.storage.index.ledger_pages import CachedLedger, LedgerPages
from bookied.storage.index.store import IndexStore
from bookied.storage.index.unflushed_locations import PageSlots, with_slots
from bookied.storage.ledger_storage.index_lock import IndexLock
from bookied.storage.write_cache import WriteCache
from wire.errors import NoSuchEntryError
from wire.ids import EntryId

LOADED_MAX: Final = 256
"""Loaded index pages that wait for the reactor; beyond the limit the oldest are dropped."""

_LAC: Final = struct.Struct(">q")
_LAC_AT: Final = 16
_EXPLICIT_LAC_AT: Final = 8


@attrs.frozen
class NeedsDisk:
    """An entry in a file: read it with ``fetch``, in another thread than the reactor's."""

    location: int
    """0 if only the index knows the location."""

    state: CachedLedger
    changes: int
    """The value of ``state.changes`` at the lookup."""


@attrs.define(eq=False, slots=False)
class StoredEntryReads:
    """The reads of one storage: locations of entries, and their bytes.

    Changes only caches for readers.

    Methods that use memory belong to the reactor's thread, unless they say otherwise. Index pages
    that threads have loaded wait in a bounded queue for the reactor.
    """

    _index: IndexStore
    _pages: LedgerPages
    _turn: IndexLock
    _cache: WriteCache
    _reader: EntryLogReader = attrs.field(alias="logs")
    _stats: StorageStats
    # Calls for the reactor, about index pages that readers' threads have loaded or not found.
    _loaded: deque[Callable[[], None]] = attrs.field(
        factory=lambda: deque(maxlen=LOADED_MAX), init=False
    )

    def has_place(self, entry_id: int) -> bool:
        """Return whether the index can store an entry id; adds of other ids are refused."""
        return self._index.writes_locations or layout.has_place(entry_id)

    def read_memory(self, state: CachedLedger, entry_id: int) -> bytes | NeedsDisk | None:
        """Return an entry packet or where to read it; None if the entry is missing.

        Never waits for a disk. The operating system's page cache counts as memory. It also reads
        ahead, because entries are in the log in order of arrival. An index file has no checksum, so
        ``fetch`` decides whether an entry below the last one is missing.
        """
        if not 0 <= entry_id <= state.last_entry:
            return None
        location = state.location(entry_id)
        if location is None and self._loaded:
            self._keep_loaded()
            location = state.location(entry_id)
        if location is None:
            return NeedsDisk(0, state, state.changes)
        if location == 0:
            may_be_lost = entry_id >> 10 < state.file_pages and not self._index.writes_locations
            return NeedsDisk(0, state, state.changes) if may_be_lost else None
        ledger_id = state.ledger_id
        return (
            self._cache.get(location, ledger_id, entry_id)
            or self._reader.read_now(location, ledger_id, entry_id)
            or NeedsDisk(location, state, state.changes)
        )

    @property
    def until(self) -> int:
        """The location below which all entries are in files only."""
        return self._cache.until

    def copy_now(
        self, wanted: Iterable[WantedEntry], target: memoryview, gap_bytes: int, bytes_max: int
    ) -> list[int]:
        """Copy entries from the page cache; see ``EntryLogReader.copy_now``."""
        return self._reader.copy_now(wanted, target, gap_bytes, bytes_max)

    def read_rows(
        self,
        state: CachedLedger,
        entry_id: int,
        count_max: int,
        bytes_max: int,
        stride: int = 1,
        entry_bytes: int = 0,
    ) -> EntryRows | None:
        """Return entries ``stride`` ids apart from one access to memory; never waits.

        ``entry_bytes`` is the expected size of an entry. None if the first entry cannot be
        returned, for any reason: ``read_memory`` says which.
        """
        locations = state.locations(entry_id, count_max, stride)
        if not locations or not locations[0]:
            return None
        ledger_id = state.ledger_id
        return self._cache.rows(
            locations, ledger_id, entry_id, bytes_max, stride
        ) or self._reader.read_rows_now(
            locations,
            ledger_id,
            entry_id,
            bytes_max=bytes_max,
            until=self._cache.until,
            stride=stride,
            entry_bytes=entry_bytes,
        )

    def rows_on_disk(
        self, state: CachedLedger, entry_id: int, count_max: int, stride: int = 1
    ) -> Callable[[int, int], EntryRows | None] | None:
        """Return a function that reads entries ``stride`` ids apart, in any thread.

        None if none exist.

        The function accepts the bytes that fit and the expected size of an entry, and raises as
        ``read_disk``. It reads files only: the locations are looked up here.
        """
        locations, until = state.locations(entry_id, count_max, stride), self._cache.until
        if not locations or not 0 < locations[0] < until:
            return None
        return lambda bytes_max, entry_bytes: self._reader.read_rows(
            locations,
            state.ledger_id,
            entry_id,
            bytes_max=bytes_max,
            until=until,
            stride=stride,
            entry_bytes=entry_bytes,
        )

    def _keep_loaded(self) -> None:
        self._stats.pages_loaded += len(self._loaded)
        while self._loaded:
            self._loaded.popleft()()

    def load_pages(self, pages: Sequence[tuple[int, int]]) -> int:
        """Load index pages that are read next into memory; return their number. Blocks shortly.

        One disk access for all costs less than a thread for each. If a page is not in memory
        afterwards, ``fetch`` reads it or raises the error.
        """
        count = self._pages.load_pages(pages)
        self._stats.pages_loaded += count
        return count

    def fetch(self, needed: NeedsDisk, entry_id: int) -> bytes:
        """Return an entry packet from the files. Blocks; any thread.

        The index page that was read for it stays in memory for the next reads.

        Raises:
            As ``read_disk``.
        """
        ledger_id, location = needed.state.ledger_id, needed.location
        if not location:
            page_no = entry_id >> 10
            try:
                page = self._index.load_page(ledger_id, page_no)
            except IndexCutError as error:
                self._loaded.append(partial(self._pages.is_cut, needed.state, error))
                raise
            kept = partial(self._pages.keep_read, needed.state, needed.changes, page_no, page)
            self._loaded.append(kept)
            location = page[entry_id & (PAGE_SLOTS - 1)]
            if not location and not self._index.writes_locations:
                self._require_missing(ledger_id, entry_id, page)
            if location and not is_possible(location):
                location = 0  # ``read_disk`` then gets the error from the index.
        return self.read_disk(location, ledger_id, entry_id)

    def _require_missing(self, ledger_id: int, entry_id: int, page: array[int]) -> None:
        """Check that no log has an entry without location, near the entries before and after it.

        Raises:
            IndexEntryError: a log has the entry: its slot in the index was overwritten with zeros.
            CorruptError: the index or a log is damaged. So for ``OSError``.
        """
        page_no, slot = divmod(entry_id, PAGE_SLOTS)
        before = _first_location(reversed(page[:slot]))
        if not before and page_no:
            before = _first_location(reversed(self._index.load_page(ledger_id, page_no - 1)))
        after = _first_location(page[slot + 1 :])
        after = after or _first_location(self._index.load_page(ledger_id, page_no + 1))
        for location in filter(is_possible, (before, after)):
            if self._reader.is_near(location, ledger_id, entry_id):
                message = f"no location of entry {entry_id}, which is in log {location >> 32:x}"
                raise IndexEntryError(file_names.relative_path(ledger_id), None, message)

    def read_disk(self, location: int, ledger_id: int, entry_id: int) -> bytes:
        """Return an entry packet from the files. Blocks; any thread.

        Args:
            location: as in ``NeedsDisk``.
            ledger_id: of the entry.
            entry_id: of the entry.

        Raises:
            NoSuchEntryError: the index has no such entry.
            CorruptError: the index or the log is damaged there.
            OSError: the index or the log cannot be read.
        """
        while True:
            location = location or self._index.location(ledger_id, entry_id)
            if not location:
                raise NoSuchEntryError(f"entry {entry_id} of ledger {ledger_id}")
            try:
                return self._reader.read(location, ledger_id, entry_id)
            except MissingLogError:
                # Since the lookup a compaction may have moved the entry, or a deletion removed it.
                # The index on disk changes before the log is removed.
                if self._index.location(ledger_id, entry_id) == location:
                    raise
                location = 0

    def stored_pages(self, ledger_id: int) -> Iterator[tuple[int, array[int]]]:
        """Yield the index pages on disk; the entries they point at are on disk too. Any thread.

        Raises:
            CorruptError: the index is damaged. So for ``OSError``.
        """
        return self._index.pages(ledger_id)

    def check_disk(self, location: int, ledger_id: int, entry_id: int) -> None:
        """Check that an entry is in its log, at its location from ``stored_pages``. Any thread.

        An entry that was moved since is checked at its new location; a deleted entry is ignored.

        Raises:
            CorruptError: the entry is missing, or the index is damaged.
            OSError: the index or the log cannot be read.
        """
        try:
            self._reader.check(location, ledger_id, entry_id)
        except CorruptError:
            now = self._index.location(ledger_id, entry_id)
            if now == location:
                raise
            if now:
                self._reader.check(now, ledger_id, entry_id)

    def not_in_logs(self, entries: Mapping[EntryId, NeedsDisk]) -> set[EntryId]:
        """Return the entries that are not in their logs. Blocks; any thread.

        Raises:
            CorruptError: the index is damaged.
            OSError: the index or a log cannot be read.
        """
        missing = set()
        for entry_id, needed in entries.items():
            ledger_id = needed.state.ledger_id
            location = needed.location or self._index.location(ledger_id, entry_id)
            try:
                if location:
                    self.check_disk(location, ledger_id, entry_id)
            except CorruptError:
                location = 0
            if not location:
                missing.add(entry_id)
        return missing

    def runs_by_page(
        self, ledger_id: int, first_page: int = 0
    ) -> Generator[tuple[int, list[tuple[int, int]]], None, None]:
        """Yield the stored entries for each page from ``first_page`` on: page number, and runs.

        A run is its first id and its length; runs ascend. Reads the index; any thread.
        """
        state = self._pages.hot.get(ledger_id)
        # Read new locations first: a location that leaves them meanwhile is in a page or on disk by
        # then.
        locations = state.new if state is not None else None
        new = locations.snapshot() if locations is not None else {}
        in_memory = dict(state.pages) if state is not None else {}
        is_on_disk = state.file_pages if state else ledger_id not in self._turn.deleted
        on_disk = self._index.pages(ledger_id, first_page) if is_on_disk else iter(())
        for page_no, page in _latest(in_memory, new, on_disk, first_page):
            first, runs = page_no * PAGE_SLOTS, []
            if page.tobytes().strip(b"\0"):
                used = _USED.finditer(bytes(map(bool, page)))
                runs = [(first + run.start(), run.end() - run.start()) for run in used]
            yield page_no, runs


def _first_location(page: Iterable[int]) -> int:
    """Return the first location of a page or of a part of it, 0 if there is none."""
    return next(filter(None, page), 0)


_USED: Final = re.compile(b"\x01+")
"""Runs of slots with a location, in bytes that are 1 for each slot with one."""


def _latest(
    in_memory: Mapping[int, array[int]],
    new: Mapping[int, PageSlots],
    on_disk: Iterable[tuple[int, array[int]]],
    first_page: int,
) -> Iterator[tuple[int, array[int]]]:
    """Yield pages by number, one at a time; pages in memory replace those on disk."""

    def known(page_no: int, stored: array[int] | None) -> array[int]:
        page = in_memory.get(page_no)
        return with_slots(stored, new[page_no]) if page is None else page

    waiting = sorted((one for one in {*in_memory, *new} if one >= first_page), reverse=True)
    for page_no, stored in on_disk:
        while waiting and waiting[-1] < page_no:
            yield waiting[-1], known(waiting.pop(), None)
        is_in_memory = waiting and waiting[-1] == page_no
        yield page_no, known(waiting.pop(), stored) if is_in_memory else stored
    while waiting:
        yield waiting[-1], known(waiting.pop(), None)


def explicit_lac(packet: bytes) -> int:
    """Return the LAC in the packet of an explicit LAC."""
    return int(_LAC.unpack_from(packet, _EXPLICIT_LAC_AT)[0])


def packet_lac(packet: bytes) -> int:
    """Return the LAC that the writer stored in an entry."""
    return int(_LAC.unpack_from(packet, _LAC_AT)[0])
