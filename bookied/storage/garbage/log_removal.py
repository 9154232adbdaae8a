"""The live bytes of each finished entry log, and the removal of logs without live entries."""

from __future__ import annotations

import contextlib
from collections.abc import Collection as Some
from functools import partial
from pathlib import Path

from twisted.logger import Logger

from bookied.errors import CorruptError, EntryLogRecordError, LedgersMapError
from bookied.storage.entrylog.usage import LogUsage, LogUsages, ledgers_found, read_usage
from bookied.storage.files.read_errors import lost_is_damaged
from bookied.storage.garbage import compaction_rules
from bookied.storage.garbage.collector_state import CollectionRound
from bookied.storage.ledger_storage.entry_logs import LogsSnapshot

log = Logger()


class LogCensus:
    """The finished logs of one storage, and their usages.

    A log whose content is unknown is never removed, and never read again. A log that a compaction
    finds damaged is removed when all ledgers of its last usage are deleted.
    """

    def __init__(self, collection: CollectionRound) -> None:
        self._collection = collection
        self._files, self._storage, self._pace = (
            collection.files,
            collection.storage,
            collection.pace,
        )
        self._usages = LogUsages()
        self._logs: dict[int, Path] = {}
        self.unreadable: set[int] = set()
        """Damaged logs, which are not compacted any more."""

    @property
    def usages(self) -> Some[LogUsage]:
        """The usages of the readable logs."""
        return [usage for usage in self._usages.values() if usage.log_id not in self.unreadable]

    @property
    def count(self) -> int:
        """The number of finished logs."""
        return len(self._logs)

    def path(self, log_id: int) -> Path:
        """Return the path of a finished log."""
        return self._logs[log_id]

    async def drop(self, begun: LogsSnapshot, left: frozenset[int]) -> None:
        """Remove finished logs without existing ledgers; update the usages of the others."""
        logs = await self._pace.blocking(partial(self._storage.logs.finished, begun))
        self._logs = {number: path for number, path in logs.items() if number not in left}
        for gone in {usage.log_id for usage in self._usages.values()} - {*self._logs}:
            self._usages.drop(gone)
        self.unreadable &= {*self._logs}
        alive = frozenset(self._storage.ledgers.ids())
        for log_id, path in sorted(self._logs.items()):
            usage = await self._usage(log_id, path)
            if usage is None:
                continue
            kept = await self._pace.blocking(partial(usage.keeping, alive))
            if not kept.is_dead:
                self._usages.put(kept)
            elif log_id in begun.log_ids or await self._is_map_right(log_id, path, alive):
                await self._drop_log(log_id, path, usage)
        self.note()

    async def _is_map_right(self, log_id: int, path: Path, alive: frozenset[int]) -> bool:
        """Return whether a log of an earlier process has no record of an existing ledger.

        A ledgers map has no checksum: a flipped bit may name another ledger.
        """
        if log_id in self.unreadable:
            return True  # Its records do not matter any more.
        with contextlib.closing(ledgers_found(self._files, path)) as pieces:
            while (found := await self._pace.blocking(partial(next, pieces, None))) is not None:
                if some := found & alive:
                    message = f"the ledgers map lacks ledger {min(some)}"
                    self._usages.drop(log_id)
                    self.leave(log_id, LedgersMapError(path, None, message))
                    return False
        return True

    async def _usage(self, log_id: int, path: Path) -> LogUsage | None:
        """Return the usage of a log; None if it is unknown: the log then stays."""
        if log_id in self.unreadable and log_id not in self._usages:
            return None
        if self._usages.is_known(log_id):
            return self._usages.get(log_id)
        steps = read_usage(self._files, path, log_id, self._storage.relocation)
        try:
            found: LogUsage | None = None
            while found is None:
                with lost_is_damaged(path, EntryLogRecordError):
                    found = await self._pace.blocking(partial(next, steps))
        except CorruptError as error:
            self.leave(log_id, error)
            self._usages.drop(log_id)
            return None
        finally:
            steps.close()
        return found

    def leave(self, log_id: int, error: CorruptError) -> None:
        """Exclude a log from compaction: the log or the index of one of its ledgers is damaged."""
        self.unreadable.add(log_id)
        log.error("entry log {id:x} is damaged, and kept as it is: {error}", id=log_id, error=error)

    async def _drop_log(self, log_id: int, path: Path, usage: LogUsage) -> None:
        await self._pace.blocking(partial(self._storage.logs.remove, path))
        self.forget(log_id)
        log.info("removed {path}: all its ledgers are deleted", path=path)
        self._collection.count(logs_removed=1, freed_by_removal_bytes=usage.total_bytes)

    def forget(self, log_id: int) -> None:
        self._storage.logs.forget(log_id)
        self._usages.drop(log_id)
        self.unreadable.discard(log_id)
        self._logs.pop(log_id, None)

    def note(self) -> None:
        usages = self.usages
        self._collection.note(
            logs=len(usages),
            total_bytes=sum(usage.total_bytes for usage in usages),
            live_bytes=sum(usage.live_bytes for usage in usages),
            tenths=compaction_rules.tenths(usages, self._collection.settings.target_bytes),
            unreadable_logs=len(self.unreadable),
        )
