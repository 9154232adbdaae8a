"""Replay: brings into storage what the journals hold behind their marks. Runs at every start.

Safe to repeat: a crash in the middle leaves the marks where they were, and what is replayed twice
ends up as what was replayed last.
"""

from __future__ import annotations

import errno
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    MutableSequence,
    Sequence,
)
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
from twisted.logger import Logger

from bookied.errors import (
    CorruptError,
    IndexFullError,
    IndexTruncatedError,
    JournalRecordError,
)
from bookied.storage.files.files import Files
from bookied.storage.index.ledger_pages import LedgerState
from bookied.storage.journal import format as layout
from bookied.storage.journal.damage import check_end, journals_to_replay, trusted_mark
from bookied.storage.journal.mark import START, Mark
from bookied.storage.journal.reader import JournalRecord, JournalScan, open_scan
from bookied.storage.ledger_storage.reads import packet_lac
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.storages import Storages

log = Logger()
T = TypeVar("T")

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
UNSYNCED_BYTES_MAX: Final = 32 * 1024 * 1024
"""More than what a journal writes without having synced what is in front of it."""

DRAIN_BYTES: Final = 16 * 1024 * 1024
BATCH_BYTES: Final = 256 * 1024
BATCH_PAGES: Final = 512
"""Turns from one index page to another, at most so many new ones, after which a batch ends."""


@attrs.define
class Replayed:
    """What a replay found."""

    marks: list[Mark] = attrs.field(factory=list)
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
    """Journals with bytes that are not zero behind the end of their data."""


