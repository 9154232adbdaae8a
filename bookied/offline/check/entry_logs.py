"""The check of entry logs: headers and ledgers maps; in a deep check every record and its index.

The worst defect of a log is a ledgers map that lacks a ledger: the collector trusts the map and
would remove the log with entries that the ledger still needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import attrs

from bkclient.config.findings import Severity
from bookied.errors import CorruptError, LedgersMapError
from bookied.offline.bookie import Shard
from bookied.offline.check.findings import DiskFinding, Findings, from_error, index_fix
from bookied.offline.entry_logs import Gap, LogRecords, place_of
from bookied.offline.journal_tail import Tick, with_progress
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.scan import EntryLogRecord, LogScan, open_scan, read_ledgers_map

_OFFSETS_MAX: Final = 100
"""Offsets kept for one ledger in one log, to find overwritten ids."""

IF_IT_EXISTS: Final = "if the ledger still exists: "
"""The begin of the fix for a ledger that may have been deleted."""

_UNINDEXED_MAX: Final = 1000
"""Ledgers with unindexed records that are reported one by one for one log."""


@attrs.define
class _UnindexedRecords:
    """The records of one ledger in one log that are missing in its index."""

    offset: int
    first: int
    last: int
    count: int = 0
    size_bytes: int = 0
    offsets: list[int] = attrs.field(factory=list)
    """Offsets of the first records."""

    def take(self, at: int, entry_id: int, size: int) -> None:
        if len(self.offsets) < _OFFSETS_MAX:
            self.offsets.append(at)
        self.first, self.last = min(self.first, entry_id), max(self.last, entry_id)
        self.count, self.size_bytes = self.count + 1, self.size_bytes + size


def check_logs(
    shards: tuple[Shard, ...], found: Findings, tick: Tick, *, deep: bool
) -> Iterator[DiskFinding]:
    """Check every entry log."""
    done = 0
    for shard in shards:
        known = set(_known(shard)) if deep else set()
        for path in shard.entry_logs():
            found.counts.logs += 1
            yield from _check_log(shard, path, known, found, tick, done, deep=deep)
            done += shard.files.size(path)
            tick(done if deep else 0, found.counts.log_entries)
        yield from _leftovers(shard)


def _known(shard: Shard) -> list[int]:
    try:
        return shard.index.ledger_ids()
    except (CorruptError, OSError):
        return []  # Reported with the index.


def _check_log(
    shard: Shard,
    path: Path,
    known: set[int],
    found: Findings,
    tick: Tick,
    before: int,
    *,
    deep: bool,
) -> Iterator[DiskFinding]:
    try:
        scan = open_scan(shard.files, path)
    except (CorruptError, OSError) as error:
        yield from_error(
            error,
            fix=f"its entries are lost here, other bookies have them; keep {path} for salvage",
        )
        return
    has_map = scan.header is not None and scan.header.map_offset != 0
    ledgers_map: dict[int, int] | None = None
    with closing(scan):
        if has_map:
            try:
                ledgers_map = read_ledgers_map(shard.files, path)
            except LedgersMapError as error:
                fix = "none needed: the log is scanned instead"
                yield from_error(error, severity=Severity.WARNING, fix=fix)
        if deep:
            sizes: dict[int, int] = {}
            yield from _scan(shard, scan, known, found, sizes, tick, before)
            if ledgers_map is not None and not scan.is_torn and not found.gaps[path]:
                found.unlike_map += _compare_map(path, scan, ledgers_map, sizes)


def _scan(
    shard: Shard,
    scan: LogScan,
    known: set[int],
    found: Findings,
    sizes: dict[int, int],
    tick: Tick,
    before: int,
) -> Iterator[DiskFinding]:
    unindexed: dict[int, _UnindexedRecords] = {}

    def report_progress(at: int) -> None:
        tick(before + at, found.counts.log_entries)

    try:
        for record in with_progress(_records(shard, scan, found), place_of, report_progress):
            found.counts.log_entries += 1
            size = layout.LENGTH.size + len(record.body)
            sizes[record.ledger_id] = sizes.get(record.ledger_id, 0) + size
            at = place_of(record) - layout.LENGTH.size
            if not _is_indexed(shard, record, known, found):
                one = unindexed.setdefault(
                    record.ledger_id, _UnindexedRecords(at, record.entry_id, record.entry_id)
                )
                one.take(at, record.entry_id, size)
    except (CorruptError, OSError) as error:
        yield from_error(error, fix=f"the records before it: bkctl disk entrylog {scan.path}")
    gaps = found.gaps[scan.path]
    found.damaged[scan.path] = [gap for gap in gaps if gap.stop < scan.size]
    if scan.is_torn:
        message = "the last record is cut, as a crash leaves it"
        yield DiskFinding(Severity.NOTE, "torn-log", message, scan.path, scan.end)
    for ledger_id, one in list(unindexed.items())[:_UNINDEXED_MAX]:
        is_misread = any(gap.start <= one.offset < gap.misread_to for gap in gaps)
        is_known = ledger_id in known
        is_behind_end = is_known and one.first > _last(shard, ledger_id, found)
        if is_misread and (not is_known or (is_behind_end and one.count == 1)):
            continue  # Damaged bytes that were read as records.
        fix = index_fix(shard.index.kind, ledger_id)
        found_one = _unindexed(scan.path, ledger_id, one, fix, is_known=is_known)
        if is_behind_end:
            found_one = _never_acknowledged(found_one)
        if found.is_live:
            found_one = _not_yet(found_one)
        if is_known:
            yield found_one
        else:
            offsets = one.offsets if one.count == len(one.offsets) else []
            found.unclaimed.append((found_one, offsets))


def check_ids(found: Findings, tick: Tick) -> Iterator[DiskFinding]:
    """Yield the findings about ledgers without index and about ledgers maps, at the end of a check.

    Only then is it known which overwritten ids belong to no ledger.
    """
    for finding, offsets in found.unclaimed:
        overwritten = found.overwritten.get(finding.path or Path(), set())
        if not offsets or not overwritten.issuperset(offsets):
            yield finding
    yield from (one for one in found.unlike_map if one.path not in found.overwritten)
    tick(0, found.counts.log_entries)


def check_gaps(found: Findings, tick: Tick) -> Iterator[DiskFinding]:
    """Yield the damaged bytes of entry logs; a note if every indexed entry is readable."""
    for done, (path, gaps) in enumerate(found.damaged.items(), 1):
        elsewhere = found.gaps.keys() - {path}
        for gap in gaps:
            problem = DiskFinding(
                Severity.PROBLEM, "entry-log-record", gap.what, path, gap.start
            )  # The index stages report the entries and their fix.
            is_needed = found.unreadable - elsewhere
            yield problem if is_needed else _not_needed(problem, is_live=found.is_live)
        tick(done, found.counts.log_entries)


def _not_needed(problem: DiskFinding, *, is_live: bool) -> DiskFinding:
    return attrs.evolve(
        problem,
        severity=Severity.WARNING if is_live else Severity.NOTE,
        message=f"{problem.message}; no index on the disk points at the damaged bytes",
        fix="check again once the bookie is stopped: it writes entries before their index"
        if is_live
        else "none needed: the log is kept until all its ledgers are deleted",
    )


def gaps_of(shard: Shard, found: Findings, path: Path) -> list[Gap]:
    """Return the damaged bytes of a log; read the log first if that was not done."""
    if path not in found.gaps:
        try:
            scan = open_scan(shard.files, path)
        except (CorruptError, OSError):
            return []  # Reported with the logs.
        with closing(scan), suppress(CorruptError, OSError):
            deque(_records(shard, scan, found), maxlen=0)
    return found.gaps[path]


def _records(shard: Shard, scan: LogScan, found: Findings) -> Iterator[EntryLogRecord]:
    """Yield the records of a log and record its gaps; an error makes the rest of the log a gap."""
    records = LogRecords(scan, shard.index)
    found.gaps[scan.path] = records.gaps
    try:
        yield from records
    except (CorruptError, OSError):
        records.gaps.append(Gap(scan.end, scan.size, scan.size))
        raise


def _last(shard: Shard, ledger_id: int, found: Findings) -> int:
    """Return the last entry in the index or in the journals to replay; -1 for none."""
    pending = found.tail.ledgers.get(ledger_id)
    last = -1 if pending is None else pending.last_entry
    try:
        stored = shard.index.load(ledger_id)
    except (CorruptError, OSError):
        return last  # Reported with the index.
    return last if stored is None else max(last, stored.last_entry)


def _never_acknowledged(problem: DiskFinding) -> DiskFinding:
    """Return a warning instead: probably no loss, because the log gets an entry before the journal.

    If a bookie is killed in between, the unindexed entries remain at the end of their ledger.
    """
    message = (
        f"{problem.message}, nor any later entry: a crash leaves entries that were never "
        "acknowledged"
    )
    fix = f"none; if the ledger is known to have later entries here: {problem.fix}"
    return attrs.evolve(
        problem, severity=Severity.WARNING, kind="unindexed-end", message=message, fix=fix
    )


def _is_indexed(shard: Shard, record: EntryLogRecord, known: set[int], found: Findings) -> bool:
    """Return whether an index has the entry, at any location, or the next start replays it."""
    if found.tail.holds(record.ledger_id, record.entry_id):
        return True
    if record.ledger_id not in known:
        return False
    try:
        return shard.index.location(record.ledger_id, record.entry_id) != 0
    except (CorruptError, OSError):
        return True  # Reported with the index.


def _unindexed(
    path: Path, ledger_id: int, one: _UnindexedRecords, fix: str, *, is_known: bool
) -> DiskFinding:
    """Return the finding: entries missing in an index are lost.

    A ledger without index is mostly deleted.
    """
    what = f"{one.count} entries ({one.first} to {one.last}, {one.size_bytes} bytes)"
    if one.count == 1:
        what = f"entry {one.first} ({one.size_bytes} bytes)"
    if is_known:
        return DiskFinding(
            Severity.PROBLEM, "unindexed", f"{what} that the ledger's index does not have",
            path, one.offset, ledger_id, fix=fix,
        )  # fmt: skip
    message = f"{what} of a ledger without index: deleted and not yet collected, or its index lost"
    return DiskFinding(
        Severity.NOTE, "no-index", message, path, one.offset, ledger_id,
        fix=f"{IF_IT_EXISTS}{fix}",
    )  # fmt: skip


def _not_yet(problem: DiskFinding) -> DiskFinding:
    """Return a note instead: a running bookie writes entries before their index."""
    message = f"{problem.message}, or not yet: a bookie uses these directories"
    return attrs.evolve(
        problem, severity=Severity.NOTE, message=message, fix="check again once it is stopped"
    )


def _compare_map(
    path: Path, scan: LogScan, stated: dict[int, int], sizes: dict[int, int]
) -> Iterator[DiskFinding]:
    assert scan.header is not None
    at = scan.header.map_offset
    for ledger_id in sizes.keys() - stated.keys():
        message = f"{sizes[ledger_id]} bytes of this ledger that the ledgers map does not name"
        fix = "copy the log away before the bookie runs: garbage collection would delete it"
        yield DiskFinding(Severity.PROBLEM, "ledgers-map", message, path, at, ledger_id, fix=fix)
    for ledger_id in stated.keys() - sizes.keys():
        message = "the ledgers map names a ledger that has no entries here"
        yield DiskFinding(Severity.WARNING, "ledgers-map", message, path, at, ledger_id)
    for ledger_id in sizes.keys() & stated.keys():
        if sizes[ledger_id] != stated[ledger_id]:
            message = f"{stated[ledger_id]} bytes in the ledgers map, {sizes[ledger_id]} in the log"
            yield DiskFinding(Severity.WARNING, "ledgers-map", message, path, at, ledger_id)


def _leftovers(shard: Shard) -> Iterator[DiskFinding]:
    for directory in shard.ledger_dirs:
        for name in sorted(shard.files.list(directory)):
            if layout.log_id(name) is None and layout.used_log_id(name) is not None:
                message = "a compaction that was cut short; the collector finishes or undoes it"
                yield DiskFinding(Severity.NOTE, "compaction", message, directory / name)
