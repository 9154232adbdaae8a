"""The current file of a journal: creation, writes, syncs, the roll to the next file, and counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from bookied.errors import NO_SPACE
from bookied.stats.metrics import JournalStats
from bookied.stats.quantiles import Series
from bookied.storage.files.files import AppendFile, Buffer, Files
from bookied.storage.journal import format as layout
from bookied.storage.journal import group_format
from bookied.storage.journal.group_commit import GROUP_BYTES_MAX, GroupCommit, QueuedRecords
from bookied.storage.journal.journal_settings import JournalSettings
from bookied.storage.journal.mark import LastMark


@attrs.define(eq=False)
class JournalFile:
    """The files of a journal, one at a time: the next begins when the last is synced.

    ``synced`` is the position up to which the journal is on disk. Only a sync moves it, never back.
    All methods belong to the journal's thread, or to the caller that has stopped or not started
    that thread.
    """

    _files: Files
    _directory: Path
    _settings: JournalSettings
    _stats: JournalStats
    _seconds: Callable[[], float]
    _new_generation: Callable[[], int]
    _on_begun: Callable[[int], object]
    _generation: int = attrs.field(default=0, init=False)
    _file: AppendFile | None = attrs.field(default=None, init=False)
    _id: int = attrs.field(default=-1, init=False)
    _synced_s: float = attrs.field(default=0.0, init=False)
    synced: LastMark = attrs.field(factory=lambda: LastMark(0, 0), init=False)
    """The end of the last group on disk."""

    @property
    def is_open(self) -> bool:
        """True if a file is open."""
        return self._file is not None

    @property
    def path(self) -> Path:
        """The path of the current file, even if its creation failed."""
        return self._directory / layout.file_name(self._id)

    @property
    def is_full(self) -> bool:
        """True if the journal must roll: call ``begin_next``."""
        return self._open_file.tell() > self._settings.size_bytes_max

    @property
    def _open_file(self) -> AppendFile:
        assert self._file is not None, "the journal is not open"
        return self._file

    def begin(self, journal_id: int) -> None:
        """Create a new file durably.

        Raises:
            OSError: the directory is missing or not writable.
        """
        self._id = journal_id
        began_s = self._seconds()
        file = self._created()
        try:
            file.sync()
            self._files.sync_dir(self._directory)
            self._on_begun(journal_id)
        except BaseException:
            with contextlib.suppress(OSError):
                file.close()
            raise
        self._file = file
        self._note_since(self._stats.creation.success, began_s)
        self._note_synced(file)

    def _created(self) -> AppendFile:
        """Return a new file with its first bytes; after a failed write no file is left."""
        settings, path = self._settings, self.path
        file = self._files.open_append(
            path, preallocate=settings.preallocate, direct=settings.is_direct
        )
        try:
            file.write([self._start()])
        except BaseException:
            with contextlib.suppress(OSError):
                file.close()
            with contextlib.suppress(OSError):
                self._files.remove(path)
            raise
        return file

    def _start(self) -> bytes:
        settings = self._settings
        if not settings.in_groups:
            return layout.header(settings.version)
        self._generation = self._new_generation()
        return group_format.file_start(settings.version, self._generation, settings.alignment)

    def begin_next(self) -> None:
        """Sync and close this file and begin the next; without disk space continue in this file."""
        self.sync()
        file, kept = self._open_file, (self._id, self._generation)
        try:
            self.begin(self._id + 1)
        except OSError as error:
            if error.errno not in NO_SPACE or self._files.exists(self.path):
                self._file = None
                with contextlib.suppress(OSError):
                    file.close()
                raise
            self._id, self._generation = kept
            # A power cut must not restore the removed file: it would follow this file, which may be
            # torn.
            with contextlib.suppress(OSError):
                self._files.sync_dir(self._directory)
            return
        file.close()

    def write(self, records: list[Buffer]) -> None:
        """Append complete records as one group; ``sync`` makes it durable."""
        file, began_s = self._open_file, self._seconds()
        if self._settings.in_groups:
            records = [self._head(file, records), *records]
        file.write(records)
        self._note_since(self._stats.flush.success, began_s)

    def _head(self, file: AppendFile, records: list[Buffer]) -> bytes:
        return group_format.group_head(
            records,
            generation=self._generation,
            offset=file.tell(),
            synced=self.synced.offset,
            alignment=self._settings.alignment,
        )

    def sync(self) -> None:
        """Sync the bytes written since the last sync, if any."""
        file, began_s = self._open_file, self._seconds()
        if file.tell() == self.synced.offset:
            return  # Forces may be many, and each sync delays adds.
        file.sync()
        self._note_since(self._stats.sync.success, began_s)
        self._note_synced(file)

    def _note_synced(self, file: AppendFile) -> None:
        self.synced = LastMark(self._id, file.tell())
        if not self._settings.sync_data:
            self._synced_s = self._seconds()

    def unsynced_s_left(self) -> float | None:
        """Return the seconds that written bytes may stay unsynced; None if all are synced."""
        if self._file is None or self._file.tell() == self.synced.offset:
            return None
        return max(0.0, self._synced_s + self._settings.unsynced_s_max - self._seconds())

    def close(self) -> None:
        """Close the file; everything that counts is synced."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    def _note_since(self, series: Series, began_s: float) -> None:
        note_seconds(self._stats, series, self._seconds() - began_s)


def note_seconds(stats: JournalStats, series: Series, seconds: float) -> None:
    """Record a duration in whole microseconds."""
    with stats.lock:
        series.note(_us(seconds))


def count_group(
    stats: JournalStats,
    group: Sequence[QueuedRecords],
    rule: GroupCommit,
    *,
    began_s: float,
    now_s: float,
) -> None:
    """Count a group that is on disk and reported.

    Args:
        stats: the counters.
        group: its members, oldest first.
        rule: the rule by which the group was gathered.
        began_s: when its write began.
        now_s: the time now.
    """
    if not group:
        return
    size_bytes = sum(len(item.records) for item in group)
    entries = 0
    with stats.lock:
        add, force = stats.add.success, stats.force.success
        queue = stats.queue.success
        for item in group:
            entries += item.entries
            (add if item.records else force).note(_us(now_s - item.at_s), item.entries)
            queue.note(_us(began_s - item.at_s), item.entries)
        stats.process.success.note(_us(now_s - began_s))
        stats.batch_entries.success.note(entries)
        stats.batch_bytes.success.note(size_bytes)
    stats.done += entries
    stats.write_bytes += size_bytes
    _count_reason(stats, rule, size_bytes, began_s - group[0].at_s)


def _count_reason(stats: JournalStats, rule: GroupCommit, size_bytes: int, waited_s: float) -> None:
    """Count the reason why the gathering of a group ended."""
    if size_bytes > (rule.wait_bytes_max if rule.wait_s_max else GROUP_BYTES_MAX):
        stats.ended_by_bytes += 1
    elif rule.wait_s_max and waited_s >= rule.wait_s_max:
        stats.ended_by_wait += 1
    else:
        stats.ended_by_empty_queue += 1


def _us(seconds: float) -> int:
    return int(seconds * 1e6)
