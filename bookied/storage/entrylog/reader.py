"""The reader of single entries, and of runs of them, by their locations in entry logs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from bookied.errors import (
    BadEntryLengthError,
    CorruptError,
    EntryLogRecordError,
    LedgersMapError,
    MissingEntryError,
    MissingLogError,
    WrongEntryError,
)
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.entry_rows import (
    NEXT,
    EntryRows,
    bytes_to_read,
    cut_rows,
    is_record_head,
    may_follow,
)
from bookied.storage.entrylog.log_list import list_logs
from bookied.storage.entrylog.scan import open_scan, read_ledgers_map
from bookied.storage.files.files import Files, ReadFile
from bookied.storage.files.open_files import OpenFiles, SharedFile
from bookied.storage.files.read_errors import lost_is_damaged, read_before_loss

FIRST_READ_BYTES: Final = 4096
"""Bytes of the first read at a location; longer entries need a second read."""

GUESS_BYTES_MIN: Final = 512
GUESS_BYTES_MAX: Final = 16 * 1024
"""Bytes of the first read of each of several entries: as many as those before had, about.

After an entry that is not in memory more are read, so that the disk reads its neighbors too.
"""

READ_NOW_BYTES_MAX: Final = 256 * 1024
"""Longer entries are always read in a thread: copying them takes time as well."""

NEAR_BYTES: Final = 256 * 1024
"""Bytes before and after a record that are searched for a record that the index lacks."""

SUSPECTS_MAX: Final = 16
"""Places that may be the record; a client can send bytes that look like any number of them."""

STEPS_MAX: Final = NEAR_BYTES // layout.RECORD.size
"""Records that are stepped over in a search, in all: a client can send bytes that look like many
chains of records.
"""


WantedEntry = tuple[int, int, int]
"""Location, ledger and entry."""


class EntryLogReader:
    """A reader of entries by location, for any thread."""

    def __init__(
        self, files: Files, directories: Iterable[Path], *, open_logs_max: int = 256
    ) -> None:
        """Store the ``current`` directories of the logs.

        At most ``open_logs_max`` logs are open.
        """
        self._files, self._directories = files, tuple(directories)
        self._open = OpenFiles(files, files_max=open_logs_max)
        self._paths: dict[int, Path] = {}
        self._checked: dict[int, Path] = {}  # The logs whose headers are known to be good.
        self.search_turn = threading.Lock()
        """Held by the thread that searches near a record, and then sleeps as long as it searched.

        A search keeps the interpreter's lock for milliseconds. Beside eight of them at once adds
        took 15 times as long, and beside one after the other without a break 7 to 15 times.
        """
        self._guess_bytes = FIRST_READ_BYTES
        self._one = memoryview(bytearray(READ_NOW_BYTES_MAX))  # Of the thread with ``_open.lock``.

    def read(self, location: int, ledger_id: int, entry_id: int) -> bytes:
        """Return the entry packet at ``location``.

        Raises:
            MissingLogError: the log is missing.
            MissingEntryError: the log is shorter.
            BadEntryLengthError: no record begins at the location.
            WrongEntryError: the record is of another entry.
            EntryLogFormatError: the file is not an entry log.
        """
        log_id, offset = layout.split_location(location)
        borrowed = self._borrow(log_id)
        if borrowed is None:
            with self._reading(log_id) as (file, path):
                return _read_packet(file, path, offset, ledger_id, entry_id)
        shared, path = borrowed
        try:
            return _read_packet(shared.file, path, offset, ledger_id, entry_id)
        finally:
            self._open.give_back(shared)

    def read_now(self, location: int, ledger_id: int, entry_id: int) -> bytes | None:
        """Return an entry packet if no wait for a disk is needed, else None.

        ``read`` must have opened the log before. None also if any check fails: ``read`` reports the
        error.
        """
        begin, wanted = layout.LENGTH.size, ((location, ledger_id, entry_id),)
        with self._open.lock:  # The read takes no longer than to borrow the file and return it.
            (size,) = self._copy(wanted, self._one, begin, READ_NOW_BYTES_MAX)
            return bytes(self._one[begin : begin + size]) if size else None

    def copy_now(
        self, wanted: Iterable[WantedEntry], target: memoryview, gap_bytes: int, bytes_max: int
    ) -> list[int]:
        """Copy entry packets into ``target`` as ``read_now`` returns them, a gap before each.

        Args:
            wanted: location, ledger and entry of each.
            target: the place of the packets that are found, one after the other. It is longer than
                ``bytes_max`` by at least ``READ_NOW_BYTES_MAX``.
            gap_bytes: left before each packet, at least as many as the length of a record has.
            bytes_max: of packets and gaps; the copying ends with the packet that exceeds them.

        Returns:
            The size of each packet, 0 for one that ``read_now`` would not return.
        """
        with self._open.lock:
            return self._copy(wanted, target, gap_bytes, bytes_max)

    def _copy(
        self, wanted: Iterable[WantedEntry], target: memoryview, gap_bytes: int, bytes_max: int
    ) -> list[int]:
        """Copy as ``copy_now`` does; the caller has the lock of the open files."""
        length_bytes, next_bytes = layout.LENGTH.size, NEXT.size
        unpack, unpack_next = layout.RECORD.unpack_from, NEXT.unpack_from
        sizes: list[int] = []
        at, log_id, file, guess = gap_bytes - length_bytes, -1, None, self._guess_bytes
        for location, ledger_id, entry_id in wanted:
            if location >> 32 != log_id:
                log_id = location >> 32
                path = self._checked.get(log_id)
                file = self._open.opened(path) if path is not None else None
            begin = (location & 0xFFFFFFFF) - length_bytes
            sizes.append(0)
            if file is None or begin < layout.HEADER_BYTES:
                continue
            count = file.read_now(begin, target[at : at + guess])
            if count < layout.RECORD.size:
                guess = GUESS_BYTES_MAX
                continue
            length, ledger, entry = unpack(target, at)
            if entry != entry_id or ledger != ledger_id or length < layout.BODY_BYTES_MIN:
                continue
            needed = length_bytes + length + next_bytes
            if needed <= guess:
                guess -= guess - needed >> 3
            elif needed <= READ_NOW_BYTES_MAX:
                count = file.read_now(begin, target[at : at + needed])
                guess = min(needed, GUESS_BYTES_MAX)
            end = at + length_bytes + length
            if needed > count or not is_record_head(*unpack_next(target, end)):
                # ``read`` reports the error, if it is one.
                tail = bytes(target[end : at + min(needed, count)])
                if at + count < end or not may_follow(tail, begin + end - at):
                    guess = GUESS_BYTES_MAX
                    continue
            sizes[-1] = length
            at += length + gap_bytes
            if at >= bytes_max:
                break
        self._guess_bytes = max(GUESS_BYTES_MIN, guess)
        return sizes

    def read_rows(
        self,
        locations: Sequence[int],
        ledger_id: int,
        entry_id: int,
        *,
        bytes_max: int,
        until: int,
        stride: int = 1,
        entry_bytes: int = 0,
    ) -> EntryRows | None:
        """Return the entries that one read finds.

        None if a check fails: ``read`` reports the error.

        Args:
            locations: of the entries, in order.
            ledger_id: the ledger of the entries.
            entry_id: the first entry.
            bytes_max: the limit of the result, lengths included.
            until: the logs are written below this location.
            stride: the distance between the entry ids.
            entry_bytes: the expected size of an entry.
        """
        log_id, _ = layout.split_location(locations[0])
        with self._reading(log_id) as (file, _path):
            at, size = _piece(locations, bytes_max, until, entry_bytes)
            data = file.read_at(at, size) if size > 0 else b""
        # A read that is shorter than asked for reaches the end of the log.
        tail_bytes = NEXT.size if len(data) == size else 0
        return _rows(data, locations, ledger_id, entry_id, bytes_max, tail_bytes, stride)

    def read_rows_now(
        self,
        locations: Sequence[int],
        ledger_id: int,
        entry_id: int,
        *,
        bytes_max: int,
        until: int,
        stride: int = 1,
        entry_bytes: int = 0,
    ) -> EntryRows | None:
        """Return what ``read_rows`` returns if no wait for a disk is needed, else None."""
        log_id, _ = layout.split_location(locations[0])
        borrowed = self._borrow(log_id)
        if borrowed is None:
            return None
        shared, _ = borrowed
        try:
            at, size = _piece(locations, bytes_max, until, entry_bytes)
            data = bytearray(max(0, size))
            del data[shared.file.read_now(at, data) if size > 0 else 0 :]
        finally:
            self._open.give_back(shared)
        return _rows(data, locations, ledger_id, entry_id, bytes_max, NEXT.size, stride)

    def check(self, location: int, ledger_id: int, entry_id: int) -> None:
        """Check that an entry is at ``location``, by the head and the end of its record only.

        Agrees with Java 4.18.0, DefaultEntryLogger.checkEntry, which does not check the end.

        Raises:
            EntryLogRecordError: the disk has lost the head, or the log's file.
            CorruptError: as ``read``.
        """
        log_id, offset = layout.split_location(location)
        lost = lost_is_damaged(self._path(log_id), EntryLogRecordError)
        with lost, self._reading(log_id) as (file, path):
            at = max(0, offset - layout.LENGTH.size)
            start = file.read_at(at, layout.RECORD.size)
            end = offset + _check_head(start, path, offset, ledger_id, entry_id)
            if end > file.size():
                raise MissingEntryError(path, at, f"entry {entry_id} is cut: the log ends in it")

    def is_near(self, location: int, ledger_id: int, entry_id: int) -> bool:
        """Return whether a log has a record of an entry near the record at ``location``.

        A log that was removed meanwhile has none.

        Raises:
            CorruptError: the log cannot be read. So for ``OSError``.
        """
        log_id, offset = layout.split_location(location)
        here = offset - layout.LENGTH.size
        begin = max(layout.HEADER_BYTES, here - NEAR_BYTES)
        with contextlib.suppress(MissingLogError), self._reading(log_id) as (file, _path):
            data = file.read_at(begin, here + NEAR_BYTES - begin)
            with self.search_turn:
                began_s = time.thread_time()
                found = _is_beside(data, here - begin, ledger_id, entry_id)
                time.sleep(time.thread_time() - began_s)
                return found
        return False

    def entries_of(self, ledger_id: int) -> set[int] | None:
        """Return the ids of a ledger's entries in the logs; None if a log cannot be read."""
        found: set[int] = set()
        for path in list_logs(self._files, self._directories).values():
            try:
                found |= _entries_in(self._files, path, ledger_id)
            except CorruptError:
                return None
        return found

    def _borrow(self, log_id: int) -> tuple[SharedFile, Path] | None:
        """Return a log that is open and checked, to be returned later; None for any other."""
        path = self._checked.get(log_id)
        shared = self._open.borrow(path) if path is not None else None
        return None if path is None or shared is None else (shared, path)

    @contextlib.contextmanager
    def _reading(self, log_id: int) -> Iterator[tuple[ReadFile, Path]]:
        """Yield an open, checked log and its path.

        Raises:
            MissingLogError: the log is missing.
            EntryLogFormatError: the file is not an entry log.
        """
        with contextlib.ExitStack() as stack:
            path = self._path(log_id)
            try:
                file = stack.enter_context(self._open.use(path))
            except FileNotFoundError:
                # The listed directory may have had no space for the log, which was then begun
                # elsewhere.
                self._paths.pop(log_id, None)
                path = self._path(log_id)
                file = self._open_again(path, stack)
            self._check(log_id, file, path)
            yield file, path

    def _open_again(self, path: Path, stack: contextlib.ExitStack) -> ReadFile:
        try:
            return stack.enter_context(self._open.use(path))
        except FileNotFoundError:
            raise MissingLogError(path, None, "no such log") from None

    def _path(self, log_id: int) -> Path:
        path = self._paths.get(log_id)
        if path is None:
            self._paths.update(list_logs(self._files, self._directories))
            path = self._paths.get(log_id)
        if path is None:
            name = layout.file_name(log_id)
            raise MissingLogError(self._directories[0] / name, None, "no such log")
        return path

    def _check(self, log_id: int, file: ReadFile, path: Path) -> None:
        if self._checked.get(log_id) != path:
            layout.decode_header(file.read_at(0, layout.HEADER.size), path)
            self._checked[log_id] = path

    def forget(self, log_id: int) -> None:
        """Close a log that was removed."""
        path = self._paths.pop(log_id, None)
        self._checked.pop(log_id, None)
        if path is not None:
            self._open.forget(path)

    def close(self) -> None:
        """Close all files."""
        self._open.close()


