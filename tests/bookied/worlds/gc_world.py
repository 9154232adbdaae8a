"""A bookie's storage with its collector on a simulated disk, and a model of what has to be there.

Checkpoints and collections are coroutines whose blocking steps wait in one queue; ``act`` runs any
of them, so that they interleave with each other and with clients in every way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bookied.errors import CorruptError, NoWritableDirError, StorageError
from bookied.storage.checkpoints import Checkpoints
from bookied.storage.garbage.collector import Collector
from bookied.storage.garbage.collector_state import CollectorEffects, CollectorSettings
from bookied.storage.garbage.compaction_rules import Schedule, Schedules
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.ledger_storage.reads import NeedsDisk
from tests.bookied.worlds.storage_world import Blocking, Submitted, Turns, World
from tests.sim.world.disk import SECTOR
from wire.errors import BookKeeperError, NoSuchEntryError
from wire.ids import LedgerId

NEVER_S = 1e9


class MetadataAwayError(BookKeeperError):
    """The metadata service is away."""


@attrs.define
class ReadUnderWay:
    """A read that knows where to look and has not looked yet."""

    ledger_id: int
    entry_id: int
    location: int
    asked: Submitted
    oldest: int
    """The answer must not be older than this version."""


class GcWorld(World):
    """``existing`` is what the metadata has; clients delete ledgers there, and create them anew."""

    def __init__(
        self, seed: int, *, settings_options: dict[str, Any] | None = None, **options: Any
    ) -> None:
        """Make an empty bookie; ``settings_options`` win over what the seed says."""
        self.clock = Clock()
        self.existing: set[int] = set()
        self.is_metadata_away = False
        self.epoch = 0
        self.jobs: list[tuple[Callable[[], Any], Deferred[Any]]] = []
        self.checkpointing: Deferred[Any] | None = None
        self.collecting: Deferred[Any] | None = None
        self.reads: list[ReadUnderWay] = []
        self.settings_options = settings_options or {}
        self.fences: set[int] = set()
        """Deleted ledgers whose fence was acknowledged."""
        self.deletions_fault: Callable[[], object] = lambda: None
        """Called where what is deleted is to be remembered over a restart."""
        self.wrongs: list[str] = []
        """What a collector did and should not have."""
        super().__init__(seed, **options)

    # The bookie -----------------------------------------------------------------------------------

    def start(self) -> None:
        self.epoch += 1
        self.jobs.clear()
        self.reads.clear()
        self.checkpointing = self.collecting = None
        self.files.tear_bytes = SECTOR
        super().start()
        run = partial(self._run_blocking, self.epoch)
        self.checkpoints = Checkpoints(
            self.clock, self.storages, self.journals, run_blocking=run, failed=self.fatal.append
        )
        effects = CollectorEffects(
            garbage=self,
            checkpoint=self.checkpoints.now,
            run_blocking=run,
            ledger_deleted=self._ledger_deleted,
            keep_deletions=self._keep_deletions,
        )
        self.collectors = [
            Collector(self.files, storage, self.clock, self.settings(), effects)
            for storage in self.storages
        ]
        for collector in self.collectors:
            collector.start()

    def settings(self) -> CollectorSettings:
        schedule = Schedule(threshold=0.999, interval_s=NEVER_S, time_s_max=None)
        options: dict[str, Any] = {
            "wait_s": NEVER_S,
            "schedules": Schedules(minor=schedule, major=schedule),
            "copied_per_s": 1e12,
            "throttle_by_bytes": self.rng.random() < 0.5,
            "outstanding_max": self.rng.choice([1, 3, 1000]),
            "transactional": self.rng.random() < 0.5,
            "target_bytes": self.rng.choice([None, None, 100_000]),
            "collects_when_full": False,
            "excess_wait_s": None,
            "free_bytes_min": 0,
            "direct": self.rng.random() < 0.5,
        }
        return CollectorSettings(**(options | self.settings_options))

    def _run_blocking(self, epoch: int, action: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        if epoch == self.epoch:
            self.jobs.append((action, done))
        return done

    def run_job(self) -> bool:
        """Run one of the blocking steps that wait; return whether there was any."""
        self.clock.advance(0)
        if not self.jobs:
            return False
        action, done = self.jobs.pop(self.rng.randrange(len(self.jobs)))
        try:
            value = action()
        except Exception as error:  # noqa: BLE001 -- it comes out where it is awaited
            done.errback(error)
        else:
            done.callback(value)
        return True

    def run_jobs(self) -> None:
        while self.run_job():
            pass

    def stop(self) -> None:
        stopping = [Deferred.fromCoroutine(collector.stop()) for collector in self.collectors]
        self.run_jobs()
        assert all(one.called for one in stopping)
        for journal in self.journals:
            journal.stop()
        Turns(self.storages.stop(self.journals, Blocking)).finish()

    def crash(self) -> None:
        self.files.crash()
        self.start()

    def die(self) -> None:
        """Be killed, and start again on a sound disk.

        Where the disk failed to sync a switch of locations, the system's memory of the file is not
        what the disk has, and no process can tell: then the power goes too.
        """
        self.files.fault = self.files.bytes_max = None
        is_sure = not any(storage.relocation.is_unsure for storage in self.storages)
        if is_sure and self.rng.random() < 0.5:
            self.files.kill()
        else:
            self.files.crash()
        self.fatal.clear()
        self.start()

    def collect(self) -> None:
        """Collect to the end, and check that it worked."""
        for collector in self.collectors:
            failed = collector.status.failed_rounds
            done = collector.collect()
            self.run_jobs()
            assert done.called, "the collection waits for something"
            assert collector.status.failed_rounds == failed, collector.status.last_error
        self.collecting = None

    # What the metadata says -----------------------------------------------------------------------

    async def gone(self, local: Sequence[int]) -> list[LedgerId]:
        run = partial(self._run_blocking, self.epoch)
        await run(lambda: None)
        existing = set(self.existing)
        await run(lambda: None)
        if self.is_metadata_away:
            raise MetadataAwayError("away")
        return [LedgerId(one) for one in sorted(local) if one not in existing]

    async def over_replicated(self, local: Any, drop: Any) -> None:
        raise AssertionError("not here")

    def _ledger_deleted(self, ledger_id: LedgerId, *, was_fenced: bool, lives_on: bool) -> None:
        assert not lives_on
        asked = self.model.get(ledger_id)
        if asked is not None and asked.acked:
            self.wrongs.append(f"ledger {ledger_id} is dropped, and is needed")
        if ledger_id in self.fences and not was_fenced:
            self.wrongs.append(f"the fence of ledger {ledger_id} is forgotten")
        # Reported: what is written under this id from now on is a ledger without a fence.
        self.fences.discard(ledger_id)

    async def _keep_deletions(self) -> None:
        def keep() -> None:
            self.deletions_fault()

        await self._run_blocking(self.epoch, keep)

    # What clients ask -----------------------------------------------------------------------------

    def add(self, ledger_id: int, entry_id: int, size: int) -> None:
        self.existing.add(ledger_id)
        super().add(ledger_id, entry_id, size)

    def fence(self, ledger_id: int) -> None:
        self.existing.add(ledger_id)
        super().fence(ledger_id)

    def explicit_lac(self, ledger_id: int) -> None:
        self.existing.add(ledger_id)
        super().explicit_lac(ledger_id)

    def delete(self, ledger_id: int) -> None:
        """Delete a ledger from the metadata; the collector finds that out some day."""
        self.existing.discard(ledger_id)
        asked = self.model.get(ledger_id)
        if asked is not None:
            if asked.fence_acked:
                self.fences.add(ledger_id)
            self.model[ledger_id] = Submitted(
                asked.master_key,
                {entry: list(versions) for entry, versions in asked.packets.items()},
                fence_asked=asked.fence_asked,
                lacs=list(asked.lacs),
            )

    def begin_read(self) -> None:
        """Look up where some acknowledged entry is, as the reactor does."""
        wanted = [
            (ledger_id, entry_id)
            for ledger_id, asked in self.model.items()
            for entry_id in asked.acked
        ]
        if not wanted:
            return
        ledger_id, entry_id = self.rng.choice(wanted)
        storage = self.storages.of(ledger_id)
        state = storage.ledgers.lookup(ledger_id)
        assert state is not None
        found = storage.reads.read_memory(state, entry_id)
        asked = self.model[ledger_id]
        if isinstance(found, NeedsDisk):
            oldest = asked.acked[entry_id]
            read = ReadUnderWay(ledger_id, entry_id, found.location, asked, oldest)
            self.reads.append(read)

    def finish_read(self) -> None:
        """Read what was looked up, as a thread does some time later."""
        if not self.reads:
            return
        read = self.reads.pop(self.rng.randrange(len(self.reads)))
        storage = self.storages.of(read.ledger_id)
        is_needed = self.model[read.ledger_id] is read.asked
        try:
            packet = storage.reads.read_disk(read.location, read.ledger_id, read.entry_id)
        except (CorruptError, NoSuchEntryError):
            assert not is_needed, f"entry {read.entry_id} of ledger {read.ledger_id} is unreadable"
        else:
            versions = self.model[read.ledger_id].packets[read.entry_id]
            assert versions.index(packet) >= (read.oldest if is_needed else 0)

    # Random life ----------------------------------------------------------------------------------

    def act(self) -> None:
        choice = self.rng.random()
        if choice < 0.35:
            for _ in range(self.rng.randrange(4)):
                self.run_job()
        elif choice < 0.40:
            self.begin_collection()
        elif choice < 0.45:
            self.begin_read()
        elif choice < 0.50:
            self.finish_read()
        elif choice < 0.52 and self.model:
            self.delete(self.rng.choice(list(self.model)))
        elif choice < 0.53:
            self.is_metadata_away = self.rng.random() < 0.3
        else:
            super().act()

    def begin_collection(self) -> None:
        if self.collecting is None or self.collecting.called:
            collector = self.rng.choice(self.collectors)
            self.collecting = collector.collect(major=self.rng.random() < 0.8)

    def _act_on_checkpoint(self) -> None:
        if self.checkpointing is None or self.checkpointing.called:
            self.checkpointing = Deferred.fromCoroutine(self.checkpoints.now())
            self.checkpointing.addErrback(self._checkpoint_failed)
        for _ in range(self.rng.randrange(6)):
            self.run_job()

    def _checkpoint_failed(self, failure: Any) -> None:
        # What a crash abandons ends when Python collects it, and wakes who waited for it.
        if not (failure.check(RuntimeError) and "already awaited" in str(failure.value)):
            failure.trap(StorageError, OSError, NoWritableDirError)

    # What has to hold -----------------------------------------------------------------------------

    def forget_what_was_lost(self) -> None:
        super().forget_what_was_lost()
        for ledger_id in {*self.model} - self.existing:
            self.delete(ledger_id)

    def unreadable_logs(self) -> set[int]:
        return {one for collector in self.collectors for one in collector._census.unreadable}

    def check(self) -> None:
        assert self.wrongs == []
        super().check()

    def log_names(self) -> set[str]:
        """Return the names of all files of entry logs, whatever their state."""
        names = {name for directory in self.ledger_dirs for name in self.files.list(directory)}
        return {name for name in names if ".log" in name}


def index_of(world: GcWorld) -> IndexFiles:
    """Return the index of a world with one storage."""
    (storage,) = world.storages
    assert isinstance(storage._index, IndexFiles)
    return storage._index
