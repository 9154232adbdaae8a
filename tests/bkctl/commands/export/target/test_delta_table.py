"""The Delta table of an export, stopped at every step, and after others have changed it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'bkctl[delta]'")

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bkctl.commands.export.errors import ExportWriteError, ForeignFilesError, TableChangedError
from bkctl.commands.export.target.delta_table import check_table
from bkctl.commands.export.target.export_commit import (
    COMMIT_PATH,
    STAGING_PREFIX,
    Commit,
    commit,
    load_tree,
    sweep_staging,
)
from bkctl.commands.export.target.file_systems import LocalFiles
from bkctl.commands.export.target.manifest import DELTA, FULL_EVERY, TargetTree
from bkctl.commands.export.task.parquet_file import WrittenFile, WrittenRange
from tests.bkctl.commands.export.target.test_export_commit import FailingFiles, Killed
from wire.ids import EntryId, LedgerId

STAGED = f"{STAGING_PREFIX}1"
STEPS = 5
"""commit.json, a move, the record, and the removal of staging and of commit.json."""


def listed(root: Path) -> set[str]:
    """Return the files that a reader of the table sees."""
    return {unquote(row["path"]) for row in actions(root)}


def actions(root: Path) -> list[dict[str, Any]]:
    """Return what the table says of its files."""
    return pa.table(DeltaTable(str(root)).get_add_actions(flatten=True)).to_pylist()


def run_of(
    files: LocalFiles,
    tree: TargetTree,
    *paths: str,
    removed: tuple[str, ...] = (),
    layout: str = "none",
) -> Commit:
    """Stage files, and return the commit that puts them in place."""
    ranges = (WrittenRange(LedgerId(7), EntryId(3), EntryId(5)),)
    new = [WrittenFile(path, 4, 3, 10, "00", ranges) for path in paths]
    for path in paths:
        with files.create(f"{STAGED}/{path}") as stream:
            stream.write(b"data")
    record = tree.next_record(
        cluster="c",
        layout=layout,
        now_ms=1,
        ledgers=[],
        files=new,
        removed=removed,
        table_format=DELTA,
    )
    moves = tuple((f"{STAGED}/{path}", path) for path in paths)
    return Commit(STAGED, moves, record, paths)


@pytest.fixture
def files(tmp_path) -> LocalFiles:
    """A table whose first run made one file, in a directory with an unwieldy name."""
    root = tmp_path / "a b+c"
    root.mkdir()
    made = LocalFiles(root)
    commit(made, run_of(made, TargetTree(), "run=1/a.parquet"))
    return made


def root_of(files: LocalFiles) -> Path:
    return Path(files.uri)


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_run_is_in_the_table_once_whenever_the_process_dies(files, step) -> None:
    decided = run_of(files, load_tree(files), "run=2/b.parquet", removed=("run=1/a.parquet",))
    with pytest.raises(Killed):
        commit(FailingFiles(root_of(files), step, Killed()), decided)
    if step <= 3:  # The record is not written: readers see the table as it was.
        assert listed(root_of(files)) == {"run=1/a.parquet"}
    if (root_of(files) / COMMIT_PATH).exists():
        with pytest.raises(Killed):
            load_tree(FailingFiles(root_of(files), 1, Killed()))
    found = load_tree(files)
    sweep_staging(files)
    check_table(files, found, ())
    expected = {"run=1/a.parquet"} if step == 1 else {"run=2/b.parquet"}
    assert listed(root_of(files)) == set(found.files) == expected
    assert DeltaTable(files.uri).version() == found.run - 1


def test_a_run_that_others_overtook_replaces_no_file_that_they_rewrote(files) -> None:
    before = DeltaTable(files.uri).version()
    decided = run_of(files, load_tree(files), "run=2/b.parquet", removed=("run=1/a.parquet",))
    with pytest.raises(Killed):
        commit(FailingFiles(root_of(files), 3, Killed()), decided)
    DeltaTable(files.uri).delete()
    with pytest.raises(TableChangedError, match=r"run=1/a.parquet is to be written again"):
        load_tree(files)
    assert listed(root_of(files)) == set()
    DeltaTable(files.uri).restore(before)
    load_tree(files)
    assert listed(root_of(files)) == {"run=2/b.parquet"}


def test_a_first_run_is_not_finished_in_a_table_of_others(tmp_path) -> None:
    files = LocalFiles(tmp_path)
    decided = run_of(files, TargetTree(), "run=1/a.parquet")
    with pytest.raises(Killed):
        commit(FailingFiles(tmp_path, 3, Killed()), decided)
    write_deltalake(tmp_path, pa.table({"ledger_id": pa.array([1], pa.int64())}))
    before = listed(tmp_path)
    with pytest.raises(ForeignFilesError, match="that no export made"):
        load_tree(files)
    assert listed(tmp_path) == before


def test_a_run_whose_delta_log_cannot_be_written_is_finished_by_the_next_one(files) -> None:
    log, away = root_of(files) / "_delta_log", root_of(files) / "_away"
    decided = run_of(files, load_tree(files), "run=2/b.parquet")
    log.rename(away)
    with pytest.raises(TableChangedError, match="has 0 of the 2 runs"):
        commit(files, decided)
    with pytest.raises(TableChangedError):
        load_tree(files)
    away.rename(log)
    assert set(load_tree(files).files) == {"run=1/a.parquet", "run=2/b.parquet"}
    assert listed(root_of(files)) == {"run=1/a.parquet", "run=2/b.parquet"}
    assert not (root_of(files) / COMMIT_PATH).exists()


def test_a_full_record_adds_no_file_a_second_time(files) -> None:
    tree = load_tree(files)
    for number in range(2, FULL_EVERY + 2):
        decided = run_of(files, tree, f"run={number}/b.parquet")
        commit(files, decided)
        tree.apply(decided.record)
    assert load_tree(files) == tree
    assert listed(root_of(files)) == set(tree.files)
    assert DeltaTable(files.uri).version() == FULL_EVERY


@pytest.mark.parametrize(
    ("layout", "folder", "value"),
    [
        ("none", "", {}),
        ("day", "day=2026-01-31/", {"day": dt.date(2026, 1, 31)}),
        ("day", "day=__HIVE_DEFAULT_PARTITION__/", {"day": None}),
        ("log", "log=events%2F2026 of%25us/", {"log": "events/2026 of%us"}),
        ("log", "log=__HIVE_DEFAULT_PARTITION__/", {"log": None}),
    ],
)
def test_readers_skip_files_by_what_the_table_says_of_them(tmp_path, layout, folder, value) -> None:
    files = LocalFiles(tmp_path)
    path = f"run=1/{folder}a.parquet"
    commit(files, run_of(files, TargetTree(), path, layout=layout))
    assert listed(tmp_path) == {path}
    (row,) = actions(tmp_path)
    assert (row["num_records"], row["size_bytes"]) == (3, 4)
    assert (row["min.ledger_id"], row["max.ledger_id"]) == (7, 7)
    assert (row["min.entry_id"], row["max.entry_id"]) == (3, 5)
    assert {k: row[f"partition.{k}"] for k in value} == value


def test_a_table_that_no_export_made_is_refused(files) -> None:
    with pytest.raises(ForeignFilesError, match="that no export made"):
        check_table(files, TargetTree(), ())


def test_a_directory_that_the_library_cannot_open_is_refused(tmp_path) -> None:
    with pytest.raises(ForeignFilesError, match="has a % in its name"):
        check_table(LocalFiles(tmp_path / "a%20b"), TargetTree(), ())


def test_a_table_that_lacks_runs_is_an_error(files) -> None:
    tree = load_tree(files)
    tree.run = 2
    with pytest.raises(TableChangedError, match="has 1 of the 2 runs"):
        check_table(files, tree, ())


def test_a_file_that_others_rewrote_is_not_replaced(files) -> None:
    tree = load_tree(files)
    check_table(files, tree, ["run=1/a.parquet"])
    DeltaTable(files.uri).delete()
    with pytest.raises(TableChangedError, match=r"run=1/a.parquet is to be written again"):
        check_table(files, tree, ["run=1/a.parquet"])


def test_a_delta_log_that_is_damaged_is_an_error(files) -> None:
    (first,) = (root_of(files) / "_delta_log").glob("*.json")
    first.write_bytes(b"{")
    with pytest.raises(ExportWriteError, match="cannot be read"):
        check_table(files, load_tree(files), ())
