"""The contents of complete entry logs, and the part of the bytes that is still in use.

The bytes of a ledger in a log are its records with their length fields, as in a ledgers map. A
ledger is alive if the index has it, as for the collector (BookKeeper 4.18.0, EntryLogMetadata),
except for ledgers deleted from the metadata service since.
"""

from __future__ import annotations

import contextlib
import enum
from array import array
from bisect import bisect_left
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

import attrs

from bookied.errors import CorruptError, EntryLogRecordError, LedgersMapError
from bookied.offline.index import OfflineIndex
from bookied.offline.journal_tail import Tick, no_tick, with_progress
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.scan import EntryLogRecord, LogScan, open_scan, read_ledgers_map
from bookied.storage.files.files import Files


class MapState(enum.Enum):
    """The state of a log's ledgers map."""

    INTACT = "intact"
    NONE = "none"
    """As in every log that was not rotated."""
    DAMAGED = "damaged"


@attrs.frozen
class LedgerShare:
    """The part of one ledger in one log.

    ``entries`` is None if the ledgers map was read instead.
    """

    ledger_id: int
    size_bytes: int
    entries: int | None


@attrs.frozen
class EntryLogSummary:
    """One entry log. ``end`` is the end of its records.

    None if the ledgers map was read instead.
    """

    path: Path
    log_id: int
    size: int
    version: int | None
    """None for a log without a header."""
    map_state: MapState
    ledgers: tuple[LedgerShare, ...]
    end: int | None = None
    is_torn: bool = False
    damage: CorruptError | None = None

    @property
    def data_bytes(self) -> int:
        """The total bytes of the records."""
        return sum(share.size_bytes for share in self.ledgers)

    def live_bytes(self, alive: Container[int]) -> int:
        """Return the bytes of ledgers that are alive."""
        return sum(share.size_bytes for share in self.ledgers if share.ledger_id in alive)


@attrs.frozen
class LogUse:
    """The part of one log that is still in use."""

    summary: EntryLogSummary
    live_bytes: int

    @property
    def dead_bytes(self) -> int:
        return self.summary.data_bytes - self.live_bytes

    @property
    def usage(self) -> float:
        """The ratio of live bytes; 1 for a log without records."""
        return self.live_bytes / self.summary.data_bytes if self.summary.data_bytes else 1.0


def place_of(record: EntryLogRecord) -> int:
    """Return the offset of a record's body in its log."""
    return layout.split_location(record.location)[1]


def summarize(
    files: Files, path: Path, *, by_scan: bool = False, tick: Tick = no_tick
) -> EntryLogSummary:
    """Return a log's contents, from its ledgers map or, without one, from its records.

    Damage ends the scan and is reported in the summary.

    Raises:
        EntryLogFormatError: the file is not an entry log.
        OSError: the file cannot be read.
    """
    with contextlib.closing(open_scan(files, path)) as scan:
        state, shares = _map_of(files, path, scan)
        version = None if scan.header is None else scan.header.version
        if shares is not None and not by_scan:
            return EntryLogSummary(path, scan.log_id, scan.size, version, state, shares)
        damage, shares = _count(scan, tick)
        return EntryLogSummary(
            path, scan.log_id, scan.size, version, state, shares, scan.end, scan.is_torn, damage
        )


def _map_of(
    files: Files, path: Path, scan: LogScan
) -> tuple[MapState, tuple[LedgerShare, ...] | None]:
    if scan.header is None or not scan.header.map_offset:
        return MapState.NONE, None
    try:
        stated = read_ledgers_map(files, path)
    except LedgersMapError:
        return MapState.DAMAGED, None
    return MapState.INTACT, tuple(LedgerShare(*row, None) for row in sorted(stated.items()))


def _count(scan: LogScan, tick: Tick) -> tuple[CorruptError | None, tuple[LedgerShare, ...]]:
    sizes: dict[int, int] = {}
    entries: dict[int, int] = {}
    damage = None
    try:
        for record in with_progress(scan, place_of, lambda at: tick(at, sum(entries.values()))):
            ledger_id, size = record.ledger_id, layout.LENGTH.size + len(record.body)
            sizes[ledger_id] = sizes.get(ledger_id, 0) + size
            entries[ledger_id] = entries.get(ledger_id, 0) + 1
    except CorruptError as error:
        damage = error
    shares = (LedgerShare(key, size, entries[key]) for key, size in sorted(sizes.items()))
    return damage, tuple(shares)


def freed_by(found: list[LogUse], threshold: float) -> int:
    """Return the bytes that a compaction of all logs below a usage would free."""
    return sum(one.dead_bytes for one in found if one.usage < threshold)


