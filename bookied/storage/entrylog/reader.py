"""The reader of entry logs: single entries for the bookie, all for compaction and offline tools."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from bookied.errors import (
    BadEntryLengthError,
    CorruptError,
    EntryLogFormatError,
    EntryLogRecordError,
    LedgersMapError,
    MissingEntryError,
    MissingLogError,
    WrongEntryError,
)
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.entry_rows import (
    NEXT,
    RECORD_BYTES_MAX,
    EntryRows,
    bytes_to_read,
    cut_rows,
    may_follow,
)
from bookied.storage.files.files import Files, ReadFile, read_if_there
from bookied.storage.files.open_files import OpenFiles, SharedFile
from bookied.storage.files.read_errors import lost_is_damaged, read_before_loss
from wire.codes import FRAME_BYTES_MAX

FIRST_READ_BYTES: Final = 4096
"""Bytes of the first read at a location; longer entries need a second read."""

READ_NOW_BYTES_MAX: Final = 256 * 1024
"""Longer entries are always read in a thread: copying them takes time as well."""

CHUNK_BYTES: Final = 1024 * 1024

NEAR_BYTES: Final = 256 * 1024
"""Bytes before and after a record that are searched for a record that the index lacks."""

SUSPECTS_MAX: Final = 16
"""Places that may be the record; a client can send bytes that look like any number of them."""

ROWS_MAX: Final = 4096
"""Records of one piece during iteration: about 800 KB of Python integers."""

_LENGTH_BITS: Final = tuple(1 << bit for bit in range(31))

_HEX: Final = re.compile(r"[0-9a-f]+")

_HEAD: Final = re.compile(rb"(?=[\0-\x7f].{3}[\0-\x7f].{7}[\0-\x7f].{7})", re.DOTALL)
"""A non-negative length, ledger id and entry id."""


class EntryLogRecord(NamedTuple):
    """One entry in a log. ``location`` is the location of its body."""

    location: int
    ledger_id: int
    entry_id: int
    body: bytes


LogRow = tuple[int, int, int, int, int]
"""Ledger id, entry id, location of the body, and begin and end of the record in a piece."""


class LogPiece(NamedTuple):
    """A piece of a log and the records in it, in the order of the log."""

    data: bytes
    rows: list[LogRow]

    @property
    def size_bytes(self) -> int:
        """The bytes of the records in the log."""
        return self.rows[-1][4] - self.rows[0][3]

    def heads_within(self) -> Iterator[tuple[int, int, int]]:
        """Yield ledger id, entry id and location of possible entries inside other records.

        A flipped bit can make a length longer by exactly the records after it. For each record,
        each such bit of the length is tried.
        """
        data, unpack = self.data, layout.RECORD.unpack_from
        for _, _, place, begin, stop in self.rows:
            for more in _growths(stop - begin):
                at = stop - more
                # Entries are so short that the first byte of a length is always zero.
                while at + layout.RECORD.size <= stop and not data[at]:
                    length, ledger_id, entry_id = unpack(data, at)
                    next_at = at + layout.LENGTH.size + length
                    if length < layout.BODY_BYTES_MIN or next_at > stop:
                        break
                    yield ledger_id, entry_id, place + at - begin
                    at = next_at


@attrs.define
class LogScan:
    """The entries of one log, in order: iterate once, or ``read`` until it returns None.

    Then ``end`` is the end of the entries; ``is_torn`` whether a record was cut off there.
    """

    path: Path
    log_id: int
    header: layout.LogHeader | None
    """None if nothing was written to the log."""
    size: int
    _file: ReadFile
    end: int = attrs.field(init=False, default=0)
    is_torn: bool = attrs.field(init=False, default=False)
    _is_over: bool = attrs.field(init=False, default=False)
    _at: int = attrs.field(init=False, default=layout.HEADER_BYTES)
    # The bytes of the last read, and their offset in the log.
    _data: bytes = attrs.field(init=False, default=b"", repr=False)
    _base: int = attrs.field(init=False, default=0)

    def __iter__(self) -> Iterator[EntryLogRecord]:
        """Yield the entries.

        Raises:
            EntryLogRecordError: the log is damaged; entries after the damage cannot be read.
        """
        length_bytes = layout.LENGTH.size
        while (piece := self.read(records_max=ROWS_MAX, bytes_max=CHUNK_BYTES)) is not None:
            data, base, end = piece.data, self._base, self.end
            for ledger_id, entry_id, place, begin, stop in piece.rows:
                self.end = base + begin
                body = data[begin + length_bytes : stop]
                yield EntryLogRecord(place, ledger_id, entry_id, body)
            self.end = end

    def read(self, *, records_max: int, bytes_max: int) -> LogPiece | None:
        """Return the next records, at least one; None at the end.

        Args:
            records_max: the most records to return.
            bytes_max: no record is added after this many bytes.

        Raises:
            EntryLogRecordError: the log is damaged; records after the damage cannot be read.
        """
        if self.header is None:
            return None
        self.end = max(self.end, layout.HEADER_BYTES)
        while not self._is_over:
            if rows := self._next_rows(records_max, bytes_max):
                return LogPiece(self._data, rows)
            self._pass_by()
        return None

    def _next_rows(self, records_max: int, bytes_max: int) -> list[LogRow]:
        """Return the next records, up to the first that is not a complete record of a ledger."""
        data, base = self._data, self._base
        at = self._at - base
        size, place = len(data), layout.location(self.log_id, base + layout.LENGTH.size)
        last, stop_at = size - layout.RECORD.size, min(size, at + bytes_max)
        rows: list[LogRow] = []
        append, unpack = rows.append, layout.RECORD.unpack_from
        while at < stop_at and at <= last and len(rows) < records_max:
            length, ledger_id, entry_id = unpack(data, at)
            stop = at + 4 + length
            if length < layout.BODY_BYTES_MIN or stop > size or ledger_id <= layout.NO_LEDGER:
                break
            append((ledger_id, entry_id, place + at, at, stop))
            at = stop
        if rows:
            self.end = self._at = base + at
        return rows

    def _pass_by(self) -> None:
        """Handle anything but a complete record: load it, skip it, or end."""
        at, size = self._at, self.size
        head_bytes = min(layout.RECORD.size, size - at)
        if head_bytes < layout.LENGTH.size:
            self.is_torn, self._is_over = at < size, True
            return
        if not self._has(at, head_bytes):
            self._load(at, head_bytes)
            return
        length = layout.LENGTH.unpack_from(self._data, at - self._base)[0]
        stop = at + layout.LENGTH.size + length
        if length < 0:
            self._pass_padding(at)
        elif length == 0 or stop > size:
            self.is_torn, self._is_over = length > 0, True
        elif length > CHUNK_BYTES and not self._may_be(length, stop):
            message = f"length {length}; no record begins where it ends"
            raise EntryLogRecordError(self.path, at, message)
        elif not self._has(at, stop - at):
            self._load(at, stop - at)
        else:
            self._pass_record(at, length)
            self.end = self._at = stop

    def _may_be(self, length: int, stop: int) -> bool:
        """Return whether a large record's length is plausible: a wrong one may fill the memory."""
        with contextlib.suppress(EntryLogRecordError):  # A bad sector may follow the record.
            follows = self._read(stop, NEXT.size, NEXT.size)
            return length <= RECORD_BYTES_MAX and may_follow(follows, stop)
        return True

    def _pass_padding(self, at: int) -> None:
        """Continue at the next block; skipped bytes must be padding, or they may hide records."""
        self._at += -at % layout.DIRECT_BLOCK or layout.DIRECT_BLOCK
        if self._read(at, self._at - at, 0).strip(layout.DIRECT_PADDING):
            raise EntryLogRecordError(self.path, at, "a negative length, and no padding")

    def _has(self, at: int, size: int) -> bool:
        return self._base <= at and at + size <= self._base + len(self._data)

    def _load(self, at: int, size: int) -> None:
        self._base, self._data = at, self._read(at, max(CHUNK_BYTES, size), size)
        if len(self._data) < size:
            raise EntryLogRecordError(self.path, at, "the log has become shorter")

    def _read(self, at: int, size: int, least: int) -> bytes:
        with lost_is_damaged(self.path, EntryLogRecordError, at):
            return read_before_loss(self._file, at, size, least)

    def _pass_record(self, at: int, length: int) -> None:
        """Check that a record belongs to no ledger, like the ledgers map."""
        if length < layout.BODY_BYTES_MIN:
            raise EntryLogRecordError(self.path, at, f"record of {length} bytes; 16 at least")
        _, ledger_id, _ = layout.RECORD.unpack_from(self._data, at - self._base)
        if ledger_id != layout.NO_LEDGER:
            raise EntryLogRecordError(self.path, at, f"ledger id {ledger_id}")

    def require_complete(self) -> None:
        """Check, after the last entry, that no byte after it can be an entry.

        A crash leaves a record cut off, or zeros, and no ledgers map. Other bytes after the end
        mean that a length is damaged and may hide entries: the log must not be deleted.

        Raises:
            EntryLogRecordError: there are other bytes, or the disk has lost some of the bytes.
        """
        if self.header is None or self.end >= self.size:
            return
        start = self._read(self.end, layout.LENGTH.size, layout.LENGTH.size)
        length = layout.LENGTH.unpack(start)[0] if len(start) == layout.LENGTH.size else 0
        is_cut_off = self.is_torn and 0 <= length <= FRAME_BYTES_MAX
        if is_cut_off and self.header.map_offset <= self.end:
            return
        with lost_is_damaged(self.path, EntryLogRecordError):
            at = _first_data(self._file, self.end)
        if at is not None:
            message = f"from byte {self.end} on, the bytes after the last entry are not an entry"
            raise EntryLogRecordError(self.path, at, message)

    def heads_behind(self) -> Iterator[tuple[int, int, int]]:
        """Yield ledger id, entry id and location of possible entries after a cut-off end.

        If a damaged length looks like a cut-off end, the entries that it hides are among them.
        """
        begin = self.end + layout.RECORD.size
        if not self.is_torn or begin >= self.size:
            return
        data = self._read(begin, self.size - begin, 0)
        for found in _HEAD.finditer(data):
            length, ledger_id, entry_id = layout.RECORD.unpack_from(data, found.start())
            at = found.start() + layout.LENGTH.size
            if layout.BODY_BYTES_MIN <= length <= len(data) - at:
                yield ledger_id, entry_id, layout.location(self.log_id, begin + at)

    def head_at(self, at: int) -> tuple[int, int] | None:
        """Return ledger id and entry id of the record at ``at``.

        None if no record can begin there.
        """
        with contextlib.suppress(EntryLogRecordError):
            if (record := self._record_at(at)) is not None:
                ledger_id, entry_id, stop = record
                if may_follow(self._read(stop, NEXT.size, NEXT.size), stop):
                    return ledger_id, entry_id
        return None

    def after_lost(self) -> int | None:
        """Return the offset of the record after one of which the disk has lost all but the head.

        None if the head is lost too, or no record can begin there.
        """
        with contextlib.suppress(EntryLogRecordError):
            record = self._record_at(self._at)
            if record is not None and self.head_at(record[2]) is not None:
                return record[2]
        return None

    def _record_at(self, at: int) -> tuple[int, int, int] | None:
        """Return ledger id, entry id and end of the record at ``at``, from its head alone."""
        head = self._read(at, layout.RECORD.size, layout.RECORD.size)
        if len(head) < layout.RECORD.size:
            return None
        length, ledger_id, entry_id = layout.RECORD.unpack(head)
        stop = at + layout.LENGTH.size + length
        is_record = length >= layout.BODY_BYTES_MIN and stop <= self.size
        return (ledger_id, entry_id, stop) if is_record else None

    def resume(self, at: int) -> None:
        """Continue with the record that begins at ``at``, after damage or an end."""
        self.end = self._at = at
        self._data, self._base = b"", 0
        self.is_torn = self._is_over = False

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def hides_records(body: bytes) -> bool:
    """Return whether a flipped bit may have made a record longer by the records after it."""
    return any(
        _are_records(body, len(body) - more) for more in _growths(layout.LENGTH.size + len(body))
    )


