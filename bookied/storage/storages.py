"""The storages of a bookie: one, or several that each have a part of the ledgers.

Sorted and Interleaved storage are one ``LedgerStorage`` over all directories. DbLedgerStorage has
one storage for each ledger directory, in configured order: a ledger belongs to storage ``ledger id
% count``. All storages share the journals and their marks: a checkpoint covers all of them.

All methods belong to the reactor's thread unless they say otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from bookied.errors import CorruptError, LedgerPlaceError, StorageError, WrongEntryError
from bookied.storage.files.files import Files
from bookied.storage.index.format import PAGE_SLOTS
from bookied.storage.index.rocks.format import NEEDS_INTEGRITY_CHECK
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.journal.mark import LastMark, file_name, lower_mark, read_mark, write_mark
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import RunBlocking, StorageLimits

SAMPLES_MAX: Final = 16
"""Entries that are read at a start to see whether logs and index belong together."""


def require_own_ledgers(ledger_ids: Iterable[int], root: Path, number: int, count: int) -> None:
    """Check that ledgers are where DbLedgerStorage looks for them, which depends on their ids.

    This comes before ledgers are served or collected: Java treats misplaced ledgers as absent.

    Raises:
        LedgerPlaceError: they are in another directory.
    """
    for ledger_id in ledger_ids:
        if ledger_id % count != number:
            raise LedgerPlaceError(
                f"ledger {ledger_id} is in {root}, directory {number + 1} of {count}, and belongs "
                f"to directory {ledger_id % count + 1}: put ledgerDirectories back to the number "
                "and order they had"
            )


def require_own_logs(
    places: Iterable[tuple[int, int, int]],
    check: Callable[[int, int, int], object],
    root: Path,
    number: int,
    count: int,
) -> None:
    """Check that entry logs are those of their index: both are in one of several directories.

    Garbage collection would delete the logs of another index. One entry that is right proves that
    they belong together; damage proves nothing.

    Args:
        places: some entries of the index: location, ledger id and entry id.
        check: raises ``CorruptError`` unless the entry is at the location.
        root: the ledger directory.
        number: its index among the ledger directories.
        count: the number of ledger directories.

    Raises:
        LedgerPlaceError: the logs have ledgers of another directory in place of these entries.
    """
    foreign: list[WrongEntryError] = []
    for place in places:
        try:
            check(*place)
        except WrongEntryError as error:
            foreign += [error] if error.ledger_id >= 0 and error.ledger_id % count != number else []
        except (CorruptError, OSError):
            continue
        else:
            return
    if foreign:
        raise LedgerPlaceError(
            f"the entry logs in {root} are of another index: {foreign[0]}; if ledger or index "
            "directories were exchanged, mount each where it was"
        )


class IntegrityFlag:
    """A stored flag: entries may be missing from ledgers that the metadata places on this bookie.

    The flag is stored with ledger 0, as in Java, and only by DbLedgerStorage, which alone keeps
    limbo.
    """

    def __init__(self, flags: RocksIndex | None) -> None:
        self._flags = flags

    @property
    def is_kept(self) -> bool:
        """True if the storage can keep the flag, and ledgers can be in limbo."""
        return self._flags is not None

    def is_set(self) -> bool:
        """Return whether entries may be missing. Blocks."""
        return self._flags is not None and bool(self._flags.flags() & NEEDS_INTEGRITY_CHECK)

    def set(self, *, needed: bool) -> None:
        """Set or clear the flag durably. Blocks; never during a checkpoint.

        Raises:
            StorageError: this storage cannot keep the flag.
            OSError: the flag could not be stored.
        """
        if self._flags is None:
            raise StorageError("only DbLedgerStorage can remember that it needs a check")
        flags = self._flags.flags() & ~NEEDS_INTEGRITY_CHECK
        self._flags.set_flags(flags | NEEDS_INTEGRITY_CHECK if needed else flags)


def _samples(shard: LedgerStorage) -> Iterator[tuple[int, int, int]]:
    """Yield location, ledger id and entry id of one entry of each of some ledgers."""
    for ledger_id in islice(sorted(shard.ledgers.ids(), reverse=True), SAMPLES_MAX):
        with contextlib.suppress(CorruptError):  # Damage is reported where it is read.
            for page_no, page in islice(shard.reads.stored_pages(ledger_id), 1):
                found = ((at, slot) for slot, at in enumerate(page) if at)
                for location, slot in islice(found, 1):
                    yield location, ledger_id, page_no * PAGE_SLOTS + slot


class JournalMarks:
    """The marks, stored in the ledger directories: where replay starts in each journal directory.

    A mark is written to every directory that has space; the highest counts.
    """

    def __init__(
        self, files: Files, shards: Sequence[LedgerStorage], before_write: Callable[[], object]
    ) -> None:
        self._files, self._shards, self._before_write = files, shards, before_write

    @property
    def _directories(self) -> tuple[Path, ...]:
        return tuple(one for shard in self._shards for one in shard.directories.all)

    def read(self, journals: int) -> list[LastMark]:
        """Return where replay starts in each of ``journals`` journal directories."""
        return [
            read_mark(self._files, self._directories, file_name(number, journals))
            for number in range(journals)
        ]

    def lower(self, marks: Sequence[LastMark]) -> None:
        """Lower, durably, stored marks that are above ``marks``: their journals are gone. Blocks.

        Raises:
            OSError: not all marks could be written.
        """
        for number, mark in enumerate(marks):
            lower_mark(self._files, self._directories, file_name(number, len(marks)), mark)

    def write(self, marks: Sequence[LastMark]) -> None:
        """Write, durably, where replay starts in each journal directory. Blocks.

        Raises:
            OSError: not all marks could be written.
        """
        self._before_write()
        for shard in self._shards:
            shard.note_synced()
        writable = [one for shard in self._shards for one in shard.directories.writable]
        for number, mark in enumerate(marks):
            name = file_name(number, len(marks))
            write_mark(self._files, writable or self._directories, name, mark)


class Storages:
    """All storages of one bookie: finds the storage of a ledger, and acts on all storages."""

    def __init__(
        self,
        files: Files,
        shards: Sequence[LedgerStorage],
        *,
        limits: StorageLimits | None = None,
        flags: RocksIndex | None = None,
        before_marks: Callable[[], object] = lambda: None,
    ) -> None:
        """Store the storages, in the configured order of their ledger directories.

        Args:
            files: the disk.
            shards: one or more; not open yet.
            limits: the limits of all storages together; by default those of the first storage.
            flags: the index that stores the flags with ledger 0, as in Java; None if none does.
            before_marks: called when everything is in files, before the marks are written; blocks.
        """
        assert shards
        self._shards = tuple(shards)
        self.integrity_flag = IntegrityFlag(flags)
        """A flag that this bookie's ledgers need an integrity check."""
        self.marks = JournalMarks(files, self._shards, before_marks)
        """The marks from which replay starts."""
        self.limits = limits or self._shards[0].limits

    def of(self, ledger_id: int) -> LedgerStorage:
        """Return the storage of a ledger, even if the ledger does not exist."""
        return self._shards[ledger_id % len(self._shards)]

    def __iter__(self) -> Iterator[LedgerStorage]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)

    # Start and stop -------------------------------------------------------------------------------

    def open(self) -> None:
        """Open all storages; see ``LedgerStorage.open``. Blocks; no threads yet.

        Raises:
            LedgerPlaceError: a ledger is in another storage than its id requires.
            OSError: a directory cannot be read. So for ``StorageError``.
        """
        for number, shard in enumerate(self._shards):
            shard.open()
            root, count = shard.directories.all[0].parent, len(self._shards)
            require_own_ledgers(shard.ledgers.ids(), root, number, count)
            if count > 1:
                require_own_logs(_samples(shard), shard.reads.check_disk, root, number, count)

    def start(self) -> None:
        """Start the threads that write entry logs."""
        for shard in self._shards:
            shard.start()

    async def stop(self, journals: Sequence[Journal], run_blocking: RunBlocking) -> None:
        """Write everything to files, index headers too, end the threads and close all files.

        The journals are stopped already: their marks cover all acknowledged adds.

        Raises:
            StorageError: not everything is in files; the next start replays the journals.
            OSError: likewise.
        """
        try:
            await self.checkpoint(journals, run_blocking)
        except Exception:
            await run_blocking(self._close)
            raise
        await run_blocking(self._close)

    def _close(self) -> None:
        with contextlib.ExitStack() as all_of_them:
            for shard in self._shards:
                all_of_them.callback(shard.close)

    def abandon(self) -> None:
        """End the threads and close all files without writing what is in memory. Blocks."""
        for shard in self._shards:
            shard.abandon()

    def avoid(
        self,
        full: Collection[Path],
        nearly_full: Collection[Path] = (),
        tight: Collection[Path] = (),
    ) -> None:
        """Create new files only where there is space; see ``LedgerStorage.avoid``."""
        for shard in self._shards:
            shard.avoid(full, nearly_full, tight)

    def take_back(self) -> None:
        """Append again the entries that logs could not write; see ``EntryAdds.take_back``."""
        for shard in self._shards:
            shard.adds.take_back()

    # What is in memory ----------------------------------------------------------------------------

    @property
    def ledgers_in_memory(self) -> int:
        """The number of ledgers in memory."""
        return sum(len(shard.hot) for shard in self._shards)

    @property
    def unwritten_bytes(self) -> int:
        """The bytes in memory only: above ``limits.unwritten_bytes_max`` adds must wait."""
        unwritten_bytes = 0
        for shard in self._shards:
            unwritten_bytes += shard.unwritten_bytes
        return unwritten_bytes

    @property
    def is_out_of_space(self) -> bool:
        """True if entries wait for disk space and no other directory has space."""
        return any(shard.is_out_of_space for shard in self._shards)

    @property
    def lacks_space(self) -> bool:
        """True if any directory had no space since the last check of the disks."""
        return any(shard.lacks_space for shard in self._shards)

    def drop_idle(self) -> None:
        """Drop ledgers above the limit from memory, if they were only read."""
        for shard in self._shards:
            shard.drop_idle()

    # Checkpoints ----------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """True if anything was added or changed since the last checkpoint began."""
        return any(shard.has_changes for shard in self._shards)

    @property
    def needs_checkpoint(self) -> bool:
        """True if a checkpoint is due before its interval ends."""
        return any(shard.needs_checkpoint for shard in self._shards)

    def write_soon(self) -> None:
        """Pass all entries so far to the entry logs' threads, even a few."""
        for shard in self._shards:
            shard.adds.hand_over()

    def write_handed_over(self) -> bool:
        """Write the entries passed to the entry logs' threads; see ``EntryAdds``. Blocks."""
        return all(shard.adds.write_handed_over() for shard in self._shards)

    def write_out(self) -> None:
        """Write the entries so far to their logs; see ``EntryAdds.write_out``. Blocks."""
        for shard in self._shards:
            shard.adds.write_out()

    async def checkpoint(self, journals: Sequence[Journal], run_blocking: RunBlocking) -> None:
        """Write everything in the journals to files, move their marks and remove old journals.

        The marks are read before the first storage is flushed and written after the last.

        Raises:
            StorageError: the marks stay unchanged; retry unless a storage has failed.
            OSError: likewise.
        """
        marks = [journal.synced for journal in journals]
        await self.flush(run_blocking)
        await run_blocking(partial(self.marks.write, marks))
        for journal, mark in zip(journals, marks, strict=True):
            await run_blocking(partial(journal.remove_old, mark))

    async def flush(self, run_blocking: RunBlocking) -> None:
        """Make everything in memory at the call durable in files; see ``LedgerStorage.flush``."""
        for shard in self._shards:
            await shard.flush(run_blocking)
