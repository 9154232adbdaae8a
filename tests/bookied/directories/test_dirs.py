"""A bookie's directories: prepared, locked, marked dirty, and judged by how full they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import attrs
import pytest

from bookied.directories.dirs import (
    Directories,
    DirectoryLocks,
    DiskLimits,
    DiskSample,
    clear_dirty,
    directories,
    is_locked,
    judge,
    mark_dirty,
    prepare,
    sample_disks,
    total_and_free,
    was_dirty,
)
from bookied.errors import DirectoryError, DirectoryInUseError, LayoutTooOldError
from bookied.storage.files.files import RealFiles
from tests.bookied.worlds.fakes import config_for
from tests.sim.world.disk import SimFiles

FILES = RealFiles()
LIMITS = DiskLimits(
    full_at=0.95, warn_at=0.9, writable_below=0.8, on_any_full=True, high_priority_bytes_min=100
)


@pytest.fixture
def found(tmp_path: Path) -> Directories:
    names = [tmp_path / name for name in ("j0", "j1", "l0", "l1")]
    return Directories(tuple(names[:2]), tuple(names[2:]), (names[2], tmp_path / "i"))


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


def test_a_second_bookie_on_a_directory_is_refused_and_keeps_nothing(found: Directories) -> None:
    first, second = DirectoryLocks(), DirectoryLocks()
    first.take(found.roots[1:3])
    with pytest.raises(DirectoryInUseError, match=r"/j1 is in use by another bookie \(process \d"):
        second.take(found.roots)
    assert not is_locked(found.roots[0])
    assert is_locked(found.roots[1])
    first.release()
    assert not is_locked(found.roots[1])
    second.take(found.roots)
    second.release()


def test_a_lock_is_held_against_other_processes_and_goes_with_its_own(found: Directories) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from bookied.directories.dirs import DirectoryLocks\n"
        "DirectoryLocks().take([Path(sys.argv[1])]); print('locked', flush=True); sys.stdin.read()"
    )
    root = found.roots[0]
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryInUseError, match=f"process {other.pid}"):
            DirectoryLocks().take([root])
        other.kill()
        other.communicate()
    locks = DirectoryLocks()
    locks.take([root])
    locks.release()


def test_a_lock_that_cannot_be_made_is_a_bad_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryError, match="cannot be used: Not a directory"):
        DirectoryLocks().take([tmp_path / "file" / "below"])


def test_dirty_is_on_disk_from_start_to_clean_stop(found: Directories) -> None:
    prepare(FILES, found)
    assert not was_dirty(FILES, found)
    mark_dirty(FILES, found)
    assert was_dirty(FILES, found)
    assert all(FILES.read(directory / "DIRTY") == b"" for directory in found.ledger_dirs)
    clear_dirty(FILES, found)
    clear_dirty(FILES, found)
    assert not was_dirty(FILES, found)


def disks(*used_percent: float) -> list[DiskSample]:
    return [
        DiskSample(Path(f"/{number}"), 1000, 1000 - int(10 * percent))
        for number, percent in enumerate(used_percent)
    ]


@pytest.mark.parametrize(
    ("used", "was_read_only", "on_any_full", "read_only"),
    [
        ((10, 20), False, True, False),
        ((95, 95), False, True, False),
        ((96, 20), False, True, True),
        ((96, 20), False, False, False),
        ((96, 96), False, False, True),
        ((94, 94), True, True, True),
        ((94, 60), True, True, False),
        ((96, 60), True, True, True),
        ((96, 60), True, False, False),
        ((96, 70), True, False, True),
        ((80, 80), True, True, True),
        ((79.9, 79.9), True, True, False),
    ],
)
def test_read_only_begins_when_full_and_ends_below_the_low_water_mark(
    used, was_read_only, on_any_full, read_only
) -> None:
    limits = DiskLimits(
        full_at=0.95,
        warn_at=0.9,
        writable_below=0.8,
        on_any_full=on_any_full,
        high_priority_bytes_min=100,
    )
    assert judge(disks(*used), limits, was_read_only=was_read_only).read_only is read_only


def test_full_and_nearly_full_directories_are_named() -> None:
    verdict = judge(disks(91, 96, 50), LIMITS, was_read_only=False)
    assert verdict.full == (Path("/1"),)
    assert verdict.nearly_full == (Path("/0"),)


def test_recovery_adds_are_taken_while_one_directory_has_room_for_them() -> None:
    assert judge(disks(96, 90), LIMITS, was_read_only=True).high_priority_allowed
    assert not judge(disks(96, 96), LIMITS, was_read_only=True).high_priority_allowed


def test_recovery_adds_need_room_for_an_index_too() -> None:
    limits = attrs.evolve(LIMITS, index_bytes_min=50)
    roomy, small = DiskSample(Path("/l"), 1000, 200, takes_indexes=False), Path("/i")
    for usable_bytes in (49, 50):
        index = DiskSample(small, 100_000, usable_bytes, takes_logs=False)
        verdict = judge([roomy, index], limits, was_read_only=True)
        assert verdict.high_priority_allowed is (usable_bytes == 50)


def test_full_directories_without_room_for_an_entry_log_are_told_apart() -> None:
    limits = attrs.evolve(LIMITS, log_bytes_min=30)
    verdict = judge(disks(96.9, 98, 50), limits, was_read_only=False)
    assert verdict.full == (Path("/0"), Path("/1"))
    assert verdict.tight == (Path("/1"),)


def test_a_disk_that_tells_no_size_counts_as_empty() -> None:
    assert DiskSample(Path("/x"), 0, 0).used == 0.0


def test_the_limits_come_from_the_configuration(tmp_path: Path) -> None:
    limits = DiskLimits.of(config_for(tmp_path, log_bytes_max=4096))
    assert (limits.full_at, limits.writable_below) == (0.95, 0.95)
    assert limits.high_priority_bytes_min == 4096


def test_disks_are_sampled_while_their_cookie_is_there(found: Directories) -> None:
    prepare(FILES, found)
    for directory in found.all_dirs:
        (directory / "VERSION").write_text("5")
    samples = sample_disks(FILES, found)
    assert [one.directory for one in samples] == [*found.ledger_dirs, found.index_dirs[1]]
    assert all(0 <= one.used <= 1 for one in samples)
    (found.ledger_dirs[1] / "VERSION").unlink()
    with pytest.raises(FileNotFoundError, match="its cookie is gone"):
        sample_disks(FILES, found)


@pytest.mark.parametrize("kind", ["journals", "ledgers", "indexes"])
def test_a_directory_of_any_kind_without_cookie_has_failed(found: Directories, kind: str) -> None:
    prepare(FILES, found)
    for directory in found.all_dirs:
        (directory / "VERSION").write_text("5")
    root = getattr(found, kind)[-1]
    (root / "current" / "VERSION").unlink()
    with pytest.raises(FileNotFoundError, match="emptied or unmounted") as caught:
        sample_disks(FILES, found)
    assert caught.value.filename == str(root / "current" / "VERSION")


def test_directories_on_one_disk_are_counted_once(found: Directories) -> None:
    prepare(FILES, found)
    total, _free = total_and_free(FILES, found)
    assert total == FILES.disk_usage(found.ledgers[0])[0]
