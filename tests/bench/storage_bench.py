"""What an add costs the storage engine and the journal, fdatasync on. Prints, asserts nothing.

    python -m tests.bench.storage_bench [--directory DIR] [--seconds 5] [--size 1024]

A loop in place of the reactor appends blobs of 64 KiB, as one read from a socket brings them, sets
an index slot for each entry, and lets at most ``--window`` adds wait for the journal. "loop us/add"
is the CPU time of that loop's thread (reactor work without parsing and answering), "cpu us/add"
that of the process with its threads.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import struct
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from bookied.config.db import RocksSettings
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.files.files import RealFiles
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.rocks.database import open_of_index
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.index.store import IndexStore
from bookied.storage.journal.journal_settings import JournalEvents, JournalSettings
from bookied.storage.journal.writer import Journal
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents, StorageLimits
from bookied.storage.replay import do_now, recover, run_now
from bookied.storage.storages import Storages

LEDGER = 7
BLOB_BYTES = 65536


class Loop:
    """Stands in for the reactor: runs what other threads ask for, on the thread that asks it to."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()

    def call_from_thread(self, function: Callable[..., object], *args: object) -> None:
        self._calls.put((function, args))

    def turn(self, *, wait: bool) -> None:
        while wait or not self._calls.empty():
            function, args = self._calls.get()
            function(*args)
            wait = False


class Bench:
    """One bookie's storage and journal under a steady load."""

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self.options, self.root = options, root
        self.loop = Loop()
        self.acked = 0
        self.waits_s: list[float] = []
        for name in ("journal", "ledgers"):
            (root / name).mkdir()
        self.journal = Journal(
            RealFiles(),
            root / "journal",
            call_from_thread=self.loop.call_from_thread,
            events=JournalEvents(on_synced=self._synced, on_fatal=print),
            now_ms=lambda: int(time.time() * 1000),
            settings=JournalSettings(
                preallocate=options.preallocate * 1024 * 1024,
                remove_from_page_cache=options.direct,
                alignment=options.alignment,
            ),
        )
        self.storage = self._new_storage()
        self.storage.open()
        self.storages = Storages(RealFiles(), [self.storage])
        recover(RealFiles(), self.storages, [root / "journal"])
        self.storage.start()
        self.journal.start()

    def _new_storage(self) -> LedgerStorage:
        files, ledgers = RealFiles(), self.root / "ledgers"
        return LedgerStorage(
            files,
            [ledgers],
            self._new_index(files, ledgers),
            events=StorageEvents(on_fatal=print),
            limits=StorageLimits(),
            log_settings=LogSettings(direct=not self.options.buffered),
        )

    def _new_index(self, files: RealFiles, ledgers: Path) -> IndexStore:
        if self.options.db:
            return RocksIndex(ledgers, partial(open_of_index, RocksSettings()))
        return IndexFiles(files, [ledgers])

    def _synced(self, dones: list[tuple[int, float]]) -> None:
        now_s = time.perf_counter()
        for adds, sent_s in dones:
            self.acked += adds
            self.waits_s.append(now_s - sent_s)

    def run(self) -> None:
        state = self.storage.ledgers.create(LEDGER, b"k" * 20)
        self.journal.append(self.storage.ledgers.key_record(state), (0, time.perf_counter()))
        state.key_logged = True
        size = self.options.size
        per_blob = max(1, min(BLOB_BYTES // size, self.options.window))
        body = bytes(range(1, 256)) * (size // 255 + 1)
        body = body[: size - 32]
        sent, deadline_s = 0, time.perf_counter() + self.options.seconds
        start_s, start_cpu_s, start_loop_s = (
            time.perf_counter(),
            time.process_time(),
            time.thread_time(),
        )
        while time.perf_counter() < deadline_s:
            full = sent - self.acked + per_blob > self.options.window
            self.loop.turn(wait=full)
            if self.storage.unwritten_bytes > self.storage.limits.unwritten_bytes_max:
                time.sleep(0.001)
                full = True
            if full:
                continue
            base = self.storage.adds.reserve(per_blob * (size + 4)) + 4
            records, page_no, page = [], -1, None
            prefix = struct.pack(">i", size)
            for entry_id in range(sent, sent + per_blob):
                if entry_id >> 10 != page_no:
                    page_no = entry_id >> 10
                    page = state.page_for_write(page_no)
                assert page is not None
                page[entry_id & 1023] = base
                base += size + 4
                records.append(prefix)
                records.append(struct.pack(">qqqq", LEDGER, entry_id, entry_id - 1, 0) + body)
            blob = b"".join(records)
            self.storage.adds.append(blob, ((LEDGER, len(blob)),))
            state.last_entry = sent + per_blob - 1
            self.journal.append(blob, (per_blob, time.perf_counter()))
            sent += per_blob
            if self.storage.needs_checkpoint:
                started_s = time.perf_counter()
                # On the loop's own thread for simplicity: the figure includes the pause.
                run_now(self.storages.checkpoint([self.journal], do_now))
                print(f"  checkpoint {1000 * (time.perf_counter() - started_s):.0f} ms")
        loop_s = time.thread_time() - start_loop_s
        while self.acked < sent:
            self.loop.turn(wait=True)
        wall_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
        self._report(sent, wall_s, cpu_s, loop_s)

    def _report(self, sent: int, wall_s: float, cpu_s: float, loop_s: float) -> None:
        waits = sorted(self.waits_s)
        p50, p99, p999 = (1000 * waits[int(len(waits) * part)] for part in (0.5, 0.99, 0.999))
        rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{self.options.size} B, window {self.options.window}: {sent / wall_s:,.0f} adds/s, "
            f"{wall_s * 1e6 / sent:.2f} us wall, {cpu_s * 1e6 / sent:.2f} us cpu, "
            f"{loop_s * 1e6 / sent:.2f} us loop; p50 {p50:.2f} p99 {p99:.1f} p99.9 {p999:.1f} ms; "
            f"max RSS {rss_mb:.0f} MB"
        )

    def restart(self) -> None:
        """Stop as kill -9 would, and say what the replay takes."""
        self.journal.stop()
        self.storages.abandon()
        storage = self._new_storage()
        storage.open()
        started_s = time.perf_counter()
        found = recover(RealFiles(), Storages(RealFiles(), [storage]), [self.root / "journal"])
        took_s = time.perf_counter() - started_s
        each_us = took_s * 1e6 / max(1, found.entries)
        print(
            f"replay of {found.entries:,} entries, {found.size_bytes / 1e6:,.0f} MB: "
            f"{took_s:.2f} s, {each_us:.2f} us an entry"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--window", type=int, default=1000)
    parser.add_argument("--buffered", action="store_true", help="entry log through the page cache")
    parser.add_argument("--db", action="store_true", help="the index of DbLedgerStorage")
    parser.add_argument("--preallocate", type=int, default=0, help="journal step in MiB")
    parser.add_argument("--direct", action="store_true", help="journal past the page cache")
    parser.add_argument("--alignment", type=int, default=512)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="storage-bench-", dir=options.directory))
    try:
        bench = Bench(root, options)
        bench.run()
        bench.restart()
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
