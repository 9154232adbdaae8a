"""The journal of one directory: what must survive a crash is appended, synced, and then reported.

The reactor queues records with ``append``. One thread runs ``step`` in a loop: it takes all that is
queued, writes it at once, syncs once and reports the whole group with one call to the reactor.
A simulation calls ``step`` itself.

A failed write or sync is the end: what the file holds is unknown then, so nothing is tried again
and nothing more is ever acknowledged. ``on_fatal`` hears of it, once.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

from twisted.logger import Logger

from bookied.errors import WriteFailedError
from bookied.metrics.stats import JournalStats
from bookied.metrics.summary import Series
from bookied.storage.files.files import AppendFile, Buffer, Files
from bookied.storage.journal import format as layout
from bookied.storage.journal import groups
from bookied.storage.journal.group_commit import GroupCommit
from bookied.storage.journal.mark import Mark
from bookied.storage.journal.reader import journal_ids

log = Logger()

GROUP_BYTES_MAX: Final = 4 * 1024 * 1024
"""A group is closed once it has this much."""


def _us(seconds: float) -> int:
    """Return whole microseconds, in which statistics note how long something took."""
    return int(seconds * 1e6)


class _Item(NamedTuple):
    records: Buffer
    done: Any
    is_early: bool
    at_s: float
    entries: int


class Journal:
    """Appends to the journal of one directory.

    ``append`` belongs to the reactor's thread, ``step`` to the journal's. The queue has no limit of
    its own: ``queued_bytes`` is there for who accepts adds to hold back.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        call_from_thread: Callable[..., object],
        on_synced: Callable[[list[Any]], object],
        on_fatal: Callable[[WriteFailedError], object],
        now_ms: Callable[[], int],
        seconds: Callable[[], float] = time.monotonic,
        group_commit: GroupCommit | None = None,
        version: int = layout.VERSION,
        alignment: int = 512,
        size_bytes_max: int = 2048 * 1024 * 1024,
        preallocate: int = 0,
        direct: bool = False,
        sync_data: bool = True,
        unsynced_s_max: float = 1.0,
        backups_max: int = 5,
        new_generation: Callable[[], int] = lambda: secrets.randbits(63),
        on_begun: Callable[[int], object] = lambda journal_id: None,  # noqa: ARG005
    ) -> None:
        """Prepare the journal; nothing happens on disk before ``open`` or ``start``.

        Args:
            files: the disk.
            directory: the ``current`` directory of the journal directory; it must be there.
            call_from_thread: runs a function with arguments on the reactor.
            on_synced: gets what was given as ``done`` of each member of a group that is on disk.
            on_fatal: the journal is dead; the bookie has to stop.
            now_ms: milliseconds since 1970, for the id of the first journal of a directory.
            seconds: a clock for waits; it only ever moves forward.
            group_commit: when to write; at once unless given.
            version: ``journalFormatVersionToWrite``, 4 to 6.
            alignment: ``journalAlignmentSize`` in bytes; groups are aligned to 4096 as well.
            size_bytes_max: ``journalMaxSizeMB``: the next file begins after a group beyond it.
            preallocate: step of preallocation in bytes; 0 for none.
            direct: ``journalRemoveFromPageCache``: past the page cache, if space is preallocated.
            sync_data: ``journalSyncData``; without it a record counts as done when written.
            unsynced_s_max: ``journalPageCacheFlushIntervalMSec``: how old unsynced bytes get then.
            backups_max: ``journalMaxBackups``: old journals that ``remove_old`` keeps.
            new_generation: a random number below 2**63 for each file, by which its groups are told
                from anything that a client might have sent.
            on_begun: gets the id of each file that was begun, before a record is in it. From any
                thread; it may block.
        """
        self._files, self.directory, self._on_begun = files, directory, on_begun
        self._call, self._on_synced, self._on_fatal = call_from_thread, on_synced, on_fatal
        self._now_ms, self._seconds = now_ms, seconds
        assert layout.SINCE[layout.FENCE] <= version <= layout.VERSION_MAX, version
        self._group = group_commit or GroupCommit()
        self._version, self._in_groups = version, version >= layout.PADDING_SINCE
        self._alignment = groups.group_alignment(alignment)
        self._new_generation, self._generation = new_generation, 0
        self._size_bytes_max, self._preallocate = size_bytes_max, preallocate
        self._direct = direct and self._in_groups and preallocate > 0
        self._sync_data, self._unsynced_s_max = sync_data, unsynced_s_max
        self._backups_max = backups_max
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._file: AppendFile | None = None
        self._id = -1
        self._synced_s = 0.0
        self._appended_bytes = self._committed_bytes = 0
        self.synced = Mark(0, 0)
        """The end of the last group on disk, for checkpoints; assigned by the journal's thread."""
        self.failure: WriteFailedError | None = None
        self.stats = JournalStats()

    @property
    def queued_bytes(self) -> int:
        """How much waits to be written and synced."""
        return self._appended_bytes - self._committed_bytes

    @property
    def committed_bytes(self) -> int:
        """How much was written since the start, and synced where a sync is owed."""
        return self._committed_bytes

    @property
    def takes_explicit_lacs(self) -> bool:
        """Whether its version has a record for them; one in an older file stops the next start."""
        return self._version >= layout.SINCE[layout.EXPLICIT_LAC]

    # On the reactor -----------------------------------------------------------------------------

    def append(
        self, records: Buffer, done: object, *, early: bool = False, entries: int = 1
    ) -> None:
        """Queue whole records; once they are on disk ``on_synced`` gets ``done``.

        Without records this is a force: ``done`` comes back once all that was queued before is on
        disk, whatever ``journalSyncData`` says.

        Args:
            records: each with its length in front, see ``bookied.storage.journal.format``.
            done: any object, handed back as it is.
            early: report once written, before the sync (deferred sync).
            entries: how many records they are, for the statistics.
        """
        self._appended_bytes += len(records)
        self.stats.queued += entries
        is_early = early or (not self._sync_data and bool(records))
        self._queue.put(_Item(records, done, is_early, self._seconds(), entries))

    def open(self) -> None:
        """Begin a new file, as every start does.

        Raises:
            OSError: the directory is not there or not writable.
        """
        ids = journal_ids(self._files, self.directory)
        self._begin_file(ids[-1] + 1 if ids else self._now_ms() + 1)

    def start(self) -> None:
        """Open the journal and run it in a thread of its own."""
        if self._file is None:
            self.open()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write and sync all that is queued, report it, end the thread and close. Blocks."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        while self.step():
            pass
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # All that counts is synced.
                file.close()

    # In the journal's thread ---------------------------------------------------------------------

    def step(self) -> bool:
        """Write, sync and report one group of what is queued; return whether there was anything."""
        group = self._take([])
        if group or self._is_overdue():
            self._commit(group)
        return bool(group)

    def _run(self) -> None:
        while self.failure is None:
            try:
                first = self._queue.get(timeout=self._idle_s())
            except Empty:
                self._commit([])
                continue
            if first is None:
                return
            group = self._take([first])
            if self._group.wait_s_max:
                self._gather(group)
            self._commit(group)

    def _take(self, group: list[_Item]) -> list[_Item]:
        size = sum(len(item.records) for item in group)
        while size < GROUP_BYTES_MAX:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if item is None:
                self._queue.put(None)  # Nothing follows it.
                break
            group.append(item)
            size += len(item.records)
        return group

    def _gather(self, group: list[_Item]) -> None:
        """Wait for company as long as the rule says."""
        while True:
            wait_s = self._group.wait_s(
                waited_s=self._seconds() - group[0].at_s,
                size_bytes=sum(len(item.records) for item in group),
                records=len(group),
                is_empty=self._queue.empty(),
            )
            if not wait_s:
                return
            try:
                item = self._queue.get(timeout=wait_s)
            except Empty:
                return
            if item is None:
                self._queue.put(None)
                return
            self._take_with(group, item)

    def _take_with(self, group: list[_Item], item: _Item) -> None:
        group.append(item)
        self._take(group)

    def _commit(self, group: list[_Item]) -> None:
        if self.failure is not None:
            return
        try:
            self._write(group)
        except Exception as error:  # noqa: BLE001  # whatever it is, it ends this journal
            self._fail(error)

    def _write(self, group: list[_Item]) -> None:
        assert self._file is not None, "the journal is not open"
        began_s = self._seconds()
        buffers = [item.records for item in group if item.records]
        if buffers:
            if self._in_groups:
                buffers.insert(0, self._head(self._file, buffers))
            self._file.write(buffers)
            self._took(self.stats.flush.success, began_s)
        early = [item.done for item in group if item.is_early]
        if early:
            self._call(self._on_synced, early)
        if len(early) < len(group) or self._sync_data or self._is_overdue():
            self._sync(self._file)
        late = [item.done for item in group if not item.is_early]
        if late:
            self._call(self._on_synced, late)
        size_bytes = sum(len(item.records) for item in group)
        self._committed_bytes += size_bytes
        self._count(group, size_bytes, began_s)
        if self._file.tell() > self._size_bytes_max:
            self._roll(self._file)

    def _count(self, group: list[_Item], size_bytes: int, began_s: float) -> None:
        """Count a group that is on disk and reported."""
        if not group:
            return
        stats, now_s = self.stats, self._seconds()
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
        self._count_reason(size_bytes, began_s - group[0].at_s)

    def _count_reason(self, size_bytes: int, waited_s: float) -> None:
        """Count what ended the gathering of a group."""
        stats, wait_s_max = self.stats, self._group.wait_s_max
        if size_bytes > (self._group.wait_bytes_max if wait_s_max else GROUP_BYTES_MAX):
            stats.ended_by_bytes += 1
        elif wait_s_max and waited_s >= wait_s_max:
            stats.ended_by_wait += 1
        else:
            stats.ended_by_empty_queue += 1

    def _took(self, series: Series, began_s: float) -> None:
        with self.stats.lock:
            series.note(_us(self._seconds() - began_s))

    def _head(self, file: AppendFile, records: list[Buffer]) -> bytes:
        return groups.group_head(
            records,
            generation=self._generation,
            offset=file.tell(),
            synced=self.synced.offset,
            alignment=self._alignment,
        )

    def _is_overdue(self) -> bool:
        return self._idle_s() == 0

    def _idle_s(self) -> float | None:
        """Return how long what is written may stay unsynced yet; None if nothing is unsynced."""
        if self._file is None or self._file.tell() == self.synced.offset:
            return None
        return max(0.0, self._synced_s + self._unsynced_s_max - self._seconds())

    def _sync(self, file: AppendFile) -> None:
        began_s = self._seconds()
        file.sync()
        self._took(self.stats.sync.success, began_s)
        self._note_synced(file)

    def _note_synced(self, file: AppendFile) -> None:
        self.synced = Mark(self._id, file.tell())
        if not self._sync_data:
            self._synced_s = self._seconds()

    def _roll(self, file: AppendFile) -> None:
        self._sync(file)
        self._file = None
        file.close()
        self._begin_file(self._id + 1)

    def _begin_file(self, journal_id: int) -> None:
        self._id = journal_id
        began_s = self._seconds()
        path = self.directory / layout.file_name(journal_id)
        file = self._files.open_append(path, preallocate=self._preallocate, direct=self._direct)
        try:
            file.write([self._start()])
            file.sync()
            self._files.sync_dir(self.directory)
            self._on_begun(journal_id)
        except BaseException:
            with contextlib.suppress(OSError):
                file.close()
            raise
        self._file = file
        self._took(self.stats.creation.success, began_s)
        self._note_synced(file)

    def _start(self) -> bytes:
        if not self._in_groups:
            return layout.header(self._version)
        self._generation = self._new_generation()
        return groups.file_start(self._version, self._generation, self._alignment)

    def _fail(self, error: BaseException) -> None:
        path = self.directory / layout.file_name(self._id)
        self.failure = WriteFailedError(path, error)
        log.critical("journal {path} is dead: {error!r}", path=path, error=error)
        self._call(self._on_fatal, self.failure)

    # In a checkpoint's thread ---------------------------------------------------------------------

    def remove_old(self, mark: Mark) -> None:
        """Delete journals that a durable mark has made superfluous."""
        old = [number for number in journal_ids(self._files, self.directory) if number < mark[0]]
        for number in old[: max(0, len(old) - self._backups_max)]:
            self._files.remove(self.directory / layout.file_name(number))
