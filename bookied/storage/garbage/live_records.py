"""The live records of a finished entry log, in batches for compaction.

A record is live if the index on disk has its entry at this location. Also records of a log that was
written from these batches. Everything blocks; call it in a thread.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs
from crc32c import crc32c

from bookied.errors import EntryLogRecordError
from bookied.storage.entrylog.format import HEADER_BYTES, LENGTH
from bookied.storage.entrylog.scan import LogPiece, open_scan
from bookied.storage.files.files import Files
from bookied.storage.files.read_errors import lost_is_damaged
from bookied.storage.index.ledger_pages import Move
from bookied.storage.ledger_storage.relocation import Relocation

MOVES_MAX: Final = 500_000
"""The most moves of a log kept in memory: 16 MB."""

_CHUNK_BYTES: Final = 4 * 1024 * 1024
_WORDS: Final = len(Move._fields)


@attrs.frozen
class RecordBatch:
    """Live records, joined in the format of a log."""

    blob: bytes = attrs.field(repr=False)
    counted: dict[int, int]
    """Bytes by ledger, length fields included."""
    places: list[tuple[int, int, int, int]] = attrs.field(repr=False)
    """Ledger, entry, location in the old log, and offset of the body in ``blob``."""

    def moves(self, base: int) -> list[Move]:
        """Return the moves of the entries if ``blob`` is written at location ``base``."""
        return [Move(ledger, entry, old, base + at) for ledger, entry, old, at in self.places]


class LiveRecords:
    """The live records of one log: ``read`` all, then ``require_complete``, then ``close``."""

    def __init__(self, files: Files, path: Path, index: Relocation) -> None:
        """Open the log.

        Raises:
            EntryLogFormatError: the file is not an entry log.
            OSError: the file cannot be read.
        """
        self._path, self._index = path, index
        with lost_is_damaged(path, EntryLogRecordError):
            self._scan = open_scan(files, path)
        self._sure: set[int] = set()

    def read(self, *, records_max: int, bytes_max: int) -> RecordBatch | None:
        """Return the live records among the next records, perhaps none; None at the end.

        Args:
            records_max: the most records to read.
            bytes_max: no record is read after this many bytes.

        Raises:
            CorruptError: the log or an index is damaged.
            OSError: the log or an index cannot be read now.
        """
        with lost_is_damaged(self._path, EntryLogRecordError):
            return self._read(records_max, bytes_max)

    def _read(self, records_max: int, bytes_max: int) -> RecordBatch | None:
        parts = _Parts()
        records = size_bytes = 0
        while records < records_max and size_bytes < bytes_max:
            piece = self._scan.read(
                records_max=records_max - records, bytes_max=bytes_max - size_bytes
            )
            if piece is None:
                break
            self._index.require_sizes(self._scan, piece)
            parts.add(piece, self._index.still_at([row[:3] for row in piece.rows], self._sure))
            records += len(piece.rows)
            size_bytes += piece.size_bytes
        return parts.join() if records else None

    def require_complete(self) -> None:
        """Check that the complete log was read.

        Raises:
            EntryLogRecordError: bytes after the last record are not a record.
            CorruptError: an index is damaged. So for ``OSError``.
        """
        with lost_is_damaged(self._path, EntryLogRecordError):
            self._index.require_complete(self._scan)

    def close(self) -> None:
        """Close the file."""
        self._scan.close()


class _Parts:
    """The records to copy from some pieces, before they are joined."""

    def __init__(self) -> None:
        self._spans: list[memoryview] = []
        self._size_bytes = 0
        self._counted: dict[int, int] = {}
        self._places: list[tuple[int, int, int, int]] = []

    def add(self, piece: LogPiece, alive: Sequence[bool]) -> None:
        """Add the live records of a piece; neighbours become one span."""
        view, counted, places = memoryview(piece.data), self._counted, self._places
        span_begin = ended = 0
        shift = self._size_bytes + LENGTH.size
        for (ledger_id, entry_id, place, begin, end), is_alive in zip(
            piece.rows, alive, strict=True
        ):
            if not is_alive:
                continue
            if begin != ended:
                self._spans.append(view[span_begin:ended])
                shift += ended - span_begin
                span_begin = begin
            places.append((ledger_id, entry_id, place, shift + begin - span_begin))
            counted[ledger_id] = counted.get(ledger_id, 0) + end - begin
            ended = end
        self._spans.append(view[span_begin:ended])
        self._size_bytes = shift + ended - span_begin - LENGTH.size

    def join(self) -> RecordBatch:
        """Return all records as one batch."""
        return RecordBatch(b"".join(self._spans), self._counted, self._places)


class Moves:
    """The moves of copied entries, 32 bytes each."""

    def __init__(self) -> None:
        self._words = array("q")

    def __len__(self) -> int:
        return len(self._words) // _WORDS

    def extend(self, moves: list[Move]) -> None:
        """Add moves."""
        for move in moves:
            self._words.extend(move)

    def pieces(self, count: int) -> Iterator[list[Move]]:
        """Yield the moves, ``count`` at a time."""
        size = count * _WORDS
        for at in range(0, len(self._words), size):
            words = self._words[at : at + size]
            yield list(map(Move._make, zip(*[iter(words)] * _WORDS, strict=True)))


@attrs.define
class WrittenRecords:
    """The records of a log that was just written, so that the log need not be scanned."""

    moves: Moves | None = attrs.field(factory=Moves, init=False)
    """None if there are more than ``moves_max``: then scan the log."""
    moves_max: int = MOVES_MAX
    _size_bytes: int = attrs.field(default=0, init=False)
    _checksum: int = attrs.field(default=0, init=False)

    def add(self, batch: RecordBatch, base: int) -> None:
        """Note a batch that is written at location ``base``, after all batches before."""
        self._size_bytes += len(batch.blob)
        self._checksum = crc32c(batch.blob, self._checksum)
        if self.moves is not None and len(self.moves) + len(batch.places) <= self.moves_max:
            self.moves.extend(batch.moves(base))
        else:
            self.moves = None

    def require_stored(self, files: Files, path: Path) -> None:
        """Check that the log at ``path`` has all noted records. Blocks.

        Raises:
            EntryLogRecordError: the log has other records.
        """
        at, end = HEADER_BYTES, HEADER_BYTES + self._size_bytes
        found, file = 0, files.open_read(path)
        with contextlib.closing(file):
            while at < end:
                data = file.read_at(at, min(_CHUNK_BYTES, end - at))
                if not data:
                    break
                found = crc32c(data, found)
                at += len(data)
        if (at, found) != (end, self._checksum):
            message = "the records are not those that compaction has written"
            raise EntryLogRecordError(path, HEADER_BYTES, message)
