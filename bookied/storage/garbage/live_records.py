"""Reads what is alive of a finished entry log, in batches: what a compaction copies.

A record is alive if the index on disk has its entry at this very place. Blocking; in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

import attrs

from bookied.storage.entrylog.format import LENGTH
from bookied.storage.entrylog.reader import EntryLogRecord, open_scan
from bookied.storage.files.files import Files
from bookied.storage.index.ledger_pages import Move


class Index(Protocol):
    """What says where entries are; see ``Relocation``."""

    def still_at(self, places: Sequence[tuple[int, int, int]]) -> list[bool]: ...


@attrs.frozen
class RecordBatch:
    """Live records, joined as they are in a log."""

    blob: bytes = attrs.field(repr=False)
    counted: dict[int, int]
    """Bytes by ledger, length fields included."""
    places: list[tuple[int, int, int, int]] = attrs.field(repr=False)
    """Ledger, entry, location in the old log, and offset of the body in ``blob``."""

    def moves(self, base: int) -> list[Move]:
        """Return where they move from and to, if ``blob`` is put at location ``base``."""
        return [Move(ledger, entry, old, base + at) for ledger, entry, old, at in self.places]


class LiveRecords:
    """The live records of one log; iterate once, then ``insist_complete``, then ``close``."""

    def __init__(self, files: Files, path: Path, index: Index) -> None:
        """Open the log.

        Raises:
            EntryLogFormatError: the file is not an entry log.
            OSError: it cannot be read.
        """
        self._index = index
        self._scan = open_scan(files, path)
        self._records = iter(self._scan)

    def read(self, *, records_max: int, bytes_max: int) -> RecordBatch | None:
        """Return what is alive of the next records, perhaps nothing; None at the end.

        Args:
            records_max: look at no more.
            bytes_max: look at no more after so many.

        Raises:
            CorruptError: the log or an index is damaged.
            OSError: one of them cannot be read.
        """
        records = list(_until(islice(self._records, records_max), bytes_max))
        if not records:
            return None
        places = [(one.ledger_id, one.entry_id, one.location) for one in records]
        alive = self._index.still_at(places)
        return _joined([one for one, is_alive in zip(records, alive, strict=True) if is_alive])

    def insist_complete(self) -> None:
        """Make sure that all of the log was read.

        Raises:
            EntryLogRecordError: bytes behind the last record are not a record.
        """
        self._scan.insist_complete()

    def close(self) -> None:
        """Release the file."""
        self._scan.close()


def _until(records: Iterator[EntryLogRecord], bytes_max: int) -> Iterator[EntryLogRecord]:
    size_bytes = 0
    for record in records:
        yield record
        size_bytes += len(record.body)
        if size_bytes >= bytes_max:
            return


def _joined(records: Sequence[EntryLogRecord]) -> RecordBatch:
    parts: list[bytes] = []
    counted: dict[int, int] = {}
    places = []
    at = 0
    for location, ledger_id, entry_id, body in records:
        parts += LENGTH.pack(len(body)), body
        places.append((ledger_id, entry_id, location, at + LENGTH.size))
        size = LENGTH.size + len(body)
        counted[ledger_id] = counted.get(ledger_id, 0) + size
        at += size
    return RecordBatch(b"".join(parts), counted, places)
