"""`disk entrylog`: prints values of ``bookied.offline.entry_logs``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.bookies.directories import open_bookie
from bkctl.commands.disk.inspect import records as disk_records
from bkctl.commands.disk.inspect.records import DamagedRecords, LedgerDigests, LogRow
from bkctl.errors import NothingFoundError, UsageError
from bkctl.output.forms.table import Cell, Table
from bkctl.output.units import human_bytes
from bkctl.output.views import WIDE, Column, Kind, shown
from bookied.errors import CorruptError
from bookied.offline.bookie import Shard, StoredEntry
from bookied.offline.entry_logs import EntryLogSummary, LedgerShare, summarize
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.scan import EntryLogRecord, open_scan
from bookied.storage.files.files import RealFiles
from wire.ids import EntryId, LedgerId

if TYPE_CHECKING:
    from bkctl.commands.disk.inspect.journals import Dirs
    from bkctl.commands.disk.parameter_types import FileRef
    from bkctl.session.session import Session


def entrylog(
    session: Session,
    /,
    *,
    log: FileRef,
    ledger_id: int | None,
    entries: tuple[int, int | None] | None,
    start: int,
    end: int | None,
    payload: bool,
    live: bool,
    summary: bool,
    **dirs: tuple[str, ...],
) -> None:
    """Print the records of the entry log LOG."""
    damage = DamagedRecords(session)
    chosen = RecordChoice(ledger_id, entries, start, end)
    with find_log(session, log, dirs, live=live) as found:
        if summary:
            session.emit(contents(session, found, damage, live=live))
        else:
            rows = log_rows(session, found, chosen, damage, payload=payload, live=live)
            session.emit_all(rows, LogRow)
    damage.finish()


@attrs.frozen
class RecordChoice:
    """A filter for the records of a log; ``start`` and ``end`` are offsets of length fields."""

    ledger_id: int | None
    entries: tuple[int, int | None] | None
    start: int
    end: int | None

    def takes(self, record: EntryLogRecord) -> bool:
        at = layout.split_location(record.location)[1] - layout.LENGTH.size
        if self.ledger_id is not None and record.ledger_id != self.ledger_id:
            return False
        if at < self.start or (self.end is not None and at > self.end):
            return False
        if self.entries is None:
            return True
        first, last = self.entries
        return first <= record.entry_id and (last is None or record.entry_id <= last)


@attrs.frozen
class FoundLog:
    """One entry log; ``shard`` has its index, or is None if a path named the log."""

    path: Path
    shard: Shard | None


@attrs.frozen
class LiveShare:
    """The records of one ledger in a log; ``live_bytes`` is None without ``--live``."""

    share: LedgerShare
    live_bytes: int | None


def _ledger_lines(contents: LogContents) -> str:
    """Return a small table of the ledgers in a log."""
    with_live = contents.live_bytes is not None and bool(contents.ledgers)
    titles = [("LEDGER", 0, False), ("BYTES", 0, True), ("ENTRIES", 0, True)]
    table = Table([*titles, ("LIVE", 0, True)] if with_live else titles, width=None)
    rows = []
    for one in contents.ledgers:
        share = one.share
        entries = "-" if share.entries is None else str(share.entries)
        cells = [str(share.ledger_id), human_bytes(share.size_bytes), entries]
        rows.append([*cells, human_bytes(one.live_bytes or 0)] if with_live else cells)
    return "\n".join(table.lines([[Cell(text) for text in row] for row in rows])) or "none"


def _ledger_shares(contents: LogContents) -> list[dict[str, Any]]:
    return [
        {
            "ledger": str(one.share.ledger_id),
            "bytes": one.share.size_bytes,
            "entries": one.share.entries,
            "live_bytes": one.live_bytes,
        }
        for one in contents.ledgers
    ]


LOG_COLUMNS: Final = (
    Column("log", "The log's name.", "summary.path.name"),
    Column("log_id", "Id of the entry log.", "summary.log_id", Kind.COUNT, rank=3),
    Column("path", "Path of the entry log.", lambda v: str(v.summary.path), rank=WIDE),
    Column("size", "Size of the file.", "summary.size", Kind.BYTES, rank=4),
)


@shown(
    "logs",
    *LOG_COLUMNS,
    Column("version", "Format version.", "summary.version", Kind.COUNT),
    Column("ledgers_map", "intact, none (never rotated), or damaged.", "summary.map_state.value"),
    Column("data_bytes", "Size of all records.", "summary.data_bytes"),
    Column("live_bytes", "Size of the records that the index of this bookie refers to."),
    Column("end", "End of the last record, if the log was read.", "summary.end", Kind.COUNT),
    Column("torn", "Whether the last record is cut.", "summary.is_torn", Kind.FLAG),
    Column(
        "damage",
        "The damage that ended the reading.",
        lambda v: None if v.summary.damage is None else str(v.summary.damage),
        optional=True,
    ),
    Column("ledgers", "Ledgers with records in the log.", _ledger_shares, cell=_ledger_lines),
    id="log",
)
class LogContents:
    """The summary of one entry log."""

    summary: EntryLogSummary
    ledgers: tuple[LiveShare, ...]

    @property
    def live_bytes(self) -> int | None:
        found = [one.live_bytes for one in self.ledgers if one.live_bytes is not None]
        return sum(found) if len(found) == len(self.ledgers) else None


@contextlib.contextmanager
def find_log(session: Session, wanted: FileRef, dirs: Dirs, *, live: bool) -> Iterator[FoundLog]:
    """Yield the log that the command names.

    Raises:
        NothingFoundError: the log does not exist.
        UsageError: several logs match, or a path names the log and ``live`` needs the index.
    """
    if wanted.path is not None:
        if live:
            raise UsageError(
                "--live asks the index", next_step="name the log by its id, with -c FILE"
            )
        if not wanted.path.is_file():
            raise NothingFoundError(f"{wanted.path}: no such file")
        yield FoundLog(wanted.path, None)
        return
    bookie = open_bookie(session, **dirs)
    name = layout.file_name(wanted.number or 0)
    with bookie.shards() as shards:
        found = [
            FoundLog(path, shard)
            for shard in shards
            for path in shard.entry_logs()
            if path.name == name
        ]
        if not found:
            places = ", ".join(map(str, bookie.found.ledgers))
            raise NothingFoundError(
                f"there is no entry log {wanted}, {name}, in {places}",
                next_step="`bkctl disk files --entrylog` lists those that are there",
            )
        if len(found) > 1:
            paths = " or ".join(str(one.path) for one in found)
            raise UsageError(f"each directory has its own {name}", next_step=f"name {paths}")
        yield found[0]


def log_rows(
    session: Session,
    found: FoundLog,
    chosen: RecordChoice,
    damage: DamagedRecords,
    *,
    payload: bool,
    live: bool,
) -> Iterator[LogRow]:
    """Yield the chosen records of a log."""
    with contextlib.closing(open_scan(RealFiles(), found.path)) as scan:
        with session.progress(f"reading {found.path.name}", total=scan.size) as progress:
            shown = progress if disk_records.may_draw(session) else None
            records = disk_records.counted(damage.passing(scan), shown, lambda _one: scan.end)
            digests = LedgerDigests(lambda: _packets(found.path), damage)
            for record in records:
                if chosen.takes(record) and (not live or is_live(found.shard, record)):
                    row = disk_records.log_row(session, stored(found.path, record), payload=payload)
                    yield digests.checked(row)
        if scan.is_torn:
            session.note(f"(the last record, at {scan.end}, is cut, as a crash leaves it)")


def _packets(path: Path) -> Iterator[tuple[int, bytes]]:
    with contextlib.closing(open_scan(RealFiles(), path)) as scan:
        yield from ((record.ledger_id, record.body) for record in scan)


def stored(path: Path, record: EntryLogRecord) -> StoredEntry:
    """Return a record as a stored entry."""
    return StoredEntry(
        path=path,
        offset=layout.split_location(record.location)[1] - layout.LENGTH.size,
        location=record.location,
        ledger_id=LedgerId(record.ledger_id),
        entry_id=EntryId(record.entry_id),
        packet=record.body,
    )


def is_live(shard: Shard | None, record: EntryLogRecord) -> bool:
    """Return whether the index has the location of this record for its entry."""
    assert shard is not None
    try:
        return shard.index.location(record.ledger_id, record.entry_id) == record.location
    except CorruptError:
        return False


def contents(
    session: Session, found: FoundLog, damage: DamagedRecords, *, live: bool
) -> LogContents:
    """Return the summary of a log, with the bytes of each ledger."""
    files = RealFiles()
    total = files.size(found.path)
    with session.progress(f"reading {found.path.name}", total=total) as progress:
        summary = summarize(files, found.path, by_scan=live, tick=progress.update)
        if summary.damage is not None:
            damage.note(summary.damage)
        alive = _live_bytes(found) if live else None
    return LogContents(
        summary,
        tuple(
            LiveShare(share, None if alive is None else alive.get(share.ledger_id, 0))
            for share in summary.ledgers
        ),
    )


def _live_bytes(found: FoundLog) -> dict[int, int]:
    sizes: dict[int, int] = {}
    scan = open_scan(RealFiles(), found.path)
    try:
        for record in scan:
            if is_live(found.shard, record):
                size = layout.LENGTH.size + len(record.body)
                sizes[record.ledger_id] = sizes.get(record.ledger_id, 0) + size
    except CorruptError:
        pass  # The summary reports the damage.
    finally:
        scan.close()
    return sizes
