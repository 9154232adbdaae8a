"""Replay: brings into storage what the journals hold after their marks. Runs at every start.

Safe to repeat: a crash in the middle leaves the marks where they were, and what is replayed twice
ends up as what was replayed last.
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
    insist_own,
    journals_to_replay,
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
"""More than what a journal writes without having synced what is in front of it."""

DRAIN_BYTES: Final = 16 * 1024 * 1024
BATCH_PAGES: Final = 512
"""Turns from one index page to another, at most so many new ones, after which a batch ends."""


@attrs.define
class ReplayReport:
    """What a replay found."""

    marks: list[LastMark] = attrs.field(factory=list)
    """Where each directory's journals end: everything before is in files now."""

    journals: int = 0
    entries: int = 0
    size_bytes: int = 0
    dropped: int = 0
    """Records of ledgers that storage does not know: they were deleted."""

    unreadable: set[int] = attrs.field(factory=set)
    """Ledgers with a damaged index; their entries went to the entry log only."""

    torn: list[Path] = attrs.field(factory=list)
    """Journals that end in the middle of a record or group, as a crash leaves them."""

    residues: list[Path] = attrs.field(factory=list)
    """Journals with bytes that are not zero after the end of their data."""


def recover(
    files: Files,
    storages: Storages,
    journal_directories: Sequence[Path],
    *,
    skip_invalid: bool = False,
    may_be_missing: bool = False,
    drain_bytes: int = DRAIN_BYTES,
    writes_beside: bool = False,
    tell: Callable[[int], None] = lambda _bytes: None,
) -> ReplayReport:
    """Replay all journals, put everything into files and move the marks. Blocks.

    Java agrees but for what storage.md section 17 lists: BookieImpl.readJournal (4.18.0).

    Args:
        files: the disk.
        storages: open, not started.
        journal_directories: the ``current`` directory of each, in configured order.
        skip_invalid: ``skipReplayJournalInvalidRecord``: pass over the rest of a damaged journal.
        may_be_missing: go on without journals that are gone: what they held is fetched from other
            bookies afterwards (``bookied.data_integrity``).
        drain_bytes: how much may be in memory before it is written out.
        writes_beside: write in a second thread, while as much again is read.
        tell: hears now and then how many bytes of entries were replayed.

    Raises:
        JournalMissingError: the journal that a mark names is not there.
        CorruptError: a journal is damaged.
        OSError: something could not be read or written.
        StorageError: something could not be written.
    """
    replay = _Replay(
        files,
        storages,
        skip_invalid=skip_invalid,
        may_be_missing=may_be_missing,
        drain_bytes=drain_bytes,
        writes=ConcurrentWrites(storages) if writes_beside else None,
        tell=tell,
    )
    marks = storages.marks.read(len(journal_directories))
    try:
        for number, (directory, mark) in enumerate(zip(journal_directories, marks, strict=True)):
            insist_own(files, directory, mark, number, len(journal_directories))
            replay.found.marks.append(replay.directory(directory, mark))
    finally:
        replay.end_writes()
    is_in_files = replay.put_into_files(lambda: run_now(storages.flush(do_now)))
    is_cut_allowed = may_be_missing or skip_invalid
    if not is_in_files or not _write_marks(storages, replay.found.marks, lower=is_cut_allowed):
        replay.cut_torn_ends()
    return replay.found


