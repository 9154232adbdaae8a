"""Writes entry logs: one active log for all ledgers, in the order in which entries arrive.

The reactor gives out places (``reserve``) and appends to memory; a thread writes, and syncs every
``sync_bytes`` so that a checkpoint never meets a mountain. The thread runs ``step`` in a loop; a
simulation calls it itself. ``sync`` is for checkpoints, from whatever thread.

No room on the disk is answered by giving the log up where another directory has room: it ends with
what is in it, and the reactor takes back what is not (``take_back``) to append it to the next log
and to say so in the index. Without such a directory, and without a descriptor to open a file with,
the same bytes are tried again, and ``unwritten_bytes`` grows until whoever accepts adds holds back.
Any other failed write or sync is the end (``on_fatal``): what the log holds is unknown then, while
the journals hold it all for the replay of the next start.
"""

from __future__ import annotations

import contextlib
import errno
import struct
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import attrs
from twisted.logger import Logger

from bookied.errors import WriteFailedError
from bookied.storage.entrylog import format as layout
from bookied.storage.files.files import AppendFile, Files, UpdateFile

log = Logger()

HAND_OVER_BYTES: Final = 1024 * 1024
"""The thread gets bytes in pieces of about this size."""

RETRY_S: Final = 1.0

IDS_AT_ONCE_MAX: Final = 1000
"""More ids than are ever given out and not noted yet; a lower id beyond that has started over."""

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_NO_DESCRIPTOR: Final = {errno.EMFILE, errno.ENFILE}

LedgerBytes = Iterable[tuple[int, int]]
"""Pairs of ledger id and bytes of its records, lengths included."""


@attrs.frozen
class _Open:
    log_id: int
    turn: int
    size_bytes: int = 0


@attrs.frozen
class _Write:
    log_id: int
    offset: int
    """Where in the log it begins."""
    blobs: list[bytes]
    counted: dict[int, int]
    """Bytes by ledger of those blobs that came with a count."""
    uncounted: list[bytes]
    size_bytes: int


@attrs.frozen
class _Close:
    size_bytes: int = 0


