"""Garbage collection of one storage: rounds of dropping ledgers, dropping logs and compaction.

A round: checkpoint; tidy up what an earlier compaction left; list local ledgers and ask the
metadata which are gone; drop those; drop logs of which nothing is alive; compact what is worth it.
Whatever fails ends the round, and the next one begins anew: no step leaves anything that a crash
or an error could turn into loss. Disk work is done in threads, in small steps.

Agrees with BookKeeper 4.18.0, GarbageCollectorThread, in what runs when.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookied.errors import CorruptError, NoWritableDirError, StorageError
from bookied.metrics.stats import CollectorStats
from bookied.metrics.summary import Summary
from bookied.storage.entrylog import compaction
from bookied.storage.entrylog.compaction import Kind, LastRuns, Rate, Suspended, Throttle
from bookied.storage.entrylog.usage import LogUsage, Usages, read_usage
from bookied.storage.files.files import Files
from bookied.storage.garbage.pace import CollectionStoppedError, Pace
from bookied.storage.garbage.rewriting import InPlace, Rewriter
from bookied.storage.garbage.settings import CollectorSettings
from bookied.storage.garbage.status import CollectorStatus, Freed
from bookied.storage.garbage.transaction import Transactional
from bookied.storage.ledger_storage.logs import BegunLogs
from bookied.storage.ledger_storage.settings import RunBlocking
from bookied.storage.ledger_storage.storage import LedgerStorage
from wire.errors import BookKeeperError
from wire.ids import LedgerId

log = Logger()

DROP_AT_ONCE: Final = 200
"""Ledgers dropped in one turn of the reactor."""

BUSY_SHARE: Final = 4
"""Copies wait while more than this part (a fourth) of the bytes that may wait do wait."""

PRESSED_WAIT_S: Final = 10.0
"""Pause between collections while disks are full and are collected for that."""


class Garbage(Protocol):
    """Who knows which ledgers are gone; see ``LedgerGarbage``."""

    async def gone(self, local: Sequence[int]) -> list[LedgerId]: ...

    async def over_replicated(
        self, local: Sequence[int], drop: Callable[[LedgerId], Awaitable[object]]
    ) -> None: ...


class LedgerDeleted(Protocol):
    """Who has to know of deleted ledgers: were they fenced, and do they live on elsewhere."""

    def __call__(self, ledger_id: LedgerId, *, was_fenced: bool, lives_on: bool) -> None: ...


@attrs.frozen(kw_only=True)
class CollectorEffects:
    """What a collector leans on beside its storage."""

    garbage: Garbage
    checkpoint: Callable[[], Awaitable[None]]
    """A whole checkpoint that begins after the call."""
    run_blocking: RunBlocking
    ledger_deleted: LedgerDeleted
    """Told on the reactor before a ledger is dropped."""
    keep_deletions: Callable[[], Awaitable[None]]
    """Makes durable what ``ledger_deleted`` was told, before the ledgers are dropped."""


def _throttle(settings: CollectorSettings) -> Throttle:
    return Throttle(Rate(settings.copied_per_s), settings.throttle_by_bytes)


@attrs.frozen
class Wanted:
    """What an operator asked for."""

    major: bool = True
    minor: bool = True

    def __or__(self, other: Wanted) -> Wanted:
        return Wanted(self.major or other.major, self.minor or other.minor)


class Collector:
    """Collects the garbage of one storage. All methods belong to the reactor's thread."""

    def __init__(
        self,
        files: Files,
        storage: LedgerStorage,
        clock: IReactorTime,
        settings: CollectorSettings,
        effects: CollectorEffects,
        *,
        number: int = 0,
        count: int = 1,
    ) -> None:
        """Prepare; ``start`` begins.

        Args:
            files: the disk.
            storage: whose garbage.
            clock: tells when a round is due.
            settings: as configured.
            effects: what it leans on.
            number: which of the bookie's collectors this is: they take turns.
            count: how many there are.
        """
        self._files, self._storage, self._clock = files, storage, clock
        self._settings, self._effects = settings, effects
        self._first_wait_s = settings.wait_s * (1 + (number + 1) / count)
        self._pace = Pace(clock, effects.run_blocking, _throttle(settings), self._is_busy)
        rewriting: dict[str, Any] = {"outstanding_max": settings.outstanding_max}
        parts = files, storage, self._pace, effects.run_blocking
        self._transactional = Transactional(*parts, direct=settings.direct, **rewriting)
        self._rewriter: Rewriter = self._transactional
        if not settings.transactional:
            self._rewriter = InPlace(*parts, **rewriting)
        self._usages = Usages()
        self._logs: dict[int, Path] = {}
        self._unreadable: set[int] = set()  # Logs that are damaged: left alone from then on.
        now_s = clock.seconds()
        self._last = LastRuns(now_s, now_s)
        self._last_excess_s = now_s
        self._written_since_excess: set[int] | None = None
        self._by_disks = Suspended()
        self._by_hand = Suspended()
        self._is_pressed = False
        self._call: IDelayedCall | None = None
        self._round: Deferred[None] | None = None
        self._wanted: Wanted | None = None
        self._asked: list[Deferred[CollectorStatus]] = []
        self._is_stopping = False
        self.stats = CollectorStats()
        self.status = CollectorStatus()
        """What it does and has done so far."""

    # When -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Collect every so often from now on."""
        if self._settings.excess_wait_s is not None:
            self._written_since_excess = self._storage.ledgers.watch()
        self._call_later(self._first_wait_s)

    def settings_changed(self, settings: CollectorSettings) -> None:
        """Collect as these say from now on; what copies are made with stays as it was."""
        self._settings, self._pace.throttle = settings, _throttle(settings)
        if self._call is not None and self._call.active():
            self._call_later(min(settings.wait_s, self._call.getTime() - self._clock.seconds()))

    async def stop(self) -> None:
        """Begin nothing more; return when what is under way has come to a safe point."""
        self._is_stopping = True
        self._pace.stop()
        if self._call is not None and self._call.active():
            self._call.cancel()
        if self._round is not None:
            await self._round
        self._answer()

    def collect(self, *, major: bool = True, minor: bool = True) -> Deferred[CollectorStatus]:
        """Collect now, or after the round under way; the status comes when that has ended.

        Args:
            major: compact as a major compaction does, where that is allowed.
            minor: otherwise as a minor one does, likewise.
        """
        done: Deferred[CollectorStatus] = Deferred()
        self._asked.append(done)
        self._want(Wanted(major, minor))
        return done

    def _want(self, wanted: Wanted) -> None:
        self._wanted = wanted if self._wanted is None else self._wanted | wanted
        if self._is_stopping:
            self._answer()
        elif self._round is None:
            self._call_later(0)

    def disks_changed(self, *, nearly_full: bool, full: bool) -> None:
        """Obey what a look at the storage's disks has found."""
        collects = self._settings.collects_when_full
        suspended = compaction.suspended_by_disks(
            nearly_full=nearly_full, full=full, collects_when_full=collects
        )
        if suspended != self._by_disks:
            _tell("by the disks", suspended)
        self._by_disks = suspended
        was_pressed, self._is_pressed = self._is_pressed, collects and (nearly_full or full)
        if self._is_pressed and not was_pressed:
            self._want(Wanted())

    @property
    def suspended(self) -> Suspended:
        """Which compactions are not to begin, and end after the log they are at."""
        return self._by_disks | self._by_hand

    @property
    def suspended_by_hand(self) -> Suspended:
        """Those that an operator has suspended."""
        return self._by_hand

    def suspend(self, suspended: Suspended) -> None:
        """Obey the operator, until told otherwise or started anew."""
        if suspended != self._by_hand:
            _tell("by hand", suspended)
        self._by_hand = suspended

    def _call_later(self, wait_s: float) -> None:
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = self._clock.callLater(wait_s, self._begin)

    def _begin(self) -> None:
        wanted, self._wanted = self._wanted, None
        asked, self._asked = self._asked, []
        self._round = Deferred.fromCoroutine(self._run(wanted))
        self._round.addBoth(self._ended, asked)

    def _ended(self, _: object, asked: list[Deferred[CollectorStatus]]) -> None:
        self._round = None
        for one in asked:
            one.callback(self.status)
        if self._is_stopping:
            return
        if self._wanted is not None:
            self._call_later(0)
        elif self._is_pressed:
            self._wanted = Wanted()
            self._call_later(min(PRESSED_WAIT_S, self._settings.wait_s))
        else:
            self._call_later(self._settings.wait_s)

    def _answer(self) -> None:
        asked, self._asked = self._asked, []
        for one in asked:
            one.callback(self.status)

    def _is_busy(self) -> bool:
        storage = self._storage
        if storage.is_out_of_room:
            raise NoWritableDirError("a ledger directory has no space left")
        return storage.unwritten_bytes > storage.limits.unwritten_bytes_max // BUSY_SHARE

    # A round --------------------------------------------------------------------------------------

    async def _run(self, wanted: Wanted | None) -> None:
        began_s = self._clock.seconds()
        self.status = attrs.evolve(self.status, is_running=True, is_forced=wanted is not None)
        error = None
        try:
            await self._collect(wanted)
        except CollectionStoppedError:
            log.info("garbage collection ended, for the bookie stops")
        except (BookKeeperError, OSError) as failed:
            error = f"{type(failed).__name__}: {failed}"
            log.warn("garbage collection failed, and is tried again: {error}", error=error)
        except Exception as failed:  # noqa: BLE001 -- a bookie without collection is better than none
            error = f"{type(failed).__name__}: {failed}"
            log.failure("garbage collection failed", Failure())
        ended_s = self._clock.seconds()
        self.status = self.status.round_ended(began_s, ended_s, error)
        self.stats.thread.observe((ended_s - began_s) * 1000, ok=error is None)

    async def _collect(self, wanted: Wanted | None) -> None:
        pace, storage = self._pace, self._storage
        pace.check()
        await storage.relocation.switch((), self._effects.run_blocking)
        begun = storage.logs.begun()
        await self._effects.checkpoint()
        left = await self._transactional.tidy(storage.directories.all)
        with self._timed(self.stats.ledgers):
            await self._drop_ledgers()
        with self._timed(self.stats.logs):
            await self._drop_logs(begun, left)
        await self._compact(wanted)

    @contextmanager
    def _timed(self, took: Summary) -> Iterator[None]:
        began_s = self._clock.seconds()
        is_done = False
        try:
            yield
            is_done = True
        finally:
            took.observe((self._clock.seconds() - began_s) * 1000, ok=is_done)

    # Ledgers --------------------------------------------------------------------------------------

    async def _drop_ledgers(self) -> None:
        """Drop what the metadata says is not needed, unless somebody has written to it since.

        A ledger id can be used again, and a copy can come here before the metadata names us.
        """
        storage = self._storage
        written = storage.ledgers.watch()
        try:
            local = storage.ledgers.ids()
            dropped = self.status.ledgers_dropped
            await self._drop_excess(local)
            gone = await self._pace.waiting(self._effects.garbage.gone(local))
            for start in range(0, len(gone), DROP_AT_ONCE):
                await self._drop(gone[start : start + DROP_AT_ONCE], written)
        finally:
            storage.ledgers.unwatch(written)
        self.status = attrs.evolve(self.status, ledgers=len(storage.ledgers.ids()))
        if self.status.ledgers_dropped > dropped:
            await self._effects.checkpoint()

    async def _drop_excess(self, local: Sequence[int]) -> None:
        wait_s, written = self._settings.excess_wait_s, self._written_since_excess
        if wait_s is None or written is None:
            return
        now_s = self._clock.seconds()
        if now_s - self._last_excess_s <= wait_s:
            return

        async def drop(ledger_id: LedgerId) -> None:
            await self._drop([ledger_id], written, live_on=True)

        await self._pace.waiting(self._effects.garbage.over_replicated(local, drop))
        self._storage.ledgers.unwatch(written)
        self._written_since_excess = self._storage.ledgers.watch()
        self._last_excess_s = now_s

    async def _drop(
        self, ledger_ids: Sequence[LedgerId], written: set[int], *, live_on: bool = False
    ) -> None:
        """Drop ledgers; those in ``written`` are spared. ``live_on``: other bookies have them."""
        storage = self._storage
        fenced = await self._pace.blocking(partial(storage.ledgers.are_fenced, ledger_ids))
        for ledger_id in ledger_ids:
            if ledger_id not in written:
                state = storage.hot.get(ledger_id)
                was_fenced = state.fenced if state is not None else ledger_id in fenced
                self._effects.ledger_deleted(ledger_id, was_fenced=was_fenced, lives_on=live_on)
        await self._effects.keep_deletions()
        self._pace.check()
        for ledger_id in ledger_ids:
            if ledger_id in written:
                log.info("ledger {id} was written to meanwhile: kept", id=ledger_id)
                continue
            storage.ledgers.delete(ledger_id)
            self.status = attrs.evolve(self.status, ledgers_dropped=self.status.ledgers_dropped + 1)

    # Logs -----------------------------------------------------------------------------------------

    async def _drop_logs(self, begun: BegunLogs, left: frozenset[int]) -> None:
        """Remove finished logs of which no ledger is alive; note how much the others hold."""
        logs = await self._pace.blocking(partial(self._storage.logs.finished, begun))
        self._logs = {number: path for number, path in logs.items() if number not in left}
        for gone in {usage.log_id for usage in self._usages.values()} - {*self._logs}:
            self._usages.drop(gone)
        self._unreadable &= {*self._logs}
        alive = frozenset(self._storage.ledgers.ids())
        for log_id, path in sorted(self._logs.items()):
            usage = await self._usage(log_id, path)
            if usage is None:
                continue
            kept = await self._pace.blocking(partial(usage.keeping, alive))
            if kept.is_dead:
                await self._drop_log(log_id, path, usage)
            else:
                self._usages.put(kept)
        self._note_usages()

    async def _usage(self, log_id: int, path: Path) -> LogUsage | None:
        """Return what a log holds; None if nobody can tell, and so it stays."""
        if log_id in self._unreadable:
            return None
        if self._usages.is_known(log_id):
            return self._usages.get(log_id)
        steps = read_usage(self._files, path, log_id)
        try:
            found: LogUsage | None = None
            while found is None:
                found = await self._pace.blocking(partial(next, steps))
        except CorruptError as error:
            self._leave(log_id, error)
            return None
        finally:
            steps.close()
        return found

    def _leave(self, log_id: int, error: CorruptError) -> None:
        self._unreadable.add(log_id)
        self._usages.drop(log_id)
        log.error("entry log {id:x} is damaged, and kept as it is: {error}", id=log_id, error=error)

    async def _drop_log(self, log_id: int, path: Path, usage: LogUsage) -> None:
        await self._pace.blocking(partial(self._storage.logs.remove, path))
        self._forget(log_id)
        log.info("removed {path}: none of its ledgers is left", path=path)
        self.status = self.status.freed(Freed(logs=1, size_bytes=usage.total_bytes))

    def _forget(self, log_id: int) -> None:
        self._storage.logs.forget(log_id)
        self._usages.drop(log_id)
        self._logs.pop(log_id, None)

    def _note_usages(self) -> None:
        usages = self._usages.values()
        self.status = attrs.evolve(
            self.status,
            logs=len(usages),
            total_bytes=sum(usage.total_bytes for usage in usages),
            live_bytes=sum(usage.live_bytes for usage in usages),
            tenths=compaction.tenths(usages, self._settings.target_bytes),
            unreadable_logs=len(self._unreadable),
        )

    # Compaction -----------------------------------------------------------------------------------

    async def _compact(self, wanted: Wanted | None) -> None:
        settings, now_s = self._settings, self._clock.seconds()
        suspended = self.suspended
        if wanted is not None:
            suspended |= Suspended(minor=not wanted.minor, major=not wanted.major)
        force = wanted is not None
        kind = compaction.due(settings.schedules, self._last, now_s, suspended, force=force)
        if kind is None:
            return
        self.status = attrs.evolve(self.status, compacting=kind)
        before = len(self._logs)
        try:
            with self._timed(self.stats.compact):
                await self._compact_all(kind, now_s)
        finally:
            share = (before - len(self._logs)) / before if before else 0.0
            self.status = attrs.evolve(self.status, last_share=share)
            self._last.ended(kind, self._clock.seconds())
            self.status = self.status.compaction_ended(kind, self._clock.seconds())
            self._note_usages()

    async def _compact_all(self, kind: Kind, began_s: float) -> None:
        settings = self._settings
        schedule = settings.schedules.of(kind)
        todo = compaction.worth_rewriting(
            self._usages.values(), schedule.threshold, settings.target_bytes
        )
        log.info("{kind} compaction of {count} entry logs", kind=kind.value, count=len(todo))
        for usage in todo:
            if schedule.is_over(self._clock.seconds() - began_s):
                log.info("{kind} compaction ends: its time is spent", kind=kind.value)
                return
            if self.suspended.of(kind):
                log.info("{kind} compaction ends: it is suspended", kind=kind.value)
                return
            if not await self._has_room(usage):
                log.warn("no space to compact entry log {id:x} into", id=usage.log_id)
                continue
            await self._compact_one(usage, self._logs[usage.log_id])

    async def _has_room(self, usage: LogUsage) -> bool:
        """Whether copies of what is alive have room, beside what new entries may need."""
        needed = self._settings.room_bytes_min + usage.live_bytes
        directories = self._storage.directories.writable
        usable = await self._pace.blocking(partial(_usable_bytes, self._files, directories))
        return usable >= needed

    async def _compact_one(self, usage: LogUsage, path: Path) -> None:
        try:
            copied = await self._rewriter.rewrite(path)
        except CorruptError as error:
            self._leave(usage.log_id, error)
            return
        except FileNotFoundError as error:
            raise StorageError(f"while compacting {path}: {error}") from error
        self._forget(usage.log_id)
        freed = Freed(
            logs=1,
            size_bytes=usage.total_bytes - copied.size_bytes,
            by_compaction=True,
            copied_entries=copied.entries,
            copied_bytes=copied.size_bytes,
        )
        self.status = self.status.freed(freed)
        log.info(
            "compacted {path}: {entries} entries kept, {size_bytes} bytes freed",
            path=path,
            entries=copied.entries,
            size_bytes=freed.size_bytes,
        )


def _tell(whence: str, suspended: Suspended) -> None:
    log.info(
        "compaction, {whence}: minor {minor}, major {major}",
        whence=whence,
        minor="suspended" if suspended.minor else "allowed",
        major="suspended" if suspended.major else "allowed",
    )


def _usable_bytes(files: Files, directories: Sequence[Path]) -> int:
    return max(files.disk_usage(directory)[1] for directory in directories)
