"""The writer of entry logs: one active log for all ledgers, in order of arrival.

The reactor reserves locations (``reserve``) and appends to memory. A thread writes, and syncs every
``sync_bytes`` so that a checkpoint has little left to sync. The thread runs ``step`` in a loop; a
simulation calls ``step`` itself. ``sync`` is for checkpoints, from any thread.

If the disk is full and another directory has space, the log is given up: it keeps what it has, and
the reactor gets the rest (``take_back``), appends it to the next log and updates the index.
Without another directory, or without a descriptor to open a file, the same bytes are retried, and
``unwritten_bytes`` grows until the bookie accepts no more adds. Any other failed write or sync is
the end (``on_fatal``): the content of the log is then unknown, but the journals have all entries
for the replay at the next start.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from bookied.errors import DiskWriteFailedError
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.log_file import (
    CloseLog,
    Command,
    LogFile,
    LogSettings,
    OpenLog,
    WriteRecords,
)
from bookied.storage.entrylog.log_ids_and_directories import LogDirectories, LogIds
from bookied.storage.entrylog.write_failures import SyncGuard, WriteFailures
from bookied.storage.files.files import Files

HAND_OVER_BYTES: Final = 1024 * 1024
"""The approximate size of the pieces that are passed to the thread."""

RETRY_S: Final = 1.0

LedgerBytes = Iterable[tuple[int, int]]
"""Pairs of ledger id and bytes of its records, lengths included."""


class EntryLogWriter:
    """The active log, to which records are appended; at ``size_bytes_max`` the next log begins.

    ``reserve``, ``append``, ``hand_over`` and ``finish`` belong to the reactor's thread. They make
    commands, which the log's thread or a checkpoint executes in order, under one lock.
    """

    def __init__(
        self,
        files: Files,
        directories: LogDirectories,
        *,
        on_fatal: Callable[[DiskWriteFailedError], object],
        on_given_up: Callable[[], object] = lambda: None,
        settings: LogSettings | None = None,
    ) -> None:
        """Store the settings; the first log begins with the first entry.

        Args:
            files: the disk.
            directories: the directories for logs.
            on_fatal: called from the log's thread: the bookie has to stop.
            on_given_up: called from the log's thread: nothing is written before ``take_back``.
            settings: how logs are written.
        """
        settings = settings or LogSettings()
        self._directories, self._on_given_up = directories, on_given_up
        self._size_bytes_max = min(settings.size_bytes_max, layout.OFFSET_MAX)
        # State of the reactor's thread:
        self.ids = LogIds(files, directories.all)
        self.active_log_id = -1
        """The log that is being appended to; -1 before the first."""
        self._offset = 0
        self._blobs: list[bytes] = []
        self._uncounted: list[bytes] = []
        self._counted: list[tuple[int, int]] = []
        self._pending_bytes = 0
        self._accepted_bytes = 0
        self.paths: dict[int, Path] = {}
        """The paths of the logs begun by this writer."""
        # State of the thread that has the lock:
        self._io = threading.Lock()
        self._commands: deque[Command] = deque()
        syncs = SyncGuard()
        self.file = LogFile(files, settings, syncs=syncs, ids=self.ids, paths=self.paths)
        """The log on disk."""
        self._failures = WriteFailures(syncs, on_fatal=on_fatal, on_full=directories.note_full)
        self._written_bytes = 0
        # Set by the log's thread, reset to -1 by the reactor's.
        self._given_up_id = -1
        self.moves = 0
        """The number of times that records were taken back, or a log was begun elsewhere.

        See ``sync``.
        """
        self._wake = threading.Semaphore(0)
        self._retry = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopping = False

    # On the reactor -----------------------------------------------------------------------------

    @property
    def unwritten_bytes(self) -> int:
        """The bytes that were appended and are in no file yet."""
        return self._accepted_bytes - self._written_bytes

    @property
    def written_bytes(self) -> int:
        """The bytes written to files since the start."""
        return self._written_bytes

    @property
    def failure(self) -> DiskWriteFailedError | None:
        """The error after which nothing more can be written, or None."""
        return self._failures.failure

    @property
    def is_out_of_space(self) -> bool:
        """True if the last write found a full disk and no other directory; it is repeated."""
        return self._failures.is_stuck

    def reserve(self, size: int) -> int:
        """Return the location of the next record's length field, with space for ``size`` bytes.

        Begins the next log if the active one lacks the space.

        Raises:
            NoWritableDirError: no directory accepts another log.
        """
        if not self.has_space(size) or self.active_log_id < 0:
            self._rotate()
        return self.active_log_id << 32 | self._offset

    def has_space(self, size: int) -> bool:
        """Return whether the active log has space for ``size`` more bytes."""
        return self._offset + size <= self._size_bytes_max

    def append(self, blob: bytes, counted: LedgerBytes | None = None) -> None:
        """Append joined ``[i32 length][entry packet]`` records at the location from ``reserve``.

        Args:
            blob: the records.
            counted: bytes by ledger, for the ledgers map, if the caller knows them; otherwise they
                are counted later.
        """
        self._offset += len(blob)
        self._accepted_bytes += len(blob)
        self._blobs.append(blob)
        if counted is None:
            self._uncounted.append(blob)
        else:
            self._counted += counted
        self._pending_bytes += len(blob)
        if self._pending_bytes >= HAND_OVER_BYTES:
            self.hand_over()

    def hand_over(self) -> None:
        """Pass everything appended so far to the thread."""
        if self._blobs:
            size, self._pending_bytes = self._pending_bytes, 0
            blobs, counted, uncounted = self._blobs, self._counted, self._uncounted
            self._blobs, self._uncounted, self._counted = [], [], []
            offset = self._offset - size
            self._command(WriteRecords(self.active_log_id, offset, blobs, counted, uncounted, size))

    def _rotate(self) -> None:
        directory = self._directories.choose()
        self.finish()
        log_id = self.ids.give_out()
        self.active_log_id, self._offset = log_id, layout.HEADER_BYTES
        self.paths[log_id] = directory / layout.file_name(log_id)
        self._command(OpenLog(log_id, self.ids.turn))

    def finish(self) -> None:
        """End the active log, with its ledgers map; the next entry begins another."""
        self.hand_over()
        if self.active_log_id >= 0:
            self._command(CloseLog())
            self.active_log_id = -1

    def take_back(self) -> list[tuple[int, bytes]]:
        """Return the records that are not in a log that was given up, and resume writing.

        The owner of the index appends them again. From now on another log is active.

        Returns:
            Joined records, each with the location of the first record's length field. The log may
            have some of them, in part or completely.
        """
        log_id = self._given_up_id
        if log_id < 0:
            return []
        records = self.file.take_unwritten()
        if self.active_log_id == log_id:
            self.finish()
        while (command := self._commands.popleft()) and isinstance(command, WriteRecords):
            assert command.log_id == log_id
            self._accepted_bytes -= command.size_bytes
            records.append(command)
        assert isinstance(command, CloseLog)
        self.moves += 1  # Earlier requests know locations that are no longer valid.
        self._given_up_id = -1
        self._retry.set()
        return [(log_id << 32 | write.offset, b"".join(write.blobs)) for write in records]

    def leave(self, full: Collection[Path]) -> None:
        """End the active log if it is in one of these directories, which accept no more."""
        if self.active_log_id >= 0 and self.paths[self.active_log_id].parent in full:
            self.finish()

    def _command(self, command: Command) -> None:
        self._commands.append(command)
        self._wake.release()

    def start(self) -> None:
        """Start the thread."""
        thread = threading.Thread(target=self._run, name="entry-log", daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Write the rest, end the active log and the thread. Blocks.

        Raises:
            OSError: not everything could be written.
            DiskWriteFailedError: likewise, and nothing more can be written.
        """
        self.finish()
        self._end_thread()
        self.sync()

    def abandon(self) -> None:
        """End the thread and close the log, even if not everything is written. Blocks."""
        self._end_thread()
        self.file.abandon()

    def _end_thread(self) -> None:
        self._stopping = True
        self._wake.release()
        self._retry.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # In the log's thread, or a checkpoint's -------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            self._wake.acquire()
            try:
                self.step()
            except DiskWriteFailedError:
                return
            except OSError:
                # The disk is full, or too many files are open: retry soon, even without new
                # entries.
                self._wake.release()
                self._retry.wait(RETRY_S)
                self._retry.clear()

    def step(self) -> bool:
        """Execute one command; return whether there was one.

        Raises:
            OSError: the disk is full; retry.
            DiskWriteFailedError: nothing more can be written.
        """
        with self._io:
            return self._step()

    def sync(self, moves: int | None = None) -> None:
        """Return once everything passed on before the call is on disk, at its reserved location.

        Args:
            moves: ``self.moves`` when the records were passed on; by default its present value.

        Raises:
            OSError: the disk is full, or a log was given up since; retry.
            DiskWriteFailedError: nothing more can be written.
        """
        moves = self.moves if moves is None else moves
        with self._io:
            self._require_usable()
            for _ in range(len(self._commands)):
                self._step()
            file, until = self.file.open_file, self.file.readable_until
            if file is not None:
                self._failures.guard(self.file.flush, self.file.path, self._give_up)
                self._failures.note_space()
            if self.moves != moves:
                raise _no_space("records have moved to another log")
        if file is not None:
            self._failures.guard(partial(self.file.sync_beside, file), self.file.path, _nowhere)
        assert self.file.readable_until >= until

    def _require_usable(self) -> None:
        """Raise after a failure: another sync might succeed, and save nothing."""
        if self.failure is not None:
            raise self.failure
        if self._given_up_id >= 0:
            raise _no_space("records wait to be taken to another log")

    def _step(self) -> bool:
        self._require_usable()
        if not self._commands:
            return False
        command, guard = self._commands[0], self._failures.guard
        if isinstance(command, OpenLog):
            path = self.paths[command.log_id]
            guard(partial(self.file.begin, command), path, self._begin_elsewhere)
        elif isinstance(command, WriteRecords):
            guard(partial(self.file.write, command), self.file.path, self._give_up)
        else:
            guard(self.file.close, self.file.path, self._give_up)
        self._commands.popleft()
        self._written_bytes += command.size_bytes
        self._failures.note_space()
        return True

    def _give_up(self, path: Path) -> bool:
        """End the log early if another directory has space; return whether one has."""
        other = self._directories.other_than(path.parent)
        if other is None or not self.file.give_up(path, other):
            return False
        self._given_up_id = self.file.log_id
        self._on_given_up()
        return True

    def _begin_elsewhere(self, path: Path) -> bool:
        """Move the log's begin to another directory if one has space; return whether one has."""
        directory = self._directories.other_than(path.parent)
        if directory is None:
            return False
        self.file.begin_elsewhere(path, directory)
        self.moves += 1
        return True


def _nowhere(_path: Path) -> bool:
    return False


def _no_space(message: str) -> OSError:
    return OSError(errno.ENOSPC, message)
