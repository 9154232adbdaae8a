"""The engine that stores entries: storage, journals and checkpoints.

``open`` only reads. ``replay`` writes the entries of the journals into files. ``begin`` starts the
threads and writes the mark DIRTY. ``stop`` flushes everything. ``give_up`` writes nothing more: the
next start replays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs
from twisted.logger import Logger

from bkclient.concurrency import wall_ms
from bookied.config.bookie import BookieConfig, StorageClass
from bookied.directories.disk_fullness import require_usable
from bookied.directories.emptied_directories import ContentsNotes, check_losses
from bookied.directories.last_journal_note import (
    ALL_LEDGERS,
    NO_LEDGER,
    LastJournalNote,
    fences_in_doubt_to,
    note_doubt,
    note_journal,
)
from bookied.directories.roots import Directories, clear_dirty, mark_dirty, was_dirty
from bookied.errors import DamagedError, DiskWriteFailedError
from bookied.service.dependencies import Dependencies
from bookied.service.threads import in_own_thread
from bookied.storage.checkpoints import Checkpoints
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.location_compaction import LocationCompaction
from bookied.storage.index.rocks.database import open_of_index
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.index.store import IndexStore
from bookied.storage.journal.group_commit import GroupCommit
from bookied.storage.journal.journal_settings import JournalEvents, JournalSettings
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents, StorageLimits
from bookied.storage.replay import recover
from bookied.storage.scrubber import Scrubber, report_result
from bookied.storage.storage_class_check import check_kind
from bookied.storage.storages import Storages
from wire.errors import BookKeeperError

log = Logger()


@attrs.frozen(kw_only=True)
class EngineEvents:
    """Callbacks for events of the threads; all are called on the reactor."""

    synced: Callable[[list[Any]], None]
    """Called with the objects that were queued with the records of a synced journal group."""
    no_space: Callable[[Path], None]
    """A ledger directory has no space left."""
    failed: Callable[[Exception], None]
    """A journal, the entry log or a checkpoint has failed."""
    lacks_descriptors: Callable[[bool], object] = lambda lacks: None  # noqa: ARG005
    """True if the last checkpoint could not open its files."""
    journal_space: Callable[[DiskWriteFailedError | None], object] = lambda error: None  # noqa: ARG005
    """A journal waits for space; None: no journal waits."""


class Engine:
    """Storage, journals and checkpoints of one bookie. Methods belong to the reactor's thread."""

    journal_class: ClassVar[type[Journal]] = Journal
    storage_class: ClassVar[type[LedgerStorage]] = LedgerStorage
    storages_class: ClassVar[type[Storages]] = Storages
    """The class of the storages; a simulation replaces it to inject faults."""

    def __init__(
        self, config: BookieConfig, parts: Dependencies, found: Directories, events: EngineEvents
    ) -> None:
        self._config, self._parts, self._found, self._events = config, parts, found, events
        self._blocking = parts.run_blocking
        self.has_begun = False
        self._before_marks = partial(_before_marks, self, ContentsNotes(parts.files, found))
        self._databases: dict[str, Callable[[], None]] = {}
        self.storages = self._storages(_storage_limits(config, parts.open_files_max))
        self.journals = [self._journal(directory) for directory in found.journal_dirs]
        if not all(journal.takes_explicit_lacs for journal in self.journals):
            log.warn(
                "explicit LACs are kept in memory only: journalFormatVersionToWrite is {version}",
                version=config.journal_format_version,
            )
        self._checkpoints = Checkpoints(
            parts.clock,
            self.storages,
            self.journals,
            run_blocking=parts.run_blocking,
            failed=events.failed,
            lacks_descriptors=events.lacks_descriptors,
            switch_threads_soon=parts.switch_threads_soon,
        )
        self.locations = LocationCompaction(
            self._databases,
            partial(in_own_thread, parts.call_from_thread) if parts.threads else parts.run_blocking,
        )
        self.scrubber = self._scrubber(interval_s=config.scrub_interval_s, rate=config.scrub_rate)
        self.in_doubt_to = NO_LEDGER
        """The last ledger whose fence may have been lost; see ``last_journal_note``."""

    async def open(self, *, may_be_missing: bool = False) -> None:
        """Read the directories.

        With ``may_be_missing``, accept emptied directories: the missing entries are copied from
        other bookies afterwards (``bookied.data_integrity``).

        Raises:
            CorruptError: a directory lacks data that it had; see ``check_losses``.
            OSError: a directory cannot be read.
            StorageError: the directories cannot be used, or contain another kind of index.
        """
        kind, index_dirs = self._config.storage_class, self._found.index_dirs
        await self._blocking(partial(check_kind, self._parts.files, kind, index_dirs))
        if not may_be_missing:
            await self._blocking(partial(check_losses, self._parts.files, self._found))
        in_doubt_to = partial(fences_in_doubt_to, self._parts.files, self._found.journals)
        self.in_doubt_to = await self._blocking(in_doubt_to)
        if self.in_doubt_to != NO_LEDGER:
            log.info(
                "new directories, or another bookie used them: ledgers up to {ledger_id} may be "
                "fenced, so their metadata is checked before the first add",
                ledger_id=self.in_doubt_to,
            )
        await self._blocking(self.storages.open)

    async def replay(self, *, may_be_missing: bool = False) -> None:
        """Write all acknowledged entries of the journals into files; see ``replay.recover``.

        Raises:
            CorruptError: a journal is damaged or missing.
            StorageError, OSError: not everything could be written.
        """
        if was_dirty(self._parts.files, self._found):
            log.info("the last stop was not clean")
        replay = partial(
            recover,
            self._parts.files,
            self.storages,
            self._found.journal_dirs,
            skip_invalid=self._config.skip_invalid_records,
            skipped=partial(note_doubt, self._parts.files, self._found.journals, ALL_LEDGERS),
            may_be_missing=may_be_missing,
            writes_beside=self._parts.threads,
        )
        found = await self._blocking(replay)
        self.in_doubt_to = ALL_LEDGERS if found.has_skipped else self.in_doubt_to
        log.info(
            "replayed {entries} entries ({size_bytes} bytes) of {journals} journals",
            entries=found.entries,
            size_bytes=found.size_bytes,
            journals=found.journals,
            dropped=found.dropped,
        )

    async def flush(self) -> None:
        """Write everything in memory durably into files; only before ``begin``.

        Raises:
            StorageError, OSError: not everything was written.
        """
        assert not self.has_begun
        await self.storages.flush(self._parts.run_blocking)

    async def check(self) -> None:
        """Check every entry of the index, after a replay: ``localConsistencyCheckOnStartup``.

        Raises:
            DamagedError: an entry is not at its place in the index.
            OSError: a disk cannot be read.
        """
        result = await self._scrubber(interval_s=0, rate=0).scrub_once()
        report_result(result)
        if result.count:
            first = result.found[0]
            raise DamagedError(
                f"{result.count} of {result.entries} entries failed the local check, the first: "
                f"entry {first.entry_id} of ledger {first.ledger_id}: {first.error}; `bkctl disk "
                "check --repair-plan` names all and what to do; without "
                "localConsistencyCheckOnStartup the bookie starts and serves the rest"
            )

    def _scrubber(self, *, interval_s: float, rate: float) -> Scrubber:
        return Scrubber(
            self._parts.clock,
            self.storages,
            run_blocking=self._parts.run_blocking,
            interval_s=interval_s,
            rate=rate,
            rng=self._parts.rng,
        )

    async def begin(self) -> None:
        """Start the threads, begin new journals and write DIRTY; after that adds are accepted.

        Raises:
            OSError: a journal cannot be created.
        """
        await self._blocking(partial(mark_dirty, self._parts.files, self._found))
        if self._parts.threads:
            self.storages.start()
        self.has_begun = True
        for journal in self.journals:
            await self._begin_journal(journal)
        self._checkpoints.start(self._config.flush_interval_ms / 1000)
        self.scrubber.start()

    async def _begin_journal(self, journal: Journal) -> None:
        try:
            await self._blocking(journal.start if self._parts.threads else journal.open)
        except OSError as error:
            where = error.filename or str(journal.directory)
            raise OSError(error.errno, error.strerror, where) from error

    async def checkpoint(self) -> None:
        """Return when a checkpoint that began after the call has ended; see ``Checkpoints.now``."""
        await self._checkpoints.now()

    async def between_checkpoints(self, work: Callable[[], Any]) -> Any:
        """Run blocking work in a thread while no checkpoint is in progress; return its value."""
        return await self._checkpoints.between(work)

    async def stop(self) -> None:
        """Flush everything, end the threads, then remove DIRTY.

        Raises:
            DiskWriteFailedError: a journal or the entry log failed; the next start replays.
            StorageError, OSError: not everything was flushed; the next start replays.
        """
        self.locations.stop()
        await self.scrubber.stop()
        await self._checkpoints.stop()
        for journal in self.journals:
            await self._blocking(journal.stop)
        await self.storages.stop(self.journals, self._parts.run_blocking)
        for journal in self.journals:
            if journal.failure is not None:
                raise journal.failure
        await self._blocking(partial(clear_dirty, self._parts.files, self._found))

    async def close(self) -> None:
        """Release the files after a start that failed before ``begin``."""
        await self._blocking(self.storages.abandon)

    async def give_up(self) -> None:
        """End journals and checkpoints; entries that are only in the journals stay there."""
        self.locations.stop()
        await self.scrubber.stop()
        await self._checkpoints.stop()
        for journal in self.journals:
            try:
                await self._blocking(journal.stop)
            except (BookKeeperError, OSError) as error:
                log.warn("while closing after a failure: {error!r}", error=error)
        await self._blocking(self.storages.abandon)

    def _storages(self, limits: StorageLimits) -> Storages:
        parts, found = self._parts, self._found
        if self._config.storage_class is StorageClass.DB:
            return self._db_storages(limits)
        index = IndexFiles(
            parts.files,
            found.index_dirs,
            rng=parts.rng,
            open_files_max=limits.open_indexes_max,
            open_to_write_max=limits.open_to_write_max,
        )
        storage = self._storage(found.ledger_dirs, index, limits)
        return self.storages_class(
            parts.files, [storage], limits=limits, before_marks=self._before_marks
        )

    def _db_storages(self, limits: StorageLimits) -> Storages:
        """Return a storage for each ledger directory, with its own logs and index."""
        found, count = self._found, len(self._found.ledger_dirs)
        settings = self._config.rocks_settings(
            directories=count, open_files_max=limits.open_indexes_max
        )
        opened = self._parts.open_key_values or partial(open_of_index, settings)
        indexes = [RocksIndex(directory, opened) for directory in found.index_dirs]
        self._databases |= {str(one.locations_path): one.compact_locations for one in indexes}
        shards = [
            self._storage((directory,), index, limits.share(count))
            for directory, index in zip(found.ledger_dirs, indexes, strict=True)
        ]
        return self.storages_class(
            self._parts.files,
            shards,
            limits=limits,
            flags=indexes[0],
            before_marks=self._before_marks,
        )

    def _storage(
        self, ledger_dirs: tuple[Path, ...], index: IndexStore, limits: StorageLimits
    ) -> LedgerStorage:
        config, parts = self._config, self._parts
        return self.storage_class(
            parts.files,
            ledger_dirs,
            index,
            events=StorageEvents(
                on_fatal=partial(parts.call_from_thread, self._events.failed),
                on_full=partial(parts.call_from_thread, self._events.no_space),
                on_given_up=partial(parts.call_from_thread, self._take_back),
            ),
            rng=parts.rng,
            limits=limits,
            log_settings=LogSettings(size_bytes_max=config.log_bytes_max, direct=parts.threads),
            index_version=config.file_info_format_version,
        )

    def _journal(self, directory: Path) -> Journal:
        config, parts = self._config, self._parts
        simulated: dict[str, Any] = {}
        if not parts.threads:
            simulated["seconds"] = parts.clock.seconds
            simulated["new_generation"] = partial(parts.rng.getrandbits, 63)
        return self.journal_class(
            parts.files,
            directory,
            call_from_thread=parts.call_from_thread,
            events=JournalEvents(
                on_synced=self._events.synced,
                on_fatal=self._events.failed,
                on_space=self._journal_space_changed,
                on_begun=partial(self._note_journal, directory.parent),
            ),
            now_ms=lambda: wall_ms(parts.clock),
            settings=JournalSettings(
                group_commit=GroupCommit(
                    wait_s_max=(config.journal_group_wait_ms or 0) / 1000,
                    wait_bytes_max=config.journal_group_bytes_max,
                    wait_records_max=config.journal_group_entries_max,
                    flush_when_empty=config.journal_flush_when_empty,
                ),
                version=config.journal_format_version,
                alignment=config.journal_alignment_bytes,
                size_bytes_max=config.journal_bytes_max,
                preallocate=config.journal_prealloc_bytes,
                remove_from_page_cache=config.journal_remove_from_page_cache,
                sync_data=config.journal_sync,
                unsynced_s_max=config.journal_page_cache_flush_ms / 1000,
                backups_max=config.journal_backups_max,
            ),
            **simulated,
        )

    def _note_journal(self, root: Path, journal_id: int) -> None:
        """Note the id of the new journal; runs in the thread that created it."""
        note_journal(self._parts.files, root, LastJournalNote(journal_id, self.in_doubt_to))

    def _take_back(self) -> None:
        """Write entries without space in one entry log to another; replay does this itself."""
        if self.has_begun:
            self.storages.take_back()

    def _journal_space_changed(self, _error: DiskWriteFailedError | None) -> None:
        self._events.journal_space(next(filter(None, (j.space_error for j in self.journals)), None))