def _are_records(data: bytes, at: int) -> bool:
    """Return whether the bytes from ``at`` to their end are only records of ledgers."""
    while at + layout.RECORD.size <= len(data) and not data[at]:
        length, ledger_id, entry_id = layout.RECORD.unpack_from(data, at)
        if length < layout.BODY_BYTES_MIN or min(ledger_id, entry_id) < 0:
            return False
        at += layout.LENGTH.size + length
    return at == len(data)


@lru_cache(maxsize=4096)
def _growths(size: int) -> tuple[int, ...]:
    """Return the numbers of bytes by which a flipped bit can have made a record longer."""
    length = size - layout.LENGTH.size
    return tuple(
        bit
        for bit in _LENGTH_BITS
        if length & bit and bit >= layout.RECORD.size and length - bit >= layout.BODY_BYTES_MIN
    )


def open_scan(files: Files, path: Path) -> LogScan:
    """Open an entry log to read all its entries.

    Raises:
        EntryLogFormatError: the file is not an entry log, or the disk has lost its header.
        FileNotFoundError: the file is missing.
    """
    log_id = layout.used_log_id(path.name)
    if log_id is None:
        raise EntryLogFormatError(path, None, "no name of an entry log")
    with lost_is_damaged(path, EntryLogFormatError):
        file = files.open_read(path)
        try:
            return LogScan(path, log_id, _read_header(file, path), file.size(), file)
        except BaseException:
            file.close()
            raise


