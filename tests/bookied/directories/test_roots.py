"""A bookie's directories: prepared, locked, marked dirty, and judged by how full they are."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from bookied.directories.roots import (
    Directories,
    clear_dirty,
    directories,
    mark_dirty,
    prepare,
    was_dirty,
)
from bookied.errors import DirectoryError, LayoutTooOldError
from bookied.storage.files.files import RealFiles
from tests.bookied.worlds.fakes import config_for
from tests.sim.world.disk import SimFiles

FILES = RealFiles()


def test_directories_come_from_the_configuration_in_order(tmp_path: Path) -> None:
    found = directories(config_for(tmp_path, ledger_directories=("/l1", "/l2")))
    assert found.journals == (tmp_path / "journal",)
    assert found.ledgers == found.indexes == (Path("/l1"), Path("/l2"))
    assert found.roots == (tmp_path / "journal", Path("/l1"), Path("/l2"))
    assert found.all_dirs[1:] == found.ledger_dirs == (Path("/l1/current"), Path("/l2/current"))


def test_a_directory_listed_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match="ledgerDirectories: /l is listed twice"):
        directories(config_for(tmp_path, ledger_directories=("/l", "/m", "/l")))


def test_preparing_makes_every_directory_and_leaves_it_empty(found: Directories) -> None:
    prepare(FILES, found)
    prepare(FILES, found)
    assert [sorted(FILES.list(root)) for root in found.roots] == [["current"]] * 5
    assert all(FILES.list(directory) == [] for directory in found.all_dirs)


def test_a_power_cut_takes_no_prepared_directory_away() -> None:
    files = SimFiles(Random(1))
    found = Directories((Path("/a/j"),), (Path("/a/b/l"),), (Path("/i"),))
    prepare(files, found)
    files.crash()
    assert all(files.is_dir(directory) for directory in found.all_dirs)


def test_a_file_in_the_way_is_named(found: Directories, tmp_path: Path) -> None:
    (tmp_path / "l1").write_text("")
    with pytest.raises(DirectoryError, match=r"/l1 cannot be used: File exists"):
        prepare(FILES, found)


@pytest.mark.parametrize("name", ["VERSION", "1.txn", "a.log", "a.idx"])
def test_data_of_an_old_layout_is_refused_with_the_command_to_run(found, name) -> None:
    found.ledgers[1].mkdir()
    (found.ledgers[1] / name).write_text("2")
    with pytest.raises(LayoutTooOldError, match=f"l1: holds {name} .*bkctl upgrade --upgrade"):
        prepare(FILES, found)


def test_two_directories_on_one_disk_can_be_forbidden(found: Directories) -> None:
    with pytest.raises(DirectoryError, match=r"j0 and .*j1 are on one disk partition"):
        prepare(FILES, found, several_per_disk=False)


def test_dirty_is_on_disk_from_start_to_clean_stop(found: Directories) -> None:
    prepare(FILES, found)
    assert not was_dirty(FILES, found)
    mark_dirty(FILES, found)
    assert was_dirty(FILES, found)
    assert all(FILES.read(directory / "DIRTY") == b"" for directory in found.ledger_dirs)
    clear_dirty(FILES, found)
    clear_dirty(FILES, found)
    assert not was_dirty(FILES, found)
