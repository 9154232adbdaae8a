"""Transactional compaction: rewrites a log into a file of its own, in steps that survive a crash.

For source S and target T, both as lower-case hexadecimal, in T's directory:

1. ``T.log.compacting`` gets the live records,
2. then the ledgers map, and is synced;
3. it is linked to ``T.log.S.compacted``, and ``T.log.compacting`` is removed;
4. that file is linked to ``T.log``, which can be read from now on;
5. locations are switched from S to T, durably;
6. ``T.log.S.compacted`` is removed,
7. ``S.log`` is removed.

Each collection first handles what a crash of ours or of a Java bookie left: a ``compacting`` file
is removed; a ``compacted`` file continues at step 4. Agrees with BookKeeper 4.18.0,
TransactionalEntryLogCompactor, except for its recovery, which spells T in decimal and never
succeeds (storage.md D5): its wrong link is removed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import attrs
from twisted.logger import Logger

from bookied.errors import CorruptError, EntryLogFormatError, EntryLogRecordError
from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.scan import LogRow, LogScan, open_scan
from bookied.storage.files.files import AppendFile, Files
from bookied.storage.garbage.compaction_in_place import (
    SLICE_BYTES_MAX,
    SLICE_RECORDS_MAX,
    CopyTotals,
    count,
    read_slice,
)
from bookied.storage.garbage.compaction_rate import Pace
from bookied.storage.garbage.live_records import LiveRecords, RecordBatch, WrittenRecords
from bookied.storage.index.ledger_pages import Move
from bookied.storage.ledger_storage.storage import LedgerStorage

log = Logger()

COMPACTING: Final = ".compacting"
COMPACTED: Final = ".compacted"
_COMPACTED_NAME: Final = re.compile(r"([0-9a-f]{1,8})\.log\.([0-9a-f]{1,8})\.compacted")


@attrs.frozen
class UnfinishedCompaction:
    """The source, target and directory of an unfinished compaction."""

    source: int
    target: int
    directory: Path

    @property
    def compacting(self) -> Path:
        return self.directory / f"{layout.file_name(self.target)}{COMPACTING}"

    @property
    def compacted(self) -> Path:
        name = f"{layout.file_name(self.target)}.{self.source:x}{COMPACTED}"
        return self.directory / name

    @property
    def final(self) -> Path:
        return self.directory / layout.file_name(self.target)

    @property
    def decimal(self) -> Path:
        """The name that Java's recovery links by mistake."""
        return self.directory / f"{self.target}.log"


