"""Disks that fill up."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from bookied.directories.disk_fullness import (
    DiskLimits,
    DiskSample,
    judge,
    sample_disks,
    total_and_free,
)
from bookied.directories.roots import (
    Directories,
    prepare,
)
from bookied.storage.files.files import RealFiles
from tests.bookied.worlds.fakes import config_for

FILES = RealFiles()


LIMITS = DiskLimits(
    full_at=0.95, warn_at=0.9, writable_below=0.8, on_any_full=True, high_priority_bytes_min=100
)


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
    with pytest.raises(FileNotFoundError, match="its cookie is missing"):
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


class FillingDisk(RealFiles):
    """A disk that has less space each time."""

    free = 500

    def disk_usage(self, path: Path) -> tuple[int, int]:
        self.free -= 1
        return 1000, self.free


def test_directories_on_one_disk_are_counted_once_while_it_fills_up(found: Directories) -> None:
    prepare(FILES, found)
    assert total_and_free(FillingDisk(), found) == (1000, 499)
