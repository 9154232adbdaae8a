"""Storages: all that keeps a bookie's entries: one storage, or several with a share of the ledgers.

Sorted and Interleaved storage are one ``LedgerStorage`` over all directories. DbLedgerStorage is
one for each ledger directory, and ledger ``id % count`` belongs to that one, by configured order.
What they share are the journals, and so the marks: a checkpoint is of all of them.

All methods belong to the reactor's thread unless they say otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from bookied.errors import LedgerPlaceError, StorageError
from bookied.storage.files.files import Files
from bookied.storage.index.rocks.format import NEEDS_INTEGRITY_CHECK
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.journal.mark import LastMark, file_name, lower_mark, read_mark, write_mark
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import RunBlocking, StorageLimits


class IntegrityFlag:
    """Whether entries may be missing of ledgers that metadata places here, as the disk has it.

    It is kept with ledger 0, as in Java: by DbLedgerStorage only, which alone keeps limbo too.
    """

    def __init__(self, flags: RocksIndex | None) -> None:
        self._flags = flags

    @property
    def is_kept(self) -> bool:
        """Whether there is a place for it, and ledgers can be in limbo."""
        return self._flags is not None

    def is_set(self) -> bool:
        """Return whether entries may be missing. Blocks."""
        return self._flags is not None and bool(self._flags.flags() & NEEDS_INTEGRITY_CHECK)

    def set(self, *, needed: bool) -> None:
        """Remember it, durably, or that all is made up for. Blocks; never during a checkpoint.

        Raises:
            StorageError: there is no place for it.
            OSError: it could not be stored.
        """
        if self._flags is None:
            raise StorageError("only DbLedgerStorage can remember that it needs a check")
        flags = self._flags.flags() & ~NEEDS_INTEGRITY_CHECK
        self._flags.set_flags(flags | NEEDS_INTEGRITY_CHECK if needed else flags)


class JournalMarks:
    """Where replay starts in each journal directory, as the ledger directories have it.

    A mark is in every directory that has space, and the highest counts.
    """

    def __init__(
        self, files: Files, shards: Sequence[LedgerStorage], before_write: Callable[[], object]
    ) -> None:
        self._files, self._shards, self._before_write = files, shards, before_write

    @property
    def _directories(self) -> tuple[Path, ...]:
        return tuple(one for shard in self._shards for one in shard.directories.all)

    def read(self, journals: int) -> list[LastMark]:
        """Return where replay starts, for each of so many journal directories."""
        return [
            read_mark(self._files, self._directories, file_name(number, journals))
            for number in range(journals)
        ]

    def lower(self, marks: Sequence[LastMark]) -> None:
        """Take back, durably, marks that are above these: their journals are gone. Blocks.

        Raises:
            OSError: not all could be written.
        """
        for number, mark in enumerate(marks):
            lower_mark(self._files, self._directories, file_name(number, len(marks)), mark)

    def write(self, marks: Sequence[LastMark]) -> None:
        """Put down, durably, where replay starts in each journal directory. Blocks.

        Raises:
            OSError: not all could be written.
        """
        self._before_write()
        for shard in self._shards:
            shard.note_synced()
        writable = [one for shard in self._shards for one in shard.directories.writable]
        for number, mark in enumerate(marks):
            name = file_name(number, len(marks))
            write_mark(self._files, writable or self._directories, name, mark)


class Storages:
    """The storages of one bookie as one: who has a ledger, and what concerns all of them."""

    def __init__(
        self,
        files: Files,
        shards: Sequence[LedgerStorage],
        *,
        limits: StorageLimits | None = None,
        flags: RocksIndex | None = None,
        before_marks: Callable[[], object] = lambda: None,
    ) -> None:
        """Take the storages over, in the configured order of their ledger directories.

        Args:
            files: the disk.
            shards: one or more; not open yet.
            limits: of all together; those of the first by default.
            flags: where the flags are: with ledger 0, as in Java. None where there are none.
            before_marks: called when all is in files, before the marks say so; blocks.
        """
        assert shards
        self._shards = tuple(shards)
        self.integrity_flag = IntegrityFlag(flags)
        """Whether a check is owed of what is here."""
        self.marks = JournalMarks(files, self._shards, before_marks)
        """Where replay starts."""
        self.limits = limits or self._shards[0].limits

    def of(self, ledger_id: int) -> LedgerStorage:
        """Return the storage that has a ledger, or would have it."""
        return self._shards[ledger_id % len(self._shards)]

    def __iter__(self) -> Iterator[LedgerStorage]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)

    # Start and stop -------------------------------------------------------------------------------

    def open(self) -> None:
        """Open all; see ``LedgerStorage.open``. Blocks; no threads yet.

        Raises:
            LedgerPlaceError: a ledger is in another storage than its id says.
            OSError: a directory cannot be read. So for ``StorageError``.
        """
        for number, shard in enumerate(self._shards):
            shard.open()
            self._check_places(number, shard)

    def _check_places(self, number: int, shard: LedgerStorage) -> None:
        """Find out before anything is served or collected: Java takes such ledgers for absent."""
        count = len(self._shards)
        for ledger_id in shard.ledgers.ids() if count > 1 else ():
            if ledger_id % count != number:
                raise LedgerPlaceError(
                    f"ledger {ledger_id} is in {shard.directories.all[0].parent}, directory "
                    f"{number + 1} of {count}, and belongs to directory {ledger_id % count + 1}: "
                    "put ledgerDirectories back to the number and order they had"
                )

    def start(self) -> None:
        """Write entry logs in threads from now on."""
        for shard in self._shards:
            shard.start()

    async def stop(self, journals: Sequence[Journal], run_blocking: RunBlocking) -> None:
        """Put everything into files, index headers included, end the threads, close all files.

        The journals are stopped already: what was acknowledged is covered by their marks.

        Raises:
            StorageError: not everything is in files; the next start replays.
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
        """Put new files where there is space for them; see ``LedgerStorage.avoid``."""
        for shard in self._shards:
            shard.avoid(full, nearly_full, tight)

    def take_back(self) -> None:
        """Append again what logs could not take; see ``EntryAdds.take_back``."""
        for shard in self._shards:
            shard.adds.take_back()

    # What is in memory ----------------------------------------------------------------------------

    @property
    def ledgers_in_memory(self) -> int:
        """How many ledgers are in memory."""
        return sum(len(shard.hot) for shard in self._shards)

    @property
    def unwritten_bytes(self) -> int:
        """What is in memory only: hold back adds above ``limits.unwritten_bytes_max``."""
        unwritten_bytes = 0
        for shard in self._shards:
            unwritten_bytes += shard.unwritten_bytes
        return unwritten_bytes

    @property
    def is_out_of_space(self) -> bool:
        """Whether anything waits for space on a disk, and no other directory has any."""
        return any(shard.is_out_of_space for shard in self._shards)

    @property
    def lacks_space(self) -> bool:
        """Whether any directory had no space since the last look at the disks."""
        return any(shard.lacks_space for shard in self._shards)

    def drop_idle(self) -> None:
        """Forget ledgers beyond the limit that were only read."""
        for shard in self._shards:
            shard.drop_idle()

    # Checkpoints ----------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """Whether anything was added or changed since the last checkpoint began."""
        return any(shard.has_changes for shard in self._shards)

    @property
    def needs_checkpoint(self) -> bool:
        """Whether one is due now, before its time."""
        return any(shard.needs_checkpoint for shard in self._shards)

    def write_soon(self) -> None:
        """Give the entry logs' threads all entries so far, also where they are few."""
        for shard in self._shards:
            shard.adds.hand_over()

    def write_handed_over(self) -> bool:
        """Write what the entry logs' threads have been given; see ``EntryAdds``. Blocks."""
        return all(shard.adds.write_handed_over() for shard in self._shards)

    def write_out(self) -> None:
        """Write the entries so far to their logs; see ``EntryAdds.write_out``. Blocks."""
        for shard in self._shards:
            shard.adds.write_out()

    async def checkpoint(self, journals: Sequence[Journal], run_blocking: RunBlocking) -> None:
        """Put into files what the journals hold by now, move their marks, remove old ones.

        The marks are taken before the first storage is flushed and written after the last.

        Raises:
            StorageError: the marks stay where they were; try again unless a storage has failed.
            OSError: likewise.
        """
        marks = [journal.synced for journal in journals]
        await self.flush(run_blocking)
        await run_blocking(partial(self.marks.write, marks))
        for journal, mark in zip(journals, marks, strict=True):
            await run_blocking(partial(journal.remove_old, mark))

    async def flush(self, run_blocking: RunBlocking) -> None:
        """Make durable in files all that is in memory at the call; see ``LedgerStorage.flush``."""
        for shard in self._shards:
            await shard.flush(run_blocking)