def recover(
    files: Files,
    storages: Storages,
    journal_directories: Sequence[Path],
    *,
    skip_invalid: bool = False,
    may_be_missing: bool = False,
    drain_bytes: int = DRAIN_BYTES,
    tell: Callable[[int], None] = lambda _bytes: None,
) -> Replayed:
    """Replay all journals, put everything into files and move the marks. Blocks, in one thread.

    Java agrees but for what storage.md section 17 lists: BookieImpl.readJournal (4.18.0).

    Args:
        files: the disk.
        storages: open, not started.
        journal_directories: the ``current`` directory of each, in configured order.
        skip_invalid: ``skipReplayJournalInvalidRecord``: pass over the rest of a damaged journal.
        may_be_missing: go on without journals that are gone: what they held is fetched from other
            bookies afterwards (``bookied.repair.integrity``).
        drain_bytes: how much may be in memory before it is written out.
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
        tell=tell,
    )
    marks = storages.marks.read(len(journal_directories))
    for directory, mark in zip(journal_directories, marks, strict=True):
        replay.found.marks.append(replay.directory(directory, mark))
    if replay.put_into_files(lambda: run_now(storages.flush(do_now))):
        _write_marks(storages, replay.found.marks, may_be_missing=may_be_missing)
    return replay.found


def _write_marks(storages: Storages, marks: list[Mark], *, may_be_missing: bool) -> None:
    """Move the marks; a bookie starts on full disks too, read-only, to replay the same again.

    No journal goes here: Java keeps them too, and the operator may want to look.
    """
    try:
        if may_be_missing:
            storages.marks.lower(marks)
        storages.marks.write(marks)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        log.warn("the next start replays the same journals: {error}", error=error)


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
        tell: Callable[[int], None],
    ) -> None:
        self._files, self._storages, self._tell = files, storages, tell
        self._skip_invalid, self._may_be_missing = skip_invalid, may_be_missing
        self._drain_bytes = drain_bytes
        self._batches = {storage: _Batch(storage) for storage in storages}
        self.found = Replayed()
        self._places: list[tuple[Path, int]] = []
        """Where to read in the directory that is being replayed: journals, and from which byte."""

    def directory(self, directory: Path, mark: Mark) -> Mark:
        """Replay the journals of one directory; return where they end."""
        # A process may have died before it made a name durable that the mark is going to mention.
        self._files.sync_dir(directory)
        mark = trusted_mark(self._files, directory, mark)
        ids = journals_to_replay(self._files, directory, mark, may_be_missing=self._may_be_missing)
        if self._may_be_missing and mark.journal_id not in ids:
            # A mark that named a journal which is gone would stop the next start.
            mark = START
        has_mark = mark > START
        self._places = [
            (directory / layout.file_name(number), mark.offset if number == mark.journal_id else 0)
            for number in ids
        ]
        for number, place in zip(ids, self._places, strict=True):
            # Without a mark there may be journals that ended in a crash long ago.
            is_last = number == ids[-1] or not has_mark
            scan = open_scan(self._files, *place)
            try:
                self._journal(scan, is_last=is_last)
            finally:
                scan.close()
            # What is left of a torn group is behind the mark: Java, without checksums, could take
            # it for records, or fail on it.
            mark = max(mark, Mark(number, scan.size if scan.is_torn else scan.end))
            if number == ids[-1]:
                self._make_durable(scan.path, mark.offset)
        return mark

    def _make_durable(self, path: Path, end: int) -> None:
        """Write the end of the last journal once more, and sync it.

        A process that died may have left it unsynced, or have failed to sync it: then the system
        takes it for written, and reads it, until a power cut takes it from under the mark. Old
        journals would be replayed over what is newer.
        """
        file = self._files.open_update(path)
        try:
            begin = max(0, end - UNSYNCED_BYTES_MAX)
            file.write_at(begin, file.read_at(begin, end - begin))
            file.sync()
        finally:
            file.close()

    def _journal(self, scan: JournalScan, *, is_last: bool) -> None:
        self.found.journals += 1
        try:
            self._replay_all(scan)
            check_end(scan, is_last=is_last)
        except JournalRecordError as error:
            if not self._skip_invalid:
                raise
            log.warn("skipping the rest of a damaged journal: {error}", error=error)
        finally:
            self._store_batches()
        if scan.is_torn:
            self.found.torn.append(scan.path)
            log.warn("{path} is torn at {end}", path=scan.path, end=scan.end)
        elif (residue := scan.residue()) is not None:
            self.found.residues.append(scan.path)
            log.warn(
                "{path} ends at {end}; what is at {residue} and behind it cannot be reached",
                path=scan.path,
                end=scan.end,
                residue=residue,
            )

    def _replay_all(self, scan: JournalScan) -> None:
        ledger_id, state = -1, None
        for record in scan:
            if record.ledger_id != ledger_id or record.entry_id < 0:
                ledger_id, state = record.ledger_id, self._ledger(record)
            if record.entry_id >= 0:
                self._entry(state, record)

    def _ledger(self, record: JournalRecord) -> LedgerState | None:
        """Return a record's ledger, after doing what a record that is no entry says."""
        ledger_id = record.ledger_id
        if ledger_id in self.found.unreadable:
            return None
        try:
            state = self._storages.of(ledger_id).ledgers.lookup(ledger_id)
        except CorruptError as error:
            if self._is_new(record, error):
                return self._ledger_key(None, record)
            log.warn("ledger {id} is unreadable: {error}", id=ledger_id, error=error)
            self.found.unreadable.add(ledger_id)
            return None
        if record.entry_id == layout.LEDGER_KEY:
            return self._ledger_key(state, record)
        if record.entry_id < 0:
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

    def _ledger_key(self, state: LedgerState | None, record: JournalRecord) -> LedgerState:
        key = layout.inner_bytes(record.body)
        storage = self._storages.of(record.ledger_id)
        if state is None:
            return storage.ledgers.create(record.ledger_id, key)
        if state.master_key != key and not storage.ledgers.adopt_key(state, key):
            log.warn("ledger {id} has another key on disk; kept", id=record.ledger_id)
        return state

    def _meta(self, state: LedgerState | None, record: JournalRecord) -> None:
        storage = self._storages.of(record.ledger_id)
        if state is None:
            self.found.dropped += 1
        elif record.entry_id == layout.FENCE:
            storage.ledgers.set_fenced(state)
        elif record.entry_id == layout.EXPLICIT_LAC:
            storage.ledgers.set_explicit_lac(state, layout.inner_bytes(record.body))
        else:
            log.warn("skipping a record of unknown kind {kind:#x}", kind=record.entry_id)

    def _entry(self, state: LedgerState | None, record: JournalRecord) -> None:
        """Put an entry into the batch, and its location into the index.

        The bytes of a ledger with a damaged index are kept, for whoever rebuilds that.
        """
        if state is None and record.ledger_id not in self.found.unreadable:
            self.found.dropped += 1
            return
        storage = self._storages.of(record.ledger_id)
        if state is not None and not storage.reads.has_place(record.entry_id):
            log.warn(
                "entry {entry} of ledger {id}: the index has no place for this id",
                entry=record.entry_id,
                id=record.ledger_id,
            )
            state = None
        batch = self._batches[storage]
        size = layout.LENGTH.size + len(record.body)
        if batch.room_bytes < size or batch.pages >= BATCH_PAGES:
            self._begin_batch(batch, size)
        batch.add(state, record)
        self.found.entries += 1
        self.found.size_bytes += size

    def _begin_batch(self, batch: _Batch, size: int) -> None:
        batch.store()
        self._tell(self.found.size_bytes)
        undrained_bytes = sum(one.undrained_bytes for one in self._batches.values())
        # Small entries of many ledgers fill the memory with pages long before it is full of them.
        if undrained_bytes >= self._drain_bytes or self._storages.needs_checkpoint:
            self._store_batches()
            self._drain()
        batch.begin(max(size, BATCH_BYTES))

    def _store_batches(self) -> None:
        for batch in self._batches.values():
            batch.store()

    def _drain(self) -> None:
        for batch in self._batches.values():
            batch.undrained_bytes = 0
        storages = self._storages
        if self.put_into_files(storages.write_out) and storages.needs_checkpoint:
            self.put_into_files(lambda: run_now(storages.flush(do_now)))

    def put_into_files(self, write: Callable[[], None]) -> bool:
        """Write what is in memory; say whether there was room.

        Without room it stays there and in the journals, as in a bookie that runs while its disks
        fill up: it is going to be read-only. Neither marks nor journals move then.

        Raises:
            OSError: there is neither room on the disks nor in memory, or another reason.
            StorageError: likewise.
        """
        try:
            write()
        except IndexFullError as error:
            return self._keep_in_memory(error)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            return self._keep_in_memory(error)
        return True

    def _keep_in_memory(self, error: Exception) -> bool:
        if self._storages.unwritten_bytes > self._storages.limits.unwritten_bytes_max:
            raise error
        log.warn("what is replayed waits in memory for room: {error}", error=error)
        return False


