"""Flushes of the write cache and the index pages, and their order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import attrs
from twisted.logger import Logger

from bookied.errors import NO_SPACE, IndexFullError
from bookied.storage.entrylog.writer import EntryLogWriter
from bookied.storage.index.ledger_pages import LedgerChange, LedgerPages, add_stored
from bookied.storage.index.store import IndexStore
from bookied.storage.ledger_storage.adds import EntryAdds, UnflushedChanges
from bookied.storage.ledger_storage.index_lock import IndexLock
from bookied.storage.ledger_storage.storage_limits import RunBlocking, StorageLimits
from bookied.storage.write_cache import WriteCache

log = Logger()

CHECKPOINT_PAGES: Final = 1024
"""Pages copied in one turn of the reactor: 8 MiB, a few milliseconds."""


def is_due(limits: StorageLimits, changes: UnflushedChanges, pages: LedgerPages) -> bool:
    """Return whether memory is so full that a flush is due before the checkpoint's time.

    ``bookied.storage.checkpoints`` asks this, and also flushes at each interval.
    """
    return (
        changes.entry_bytes >= limits.checkpoint_bytes
        or pages.dirty_page_count >= limits.dirty_pages_max // 2
    )


@attrs.define(eq=False)
class Flush:
    """A flush in order: entries, a sync of their logs, then index pages and headers."""

    _index: IndexStore
    _pages: LedgerPages
    _turn: IndexLock
    _changes: UnflushedChanges
    _adds: EntryAdds
    _log: EntryLogWriter
    _cache: WriteCache
    _on_full: Callable[[Path], object]
    index_has_no_space: bool = attrs.field(default=False, init=False)
    """Whether the last flush found no disk space for some ledger's index."""

    async def run(self, run_blocking: RunBlocking) -> None:
        """Make everything in memory at the call durable in files.

        The order survives a crash at any point: entries are written, their logs are synced, and
        only then index pages and headers that point at them are written. A second flush waits for
        the first.

        Raises:
            StorageError: not everything was written.
            OSError: likewise.
        """
        while True:
            moves = self._log.moves
            try:
                await self._write_all(run_blocking)
                break
            except OSError:
                # Another log has accepted, or accepts now, the entries that found no disk space.
                if not self._adds.take_back() and self._log.moves == moves:
                    raise

    async def remove_deleted(self, run_blocking: RunBlocking) -> None:
        """Remove deleted ledgers from the index, durably; afterwards it lists all others.

        Index files need no disk space for that. Without space for changes of a database, deleted
        ledgers stay in it for now: only the removal of their logs may give space, and a start that
        finds them again deletes them again.

        Raises:
            StorageError: not all are removed. So for ``OSError``.
        """
        lists_all = False
        while not lists_all:
            async with self._turn:
                try:
                    lists_all = await self._remove_hidden(run_blocking)
                except OSError as error:
                    if error.errno not in NO_SPACE or not self._index.lists_all:
                        raise
                    log.warn("deleted ledgers are in the index for now: {error}", error=error)
                    return

    async def _remove_hidden(self, run_blocking: RunBlocking) -> bool:
        found: dict[int, int] = {}
        try:
            removal = partial(self._index.remove_hidden, self._pages.hot, found)
            lists_all: bool = await run_blocking(removal)
        finally:
            # A ledger that was deleted meanwhile may have been created again, without entries.
            deleted = self._turn.deleted
            add_stored(self._pages, {one: found[one] for one in found if one not in deleted})
        return lists_all

    async def _write_all(self, run_blocking: RunBlocking) -> None:
        async with self._turn:
            self._changes.reset()
            try:
                await self._remove_hidden(run_blocking)
                # A ledger that is deleted and created again meanwhile waits until its old file is
                # removed.
                ledgers = (
                    ledger_id
                    for ledger_id in self._pages.dirty_ledgers()
                    if ledger_id not in self._turn.deleted
                )
                # Sync even without a page to write: replay keeps entries that no index points at.
                await self._sync_log(run_blocking)
                homeless: IndexFullError | None = None
                for changes in self._pages.take(ledgers, pages_max=CHECKPOINT_PAGES):
                    homeless = await self._write_changes(changes, run_blocking) or homeless
                self._note_index_space(homeless)
                self._pages.drop_idle_ledgers()
                self._cache.trim(self._log.file.readable_until)
            except BaseException:
                self._changes.any = True
                raise

    async def _sync_log(self, run_blocking: RunBlocking) -> None:
        self._log.hand_over()
        await run_blocking(partial(self._log.sync, self._log.moves))

    async def _write_changes(
        self, changes: list[LedgerChange], run_blocking: RunBlocking
    ) -> IndexFullError | None:
        """Write index pages and headers; return the error if some have found no disk space."""
        try:
            await self._sync_log(run_blocking)
            damaged = await run_blocking(partial(self._index.write, changes))
        except IndexFullError as error:
            # One ledger without space must not keep the pages of all others in memory.
            self._pages.put_back(one for one in changes if one.ledger_id in error.ledger_ids)
            self._pages.written(one for one in changes if one.ledger_id not in error.ledger_ids)
            return error
        except BaseException:
            self._pages.put_back(changes)
            raise
        self._pages.written(changes, damaged)
        return None

    def _note_index_space(self, homeless: IndexFullError | None) -> None:
        """Fail the checkpoint if the index of some ledgers found no disk space."""
        self.index_has_no_space = homeless is not None
        if homeless is not None:
            self._on_full(homeless.directory)
            raise homeless
