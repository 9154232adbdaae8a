"""Replay: writes the journal records after the marks to storage. Runs at every start.

Replay can be repeated: a crash in the middle leaves the marks unchanged, and the second replay of a
record replaces the first.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
from twisted.logger import Logger

from bookied.errors import (
    NO_SPACE,
    CorruptError,
    IndexFullError,
    IndexTruncatedError,
    JournalRecordError,
)
from bookied.storage.files.files import Files
from bookied.storage.files.read_errors import read_before_loss
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.journal import format as layout
from bookied.storage.journal.crash_or_damage import (
    blank_ends,
    check_end,
    journals_to_replay,
    require_own_journals,
    trusted_mark,
)
from bookied.storage.journal.mark import START, LastMark
from bookied.storage.journal.reader import (
    EntryHead,
    EntryRun,
    JournalRecord,
    JournalScan,
    open_scan,
)
from bookied.storage.replay_batch import BATCH_BYTES, ConcurrentWrites, ReplayBatch, ReplayTarget
from bookied.storage.storages import Storages

log = Logger()
T = TypeVar("T")

UNSYNCED_BYTES_MAX: Final = 32 * 1024 * 1024
"""More bytes than a journal writes before it has synced the bytes in front of them."""

DRAIN_BYTES: Final = 16 * 1024 * 1024
BATCH_PAGES: Final = 512
"""A batch ends after this many changes of index page, so it adds at most this many pages."""


@attrs.define
class ReplayReport:
    """The result of a replay."""

    marks: list[LastMark] = attrs.field(factory=list)
    """The end of each directory's journals: everything before it is in files now."""

    journals: int = 0
    entries: int = 0
    size_bytes: int = 0
    dropped: int = 0
    """Records of ledgers that storage does not know, because the ledgers were deleted."""

    unreadable: set[int] = attrs.field(factory=set)
    """Ledgers with a damaged index: their entries were written to the entry log only."""

    torn: list[Path] = attrs.field(factory=list)
    """Journals that end in the middle of a record or group, as a crash leaves them."""

    residues: list[Path] = attrs.field(factory=list)
    """Journals with non-zero bytes after the end of their data."""

    has_skipped: bool = False
    """Whether the rest of a damaged journal was skipped."""


def recover(
    files: Files,
    storages: Storages,
    journal_directories: Sequence[Path],
    *,
    skip_invalid: bool = False,
    skipped: Callable[[], object] = lambda: None,
    may_be_missing: bool = False,
    drain_bytes: int = DRAIN_BYTES,
    writes_beside: bool = False,
    progress: Callable[[int], None] = lambda _bytes: None,
) -> ReplayReport:
    """Replay all journals, write everything to files and move the marks. Blocks.

    Agrees with BookKeeper 4.18.0, BookieImpl.readJournal, except for the list in storage.md section
    17.

    Args:
        files: the disk.
        storages: open, not started.
        journal_directories: the ``current`` directory of each, in configured order.
        skip_invalid: ``skipReplayJournalInvalidRecord``: skip the rest of a damaged journal.
        skipped: called before the marks move if a part was skipped: it may have had fences.
        may_be_missing: continue when journals are missing: ``bookied.data_integrity`` then fetches
            their entries from other bookies.
        drain_bytes: bytes of entries in memory that start a write to the entry logs.
        writes_beside: write in a second thread, while as many bytes again are read.
        progress: called now and then with the number of entry bytes replayed so far.

    Raises:
        JournalMissingError: the journal that a mark names is missing.
        CorruptError: a journal is damaged.
        OSError: a file could not be read or written.
        StorageError: a storage could not be written.
    """
    replay = _Replay(
        files,
        storages,
        skip_invalid=skip_invalid,
        may_be_missing=may_be_missing,
        drain_bytes=drain_bytes,
        writes=ConcurrentWrites(storages) if writes_beside else None,
        progress=progress,
    )
    marks = storages.marks.read(len(journal_directories))
    try:
        for number, (directory, mark) in enumerate(zip(journal_directories, marks, strict=True)):
            require_own_journals(files, directory, mark, number, len(journal_directories))
            replay.found.marks.append(replay.directory(directory, mark))
    finally:
        replay.end_writes()
    if replay.found.has_skipped:
        skipped()
    is_in_files = replay.put_into_files(lambda: run_now(storages.flush(do_now)))
    is_cut_allowed = may_be_missing or skip_invalid
    if not is_in_files or not _write_marks(storages, replay.found.marks, lower=is_cut_allowed):
        replay.cut_torn_ends()
    return replay.found


