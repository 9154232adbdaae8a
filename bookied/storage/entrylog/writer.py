"""Writes entry logs: one active log for all ledgers, in the order in which entries arrive.

The reactor gives out places (``reserve``) and appends to memory; a thread writes, and syncs every
``sync_bytes`` so that a checkpoint never meets a mountain. The thread runs ``step`` in a loop; a
simulation calls it itself. ``sync`` is for checkpoints, from whatever thread.

A full disk is answered by giving the log up where another directory has space: it ends with
what is in it, and the reactor takes back what is not (``take_back``) to append it to the next log
and to say so in the index. Without another directory, and without a descriptor to open a file with,
the same bytes are tried again, and ``unwritten_bytes`` grows until the bookie accepts no more adds.
Any other failed write or sync is the end (``on_fatal``): what the log holds is unknown then, while
the journals hold it all for the replay of the next start.
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
from bookied.storage.entrylog.next_log_directory import LogDirectories
from bookied.storage.entrylog.next_log_id import LogIds
from bookied.storage.entrylog.write_failures import SyncGuard, WriteFailures
from bookied.storage.files.files import Files

HAND_OVER_BYTES: Final = 1024 * 1024
"""The thread gets bytes in pieces of about this size."""

RETRY_S: Final = 1.0

LedgerBytes = Iterable[tuple[int, int]]
"""Pairs of ledger id and bytes of its records, lengths included."""


class EntryLogWriter:
    """Appends records to the active log and begins the next one where ``size_bytes_max`` ends it.

    ``reserve``, ``append``, ``hand_over`` and ``finish`` belong to the reactor's thread. They make
    commands, which the log's thread or a checkpoint obeys in order, under one lock.
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
        """Prepare to write; the first log begins with the first entry.

        Args:
            files: the disk.
            directories: where logs can be.
            on_fatal: called from the log's thread: the bookie has to stop.
            on_given_up: called from the log's thread: nothing is written before ``take_back``.
            settings: how logs are written.
        """
        settings = settings or LogSettings()
        self._directories, self._on_given_up = directories, on_given_up
        self._size_bytes_max = min(settings.size_bytes_max, layout.OFFSET_MAX)
        # Of the reactor:
        self.ids = LogIds(files, directories.all)
        self.active_log_id = -1
        """The log that is being appended to; -1 before the first."""
        self._offset = 0
        self._blobs: list[bytes] = []
        self._uncounted: list[bytes] = []
        self._counted: dict[int, int] = {}
        self._pending_bytes = 0
        self._accepted_bytes = 0
        self.paths: dict[int, Path] = {}
        """Where the logs begun by this writer are."""
        # Of the thread that holds the lock:
        self._io = threading.Lock()
        self._commands: deque[Command] = deque()
        syncs = SyncGuard()
        self.file = LogFile(files, settings, syncs=syncs, ids=self.ids, paths=self.paths)
        """The log as it is on disk."""
        self._failures = WriteFailures(syncs, on_fatal=on_fatal, on_full=directories.note_full)
        self._written_bytes = 0
        # Of the log's thread until it has set this, of the reactor until that is -1.
        self._given_up_id = -1
        self.moves = 0
        """How often records were taken back from a log, or one begun elsewhere; see ``sync``."""
        self._wake = threading.Semaphore(0)
        self._retry = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopping = False

    # On the reactor -----------------------------------------------------------------------------

    @property
    def unwritten_bytes(self) -> int:
        """How much was appended and is in no file yet."""
        return self._accepted_bytes - self._written_bytes

    @property
    def written_bytes(self) -> int:
        """How much went into files since the start."""
        return self._written_bytes

    @property
    def failure(self) -> DiskWriteFailedError | None:
        """Why nothing more can be written, if so."""
        return self._failures.failure

    @property
    def is_out_of_space(self) -> bool:
        """Whether the last attempt to write found a full disk, and no other; it is repeated."""
        return self._failures.is_stuck

    def reserve(self, size: int) -> int:
        """Return the location of the next record's length field, with space for ``size`` bytes.

        Begins the next log if the active one has no such space.

        Raises:
            NoWritableDirError: no directory takes another log.
        """
        if not self.has_space(size) or self.active_log_id < 0:
            self._rotate()
        return self.active_log_id << 32 | self._offset

    def has_space(self, size: int) -> bool:
        """Return whether the active log takes so many bytes more."""
        return self._offset + size <= self._size_bytes_max

    def append(self, blob: bytes, counted: LedgerBytes | None = None) -> None:
        """Append joined ``[i32 length][entry packet]`` records where ``reserve`` said.

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
            for ledger_id, size in counted:
                self._counted[ledger_id] = self._counted.get(ledger_id, 0) + size
        self._pending_bytes += len(blob)
        if self._pending_bytes >= HAND_OVER_BYTES:
            self.hand_over()

    def hand_over(self) -> None:
        """Give the thread all that was appended so far."""
        if self._blobs:
            size, self._pending_bytes = self._pending_bytes, 0
            blobs, counted, uncounted = self._blobs, self._counted, self._uncounted
            self._blobs, self._uncounted, self._counted = [], [], {}
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
        """Return what a log that was given up has not got, and let writing go on.

        The owner of the index appends it again. The active log is another one from now on.

        Returns:
            Joined records, each time with the location of the first one's length field; of some
            the log may have a part, or all.
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
        self.moves += 1  # Requests from before know places that are not valid any more.
        self._given_up_id = -1
        self._retry.set()
        return [(log_id << 32 | write.offset, b"".join(write.blobs)) for write in records]

    def leave(self, full: Collection[Path]) -> None:
        """End the active log if it is in one of these directories: they take no more."""
        if self.active_log_id >= 0 and self.paths[self.active_log_id].parent in full:
            self.finish()

    def _command(self, command: Command) -> None:
        self._commands.append(command)
        self._wake.release()

    def start(self) -> None:
        """Run in a thread."""
        thread = threading.Thread(target=self._run, name="entry-log", daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Write what is left, end the active log and the thread. Blocks.

        Raises:
            OSError: not all could be written.
            DiskWriteFailedError: likewise, and nothing more can be.
        """
        self.finish()
        self._end_thread()
        self.sync()

    def abandon(self) -> None:
        """End the thread and close the log, whatever is not written. Blocks."""
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
                # The disk is full, or too many files are open. Look again soon, come more or not.
                self._wake.release()
                self._retry.wait(RETRY_S)
                self._retry.clear()

    def step(self) -> bool:
        """Do one thing of what was handed over; return whether there was any.

        Raises:
            OSError: the disk is full; it can be tried again.
            DiskWriteFailedError: nothing more can be written.
        """
        with self._io:
            return self._step()

    def sync(self, moves: int | None = None) -> None:
        """Return once all that was handed over before the call is on disk, where it was to be.

        Args:
            moves: as the attribute was when that was handed over; now unless given.

        Raises:
            OSError: the disk is full, or a log was given up since; it can be tried again.
            DiskWriteFailedError: nothing more can be written.
        """
        moves = self.moves if moves is None else moves
        with self._io:
            self._insist_usable()
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

    def _insist_usable(self) -> None:
        """Refuse to go on after a failure: another sync might succeed, and save nothing."""
        if self.failure is not None:
            raise self.failure
        if self._given_up_id >= 0:
            raise _no_space("records wait to be taken to another log")

    def _step(self) -> bool:
        self._insist_usable()
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
        """End the log in the middle if another directory has space; say whether."""
        other = self._directories.other_than(path.parent)
        if other is None or not self.file.give_up(path, other):
            return False
        self._given_up_id = self.file.log_id
        self._on_given_up()
        return True

    def _begin_elsewhere(self, path: Path) -> bool:
        """Let the log be begun in another directory if one has space; say whether."""
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