def _is_beside(data: bytes, here: int, ledger_id: int, entry_id: int) -> bool:
    """Return whether an entry's record is among those before and after the record at ``here``.

    Other bytes may look like a record. But from the first of the two records each record begins
    where another one ends, up to the second one.
    """
    left = STEPS_MAX
    for suspect in islice(_places(data, ledger_id, entry_id), SUSPECTS_MAX):
        at, end = sorted((suspect, here))
        while at < end and left:
            left -= 1
            (length,) = layout.LENGTH.unpack_from(data, at)
            if length < layout.BODY_BYTES_MIN:
                break
            at += layout.LENGTH.size + length
        if at == end:
            return True
    return False


def _places(data: bytes, ledger_id: int, entry_id: int) -> Iterator[int]:
    """Yield where the bytes look like the record of an entry."""
    ids = layout.IDS.pack(ledger_id, entry_id)
    at = data.find(ids, layout.LENGTH.size)
    while at >= 0:
        yield at - layout.LENGTH.size
        at = data.find(ids, at + 1)


def _entries_in(files: Files, path: Path, ledger_id: int) -> set[int]:
    """Return the ids of a ledger's entries in a log; the log is read unless its map rules it out.

    Raises:
        CorruptError: the log cannot be read.
    """
    with contextlib.suppress(LedgersMapError):
        if ledger_id not in read_ledgers_map(files, path):
            return set()
    with contextlib.closing(open_scan(files, path)) as scan:
        return {record.entry_id for record in scan if record.ledger_id == ledger_id}


