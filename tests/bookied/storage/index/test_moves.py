"""Index files that have no room to grow where they are."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from bookied.errors import IndexFullError
from bookied.storage.index import file_names
from bookied.storage.index import format as layout
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.ledger_pages import LedgerChange, Move
from tests.sim.world.disk import PowerCut, SimFiles

A, B, C = Path("/a"), Path("/b"), Path("/c")
HEADER = layout.IndexHeader(b"k" * 20)
FENCED = layout.IndexHeader(b"k" * 20, layout.FENCED)
PLACE = Path("0/1/1.idx")


def page(**slots: int) -> bytes:
    locations = layout.decode_page(b"")
    for name, location in slots.items():
        locations[int(name[1:])] = location
    return locations.tobytes()


FIRST = LedgerChange(1, HEADER, ((0, page(e0=5000)), (3, page(e1=7000))))
LATER = LedgerChange(1, FENCED, ((0, page(e0=5000, e1=6000)), (5, page(e2=8000))))


class Disks:
    """Two or three index directories, the first of which has no room left."""

    def __init__(self, seed: int = 1, directories: tuple[Path, ...] = (A, B)) -> None:
        self.files = SimFiles(Random(seed))
        self.directories = directories
        self.files.make_durable(*directories)
        index = self.open()
        index.avoid(directories[1:])
        index.write([FIRST])
        assert self.files.exists(A / PLACE)
        self.files.space_max = {A: self.files.used(A)}

    def open(self) -> IndexFiles:
        index = IndexFiles(self.files, self.directories, rng=Random(2))
        index.open()
        return index


def held(files: SimFiles, directory: Path) -> list[str]:
    return files.list(directory / "0/1") if files.exists(directory / "0/1") else []


def has_later(index: IndexFiles) -> bool:
    """Whether the change is there; there is nothing between all of it and none."""
    stored = index.load(1)
    assert stored is not None
    places = [(0, 0), (1, 1), (3 * 1024 + 1, 3), (5 * 1024 + 2, 5)]
    found = [index.location(1, entry_id) for entry_id, _ in places]
    later = (stored.header, stored.last_entry, found) == (
        FENCED,
        5 * 1024 + 2,
        [5000, 6000, 7000, 8000],
    )
    assert later or (found[0] == 5000 and found[2] == 7000)
    return later


def test_a_file_without_room_to_grow_moves_with_all_it_has() -> None:
    disks = Disks()
    index = disks.open()
    index.write([LATER])
    assert has_later(index)
    assert index.path(1) == B / PLACE
    disks.files.crash()
    assert has_later(disks.open())
    assert disks.files.list(A / "0/1") == []
    assert disks.files.list(B / "0/1") == ["1.idx"]
    assert (disks.files.size(B / PLACE) - layout.HEADER_BYTES) % layout.PAGE_BYTES == 0


@pytest.mark.parametrize("seed", range(40))
def test_a_move_that_is_cut_short_anywhere_leaves_one_whole_file(seed: int) -> None:
    disks = Disks(seed)
    index = disks.open()
    disks.files.cut_at = disks.files.operations + 1 + seed
    try:
        index.write([LATER])
    except PowerCut:
        pass
    else:
        assert seed > 10, "it has more steps than that"
    disks.files.crash()
    index = disks.open()
    has_later(index)
    names = [name for one in (A, B) for name in held(disks.files, one)]
    assert names == ["1.idx"]
    index.write([LATER])
    assert has_later(index)
    disks.files.crash()
    assert has_later(disks.open())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("step", ["remove", "rename"])
def test_a_move_whose_last_steps_failed_is_finished_before_anything_is_written(
    step: str, number: int
) -> None:
    disks = Disks(directories=(A, B, C))
    index = disks.open()
    disks.files.fault = lambda operation, path: (
        OSError(number, os.strerror(number)) if operation == step and "1.idx" in path.name else None
    )
    with pytest.raises(OSError, match=os.strerror(number)):
        index.write([LATER])
    assert index.location(1, 0) == 5000
    disks.files.fault = None
    index.switch([Move(1, 1, 6000, 9000)])
    assert index.location(1, 1) == 9000
    disks.files.crash()
    index = disks.open()
    assert [index.location(1, entry_id) for entry_id in (0, 1)] == [5000, 9000]
    names = [name for one in (A, B, C) for name in held(disks.files, one)]
    assert names == ["1.idx"]


def test_a_ledger_deleted_amid_its_move_does_not_come_back() -> None:
    disks = Disks()
    index = disks.open()
    disks.files.fault = lambda operation, _: OSError("fails") if operation == "rename" else None
    with pytest.raises(OSError, match="fails"):
        index.write([LATER])
    disks.files.fault = None
    index.hide(1)
    index.remove_hidden()
    disks.files.crash()
    assert disks.open().ledger_ids() == []


def test_readers_find_a_ledger_at_every_step_of_its_move() -> None:
    disks = Disks()
    index = disks.open()
    seen: list[str] = []

    def look(operation: str, path: Path) -> None:
        if path.name.startswith("1.idx") or path.parent.name == "1":
            reader = index.location(1, 0)
            assert reader == 5000
            stored = index.load(1)
            assert stored is not None
            seen.append(operation)

    disks.files.fault = look  # type: ignore[assignment]
    index.write([LATER])
    assert {"remove", "rename"} <= set(seen)


def test_a_ledger_without_room_anywhere_does_not_keep_the_others_back() -> None:
    disks = Disks()
    disks.files.space_max[B] = disks.files.used(B) + 12_000
    index = disks.open()
    with pytest.raises(IndexFullError, match="no space for the index of ledger 1") as caught:
        index.write([LATER, LedgerChange(2, HEADER, ((0, page(e0=9000)),))])
    assert caught.value.ledger_ids == {1}
    disks.files.crash()
    index = disks.open()
    assert not has_later(index)
    assert index.location(2, 0) == 9000
    disks.files.space_max.clear()
    index.write([LATER])
    assert has_later(index)


@pytest.mark.parametrize("is_restarted", [False, True], ids=["at once", "restarted"])
@pytest.mark.parametrize("seed", range(20))
def test_a_copy_that_found_no_room_is_never_taken_for_the_file_of_a_deleted_ledger(
    seed: int, *, is_restarted: bool
) -> None:
    disks = Disks(seed)
    disks.files.space_max[B] = disks.files.used(B) + 12_000
    index = disks.open()
    if is_restarted:
        disks.files.cut_at = disks.files.operations + 3
    with pytest.raises(PowerCut if is_restarted else IndexFullError):
        index.write([LATER])
    if is_restarted:
        disks.files.crash()
        index = disks.open()
    index.hide(1)
    index.remove_hidden()
    disks.files.crash()
    assert disks.open().ledger_ids() == []


def test_a_new_ledger_goes_where_there_is_room() -> None:
    disks = Disks(directories=(A, B, C))
    disks.files.space_max[B] = disks.files.used(B)
    index = disks.open()
    changes = [LedgerChange(number, HEADER, ((0, page(e0=5000)),)) for number in range(2, 12)]
    index.write(changes)
    disks.files.crash()
    index = disks.open()
    assert {index.path(change.ledger_id) for change in changes} == {
        C / file_names.relative_path(change.ledger_id) for change in changes
    }


def test_room_that_is_missing_as_late_as_the_sync_counts_too() -> None:
    disks = Disks()
    disks.files.space_max.clear()

    def fault(operation: str, path: Path) -> OSError | None:
        if operation == "sync" and A in path.parents:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return None

    index = disks.open()
    disks.files.fault = fault
    index.write([LATER])
    disks.files.crash()
    assert disks.open().path(1) == B / PLACE
    assert has_later(disks.open())


def test_a_file_that_was_grown_and_cannot_be_written_moves_too() -> None:
    disks = Disks()
    disks.files.space_max.clear()
    failed: list[Path] = []

    def fault(operation: str, path: Path) -> OSError | None:
        if operation == "write" and A in path.parents:
            failed.append(path)
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return None

    index = disks.open()
    disks.files.fault = fault
    index.write([LATER])
    assert failed, "the file system finds out when it has to allocate blocks"
    disks.files.crash()
    assert disks.open().path(1) == B / PLACE
    assert has_later(disks.open())


def test_a_broken_disk_is_no_want_of_room() -> None:
    disks = Disks()
    disks.files.fault = lambda operation, path: (
        OSError(errno.EIO, "broken") if operation == "write" and B in path.parents else None
    )
    with pytest.raises(OSError, match="broken"):
        disks.open().write([LATER])
    disks.files.fault = None
    disks.files.crash()
    assert not has_later(disks.open())
