"""LedgerStorage: write cache, entry logs and index as one; what a checkpoint flushes.

An add goes to memory only: the entry's bytes to the entry log's queue and the write cache, its
location to an index page. The journal makes it durable; a checkpoint moves it to files, in the
order of storage.md section 9, and then old journals may go.

All methods belong to the reactor's thread unless they say otherwise. Memory is bounded by
``StorageLimits``.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

import attrs

from bookied.stats.metrics import StorageStats
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.entrylog.next_log_directory import LogDirectories
from bookied.storage.entrylog.reader import EntryLogReader, next_log_id
from bookied.storage.entrylog.writer import EntryLogWriter
from bookied.storage.files.files import Files
from bookied.storage.index import format as layout
from bookied.storage.index.format import PAGE_BYTES
from bookied.storage.index.ledger_pages import CachedLedger, LedgerPages
from bookied.storage.index.store import IndexStore
from bookied.storage.ledger_storage.adds import EntryAdds, UnflushedChanges
from bookied.storage.ledger_storage.entry_logs import EntryLogs
from bookied.storage.ledger_storage.flush import Flush, is_due
from bookied.storage.ledger_storage.index_lock import IndexLock
from bookied.storage.ledger_storage.ledgers import StoredLedgers
from bookied.storage.ledger_storage.reads import StoredEntryReads
from bookied.storage.ledger_storage.relocation import Relocation
from bookied.storage.ledger_storage.storage_limits import RunBlocking, StorageEvents, StorageLimits
from bookied.storage.write_cache import WriteCache


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

    A bookie has one of them, or one for each ledger directory: ``storages.Storages``. What can be
    done with entries and ledgers is in its parts; here is what concerns all of them: start and
    stop, space, memory, checkpoints.
    """

    ledgers_class: ClassVar[type[StoredLedgers]] = StoredLedgers
    reads_class: ClassVar[type[StoredEntryReads]] = StoredEntryReads
    """What it is made of; a test puts others in, to see their faults found."""

    def __init__(
        self,
        files: Files,
        ledger_directories: Sequence[Path],
        index: IndexStore,
        *,
        events: StorageEvents,
        rng: random.Random | None = None,
        limits: StorageLimits | None = None,
        log_settings: LogSettings | None = None,
        index_version: int = layout.VERSION,
    ) -> None:
        """Prepare; nothing is read before ``open``.

        Args:
            files: the disk.
            ledger_directories: their ``current`` directories, in configured order; they exist.
            index: where ledgers and locations are kept; not open yet.
            events: who is notified.
            rng: picks the directory of a new log among the writable ones.
            limits: of memory.
            log_settings: how entry logs are written.
            index_version: ``fileInfoFormatVersionToWrite``, of the headers of new ledgers.
        """
        self._files, self._index = files, index
        self.limits = limits = limits or StorageLimits()
        self.directories = LogDirectories(ledger_directories, rng=rng, on_full=events.on_full)
        self.stats = StorageStats()
        self._pages = pages = LedgerPages(
            index,
            clean_pages_max=limits.clean_pages_max,
            ledgers_max=limits.ledgers_max,
            read_pages_bytes_max=limits.read_pages_bytes_max,
            header_version=index_version,
            keeps_before=index.writes_locations,
        )
        self.hot: dict[int, CachedLedger] = pages.hot
        """The ledgers in memory."""
        self._cache = cache = WriteCache(bytes_max=limits.cache_bytes)
        self._reader = reader = EntryLogReader(
            files, self.directories.all, open_logs_max=limits.open_logs_max
        )
        self._log = writer = EntryLogWriter(
            files,
            self.directories,
            on_fatal=events.on_fatal,
            on_given_up=events.on_given_up,
            settings=log_settings,
        )
        self._changes, turn = UnflushedChanges(), IndexLock(index)
        self._turn = turn
        self.reads = self.reads_class(
            index, pages, turn, cache=cache, logs=reader, stats=self.stats
        )
        """Entries as they are read."""
        self.ledgers = self.ledgers_class(
            index, pages, turn, self._changes, reads=self.reads, logs=reader
        )
        """Which ledgers there are, and what is known of them."""
        self.adds = EntryAdds(writer, cache, pages, self._changes)
        """Entries as they come in."""
        self.relocation = Relocation(index, pages, turn, log=writer, logs=reader)
        """Entries that compaction moves."""
        self.logs = EntryLogs(files, self.directories, writer=writer, reader=reader)
        """Entry logs as files."""
        self._flush = Flush(
            index,
            pages,
            turn,
            self._changes,
            adds=self.adds,
            log=writer,
            cache=cache,
            on_full=events.on_full,
        )

    # Start and stop -------------------------------------------------------------------------------

    def open(self) -> None:
        """Find the ledgers and the next free log id. Blocks; no threads yet.

        Raises:
            OSError: a directory cannot be read.
        """
        self._index.open()
        self._log.ids.next = next_log_id(self._files, self.directories.all)

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

    # Space ----------------------------------------------------------------------------------------

    def avoid(
        self,
        full: Collection[Path],
        nearly_full: Collection[Path] = (),
        tight: Collection[Path] = (),
    ) -> None:
        """Put new files where there is space for them; see ``LogDirectories.avoid``."""
        left = self.directories.avoid(full, nearly_full, tight)
        self._index.avoid(full)
        self._log.leave(left)

    @property
    def lacks_space(self) -> bool:
        """Whether any directory had no space since the last look at the disks."""
        return self.directories.any_without_space or self.is_out_of_space

    @property
    def is_out_of_space(self) -> bool:
        """Whether something waits for space on a disk, and no other directory has any."""
        return self._log.is_out_of_space or self._flush.index_has_no_space

    # Memory ---------------------------------------------------------------------------------------

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
    def open_indexes(self) -> int:
        """How many index files are open for reading."""
        return self._index.open_count

    @property
    def written_bytes(self) -> int:
        """How much went into entry logs since the start."""
        return self._log.written_bytes

    def drop_idle(self) -> None:
        """Forget ledgers beyond the limit that were only read; a checkpoint does so in the end."""
        if not self._turn.is_taken:  # What is being written looks clean, and is not on disk yet.
            self._pages.drop_idle_ledgers()

    # Checkpoints ----------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """Whether anything was added or changed since the last checkpoint began."""
        return self._changes.any

    @property
    def needs_checkpoint(self) -> bool:
        """Whether one is due now, before its time."""
        return is_due(self.limits, self._changes, self._pages)

    def note_synced(self) -> None:
        """Note that the index is as durable as a mark says from now on. Blocks."""
        self._index.note_synced()

    async def remove_deleted(self, run_blocking: RunBlocking) -> None:
        """Remove deleted ledgers from the index, durably; see ``Flush``."""
        await self._flush.remove_deleted(run_blocking)

    async def flush(self, run_blocking: RunBlocking) -> None:
        """Make durable in files all that is in memory at the call; see ``Flush``.

        Raises:
            StorageError: not all was written.
            OSError: likewise.
        """
        began_s = self.stats.seconds()
        await self._flush.run(run_blocking)
        self.stats.flush.observe((self.stats.seconds() - began_s) * 1000)
