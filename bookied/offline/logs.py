"""Entry logs of a stopped bookie as a whole: what each holds, what of it is still wanted.

Bytes of a ledger in a log count its records with their length fields, as a ledgers map does. A
ledger is alive if the index has it; so does the collector see it (BookKeeper 4.18.0,
EntryLogMetadata), but for ledgers that the metadata service has dropped since.
"""

from __future__ import annotations

import enum
from collections.abc import Container
from pathlib import Path

import attrs

from bookied.errors import CorruptError, LedgersMapError
from bookied.offline.journal_tail import TELL_BYTES, Tick, no_tick
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog import reader as logs
from bookied.storage.files.files import Files


class MapState(enum.Enum):
    """What a log's ledgers map is worth."""

    INTACT = "intact"
    NONE = "none"
    """As in every log that was not rotated."""
    DAMAGED = "damaged"


@attrs.frozen
class LedgerShare:
    """What one log holds of one ledger; ``entries`` is None where a map was read instead."""

    ledger_id: int
    size_bytes: int
    entries: int | None


@attrs.frozen
class EntryLogSummary:
    """One entry log. ``end`` is where its records end, None where a map was read instead."""

    path: Path
    log_id: int
    size: int
    version: int | None
    """None for a log that nothing was written to."""
    map_state: MapState
    ledgers: tuple[LedgerShare, ...]
    end: int | None = None
    is_torn: bool = False
    damage: CorruptError | None = None

    @property
    def data_bytes(self) -> int:
        """The bytes of all its records."""
        return sum(share.size_bytes for share in self.ledgers)

    def live_bytes(self, alive: Container[int]) -> int:
        """Return the bytes of ledgers that are still there."""
        return sum(share.size_bytes for share in self.ledgers if share.ledger_id in alive)


@attrs.frozen
class LogUse:
    """How much of one log is still wanted."""

    summary: EntryLogSummary
    live_bytes: int

    @property
    def dead_bytes(self) -> int:
        return self.summary.data_bytes - self.live_bytes

    @property
    def usage(self) -> float:
        """The share of live bytes; 1 for a log without records."""
        return self.live_bytes / self.summary.data_bytes if self.summary.data_bytes else 1.0


def summarize(
    files: Files, path: Path, *, by_scan: bool = False, tick: Tick = no_tick
) -> EntryLogSummary:
    """Return what a log holds: by its ledgers map, or record by record where there is none.

    Damage ends the scan and stands in the summary.

    Raises:
        EntryLogFormatError: it is not an entry log.
        OSError: it cannot be read.
    """
    scan = logs.open_scan(files, path)
    try:
        state, shares = _map_of(files, path, scan)
        version = None if scan.header is None else scan.header.version
        if shares is not None and not by_scan:
            return EntryLogSummary(path, scan.log_id, scan.size, version, state, shares)
        damage, shares = _count(scan, tick)
        return EntryLogSummary(
            path, scan.log_id, scan.size, version, state, shares, scan.end, scan.is_torn, damage
        )
    finally:
        scan.close()


def _map_of(
    files: Files, path: Path, scan: logs.LogScan
) -> tuple[MapState, tuple[LedgerShare, ...] | None]:
    if scan.header is None or not scan.header.map_offset:
        return MapState.NONE, None
    try:
        stated = logs.read_ledgers_map(files, path)
    except LedgersMapError:
        return MapState.DAMAGED, None
    return MapState.INTACT, tuple(LedgerShare(*row, None) for row in sorted(stated.items()))


def _count(scan: logs.LogScan, tick: Tick) -> tuple[CorruptError | None, tuple[LedgerShare, ...]]:
    sizes: dict[int, int] = {}
    entries: dict[int, int] = {}
    damage, reported, count = None, 0, 0
    try:
        for record in scan:
            ledger_id, count = record.ledger_id, count + 1
            size = layout.LENGTH.size + len(record.body)
            sizes[ledger_id] = sizes.get(ledger_id, 0) + size
            entries[ledger_id] = entries.get(ledger_id, 0) + 1
            if scan.end - reported > TELL_BYTES:
                reported = scan.end
                tick(reported, count)
    except CorruptError as error:
        damage = error
    shares = (LedgerShare(key, size, entries[key]) for key, size in sorted(sizes.items()))
    return damage, tuple(shares)


def freed_by(found: list[LogUse], threshold: float) -> int:
    """Return what a compaction of all logs below a usage would free."""
    return sum(one.dead_bytes for one in found if one.usage < threshold)
