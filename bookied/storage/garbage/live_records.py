"""Reads what is alive of a finished entry log, in batches: what a compaction copies.

A record is alive if the index on disk has its entry at this very place. Blocking; in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import attrs

from bookied.storage.entrylog.format import LENGTH
from bookied.storage.entrylog.reader import LogPiece, open_scan
from bookied.storage.files.files import Files
from bookied.storage.index.ledger_pages import Move


class Index(Protocol):
    """What says where entries are; see ``Relocation``."""

    def still_at(self, places: Sequence[tuple[int, int, int]], sure: set[int]) -> list[bool]: ...


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
        self._sure: set[int] = set()

    def read(self, *, records_max: int, bytes_max: int) -> RecordBatch | None:
        """Return what is alive of the next records, perhaps nothing; None at the end.

        Args:
            records_max: look at no more.
            bytes_max: look at no more after so many.

        Raises:
            CorruptError: the log or an index is damaged.
            OSError: one of them cannot be read.
        """
        parts = _Parts()
        records = size_bytes = 0
        while records < records_max and size_bytes < bytes_max:
            piece = self._scan.read(
                records_max=records_max - records, bytes_max=bytes_max - size_bytes
            )
            if piece is None:
                break
            parts.add(piece, self._index.still_at([row[:3] for row in piece.rows], self._sure))
            records += len(piece.rows)
            size_bytes += piece.size_bytes
        return parts.join() if records else None

    def insist_complete(self) -> None:
        """Make sure that all of the log was read.

        Raises:
            EntryLogRecordError: bytes behind the last record are not a record.
        """
        self._scan.insist_complete()

    def close(self) -> None:
        """Release the file."""
        self._scan.close()


class _Parts:
    """What is copied of some pieces, before it is joined."""

    def __init__(self) -> None:
        self._spans: list[memoryview] = []
        self._size_bytes = 0
        self._counted: dict[int, int] = {}
        self._places: list[tuple[int, int, int, int]] = []

    def add(self, piece: LogPiece, alive: Sequence[bool]) -> None:
        """Add the live records of a piece; neighbours are one span of it."""
        view, counted, places = memoryview(piece.data), self._counted, self._places
        begun = ended = 0
        shift = self._size_bytes + LENGTH.size
        for (ledger_id, entry_id, place, begin, end), is_alive in zip(
            piece.rows, alive, strict=True
        ):
            if not is_alive:
                continue
            if begin != ended:
                self._spans.append(view[begun:ended])
                shift += ended - begun
                begun = begin
            places.append((ledger_id, entry_id, place, shift + begin - begun))
            counted[ledger_id] = counted.get(ledger_id, 0) + end - begin
            ended = end
        self._spans.append(view[begun:ended])
        self._size_bytes = shift + ended - begun - LENGTH.size

    def join(self) -> RecordBatch:
        """Return all of it."""
        return RecordBatch(b"".join(self._spans), self._counted, self._places)
