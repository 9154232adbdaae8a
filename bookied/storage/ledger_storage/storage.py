"""LedgerStorage: write cache, entry logs and index as one, and their checkpoints.

An add changes memory only: the entry's bytes are added to the entry log's queue and the write
cache, its location to an index page. The journal makes the entry durable. A checkpoint moves it to
files, in the order of storage.md section 9; then old journals may be removed.

All methods belong to the reactor's thread unless they say otherwise. ``StorageLimits`` limits
memory.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

import attrs

from bookied.stats.metrics import StorageStats
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.entrylog.log_ids_and_directories import LogDirectories
from bookied.storage.entrylog.log_list import next_log_id
from bookied.storage.entrylog.reader import EntryLogReader
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
    """The memory of a storage, for metrics."""

    ledgers: int
    cache_bytes: int
    unwritten_bytes: int
    dirty_pages: int
    clean_pages: int
    read_pages: int
    read_pages_bytes: int
    evicted_ledgers: int
    """Ledgers dropped from memory since the start."""


class LedgerStorage:
    """Entries and ledgers of one log-id space: some ledger directories, one log, one index.

    A bookie has one storage, or one for each ledger directory: ``storages.Storages``. The
    operations on entries and ledgers are in its parts. This class has what concerns all parts:
    start and stop, space, memory, checkpoints.
    """

    ledgers_class: ClassVar[type[StoredLedgers]] = StoredLedgers
    reads_class: ClassVar[type[StoredEntryReads]] = StoredEntryReads
    """The classes of its parts; a test replaces them to inject faults."""

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
            index: stores ledgers and locations; not open yet.
            events: the callbacks.
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
        """Reads of entries."""
        self.ledgers = self.ledgers_class(
            index, pages, turn, self._changes, reads=self.reads, logs=reader
        )
        """The ledgers and their state."""
        self.adds = EntryAdds(writer, cache, pages, self._changes)
        """Adds of entries."""
        self.relocation = Relocation(index, pages, turn, log=writer, logs=reader)
        """Moves of entries by compaction."""
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
        """Start the thread that writes entry logs."""
        self._log.start()

    def close(self) -> None:
        """End the thread and close all files. Call ``flush`` before, to write everything.

        Blocks.
        """
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
        """Create new files only where there is space; see ``LogDirectories.avoid``."""
        left = self.directories.avoid(full, nearly_full, tight)
        self._index.avoid(full)
        self._log.leave(left)

    @property
    def lacks_space(self) -> bool:
        """True if any directory had no space since the last check of the disks."""
        return self.directories.any_without_space or self.is_out_of_space

    @property
    def is_out_of_space(self) -> bool:
        """True if data waits for disk space and no other directory has space."""
        return self._log.is_out_of_space or self._flush.index_has_no_space

    # Memory ---------------------------------------------------------------------------------------

    @property
    def unwritten_bytes(self) -> int:
        """The bytes in memory only: above ``limits.unwritten_bytes_max`` adds must wait."""
        pages = self._pages.dirty_page_count - self.limits.dirty_pages_max
        return self._log.unwritten_bytes + (pages * PAGE_BYTES if pages > 0 else 0)

    @property
    def memory(self) -> StorageMemory:
        """The contents of memory, by kind."""
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
        """The number of index files open for reading."""
        return self._index.open_count

    @property
    def written_bytes(self) -> int:
        """The bytes written to entry logs since the start."""
        return self._log.written_bytes

    def drop_idle(self) -> None:
        """Drop ledgers that were only read, beyond the limit.

        A checkpoint also does so at its end.
        """
        if not self._turn.is_taken:  # A ledger being written looks clean, but is not on disk yet.
            self._pages.drop_idle_ledgers()

    # Checkpoints ----------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """True if anything was added or changed since the last checkpoint began."""
        return self._changes.any

    @property
    def needs_checkpoint(self) -> bool:
        """True if a checkpoint is due before its interval ends."""
        return is_due(self.limits, self._changes, self._pages)

    def note_synced(self) -> None:
        """Record how much of the index is durable, before a mark relies on it. Blocks."""
        self._index.note_synced()

    async def remove_deleted(self, run_blocking: RunBlocking) -> None:
        """Remove deleted ledgers from the index, durably; see ``Flush``."""
        await self._flush.remove_deleted(run_blocking)

    async def flush(self, run_blocking: RunBlocking) -> None:
        """Make everything in memory at the call durable in files; see ``Flush``.

        Raises:
            StorageError: not everything was written.
            OSError: likewise.
        """
        began_s = self.stats.seconds()
        await self._flush.run(run_blocking)
        self.stats.flush.observe((self.stats.seconds() - began_s) * 1000)
