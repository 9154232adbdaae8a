"""Compaction: the choice and order of entry logs with few live bytes to rewrite, and its limits.

Logs are rewritten by ``compaction_in_place`` (the default) and ``transactional_compaction``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs
from twisted.logger import Logger

from bkclient.concurrency import wall_s
from bookied.errors import CorruptError, StorageError
from bookied.storage.entrylog.usage import LogUsage
from bookied.storage.files.files import Files
from bookied.storage.garbage import compaction_rules
from bookied.storage.garbage.collector_state import CollectionRound
from bookied.storage.garbage.compaction_in_place import Rewriter
from bookied.storage.garbage.compaction_rules import CompactionKind, LastRuns, SuspendedCompactions
from bookied.storage.garbage.log_removal import LogCensus

log = Logger()


@attrs.frozen
class RequestedCompactions:
    """The compactions that an operator asked for."""

    major: bool = True
    minor: bool = True

    def __or__(self, other: RequestedCompactions) -> RequestedCompactions:
        return RequestedCompactions(self.major or other.major, self.minor or other.minor)


class Suspensions:
    """Compactions that must not begin, and that end after the current log."""

    def __init__(self) -> None:
        self.by_disks = SuspendedCompactions()
        self.by_hand = SuspendedCompactions()

    @property
    def all(self) -> SuspendedCompactions:
        """The compactions that the disks or an operator have suspended."""
        return self.by_disks | self.by_hand

    def suspend_by_disks(self, suspended: SuspendedCompactions) -> None:
        """Set the suspensions from a check of the disks."""
        if suspended != self.by_disks:
            _log_suspended("by the disks", suspended)
        self.by_disks = suspended

    def suspend_by_hand(self, suspended: SuspendedCompactions) -> None:
        """Set the suspensions from an operator, until changed or until the next start."""
        if suspended != self.by_hand:
            _log_suspended("by hand", suspended)
        self.by_hand = suspended


class LogCompaction:
    """Compaction by schedule or on request, one log after the other."""

    def __init__(
        self,
        collection: CollectionRound,
        census: LogCensus,
        suspensions: Suspensions,
        rewriter: Rewriter,
    ) -> None:
        self._collection, self._census, self._suspensions = collection, census, suspensions
        self._files, self._storage, self._pace = (
            collection.files,
            collection.storage,
            collection.pace,
        )
        self._clock, self._rewriter = collection.clock, rewriter
        now_s = collection.clock.seconds()
        self._last = LastRuns(now_s, now_s)

    async def compact(self, wanted: RequestedCompactions | None) -> None:
        settings, now_s = self._collection.settings, self._clock.seconds()
        suspended = self._suspensions.all
        if wanted is not None:
            suspended |= SuspendedCompactions(minor=not wanted.minor, major=not wanted.major)
        force = wanted is not None
        kind = compaction_rules.due(settings.schedules, self._last, now_s, suspended, force=force)
        if kind is None:
            return
        self._collection.note(compacting=kind)
        before = self._census.count
        try:
            with self._collection.stats.compact.timed(self._clock.seconds):
                await self._compact_all(kind, now_s)
        finally:
            share = (before - self._census.count) / before if before else 0.0
            self._collection.note(last_share=share)
            self._last.ended(kind, self._clock.seconds())
            status = self._collection.status.compaction_ended(kind, wall_s(self._clock))
            self._collection.status = status
            self._census.note()

    async def _compact_all(self, kind: CompactionKind, began_s: float) -> None:
        settings = self._collection.settings
        schedule = settings.schedules.of(kind)
        todo = compaction_rules.worth_rewriting(
            self._census.usages, schedule.threshold, settings.target_bytes
        )
        log.info("{kind} compaction of {count} entry logs", kind=kind.value, count=len(todo))
        for usage in todo:
            if schedule.is_over(self._clock.seconds() - began_s):
                log.info("{kind} compaction stopped: its time limit is reached", kind=kind.value)
                return
            if self._suspensions.all.of(kind):
                log.info("{kind} compaction stopped: it is suspended", kind=kind.value)
                return
            if not await self._has_space(usage):
                log.warn("no space to compact entry log {id:x}", id=usage.log_id)
                continue
            await self._compact_one(usage, self._census.path(usage.log_id))

    async def _has_space(self, usage: LogUsage) -> bool:
        """Return whether there is space for copies of live entries, and for new entries."""
        needed = self._collection.settings.free_bytes_min + usage.live_bytes
        directories = self._storage.directories.writable
        usable = await self._pace.blocking(partial(_usable_bytes, self._files, directories))
        return usable >= needed

    async def _compact_one(self, usage: LogUsage, path: Path) -> None:
        try:
            copied = await self._rewriter.rewrite(path)
        except CorruptError as error:
            self._storage.relocation.note_damage(error)
            self._census.leave(usage.log_id, error)
            return
        except FileNotFoundError as error:
            raise StorageError(f"while compacting {path}: {error}") from error
        self._census.forget(usage.log_id)
        freed_bytes = usage.total_bytes - copied.size_bytes
        self._collection.count(
            logs_removed=1,
            freed_by_compaction_bytes=freed_bytes,
            copied_entries=copied.entries,
            copied_bytes=copied.size_bytes,
        )
        log.info(
            "compacted {path}: {entries} entries kept, {size_bytes} bytes freed",
            path=path,
            entries=copied.entries,
            size_bytes=freed_bytes,
        )


def _log_suspended(whence: str, suspended: SuspendedCompactions) -> None:
    log.info(
        "compaction, {whence}: minor {minor}, major {major}",
        whence=whence,
        minor="suspended" if suspended.minor else "allowed",
        major="suspended" if suspended.major else "allowed",
    )


def _usable_bytes(files: Files, directories: Sequence[Path]) -> int:
    return max(files.disk_usage(directory)[1] for directory in directories)
