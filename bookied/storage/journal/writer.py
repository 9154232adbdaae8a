"""The journal of one directory: records are appended, synced, and then reported.

The reactor queues records with ``append``. One thread runs ``step`` in a loop: it takes everything
that is queued, writes it, syncs once and reports the group with one call to the reactor. A
simulation calls ``step`` itself.

A write that finds no disk space is retried at the same offset until it succeeds; adds that wait for
it are not acknowledged before. ``on_space`` is called when this begins and when it ends. Any other
failed write, and any failed sync, ends the journal: the content of the file is then unknown.
Nothing is retried, and nothing more is acknowledged. ``on_fatal`` is called once.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from bookied.errors import NO_SPACE, DiskWriteFailedError
from bookied.stats.metrics import JournalStats
from bookied.storage.files.files import Buffer, Files
from bookied.storage.journal import format as layout
from bookied.storage.journal.group_commit import GroupQueue, QueuedRecords
from bookied.storage.journal.journal_file import JournalFile, count_group
from bookied.storage.journal.journal_settings import JournalEvents, JournalSettings
from bookied.storage.journal.mark import LastMark
from bookied.storage.journal.reader import journal_ids

log = Logger()

SPACE_RETRY_S: Final = 0.5
"""Seconds between two attempts to write while the disk is full."""


class Journal:
    """The journal of one directory, for appending.

    ``append`` belongs to the reactor's thread, ``step`` to the journal's. The queue has no limit:
    the caller that accepts adds must limit ``queued_bytes``.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        call_from_thread: Callable[..., object],
        events: JournalEvents,
        now_ms: Callable[[], int],
        settings: JournalSettings | None = None,
        seconds: Callable[[], float] = time.monotonic,
        new_generation: Callable[[], int] = lambda: secrets.randbits(63),
    ) -> None:
        """Prepare the journal; nothing happens on disk before ``open`` or ``start``.

        Args:
            files: the disk.
            directory: the ``current`` directory of the journal directory; it must exist.
            call_from_thread: runs a function with arguments on the reactor.
            events: the callbacks.
            now_ms: milliseconds since 1970, for the id of the first journal of a directory.
            settings: the format of its files and its syncs.
            seconds: a monotonic clock for waits.
            new_generation: returns a random number below 2**63 for each file. The number
                distinguishes the file's groups from bytes that a client might have sent.
        """
        self._files, self.directory = files, directory
        self._call, self._events = call_from_thread, events
        self._now_ms, self._seconds = now_ms, seconds
        self._settings = settings = settings or JournalSettings()
        self.stats = JournalStats()
        self._file = JournalFile(
            files,
            directory,
            settings,
            stats=self.stats,
            seconds=seconds,
            new_generation=new_generation,
            on_begun=events.on_begun,
        )
        self._queue = GroupQueue(settings.group_commit, seconds)
        self._thread: threading.Thread | None = None
        self._appended_bytes = self._committed_bytes = 0
        self.failure: DiskWriteFailedError | None = None
        self.space_error: DiskWriteFailedError | None = None
        """The reason why nothing is written until there is disk space; else None."""
        self._stuck_group: Sequence[QueuedRecords] = ()  # It found no disk space.
        self._stopping = threading.Event()

    @property
    def synced(self) -> LastMark:
        """The end of the last group on disk, for checkpoints; moved by the journal's thread."""
        return self._file.synced

    @property
    def is_idle(self) -> bool:
        """True if nothing waits for ``step``, a force included."""
        return self._queue.is_empty and not self._stuck_group

    @property
    def queued_bytes(self) -> int:
        """The bytes that wait to be written and synced."""
        return self._appended_bytes - self._committed_bytes

    @property
    def committed_bytes(self) -> int:
        """The bytes written since the start, and synced where a sync is required."""
        return self._committed_bytes

    @property
    def takes_explicit_lacs(self) -> bool:
        """True if the version has a record for explicit LACs; see ``JournalSettings``."""
        return self._settings.takes_explicit_lacs

    # On the reactor -----------------------------------------------------------------------------

    def append(
        self, records: Buffer, done: object, *, early: bool = False, entries: int = 1
    ) -> None:
        """Queue complete records; once they are on disk ``on_synced`` is called with ``done``.

        Without records this is a force: ``done`` is reported once everything queued before is on
        disk, even if ``journalSyncData`` is false.

        Args:
            records: each with its length in front, see ``bookied.storage.journal.format``.
            done: any object, passed to ``on_synced`` unchanged.
            early: report after the write, before the sync (deferred sync).
            entries: the number of records, for the statistics.
        """
        self._appended_bytes += len(records)
        self.stats.queued += entries
        is_early = early or (not self._settings.sync_data and bool(records))
        self._queue.put(QueuedRecords(records, done, is_early, self._seconds(), entries))

    def open(self) -> None:
        """Begin a new file, as every start does.

        Raises:
            OSError: the directory is missing or not writable.
        """
        ids = journal_ids(self._files, self.directory)
        self._file.begin(ids[-1] + 1 if ids else self._now_ms() + 1)

    def start(self) -> None:
        """Open the journal and start its thread."""
        if not self._file.is_open:
            self.open()
        thread = threading.Thread(target=self._run, name="journal", daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Write, sync and report everything queued, end the thread and close the file. Blocks."""
        self._stopping.set()
        if self._thread is not None:
            self._queue.end()
            self._thread.join()
            self._thread = None
        while self.step():
            pass
        if self.failure is None and self.space_error is not None:
            self._fail(self.space_error.error)
        self._file.close()

    # In the journal's thread ---------------------------------------------------------------------

    def step(self) -> bool:
        """Write, sync and report one queued group; return whether one was written."""
        group = self._stuck_group or self._queue.take_now()
        if group or self._is_overdue():
            self._commit(group)
        return bool(group) and not self._stuck_group

    def _run(self) -> None:
        while self.failure is None:
            if self._stuck_group:
                if self._stopping.wait(SPACE_RETRY_S):
                    return
                self._commit(self._stuck_group)
                continue
            group = self._queue.take(self._file.unsynced_s_left())
            if group is None:
                return
            self._commit(group)

    def _is_overdue(self) -> bool:
        return self._file.unsynced_s_left() == 0

    def _commit(self, group: Sequence[QueuedRecords]) -> None:
        if self.failure is not None:
            return
        try:
            self._write(group)
        except Exception as error:  # noqa: BLE001  # whatever it is, it ends this journal
            self._fail(error)

    def _write(self, group: Sequence[QueuedRecords]) -> None:
        began_s, on_synced = self._seconds(), self._events.on_synced
        records = [item.records for item in group if item.records]
        self._stuck_group = group if records and not self._has_space_for(records) else ()
        if self._stuck_group:
            if self._is_overdue():
                self._file.sync()
            return
        early = [item.done for item in group if item.is_early]
        if early:
            self._call(on_synced, early)
        if len(early) < len(group) or self._settings.sync_data or self._is_overdue():
            self._file.sync()
        late = [item.done for item in group if not item.is_early]
        if late:
            self._call(on_synced, late)
        self._committed_bytes += sum(map(len, records))
        rule, now_s = self._settings.group_commit, self._seconds()
        count_group(self.stats, group, rule, began_s=began_s, now_s=now_s)
        if self._file.is_full:
            self._file.begin_next()

    def _has_space_for(self, records: list[Buffer]) -> bool:
        """Write records; return False if the disk is full, and then none of them counts."""
        space_error = None
        try:
            self._file.write(records)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            space_error = self.space_error or DiskWriteFailedError(self._file.path, error)
        if space_error is not self.space_error:
            self.space_error = space_error
            self._call(self._events.on_space, space_error)
        return space_error is None

    def _fail(self, error: BaseException) -> None:
        path = self._file.path
        self.failure = DiskWriteFailedError(path, error)
        log.critical("journal {path} has failed: {error!r}", path=path, error=error)
        self._call(self._events.on_fatal, self.failure)

    # In a checkpoint's thread ---------------------------------------------------------------------

    def remove_old(self, mark: LastMark) -> None:
        """Delete journals that a durable mark has made unnecessary, except ``backups_max``."""
        old = [number for number in journal_ids(self._files, self.directory) if number < mark[0]]
        for number in old[: max(0, len(old) - self._settings.backups_max)]:
            self._files.remove(self.directory / layout.file_name(number))
