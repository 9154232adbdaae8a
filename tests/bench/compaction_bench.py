"""What compaction moves a second, and what it leaves of adds/s. Prints, asserts nothing.

    python -m tests.bench.compaction_bench [--directory DIR] [--seconds 10] [--size 1024]
        [--dead 0.7] [--rate 0] [--transactional] [--db]

One process holds a client and a bookie's storage, journal (fdatasync on), checkpoints and collector
as a bookie has them, on a real reactor; the client adds entries of several ledgers in turn, at most
``--window`` of them unacknowledged. Filled first: ``--fill`` MiB of logs, of which ``--dead`` is
deleted. Then it adds for so many seconds without a collector, then while logs are rewritten, and
without once more.
Both CPU and interpreter are shared by all of that: a bookie of its own has it easier.
"""

from __future__ import annotations

import argparse
import shutil
import struct
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from twisted.internet import reactor as any_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from bookied.config.db import RocksSettings
from bookied.storage.checkpoints import Checkpoints
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.files.files import RealFiles
from bookied.storage.garbage.collector import Collector
from bookied.storage.garbage.collector_state import CollectorEffects, CollectorSettings
from bookied.storage.garbage.compaction_rules import Schedule, Schedules
from bookied.storage.garbage.unneeded_ledgers import LedgerGarbage
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.rocks.database import ledgers_options, open_database
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.index.store import IndexStore
from bookied.storage.journal.journal_settings import JournalEvents
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents, StorageLimits
from bookied.storage.replay import recover
from bookied.storage.storages import Storages
from wire.ids import LedgerId

LEDGERS = 16
PER_TURN = 32
reactor: Any = any_reactor