# Records after damage ----------------------------------------------------------------------------


class Gap(NamedTuple):
    """Damaged bytes between the records of a log: from ``start`` up to ``stop``."""

    start: int
    stop: int
    misread_to: int
    """Up to this offset, damaged lengths caused records to be read from the middle of others."""

    def holds(self, offset: int) -> bool:
        """Return whether the record with its body at ``offset`` begins in the gap."""
        return self.start <= offset - layout.LENGTH.size < self.stop

    @property
    def what(self) -> str:
        """The message that reports the gap."""
        return f"damaged bytes; the next record is at {self.stop}"


@attrs.define
class LogRecords:
    """The records of one log, in order; iterate once.

    Records have no marker, so after a damaged length the log does not show where the next record
    begins. The index does: reading continues with the first intact record that the index points at,
    or else with the ledgers map. ``gaps`` are the skipped bytes.
    """

    scan: LogScan
    index: OfflineIndex
    gaps: list[Gap] = attrs.field(factory=list)

    def __iter__(self) -> Iterator[EntryLogRecord]:
        """Yield the records.

        Raises:
            EntryLogRecordError: a record is damaged, and the index has no readable record after it.
        """
        scan, places, start = self.scan, None, layout.HEADER_BYTES
        while True:
            damage = None
            try:
                yield from scan
                if scan.header is None or not (scan.is_torn or self._has_more()):
                    return
            except EntryLogRecordError as error:
                damage = error
            end, is_torn = scan.end, scan.is_torn
            if places is None:
                places = _places(self.index, scan.log_id)
            gap = self._gap(places, start, end)
            if gap is None:
                scan.end, scan.is_torn = end, is_torn
                if damage is not None:
                    raise damage
                return
            self.gaps.append(gap)
            start = gap.stop
            scan.resume(start)

    def _has_more(self) -> bool:
        """Return whether the log has anything but padding after the end."""
        try:
            self.scan.require_complete()
        except EntryLogRecordError:
            return True
        return False

    def _gap(self, places: array[int], start: int, end: int) -> Gap | None:
        """Return the first damaged bytes after ``start`` and before an intact record, or None.

        After a damaged length, bytes from the middle of later records may be read as records for a
        while. So this reads all records again from ``start`` on.
        """
        scan, sound_end, number = self.scan, start, bisect_left(places, start)
        scan.resume(start)
        with contextlib.suppress(EntryLogRecordError):
            for record in scan:
                body_at = place_of(record)
                while number < len(places) and places[number] < body_at:
                    if self._is_sound(places[number]):
                        return Gap(sound_end, places[number] - layout.LENGTH.size, end)
                    number += 1
                if number < len(places) and places[number] == body_at:
                    number += 1
                    if self._is_sound(body_at):
                        sound_end = body_at + len(record.body)
        after = scan.after_lost()
        if after is not None:
            return Gap(sound_end, after, end)
        for body_at in places[number:]:
            if body_at > scan.end + layout.LENGTH.size and self._is_sound(body_at):
                return Gap(sound_end, body_at - layout.LENGTH.size, end)
        map_at = 0 if scan.header is None else scan.header.map_offset
        if map_at > scan.end and scan.head_at(map_at) == (layout.NO_LEDGER, layout.MAP_ENTRY_ID):
            return Gap(sound_end, map_at, end)
        return None

    def _is_sound(self, body_at: int) -> bool:
        """Return whether the index points at the record whose body begins at ``body_at``."""
        head = self.scan.head_at(body_at - layout.LENGTH.size)
        location = layout.location(self.scan.log_id, body_at)
        return head is not None and is_indexed(self.index, head, location)


def is_indexed(index: OfflineIndex, head: tuple[int, int], location: int) -> bool:
    """Return whether the index has the entry ``head`` (ledger id, entry id) at a location."""
    ledger_id, entry_id = head
    if ledger_id < 0 or entry_id < 0:
        return False
    with contextlib.suppress(CorruptError, OSError):
        return index.location(ledger_id, entry_id) == location
    return False


def _places(index: OfflineIndex, log_id: int) -> array[int]:
    """Return the body offsets of an index's entries in a log, ascending."""
    found: list[int] = []
    with contextlib.suppress(CorruptError, OSError):
        for ledger_id in index.ledger_ids():
            with contextlib.suppress(CorruptError, OSError):
                for _, page in index.pages(ledger_id):
                    split = map(layout.split_location, page)
                    found += [offset for number, offset in split if number == log_id]
    return array("Q", sorted(found))