@attrs.define(eq=False)
class TransactionalCompaction:
    """Compaction of ``storage``'s logs into files of their own; also removes unfinished files.

    ``outstanding_max`` locations are switched at once.
    """

    _files: Files
    _storage: LedgerStorage
    _pace: Pace
    _outstanding_max: int
    _direct: bool

    # Compaction -----------------------------------------------------------------------------------

    async def rewrite(self, path: Path) -> CopyTotals:
        """See ``Rewriter``."""
        log_id = layout.log_id(path.name)
        assert log_id is not None, path
        target, directory = self._storage.logs.new()
        todo = UnfinishedCompaction(log_id, target, directory)
        await self._pace.blocking(partial(self._storage.logs.note_id, target))
        writer = _TargetWriter(self._files, todo, direct=self._direct)
        try:
            await self._copy(path, writer)
        except Exception:
            await self._pace.run_blocking(writer.abandon)
            raise
        if writer.copied.entries:
            await self._pace.blocking(partial(_publish, self._files, todo))
            await self._finish(todo, path, written=writer.written)
        else:
            await self._pace.blocking(partial(self._storage.logs.remove, path))
        return writer.copied

    async def _copy(self, path: Path, writer: _TargetWriter) -> None:
        """Run steps 1 and 2."""
        pace = self._pace
        with contextlib.closing(
            await pace.blocking(partial(LiveRecords, self._files, path, self._storage.relocation))
        ) as records:
            batch: RecordBatch | None = RecordBatch(b"", {}, [])
            while batch is not None:
                if batch.places:
                    await pace.copying(len(batch.places), len(batch.blob))
                batch = await read_slice(pace, records, partial(writer.append, batch))
            await pace.blocking(records.require_complete)
        if writer.copied.entries:
            await pace.blocking(writer.finish)

    async def _finish(
        self, todo: UnfinishedCompaction, source: Path | None, *, written: WrittenRecords | None
    ) -> None:
        """Run steps 4 to 7; ``written`` is the target if this process has just written it."""
        pace = self._pace
        await pace.blocking(partial(_make_available, self._files, todo))
        if written is not None:
            await pace.blocking(partial(written.require_stored, self._files, todo.final))
        if written is not None and written.moves is not None:
            for moves in written.moves.pieces(self._outstanding_max):
                await self._switch(moves)
        else:
            await self._switch_scanned(todo, is_ours=written is not None or source is None)
        if source is not None and written is None:
            await self._require_unused(source)
        await pace.blocking(partial(_remove, self._files, todo.compacted))
        if source is not None:
            await pace.blocking(partial(self._storage.logs.remove, source))

    async def _switch(self, moves: list[Move]) -> None:
        self._pace.check()
        if moves:
            await self._storage.relocation.switch(moves, self._pace.run_blocking)

    async def _switch_scanned(self, todo: UnfinishedCompaction, *, is_ours: bool) -> None:
        """Run step 5, with the locations from a scan of the target."""
        pace = self._pace
        scan, moves = open_scan(self._files, todo.final), list[Move]()
        with contextlib.closing(scan):
            find = partial(self._moves, todo, scan, is_ours=is_ours)
            while (some := await pace.blocking(find)) is not None:
                moves += some
                if len(moves) >= self._outstanding_max:
                    await self._switch(moves)
                    moves = []
            await pace.blocking(scan.require_complete)
        await self._switch(moves)

    def _moves(
        self, todo: UnfinishedCompaction, scan: LogScan, *, is_ours: bool
    ) -> list[Move] | None:
        """Return the next moves of entries that the index has in the source; None at the end.

        Blocks.

        A Java bookie also copies records that its index does not point at: an entry that was added
        twice is in the target twice. The copy of the record that the index points at counts.
        """
        piece = scan.read(records_max=SLICE_RECORDS_MAX, bytes_max=SLICE_BYTES_MAX)
        if piece is None:
            return None
        moves = []
        found = self._storage.relocation.locations([row[:2] for row in piece.rows])
        for row, old in zip(piece.rows, found, strict=True):
            is_there = old and old >> 32 == todo.source  # An entry without location has 0.
            if is_there and (is_ours or self._is_copy(old, row, piece.data)):
                moves.append(Move(row[0], row[1], old, row[2]))
        return moves

    def _is_copy(self, old: int, row: LogRow, data: bytes) -> bool:
        ledger_id, entry_id, _, begin, end = row
        packet = self._storage.reads.read_disk(old, ledger_id, entry_id)
        return packet == data[begin + layout.LENGTH.size : end]

    # What was left --------------------------------------------------------------------------------

    async def tidy(self, directories: Iterable[Path]) -> frozenset[int]:
        """Finish or undo earlier compactions that were interrupted.

        Returns:
            The sources and targets of compactions that cannot be finished now: do not touch them.

        Raises:
            OSError: a directory cannot be read or written.
        """
        left: set[int] = set()
        for directory in directories:
            found = await self._pace.blocking(partial(_left_over, self._files, directory))
            for todo in found:
                log.info("finishing the compaction of {path}", path=todo.compacted)
                try:
                    source = await self._pace.blocking(partial(self._source_of, todo))
                    await self._finish(todo, source, written=None)
                except (CorruptError, OSError) as error:
                    self._storage.relocation.note_damage(error)
                    log.warn("a compaction cannot be finished: {error}", error=error)
                    left |= {todo.source, todo.target}
        return frozenset(left)

    def _source_of(self, todo: UnfinishedCompaction) -> Path | None:
        name = layout.file_name(todo.source)
        paths = [directory / name for directory in self._storage.directories.all]
        return next((path for path in paths if self._files.exists(path)), None)

    async def _require_unused(self, source: Path) -> None:
        """Check that the index points at no record of a log.

        Raises:
            EntryLogRecordError: it points at one; the log has to stay.
        """
        with contextlib.closing(
            await self._pace.blocking(
                partial(LiveRecords, self._files, source, self._storage.relocation)
            )
        ) as records:
            while (batch := await read_slice(self._pace, records)) is not None:
                if batch.places:
                    ledger_id, entry_id, place, _ = batch.places[0]
                    message = f"entry {entry_id} of ledger {ledger_id} is not in the compacted log"
                    raise EntryLogRecordError(source, place & 0xFFFFFFFF, message)
            await self._pace.blocking(records.require_complete)