def _read_packet(file: ReadFile, path: Path, offset: int, ledger_id: int, entry_id: int) -> bytes:
    at = offset - layout.LENGTH.size
    data = b""
    if at >= layout.HEADER_BYTES:
        data = read_before_loss(file, at, FIRST_READ_BYTES, layout.RECORD.size)
    length = _check_head(data, path, offset, ledger_id, entry_id)
    end = layout.LENGTH.size + length
    if end + NEXT.size > len(data):
        if at + end > file.size():
            raise MissingEntryError(path, at, f"entry {entry_id} is cut: the log ends in it")
        data = read_before_loss(file, at, end + NEXT.size, end)
    if not may_follow(data[end : end + NEXT.size], at + end):
        message = f"length {length} of entry {entry_id}; no record begins where it ends"
        raise BadEntryLengthError(path, at, message)
    return data[layout.LENGTH.size : end]


def _piece(
    locations: Sequence[int], bytes_max: int, until: int, entry_bytes: int
) -> tuple[int, int]:
    """Return the offset and the number of bytes to read of a log; at most 0 bytes: no read."""
    _, offset = layout.split_location(locations[0])
    at, begin = offset - layout.LENGTH.size, locations[0] - layout.LENGTH.size
    if at < layout.HEADER_BYTES:
        return at, 0
    wanted = bytes_to_read(locations, entry_bytes)
    return at, min(wanted, bytes_max + FIRST_READ_BYTES, until - begin)


