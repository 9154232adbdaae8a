"""The reader of journals: for replay, and for tools on a stopped bookie. Needs only a directory.

The reader separates records that a crash has torn from damage. A torn tail is where writing
stopped, and no error. Damage in the middle is an error with its position (storage.md section 3.6).
No file is ever created or changed.

From a file with groups (``group_format``) only the records of complete groups are read. Java's
files, and ours of version 4, have no checksums: the alignment of zeros shows where a record was cut
off.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from bookied.errors import CorruptError, JournalFormatError, JournalMissingError, JournalRecordError
from bookied.storage.files.files import Files
from bookied.storage.journal import format as layout
from bookied.storage.journal import group_format
from bookied.storage.journal.group_reader import GroupReader, JournalBytes

CHUNK_BYTES: Final = 1024 * 1024
"""Bytes of one read; a longer record needs a longer read, never beyond the file's end."""

RUN_BYTES: Final = 256 * 1024
"""Bytes after which a run of entries ends; an entry may be longer."""

RUN_ENTRIES_MAX: Final = 512
"""Entries of one run: each may belong to another ledger, and need another index page."""

_ENTRY_HEAD: Final = struct.Struct(">iqqq")
_ENTRY_ID_BYTE_MAX: Final = 0x7F
"""The highest first byte of an entry id that is not negative: its record needs no check."""


class JournalRecord(NamedTuple):
    """One record.

    ``offset`` is the offset of its length field, ``body`` the bytes after that field.
    """

    offset: int
    ledger_id: int
    entry_id: int
    body: bytes


EntryHead = tuple[int, int, int, int]
"""The head of an entry's record: length of the packet, ledger id, entry id, LAC."""


class EntryRun(NamedTuple):
    """Consecutive entries; ``records`` has the format of a journal and of an entry log."""

    offset: int
    heads: Sequence[EntryHead]
    records: bytes

    def split(self) -> Iterator[JournalRecord]:
        """Yield the entries one by one."""
        at = 0
        for length, ledger_id, entry_id, _ in self.heads:
            stop = at + layout.LENGTH.size + length
            body = self.records[at + layout.LENGTH.size : stop]
            yield JournalRecord(self.offset + at, ledger_id, entry_id, body)
            at = stop


