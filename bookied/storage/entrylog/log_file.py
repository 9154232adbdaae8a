"""The entry log that is being written: header, records, ledgers map, syncs."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections import deque
from pathlib import Path
from typing import Final

import attrs
from twisted.logger import Logger

from bookied.errors import NO_SPACE
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.log_ids_and_directories import LogIds
from bookied.storage.entrylog.write_failures import SyncGuard
from bookied.storage.files.files import AppendFile, Files


@attrs.frozen
class OpenLog:
    """A command: begin a log."""

    log_id: int
    turn: int
    """Restarts of the log ids before this log."""
    size_bytes: int = 0


@attrs.frozen
class WriteRecords:
    """A command: append records to the log that was begun last."""

    log_id: int
    offset: int
    """The offset of the records in the log."""
    blobs: list[bytes]
    counted: list[tuple[int, int]]
    """Pairs of ledger id and bytes of the blobs that the caller counted."""
    uncounted: list[bytes]
    size_bytes: int

    @property
    def end(self) -> int:
        """The offset after the records."""
        return self.offset + self.size_bytes


@attrs.frozen
class CloseLog:
    """A command: end the log that was begun last, with its map."""

    size_bytes: int = 0


Command = OpenLog | WriteRecords | CloseLog


log = Logger()

_LEDGER: Final = struct.Struct(">iq")


@attrs.frozen(kw_only=True)
class LogSettings:
    """The settings of entry logs: size, syncs, and the way of writing."""

    size_bytes_max: int = 1024 * 1024 * 1024
    """``logSizeLimit``: a log that would exceed it ends, and the next begins."""
    sync_bytes: int = 32 * 1024 * 1024
    """Sync after this many bytes, so that a checkpoint has little left to sync."""
    direct: bool = True
    """Bypass the page cache if possible."""


@attrs.define(eq=False)
class LogFile:
    """The entry logs on disk, one after the other: each is begun, written and closed in order.

    Belongs to the thread that has the writer's lock. Only ``sync_beside`` runs in parallel: a
    checkpoint waits for the disk while records are written. Records that could not be written for
    lack of space are kept until the reactor has taken them back (``give_up``, ``take_unwritten``).
    """

    _files: Files
    """The disk."""
    _settings: LogSettings
    """The settings of entry logs."""
    _syncs: SyncGuard
    """Syncs files."""
    _ids: LogIds
    """Notes used log ids in files."""
    _paths: dict[int, Path]
    """The path of each log; shared with the writer."""
    _file: AppendFile | None = attrs.field(default=None, init=False)
    log_id: int = attrs.field(default=-1, init=False)
    """The id of the log begun last."""
    _turn: int = attrs.field(default=0, init=False)
    ledgers: dict[int, int] = attrs.field(factory=dict, init=False)
    """Bytes of each ledger's records in the log begun last."""
    _unsynced_bytes: int = attrs.field(default=0, init=False)
    # Writes whose end the file may still buffer; they belong to the reactor after ``give_up``.
    _unwritten: deque[WriteRecords] = attrs.field(factory=deque, init=False)
    # Locked while a file is synced outside the writer's lock: the file must not be closed
    # meanwhile.
    _syncing: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    readable_until: int = attrs.field(default=0, init=False)
    """All entries at lower locations can be read from files.

        The bits above the location count the restarts of the log ids, so the value only ever grows.
        """

    @property
    def path(self) -> Path:
        """The path of the log begun last."""
        return self._paths.get(self.log_id, Path())

    def ledgers_of(self, log_id: int) -> dict[int, int]:
        """Return bytes by ledger of a log, if it is the current file; any thread."""
        return dict(self.ledgers) if self.log_id == log_id else {}

    # Begin ----------------------------------------------------------------------------------------

    def begin(self, command: OpenLog) -> None:
        """Begin a log, or finish an earlier attempt that ran out of space.

        Raises:
            OSError: the log could not be begun.
        """
        log_id = command.log_id
        self._begin(log_id, self._paths[log_id])
        self._turn = command.turn
        self._unwritten.clear()
        self._ids.note(log_id)

    def _begin(self, log_id: int, path: Path) -> None:
        # An earlier attempt that ran out of space may have done some of these steps.
        if self._file is None:
            self._file = self._files.open_append(path, direct=self._settings.direct)
            self.log_id = log_id
            self.ledgers = {}
        if not self._file.tell():
            self._file.write([layout.LogHeader().encode()])
        # After any crash the file must be a log, because garbage collection must read it.
        self._file.flush()
        self._syncs.sync(self._file)
        self._files.sync_dir(path.parent)

    def begin_elsewhere(self, path: Path, directory: Path) -> None:
        """Move a log that could not be begun to another directory, for the next attempt.

        The log has no entry yet, and locations do not name directories. The first file is removed
        durably before: of two logs with one id a restart might choose the empty one.

        Raises:
            OSError: the first file could not be removed.
        """
        self.abandon()
        if self._files.exists(path):
            self._files.remove(path)
            self._files.sync_dir(path.parent)
        log_id = layout.log_id(path.name)
        assert log_id is not None
        self._paths[log_id] = directory / path.name

    # Write ----------------------------------------------------------------------------------------

    def write(self, command: WriteRecords) -> None:
        """Append records, and sync if ``sync_bytes`` are unsynced."""
        file = self._file
        assert file is not None
        assert self.log_id == command.log_id
        file.write(command.blobs)
        self._unwritten.append(command)
        self._count(command)
        self._note_readable(file)
        self._drop_written(file)
        self._unsynced_bytes += command.size_bytes
        if self._unsynced_bytes >= self._settings.sync_bytes:
            self._syncs.sync(file)
            self._unsynced_bytes = 0

    def _note_readable(self, file: AppendFile) -> None:
        location = self.log_id << 32 | file.readable_bytes
        self.readable_until = self._turn << layout.LOCATION_BITS | location

    def _drop_written(self, file: AppendFile) -> None:
        """Drop the writes that are completely in the file."""
        unwritten = self._unwritten
        while unwritten and unwritten[0].end <= file.readable_bytes:
            unwritten.popleft()

    def _count(self, command: WriteRecords) -> None:
        ledgers = self.ledgers
        for ledger_id, size in command.counted:
            ledgers[ledger_id] = ledgers.get(ledger_id, 0) + size
        for blob in command.uncounted:
            _count_blob(blob, ledgers)

    # Sync and close -------------------------------------------------------------------------------

    @property
    def open_file(self) -> AppendFile | None:
        """The file being written, for ``sync_beside``; None if none is open."""
        return self._file

    def flush(self) -> None:
        """Pass all written bytes to the system, so that they can be read."""
        if self._file is not None:
            self._file.flush()
            self._note_readable(self._file)

    def sync_beside(self, file: AppendFile) -> None:
        """Sync ``file`` outside the writer's lock, if it is still being written.

        A file that is closed was synced before.
        """
        with self._syncing:
            if file is self._file:
                self._syncs.sync(file)

    def close(self) -> None:
        """End the log: write its map, sync and close it."""
        file = self._file
        assert file is not None
        file.flush()
        self._note_readable(file)
        map_offset = file.tell()
        has_map = bool(self.ledgers) and self._append_map(file)
        self._syncs.sync(file)
        if has_map:
            self._write_map_place(self._paths[self.log_id], map_offset, len(self.ledgers))
        self._let_go(file)
        self._unwritten.clear()

    def _append_map(self, file: AppendFile) -> bool:
        """Append the ledgers map; return whether there was space. A log without map is scanned."""
        try:
            file.write([layout.encode_ledgers_map(self.ledgers)])
            file.flush()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise  # The map shares a block with the last entries.
            log.warn(
                "{path} is closed without a ledgers map: {error}",
                path=self._paths[self.log_id],
                error=error,
            )
            return False
        return True

    def _write_map_place(self, path: Path, map_offset: int, ledgers: int) -> None:
        header = self._files.open_update(path)
        try:
            header.write_at(layout.MAP_PLACE_OFFSET, layout.MAP_PLACE.pack(map_offset, ledgers))
            self._syncs.sync(header)
        except OSError as error:
            if error.errno not in NO_SPACE or self._syncs.is_failed:
                raise
            log.warn("{path} is closed without a ledgers map: {error}", path=path, error=error)
        finally:
            header.close()

    def _let_go(self, file: AppendFile) -> None:
        """Close the active log; everything that counts is synced."""
        with self._syncing:
            self._file = None
            with contextlib.suppress(OSError):
                file.close()
        self._unsynced_bytes = 0

    def abandon(self) -> None:
        """Close the file, even if not everything is written."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    # Give up --------------------------------------------------------------------------------------

    def give_up(self, path: Path, other: Path) -> bool:
        """End a log early because ``other`` has space for the rest; return whether it was open.

        Everything that can be read stays, durably. The remains of a failed write after it are cut
        off.

        Raises:
            OSError: the readable part could not be made durable.
        """
        file = self._file
        if file is None:
            return False
        log.warn("closed {path} early: {other} has space", path=path, other=other)
        self._syncs.sync(file)
        self._drop_written(file)
        kept = file.readable_bytes
        self._let_go(file)
        with (
            contextlib.suppress(OSError),
            contextlib.closing(self._files.open_update(path)) as cutting,
        ):
            cutting.truncate(kept)
        return True

    def take_unwritten(self) -> list[WriteRecords]:
        """Return the writes that are not, or not completely, in a log that was given up."""
        unwritten = list(self._unwritten)
        self._unwritten.clear()
        return unwritten


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