def _write_marks(storages: Storages, marks: list[LastMark], *, lower: bool) -> bool:
    """Move the marks; return whether there was space, because a bookie starts on full disks too.

    Journals stay: Java keeps them too, and the operator may want to inspect them.
    """
    try:
        if lower:  # A mark beyond the end of its journal would stop the next start.
            storages.marks.lower(marks)
        storages.marks.write(marks)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        log.warn("the next start replays the same journals: {error}", error=error)
        return False
    return True


class _Replay:
    """One pass over the journals."""

    def __init__(
        self,
        files: Files,
        storages: Storages,
        *,
        skip_invalid: bool,
        may_be_missing: bool,
        drain_bytes: int,
        writes: ConcurrentWrites | None,
        progress: Callable[[int], None],
    ) -> None:
        self._writes = writes
        self._files, self._storages, self._progress = files, storages, progress
        self._skip_invalid, self._may_be_missing = skip_invalid, may_be_missing
        self._drain_bytes = drain_bytes
        self._batches = {storage: ReplayBatch(storage) for storage in storages}
        self._targets: dict[int, ReplayTarget] = {}
        self._batched_bytes = 0
        self.found = ReplayReport()
        self._places: list[tuple[Path, int]] = []
        """The journals to read in the current directory: path, and the offset to start from."""
        self._torn_ends: list[tuple[Path, int]] = []
        """The torn last journals of directories: path, and the end of the data."""

    def directory(self, directory: Path, mark: LastMark) -> LastMark:
        """Replay the journals of one directory; return where they end."""
        # A process may have died before it synced the name of a journal that the mark will name.
        self._files.sync_dir(directory)
        stored = mark
        try:
            mark = trusted_mark(self._files, directory, mark)
        except JournalRecordError as error:
            if not self._may_be_missing:
                self._skip(error)
            mark = START
        ids = journals_to_replay(self._files, directory, mark, may_be_missing=self._may_be_missing)
        if self._may_be_missing and mark.journal_id not in ids:
            # A mark that names a missing journal would stop the next start.
            mark = START
        has_mark = mark > START
        ids = ids[: len(ids) - self._remove_blank(directory, mark)]
        self._places = [
            (directory / layout.file_name(number), mark.offset if number == mark.journal_id else 0)
            for number in ids
        ]
        mark_id = mark.journal_id
        for number, place in zip(ids, self._places, strict=True):
            # Without a mark there may be journals that ended in an old crash.
            is_last = number == ids[-1] or not has_mark
            with closing(open_scan(self._files, *place)) as scan:
                self._journal(scan, is_last=is_last, has_mark=number == mark_id)
            # Skip the rest of a torn group: Java, without checksums, could read it or fail on it.
            mark = max(mark, LastMark(number, scan.size if scan.is_torn else scan.end))
            if number == ids[-1]:
                self._make_durable(*self._places[-1], mark.offset)
                if scan.is_torn and stored <= (number, scan.end):
                    self._torn_ends.append((scan.path, scan.end))
        return mark

    def _remove_blank(self, directory: Path, mark: LastMark) -> int:
        """Remove the newest journals that are empty; return their number.

        Once newer journals follow, an empty journal looks like one that has lost its bytes.
        """
        blank = blank_ends(self._files, directory, mark)
        for path in blank:
            log.warn("removing {path}: a crash left it empty", path=path)
            self._files.remove(path)
        if blank:
            self._files.sync_dir(directory)
        return len(blank)

    def cut_torn_ends(self) -> None:
        """Truncate torn journals to the end of their data, because the next start reads them again.

        By then newer journals follow, and a torn journal that is not the last counts as damaged.
        """
        for path, end in self._torn_ends:
            with closing(self._files.open_update(path)) as file:
                file.truncate(end)
                file.sync()

    def _make_durable(self, path: Path, marked: int, end: int) -> None:
        """Write the bytes from ``marked`` to the end of the last journal again, and sync them.

        A dead process may not have synced them. They can be read until a power cut loses them: the
        new mark would cover lost bytes, and old journals would be replayed over newer data. Bytes
        of a torn end that the disk cannot read are left unchanged.
        """
        with closing(self._files.open_update(path)) as file:
            begin = min(end, max(marked, end - UNSYNCED_BYTES_MAX))
            file.write_at(begin, read_before_loss(file, begin, end - begin, 0))
            file.sync()

    def _journal(self, scan: JournalScan, *, is_last: bool, has_mark: bool) -> None:
        self.found.journals += 1
        try:
            self._replay_all(scan)
            check_end(scan, is_last=is_last, has_mark=has_mark)
        except JournalRecordError as error:
            self._skip(error)
        else:
            _report_end(scan, self.found)
        finally:
            self._store_batches()
            self._progress(self.found.size_bytes)

    def _skip(self, error: JournalRecordError) -> None:
        """Skip the rest of a damaged journal if the settings allow it, else raise its error."""
        if not self._skip_invalid:
            raise error
        self.found.has_skipped = True
        log.warn("skipping the rest of a damaged journal: {error}", error=error)

    def _replay_all(self, scan: JournalScan) -> None:
        for part in scan.parts():
            if isinstance(part, EntryRun):
                self._entries(part)
            else:
                self._targets.pop(part.ledger_id, None)
                self._ledger(part.ledger_id, part)

    def _ledger(self, ledger_id: int, record: JournalRecord | None = None) -> CachedLedger | None:
        """Return a ledger's state after applying ``record``; None if unknown or unreadable."""
        if ledger_id in self.found.unreadable:
            return None
        try:
            state = self._storages.of(ledger_id).ledgers.lookup(ledger_id)
        except CorruptError as error:
            if record is not None and self._is_new(record, error):
                return self._ledger_key(None, record)
            log.warn("ledger {id} is unreadable: {error}", id=ledger_id, error=error)
            self.found.unreadable.add(ledger_id)
            return None
        if record is None:
            return state
        if record.entry_id == layout.LEDGER_KEY:
            return self._ledger_key(state, record)
        self._meta(state, record)
        return state

    def _is_new(self, record: JournalRecord, error: CorruptError) -> bool:
        """Return whether an index is empty because the bookie was killed while creating it.

        Java may have written entries to a log by then, in a flush; the journals have them all.
        """
        if record.entry_id != layout.LEDGER_KEY or not isinstance(error, IndexTruncatedError):
            return False
        storage = self._storages.of(record.ledger_id)
        return storage.ledgers.begin_anew(
            record.ledger_id, lambda: self._entries_of(record.ledger_id)
        )

    def _entries_of(self, ledger_id: int) -> set[int]:
        """Return the ids of a ledger's entries in the journals that are being replayed."""
        found: set[int] = set()
        for path, offset in self._places:
            with closing(open_scan(self._files, path, offset)) as scan:
                try:
                    found.update(one.entry_id for one in scan if one.ledger_id == ledger_id)
                except JournalRecordError:
                    break  # Replay reaches this record too, and handles the error.
        return found

    def _ledger_key(self, state: CachedLedger | None, record: JournalRecord) -> CachedLedger:
        key = layout.inner_bytes(record.body)
        storage = self._storages.of(record.ledger_id)
        if state is None:
            return storage.ledgers.create(record.ledger_id, key)
        if state.master_key != key and not storage.ledgers.adopt_key(state, key):
            log.warn(
                "ledger {id}: the key on disk differs from the journal's, and is kept",
                id=record.ledger_id,
            )
        return state

    def _meta(self, state: CachedLedger | None, record: JournalRecord) -> None:
        storage = self._storages.of(record.ledger_id)
        if state is None:
            self.found.dropped += 1
        elif record.entry_id == layout.FENCE:
            storage.ledgers.set_fenced(state)
        elif record.entry_id == layout.EXPLICIT_LAC:
            storage.ledgers.set_explicit_lac(state, layout.inner_bytes(record.body))
        else:
            log.warn("skipping a record of unknown kind {kind:#x}", kind=record.entry_id)

    def _entries(self, run: EntryRun) -> None:
        """Add a run to the batches, each entry to the batch of its ledger's storage."""
        if self._are_batches_full():
            self._end_batches()
        ledgers = {head[1] for head in run.heads}
        for ledger_id in ledgers - self._targets.keys():
            self._targets[ledger_id] = self._target(ledger_id)
        begin = 0
        for batch, heads in self._by_batch(run.heads, ledgers):
            end = begin + sum(head[0] for head in heads) + layout.LENGTH.size * len(heads)
            if batch is None:
                self.found.dropped += len(heads)
            else:
                batch.add(heads, run.records[begin:end], self._targets)
                self.found.entries += len(heads)
                self.found.size_bytes += end - begin
                self._batched_bytes += end - begin
            begin = end

    def _target(self, ledger_id: int) -> ReplayTarget:
        """Return the destination of a ledger's entries.

        The bytes of a ledger with a damaged index are kept, to rebuild the index.
        """
        storage = self._storages.of(ledger_id)
        state = self._ledger(ledger_id)
        is_kept = state is not None or ledger_id in self.found.unreadable
        return ReplayTarget(
            self._batches[storage] if is_kept else None, state, storage.reads.has_place
        )

    def _by_batch(
        self, heads: Sequence[EntryHead], ledgers: set[int]
    ) -> Iterable[tuple[ReplayBatch | None, Sequence[EntryHead]]]:
        """Cut a run where the storage changes. Most runs have one storage."""
        targets = self._targets
        batches = {targets[ledger_id].batch for ledger_id in ledgers}
        if len(batches) == 1:
            return [(batches.pop(), heads)]
        return [
            (batch, list(some))
            for batch, some in groupby(heads, lambda head: targets[head[1]].batch)
        ]

    def _are_batches_full(self) -> bool:
        if self._batched_bytes >= BATCH_BYTES:
            return True
        return sum(one.pages for one in self._batches.values()) >= BATCH_PAGES

    def _end_batches(self) -> None:
        self._store_batches()
        self._progress(self.found.size_bytes)
        undrained_bytes = sum(one.undrained_bytes for one in self._batches.values())
        # Small entries of many ledgers fill the memory with index pages before their bytes fill it.
        if undrained_bytes >= self._drain_bytes or self._storages.needs_checkpoint:
            self._drain()

    def _store_batches(self) -> None:
        self._batched_bytes = 0
        for batch in self._batches.values():
            batch.store()
            batch.pages = 0

    def _drain(self) -> None:
        self._targets.clear()  # A checkpoint drops the index pages that the targets refer to.
        for batch in self._batches.values():
            batch.undrained_bytes = 0
        storages, writes = self._storages, self._writes
        if self.end_writes() and writes is not None and not storages.needs_checkpoint:
            writes.begin()
        elif self.put_into_files(storages.write_out) and storages.needs_checkpoint:
            self.put_into_files(lambda: run_now(storages.flush(do_now)))

    def end_writes(self) -> bool:
        """Wait for the writing thread; return whether it wrote everything."""
        return self._writes is None or self._writes.wait()

    def put_into_files(self, write: Callable[[], None]) -> bool:
        """Write what is in memory to files; return whether there was space.

        On a full disk the entries stay in memory and in the journals, as in a running bookie whose
        disks fill up: the bookie becomes read-only. Neither marks nor journals move then.

        Raises:
            OSError: neither disks nor memory have space, or a write failed otherwise.
            StorageError: likewise.
        """
        try:
            write()
        except IndexFullError as error:
            return self._keep_in_memory(error)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return self._keep_in_memory(error)
        return True

    def _keep_in_memory(self, error: Exception) -> bool:
        if self._storages.unwritten_bytes > self._storages.limits.unwritten_bytes_max:
            raise error
        log.warn("replayed entries wait in memory for space: {error}", error=error)
        return False


def _report_end(scan: JournalScan, found: ReplayReport) -> None:
    """Log and record bytes after the last record of a journal that a crash ended."""
    if scan.is_torn:
        found.torn.append(scan.path)
        log.warn("{path} is torn at {end}", path=scan.path, end=scan.end)
    elif (residue := scan.residue()) is not None:
        found.residues.append(scan.path)
        log.warn(
            "{path} ends at {end}; the bytes from {residue} on cannot be replayed",
            path=scan.path,
            end=scan.end,
            residue=residue,
        )


async def do_now(action: Callable[[], T]) -> T:
    """Call a blocking function at once, before a reactor runs."""
    return action()


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only ``do_now``."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    raise AssertionError("the coroutine awaits more than do_now")
