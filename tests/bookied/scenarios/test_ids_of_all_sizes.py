"""Ids at all powers of two through the whole life of an entry: no step may cost what an id says.

From the add to the offline tools, on a real disk, with index files and with RocksDB. Bounded are
the lines of Python that run, and what is allocated.
"""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bookied.offline.check.check import stages
from bookied.offline.check.findings import DiskFinding, Findings
from bookied.offline.journal_tail import read_tail
from bookied.offline.ledgers import local_ledgers, placed_entries
from bookied.offline.repair.convert import Conversion
from bookied.offline.repair.convert_logs import ConversionRefusedError
from bookied.offline.repair.flush import flush
from bookied.offline.repair.open_storages import open_rocks, storages_of
from bookied.offline.repair.rebuild_db import RebuildDb
from bookied.offline.repair.rebuild_index import rebuild
from bookied.offline.repair.salvage import salvage
from bookied.storage.entrylog.format import LogHeader
from bookied.storage.files.files import RealFiles
from bookied.storage.index.format import ENTRY_ID_MAX
from bookied.storage.journal.format import entry_record
from tests.bookied.worlds.real_world import RealWorld
from tests.support.bounded_work import at_most
from tests.support.stored_entries import stored_entries
from wire.errors import NoSuchEntryError
from wire.ids import LedgerId

ENTRIES = [0, *(1 << power for power in range(41)), *((1 << power) - 1 for power in (10, 11, 40))]
LEDGERS = [*(1 << power for power in range(0, 63, 7)), 2**63 - 1]
BEYOND = [-(2**63), -(2**40), -2, -1, *(1 << power for power in range(41, 63)), 2**63 - 1]
"""Ids that we refuse, and that a file may have nevertheless."""

EXTREMES = [0, 1, 1023, 1024, 2**30, 2**31, 2**32 - 1, ENTRY_ID_MAX - 1, ENTRY_ID_MAX]

STEPS_MAX = 2_000_000
"""About 100 lines a page: a ledger has 42 of them; one that is counted through has 2**30."""

MEMORY_BYTES_MAX = 32 << 20

assert ENTRY_ID_MAX == 2**40


@contextmanager
def bounded() -> Iterator[None]:
    """Fail where the body runs away, in time or in memory."""
    tracemalloc.start()
    try:
        with at_most(STEPS_MAX):
            yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_BYTES_MAX, f"{peak} bytes"


def filled(root: Path, *, db: bool) -> RealWorld:
    """Return a bookie with a ledger of all sizes of entry ids, and ledgers of all sizes of ids."""
    world = RealWorld(root, db=db)
    for entry_id in ENTRIES:
        world.add(7, entry_id, 40)
    for ledger_id in LEDGERS:
        for entry_id in EXTREMES[ledger_id % 2 :: 2]:
            world.add(ledger_id, entry_id, 40)
    return world


def checkpoint(world: RealWorld) -> None:
    for journal in world.journals:
        while journal.step():
            pass
    world._act_on_checkpoint()
    world.run_jobs()
    assert world.checkpointing is not None
    assert world.checkpointing.called