@attrs.define
class JournalScan:
    """The records of one journal file, in order: iterate once, or call ``parts`` once.

    Then ``end`` is the end of the data and ``is_torn`` whether a record was cut off there.
    """

    path: Path
    version: int
    start: int
    size: int
    _file: JournalBytes
    _groups: GroupReader | None = None
    end: int = attrs.field(init=False, default=0)
    is_torn: bool = attrs.field(init=False, default=False)

    def __iter__(self) -> Iterator[JournalRecord]:
        """Yield the records.

        Raises:
            JournalRecordError: the journal is damaged; records after the damage cannot be read.
            JournalFormatError: a file without a header is not a journal of version 1.
        """
        self.end = self.start
        return self._plain_records() if self._groups is None else _split(self._grouped())

    def parts(self) -> Iterator[EntryRun | JournalRecord]:
        """Yield entries in runs and other records one by one; raises as iterating does."""
        self.end = self.start
        return _gathered(self._plain_records()) if self._groups is None else self._grouped()

    def _grouped(self) -> Iterator[EntryRun | JournalRecord]:
        assert self._groups is not None
        self.end = max(self.start, self._groups.first)
        for at, head, data in self._groups.groups(self.start):
            yield from self._parts_of(data, head.records_at, at)
            self.end = at + len(data)
        self.is_torn = not self._is_zero_from(self.end)

    def _parts_of(self, data: bytes, begin: int, base: int) -> Iterator[EntryRun | JournalRecord]:
        """Yield the records of a complete group, except those before ``start``."""
        unpack, size = _ENTRY_HEAD.unpack_from, len(data)
        least, last = self.start - base, size - _ENTRY_HEAD.size
        while begin < size:
            heads: list[EntryHead] = []
            at, stop_at = begin, begin + RUN_BYTES
            while at <= last and least <= at < stop_at and len(heads) < RUN_ENTRIES_MAX:
                head = unpack(data, at)
                stop = at + 4 + head[0]
                if head[2] < 0 or head[0] < layout.ENTRY_BYTES_MIN or stop > size:
                    break
                heads.append(head)
                at = stop
            if heads:
                yield EntryRun(base + begin, heads, data[begin:at])
                begin = at
            else:
                record = self._record_at(data, begin, base)
                if begin >= least:
                    yield record
                begin += layout.LENGTH.size + len(record.body)

    def _record_at(self, data: bytes, begin: int, base: int) -> JournalRecord:
        """Return a record of a complete group, of any kind.

        Raises:
            JournalRecordError: the record is damaged.
        """
        size = len(data)
        length = layout.LENGTH.unpack_from(data, begin)[0] if begin + 4 <= size else 0
        if length <= 0 or begin + 4 + length > size:
            message = f"length {length} of a record in a group that ends at {base + size}"
            raise JournalRecordError(self.path, base + begin, message)
        body = data[begin + 4 : begin + 4 + length]
        if base + begin >= self.start:
            layout.check_record(body, self.version, self.path, base + begin)
        # Before ``start`` nothing is checked, and nothing is yielded.
        has_ids = length >= layout.IDS.size
        ledger_id, entry_id = layout.IDS.unpack_from(body) if has_ids else (0, 0)
        return JournalRecord(base + begin, ledger_id, entry_id, body)

    def _plain_records(self) -> Iterator[JournalRecord]:
        at = self.start
        read_length, read_ids = layout.LENGTH.unpack_from, layout.IDS.unpack_from
        data, base = b"", at  # The bytes in memory, and their offset in the file.
        while at + 4 <= self.size:
            begin = at - base
            if begin < 0 or begin + 4 > len(data):
                data, base, begin = self._file.read_at(at, CHUNK_BYTES, least=4), at, 0
            length = read_length(data, begin)[0]
            if length == 0:
                return
            stop = at + 4 + length
            if length > 0 and stop <= self.size:
                if stop - base > len(data):
                    data, base, begin = self._read_whole(at, 4 + length), at, 0
                body = data[begin + 4 : begin + 4 + length]
                if body[-1] == 0 and self._is_cut(body, stop):
                    self.is_torn = True
                    return
                if length < layout.ENTRY_BYTES_MIN or body[8] > _ENTRY_ID_BYTE_MAX:
                    layout.check_record(body, self.version, self.path, at)
                ledger_id, entry_id = read_ids(body)
                yield JournalRecord(at, ledger_id, entry_id, body)
            elif length < 0:
                stop = self._end_of_padding(at, length)
            else:
                self._check_torn(at, length)
                stop = at
            if self.is_torn:
                return
            self.end = at = stop
        self.is_torn = at < self.size

    def _read_whole(self, at: int, size: int) -> bytes:
        data = self._file.read_at(at, max(size, CHUNK_BYTES), least=size)
        if len(data) < size:
            raise OSError(errno.EIO, "short read", str(self.path))
        return data

    def _end_of_padding(self, at: int, length: int) -> int:
        if length != layout.PADDING_MARK or self.version < layout.PADDING_SINCE:
            if not self._is_zero_from(at + 4):
                raise JournalRecordError(self.path, at, f"negative length {length}")
            self.is_torn = True  # The padding mark was cut off.
            return at
        if at + 8 > self.size:
            self.is_torn = True
            return at
        content = self._file.read_at(at + 4, 12)
        size = layout.LENGTH.unpack_from(content)[0]
        if size < 0:
            raise JournalRecordError(self.path, at, f"padding of {size} bytes")
        if content[4:] == group_format.GROUP_MAGIC:
            raise JournalRecordError(self.path, at, "a group in a file without a file mark")
        self.is_torn = at + 8 + size > self.size
        return int(at + 8 + size)

    def _check_torn(self, at: int, length: int) -> None:
        if self.version == 1 and at == 0:
            message = f"no journal header, and no record of version 1 (length {length})"
            raise JournalFormatError(self.path, 0, message)
        self.is_torn = True

    def _is_cut(self, body: bytes, end: int) -> bool:
        """Return whether a record that ends with zeros, and that zeros follow, was cut off.

        Groups end at a multiple of 512. A group that does not was in progress when the power
        failed. Only a preallocated file can look like this, and nothing of that group was
        acknowledged.
        """
        if self.version < layout.PADDING_SINCE or end >= self.size:
            return False
        if any(self._file.read_at(end, 8)):  # Nearly always, so the checks below are rare.
            return False
        return bool(end % layout.SECTOR or not any(body)) and self._is_zero_from(end)

    def _is_zero_from(self, offset: int) -> bool:
        return _first_non_zero(self._file, offset, self.size) is None

    @property
    def is_blank(self) -> bool:
        """True if the file has only zeros: a crash interrupted its creation."""
        return self._is_zero_from(0)

    def residue(self) -> int | None:
        """Return the offset of the first non-zero byte after the end of data, or None.

        Call after iterating. Preallocated space is zeros; other bytes were once written and cannot
        be reached. Holes and space that was never written are not read.
        """
        if self.is_torn:
            return None
        return _first_non_zero(self._file, self.end, self.size)

    @property
    def has_groups(self) -> bool:
        """True if checksums show complete groups: ``bookied.storage.journal.group_format``."""
        return self._groups is not None

    def read_at(self, offset: int, size: int) -> bytes:
        """Return bytes of the file, as ``ReadFile`` does."""
        return self._file.read_at(offset, size)

    def next_data(self, offset: int) -> int | None:
        """Return the offset of the first data at or after ``offset``, as ``ReadFile`` does."""
        return self._file.next_data(offset)

    def close(self) -> None:
        """Close the file."""
        self._file.file.close()


