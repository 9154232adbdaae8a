"""What a transactional compaction leaves where it is cut off, of ours or of a Java bookie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bookied.storage.entrylog import format as layout
from bookied.storage.entrylog.log_list import list_logs
from bookied.storage.entrylog.scan import open_scan
from bookied.storage.garbage.transactional_compaction import COMPACTED, UnfinishedCompaction
from tests.bookied.storage.garbage.test_collector import (
    damage_length,
    fill,
    make_world,
    restart,
    run_until,
    status,
)
from tests.bookied.worlds.gc_world import GcWorld
from tests.support.stored_entries import stored_entries

LOGS = Path("/l0/current")


@pytest.fixture
def world() -> GcWorld:
    world = make_world()
    fill(world, ledgers=2)
    return world


def write(world: GcWorld, path: Path, data: bytes) -> None:
    file = world.files.open_update(path, create=True)
    file.write_at(0, data)
    file.sync()
    file.close()
    world.files.sync_dir(path.parent)


def compacted(world: GcWorld, target: int = 0xAF, *, twice: bool = False) -> UnfinishedCompaction:
    """Leave a compacted log of the first log there is; ``twice`` with other records before."""
    source = min(list_logs(world.files, [LOGS]))
    scan = open_scan(world.files, LOGS / layout.file_name(source))
    records = [layout.LENGTH.pack(len(record.body)) + record.body for record in scan]
    scan.close()
    older = [record[:-2] + b"!!" for record in records] if twice else []
    data = layout.LogHeader().encode() + b"".join([*older, *records, *older])
    todo = UnfinishedCompaction(source, target, LOGS)
    write(world, todo.compacted, data)
    return todo


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("is_linked", [False, True])
def test_a_compacted_log_takes_the_place_of_its_source(
    world: GcWorld, *, twice: bool, is_linked: bool
) -> None:
    todo = compacted(world, twice=twice)
    if is_linked:
        world.files.link(todo.compacted, todo.final)
    world.collect()
    names = world.log_names()
    assert todo.final.name in names
    assert todo.compacted.name not in names
    assert layout.file_name(todo.source) not in names
    world.check()
    restart(world)
    world.check()


@pytest.mark.parametrize("transactional", [False, True])
def test_it_is_finished_whatever_the_settings_are_now(*, transactional: bool) -> None:
    world = make_world(transactional=transactional)
    fill(world, ledgers=1)
    todo = compacted(world)
    world.collect()
    assert todo.final.name in world.log_names()
    world.check()


def test_the_link_that_java_makes_by_mistake_goes(world: GcWorld) -> None:
    todo = compacted(world)
    assert todo.decimal.name == "175.log"
    world.files.link(todo.compacted, todo.decimal)
    world.collect()
    assert {todo.final.name} <= world.log_names()
    assert todo.decimal.name not in world.log_names()
    world.check()


def test_a_log_that_only_has_the_decimal_name_stays(world: GcWorld) -> None:
    todo = compacted(world)
    other = list_logs(world.files, [LOGS])
    data = world.files.read(other[max(other)])
    write(world, todo.decimal, data)
    todo_names = {todo.final.name}
    world.collectors[0]._settings = world.settings()
    collector = world.collectors[0]
    collector._compaction.compact = _nothing  # type: ignore[method-assign,assignment]
    world.collect()
    assert todo_names | {todo.decimal.name} <= world.log_names()


async def _nothing(_: Any) -> None:
    """In place of a compaction."""


def test_what_never_was_complete_goes(world: GcWorld) -> None:
    write(world, LOGS / "5f.log.compacting", b"half")
    world.collect()
    assert "5f.log.compacting" not in world.log_names()
    world.check()


@pytest.mark.parametrize("name", ["x.log.0.compacted", "5.compacted", "1.log.2.3.compacted"])
def test_a_name_that_means_nothing_is_left_alone(world: GcWorld, name: str) -> None:
    write(world, LOGS / name, b"something")
    world.collect()
    assert world.files.exists(LOGS / name)
    assert status(world).failed_rounds == 0


@pytest.mark.parametrize("damage", ["cut", "bad", "lacking", "other"])
def test_a_compacted_log_that_is_not_whole_leaves_its_source(damage: str) -> None:
    world = make_world()
    fill(world, ledgers=2)
    todo = compacted(world)
    data = world.files.read(todo.compacted)
    (length,) = layout.LENGTH.unpack_from(data, 1024)
    if damage == "cut":
        data = data[: 1024 + length // 2]
    elif damage == "bad":
        data = data[: 1028 + length] + b"\0\0\0\3" + data[1032 + length :]
    elif damage == "lacking":
        data = data[: 1028 + length]
    world.files.remove(todo.compacted)
    write(world, todo.compacted, data)
    if damage == "other":
        write(world, todo.final, data)
    for has_garbage in (False, True):
        if has_garbage:
            world.delete(1)
        world.collect()
        assert {layout.file_name(todo.source), todo.compacted.name} <= world.log_names()
        world.check()


def test_a_source_that_is_gone_already_is_no_matter(world: GcWorld) -> None:
    todo = compacted(world)
    world.collect()
    world.files.link(todo.final, todo.compacted)
    world.collect()
    assert todo.compacted.name not in world.log_names()
    world.check()


@pytest.mark.parametrize("is_source_gone", [False, True])
def test_an_entry_that_the_index_lacks_is_not_in_the_first_log(
    world: GcWorld, *, is_source_gone: bool
) -> None:
    """The place of an entry that is nowhere is 0, as if it was in log 0."""
    todo = compacted(world)
    assert todo.source == 0
    if is_source_gone:
        world.collect()
        world.files.link(todo.final, todo.compacted)
    world.delete(1)
    world.storages.of(1).ledgers.delete(1)
    world.add(1, 900, 0)
    restart(world)
    world.collect()
    assert stored_entries(world.storages.of(1), 1) == [900]
    assert todo.compacted.name not in world.log_names()


def test_a_target_that_is_damaged_after_it_was_written_leaves_its_source() -> None:
    """The index points at the source until the target has been read."""
    world = make_world(transactional=True)
    fill(world, size=500)
    world.delete(0)
    world.begin_collection()
    run_until(world, "_make_available")
    (compacted,) = (name for name in world.log_names() if name.endswith(COMPACTED))
    target, _, source, _ = compacted.split(".")
    repair = damage_length(world, LOGS / f"{target}.log", record=1)
    world.run_jobs()
    assert {compacted, f"{source}.log"} <= world.log_names()
    world.check()
    repair()
    world.collect()
    world.check()


def test_the_id_of_a_target_is_noted_so_that_no_later_log_has_it() -> None:
    """The next start could give it out again once the target itself is compacted away."""
    world = make_world(transactional=True)
    fill(world)
    world.delete(0)
    noted_before = int(world.files.read(LOGS / layout.LAST_ID), 16)
    world.collect()
    target = max(list_logs(world.files, [LOGS]))
    assert int(world.files.read(LOGS / layout.LAST_ID), 16) == target > noted_before
