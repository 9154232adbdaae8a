"""One collector at work on a simulated disk: what goes, what stays, when, and how it ends."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from bkclient.concurrency import wall_s
from bookied.errors import IndexTruncatedError, StorageError
from bookied.storage.entrylog.format import MAP_PLACE_OFFSET, decode_header, file_name
from bookied.storage.garbage.compaction_rate import CollectionStoppedError
from bookied.storage.garbage.compaction_rules import CompactionKind, Schedule, Schedules
from bookied.storage.index.file_names import relative_path
from bookied.storage.index.format import HEADER_BYTES
from bookied.storage.index.rocks.format import ledger_key
from bookied.storage.ledger_storage.reads import NeedsDisk
from tests.bookied.worlds.gc_world import NEVER_S, GcWorld
from tests.bookied.worlds.storage_world import Blocking, Turns

LOGS = Path("/l0/current")


def make_world(
    seed: int = 1, *, directories: int = 1, db: bool = False, **settings: Any
) -> GcWorld:
    given: dict[str, Any] = {"transactional": False, "outstanding_max": 1000, "target_bytes": None}
    return GcWorld(seed, directories=directories, db=db, settings_options=given | settings)


def fill(world: GcWorld, ledgers: int = 2, entries: int = 12, size: int = 1500) -> None:
    """Write ledgers whose entries lie mixed in several logs; all is acknowledged and on disk."""
    for entry_id in range(entries):
        for ledger_id in range(ledgers):
            world.add(ledger_id, entry_id, size)
            journal(world)
    restart(world)


def journal(world: GcWorld) -> None:
    for one in world.journals:
        while one.step():
            pass


def restart(world: GcWorld, meanwhile: Callable[[], None] = lambda: None) -> None:
    world.stop()
    meanwhile()
    world.start()


def status(world: GcWorld) -> Any:
    return world.collectors[0].status


def run_until(world: GcWorld, what: str, actions: int = 10_000) -> None:
    """Run steps until a blocking one of that name waits."""
    for _ in range(actions):
        world.clock.advance(0)
        if any(what in repr(action) for action, _ in world.jobs):
            return
        assert world.run_job(), f"{what} never comes"
    raise AssertionError(what)


def collect_until_switch(world: GcWorld) -> None:
    """Delete the first ledger, and collect until the index is about to be switched."""
    world.delete(0)
    world.begin_collection()
    run_until(world, "_switch_on_disk")


@pytest.mark.parametrize("transactional", [False, True])
def test_deleted_ledgers_go_and_what_is_left_is_rewritten(*, transactional: bool) -> None:
    world = make_world(transactional=transactional)
    fill(world, ledgers=4)
    before = world.log_names()
    for ledger_id in (0, 1, 2):
        world.delete(ledger_id)
    world.collect()
    world.check()
    found = status(world)
    assert (found.ledgers, found.ledgers_dropped) == (1, 3)
    assert found.major_compactions == 1
    whole = before & world.log_names()  # Those that hold nothing but the ledger that stays.
    assert found.logs_removed == len(before) - len(whole)
    assert found.copied_entries == 12 - len(whole) > 9
    assert found.freed_by_compaction_bytes > 3 * found.copied_bytes
    restart(world)
    world.check()


def test_a_log_without_live_ledgers_goes_without_being_rewritten() -> None:
    world = make_world()
    fill(world, ledgers=1)
    world.delete(0)
    world.collect()
    assert status(world).major_compactions == 1
    assert status(world).copied_entries == 0
    assert status(world).freed_by_removal_bytes > 10_000
    assert not world.log_names()


def test_a_ledger_is_dropped_once_its_deletion_is_kept() -> None:
    """A bookie that dies in between would otherwise forget the fence with the ledger."""
    world = make_world()
    fill(world, ledgers=1)
    world.delete(0)
    world.begin_collection()
    run_until(world, "_keep_deletions")
    assert world.storages.of(0).ledgers.ids() == [0]
    world.run_jobs()
    assert world.storages.of(0).ledgers.ids() == []


def test_a_dropped_ledger_stays_away_after_a_power_cut() -> None:
    """Its logs are gone: were it in the index, its entries would be damaged."""
    world = make_world()
    fill(world, ledgers=1)
    world.delete(0)
    world.collect()
    assert not world.log_names()
    world.crash()
    assert [one for storage in world.storages for one in storage.ledgers.ids()] == []


def test_a_collection_that_nobody_asked_for_leaves_the_log_that_is_written_to() -> None:
    world = make_world(wait_s=100)
    world.add(1, 0, 100)
    world.delete(1)
    world.clock.advance(200)
    world.run_jobs()
    assert (status(world).rounds, status(world).ledgers_dropped) == (1, 1)
    assert world.log_names() == {"0.log"}
    restart(world)
    world.collect()
    assert not world.log_names()


@pytest.mark.parametrize("transactional", [False, True])
def test_who_asks_for_space_gets_that_of_the_log_that_is_written_to(*, transactional: bool) -> None:
    world = make_world(transactional=transactional)
    for ledger_id in (1, 2, 3):
        world.add(ledger_id, 0, 100)
        journal(world)
    world.delete(1)
    world.collect()
    assert world.log_names() == {"0.log"}  # Most of it is alive.
    world.add(2, 1, 100)
    journal(world)
    world.delete(2)
    world.collect()
    assert "0.log" not in world.log_names()
    assert status(world).freed_by_compaction_bytes > 0
    world.check()
    world.delete(3)
    world.collect()
    restart(world)
    world.collect()
    assert not world.log_names()


def test_an_outage_of_the_metadata_ends_the_round_with_everything_there() -> None:
    world = make_world()
    fill(world)
    world.delete(0)
    world.is_metadata_away = True
    before = world.files.contents().keys()
    world.collectors[0].collect()
    world.run_jobs()
    assert "MetadataAwayError" in status(world).last_error
    assert status(world).failed_rounds == 1
    assert world.files.contents().keys() >= {name for name in before if ".log" in name}
    assert sorted(world.storages.of(0).ledgers.ids()) == [0, 1]


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_a_fence_is_remembered_where_only_the_disk_knows_it(*, is_in_memory: bool) -> None:
    world = make_world()
    fill(world, ledgers=2)
    world.fence(0)
    journal(world)
    if not is_in_memory:
        restart(world)
        assert 0 not in world.storages.of(0).hot
    world.delete(0)
    world.collect()
    assert status(world).ledgers_dropped == 1
    world.check()
    assert world.wrongs == []


def test_a_transactional_compaction_keeps_its_source_until_the_index_is_switched() -> None:
    world = make_world(transactional=True)
    fill(world, ledgers=2)
    world.delete(0)
    storage, removed = world.storages.of(1), list[int]()

    def watch(operation: str, path: Path) -> None:
        if operation == "remove" and path.suffix == ".log":
            log_id = int(path.stem, 16)
            removed.append(log_id)
            entries = [(1, entry_id) for entry_id in range(12)]
            held = [place >> 32 for place in storage.relocation.locations(entries)]
            assert log_id not in held, f"{path} goes while the index points at it"

    world.files.fault = watch
    world.collect()
    assert removed
    world.files.fault = None
    world.check()


def test_a_ledger_that_comes_again_while_the_metadata_is_asked_is_spared() -> None:
    world = make_world()
    fill(world, ledgers=1)
    world.delete(0)
    world.begin_collection()
    run_until(world, "are_fenced")
    world.add(0, 0, 10)
    journal(world)
    world.run_jobs()
    world.check()
    assert status(world).ledgers_dropped == 0
    world.delete(0)
    world.run_jobs()
    world.collect()
    assert status(world).ledgers_dropped == 1


@pytest.mark.parametrize("transactional", [False, True])
def test_an_entry_added_again_while_its_log_is_rewritten_stays_the_newer_one(
    *, transactional: bool
) -> None:
    world = make_world(transactional=transactional)
    fill(world, ledgers=2)
    collect_until_switch(world)
    world.add(1, 0, 77)
    journal(world)
    world.run_jobs()
    world.check()
    restart(world)
    world.check()


@pytest.mark.parametrize("transactional", [False, True])
def test_a_read_that_comes_too_late_for_a_log_looks_again(*, transactional: bool) -> None:
    world = make_world(transactional=transactional)
    fill(world, ledgers=2)
    storage = world.storages.of(1)
    state = storage.ledgers.lookup(1)
    assert state is not None
    state.page_for_write(0)  # So that the place comes from memory.
    found = storage.reads.read_memory(state, 3)
    assert isinstance(found, NeedsDisk)
    assert found.location
    world.delete(0)
    world.collect()
    assert world.model[1].packets[3][0] == storage.reads.read_disk(found.location, 1, 3)


def test_a_ledger_whose_row_is_lost_keeps_its_log_however_many_others_there_are() -> None:
    """Lost rows are searched some at a time; a collection must not go by half of the search."""
    world, last = make_world(db=True), 2000
    world.add(last, 0, 20)
    restart(world)
    for ledger_id in range(1200):
        world.add(ledger_id, 0, 20)
        journal(world)

    def lose_row() -> None:
        rows = world.open_key_values(LOGS / "ledgers")
        rows.delete([ledger_key(last)])
        rows.sync()
        rows.close()

    restart(world, lose_row)
    storage = world.storages.of(last)
    assert last not in storage.ledgers.ids()
    world.collect()
    assert status(world).failed_rounds == 0
    state = storage.ledgers.lookup(last)
    assert state is not None
    assert state.limbo
    assert world.model[last].packets[0][0] == storage.reads.read_disk(0, last, 0)


def test_a_damaged_log_is_left_alone_and_so_is_its_content() -> None:
    world = make_world()
    fill(world, ledgers=2)
    first = LOGS / file_name(0)
    damaged = world.files.open_update(first)
    (length,) = struct.unpack(">i", damaged.read_at(1024, 4))
    damaged.write_at(8, struct.pack(">qi", 0, 0))  # No map, and
    damaged.write_at(1028 + length, struct.pack(">iqq", 3, 0, 0))  # no second record.
    damaged.sync()
    damaged.close()
    for ledger_id in (0, 1):
        world.delete(ledger_id)
    world.collect()
    world.collect()
    assert world.log_names() == {first.name}
    assert status(world).unreadable_logs == 1
    assert status(world).failed_rounds == 0


def test_a_log_that_turns_out_damaged_when_it_is_rewritten_stays_while_its_ledgers_do() -> None:
    world = make_world()
    fill(world, ledgers=2)
    world.delete(0)
    name = min(world.log_names())
    damaged = world.files.open_update(LOGS / name)
    damaged.write_at(1024, struct.pack(">iqq", 3, 0, 0))
    damaged.close()
    world.collect()
    assert name in world.log_names()
    assert status(world).unreadable_logs == 1
    world.delete(1)
    world.collect()
    assert name not in world.log_names(), "its ledgers are known, and gone"
    assert status(world).unreadable_logs == 0


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("where", ["header", "records", "index"])
def test_what_the_disk_cannot_read_stays_and_the_rest_is_collected(
    where: str, *, transactional: bool
) -> None:
    world, sound = (make_world(transactional=transactional) for _ in range(2))
    for one in (world, sound):
        fill(one, ledgers=4)
        for ledger_id in (0, 1, 2):
            one.delete(ledger_id)
    before = sound.log_names()
    sound.collect()
    bad = LOGS / (relative_path(3) if where == "index" else min(before - sound.log_names()))
    world.files.unreadable[bad] = {{"header": 8, "records": 1500, "index": HEADER_BYTES}[where]}
    world.collect()
    assert status(world).ledgers_dropped == 3
    if where != "index":
        assert before & world.log_names() == before & sound.log_names() | {bad.name}
        assert status(world).unreadable_logs == 1
    world.files.unreadable.clear()
    world.check()
    restart(world)
    world.collect()
    world.check()
    assert before & world.log_names() == before & sound.log_names()


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("damaged", [0, 4 * 1024 * 1024])
def test_live_records_behind_a_damaged_length_keep_their_log(
    *, transactional: bool, damaged: int
) -> None:
    """The log still has its map, and the scan takes the damage for the end of the log."""
    world = make_world(transactional=transactional)
    fill(world, ledgers=2, size=500)
    world.delete(0)
    path = LOGS / min(world.log_names())
    repair = damage_length(world, path, record=1, damaged=damaged)
    check_log_stays(world, path, repair)


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("deleted", [0, 1])
def test_live_records_behind_what_looks_like_a_torn_end_keep_their_log(
    *, transactional: bool, deleted: int
) -> None:
    """A crash leaves a log without map, whose last record may be cut off. A damaged length, too."""
    world = make_world(transactional=transactional)
    fill(world, ledgers=2, size=500)
    world.delete(deleted)
    path = LOGS / min(world.log_names())
    remove_map(world, path)
    repair = damage_length(world, path, record=1, damaged=4 * 1024 * 1024)
    check_log_stays(world, path, repair)


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("has_map", [True, False])
def test_a_live_record_inside_one_whose_length_has_grown_by_it_keeps_its_log(
    *, transactional: bool, has_map: bool
) -> None:
    """A flipped bit can add just what the next record takes: the scan meets no damage."""
    world = make_world(transactional=transactional)
    for entry_id in range(60):
        world.add(1, entry_id, 112)
        if entry_id == 11:
            world.add(0, 0, 112)
        journal(world)
    restart(world)
    world.delete(1)
    path = LOGS / min(world.log_names())
    if not has_map:
        remove_map(world, path)
    repair = damage_length(world, path, record=11, damaged=119 + 128)
    check_log_stays(world, path, repair)


@pytest.mark.parametrize("transactional", [False, True])
def test_a_record_that_a_damaged_index_has_elsewhere_keeps_its_log(*, transactional: bool) -> None:
    """One flipped bit of a location, and its record would count as dead."""
    world = make_world(transactional=transactional)
    fill(world, ledgers=2, size=500)
    world.delete(0)
    index = world.files.open_update(LOGS / relative_path(1))
    (place,) = struct.unpack(">q", index.read_at(HEADER_BYTES, 8))
    index.write_at(HEADER_BYTES, struct.pack(">q", place ^ 64))
    world.collect()
    assert file_name(place >> 32) in world.log_names()
    assert status(world).unreadable_logs == 1
    index.write_at(HEADER_BYTES, struct.pack(">q", place))
    index.close()
    world.check()


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_log_whose_map_names_another_ledger_stays(*, is_lost: bool) -> None:
    """The map has no checksum; the records are looked at before all of them go."""
    world = make_world()
    fill(world, ledgers=2, size=500)
    world.delete(0)
    path = LOGS / min(world.log_names())
    file = world.files.open_update(path)
    (map_offset,) = struct.unpack(">q", file.read_at(MAP_PLACE_OFFSET, 8))
    rows = map_offset + 24
    ids = [struct.unpack(">q", file.read_at(rows + 16 * row, 8))[0] for row in range(2)]
    other = bytes(16) if is_lost else struct.pack(">q", 1 << 40 | 1)
    file.write_at(rows + 16 * ids.index(1), other)
    file.close()
    restart(world)
    world.collect()
    assert status(world).unreadable_logs == 1
    world.collect()
    world.check()


@pytest.mark.parametrize("transactional", [False, True])
def test_a_record_whose_slot_reads_as_zero_keeps_its_log(*, transactional: bool) -> None:
    """Without the record, its entry would be denied once the records around it were moved."""
    world = make_world(transactional=transactional)
    fill(world, ledgers=2, size=500)
    world.delete(0)
    index = world.files.open_update(LOGS / relative_path(1))
    (place,) = struct.unpack(">q", index.read_at(HEADER_BYTES, 8))
    index.write_at(HEADER_BYTES, bytes(8))
    world.collect()
    assert file_name(place >> 32) in world.log_names()
    assert status(world).unreadable_logs == 1
    index.write_at(HEADER_BYTES, struct.pack(">q", place))
    index.close()
    world.check()


@pytest.mark.parametrize("transactional", [False, True])
def test_the_copies_of_a_damaged_log_are_made_once(*, transactional: bool) -> None:
    world = make_world(transactional=transactional)
    fill(world, ledgers=2, entries=24, size=500)
    world.delete(1)
    path = LOGS / min(world.log_names())
    repair = damage_length(world, path, record=6)
    world.collect()
    once = log_bytes(world)
    for _ in range(3):
        restart(world)
        world.collect()
        assert path.name in world.log_names()
        assert log_bytes(world) <= once
    repair()
    world.check()


@pytest.mark.parametrize("steps", range(0, 40, 2))
def test_a_stop_leaves_no_copies_that_the_next_collection_makes_again(steps: int) -> None:
    world = make_world(seed=steps)
    fill(world, ledgers=2, entries=24, size=500)
    world.delete(1)
    for _ in range(4):
        world.begin_collection()
        for _ in range(steps):
            world.run_job()
        restart(world)
    world.collect()
    world.check()
    live = sum(len(packets[0]) for packets in world.model[0].packets.values())
    assert log_bytes(world) < 2 * live


def log_bytes(world: GcWorld) -> int:
    return sum(world.files.size(LOGS / name) for name in world.log_names())


def remove_map(world: GcWorld, path: Path) -> None:
    """Leave of a log what a crash leaves: no ledgers map."""
    file = world.files.open_update(path)
    file.truncate(decode_header(file.read_at(0, 1024), path).map_offset)
    file.write_at(MAP_PLACE_OFFSET, bytes(12))
    file.close()


def check_log_stays(world: GcWorld, path: Path, repair: Callable[[], None]) -> None:
    """Check that a damaged log with live records stays, and has them all after its repair."""
    world.collect()
    assert path.name in world.log_names()
    assert status(world).unreadable_logs == 1
    repair()
    world.check()


def damage_length(world: GcWorld, path: Path, record: int, damaged: int = 0) -> Callable[[], None]:
    """Write another length over that of a record, counted from 0; return what undoes that."""
    file, at = world.files.open_update(path), 1024
    for _ in range(record):
        at += 4 + int.from_bytes(file.read_at(at, 4), "big")
    sound = file.read_at(at, 4)
    file.write_at(at, struct.pack(">i", damaged))

    def repair() -> None:
        file.write_at(at, sound)
        file.close()

    return repair


def test_a_ledger_whose_index_is_in_doubt_keeps_its_logs() -> None:
    """Nothing in its logs counts as dead: the index may have lost the places of live entries."""
    world = make_world()
    fill(world, ledgers=2)
    world.delete(0)
    before = world.log_names()
    path = LOGS / relative_path(1)
    sound = world.files.read(path)
    restart(world, lambda: world.files.write_atomic(path, sound[: HEADER_BYTES + 4]))
    world.collect()
    assert world.log_names() == before
    assert status(world).unreadable_logs > 0
    restart(world, lambda: world.files.write_atomic(path, sound))
    world.check()


def test_two_files_of_one_log_id_are_left_alone() -> None:
    world = make_world(directories=2)
    fill(world, ledgers=1)
    name = min(world.log_names())
    for directory in world.ledger_dirs:
        if not world.files.exists(directory / name):
            world.files.open_update(directory / name, create=True).close()
    world.delete(0)
    world.collect()
    assert all(world.files.exists(directory / name) for directory in world.ledger_dirs)
    assert world.log_names() == {name}


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_a_stop_ends_a_collection_anywhere_and_loses_nothing(
    steps: int, *, transactional: bool
) -> None:
    world = make_world(seed=steps, transactional=transactional, outstanding_max=2)
    fill(world, ledgers=3)
    world.delete(0)
    world.begin_collection()
    for _ in range(steps):
        world.run_job()
    restart(world)
    world.check()
    world.collect()
    world.check()


def test_a_stop_does_not_wait_for_the_rate() -> None:
    world = make_world(copied_per_s=0.001)
    fill(world, ledgers=2)
    world.delete(0)
    world.begin_collection()
    world.run_jobs()
    assert status(world).is_running
    assert status(world).compacting is CompactionKind.MAJOR
    world.stop()
    assert not status(world).is_running
    assert status(world).failed_rounds == 0


def test_copies_keep_to_the_rate() -> None:
    world = make_world(copied_per_s=4.0, throttle_by_bytes=False)
    fill(world, ledgers=2)
    world.delete(0)
    world.begin_collection()
    for _ in range(10):
        world.run_jobs()
        world.clock.advance(0.1)
    assert status(world).is_running
    for _ in range(30):
        world.run_jobs()
        world.clock.advance(0.1)
    assert not status(world).is_running
    assert status(world).copied_entries >= 10
    world.check()


def test_rounds_come_by_themselves_after_a_first_longer_wait() -> None:
    schedule = Schedule(threshold=0.5, interval_s=150, time_s_max=None)
    never = attrs.evolve(schedule, interval_s=0)
    world = make_world(wait_s=100, schedules=Schedules(minor=schedule, major=never))
    rounds, due_in_s = [], []
    for _ in range(8):
        rounds.append((status(world).rounds, status(world).minor_compactions))
        due_in_s.append(round(status(world).next_s - wall_s(world.clock)))
        world.clock.advance(50)
        world.run_jobs()
    assert due_in_s == [200, 150, 100, 50, 100, 50, 100, 50]
    world.begin_collection()
    world.clock.advance(0)
    assert status(world).next_s is None
    assert rounds == [(0, 0), (0, 0), (0, 0), (0, 0), (1, 1), (1, 1), (2, 1), (2, 1)]


def test_who_asks_during_a_round_gets_another() -> None:
    world = make_world()
    fill(world)
    first = world.collectors[0].collect()
    world.clock.advance(0)
    second = world.collectors[0].collect(major=False)
    third = world.collectors[0].collect(major=False, minor=False)
    world.run_jobs()
    assert first.called
    assert second.called
    assert third.called
    assert status(world).rounds == 2
    assert (status(world).major_compactions, status(world).minor_compactions) == (1, 1)


def test_full_disks_suspend_compaction_also_when_it_is_asked_for() -> None:
    world = make_world()
    fill(world, ledgers=2)
    world.delete(0)
    collector = world.collectors[0]
    collector.disks_changed(nearly_full=False, full=True)
    world.collect()
    assert (status(world).major_compactions, status(world).minor_compactions) == (0, 0)
    assert status(world).ledgers_dropped == 1
    collector.disks_changed(nearly_full=True, full=False)
    world.collect()
    assert (status(world).major_compactions, status(world).minor_compactions) == (0, 1)
    collector.disks_changed(nearly_full=False, full=False)
    world.collect()
    assert status(world).major_compactions == 1


def test_with_leave_full_disks_are_collected_at_once_and_again() -> None:
    world = make_world(collects_when_full=True, wait_s=NEVER_S)
    fill(world, ledgers=2)
    world.delete(0)
    world.collectors[0].disks_changed(nearly_full=True, full=False)
    world.run_jobs()
    assert status(world).major_compactions == 1
    world.clock.advance(10)
    world.run_jobs()
    assert status(world).rounds == 2
    world.collectors[0].disks_changed(nearly_full=False, full=False)
    world.clock.advance(10)
    world.run_jobs()
    world.clock.advance(1000)
    world.run_jobs()
    assert status(world).rounds == 3


def test_what_would_leave_too_little_room_is_not_compacted() -> None:
    world = make_world(free_bytes_min=1 << 62)
    fill(world, ledgers=2)
    world.delete(0)
    world.collect()
    assert status(world).copied_entries == 0
    assert status(world).ledgers_dropped == 1


def test_no_log_is_begun_when_the_time_is_spent() -> None:
    limited = Schedule(threshold=0.999, interval_s=NEVER_S, time_s_max=5.0)
    schedules = Schedules(minor=limited, major=limited)
    world = make_world(schedules=schedules, copied_per_s=1.0, throttle_by_bytes=False)
    fill(world, ledgers=2)
    logs = len(world.log_names())
    world.delete(0)
    world.begin_collection()
    for _ in range(40):
        world.run_jobs()
        world.clock.advance(1)
    assert not status(world).is_running
    assert 0 < status(world).logs_removed < logs
    world.check()


def test_a_full_disk_ends_a_compaction_without_loss() -> None:
    world = make_world()
    fill(world, ledgers=2)
    world.delete(0)
    world.begin_collection()
    run_until(world, "LiveRecords")
    world.files.bytes_max = sum(len(data) for data in world.files.contents().values())
    world.run_jobs()
    assert status(world).failed_rounds == 1
    world.files.bytes_max = None
    world.check()
    restart(world)
    world.collect()
    world.check()


def test_a_full_disk_gets_the_space_of_deleted_ledgers() -> None:
    """No checkpoint finds space before that, and nothing else gives it any."""
    world = make_world()
    fill(world, ledgers=1)
    world.add(5, 0, 1500)
    journal(world)
    before = world.log_names()
    world.files.space_max[LOGS] = world.files.used(LOGS)
    world.delete(0)
    world.collect()
    assert world.storages.of(0).ledgers.ids() == [5]
    assert not before & world.log_names()
    world.files.crash()
    world.files.space_max.clear()
    world.start()
    assert world.storages.of(0).ledgers.ids() == [5]
    world.check()


def test_a_full_disk_gets_the_space_of_ledgers_that_stay_in_the_database() -> None:
    """A database needs space to delete them; only the removal of their logs gives any."""
    world = make_world(db=True)
    fill(world, ledgers=1)
    world.add(5, 0, 1500)
    journal(world)
    before = world.log_names()
    world.files.space_max[LOGS] = world.files.used(LOGS)
    world.delete(0)
    world.files.fault = no_space_for_databases
    world.collect()
    assert not before & world.log_names()
    world.files.fault = None
    world.files.space_max.clear()
    world.collect()
    assert status(world).failed_rounds == 0
    restart(world)
    assert world.storages.of(0).ledgers.ids() == [5]
    world.check()


def no_space_for_databases(operation: str, path: Path) -> None:
    if operation == "write" and path.parent == LOGS and path.name in {"ledgers", "locations"}:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_on_a_full_disk_the_log_of_what_waits_for_space_stays() -> None:
    """Its end is not in the file yet: the file alone would say that all of it is dead."""
    world = make_world()
    world.add(0, 0, 5900)  # It fills a block, and the next entry has no space in it.
    journal(world)
    Turns(world.storages.flush(Blocking)).finish()
    world.files.space_max[LOGS] = world.files.used(LOGS)
    for entry_id in range(6):
        world.add(5, entry_id, 1500)
        journal(world)
    world.delete(0)
    world.collect()
    assert world.log_names() == {"0.log"}
    world.files.space_max.clear()
    world.collect()
    world.check()
    restart(world)
    world.check()


def test_on_a_full_disk_fenced_ledgers_wait_until_their_fences_are_kept() -> None:
    world = make_world()
    fill(world, ledgers=2)
    world.fence(0)
    journal(world)
    world.delete(0)
    world.delete(1)

    def no_space() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    world.deletions_fault = no_space
    world.collect()
    assert world.storages.of(0).ledgers.ids() == [0]
    world.deletions_fault = lambda: None
    world.collect()
    assert world.storages.of(0).ledgers.ids() == []


@pytest.mark.parametrize("entries", [2, 12])
def test_a_failed_switch_is_made_again_before_anything_relies_on_it(entries: int) -> None:
    """A single log has no later switch that makes the failed one again on the way."""
    world = make_world(seed=3)
    fill(world, ledgers=2, entries=entries)
    collect_until_switch(world)
    world.files.fault = lambda operation, path: (
        OSError(errno.EIO, os.strerror(errno.EIO)) if operation == "sync" else None
    )
    while not status(world).failed_rounds:
        world.run_job()
    world.files.fault = None
    world.run_jobs()
    assert world.storages.of(1).relocation.is_unsure
    world.collect()
    assert not world.storages.of(1).relocation.is_unsure
    world.files.crash()
    world.start()
    world.check()


@pytest.mark.parametrize("transactional", [False, True])
def test_an_index_that_is_cut_while_its_entries_move_stops_no_later_collection(
    *, transactional: bool
) -> None:
    world = make_world(transactional=transactional)
    fill(world, ledgers=3)
    collect_until_switch(world)
    cut = world.files.open_update(LOGS / relative_path(1))
    cut.truncate(HEADER_BYTES)
    cut.close()
    world.run_jobs()
    before = world.log_names()
    world.collect()
    assert world.log_names() == before, "they have entries of the ledger that is in doubt"
    world.files.crash()
    world.start()
    world.delete(1)
    world.collect()
    world.check()


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("when", ["before the copy", "before the switch"])
def test_an_index_file_that_something_deletes_keeps_the_logs_of_its_ledger_alone(
    when: str, *, transactional: bool
) -> None:
    world = make_world(transactional=transactional)
    for entry_id in range(12):
        for ledger_id in (0, 1 if entry_id < 6 else 2):
            world.add(ledger_id, entry_id, 1500)
            journal(world)
    restart(world)
    if when == "before the switch":
        collect_until_switch(world)
    world.files.remove(LOGS / relative_path(1))
    world.run_jobs()
    world.delete(0)
    world.collect()
    before = world.log_names()
    world.collect()
    assert world.log_names() == before
    assert "0.log" in before
    assert status(world).copied_entries > 0
    world.delete(1)
    world.collect()
    world.check()


@pytest.mark.parametrize("transactional", [False, True])
def test_an_index_that_cannot_be_read_while_its_entries_move_stops_no_later_collection(
    *, transactional: bool
) -> None:
    world = make_world(transactional=transactional)
    fill(world, ledgers=3)
    collect_until_switch(world)
    world.files.unreadable[LOGS / relative_path(1)] = {HEADER_BYTES}
    world.run_jobs()
    before = world.log_names()
    world.collect()
    assert world.log_names() == before, "they have entries of the ledger that cannot be read"
    world.files.unreadable.clear()
    world.check()
    world.files.crash()
    world.start()
    world.collect()
    world.check()


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("when", ["before the copy", "before the switch"])
def test_an_index_that_a_collection_finds_cut_is_in_doubt_after_a_restart(
    when: str, *, transactional: bool
) -> None:
    """Its entries would be gone: to the index on disk, what was cut off was never there."""
    world = make_world(transactional=transactional)
    fill(world, ledgers=3)
    assert world.storages.of(1).ledgers.lookup(1) is not None  # It has had its pages by then.
    if when == "before the switch":
        collect_until_switch(world)
    else:
        world.delete(0)
        world.begin_collection()
    cut = world.files.open_update(LOGS / relative_path(1))
    cut.truncate(HEADER_BYTES)
    cut.close()
    world.run_jobs()
    before = world.log_names()
    restart(world)
    world.collect()
    assert world.log_names() == before
    state = world.storages.of(1).ledgers.lookup(1)
    assert state is not None
    assert isinstance(state.doubt, IndexTruncatedError)


def test_a_log_that_ends_during_the_checkpoint_is_not_compacted() -> None:
    """The disk's index does not have its last entries yet, and would call them dead."""
    world = make_world()
    for ledger_id in (0, 1):
        world.add(ledger_id, 0, 1500)
    journal(world)
    world.delete(0)
    world.collect()
    assert status(world).ledgers_dropped == 1
    world.add(1, 1, 100)
    journal(world)
    world.begin_collection()
    run_until(world, "IndexFiles.write")
    for entry_id in range(2, 9):
        world.add(1, entry_id, 1500)
        journal(world)
    world.storages.write_out()
    assert "1.log" in world.log_names()
    world.run_jobs()
    assert "0.log" in world.log_names()
    world.check()
    restart(world)
    world.check()


def test_what_was_stopped_says_so() -> None:
    world = make_world()
    pace = world.collectors[0]._pace
    world.stop()
    with pytest.raises(CollectionStoppedError):
        pace.check()
    assert world.collectors[0].collect().called


def test_an_error_that_nobody_foresaw_is_told_and_the_next_round_comes() -> None:
    world = make_world()
    fill(world)

    async def broken() -> None:
        raise StorageError("the checkpoint failed")

    collector = world.collectors[0]
    effects = collector._collection.effects
    collector._collection.effects = attrs.evolve(effects, checkpoint=broken)
    collector.collect()
    world.run_jobs()
    assert "the checkpoint failed" in status(world).last_error
    collector._collection.effects = effects
    world.collect()