def _write_marks(storages: Storages, marks: list[LastMark], *, lower: bool) -> bool:
    """Move the marks; say whether there was space, as a bookie starts on full disks too.

    No journal goes here: Java keeps them too, and the operator may want to look.
    """
    try:
        if lower:  # Or one that says more than its journal has would stop the next start.
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
        tell: Callable[[int], None],
    ) -> None:
        self._writes = writes
        self._files, self._storages, self._tell = files, storages, tell
        self._skip_invalid, self._may_be_missing = skip_invalid, may_be_missing
        self._drain_bytes = drain_bytes
        self._batches = {storage: ReplayBatch(storage) for storage in storages}
        self._targets: dict[int, ReplayTarget] = {}
        self._batched_bytes = 0
        self.found = ReplayReport()
        self._places: list[tuple[Path, int]] = []
        """Where to read in the directory that is being replayed: journals, and from which byte."""
        self._torn_ends: list[tuple[Path, int]] = []
        """The last journals of directories, where they are torn, and where their data ends."""

    def directory(self, directory: Path, mark: LastMark) -> LastMark:
        """Replay the journals of one directory; return where they end."""
        # A process may have died before it made a name durable that the mark is going to mention.
        self._files.sync_dir(directory)
        may_be_cut = self._skip_invalid or self._may_be_missing
        stored = mark
        mark = trusted_mark(self._files, directory, mark, may_be_cut=may_be_cut)
        ids = journals_to_replay(self._files, directory, mark, may_be_missing=self._may_be_missing)
        if self._may_be_missing and mark.journal_id not in ids:
            # A mark that named a journal which is gone would stop the next start.
            mark = START
        has_mark = mark > START
        ids = ids[: len(ids) - self._remove_blank(directory, mark)]
        self._places = [
            (directory / layout.file_name(number), mark.offset if number == mark.journal_id else 0)
            for number in ids
        ]
        mark_id = mark.journal_id
        for number, place in zip(ids, self._places, strict=True):
            # Without a mark there may be journals that ended in a crash long ago.
            is_last = number == ids[-1] or not has_mark
            with closing(open_scan(self._files, *place)) as scan:
                self._journal(scan, is_last=is_last, has_mark=number == mark_id)
            # What is left of a torn group is behind the mark: Java, without checksums, could take
            # it for records, or fail on it.
            mark = max(mark, LastMark(number, scan.size if scan.is_torn else scan.end))
            if number == ids[-1]:
                self._make_durable(*self._places[-1], mark.offset)
                if scan.is_torn and stored <= (number, scan.end):
                    self._torn_ends.append((scan.path, scan.end))
        return mark

    def _remove_blank(self, directory: Path, mark: LastMark) -> int:
        """Remove the newest journals without a byte; return how many there were.

        Kept, they would look like journals that have lost their bytes once others follow them.
        """
        blank = blank_ends(self._files, directory, mark)
        for path in blank:
            log.warn("removing {path}: a crash left it empty", path=path)
            self._files.remove(path)
        if blank:
            self._files.sync_dir(directory)
        return len(blank)

    def cut_torn_ends(self) -> None:
        """Take what is left of torn groups away: the next start reads these journals again.

        By then others follow them, and a tear in one that another follows is damage.
        """
        for path, end in self._torn_ends:
            with closing(self._files.open_update(path)) as file:
                file.truncate(end)
                file.sync()

    def _make_durable(self, path: Path, marked: int, end: int) -> None:
        """Write the end of the last journal, behind its mark, once more, and sync it.

        A process that died may have left it unsynced, or have failed to sync it: then the system
        takes it for written, and reads it, until a power cut takes it from under the mark. Old
        journals would be replayed over what is newer. What the disk has lost of a torn rest stays.
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
            if not self._skip_invalid:
                raise
            log.warn("skipping the rest of a damaged journal: {error}", error=error)
        else:
            self._tell_end(scan)
        finally:
            self._store_batches()
            self._tell(self.found.size_bytes)

    def _tell_end(self, scan: JournalScan) -> None:
        """Tell of what is after the records of a journal that a crash ended."""
        if scan.is_torn:
            self.found.torn.append(scan.path)
            log.warn("{path} is torn at {end}", path=scan.path, end=scan.end)
        elif (residue := scan.residue()) is not None:
            self.found.residues.append(scan.path)
            log.warn(
                "{path} ends at {end}; the bytes from {residue} on cannot be replayed",
                path=scan.path,
                end=scan.end,
                residue=residue,
            )

    def _replay_all(self, scan: JournalScan) -> None:
        for part in scan.parts():
            if isinstance(part, EntryRun):
                self._entries(part)
            else:
                self._targets.pop(part.ledger_id, None)
                self._ledger(part.ledger_id, part)

    def _ledger(self, ledger_id: int, record: JournalRecord | None = None) -> CachedLedger | None:
        """Return a ledger, after doing what a record that is not an entry says."""
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
        """Whether a ledger's index is empty because a bookie was killed when it had made it.

        Java has written entries to a log by then, if it was in a flush; the journals have them all.
        """
        if record.entry_id != layout.LEDGER_KEY or not isinstance(error, IndexTruncatedError):
            return False
        storage = self._storages.of(record.ledger_id)
        return storage.ledgers.begin_anew(
            record.ledger_id, lambda: self._entries_of(record.ledger_id)
        )

    def _entries_of(self, ledger_id: int) -> set[int]:
        """Return which entries of a ledger are in the journals that are being replayed."""
        found: set[int] = set()
        for path, offset in self._places:
            scan = open_scan(self._files, path, offset)
            try:
                found.update(one.entry_id for one in scan if one.ledger_id == ledger_id)
            except JournalRecordError:
                break  # Replay comes there too, and knows what to do about it.
            finally:
                scan.close()
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
        """Put a run into batches, each entry into that of its ledger's storage."""
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
        """Return where the entries of a ledger go.

        The bytes of a ledger with a damaged index are kept, for the rebuild of the index.
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
        """Cut a run where the storage changes, which is seldom: mostly there is one."""
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
        self._tell(self.found.size_bytes)
        undrained_bytes = sum(one.undrained_bytes for one in self._batches.values())
        # Small entries of many ledgers fill the memory with pages long before it is full of them.
        if undrained_bytes >= self._drain_bytes or self._storages.needs_checkpoint:
            self._drain()

    def _store_batches(self) -> None:
        self._batched_bytes = 0
        for batch in self._batches.values():
            batch.store()
            batch.pages = 0

    def _drain(self) -> None:
        self._targets.clear()  # A checkpoint takes the pages away.
        for batch in self._batches.values():
            batch.undrained_bytes = 0
        storages, writes = self._storages, self._writes
        if self.end_writes() and writes is not None and not storages.needs_checkpoint:
            writes.begin()
        elif self.put_into_files(storages.write_out) and storages.needs_checkpoint:
            self.put_into_files(lambda: run_now(storages.flush(do_now)))

    def end_writes(self) -> bool:
        """Wait for the thread that writes; return whether it met no trouble."""
        return self._writes is None or self._writes.wait()

    def put_into_files(self, write: Callable[[], None]) -> bool:
        """Write what is in memory; say whether there was space.

        On a full disk it stays there and in the journals, as in a bookie that runs while its disks
        fill up: it is going to be read-only. Neither marks nor journals move then.

        Raises:
            OSError: there is neither space on the disks nor in memory, or another reason.
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


async def do_now(action: Callable[[], T]) -> T:
    """Call a blocking function at once, where no reactor runs yet."""
    return action()


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing but ``do_now``."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    raise AssertionError("it waits for something")