class Bench:
    """One storage, and a client beside it."""

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self.options, self.root = options, root
        self.deleted: set[int] = set()
        self.sent = self.acked = 0
        self.waits_s: list[float] = []
        for name in ("journal", "ledgers"):
            (root / name).mkdir()
        index = self._index()
        self.storage = LedgerStorage(
            RealFiles(),
            [root / "ledgers"],
            index,
            events=StorageEvents(on_fatal=print),
            limits=StorageLimits(),
            log_settings=LogSettings(size_bytes_max=options.log * 1024 * 1024),
        )
        self.storages = Storages(RealFiles(), [self.storage])
        self.storages.open()
        recover(RealFiles(), self.storages, [root / "journal"])
        self.journal = Journal(
            RealFiles(),
            root / "journal",
            call_from_thread=reactor.callFromThread,
            events=JournalEvents(on_synced=self._synced, on_fatal=print),
            now_ms=lambda: int(time.time() * 1000),
        )
        self.storages.start()
        self.journal.start()
        self.checkpoints = Checkpoints(
            reactor, self.storages, [self.journal], run_blocking=deferToThread, failed=print
        )
        self.checkpoints.start(10.0)
        self.collector = self._collector()
        self.next_entry = dict.fromkeys(range(LEDGERS), 0)
        self.next_ledger = LEDGERS

    def _index(self) -> IndexStore:
        directory = self.root / "ledgers"
        if not self.options.db:
            return IndexFiles(RealFiles(), [directory])
        settings = RocksSettings()
        return RocksIndex(
            directory, lambda path: open_database(path, lambda: ledgers_options(settings))
        )

    def _collector(self) -> Collector:
        schedule = Schedule(threshold=0.99, interval_s=1e9, time_s_max=None)
        settings = CollectorSettings(
            wait_s=1e6,
            schedules=Schedules(minor=schedule, major=schedule),
            copied_per_s=self.options.rate or 1e9,
            throttle_by_bytes=False,
            outstanding_max=100_000,
            transactional=self.options.transactional,
            target_bytes=None,
            collects_when_full=False,
            excess_wait_s=None,
            free_bytes_min=0,
        )
        effects = CollectorEffects(
            garbage=cast("LedgerGarbage", self),
            checkpoint=self.checkpoints.now,
            run_blocking=deferToThread,
            ledger_deleted=lambda *_ids, **_what: None,
            keep_deletions=self._nothing,
        )
        return Collector(RealFiles(), self.storage, reactor, settings, effects)

    async def gone(self, local: Any) -> list[LedgerId]:
        """Return what of the local ledgers was deleted."""
        return [LedgerId(one) for one in sorted(self.deleted.intersection(local))]

    async def over_replicated(self, local: Any, drop: Any) -> None:
        """None is kept in excess."""

    async def _nothing(self) -> None:
        """Nobody fenced anything."""

    def _synced(self, dones: list[tuple[int, float]]) -> None:
        now_s = time.perf_counter()
        for adds, sent_s in dones:
            self.acked += adds
            self.waits_s.append(now_s - sent_s)

    # Adds -----------------------------------------------------------------------------------------

    def add_some(self) -> None:
        """Add a run of entries to each of the ledgers that are being written."""
        size = self.options.size
        body, prefix = b"x" * (size - 32), struct.pack(">i", size)
        for ledger_id in list(self.next_entry):
            state = self.storage.hot.get(ledger_id) or self.storage.ledgers.create(
                ledger_id, b"k" * 20
            )
            first = self.next_entry[ledger_id]
            base = self.storage.adds.reserve(PER_TURN * (size + 4)) + 4
            records: list[bytes] = []
            for entry_id in range(first, first + PER_TURN):
                page = state.page_for_write(entry_id >> 10)
                page[entry_id & 1023] = base
                base += size + 4
                records += prefix, struct.pack(">qqqq", ledger_id, entry_id, entry_id - 1, 0), body
            blob = b"".join(records)
            self.storage.adds.append(blob, ((ledger_id, len(blob)),))
            state.last_entry = first + PER_TURN - 1
            key = b"" if state.key_logged else self.storage.ledgers.key_record(state)
            state.key_logged = True
            self.journal.append(key + blob, (PER_TURN, time.perf_counter()))
            self.next_entry[ledger_id] = first + PER_TURN
            self.sent += PER_TURN

    async def run_adds(self, until: Any) -> float:
        """Add until ``until()``; return adds/s that were acknowledged."""
        began_s, acked = time.perf_counter(), self.acked
        self.waits_s.clear()
        while not until():
            busy = self.storage.unwritten_bytes > self.storage.limits.unwritten_bytes_max
            if self.sent - self.acked < self.options.window and not busy:
                self.add_some()
                await deferLater(reactor, 0)
            else:
                await deferLater(reactor, 0.001)
        return (self.acked - acked) / (time.perf_counter() - began_s)

    def new_ledgers(self) -> None:
        """Go on with ledgers of their own."""
        self.next_entry = dict.fromkeys(range(self.next_ledger, self.next_ledger + LEDGERS), 0)
        self.next_ledger += LEDGERS

    # The run --------------------------------------------------------------------------------------

    async def run(self) -> None:
        options = self.options
        wanted = options.fill * 1024 * 1024 // options.size
        await self.run_adds(lambda: self.sent >= wanted)
        filled = sorted(self.next_entry)
        self.new_ledgers()
        self.storage._log.finish()
        await self.checkpoints.now()
        plain = await self._measure("adds alone", self._timer(options.seconds))
        self.deleted.update(filled[: round(len(filled) * options.dead)])
        compacting: Deferred[Any] = self.collector.collect()
        began_s, loaded_s = time.perf_counter(), time.thread_time()
        beside = await self._measure("adds beside compaction", lambda: compacting.called)
        took_s = time.perf_counter() - began_s
        status = self.collector.status
        print(
            f"compaction {'transactional' if options.transactional else 'in place'}"
            f"{', RocksDB index' if options.db else ''}: {status.logs_removed} logs in"
            f" {took_s:.2f} s, {status.copied_entries:,} entries copied,"
            f" {status.copied_bytes / took_s / 1e6:.1f} MB/s copied,"
            f" {status.copied_entries / took_s:,.0f} entries/s,"
            f" {(status.freed_by_compaction_bytes + status.freed_by_removal_bytes) / 1e6:,.0f} MB"
            f" freed, reactor {100 * (time.thread_time() - loaded_s) / took_s:.0f} % busy"
        )
        after = await self._measure("adds alone again", self._timer(options.seconds))
        kept = 2 * beside / (plain + after)
        print(f"adds/s kept: {100 * kept:.0f} %; error: {status.last_error}")

    def _timer(self, seconds: float) -> Any:
        end_s = time.perf_counter() + seconds
        return lambda: time.perf_counter() >= end_s

    async def _measure(self, what: str, until: Any) -> float:
        adds_per_s = await self.run_adds(until)
        waits = sorted(self.waits_s) or [0.0]
        p50, p99, p999 = (1000 * waits[int(len(waits) * part)] for part in (0.5, 0.99, 0.999))
        print(f"{what}: {adds_per_s:,.0f}/s; p50 {p50:.2f} p99 {p99:.1f} p99.9 {p999:.1f} ms")
        return adds_per_s

    async def stop(self) -> None:
        await self.collector.stop()
        await self.checkpoints.stop()
        await deferToThread(self.journal.stop)
        await self.storages.stop([self.journal], deferToThread)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--window", type=int, default=4096)
    parser.add_argument("--fill", type=int, default=512, help="MiB")
    parser.add_argument("--log", type=int, default=64, help="logSizeLimit in MiB")
    parser.add_argument("--dead", type=float, default=0.7)
    parser.add_argument("--rate", type=int, default=0, help="entries/s; 0 means no limit")
    parser.add_argument("--transactional", action="store_true")
    parser.add_argument("--db", action="store_true", help="index in RocksDB")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="compaction-bench-", dir=options.directory))

    async def run() -> None:
        bench = Bench(root, options)
        try:
            await bench.run()
        finally:
            await bench.stop()
            shutil.rmtree(root)
            reactor.stop()

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(run()).addErrback(print))
    reactor.run()


if __name__ == "__main__":
    main()