class _Batch:
    """Entries on their way to one storage.

    Of a run of them only the location in the index page is looked after one by one.
    """

    def __init__(self, storage: LedgerStorage) -> None:
        self._storage = storage
        self._records: list[bytes] = []
        self._next = self._limit = 0  # Where the batch ends now, and where its reservation does.
        self._page: MutableSequence[int] = []
        self._page_of: tuple[LedgerState, int] | None = None
        self.pages = 0
        """How often it went from one index page to another."""
        self.undrained_bytes = 0

    @property
    def room_bytes(self) -> int:
        """How much more the reservation takes."""
        return self._limit - self._next

    def begin(self, size: int) -> None:
        """Reserve so many bytes; the batch before was stored."""
        self._next = self._storage.adds.reserve(size)
        self._limit = self._next + size

    def add(self, state: LedgerState | None, record: JournalRecord) -> None:
        """Put an entry into the batch and its location into the index, if that is readable."""
        if state is not None:
            entry_id = record.entry_id
            if self._page_of != (state, entry_id >> 10):
                self._page_of = (state, entry_id >> 10)
                self.pages += 1
                self._page = state.page_for_write(entry_id >> 10)
            self._page[entry_id & 1023] = self._next + layout.LENGTH.size
            state.last_entry = max(state.last_entry, entry_id)
            state.lac = max(state.lac, packet_lac(record.body))
        self._records += layout.LENGTH.pack(len(record.body)), record.body
        self._next += layout.LENGTH.size + len(record.body)

    def store(self) -> None:
        """Give the batch to storage; nothing may come between that and what set its locations."""
        if self._records:
            blob = b"".join(self._records)
            self._records = []
            self._storage.adds.append(blob)
            self.undrained_bytes += len(blob)
        self._next = self._limit = self.pages = 0
        self._page_of = None


class do_now(Awaitable[T]):  # stands in for a function, as deferToThread is one
    """Call a blocking function at once, where no reactor runs yet."""

    def __init__(self, action: Callable[[], T]) -> None:
        self._value = action()

    def __await__(self) -> Generator[Any, None, T]:
        return self._value
        yield


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing but ``do_now``."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    raise AssertionError("it waits for something")
