"""The bytes of an entry log that are still needed, by ledger, from its map or from a scan.

Agrees with Java 4.18.0: EntryLogMetadata, DefaultEntryLogger.getEntryLogMetadata. A log that cannot
be read to its end has no usage, and must not be deleted.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Protocol

import attrs

from bookied.errors import CorruptError, LedgersMapError
from bookied.storage.entrylog.scan import ROWS_MAX, LogPiece, LogScan, open_scan, read_ledgers_map
from bookied.storage.files.files import Files

STEP_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a log that are read between two chances to stop."""


@attrs.frozen(eq=False)
class LogUsage:
    """The bytes of one finished log by ledger, ledgers ascending; 16 bytes of memory each."""

    log_id: int
    total_bytes: int
    """Bytes of all its records, length fields included, of any ledger."""
    live_bytes: int
    """Bytes of the records of existing ledgers."""
    ledgers: array[int] = attrs.field(repr=False)
    sizes: array[int] = attrs.field(repr=False)
    is_mapped: bool = True
    """True if the usage is from the log's own map, and so is cheap to read again."""

    @classmethod
    def of(cls, log_id: int, sizes: Mapping[int, int], *, is_mapped: bool) -> LogUsage:
        """Return the usage of a log whose ledgers all exist."""
        total = sum(sizes.values())
        rows = sorted(sizes.items())
        ledgers = array("q", (ledger_id for ledger_id, _ in rows))
        return cls(log_id, total, total, ledgers, array("q", (size for _, size in rows)), is_mapped)

    @property
    def is_dead(self) -> bool:
        """True if no record of the log is needed."""
        return not self.live_bytes

    def keeping(self, alive: frozenset[int]) -> LogUsage:
        """Return the usage if only the ledgers ``alive`` exist."""
        if alive.issuperset(self.ledgers):
            return self
        rows = [row for row in zip(self.ledgers, self.sizes, strict=True) if row[0] in alive]
        sizes = array("q", (size for _, size in rows))
        ledgers = array("q", (ledger_id for ledger_id, _ in rows))
        return attrs.evolve(self, live_bytes=sum(sizes), ledgers=ledgers, sizes=sizes)


class ScanChecks(Protocol):
    """Checks that a scan of a log has not skipped entries of the index."""

    def require_sizes(self, scan: LogScan, piece: LogPiece) -> None:
        """Check that no record of a piece hides others."""

    def require_complete(self, scan: LogScan) -> None:
        """Check, after the last entry, that no entry follows it."""


def read_usage(
    files: Files, path: Path, log_id: int, checks: ScanChecks | None = None
) -> Generator[LogUsage | None, None, None]:
    """Yield None after every few megabytes, and at the end the usage of a finished log.

    Blocks. A log without a trusted map is read completely, and ``checks`` ensure that no entry is
    skipped. Without ``checks`` only the bytes after the last entry are checked.

    Raises:
        CorruptError: the file is damaged, or not an entry log.
        OSError: the file cannot be read.
    """
    try:
        yield LogUsage.of(log_id, read_ledgers_map(files, path), is_mapped=True)
    except LedgersMapError:
        yield from _scanned(files, path, log_id, checks)


def _scanned(
    files: Files, path: Path, log_id: int, checks: ScanChecks | None
) -> Iterator[LogUsage | None]:
    with closing(open_scan(files, path)) as scan:
        sizes: dict[int, int] = {}
        step_bytes = 0
        while (piece := scan.read(records_max=ROWS_MAX, bytes_max=STEP_BYTES)) is not None:
            for ledger_id, _, _, begin, stop in piece.rows:
                sizes[ledger_id] = sizes.get(ledger_id, 0) + stop - begin
            if checks is not None:
                checks.require_sizes(scan, piece)
            step_bytes += piece.size_bytes
            if step_bytes >= STEP_BYTES:
                step_bytes = 0
                yield None
        scan.require_complete() if checks is None else checks.require_complete(scan)
        yield LogUsage.of(log_id, sizes, is_mapped=False)


def ledgers_found(files: Files, path: Path) -> Generator[set[int], None, None]:
    """Yield the ledgers of a log's records, some records at a time, up to damage. Blocks."""
    with suppress(CorruptError), closing(open_scan(files, path)) as scan:
        while (piece := scan.read(records_max=ROWS_MAX, bytes_max=STEP_BYTES)) is not None:
            yield {row[0] for row in piece.rows}


class LogUsages:
    """The usages of all finished logs, in memory for about ``rows_max`` times 16 bytes.

    Above the limit only the sums of a log with a map are kept. ``is_known`` is then False, and the
    ledgers are read from the map again.
    """

    def __init__(self, *, rows_max: int = 4_000_000) -> None:
        self._rows_max = rows_max
        self._usages: dict[int, LogUsage] = {}
        self._forgotten: set[int] = set()
        self._rows = 0

    def __len__(self) -> int:
        return len(self._usages)

    def __contains__(self, log_id: object) -> bool:
        return log_id in self._usages

    def values(self) -> list[LogUsage]:
        """Return all usages, by log id."""
        return [usage for _, usage in sorted(self._usages.items())]

    def get(self, log_id: int) -> LogUsage:
        """Return the usage of a log that has one."""
        return self._usages[log_id]

    def is_known(self, log_id: int) -> bool:
        """Return whether the ledgers of a log are in memory."""
        return log_id in self._usages and log_id not in self._forgotten

    def put(self, usage: LogUsage) -> None:
        """Store a usage; it replaces the log's earlier one."""
        self.drop(usage.log_id)
        if usage.is_mapped and self._rows + len(usage.ledgers) > self._rows_max:
            self._forgotten.add(usage.log_id)
            usage = attrs.evolve(usage, ledgers=array("q"), sizes=array("q"))
        self._rows += len(usage.ledgers)
        self._usages[usage.log_id] = usage

    def drop(self, log_id: int) -> None:
        """Remove the usage of a log that was deleted."""
        before = self._usages.pop(log_id, None)
        self._forgotten.discard(log_id)
        if before is not None:
            self._rows -= len(before.ledgers)