def _read_header(file: ReadFile, path: Path) -> layout.LogHeader | None:
    """Return a log's header; None for an empty file or only zeros, as a crash leaves them."""
    start = file.read_at(0, layout.HEADER.size)
    if not start.strip(b"\0") and not file.read_at(0, CHUNK_BYTES).strip(b"\0"):
        return None
    return layout.decode_header(start, path)


def read_ledgers_map(files: Files, path: Path) -> dict[int, int]:
    """Return bytes by ledger id from the log's own map.

    Raises:
        LedgersMapError: the log has no map, or the map cannot be trusted: scan the log.
        EntryLogFormatError: this is not an entry log, or the disk has lost a part of it.
    """
    with (
        lost_is_damaged(path, EntryLogFormatError),
        contextlib.closing(files.open_read(path)) as file,
    ):
        header, size = _read_header(file, path), file.size()
        if header is None or header.version < 1 or header.map_offset == 0:
            raise LedgersMapError(path, layout.MAP_PLACE_OFFSET, "no ledgers map")
        if not layout.HEADER_BYTES <= header.map_offset < size:
            message = (
                f"the ledgers map should be at {header.map_offset}, but the file has {size} bytes"
            )
            raise LedgersMapError(path, layout.MAP_PLACE_OFFSET, message)
        end = min(size, header.map_offset + layout.ledgers_map_bytes_max(header))
        # Java's direct writer preallocates a log of the largest size; unused space stays zeros.
        if _first_data(file, end) is not None:
            raise LedgersMapError(path, header.map_offset, "bytes after the ledgers map")
        data = file.read_at(header.map_offset, end - header.map_offset)
        return layout.decode_ledgers_map(data, header, path)


