"""How much of an entry log is still alive: bytes by ledger, from its map or by reading all of it.

Java agrees: EntryLogMetadata, DefaultEntryLogger.getEntryLogMetadata (4.18.0). What cannot be read
to its end has no usage, and must not be deleted.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Protocol

import attrs

from bookied.errors import CorruptError, LedgersMapError
from bookied.storage.entrylog.reader import ROWS_MAX, LogPiece, LogScan, open_scan, read_ledgers_map
from bookied.storage.files.files import Files

STEP_BYTES: Final = 4 * 1024 * 1024
"""Read of a log between two chances to stop."""


@attrs.frozen(eq=False)
class LogUsage:
    """Bytes of one finished log by ledger, 16 bytes of memory for each, ledgers ascending."""

    log_id: int
    total_bytes: int
    """Of all its records, length fields included, of any ledger."""
    live_bytes: int
    """Of the records of ledgers that still are."""
    ledgers: array[int] = attrs.field(repr=False)
    sizes: array[int] = attrs.field(repr=False)
    is_mapped: bool = True
    """Whether it came from the log's own map, so that it is cheap to have again."""

    @classmethod
    def of(cls, log_id: int, sizes: Mapping[int, int], *, is_mapped: bool) -> LogUsage:
        """Return the usage of a log whose ledgers all are alive."""
        total = sum(sizes.values())
        rows = sorted(sizes.items())
        ledgers = array("q", (ledger_id for ledger_id, _ in rows))
        return cls(log_id, total, total, ledgers, array("q", (size for _, size in rows)), is_mapped)

    @property
    def is_dead(self) -> bool:
        """Whether nothing in it is needed any more."""
        return not self.live_bytes

    def keeping(self, alive: frozenset[int]) -> LogUsage:
        """Return what is left when only these ledgers are."""
        if alive.issuperset(self.ledgers):
            return self
        rows = [row for row in zip(self.ledgers, self.sizes, strict=True) if row[0] in alive]
        sizes = array("q", (size for _, size in rows))
        ledgers = array("q", (ledger_id for ledger_id, _ in rows))
        return attrs.evolve(self, live_bytes=sum(sizes), ledgers=ledgers, sizes=sizes)


class ScanChecks(Protocol):
    """What makes sure that a scan of a log has not passed over entries of the index."""

    def insist_sizes(self, scan: LogScan, piece: LogPiece) -> None:
        """Make sure that no record of a piece hides others."""

    def insist_complete(self, scan: LogScan) -> None:
        """Make sure, after the last entry, that nothing after it is one."""


def read_usage(
    files: Files, path: Path, log_id: int, checks: ScanChecks | None = None
) -> Generator[LogUsage | None, None, None]:
    """Give the usage of a finished log in the end, and None after every few megabytes until then.

    Blocking. A log without a map that can be trusted is read whole; ``checks`` make sure that
    nothing is passed over. Without them only bytes after the last entry are looked at.

    Raises:
        CorruptError: it is damaged, or no entry log.
        OSError: it cannot be read.
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
                checks.insist_sizes(scan, piece)
            step_bytes += piece.size_bytes
            if step_bytes >= STEP_BYTES:
                step_bytes = 0
                yield None
        scan.insist_complete() if checks is None else checks.insist_complete(scan)
        yield LogUsage.of(log_id, sizes, is_mapped=False)


def ledgers_found(files: Files, path: Path) -> Generator[set[int], None, None]:
    """Give the ledgers of the records of a log, of some at a time, up to damage. Blocking."""
    with suppress(CorruptError), closing(open_scan(files, path)) as scan:
        while (piece := scan.read(records_max=ROWS_MAX, bytes_max=STEP_BYTES)) is not None:
            yield {row[0] for row in piece.rows}


class Usages:
    """The usages of all finished logs, in about ``rows_max`` times 16 bytes.

    Beyond that, of logs with a map only the sums stay; ``is_known`` then is False, and the ledgers
    are read from the map again.
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
        """Return all, by log id."""
        return [usage for _, usage in sorted(self._usages.items())]

    def get(self, log_id: int) -> LogUsage:
        """Return the usage of a log that is here."""
        return self._usages[log_id]

    def is_known(self, log_id: int) -> bool:
        """Whether the ledgers of a log are here."""
        return log_id in self._usages and log_id not in self._forgotten

    def put(self, usage: LogUsage) -> None:
        """Keep a usage, in place of the one before."""
        self.drop(usage.log_id)
        if usage.is_mapped and self._rows + len(usage.ledgers) > self._rows_max:
            self._forgotten.add(usage.log_id)
            usage = attrs.evolve(usage, ledgers=array("q"), sizes=array("q"))
        self._rows += len(usage.ledgers)
        self._usages[usage.log_id] = usage

    def drop(self, log_id: int) -> None:
        """Forget a log that is gone."""
        before = self._usages.pop(log_id, None)
        self._forgotten.discard(log_id)
        if before is not None:
            self._rows -= len(before.ledgers)
