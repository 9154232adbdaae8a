"""Moves of entries to another entry log: copied, made durable, and only then pointed at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress, groupby, islice

import attrs

from bookied.errors import (
    CorruptError,
    EntryLogRecordError,
    IndexCutError,
    IndexEntryError,
    StorageError,
)
from bookied.storage.entrylog.reader import EntryLogReader
from bookied.storage.entrylog.scan import LogPiece, LogScan
from bookied.storage.entrylog.writer import EntryLogWriter, LedgerBytes
from bookied.storage.index import file_names
from bookied.storage.index.ledger_pages import LedgerPages, Move, switch
from bookied.storage.index.store import IndexStore
from bookied.storage.ledger_storage.index_lock import IndexLock
from bookied.storage.ledger_storage.storage_limits import RunBlocking


@attrs.define(eq=False)
class Relocation:
    """Moves of live entries for compaction: ``append``, ``sync``, then ``switch``.

    The old locations stay readable until ``switch`` has returned. After a failed switch its moves
    may or may not be on disk. They are repeated before any others, and their old log is kept until
    then.
    """

    _index: IndexStore
    _pages: LedgerPages
    _turn: IndexLock
    _log: EntryLogWriter
    _logs: EntryLogReader
    # Moves that may or may not be on disk.
    _unsure: list[Move] = attrs.field(factory=list, init=False)
    # ``EntryLogWriter.moves`` when copying began.
    _copying_since: int | None = attrs.field(default=None, init=False)

    def still_at(
        self,
        places: Sequence[tuple[int, int, int]],
        sure: set[int] | None = None,
        *,
        are_records: bool = True,
    ) -> list[bool]:
        """Return, for each (ledger id, entry id, location), whether the index on disk agrees.

        Blocks; any thread.

        Args:
            places: of records in one finished log.
            sure: ledgers whose index was checked for doubts a moment ago; those of ``places`` are
                added.
            are_records: whether the log has these records. Other bytes that look like records are
                chosen by clients, in any number.

        Raises:
            CorruptError: an index is damaged: it has an entry where no log has it, or an index file
                lacks one that precedes an entry of these places.
            OSError: an index cannot be read.
        """
        sure = set() if sure is None else sure
        ledger_ids = {place[0] for place in places}
        for ledger_id in ledger_ids - sure:
            self._require_no_doubt(ledger_id)
            sure.add(ledger_id)
        stored = {ledger_id for ledger_id in ledger_ids if ledger_id in self._index}
        if not stored:
            return [False] * len(places)
        are_stored = [place[0] in stored for place in places]
        found = iter(self._index.locations([place[:2] for place in compress(places, are_stored)]))
        still, lacking = [], []
        for is_stored, (ledger_id, entry_id, location) in zip(are_stored, places, strict=True):
            now = next(found) if is_stored else 0
            still.append(now == location)
            if is_stored and not now:
                lacking.append((ledger_id, entry_id))
            elif are_records and now not in {0, location}:
                # If a bit of the index is flipped, this is the only record of the entry.
                self._logs.check(now, ledger_id, entry_id)
        if are_records and lacking and not self._index.writes_locations:
            _require_none_zeroed(lacking, compress(places, still))
        return still

    def require_complete(self, scan: LogScan) -> None:
        """Check, after the last entry of a log, that no entry follows it.

        Blocks; any thread.

        Raises:
            EntryLogRecordError: other bytes follow, or the index has an entry there.
            CorruptError: an index is damaged. So for ``OSError``.
        """
        scan.require_complete()
        self._require_none_alive(scan, scan.heads_behind())

    def require_sizes(self, scan: LogScan, piece: LogPiece) -> None:
        """Check that no record of a piece hides others because its length is damaged.

        Blocks; any thread.

        Raises:
            EntryLogRecordError: the index has an entry inside a record.
            CorruptError: an index is damaged. So for ``OSError``.
        """
        self._require_none_alive(scan, piece.heads_within())

    def _require_none_alive(self, scan: LogScan, heads: Iterable[tuple[int, int, int]]) -> None:
        known = (place for place in heads if place[0] in self._index)
        while places := list(islice(known, 1000)):
            if any(self.still_at(places, are_records=False)):
                message = "a damaged length hides entries of the index"
                raise EntryLogRecordError(scan.path, scan.end, message)

    def _require_no_doubt(self, ledger_id: int) -> None:
        """Raise if a ledger's index is in doubt: a record that it lacks may be the last copy."""
        stored = self._index.load(ledger_id)
        if stored is not None and stored.doubt is not None:
            raise stored.doubt

    def locations(self, entries: Sequence[tuple[int, int]]) -> list[int]:
        """Return the location of each (ledger id, entry id) in the index on disk, 0 if none.

        Blocks; any thread.
        """
        return self._index.locations(entries)

    def append(self, blob: bytes, counted: LedgerBytes) -> int:
        """Append copies of records that nothing points at yet; return the first one's location.

        The location is of a length field, as from ``reserve``. Copies are written neither to the
        journal nor to the cache, because the originals stay until ``switch`` has ended.

        Raises:
            NoWritableDirError: no directory accepts another entry log.
        """
        if self._copying_since is None:
            self._copying_since = self._log.moves
        base = self._log.reserve(len(blob))
        self._log.append(blob, counted)
        return base

    async def sync(
        self, samples: Sequence[tuple[int, int, int]], run_blocking: RunBlocking
    ) -> None:
        """Make the appended copies durable, and check that they are in the log.

        A log on a full disk may be given up meanwhile; its unwritten records are then written
        elsewhere.

        Args:
            samples: location of the body, ledger id and entry id of the last record of each blob.
            run_blocking: runs blocking functions.

        Raises:
            StorageError: the copies are not at their locations; copy again. So for ``OSError``.
        """
        since, self._copying_since = self._copying_since, None
        self._log.hand_over()
        await run_blocking(partial(self._log.sync, since))
        await run_blocking(partial(self._require_copied, samples))

    def _require_copied(self, samples: Sequence[tuple[int, int, int]]) -> None:
        for sample in samples:
            try:
                self._logs.check(*sample)
            except CorruptError as error:
                raise StorageError(f"copies are not where they were written: {error}") from error

    async def switch(self, moves: Sequence[Move], run_blocking: RunBlocking) -> None:
        """Change, durably, the location of entries that still have the old location.

        The new locations are durable already, and the old ones stay readable until this has
        returned. The moves are of entries in finished logs: the disk has all their locations that
        memory has. Moves that failed before are repeated first, even without new moves. Until they
        succeed, their locations on disk cannot be relied upon.

        Raises:
            CorruptError: an index is damaged; the entries of all other ledgers are switched.
            OSError: the old locations are still needed. So for ``StorageError``.
        """
        self._unsure += moves
        if not self._unsure:
            return
        async with self._turn:
            moves = self._unsure
            try:
                await run_blocking(partial(self._switch_on_disk, moves))
                self._unsure = []
            except CorruptError:
                self._unsure = []  # Compaction skips the logs of ledgers in doubt.
                raise
            finally:
                switch(self._pages, moves)

    def _switch_on_disk(self, moves: Sequence[Move]) -> None:
        """Switch all moves at once, or ledger by ledger if an index is damaged."""
        try:
            self._index.switch(moves)
        except CorruptError:
            damaged: list[CorruptError] = []
            for _, some in groupby(sorted(moves), key=lambda move: move.ledger_id):
                try:
                    self._index.switch(list(some))
                except CorruptError as error:
                    damaged.append(error)
            if damaged:
                raise damaged[0] from None

    def note_damage(self, error: Exception) -> None:
        """Make the next checkpoint mark an index file that has lost pages.

        Otherwise the next start would treat the file as complete, and its lost entries as deleted.
        """
        if not isinstance(error, IndexCutError):
            return
        ledger_id = file_names.ledger_id(error.path.name)
        # After an error the file shows the damage itself.
        with contextlib.suppress(CorruptError, OSError):
            state = None if ledger_id is None else self._pages.find(ledger_id)
            if state is not None:
                self._pages.is_cut(state, error)

    @property
    def is_unsure(self) -> bool:
        """True if a switch has failed and was not repeated yet."""
        return bool(self._unsure)


def _require_none_zeroed(
    lacking: Iterable[tuple[int, int]], alive: Iterable[tuple[int, int, int]]
) -> None:
    """Check that no entry without location precedes one with a location near it in the log.

    Without a later one it may be an entry that a crash left, which was never acknowledged.

    Raises:
        IndexEntryError: the slot in the index file was overwritten with zeros.
    """
    last: dict[int, int] = {}
    for ledger_id, entry_id, _ in alive:
        last[ledger_id] = max(entry_id, last.get(ledger_id, -1))
    for ledger_id, entry_id in lacking:
        if 0 <= entry_id < last.get(ledger_id, -1):
            message = f"no location of entry {entry_id}, which is in a log"
            raise IndexEntryError(file_names.relative_path(ledger_id), None, message)