class EntryLogWriter:
    """Appends records to the active log and begins the next one where ``size_bytes_max`` ends it.

    ``reserve``, ``append``, ``hand_over`` and ``finish`` belong to the reactor's thread.
    """

    def __init__(
        self,
        files: Files,
        directories: Sequence[Path],
        *,
        next_log_id: int = 0,
        choose_directory: Callable[[], Path],
        other_directory: Callable[[Path], Path | None] = lambda full: None,  # noqa: ARG005
        on_fatal: Callable[[WriteFailedError], object],
        on_full: Callable[[Path], object] = lambda path: None,  # noqa: ARG005
        on_given_up: Callable[[], object] = lambda: None,
        size_bytes_max: int = 1024 * 1024 * 1024,
        sync_bytes: int = 32 * 1024 * 1024,
        direct: bool = True,
    ) -> None:
        """Prepare to write; the first log begins with the first entry.

        Args:
            files: the disk.
            directories: the ``current`` directory of every ledger directory, for ``lastId``.
            next_log_id: higher than any id in use; may be set until the first entry comes.
            choose_directory: says where a new log goes; raises ``NoWritableDirError``.
            other_directory: says which directory has room where this one has none, if any.
            on_fatal: called from the log's thread: the bookie has to stop.
            on_full: called from the log's thread when a directory has run out of room.
            on_given_up: called from the log's thread: nothing is written before ``take_back``.
            size_bytes_max: ``logSizeLimit``.
            sync_bytes: sync whenever so much was written.
            direct: write past the page cache where possible.
        """
        self._files, self._directories = files, tuple(directories)
        self._choose_directory, self._other_directory = choose_directory, other_directory
        self._on_fatal, self._on_full, self._on_given_up = on_fatal, on_full, on_given_up
        self._size_bytes_max = min(size_bytes_max, layout.OFFSET_MAX)
        self._sync_bytes, self._direct = sync_bytes, direct
        # Of the reactor:
        self.next_log_id = next_log_id
        self.turn = 0
        """How often the log ids have started over in the life of this writer."""
        self._log_id, self._offset = -1, 0
        self._blobs: list[bytes] = []
        self._uncounted: list[bytes] = []
        self._counted: dict[int, int] = {}
        self._pending_bytes = 0
        self._accepted_bytes = 0
        self.paths: dict[int, Path] = {}
        """Where the logs begun by this writer are."""
        # Of whoever holds the lock:
        self._io = threading.Lock()
        self._commands: deque[_Open | _Write | _Close] = deque()
        self._file: AppendFile | None = None
        self._file_log_id = -1
        self._file_turn = 0
        self._ledgers: dict[int, int] = {}
        self._unsynced_bytes = 0
        self._written_bytes = 0
        self._is_stuck = self._is_sync_failed = False
        self._told: tuple[Path, bool] | None = None
        self._noting = threading.Lock()
        self._last_id = -1
        # Of the log's thread until it has set ``_given_up_id``, of the reactor until that is -1.
        self._held: deque[_Write] = deque()
        self._given_up_id = -1
        self.moves = 0
        """How often records were taken back from a log, or one begun elsewhere; see ``sync``."""
        # Held while a file is synced outside the other lock, so that it is not closed meanwhile.
        self._syncing = threading.Lock()
        # The system tells a failed sync to one of two that wait for it: so one at a time.
        self._one_sync = threading.Lock()
        self._wake = threading.Semaphore(0)
        self._retry = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.readable_until = 0
        """All entries at lower locations can be read from files; assigned by whoever writes.

        Above the location it has the turn of the log ids, so it only ever grows.
        """
        self.failure: WriteFailedError | None = None

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
    def is_out_of_room(self) -> bool:
        """Whether the last attempt to write found a full disk, and no other; it is repeated."""
        return self._is_stuck

    @property
    def active_log_id(self) -> int:
        """The log that is being appended to; -1 before the first."""
        return self._log_id

    def reserve(self, size: int) -> int:
        """Return the location of the next record's length field, with room for ``size`` bytes.

        Begins the next log if the active one has no such room.

        Raises:
            NoWritableDirError: no directory takes another log.
        """
        if self._offset + size > self._size_bytes_max or self._log_id < 0:
            self._rotate()
        return self._log_id << 32 | self._offset

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
            size = self._pending_bytes
            offset = self._offset - size
            write = _Write(self._log_id, offset, self._blobs, self._counted, self._uncounted, size)
            self._blobs, self._uncounted, self._counted = [], [], {}
            self._pending_bytes = 0
            self._command(write)

    def _rotate(self) -> None:
        directory = self._choose_directory()
        self.finish()
        log_id = self.give_out_id()
        self._log_id, self._offset = log_id, layout.HEADER_BYTES
        self.paths[log_id] = directory / layout.file_name(log_id)
        self._command(_Open(log_id, self.turn))

    def give_out_id(self) -> int:
        """Return the next log id, whoever is going to write that log."""
        log_id = self._free_log_id()
        self.next_log_id = log_id + 1
        return log_id

    def _free_log_id(self) -> int:
        """Return the next id; behind the last there can be they start over, past those in use."""
        log_id = self.next_log_id
        while log_id > layout.LOG_ID_MAX or self._is_used(log_id):
            if log_id >= layout.LOG_ID_MAX:
                self.turn += 1
            log_id = log_id + 1 if log_id < layout.LOG_ID_MAX else 0
        return log_id

    def _is_used(self, log_id: int) -> bool:
        name = layout.file_name(log_id)
        names = (name, f"{name}.compacting")
        return any(self._files.exists(path / one) for path in self._directories for one in names)

    def finish(self) -> None:
        """End the active log, with its ledgers map; the next entry begins another."""
        self.hand_over()
        if self._log_id >= 0:
            self._command(_Close())
            self._log_id = -1

    def take_back(self) -> list[tuple[int, bytes]]:
        """Return what a log that was given up has not got, and let writing go on.

        Whoever has the index appends it again. The active log is another one from now on.

        Returns:
            Joined records, each time with the location of the first one's length field; of some
            the log may have a part, or all.
        """
        log_id, records = self._given_up_id, list(self._held)
        if log_id < 0:
            return []
        if self._log_id == log_id:
            self.finish()
        while (command := self._commands.popleft()) and isinstance(command, _Write):
            assert command.log_id == log_id
            self._accepted_bytes -= command.size_bytes
            records.append(command)
        assert isinstance(command, _Close)
        self.moves += 1  # What was asked for before knows places that are none any more.
        self._held.clear()
        self._given_up_id = -1
        self._retry.set()
        return [(log_id << 32 | write.offset, b"".join(write.blobs)) for write in records]

    def leave(self, full: Collection[Path]) -> None:
        """End the active log if it is in one of these directories: what comes has no room there."""
        if self._log_id >= 0 and self.paths[self._log_id].parent in full:
            self.finish()

    def _command(self, command: _Open | _Write | _Close) -> None:
        self._commands.append(command)
        self._wake.release()

    def start(self) -> None:
        """Run in a thread."""
        self._thread = threading.Thread(target=self._run, name="entry-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what is left, end the active log and the thread. Blocks.

        Raises:
            OSError: not all could be written.
            WriteFailedError: likewise, and nothing more can be.
        """
        self.finish()
        self._end_thread()
        self.sync()

    def abandon(self) -> None:
        """End the thread and close the log, whatever is not written. Blocks."""
        self._end_thread()
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

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
            except WriteFailedError:
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
            WriteFailedError: nothing more can be written.
        """
        with self._io:
            return self._step()

    def sync(self, moves: int | None = None) -> None:
        """Return once all that was handed over before the call is on disk, where it was to be.

        Args:
            moves: as the attribute was when that was handed over; now unless given.

        Raises:
            OSError: the disk is full, or a log was given up since; it can be tried again.
            WriteFailedError: nothing more can be written.
        """
        moves = self.moves if moves is None else moves
        with self._io:
            self._insist_usable()
            for _ in range(len(self._commands)):
                self._step()
            file, until = self._file, self.readable_until
            if file is not None:
                self._guarded(file.flush, self._file_log_id, may_give_up=True)
                self._has_room()
                self._note_readable(file)
            if self.moves != moves:
                raise _no_room("records have moved to another log")
        with self._syncing:
            # A file that is not the active one any more was synced when it was closed.
            if file is not None and file is self._file:
                self._guarded(lambda: self._sync(file), self._file_log_id, may_give_up=False)
        assert self.readable_until >= until

    def _insist_usable(self) -> None:
        """Refuse to go on after a failure: another sync might succeed, and save nothing."""
        if self.failure is not None:
            raise self.failure
        if self._given_up_id >= 0:
            raise _no_room("records wait to be taken to another log")

    def _step(self) -> bool:
        self._insist_usable()
        if not self._commands:
            return False
        command = self._commands[0]
        is_open = isinstance(command, _Open)
        log_id = command.log_id if isinstance(command, _Open) else self._file_log_id
        self._guarded(lambda: self._perform(command), log_id, may_give_up=not is_open)
        self._commands.popleft()
        self._written_bytes += command.size_bytes
        self._has_room()
        return True

    def _guarded(self, action: Callable[[], None], log_id: int, *, may_give_up: bool) -> None:
        path = self.paths.get(log_id, Path())
        try:
            action()
        except Exception as error:  # noqa: BLE001  # told apart there
            self._failed(path, error, may_give_up=may_give_up)

    def _failed(self, path: Path, error: Exception, *, may_give_up: bool) -> NoReturn:
        """Raise what it comes to: to be tried again, or the end."""
        number = error.errno if isinstance(error, OSError) else None
        if number in _NO_DESCRIPTOR:
            raise error
        if number in _FULL and not self._is_sync_failed:
            try:
                has_other = self._give_up(path) if may_give_up else self._begin_elsewhere(path)
            except OSError as worse:
                self._die(path, worse)
            self._tell_full(path.parent, is_stuck=not has_other)
            raise error
        self._die(path, error)

    def _die(self, path: Path, error: Exception) -> NoReturn:
        if self.failure is None:  # Else the other thread was there before.
            self.failure = WriteFailedError(path, error)
            log.critical("entry log {path} is dead: {error!r}", path=path, error=error)
            self._on_fatal(self.failure)
        raise self.failure from error

    def _tell_full(self, directory: Path, *, is_stuck: bool) -> None:
        self._is_stuck = is_stuck
        if self._told != (directory, is_stuck):
            self._told = (directory, is_stuck)
            self._on_full(directory)

    def _has_room(self) -> None:
        self._is_stuck, self._told = False, None

    def _give_up(self, path: Path) -> bool:
        """End a log in the middle if another directory has room for the rest of it; say whether.

        What can be read of it stays, durably. What a write that failed left behind that is cut off.
        """
        other, file = self._other_directory(path.parent), self._file
        if other is None or file is None:
            return False
        log.warn("{path} is closed early: there is space in {other}", path=path, other=other)
        self._sync(file)
        self._drop_held(file)
        kept = file.readable_bytes
        self._let_go(file)
        with contextlib.suppress(OSError):
            cutting = self._files.open_update(path)
            try:
                cutting.truncate(kept)
            finally:
                cutting.close()
        self._given_up_id = self._file_log_id
        self._on_given_up()
        return True

    def _let_go(self, file: AppendFile) -> None:
        """Close the active log, of which all that counts is synced."""
        with self._syncing:
            self._file = None
            with contextlib.suppress(OSError):
                file.close()
        self._unsynced_bytes = 0

    def _perform(self, command: _Open | _Write | _Close) -> None:
        if isinstance(command, _Write):
            self._write(command)
        elif isinstance(command, _Open):
            self._open(command)
        else:
            self._close()

    def _open(self, command: _Open) -> None:
        log_id = command.log_id
        self._begin(log_id, self.paths[log_id])
        self._file_turn = command.turn
        self._held.clear()
        self.write_last_id(log_id)

    def _begin(self, log_id: int, path: Path) -> None:
        # Each part may have been done by an earlier attempt that ran out of room.
        if self._file is None:
            self._file = self._files.open_append(path, direct=self._direct)
            self._file_log_id = log_id
            self._ledgers = {}
        if not self._file.tell():
            self._file.write([layout.LogHeader().encode()])
        # Whatever a crash leaves of it, it is to be a log: garbage collection must read it.
        self._file.flush()
        self._sync(self._file)
        self._files.sync_dir(path.parent)

    def _begin_elsewhere(self, path: Path) -> bool:
        """Let the next attempt be made in another directory, if there is one with room.

        No entry is in the log yet, and locations do not tell directories. Of two logs with one id
        a restart might take the empty one, so the first is gone for good before that.
        """
        directory = self._other_directory(path.parent)
        if directory is None:
            return False
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
        if self._files.exists(path):
            self._files.remove(path)
            self._files.sync_dir(path.parent)
        log_id = layout.log_id(path.name)
        assert log_id is not None
        self.paths[log_id] = directory / path.name
        self.moves += 1
        return True

    def write_last_id(self, log_id: int) -> None:
        """Note in every directory which id was given out; a full one does without, as in Java.

        Whoever comes a little later with a lower id, given out before, does not put it back.
        """
        with self._noting:
            is_late = 0 <= self._last_id - log_id < IDS_AT_ONCE_MAX
            self._last_id = log_id = self._last_id if is_late else log_id
            self._write_last_id(log_id)

    def _write_last_id(self, log_id: int) -> None:
        for directory in self._directories:
            try:
                self._files.write_atomic(directory / layout.LAST_ID, b"%x\n" % log_id)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                log.warn("no space for {name} in {path}", name=layout.LAST_ID, path=directory)

    def _write(self, command: _Write) -> None:
        file = self._file
        assert file is not None
        assert self._file_log_id == command.log_id
        file.write(command.blobs)
        self._held.append(command)
        self._count(command)
        self._note_readable(file)
        self._drop_held(file)
        self._unsynced_bytes += command.size_bytes
        if self._unsynced_bytes >= self._sync_bytes:
            self._sync(file)
            self._unsynced_bytes = 0

    def _sync(self, file: AppendFile | UpdateFile) -> None:
        """Sync a file; what it holds after a failure is unknown, whatever the error."""
        with self._one_sync:
            if self._is_sync_failed:
                raise OSError(errno.EIO, "an earlier sync has failed")
            try:
                file.sync()
            except BaseException:
                self._is_sync_failed = True
                raise

    def _note_readable(self, file: AppendFile) -> None:
        location = self._file_log_id << 32 | file.readable_bytes
        self.readable_until = self._file_turn << layout.LOCATION_BITS | location

    def _drop_held(self, file: AppendFile) -> None:
        """Keep those writes of which the file may hold back an end."""
        held = self._held
        while held and held[0].offset + held[0].size_bytes <= file.readable_bytes:
            held.popleft()

    def _count(self, command: _Write) -> None:
        ledgers = self._ledgers
        for ledger_id, size in command.counted.items():
            ledgers[ledger_id] = ledgers.get(ledger_id, 0) + size
        for blob in command.uncounted:
            _count_blob(blob, ledgers)

    def _close(self) -> None:
        file = self._file
        assert file is not None
        file.flush()
        self._note_readable(file)
        map_offset = file.tell()
        has_map = bool(self._ledgers) and self._append_map(file)
        self._sync(file)
        if has_map:
            self._write_map_place(self.paths[self._file_log_id], map_offset, len(self._ledgers))
        self._let_go(file)
        self._held.clear()

    def _append_map(self, file: AppendFile) -> bool:
        """Whether there was room; a log without its map is scanned instead."""
        try:
            file.write([layout.encode_ledgers_map(self._ledgers)])
            file.flush()
        except OSError as error:
            log.warn("{path} gets no map: {error}", path=self.paths[self._file_log_id], error=error)
            return False
        return True

    def _write_map_place(self, path: Path, map_offset: int, ledgers: int) -> None:
        header = self._files.open_update(path)
        try:
            header.write_at(layout.MAP_PLACE_OFFSET, layout.MAP_PLACE.pack(map_offset, ledgers))
            self._sync(header)
        except OSError as error:
            if error.errno not in _FULL or self._is_sync_failed:
                raise
            log.warn("{path} gets no map: {error}", path=path, error=error)
        finally:
            header.close()


def _no_room(message: str) -> OSError:
    return OSError(errno.ENOSPC, message)


_LEDGER: Final = struct.Struct(">iq")


def _count_blob(blob: bytes, ledgers: dict[int, int]) -> None:
    at, end, unpack = 0, len(blob), _LEDGER.unpack_from
    current, begin = -1, 0
    while at < end:
        length, ledger_id = unpack(blob, at)
        if ledger_id != current:
            if at:
                ledgers[current] = ledgers.get(current, 0) + at - begin
            current, begin = ledger_id, at
        at += 4 + length
    if end:
        ledgers[current] = ledgers.get(current, 0) + end - begin