def _rows(
    data: bytes | bytearray,
    locations: Sequence[int],
    ledger_id: int,
    entry_id: int,
    bytes_max: int,
    tail_bytes: int,
    stride: int,
) -> EntryRows | None:
    return cut_rows(
        data,
        locations[0] - layout.LENGTH.size,
        locations,
        ledger_id,
        entry_id,
        bytes_max=bytes_max,
        tail_bytes=tail_bytes,
        stride=stride,
    )


def _check_head(data: bytes, path: Path, offset: int, ledger_id: int, entry_id: int) -> int:
    """Return the length of the body at ``offset``; ``data`` begins with the length field."""
    at = offset - layout.LENGTH.size
    if at < layout.HEADER_BYTES:
        raise MissingEntryError(path, offset, "a location inside the header")
    if len(data) < layout.RECORD.size:
        what = f"entry {entry_id} of ledger {ledger_id} should be here, but the log ends before it"
        raise MissingEntryError(path, at, what)
    length, ledger, entry = layout.RECORD.unpack_from(data)
    if length < layout.BODY_BYTES_MIN:
        raise BadEntryLengthError(path, at, f"length {length}; entry {entry_id} expected")
    if (ledger, entry) != (ledger_id, entry_id):
        expected = f"entry {entry_id} of ledger {ledger_id}"
        error = WrongEntryError(path, at, f"entry {entry} of ledger {ledger}; expected {expected}")
        error.ledger_id = ledger
        raise error
    return int(length)