def _split(parts: Iterable[EntryRun | JournalRecord]) -> Iterator[JournalRecord]:
    for part in parts:
        if isinstance(part, EntryRun):
            yield from part.split()
        else:
            yield part


def _gathered(records: Iterator[JournalRecord]) -> Iterator[EntryRun | JournalRecord]:
    """Yield runs of entries that are read one by one; an error follows the records before it."""
    error = None
    run: list[JournalRecord] = []
    size = 0
    while True:
        try:
            record = next(records, None)
        except CorruptError as damage:
            error, record = damage, None
        is_over = size >= RUN_BYTES or len(run) >= RUN_ENTRIES_MAX
        if run and (record is None or record.entry_id < 0 or is_over):
            yield _joined(run)
            run, size = [], 0
        if record is None:
            break
        if record.entry_id < 0:
            yield record
        else:
            run.append(record)
            size += layout.LENGTH.size + len(record.body)
    if error is not None:
        raise error


def _joined(run: Sequence[JournalRecord]) -> EntryRun:
    records = b"".join(layout.entry_record(one.body) for one in run)
    heads, at = [], 0
    for one in run:
        heads.append(_ENTRY_HEAD.unpack_from(records, at))
        at += layout.LENGTH.size + len(one.body)
    return EntryRun(run[0].offset, heads, records)


def journal_ids(files: Files, directory: Path) -> list[int]:
    """Return the ids of the journals in a directory, ascending; other files are ignored."""
    ids = map(layout.journal_id, files.list(directory))
    return sorted(number for number in ids if number is not None)


def open_scan(files: Files, path: Path, offset: int = 0) -> JournalScan:
    """Open one journal file.

    Args:
        files: the disk.
        path: the journal.
        offset: where to begin, a record boundary; 0 for the first record. An offset beyond the end
            of the file yields no records and no error.

    Raises:
        JournalMissingError: the file is missing.
        JournalFormatError: the version is unknown.
    """
    try:
        file = files.open_read(path)
    except FileNotFoundError:
        raise JournalMissingError(path, None, "no such journal") from None
    try:
        size, content = file.size(), JournalBytes(file, path)
        version, start = _read_header(content, size)
        reader = _group_reader(content, size) if version >= layout.PADDING_SINCE else None
        return JournalScan(path, version, max(start, offset), size, content, reader)
    except BaseException:
        file.close()
        raise


def _read_header(file: JournalBytes, size: int) -> tuple[int, int]:
    start = file.read_at(0, layout.HEADER.size)
    head = start.rstrip(b"\0")
    cut_off = bool(head) and layout.MAGIC.startswith(head)
    if cut_off and _first_non_zero(file, len(head), size) is None:
        # A crash left at most the magic of a new journal.
        return layout.VERSION, layout.HEADER_BYTES[layout.VERSION]
    return layout.parse_header(start, file.path)


def _group_reader(file: JournalBytes, size: int) -> GroupReader | None:
    """Return a reader of the file's groups; None if the file has no groups.

    Raises:
        JournalRecordError: the file mark is damaged.
    """
    at = layout.HEADER_BYTES[layout.VERSION]
    try:
        mark = group_format.parse_file_mark(file.read_at(at, group_format.FILE_MARK_BYTES))
    except group_format.FileMarkDamagedError:
        if _first_non_zero(file, at + group_format.FILE_MARK_BYTES, size) is None:
            return None  # A crash while the file was created.
        raise JournalRecordError(file.path, at, "the mark of a file in groups is damaged") from None
    if mark is None:
        return None
    return GroupReader(file, size=size, generation=mark.generation, first=at + mark.size)


def _first_non_zero(file: JournalBytes, offset: int, size: int) -> int | None:
    """Return the offset of the first non-zero byte, or None; holes of any size are skipped."""
    at = file.next_data(offset)
    while at is not None and at < size and (chunk := file.read_at(at, CHUNK_BYTES, least=1)):
        rest = chunk.lstrip(b"\0")
        if rest:
            return at + len(chunk) - len(rest)
        at = file.next_data(at + len(chunk))
    return None