@pytest.fixture(params=[False, True], ids=["files", "db"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealWorld]:
    with bounded():
        world = filled(tmp_path, db=request.param)
        checkpoint(world)
    yield world
    if world.is_up:
        world.is_up = False
        world.close()


def stopped(world: RealWorld) -> None:
    with bounded():
        world.close()
    world.is_up = False


def test_entries_are_read_from_memory_and_from_disk_and_ledgers_leave_memory(
    world: RealWorld,
) -> None:
    for _ in range(2):
        with bounded():
            for ledger_id, asked in world.model.items():
                for entry_id in asked.packets:
                    assert world.read(ledger_id, entry_id) == asked.packets[entry_id][-1]
                for storage in world.storages:
                    storage.drop_idle()
    assert sum(storage.memory.evicted_ledgers for storage in world.storages) >= len(LEDGERS)


def test_ids_around_those_of_entries_are_no_entries(world: RealWorld) -> None:
    with bounded():
        for power in range(64):
            for entry_id in ((1 << power) + 3, -(1 << power)):
                with suppress(NoSuchEntryError):
                    assert world.read(1, entry_id) is None


def test_entries_are_listed_one_by_one(world: RealWorld) -> None:
    with bounded():
        held = stored_entries(world.storages.of(7), 7)
    assert held == sorted(set(ENTRIES))


def test_a_list_of_entries_takes_the_memory_of_one_page(tmp_path: Path) -> None:
    world = RealWorld(tmp_path)
    wanted = range(0, 1024 * 1024, 1024)
    for entry_id in wanted:
        world.add(7, entry_id, 0)
    checkpoint(world)
    tracemalloc.start()
    try:
        assert len(stored_entries(world.storages.of(7), 7)) == len(wanted)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 256 << 10
    world.close()


def test_ledgers_are_collected_and_logs_compacted(world: RealWorld) -> None:
    for ledger_id in LEDGERS[::2]:
        world.delete(ledger_id)
    for entry_id in ENTRIES:
        world.add(7, entry_id, 40)  # What the logs had of them before is dead now.
    with bounded():
        checkpoint(world)
    with bounded():
        world.collect()
    with bounded():
        world.check()
    assert world.collectors[0].status.ledgers_dropped == len(LEDGERS[::2])


def abandon(world: RealWorld) -> None:
    """End the bookie once its journals have all, and without a checkpoint."""
    for journal in world.journals:
        while journal.step():
            pass
        journal.stop()
    for storage in world.storages:
        storage.abandon()


def test_a_restart_replays_them(world: RealWorld) -> None:
    for ledger_id in LEDGERS:
        world.add(ledger_id, 2**39, 40)
    abandon(world)
    with bounded():
        world.start()
    assert world.replayed.entries >= len(LEDGERS)
    with bounded():
        world.check()


HUGE = 3 << 42


@pytest.mark.parametrize("suffix", [".txn", ".log", ".idx"])
def test_a_hole_of_terabytes_behind_a_file_costs_no_start_and_no_tool(
    tmp_path: Path, suffix: str
) -> None:
    world = filled(tmp_path, db=False)
    checkpoint(world)
    world.add(7, 5, 40)
    abandon(world)
    for path in tmp_path.rglob(f"*{suffix}"):
        os.truncate(path, HUGE)
    with bounded():
        checks(world)
    with bounded():
        world.start()
    with bounded():
        world.collect()
    with bounded():
        world.check()
    world.close()


def checks(world: RealWorld) -> list[DiskFinding]:
    bookie, findings = world.offline, Findings()
    with bookie.shards() as shards:
        parts = stages(bookie, findings, shards=shards, deep=True)
        return [found for part in parts for found in part.run(lambda _done, _items: None)]


def listed(world: RealWorld) -> None:
    reports: list[object] = []
    tail = read_tail(world.offline, reports.append)
    ledgers = local_ledgers(world.offline, tail, reports.append)
    assert {one.ledger_id for one in ledgers} == world.model.keys()
    entries = placed_entries(world.offline, LedgerId(7), report=reports.append)
    assert [one.entry_id for one in entries] == sorted(set(ENTRIES))
    assert reports == []


def checked(world: RealWorld) -> None:
    assert {one.kind for one in checks(world)} <= {"cookie-missing", "unindexed"}


def salvaged(world: RealWorld) -> None:
    found = salvage(RealFiles(), world.found, 7, world.root / "out")
    assert (found.first, found.damaged) == (0, [])
    assert found.last in (ENTRY_ID_MAX, BEYOND[-1])


def rebuilt(world: RealWorld) -> None:
    if world.db:
        work = RebuildDb(RealFiles(), world.found, open_rocks, "stamp")
        work.ledgers(lambda _ledger_id: (b"key", "told"))
        work.locations()
    else:
        done = rebuild(RealFiles(), world.found, None, key_of=lambda _ledger_id: (b"key", "told"))
        assert {one.ledger_id for one in done.ledgers} == world.model.keys()


def flushed(world: RealWorld) -> None:
    flush(RealFiles(), world.found, storages_of(RealFiles(), world.found))


def converted(world: RealWorld) -> None:
    work = Conversion(RealFiles(), world.found, open_rocks, "stamp")
    done = work.to_interleaved() if world.db else work.to_db()
    assert done.ledgers == len(world.model)


@pytest.mark.parametrize("tool", [listed, checked, flushed, salvaged, rebuilt, converted])
def test_the_offline_tools_are_done_soon(
    world: RealWorld, tool: Callable[[RealWorld], None]
) -> None:
    stopped(world)
    with bounded():
        tool(world)
    assert_all_are_there(world, db=world.db != (tool is converted))


def assert_all_are_there(world: RealWorld, *, db: bool) -> None:
    world.db = db
    with bounded():
        world.start()
    with bounded():
        for ledger_id, asked in world.model.items():
            for entry_id in asked.packets:
                assert world.read(ledger_id, entry_id) == asked.packets[entry_id][-1]


# Files with ids that no add has -------------------------------------------------------------------


def with_records_beyond(world: RealWorld) -> Path:
    """Put a log into a stopped bookie's directory whose records have ids that no add has."""
    path = world.ledger_dirs[0] / "f00.log"
    records = (
        struct.pack(">iqqqq", 32 + 7, ledger_id, entry_id, -1, 0) + b"payload"
        for ledger_id in (7, *LEDGERS)
        for entry_id in BEYOND
    )
    path.write_bytes(LogHeader().encode() + b"".join(records))
    return path


@pytest.mark.parametrize("tool", [listed, checked, flushed, salvaged, rebuilt, converted])
def test_ids_in_files_that_no_add_may_have_stop_no_tool(
    world: RealWorld, tool: Callable[[RealWorld], None]
) -> None:
    stopped(world)
    with_records_beyond(world)
    with bounded():
        tool(world)


def test_entries_without_a_place_in_index_files_keep_the_databases(tmp_path: Path) -> None:
    world = RealWorld(tmp_path, db=True)
    world.add(7, ENTRY_ID_MAX + 1, 40)  # As Java takes it.
    checkpoint(world)
    stopped(world)
    with bounded(), pytest.raises(ConversionRefusedError, match="ledger 7 has entry 1099511627777"):
        converted(world)


@pytest.mark.parametrize("entry_id", [ENTRY_ID_MAX + 1, 2**60, 2**62, 2**63 - 1])
def test_a_journal_with_such_ids_stops_no_start(tmp_path: Path, entry_id: int) -> None:
    world = RealWorld(tmp_path)
    world.add(7, 1, 40)
    record = entry_record(struct.pack(">qqqq", 7, entry_id, -1, 0) + b"payload")
    world.journals[0].append(record, lambda: None)
    world.journals[0].step()
    world.journals[0].stop()
    for storage in world.storages:
        storage.abandon()
    with bounded():
        world.start()
    assert stored_entries(world.storages.of(7), 7) == [1]
    with bounded():
        world.check()
    world.close()


def test_ids_in_files_that_no_add_may_have_stop_no_collection(world: RealWorld) -> None:
    stopped(world)
    path = with_records_beyond(world)
    world.start()
    for ledger_id in LEDGERS:
        world.delete(ledger_id)
    with bounded():
        world.collect()
    assert not path.exists()
    with bounded():
        world.check()
