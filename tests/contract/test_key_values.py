"""What DbLedgerStorage's index needs of a key-value store, of RocksDB and of the simulated one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookied.config.db import RocksSettings
from bookied.errors import DbRecordError
from bookied.storage.index.key_value_store import KeyValues
from bookied.storage.index.rocks.database import (
    locations_options,
    open_database,
    open_of_index,
    open_read_only,
)
from tests.sim.world.disk import SimFiles
from tests.sim.world.key_values import SimKeyValues

Open = Callable[[], KeyValues]
SMALL = RocksSettings(write_buffer_bytes=1 << 20, block_cache_bytes=1 << 20)


def opener(kind: str, tmp_path: Path) -> Open:
    if kind == "rocks":
        return lambda: open_database(tmp_path / "db", lambda: locations_options(SMALL))
    files = SimFiles(Random(1))
    return lambda: SimKeyValues(files, Path("/db"))


@pytest.fixture(params=["sim", "rocks"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return opener(request.param, tmp_path)


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


def test_what_was_put_is_there_and_stays(opened: Open) -> None:
    store = opened()
    store.put((key(number), b"%d" % number) for number in range(2500))
    store.put([(key(7), b"seven")])
    for _ in range(2):
        assert store.get(key(7)) == b"seven"
        assert store.get(key(2499)) == b"2499"
        assert store.get(key(2500)) is None
        store.sync()
        store.close()
        store = opened()
    store.close()


def test_many_keys_have_the_values_they_have_one_by_one(opened: Open) -> None:
    store = opened()
    store.put((key(number), b"%d" % number) for number in range(0, 900, 2))
    keys = [key(number) for number in (*range(900), 2, 3, 2)]
    assert store.get_many(keys) == [store.get(one) for one in keys]
    assert store.get_many([]) == []
    store.close()


def test_compacting_changes_nothing_that_can_be_read(opened: Open) -> None:
    store = opened()
    for begin in range(0, 200, 50):
        store.put((key(number), b"%d" % number) for number in range(begin, begin + 100))
        store.sync()
        store.close()
        store = opened()  # Each opening makes a table of its own.
    store.delete(key(number) for number in range(0, 250, 2))
    before = store.items(key(0), key(1000), 1000)
    assert len(before) == 125
    store.compact()
    assert store.items(key(0), key(1000), 1000) == before
    store.close()


def test_keys_come_in_the_order_of_their_bytes(opened: Open) -> None:
    store = opened()
    store.put([(b"\x80", b"5"), (b"a\0", b"3"), (b"a", b"2"), (b"", b"1"), (b"b", b"4")])
    everything = [(b"", b"1"), (b"a", b"2"), (b"a\0", b"3"), (b"b", b"4"), (b"\x80", b"5")]
    assert store.items(b"", b"\xff", 10) == everything
    assert store.items(b"a", b"b", 10) == everything[1:3]
    assert store.items(b"a", b"\xff", 2) == everything[1:3]
    assert store.items(b"c", b"d", 2) == store.items(b"b", b"b", 2) == []
    store.close()


def test_the_floor_of_a_key_is_the_highest_that_is_not_above_it(opened: Open) -> None:
    store = opened()
    assert store.floor(key(5)) is None
    store.put([(key(3), b"3"), (key(6), b"6")])
    store.sync()
    found = [store.floor(key(number)) for number in (2, 3, 5, 6, 9)]
    assert found == [None, *[(key(3), b"3")] * 2, *[(key(6), b"6")] * 2]
    store.close()


def test_what_was_deleted_is_gone_and_can_come_again(opened: Open) -> None:
    store = opened()
    store.put((key(number), b"old") for number in range(10))
    store.delete([key(1), key(77)])
    store.delete_ranges([(key(3), key(5)), (key(8), key(100))])
    store.put([(key(4), b"new")])
    store.sync()
    store.close()
    store = opened()
    held = dict(store.items(key(0), key(200), 100))
    assert held == dict.fromkeys(map(key, [0, 2, 5, 6, 7]), b"old") | {key(4): b"new"}
    store.close()


operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 30), st.integers(0, 30)),
        st.tuples(st.just("delete"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("range"), st.integers(0, 30), st.integers(0, 30)),
        st.tuples(st.just("reopen"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("kind", ["sim", "rocks"])
@settings(max_examples=25)
@given(steps=operations)
def test_both_are_as_a_plain_map(
    kind: str, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    opened = opener(kind, tmp_path_factory.mktemp("map"))
    store, model = opened(), dict[bytes, bytes]()
    for kind_of_step, first, second in steps:
        if kind_of_step == "put":
            store.put([(key(first), key(second))])
            model[key(first)] = key(second)
        elif kind_of_step == "delete":
            store.delete([key(first)])
            model.pop(key(first), None)
        elif kind_of_step == "range":
            begin, end = sorted((key(first), key(second)))
            store.delete_ranges([(begin, end)])
            model = {k: v for k, v in model.items() if not begin <= k < end}
        else:
            store.close()
            store = opened()
        assert store.items(key(0), key(100), 100) == sorted(model.items())
        wanted = max((k for k in model if k <= key(first)), default=None)
        floor = store.floor(key(first))
        assert (floor and floor[0]) == wanted
    store.close()


def test_a_power_cut_takes_only_what_came_last_and_was_not_synced() -> None:
    kept = set()
    for seed in range(60):
        files = SimFiles(Random(seed))
        store = SimKeyValues(files, Path("/db"))
        store.put((key(number), b"synced") for number in range(5))
        store.sync()
        for number in range(5, 12):
            store.put([(key(number), b"perhaps")])
        files.crash()
        held = [found for found, _ in SimKeyValues(files, Path("/db")).items(b"", b"\xff", 99)]
        assert held == [key(number) for number in range(len(held))]
        assert len(held) >= 5
        kept.add(len(held))
    assert 5 in kept
    assert len(kept) > 3


def test_after_a_failed_sync_it_is_opened_anew_with_the_next_write() -> None:
    files = SimFiles(Random(1))
    store = SimKeyValues(files, Path("/db"))
    store.put([(key(1), b"1")])
    store.sync()
    store.put([(key(2), b"2")])
    files.fault = lambda operation, path: OSError(5, "EIO") if operation == "sync" else None
    with pytest.raises(OSError, match="EIO"):
        store.sync()
    files.fault = None
    store.put([(key(2), b"2"), (key(3), b"3")])
    store.sync()
    files.crash()
    again = SimKeyValues(files, Path("/db"))
    assert [found for found, _ in again.items(b"", b"\xff", 99)] == [key(1), key(2), key(3)]


def test_what_was_written_is_in_the_log_of_rocksdb(tmp_path: Path) -> None:
    # What a killed process leaves: its log as it is by then.
    store = open_database(tmp_path / "db", lambda: locations_options(SMALL))
    store.put([(key(1), b"1" * 1000)])
    store.sync()
    assert sum(path.stat().st_size for path in (tmp_path / "db").glob("*.log")) > 1000
    store.close()


def noted(store: KeyValues) -> KeyValues:
    """Return a store after a checkpoint: 100 changes are durable, and noted; one more is not."""
    for number in range(100):
        store.put([(key(number), b"value" * 100)])
    store.sync()
    store.note_synced()
    store.put([(key(999), b"later")])
    return store


def killed(tmp_path: Path) -> tuple[Path, Path]:
    """Return what a process leaves that is killed behind its checkpoint: database and log."""
    store = noted(open_of_index(SMALL, tmp_path / "alive/db"))
    shutil.copytree(tmp_path / "alive", tmp_path / "killed")
    store.close()
    database = tmp_path / "killed/db"
    (wal,) = (one for one in database.glob("*.log") if one.stat().st_size)
    return database, wal


@pytest.mark.parametrize("share", [0.01, 0.5, 0.98])
def test_a_write_ahead_log_that_is_damaged_before_its_synced_end_is_noticed(
    tmp_path: Path, share: float
) -> None:
    database, wal = killed(tmp_path)
    data = bytearray(wal.read_bytes())
    data[int(share * 100 * len(data) / 101)] ^= 1
    wal.write_bytes(data)
    for opening in (open_read_only, partial(open_of_index, SMALL)):
        store = opening(database)
        with pytest.raises(DbRecordError, match="and change 100 was durable"):
            store.check_synced()
        store.close()


def test_what_was_not_synced_may_be_missing(tmp_path: Path) -> None:
    database, wal = killed(tmp_path)
    os.truncate(wal, wal.stat().st_size - 3)
    store = open_of_index(SMALL, database)
    store.check_synced()
    assert store.get(key(99)) is not None
    assert store.get(key(999)) is None
    store.close()


def test_what_was_noted_is_there_after_a_restart(opened: Open) -> None:
    store = noted(opened())
    for _ in range(2):
        store.check_synced()
        store.close()
        store = opened()
    store.close()


def test_an_older_copy_is_noticed(tmp_path: Path) -> None:
    store = open_of_index(SMALL, tmp_path / "db")
    store.put([(key(1), b"1")])
    store.close()
    shutil.copytree(tmp_path / "db", tmp_path / "old")
    noted(open_of_index(SMALL, tmp_path / "db")).close()
    shutil.rmtree(tmp_path / "db")
    (tmp_path / "old").rename(tmp_path / "db")
    store = open_of_index(SMALL, tmp_path / "db")
    with pytest.raises(DbRecordError, match="ends with change 1, and change 101 was durable"):
        store.check_synced()
    store.close()


def test_a_database_that_was_made_anew_counts_from_the_start(tmp_path: Path) -> None:
    noted(open_of_index(SMALL, tmp_path / "db")).close()
    shutil.rmtree(tmp_path / "db")
    store = open_of_index(SMALL, tmp_path / "db")
    store.check_synced()
    store.close()


def test_the_backup_of_a_rebuild_is_too_old_once_the_new_database_had_changes(
    tmp_path: Path,
) -> None:
    noted(open_of_index(SMALL, tmp_path / "db")).close()
    (tmp_path / "db").rename(tmp_path / "backup")
    for _ in range(2):
        noted(open_of_index(SMALL, tmp_path / "db")).close()
    (tmp_path / "db").rename(tmp_path / "new")
    (tmp_path / "backup").rename(tmp_path / "db")
    store = open_of_index(SMALL, tmp_path / "db")
    with pytest.raises(DbRecordError, match="was replaced by another database"):
        store.check_synced()
    store.close()
    (tmp_path / "db").rename(tmp_path / "backup")
    (tmp_path / "new").rename(tmp_path / "db")
    store = open_of_index(SMALL, tmp_path / "db")
    store.check_synced()
    store.close()


def test_a_damaged_identity_keeps_no_tool_from_looking(tmp_path: Path) -> None:
    """RocksDB itself writes it anew when it opens the database to write."""
    noted(open_of_index(SMALL, tmp_path / "db")).close()
    (tmp_path / "db/IDENTITY").write_bytes(b"\xff\xfe\0")
    store = open_read_only(tmp_path / "db")
    store.check_synced()
    assert store.get(key(99)) is not None
    store.close()


def test_the_simulated_store_notices_a_loss_too() -> None:
    files = SimFiles(Random(1))
    noted(SimKeyValues(files, Path("/db")))
    data = files.read(Path("/db/wal"))
    files.write_atomic(Path("/db/wal"), data[: len(data) // 2])
    with pytest.raises(DbRecordError, match="ends with change 50, and change 100 was durable"):
        SimKeyValues(files, Path("/db")).check_synced()