def _first_data(file: ReadFile, offset: int) -> int | None:
    """Return the approximate offset of the first bytes that are not padding; None if none are.

    Holes cost no reads.
    """
    at: int | None = offset
    while at is not None and (at := file.next_data(at)) is not None:
        data = file.read_at(at, CHUNK_BYTES)
        if data.strip(b"\0" + layout.DIRECT_PADDING):
            return at
        at = at + len(data) if data else None
    return None


def list_logs(files: Files, directories: Iterable[Path]) -> dict[int, Path]:
    """Return the entry logs in ledger directories (their ``current``), by id."""
    return {number: paths[-1] for number, paths in list_all_logs(files, directories).items()}


def list_all_logs(files: Files, directories: Iterable[Path]) -> dict[int, list[Path]]:
    """Return the entry logs in ledger directories by id: one file each, unless ids are doubled."""
    found: dict[int, list[Path]] = {}
    for directory in directories:
        for name in files.list(directory):
            number = layout.log_id(name)
            if number is not None:
                found.setdefault(number, []).append(directory / name)
    return found


def next_log_id(files: Files, directories: Iterable[Path]) -> int:
    """Return a log id after all in use; after the highest possible id the ids start over at 0.

    Agrees with Java 4.18.0: EntryLoggerAllocator, LedgerDirUtil.
    """
    used = {directory: _used_log_ids(files, directory) for directory in directories}
    number = 1 + max(_last_log_id(files, directory, sorted(ids)) for directory, ids in used.items())
    taken = set().union(*used.values())
    while number > layout.LOG_ID_MAX or number in taken:
        number = number + 1 if number < layout.LOG_ID_MAX else 0
    return number


