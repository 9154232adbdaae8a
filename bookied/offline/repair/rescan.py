"""A scan of entry logs and journals without a trusted index: the base of all repairs.

Logs are read by id, so that the later of two copies of an entry is used: compaction copies into
later logs. Damage is kept for the report. After damage the rest of a file is not read, except for
entries of a log from the next one on that an index has.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import attrs

from bookied.errors import CorruptError, EntryLogRecordError
from bookied.offline.entry_logs import Gap, LogRecords, place_of
from bookied.offline.index import OfflineIndex
from bookied.offline.journal_tail import JournalledLedger, offset_of, with_progress
from bookied.storage.entrylog.format import LENGTH, LOCATION_MIN, split_location
from bookied.storage.entrylog.log_list import list_logs
from bookied.storage.entrylog.scan import EntryLogRecord, LogScan, hides_records, open_scan
from bookied.storage.files.files import Files
from bookied.storage.index.format import IndexHeader
from bookied.storage.journal import format as journal_layout
from bookied.storage.journal import reader as journals
from bookied.storage.journal.mark import LastMark, file_name, read_mark
from bookied.storage.journal.reader import JournalRecord

_LAC: Final = struct.Struct(">8xq")

Progress = Callable[[int], None]
"""A function that gets the number of bytes that were read."""

EntryOfLedger = tuple[int, int]
"""Ledger id and entry id."""


class OldPlace(enum.Enum):
    """The decision about a location that only an old index has."""

    DROPPED = enum.auto()
    READ = enum.auto()
    """The entry is there, and is the copy to use."""
    UNREADABLE = enum.auto()
    """The entry was not read and may be acknowledged: its location is kept."""


@attrs.define
class Rescan:
    """One scan of logs and journals; ``damaged`` are the parts that could not be read.

    ``read_up_to`` has the offset where reading of each log ended, and ``gaps`` the damaged bytes
    before it. Nothing is known about entries in gaps, after the end, or in missing logs.
    """

    files: Files
    progress: Progress = lambda _bytes: None
    index: OfflineIndex | None = None
    """The index that locates records after damage."""
    damaged: list[CorruptError] = attrs.field(factory=list)
    read_up_to: dict[int, int] = attrs.field(factory=dict)
    gaps: dict[int, list[Gap]] = attrs.field(factory=dict)
    _done_bytes: int = 0
    _paths: dict[int, Path] = attrs.field(factory=dict)
    _looked_into: LogScan | None = None

    def log_records(self, directories: Sequence[Path]) -> Iterator[EntryLogRecord]:
        """Yield the entries of all logs in directories that share one space of log ids."""
        for log_id, path in sorted(list_logs(self.files, directories).items()):
            yield from self.log(log_id, path)

    def log(self, log_id: int, path: Path) -> Iterator[EntryLogRecord]:
        """Yield the entries of one log."""
        yield from with_progress(self._log(log_id, path), place_of, self._report_position)
        self._add_done(path)

    def _log(self, log_id: int, path: Path) -> Iterator[EntryLogRecord]:
        self.read_up_to[log_id], self._paths[log_id] = 0, path
        with self.noting_damage(), closing(open_scan(self.files, path)) as scan:
            records = scan if self.index is None else LogRecords(scan, self.index)
            try:
                for record in records:
                    if hides_records(record.body):
                        self._note_hidden(record, path)
                    yield record
                if self.index is None:
                    scan.require_complete()
            finally:
                self.read_up_to[log_id] = scan.end
                if isinstance(records, LogRecords):
                    self._take_gaps(log_id, path, records.gaps)

    def _note_hidden(self, record: EntryLogRecord, path: Path) -> None:
        """Report a record that contains others: only an index shows if its writer sent them."""
        at = place_of(record) - LENGTH.size
        self.damaged.append(EntryLogRecordError(path, at, "its length seems to hide records"))

    def _take_gaps(self, log_id: int, path: Path, gaps: list[Gap]) -> None:
        self.gaps[log_id] = gaps
        self.damaged += [EntryLogRecordError(path, gap.start, gap.what) for gap in gaps]

    def judge(
        self,
        entry: EntryOfLedger,
        location: int,
        *,
        is_found: bool,
        is_indexed: Callable[[EntryOfLedger, int], bool],
    ) -> OldPlace:
        """Decide about the location that an old index has for an entry.

        If the record there has other ids, for which the index has another location, its ids are
        damaged and the entry was not read. A record with the entry's ids at this location is
        preferred to any other.

        Args:
            entry: the entry.
            location: its location in the old index.
            is_found: whether a record with the entry's ids was read anywhere.
            is_indexed: returns whether the old index has an entry at a location.
        """
        log_id, offset = split_location(location)
        if location <= 0 or offset < LOCATION_MIN:
            return OldPlace.DROPPED
        was_read = self._was_read(log_id, offset)
        head = self._head_at(log_id, offset) if was_read else None
        if head == entry:
            return OldPlace.READ
        is_known = was_read if head is None else is_indexed(head, location)
        return OldPlace.DROPPED if is_found or is_known else OldPlace.UNREADABLE

    def _was_read(self, log_id: int, offset: int) -> bool:
        """Return whether the scan would have yielded an entry at this place."""
        is_in_gap = any(gap.holds(offset) for gap in self.gaps.get(log_id, ()))
        return offset < self.read_up_to.get(log_id, 0) and not is_in_gap

    def _head_at(self, log_id: int, offset: int) -> EntryOfLedger | None:
        """Return the ids of the record whose body begins at ``offset``; None if no record can."""
        if self._looked_into is None or self._looked_into.log_id != log_id:
            self.close()
            self._looked_into = open_scan(self.files, self._paths[log_id])
        return self._looked_into.head_at(offset - LENGTH.size)

    def close(self) -> None:
        """Close the log that ``judge`` read last."""
        if self._looked_into is not None:
            self._looked_into.close()
            self._looked_into = None

    def journal_records(self, directory: Path) -> Iterator[tuple[Path, JournalRecord]]:
        """Yield the records of all journals in a directory, oldest first."""
        for journal_id in journals.journal_ids(self.files, directory):
            path = directory / journal_layout.file_name(journal_id)
            with self.noting_damage(), closing(journals.open_scan(self.files, path)) as scan:
                for record in with_progress(scan, offset_of, self._report_position):
                    yield path, record
            self._add_done(path)

    @contextmanager
    def noting_damage(self) -> Iterator[None]:
        """Keep a ``CorruptError`` of the block for the report, and continue after the block."""
        try:
            yield
        except CorruptError as error:
            self.damaged.append(error)

    def _report_position(self, at: int) -> None:
        self.progress(self._done_bytes + at)

    def _add_done(self, path: Path) -> None:
        self._done_bytes += self.files.size(path)
        self.progress(self._done_bytes)


def marks(files: Files, ledger_directories: Sequence[Path], journals_count: int) -> list[LastMark]:
    """Return the mark of each journal directory: earlier records are in logs and indexes."""
    return [
        read_mark(files, ledger_directories, file_name(number, journals_count))
        for number in range(journals_count)
    ]


def size_of(files: Files, journal_directories: Sequence[Path], logs_in: Sequence[Path]) -> int:
    """Return the bytes that a rescan reads."""
    paths = [
        directory / journal_layout.file_name(journal_id)
        for directory in journal_directories
        for journal_id in journals.journal_ids(files, directory)
    ]
    paths += list_logs(files, logs_in).values()
    return sum(files.size(path) for path in paths)


def lac_of(packet: bytes) -> int:
    """Return the LAC in the packet of an explicit LAC."""
    return int(_LAC.unpack_from(packet)[0])


def highest_explicit_lac(*known: IndexHeader | JournalledLedger | None) -> bytes | None:
    """Return the packet with the highest explicit LAC, of an old index or the journals."""
    packets = [one.explicit_lac for one in known if one is not None]
    return max((one for one in packets if one is not None), key=lac_of, default=None)