class _TargetWriter:
    """The writer of ``T.log.compacting``. Blocks; one thread at a time."""

    def __init__(self, files: Files, todo: UnfinishedCompaction, *, direct: bool) -> None:
        self._files, self._path, self._direct = files, todo.compacting, direct
        self._base = todo.target << 32
        self._file: AppendFile | None = None
        self._ledgers: dict[int, int] = {}
        self.copied, self.written = CopyTotals(), WrittenRecords()

    def append(self, batch: RecordBatch) -> None:
        """Append a batch; the first batch with records creates the file."""
        if not batch.places:
            return
        if self._file is None:
            self._file = self._files.open_append(self._path, direct=self._direct)
            self._file.write([layout.LogHeader().encode()])
        self.written.add(batch, self._base + self._file.tell())
        self._file.write([batch.blob])
        for ledger_id, size in batch.counted.items():
            self._ledgers[ledger_id] = self._ledgers.get(ledger_id, 0) + size
        count(self.copied, batch)

    def finish(self) -> None:
        """Append the ledgers map and make the file durable, except for its name."""
        file, map_offset = self._opened(), self._opened().tell()
        file.write([layout.encode_ledgers_map(self._ledgers)])
        file.flush()
        file.sync()
        self._file = None
        file.close()
        with contextlib.closing(self._files.open_update(self._path)) as header:
            place = layout.MAP_PLACE.pack(map_offset, len(self._ledgers))
            header.write_at(layout.MAP_PLACE_OFFSET, place)
            header.sync()

    def _opened(self) -> AppendFile:
        assert self._file is not None
        return self._file

    def abandon(self) -> None:
        """Remove the file; if that fails, ``tidy`` removes it later."""
        file, self._file = self._file, None
        with contextlib.suppress(OSError):
            if file is not None:
                file.close()
        with contextlib.suppress(OSError):
            if self._files.exists(self._path):
                self._files.remove(self._path)


def _publish(files: Files, todo: UnfinishedCompaction) -> None:
    """Run steps 3 and 4, each durable before the next."""
    files.link(todo.compacting, todo.compacted)
    files.remove(todo.compacting)
    files.sync_dir(todo.directory)
    _make_available(files, todo)


def _make_available(files: Files, todo: UnfinishedCompaction) -> None:
    """Run step 4, perhaps after an earlier attempt of ours or Java's.

    Raises:
        EntryLogFormatError: another log has the target's name.
    """
    is_wrong = todo.decimal != todo.final and files.exists(todo.decimal)
    if is_wrong and files.same_file(todo.decimal, todo.compacted):
        log.warn("removing a link of a Java bookie's: {path}", path=todo.decimal)
        files.remove(todo.decimal)
    if not files.exists(todo.final):
        files.link(todo.compacted, todo.final)
    elif not files.same_file(todo.final, todo.compacted):
        raise EntryLogFormatError(todo.final, None, f"is not the log that {todo.compacted} is")
    files.sync_dir(todo.directory)


def _remove(files: Files, path: Path) -> None:
    if files.exists(path):
        files.remove(path)
    files.sync_dir(path.parent)


def _left_over(files: Files, directory: Path) -> list[UnfinishedCompaction]:
    """Return the compactions to finish in a directory; remove incomplete targets. Blocks."""
    names = sorted(files.list(directory))
    unfinished = [name for name in names if name.endswith(f".log{COMPACTING}")]
    for name in unfinished:
        log.info("removing an unfinished compaction: {path}", path=directory / name)
        files.remove(directory / name)
    if unfinished:
        files.sync_dir(directory)
    return list(_compactions(directory, names))


def _compactions(directory: Path, names: Iterable[str]) -> Iterator[UnfinishedCompaction]:
    for name in names:
        if not name.endswith(COMPACTED):
            continue
        match = _COMPACTED_NAME.fullmatch(name)
        if match is None:
            log.warn("{path} was not written by compaction; it is kept", path=directory / name)
        else:
            yield UnfinishedCompaction(int(match[2], 16), int(match[1], 16), directory)
