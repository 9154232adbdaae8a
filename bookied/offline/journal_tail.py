"""The journal records after the marks: what a start would replay, without replaying it.

After a crash the index and the entry logs may lack these records, or point at entries that were
never written. Neither is damage. Entries are stored as ranges of ids, so that a journal of many
small entries takes little memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Final, TypeVar

import attrs

from bookied.errors import CorruptError, JournalMissingError
from bookied.offline.bookie import OfflineBookie, Report
from bookied.storage.journal import format as layout
from bookied.storage.journal import reader as journals

T = TypeVar("T")
"""A record of a journal or of an entry log."""

RANGES_MAX: Final = 1_000_000
"""Ranges of entry ids in memory; entries after that many are unknown."""

TELL_BYTES: Final = 4 * 1024 * 1024

Tick = Callable[[int, int], object]
"""A function that gets the progress: units done, and objects read."""


offset_of: Final[Callable[[journals.JournalRecord], int]] = attrgetter("offset")
"""Returns the offset of a journal record, for ``with_progress``."""


def no_tick(_done: int, _items: int) -> None:
    """Report nothing."""


def with_progress(
    records: Iterable[T],
    place_of: Callable[[T], int],
    report_progress: Callable[[int], object],
    start: int = 0,
) -> Iterator[T]:
    """Yield the records.

    Call ``report_progress`` with the offset after each ``TELL_BYTES`` from ``start`` on.
    """
    for record in records:
        yield record
        place = place_of(record)
        if place - start > TELL_BYTES:
            start = place
            report_progress(place)


@attrs.define
class JournalledLedger:
    """The last key, fence and explicit LAC of a ledger in the journals."""

    master_key: bytes | None = attrs.field(default=None, repr=False)
    is_fenced: bool = False
    explicit_lac: bytes | None = attrs.field(default=None, repr=False)

    def take(self, record: journals.JournalRecord) -> None:
        """Apply a record that is not an entry."""
        if record.entry_id == layout.LEDGER_KEY:
            # After an index rebuild, the journal may have an empty key.
            self.master_key = layout.inner_bytes(record.body) or self.master_key or b""
        elif record.entry_id == layout.FENCE:
            self.is_fenced = True
        elif record.entry_id == layout.EXPLICIT_LAC:
            self.explicit_lac = layout.inner_bytes(record.body)


@attrs.define
class PendingLedger(JournalledLedger):
    """A ledger's data in the journals. ``ranges`` are pairs of first and last entry ids."""

    entries: int = 0
    size_bytes: int = 0
    ranges: list[tuple[int, int]] = attrs.field(factory=list)
    _ordered: list[tuple[int, int]] | None = attrs.field(default=None, repr=False, eq=False)

    @property
    def last_entry(self) -> int:
        """The highest entry; -1 for none."""
        return max((last for _, last in self.ranges), default=-1)

    @property
    def count(self) -> int:
        """The number of entries, each counted once."""
        return sum(last - first + 1 for first, last in _joined(self.ranges))

    def add_entry(self, entry_id: int, *, may_begin: bool) -> bool:
        """Add an entry; return whether the entry needs a new range, added only if ``may_begin``."""
        self._ordered = None
        if self.ranges:
            first, last = self.ranges[-1]
            if first <= entry_id <= last + 1:
                self.ranges[-1] = first, max(last, entry_id)
                return False
        if may_begin:
            self.ranges.append((entry_id, entry_id))
        return True

    def holds(self, entry_id: int) -> bool:
        """Return whether an entry is in the ranges, by a binary search."""
        if self._ordered is None:
            self._ordered = _joined(self.ranges)
        at = bisect_right(self._ordered, entry_id, key=itemgetter(0))
        return at > 0 and entry_id <= self._ordered[at - 1][1]


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges in order; ranges that touch or overlap are joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined


@attrs.define
class JournalTail:
    """The records that the next start would replay, by ledger."""

    ledgers: dict[int, PendingLedger] = attrs.field(factory=dict)
    records: int = 0
    is_complete: bool = True
    """False if the tail has too many ranges to store all of them."""
    _ranges: int = 0

    def holds(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether the next start replays the entry."""
        found = self.ledgers.get(ledger_id)
        return found is not None and found.holds(entry_id)

    def add(self, record: journals.JournalRecord) -> None:
        """Add one record."""
        self.records += 1
        ledger = self.ledgers.setdefault(record.ledger_id, PendingLedger())
        if record.entry_id >= 0:
            ledger.entries += 1
            ledger.size_bytes += len(record.body)
            if ledger.add_entry(record.entry_id, may_begin=self._ranges < RANGES_MAX):
                self._ranges += 1
                self.is_complete = self._ranges <= RANGES_MAX
        else:
            ledger.take(record)


def read_tail(bookie: OfflineBookie, report: Report, tick: Tick = no_tick) -> JournalTail:
    """Read the journals from the marks on; report damage, which ends its journal."""
    tail = JournalTail()
    before = 0

    def report_progress(at: int) -> None:
        tick(before + at, 0)

    for number in range(len(bookie.found.journals)):
        _check_first(bookie, number, report)
        for path, offset in bookie.to_replay(number):
            before -= offset
            for record in records_of(bookie, path, offset, report, report_progress):
                tail.add(record)
            before += max(offset, bookie.files.size(path))
    return tail


def records_of(
    bookie: OfflineBookie,
    path: Path,
    offset: int,
    report: Report,
    report_progress: Callable[[int], object] = lambda _offset: None,
) -> Iterator[journals.JournalRecord]:
    """Yield the records of one journal; report damage, which ends the journal."""
    try:
        with closing(journals.open_scan(bookie.files, path, offset)) as scan:
            yield from with_progress(scan, offset_of, report_progress, offset)
    except CorruptError as error:
        report(error)


def bytes_to_replay(bookie: OfflineBookie) -> int:
    """Return the bytes that ``read_tail`` reads at most."""
    return sum(
        max(0, bookie.files.size(path) - offset)
        for number in range(len(bookie.found.journals))
        for path, offset in bookie.to_replay(number)
    )


def _check_first(bookie: OfflineBookie, number: int, report: Report) -> None:
    """Report a journal that a mark names and that is missing: the bookie would not start."""
    mark = bookie.highest_mark(number)
    if not mark.journal_id:
        return
    path = bookie.found.journal_dirs[number] / layout.file_name(mark.journal_id)
    if not bookie.files.exists(path):
        report(JournalMissingError(path, None, "lastMark names this journal, but it is missing"))