def _before_marks(engine: Engine, notes: ContentsNotes) -> None:
    """Refuse to move a mark if a disk is unmounted: its entries may be only in the journals.

    Otherwise files would be created in the mount point, and hidden when the disk is mounted again.

    Raises:
        OSError: a directory is missing.
    """
    if engine.has_begun:  # During the start, a new directory may have no cookie.
        require_usable(notes.files, notes.found)
    notes.update()


def _storage_limits(config: BookieConfig, open_files_max: int | None) -> StorageLimits:
    pages = config.index_pages_max
    default = StorageLimits()
    # With a low limit on open files, clients need some of them, too.
    indexes_max = default.open_indexes_max
    logs_max, to_write_max = default.open_logs_max, default.open_to_write_max
    if open_files_max is not None:
        indexes_max = min(indexes_max, max(1, open_files_max // 4))
        logs_max = min(logs_max, max(1, open_files_max // 8))
        to_write_max = min(to_write_max, max(1, open_files_max // 8))
    cache_bytes_max = config.write_cache_bytes_max
    if config.storage_class is StorageClass.DB and config.db_write_cache_mb is not None:
        cache_bytes_max = config.db_write_cache_mb * 1024 * 1024
    return StorageLimits(
        cache_bytes=cache_bytes_max // 2,
        unwritten_bytes_max=cache_bytes_max,
        dirty_pages_max=pages if pages > 0 else default.dirty_pages_max,
        clean_pages_max=pages if pages > 0 else default.clean_pages_max,
        open_indexes_max=min(config.open_files_max or indexes_max, indexes_max),
        open_logs_max=logs_max,
        open_to_write_max=to_write_max,
    )
