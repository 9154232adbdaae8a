"""What many ledgers cost the storage engine: a checkpoint of new ones, of old ones, a start.

    python -m tests.bench.ledgers_bench [--ledgers 10000] [--directory DIR]

Every ledger gets one entry of 100 bytes, then one more after a restart, so that each checkpoint has
a page and, the first time, a header for each. No sockets and no journal. Prints, asserts nothing.
"""

from __future__ import annotations

import argparse
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path

from bookied.storage.files.files import RealFiles
from bookied.storage.index.files import IndexFiles
from bookied.storage.ledger_storage.settings import StorageEvents, StorageLimits
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.replay import do_now, run_now
from tests.bench.loads.load import peak_rss_bytes, rss_bytes

KEY = b"k" * 20


def packet(ledger_id: int, entry_id: int) -> bytes:
    return struct.pack(">qqqq", ledger_id, entry_id, -1, 100) + bytes(100)


def open_storage(current: Path) -> LedgerStorage:
    files, limits = RealFiles(), StorageLimits()
    index = IndexFiles(files, [current], open_files_max=limits.open_indexes_max)
    storage = LedgerStorage(
        files, [current], index, events=StorageEvents(on_fatal=print), limits=limits
    )
    started_s = time.perf_counter()
    storage.open()
    took_s = time.perf_counter() - started_s
    print(f"opened {len(storage.ledgers.ids()):,} ledgers in {took_s:.2f} s; {memory()}")
    storage.start()
    return storage


def memory() -> str:
    pid = "self"
    return f"RSS {rss_bytes(pid) / 2**20:.0f} MB, at most {peak_rss_bytes(pid) / 2**20:.0f}"


def add_to_all(storage: LedgerStorage, ledgers: int, entry_id: int) -> None:
    """Add an entry to each ledger; print what the checkpoints cost."""
    checkpoints, wall_s, cpu_s = 0, 0.0, 0.0
    began_s = time.perf_counter()
    for ledger_id in range(ledgers):
        state = storage.ledgers.lookup(ledger_id) or storage.ledgers.create(ledger_id, KEY)
        storage.adds.add(state, entry_id, packet(ledger_id, entry_id))
        if storage.needs_checkpoint or ledger_id == ledgers - 1:
            started_s, started_cpu_s = time.perf_counter(), time.process_time()
            run_now(storage.flush(do_now))
            wall_s += time.perf_counter() - started_s
            cpu_s += time.process_time() - started_cpu_s
            checkpoints += 1
    total_s = time.perf_counter() - began_s
    print(
        f"entry {entry_id} of {ledgers:,} ledgers: {checkpoints} checkpoints, "
        f"{wall_s * 1e3 / ledgers:.3f} ms a ledger, {cpu_s * 1e3 / ledgers:.3f} ms of CPU; "
        f"{total_s:.1f} s in all; {memory()}"
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ledgers", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, help="a disk to measure on; default: temporary")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="ledgers-bench-", dir=options.directory))
    try:
        for entry_id in range(2):
            storage = open_storage(root)
            add_to_all(storage, options.ledgers, entry_id)
            storage.abandon()
    finally:
        shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