def _used_log_ids(files: Files, directory: Path) -> set[int]:
    numbers = map(layout.used_log_id, files.list(directory))
    return {number for number in numbers if number is not None}


def _last_log_id(files: Files, directory: Path, used: list[int]) -> int:
    last = _read_last_id(files, directory) or (used[-1] if used else -1)
    return max(last, _before_largest_gap(used))


def highest_log_id(files: Files, directories: Iterable[Path]) -> int:
    """Return the highest id that a log of these directories has or may have had; -1 if none."""
    return max(
        (
            number
            for directory in directories
            for number in (*_used_log_ids(files, directory), _read_last_id(files, directory))
            if number is not None
        ),
        default=-1,
    )


def _read_last_id(files: Files, directory: Path) -> int | None:
    data = read_if_there(files, directory / layout.LAST_ID)
    if data is None:
        return None
    text = data.decode("ascii", "replace").strip()
    number = int(text, 16) if _HEX.fullmatch(text) else -1
    return number if 0 <= number <= layout.LOG_ID_MAX else None


def _before_largest_gap(used: list[int]) -> int:
    """Return the id before the longest run of free ids; -1 if the run starts at 0."""
    starts, ends = [-1, *used], [*used, layout.LOG_ID_MAX + 1]
    _, start = max((end - start, start) for start, end in zip(starts, ends, strict=True))
    return start


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
        log_id, offset = layout.split_location(location)
        path = self._checked.get(log_id)
        if path is None:
            return None
        with self._open.lock:  # The read takes no longer than to borrow the file and return it.
            file = self._open.opened(path)
            return _packet_now(file, offset, ledger_id, entry_id) if file is not None else None

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
            data = shared.file.read_now(at, size) if size > 0 else None
        finally:
            self._open.give_back(shared)
        return _rows(data or b"", locations, ledger_id, entry_id, bytes_max, NEXT.size, stride)

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
            return _is_beside(data, here - begin, ledger_id, entry_id)
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

    Other bytes may look like a record. But a record that begins before ``here`` is followed by
    records up to ``here``, and each record after it begins where another one ends.
    """
    ids = layout.RECORD.pack(0, ledger_id, entry_id)[layout.LENGTH.size :]
    found = (place.start() - layout.LENGTH.size for place in re.finditer(re.escape(ids), data))
    starts = list(islice(found, SUSPECTS_MAX))
    after = set(_starts(data, here)) if starts and starts[-1] > here else set()
    return any(at in after if at > here else at >= 0 and here in _starts(data, at) for at in starts)


def _starts(data: bytes, at: int) -> Iterator[int]:
    """Yield where the record at ``at`` and those after it begin."""
    while at + layout.RECORD.size <= len(data):
        yield at
        length = layout.LENGTH.unpack_from(data, at)[0]
        if length < layout.BODY_BYTES_MIN:
            return
        at += layout.LENGTH.size + length


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


def _packet_now(file: ReadFile, offset: int, ledger_id: int, entry_id: int) -> bytes | None:
    at = offset - layout.LENGTH.size
    data = file.read_now(at, FIRST_READ_BYTES) if at >= layout.HEADER_BYTES else None
    if data is None or len(data) < layout.RECORD.size:
        return None
    length, ledger, entry = layout.RECORD.unpack_from(data)
    if length < layout.BODY_BYTES_MIN or ledger != ledger_id or entry != entry_id:
        return None
    end = layout.LENGTH.size + length
    if FIRST_READ_BYTES < end + NEXT.size <= READ_NOW_BYTES_MAX:
        data = file.read_now(at, end + NEXT.size) or b""
    if end > len(data) or not may_follow(data[end : end + NEXT.size], at + end):
        return None  # ``read`` reports the error.
    return bytes(memoryview(data)[layout.LENGTH.size : end])


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
