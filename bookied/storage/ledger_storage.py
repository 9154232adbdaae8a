"""LedgerStorage: write cache, entry logs and index as one; what a checkpoint flushes.

An add goes to memory only: the entry's bytes to the entry log's queue and the write cache, its
location to an index page. The journal makes it durable; a checkpoint moves it to files, in the
order of storage.md section 9, and then old journals may go.

All methods belong to the reactor's thread unless they say otherwise. Memory is bounded by
``StorageLimits``.
"""

from __future__ import annotations

import random
import struct
from array import array
from collections import Counter, deque
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.internet.defer import DeferredLock
from twisted.logger import Logger

from bookied.errors import (
    BadEntryLengthError,
    CorruptError,
    IndexFullError,
    MissingLogError,
    StorageError,
    WriteFailedError,
    WrongEntryError,
)
from bookied.metrics.stats import StorageStats
from bookied.storage.entrylog.format import LOCATION_BITS, is_possible
from bookied.storage.entrylog.reader import EntryLogReader, list_all_logs, next_log_id
from bookied.storage.entrylog.rows import Rows
from bookied.storage.entrylog.writer import EntryLogWriter, LedgerBytes
from bookied.storage.files.files import Files
from bookied.storage.index import format as layout
from bookied.storage.index.format import PAGE_BYTES, PAGE_SLOTS
from bookied.storage.index.ledger_pages import (
    LedgerChange,
    LedgerPages,
    LedgerState,
    Move,
    page_in_doubt,
)
from bookied.storage.index.store import IndexStore
from bookied.storage.journal.format import ledger_key_record
from bookied.storage.write_cache import WriteCache
from wire.errors import NoSuchEntryError

__all__ = [
    "LedgerState",
    "LedgerStorage",
    "NeedsDisk",
    "StorageLimits",
    "packet_lac",
]

log = Logger()

RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking function elsewhere and gives its value or error, as ``deferToThread`` does."""

LOADED_MAX: Final = 256
"""Index pages that wait to be taken by the reactor; the oldest are lost beyond."""

CHECKPOINT_PAGES: Final = 1024
"""Pages copied in one turn of the reactor: 8 MiB, a few milliseconds."""

PAGE_WORTH_READING: Final = 8
"""From so many locations on a whole page of the index is read rather than each of them."""

_LENGTH: Final = struct.Struct(">i")
_RECORD: Final = struct.Struct(">iqq")
_LAC: Final = struct.Struct(">q")
_LAC_AT: Final = 16
_EXPLICIT_LAC_AT: Final = 8


@attrs.frozen
class NeedsDisk:
    """The entry is in a file: get it with ``fetch``, off the reactor."""

    location: int
    """0 if only the index knows the place."""

    state: LedgerState
    changes: int
    """What ``state.changes`` was."""


@attrs.frozen(kw_only=True)
class StorageLimits:
    """How much memory the storage takes: about the sum of the first three, twice the pages.

    Beyond ``cache_bytes`` the oldest written entries leave memory. Unwritten ones never do: whoever
    accepts adds holds back above ``unwritten_bytes_max``. Dirty pages above ``dirty_pages_max``
    count as unwritten bytes and ask for a checkpoint; clean ones above ``clean_pages_max`` leave.
    """

    cache_bytes: int = 32 * 1024 * 1024
    unwritten_bytes_max: int = 64 * 1024 * 1024
    dirty_pages_max: int = 4096
    clean_pages_max: int = 1024
    read_pages_bytes_max: int = 8 * 1024 * 1024
    """Index pages kept for readers alone, some 700 to 8,900 bytes each."""

    ledgers_max: int = 20_000
    """Ledgers in memory; clean ones beyond are forgotten, at some 0.5 KiB each."""

    checkpoint_bytes: int = 512 * 1024 * 1024
    """Ask for a checkpoint after so many bytes of entries: bounds what a restart replays."""

    open_logs_max: int = 256
    open_indexes_max: int = 1024
    open_to_write_max: int = 128
    """Index files open at once while a checkpoint writes."""

    def share(self, count: int) -> StorageLimits:
        """Return the limits of each of ``count`` storages that have these together."""
        whole = attrs.asdict(self)
        return StorageLimits(**{name: max(1, value // count) for name, value in whole.items()})


@attrs.frozen(kw_only=True)
class StorageMemory:
    """What a storage holds in memory, for metrics."""

    ledgers: int
    cache_bytes: int
    unwritten_bytes: int
    dirty_pages: int
    clean_pages: int
    read_pages: int
    read_pages_bytes: int
    evicted_ledgers: int
    """Ledgers that had to leave, ever."""


class LedgerStorage:
    """Entries and ledgers of one log-id space: some ledger directories, one log, one index.

    A bookie has one of them, or one for each ledger directory: ``storages.Storages``.
    """

    def __init__(
        self,
        files: Files,
        ledger_directories: Sequence[Path],
        index: IndexStore,
        *,
        on_fatal: Callable[[WriteFailedError], object],
        on_full: Callable[[Path], object] = lambda path: None,  # noqa: ARG005
        on_given_up: Callable[[], object] = lambda: None,
        rng: random.Random | None = None,
        limits: StorageLimits | None = None,
        log_size_bytes_max: int = 1024 * 1024 * 1024,
        direct: bool = True,
        index_version: int = layout.VERSION,
    ) -> None:
        """Prepare; nothing is read before ``open``.

        Args:
            files: the disk.
            ledger_directories: their ``current`` directories, in configured order; they exist.
            index: where ledgers and locations are kept; not open yet.
            on_fatal: entries can no longer be written, the bookie has to stop. From any thread.
            on_full: this directory has no room, and yet something has to be written there; see
                ``is_out_of_room``. From any thread.
            on_given_up: ``take_back`` is waited for. From any thread; without a thread of the entry
                log's, ``flush`` does it.
            rng: picks the directory of a new log among the writable ones.
            limits: of memory.
            log_size_bytes_max: ``logSizeLimit``.
            direct: write entry logs past the page cache where possible.
            index_version: ``fileInfoFormatVersionToWrite``, of the headers of new ledgers.
        """
        self._files = files
        self.ledger_directories = tuple(ledger_directories)
        self.writable_directories: Sequence[Path] = self.ledger_directories
        """Those that are not full; whoever watches the disks says what to ``avoid``."""
        self._best_directories: Sequence[Path] = self.ledger_directories
        self._without_room: frozenset[Path] = frozenset()
        self._index_has_no_room = False
        self._on_full = on_full
        self._rng = rng or random.Random()
        self.limits = limits or StorageLimits()
        self._index = index
        self._pages = LedgerPages(
            self._index,
            clean_pages_max=self.limits.clean_pages_max,
            ledgers_max=self.limits.ledgers_max,
            read_pages_bytes_max=self.limits.read_pages_bytes_max,
            header_version=index_version,
            keeps_before=index.writes_locations,
        )
        self.hot: dict[int, LedgerState] = self._pages.hot
        """The ledgers in memory."""
        self._cache = WriteCache(bytes_max=self.limits.cache_bytes)
        self._reader = EntryLogReader(
            files, self.ledger_directories, open_logs_max=self.limits.open_logs_max
        )
        self._log = EntryLogWriter(
            files,
            self.ledger_directories,
            choose_directory=self._choose_directory,
            other_directory=self._other_directory,
            on_fatal=on_fatal,
            on_full=self._found_full,
            on_given_up=on_given_up,
            size_bytes_max=log_size_bytes_max,
            direct=direct,
        )
        self._base = 0
        # Pages that readers' threads have loaded, until the reactor takes them.
        self._loaded: deque[tuple[LedgerState, int, int, array[int]]] = deque(maxlen=LOADED_MAX)
        self.stats = StorageStats()
        self._bytes_since_checkpoint = 0
        self._deleted_meanwhile: set[int] = set()
        self._writing = DeferredLock()
        self._is_writing = False
        self._unsure: list[Move] = []  # What may be switched on the disk, or not.
        self._copying_since: int | None = None  # How often logs had been given up by then.
        self.has_changes = False
        """Whether anything was added or changed since the last checkpoint began."""

    # Start and stop -------------------------------------------------------------------------------

    def open(self) -> None:
        """Find the ledgers and the next free log id. Blocks; no threads yet.

        Raises:
            OSError: a directory cannot be read.
        """
        self._index.open()
        self._log.next_log_id = next_log_id(self._files, self.ledger_directories)

    def avoid(
        self,
        full: Collection[Path],
        nearly_full: Collection[Path] = (),
        tight: Collection[Path] = (),
    ) -> None:
        """Put new files where there is room for them, by what a look at the disks has found.

        Args:
            full: take new files only while all are.
            nearly_full: take new entry logs only while no other is left.
            tight: those of the full ones that should not even take an entry log then.
        """
        self._without_room = frozenset()
        best: Sequence[Path] = self.ledger_directories
        for worse in (tight, full, nearly_full):
            best = _without(best, worse)
        self._best_directories = best
        self.writable_directories = _without(self.ledger_directories, full)
        self._index.avoid(full)
        self._log.leave(set(self.ledger_directories).difference(best))

    def _choose_directory(self) -> Path:
        return self._rng.choice(_without(self._best_directories, self._without_room))

    def _other_directory(self, full: Path) -> Path | None:
        """Return one that is not known to have no room, instead of one found so. Any thread."""
        for group in (self._best_directories, self.ledger_directories):
            others = [one for one in group if one != full and one not in self._without_room]
            if others:
                return self._rng.choice(others)
        return None

    def _found_full(self, directory: Path) -> None:
        """Remember that a write found no room; in the entry log's thread."""
        self._without_room |= {directory}
        self._on_full(directory)

    @property
    def lacks_room(self) -> bool:
        """Whether any directory had no room since the last look at the disks."""
        return bool(self._without_room) or self.is_out_of_room

    def start(self) -> None:
        """Write entry logs in a thread from now on."""
        self._log.start()

    def close(self) -> None:
        """End the thread and close all files; ``flush`` before has put everything there. Blocks."""
        self._reader.close()
        self._index.close()
        self._log.stop()

    def abandon(self) -> None:
        """End the thread and close all files without writing what is in memory. Blocks."""
        self._log.abandon()
        self._reader.close()
        self._index.close()

    # Ledgers --------------------------------------------------------------------------------------

    def lookup(self, ledger_id: int) -> LedgerState | None:
        """Return a ledger; None if it is unknown. May read the head of its index file.

        Raises:
            CorruptError: its index file is damaged.
            OSError: its index file cannot be read.
        """
        state = self.hot.get(ledger_id)
        if state is None and ledger_id not in self._deleted_meanwhile:
            state = self._pages.find(ledger_id)
            if state is not None and state.lac < 0:
                self._restore_lac(state)
        return state

    def _restore_lac(self, state: LedgerState) -> None:
        """Set the highest LAC from what is stored: the last entry's and the explicit one."""
        if state.explicit_lac is not None:
            state.lac = _explicit_lac(state.explicit_lac)
        if state.last_entry >= 0:
            try:
                packet = self.read_disk(0, state.ledger_id, state.last_entry)
            except (CorruptError, NoSuchEntryError, OSError) as error:
                if isinstance(error, (WrongEntryError, BadEntryLengthError)):
                    # No crash does this: the index is another ledger's, or out of date.
                    state.doubt = state.doubt or error
                log.warn("no LAC for ledger {id}: {error}", id=state.ledger_id, error=error)
            else:
                state.lac = max(state.lac, packet_lac(packet))

    def drop_idle(self) -> None:
        """Forget ledgers beyond the limit that were only read; a checkpoint does so in the end."""
        if not self._is_writing:  # What is being written looks clean, and is not on disk yet.
            self._pages.drop_idle_ledgers()

    def settle_doubt(self, state: LedgerState) -> None:
        """Drop the doubt about a ledger's index if it is only what a crash leaves.

        Of a page that a power cut tore while it was new, replay has brought all again; any other
        cut has taken away what was durable, as one in the first page has: that comes with the file.
        A page that also has slots which no replay brings waits for the checkpoint that writes the
        page: the file is whole from then on. Blocks, for a page.

        Raises:
            OSError: the page cannot be read.
        """
        page_no = page_in_doubt(state)
        if page_no is not None:
            page = state.pages.get(page_no) or self._index.load_page(state.ledger_id, page_no)
            used = {one >> 32 for one in page if one}
            if used and used <= self._log.paths.keys():
                state.doubt = None

    def begin_anew(self, ledger_id: int, in_journals: Callable[[], set[int]]) -> bool:
        """Forget a ledger's index if nothing was ever written to it; say whether. Blocks.

        Where a log has entries that the journals to be replayed have not there was once more than
        an empty file.

        Args:
            ledger_id: whose index.
            in_journals: gives the ids of its entries there; called where a log has any.
        """
        logged = self._reader.entries_of(ledger_id)
        if logged is None or (logged and not logged <= in_journals()):
            return False
        return self._index.begin_anew(ledger_id)

    def create(self, ledger_id: int, master_key: bytes) -> LedgerState:
        """Return a new ledger, one that ``lookup`` does not know."""
        self.has_changes = True
        return self._pages.create(ledger_id, master_key)

    def adopt_key(self, state: LedgerState, master_key: bytes) -> bool:
        """Replace a master key that a rebuilt index left empty or all zero; say whether it was."""
        if state.master_key.strip(b"\0"):
            return False
        state.master_key = master_key
        state.key_logged = False
        self._header_changed(state)
        return True

    def set_fenced(self, state: LedgerState) -> None:
        """Refuse ordinary adds from now on; durable with the journal, later with a checkpoint."""
        state.fenced = True
        self._header_changed(state)

    def set_explicit_lac(self, state: LedgerState, packet: bytes) -> None:
        """Keep an explicit LAC; durable with the journal, later with a checkpoint.

        It replaces the one before, higher or lower; the highest LAC seen only grows.
        """
        state.explicit_lac = packet
        state.lac = max(state.lac, _explicit_lac(packet))
        self._header_changed(state)

    @property
    def keeps_limbo(self) -> bool:
        """Whether ``set_limbo`` can be used: DbLedgerStorage only, as in Java."""
        return self._index.keeps_limbo

    def set_limbo(self, state: LedgerState, *, limbo: bool) -> None:
        """Note that entries may be missing that were acknowledged, or that it is made up for.

        Durable with the next checkpoint, as the entries are that make up for it; no journal has it.

        Raises:
            StorageError: the index has no place for it.
        """
        if not self._index.keeps_limbo:
            raise StorageError("only DbLedgerStorage can keep a ledger in limbo")
        if state.limbo != limbo:
            state.limbo = limbo
            self._header_changed(state)

    def _header_changed(self, state: LedgerState) -> None:
        self.has_changes = True
        self._pages.header_changed(state)

    def key_record(self, state: LedgerState) -> bytes:
        """Return the LEDGER_KEY record for the journal.

        It goes before any other record of a ledger unless ``state.key_logged``; set that then.
        Without it a replay takes the ledger for deleted and drops its fence (storage.md D1).
        """
        return ledger_key_record(state.ledger_id, state.master_key)

    def ledger_ids(self) -> list[int]:
        """Return all ledgers, in no order."""
        return list({*self._index.ledger_ids()} - self._deleted_meanwhile | {*self.hot})

    def delete(self, ledger_id: int) -> None:
        """Forget a ledger; what the index has of it goes with the next checkpoint."""
        self._pages.remove(ledger_id)
        if self._is_writing:
            # Its file may be open, or about to appear.
            self._deleted_meanwhile.add(ledger_id)
        else:
            self._index.hide(ledger_id)
        self.has_changes = True

    # Adding ---------------------------------------------------------------------------------------

    def reserve(self, size: int) -> int:
        """Return the location of the next record's length field; ``size`` bytes have room there.

        An entry's location is 4 more: that of its packet. Begins the next entry log if needed.

        Raises:
            NoWritableDirError: no directory takes another log.
        """
        self._base = base = self._log.reserve(size)
        return base

    def append(self, blob: bytes, counted: LedgerBytes | None = None) -> None:
        """Append joined ``[i32 length][entry packet]`` records at the place ``reserve`` gave.

        The caller sets index slots, ``last_entry`` and ``lac`` in the same turn of the reactor.

        Args:
            blob: the records.
            counted: (ledger id, bytes of its records) pairs, if known; else they are counted later.
        """
        turned = self._log.turn << LOCATION_BITS
        self._cache.append(turned + self._base, blob, self._log.readable_until)
        self._base += len(blob)
        self._log.append(blob, counted)
        self._bytes_since_checkpoint += len(blob)
        self.has_changes = True

    def add(self, state: LedgerState, entry_id: int, packet: bytes) -> None:
        """Add one entry; a second one with the same id replaces the first.

        Raises:
            NoWritableDirError: no directory takes another entry log.
            OSError: the index page could not be read.
        """
        page = state.page_for_write(entry_id >> 10)
        size = _LENGTH.size + len(packet)
        location = self.reserve(size) + _LENGTH.size
        self.append(_LENGTH.pack(len(packet)) + packet, ((state.ledger_id, size),))
        page[entry_id & (PAGE_SLOTS - 1)] = location
        state.last_entry = max(state.last_entry, entry_id)
        state.lac = max(state.lac, packet_lac(packet))

    @property
    def unwritten_bytes(self) -> int:
        """What is in memory only: hold back adds above ``limits.unwritten_bytes_max``."""
        pages = self._pages.dirty_page_count - self.limits.dirty_pages_max
        return self._log.unwritten_bytes + (pages * PAGE_BYTES if pages > 0 else 0)

    @property
    def memory(self) -> StorageMemory:
        """What it holds in memory, by what it is."""
        pages = self._pages
        return StorageMemory(
            ledgers=len(self.hot),
            cache_bytes=self._cache.size_bytes,
            unwritten_bytes=self._log.unwritten_bytes,
            dirty_pages=pages.dirty_page_count,
            clean_pages=pages.clean_page_count,
            read_pages=len(pages.read_pages),
            read_pages_bytes=pages.read_pages.size_bytes,
            evicted_ledgers=pages.evicted,
        )

    @property
    def ledger_count(self) -> int:
        """How many ledgers are here; without those deleted or made just now."""
        return len(self._index.ledger_ids())

    @property
    def open_indexes(self) -> int:
        """How many index files are open for reading."""
        return self._index.open_count

    @property
    def written_bytes(self) -> int:
        """How much went into entry logs since the start."""
        return self._log.written_bytes

    @property
    def is_out_of_room(self) -> bool:
        """Whether something waits for room on a disk, and there is no other directory with any."""
        return self._log.is_out_of_room or self._index_has_no_room

    # Reading --------------------------------------------------------------------------------------

    def has_place(self, entry_id: int) -> bool:
        """Return whether the index can have an entry; adds are refused that it cannot have."""
        return self._index.writes_locations or layout.has_place(entry_id)

    def read_memory(self, state: LedgerState, entry_id: int) -> bytes | NeedsDisk | None:
        """Return an entry packet or where to get it; None if there is no such entry.

        Never waits for a disk. The operating system's page cache counts as memory: it is what
        reads ahead here, too, as entries lie in the log in the order they came.
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
            return None
        ledger_id = state.ledger_id
        return (
            self._cache.get(location, ledger_id, entry_id)
            or self._reader.read_now(location, ledger_id, entry_id)
            or NeedsDisk(location, state, state.changes)
        )

    def read_rows(
        self, state: LedgerState, entry_id: int, count_max: int, room_bytes: int, stride: int = 1
    ) -> Rows | None:
        """Return entries ``stride`` ids apart that one look at memory brings; it never waits.

        None where that is none, for whatever reason: ``read_memory`` says which.
        """
        locations = state.locations(entry_id, count_max, stride)
        if not locations or not locations[0]:
            return None
        ledger_id = state.ledger_id
        return self._cache.rows(
            locations, ledger_id, entry_id, room_bytes, stride
        ) or self._reader.read_rows_now(
            locations,
            ledger_id,
            entry_id,
            room_bytes=room_bytes,
            until=self._cache.until,
            stride=stride,
        )

    def rows_on_disk(
        self, state: LedgerState, entry_id: int, count_max: int, stride: int = 1
    ) -> Callable[[int], Rows | None] | None:
        """Return what reads entries ``stride`` ids apart, in any thread; None if there are none.

        It takes the bytes that there is room for, and raises what ``read_disk`` does. It is about
        files alone: where the entries are is looked up here.
        """
        locations, until = state.locations(entry_id, count_max, stride), self._cache.until
        if not locations or not 0 < locations[0] < until:
            return None
        return lambda room_bytes: self._reader.read_rows(
            locations,
            state.ledger_id,
            entry_id,
            room_bytes=room_bytes,
            until=until,
            stride=stride,
        )

    def _keep_loaded(self) -> None:
        self.stats.pages_loaded += len(self._loaded)
        while self._loaded:
            self._pages.keep_read(*self._loaded.popleft())

    def fetch(self, needed: NeedsDisk, entry_id: int) -> bytes:
        """Return an entry packet from the files. Blocks; any thread.

        The page of the index that was needed for it stays in memory for the next reads.

        Raises:
            As ``read_disk``.
        """
        ledger_id, location = needed.state.ledger_id, needed.location
        if not location:
            page_no = entry_id >> 10
            page = self._index.load_page(ledger_id, page_no)
            self._loaded.append((needed.state, needed.changes, page_no, page))
            location = page[entry_id & (PAGE_SLOTS - 1)]
            if location and not is_possible(location):
                location = 0  # The index says what is wrong with it.
        return self.read_disk(location, ledger_id, entry_id)

    def read_disk(self, location: int, ledger_id: int, entry_id: int) -> bytes:
        """Return an entry packet from the files. Blocks; any thread.

        Args:
            location: as in ``NeedsDisk``.
            ledger_id: whose entry.
            entry_id: which entry.

        Raises:
            NoSuchEntryError: the index has no such entry.
            CorruptError: the index or the log is damaged there.
            OSError: it cannot be read.
        """
        while True:
            location = location or self._index.location(ledger_id, entry_id)
            if not location:
                raise NoSuchEntryError(f"entry {entry_id} of ledger {ledger_id}")
            try:
                return self._reader.read(location, ledger_id, entry_id)
            except MissingLogError:
                # A compaction may have moved the entry since it was looked up, or a deletion
                # taken it away. Before the log went the index on disk had been told.
                if self._index.location(ledger_id, entry_id) == location:
                    raise
                location = 0

    def stored_pages(self, ledger_id: int) -> Iterator[tuple[int, array[int]]]:
        """Give the index pages that are on disk, as are the entries they point at. Any thread.

        Raises:
            CorruptError: they are damaged. So for ``OSError``.
        """
        return self._index.pages(ledger_id)

    def check_disk(self, location: int, ledger_id: int, entry_id: int) -> None:
        """Make sure that an entry is in its log, where ``stored_pages`` had it. Any thread.

        One that was moved since is looked for where it is now; one that was deleted is no matter.

        Raises:
            CorruptError: it is not there, or the index is damaged.
            OSError: it cannot be read.
        """
        try:
            self._reader.check(location, ledger_id, entry_id)
        except CorruptError:
            now = self._index.location(ledger_id, entry_id)
            if now == location:
                raise
            if now:
                self._reader.check(now, ledger_id, entry_id)

    def has_entry(self, state: LedgerState, entry_id: int) -> bool:
        """Return whether an entry is here. May read the index, which blocks shortly.

        Raises:
            CorruptError: the index is damaged there.
            OSError: it cannot be read.
        """
        location = state.location(entry_id)
        if location is None:
            location = self._index.location(state.ledger_id, entry_id)
        return bool(location)

    def entries(self, ledger_id: int) -> list[int]:
        """Return the ids of the entries held, ascending. Reads index pages; any thread."""
        return list(self.iter_entries(ledger_id))

    def iter_entries(self, ledger_id: int) -> Iterator[int]:
        """Give the ids of the entries held, ascending. Reads index pages; any thread."""
        state = self.hot.get(ledger_id)
        in_memory = dict(state.pages) if state is not None else {}
        is_on_disk = state.file_pages if state else ledger_id not in self._deleted_meanwhile
        on_disk = self._index.pages(ledger_id) if is_on_disk else iter(())
        for page_no, page in _latest(in_memory, on_disk):
            first = page_no * PAGE_SLOTS
            yield from (first + slot for slot, location in enumerate(page) if location)

    # Checkpoints ----------------------------------------------------------------------------------

    def write_out(self) -> None:
        """Write the entries so far to their logs, without a sync. Blocks; where no thread does it.

        Raises:
            StorageError: they could not be written.
            OSError: likewise.
        """
        self._log.hand_over()
        while True:
            moves = self._log.moves
            try:
                while self._log.step():
                    pass
                break
            except OSError:
                if not self.take_back() and self._log.moves == moves:
                    raise
        self._cache.trim(self._log.readable_until)

    @property
    def needs_checkpoint(self) -> bool:
        """Whether one is due now, before its time."""
        return (
            self._bytes_since_checkpoint >= self.limits.checkpoint_bytes
            or self._pages.dirty_page_count >= self.limits.dirty_pages_max // 2
        )

    async def flush(self, run_blocking: RunBlocking) -> None:
        """Make durable in files all that is in memory at the call.

        In the order that a crash survives anywhere in between: entries, their logs synced, only
        then index pages and headers that point at them. A second one waits for the first.

        Raises:
            StorageError: not all was written.
            OSError: likewise.
        """
        began_s = self.stats.seconds()
        while True:
            moves = self._log.moves
            try:
                await self._flush(run_blocking)
                break
            except OSError:
                # Now or meanwhile, another log has taken what that one had no room for.
                if not self.take_back() and self._log.moves == moves:
                    raise
        self.stats.flush.observe((self.stats.seconds() - began_s) * 1000)

    def take_back(self) -> bool:
        """Append again what a log had no room for that was given up; say whether there was any.

        Nobody but the reactor changes locations, and a sync that was asked for before fails: so no
        index on disk ever points where these entries were to be.
        """
        taken = self._log.take_back()
        for base, blob in taken:
            self._append_again(base, blob)
        self._log.hand_over()
        return bool(taken)

    def _append_again(self, base: int, blob: bytes) -> None:
        """Append records, and let the index point there wherever it points at what they were."""
        shift = self.reserve(len(blob)) - base
        self.append(blob)
        at = 0
        while at < len(blob):
            length, ledger_id, entry_id = _RECORD.unpack_from(blob, at)
            location = base + at + _LENGTH.size
            state = self.hot.get(ledger_id)
            if state is not None and state.location(entry_id) == location:
                page = state.page_for_write(entry_id >> 10)
                page[entry_id & (PAGE_SLOTS - 1)] = location + shift
            at += _LENGTH.size + length

    async def _flush(self, run_blocking: RunBlocking) -> None:
        await self._begin_writing()
        self.has_changes, self._bytes_since_checkpoint = False, 0
        try:
            await run_blocking(self._index.remove_hidden)
            # One that is deleted and comes again meanwhile waits until its old file is gone.
            ledgers = (
                ledger_id
                for ledger_id in self._pages.dirty_ledgers()
                if ledger_id not in self._deleted_meanwhile
            )
            # Even without a page to write: replay keeps entries that no index points at.
            await self._sync_log(run_blocking)
            homeless: IndexFullError | None = None
            for changes in self._pages.take(ledgers, pages_max=CHECKPOINT_PAGES):
                homeless = await self._write_changes(changes, run_blocking) or homeless
            self._note_index_room(homeless)
            self._pages.drop_idle_ledgers()
            self._cache.trim(self._log.readable_until)
        except BaseException:
            self.has_changes = True
            raise
        finally:
            self._end_writing()

    async def _begin_writing(self) -> None:
        """Wait until nobody else writes to the index; deletions wait from then on."""
        await self._writing.acquire()
        self._is_writing = True

    def _end_writing(self) -> None:
        self._is_writing = False
        for ledger_id in self._deleted_meanwhile:
            self._index.hide(ledger_id)
        self._deleted_meanwhile.clear()
        self._writing.release()

    async def _sync_log(self, run_blocking: RunBlocking) -> None:
        self._log.hand_over()
        await run_blocking(partial(self._log.sync, self._log.moves))

    async def _write_changes(
        self, changes: list[LedgerChange], run_blocking: RunBlocking
    ) -> IndexFullError | None:
        """Write index pages and headers; return why some have found no room, if so."""
        try:
            await self._sync_log(run_blocking)
            await run_blocking(partial(self._index.write, changes))
        except IndexFullError as error:
            # One ledger without room does not keep the pages of all others in memory.
            self._pages.put_back(one for one in changes if one.ledger_id in error.ledger_ids)
            self._pages.written(one for one in changes if one.ledger_id not in error.ledger_ids)
            return error
        except BaseException:
            self._pages.put_back(changes)
            raise
        self._pages.written(changes)
        return None

    def _note_index_room(self, homeless: IndexFullError | None) -> None:
        """Fail the checkpoint if some ledgers' index had nowhere to go."""
        self._index_has_no_room = homeless is not None
        if homeless is not None:
            self._on_full(homeless.directory)
            raise homeless

    # Garbage collection ---------------------------------------------------------------------------

    def watch(self) -> set[int]:
        """Return a set that every ledger written to from now on comes into, until ``unwatch``."""
        return self._pages.watch()

    def unwatch(self, watched: set[int]) -> None:
        """End a watch."""
        self._pages.unwatch(watched)

    def are_fenced(self, ledger_ids: Sequence[int]) -> set[int]:
        """Return those that the disk has as fenced, or cannot tell. Blocks; any thread."""
        return {one for one in ledger_ids if self._is_fenced_on_disk(one)}

    def _is_fenced_on_disk(self, ledger_id: int) -> bool:
        try:
            stored = self._index.load(ledger_id)
        except (CorruptError, OSError):
            return True
        return stored is not None and stored.header.is_fenced

    def begun_logs(self) -> BegunLogs:
        """Return which logs may still be written to; see ``finished_logs``."""
        return BegunLogs(self._log.active_log_id, frozenset(self._log.paths))

    def finished_logs(self, begun: BegunLogs) -> dict[int, Path]:
        """Return the logs that were complete when ``begun`` was asked for, by id. Blocks.

        After a checkpoint that began after that, all that points into them is on disk. Logs whose
        id two directories have are not among them.
        """
        finished = begun.log_ids - {begun.active_log_id}
        unfinished = {begun.active_log_id, *self._log.paths} - finished
        found = list_all_logs(self._files, self.ledger_directories)
        return {
            log_id: paths[0]
            for log_id, paths in found.items()
            if len(paths) == 1 and log_id not in unfinished
        }

    def still_at(self, places: Sequence[tuple[int, int, int]]) -> list[bool]:
        """Say of each (ledger id, entry id, location) whether the index on disk has it there.

        Blocks; any thread.

        Raises:
            CorruptError: an index is damaged.
            OSError: it cannot be read.
        """
        for ledger_id in {ledger_id for ledger_id, _, _ in places}:
            self._insist_sure(ledger_id)
        pages: dict[tuple[int, int], array[int]] = {}
        counts = Counter((ledger_id, entry_id >> 10) for ledger_id, entry_id, _ in places)
        answers = []
        for ledger_id, entry_id, location in places:
            key = ledger_id, entry_id >> 10
            if ledger_id not in self._index:
                answers.append(False)
            elif counts[key] < PAGE_WORTH_READING:
                answers.append(self._index.location(ledger_id, entry_id) == location)
            else:
                if key not in pages:
                    pages[key] = self._index.load_page(*key)
                answers.append(pages[key][entry_id & (PAGE_SLOTS - 1)] == location)
        return answers

    def _insist_sure(self, ledger_id: int) -> None:
        """Make sure that what a ledger's index does not have may go: it may be the last copy."""
        stored = self._index.load(ledger_id)
        if stored is not None and stored.doubt is not None:
            raise stored.doubt

    def location_on_disk(self, ledger_id: int, entry_id: int) -> int:
        """Return where the index on disk has an entry, 0 for nowhere. Blocks; any thread."""
        return self._index.location(ledger_id, entry_id)

    def append_copies(self, blob: bytes, counted: LedgerBytes) -> int:
        """Append copies of records that nothing points at yet; return the first one's location.

        It is that of a length field, as of ``reserve``. Neither journal nor cache get them: what
        they are copies of stays until ``switch`` is done.

        Raises:
            NoWritableDirError: no directory takes another entry log.
        """
        if self._copying_since is None:
            self._copying_since = self._log.moves
        base = self._log.reserve(len(blob))
        self._log.append(blob, counted)
        return base

    async def sync_copies(
        self, samples: Sequence[tuple[int, int, int]], run_blocking: RunBlocking
    ) -> None:
        """Make durable what ``append_copies`` has appended, and make sure that it is there.

        A log without room may be given up meanwhile, and what it has not got goes elsewhere.

        Args:
            samples: location of the body, ledger id and entry id of the last record of each blob.
            run_blocking: runs what blocks.

        Raises:
            StorageError: they are not where they were to be; copy again. So for ``OSError``.
        """
        since, self._copying_since = self._copying_since, None
        self._log.hand_over()
        await run_blocking(partial(self._log.sync, since))
        await run_blocking(partial(self._insist_copied, samples))

    def _insist_copied(self, samples: Sequence[tuple[int, int, int]]) -> None:
        for sample in samples:
            try:
                self._reader.check(*sample)
            except CorruptError as error:
                raise StorageError(f"copies had no space at their target: {error}") from error

    async def switch(self, moves: Sequence[Move], run_blocking: RunBlocking) -> None:
        """Point entries elsewhere whose location is still the old one, durably.

        The new places are durable already, and the old ones stay readable until this has returned.
        The moves are of entries in finished logs: all that the memory has of their locations, the
        disk has as well. Those that failed before are made again first, even if there are no
        others; until that has worked, what the disk says of them must not be relied upon.

        Raises:
            CorruptError: an index is damaged; the old places are needed on. So for ``OSError``.
        """
        self._unsure += moves
        if not self._unsure:
            return
        await self._begin_writing()
        moves = self._unsure
        try:
            await run_blocking(partial(self._index.switch, moves))
            self._unsure = []
        finally:
            self._pages.switch(moves)
            self._end_writing()

    def new_log(self) -> tuple[int, Path]:
        """Return the id and the directory of a log that somebody else is going to write."""
        return self._log.give_out_id(), self._choose_directory()

    def note_log_id(self, log_id: int) -> None:
        """Note in files that an id was given out, so that none gets it again. Blocks.

        Raises:
            OSError: it could not be noted.
        """
        self._log.write_last_id(log_id)

    def remove_log(self, path: Path) -> None:
        """Remove a log that nothing points into, durably. Blocks.

        Raises:
            OSError: it may be there still.
        """
        if self._files.exists(path):
            self._files.remove(path)
        self._files.sync_dir(path.parent)

    def forget_log(self, log_id: int) -> None:
        """Let go of a log that was removed: of its file, and of what is known about it."""
        self._reader.forget(log_id)
        self._log.paths.pop(log_id, None)


@attrs.frozen
class BegunLogs:
    """Which entry logs this process had begun at some moment."""

    active_log_id: int
    log_ids: frozenset[int]


def _without(directories: Sequence[Path], full: Collection[Path]) -> Sequence[Path]:
    return tuple(one for one in directories if one not in full) or directories


def _latest(
    in_memory: Mapping[int, array[int]], on_disk: Iterable[tuple[int, array[int]]]
) -> Iterator[tuple[int, array[int]]]:
    """Give pages by number, one at a time; those in memory count before those on disk."""
    waiting = sorted(in_memory, reverse=True)
    for page_no, page in on_disk:
        while waiting and waiting[-1] < page_no:
            yield waiting[-1], in_memory[waiting.pop()]
        if waiting and waiting[-1] == page_no:
            waiting.pop()
        yield page_no, in_memory.get(page_no, page)
    while waiting:
        yield waiting[-1], in_memory[waiting.pop()]


def _explicit_lac(packet: bytes) -> int:
    return int(_LAC.unpack_from(packet, _EXPLICIT_LAC_AT)[0])


def packet_lac(packet: bytes) -> int:
    """Return the LAC that the writer of an entry stamped on it."""
    return int(_LAC.unpack_from(packet, _LAC_AT)[0])
