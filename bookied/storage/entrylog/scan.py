"""Scans of entry logs: the header of a log, all its entries in order, and its map of ledgers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from bookied.errors import EntryLogFormatError, EntryLogRecordError, LedgersMapError
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.entry_rows import NEXT, RECORD_BYTES_MAX, may_follow
from bookied.storage.files.files import Files, ReadFile
from bookied.storage.files.read_errors import lost_is_damaged, read_before_loss
from wire.codes import FRAME_BYTES_MAX

CHUNK_BYTES: Final = 1024 * 1024

ROWS_MAX: Final = 4096
"""Records of one piece during iteration: about 800 KB of Python integers."""

_LENGTH_BITS: Final = tuple(1 << bit for bit in range(31))

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
