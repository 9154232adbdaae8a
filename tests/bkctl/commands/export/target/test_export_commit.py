"""The commit of an export, stopped and failing at every step."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs
import pytest

from bkctl.commands.export.errors import ExportVerifyError, ForeignFilesError
from bkctl.commands.export.target.export_commit import (
    COMMIT_PATH,
    STAGING_PREFIX,
    Commit,
    commit,
    decode_commit,
    gather,
    load_tree,
    moves_of,
    staging,
    sweep_staging,
)
from bkctl.commands.export.target.file_systems import LocalFiles, TargetFiles, open_files
from bkctl.commands.export.target.manifest import FULL_EVERY, ManifestError, TargetTree
from bkctl.commands.export.target.new_since_last import (
    added_paths,
    check_ours,
    check_strangers,
    contradiction,
    find_changes,
)
from bkctl.commands.export.task.parquet_file import WrittenFile, WrittenRange
from bkctl.commands.export.task.partitions import LedgerExtent
from wire.ids import EntryId, LedgerId

STAGED = f"{STAGING_PREFIX}1"


class Killed(BaseException):
    """The process died."""


class FailingFiles(LocalFiles):
    """Local files where the n-th change fails: with an error, or by the end of the process."""

    def __init__(self, root: Path, fails_at: int, error: BaseException) -> None:
        super().__init__(root)
        self.left, self._error = fails_at, error

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0 or (self.left < 0 and isinstance(self._error, Killed)):
            raise self._error

    def put(self, path: str, data: bytes) -> None:
        self._step()
        super().put(path, data)

    def move(self, source: str, target: str) -> None:
        self._step()
        super().move(source, target)

    def settle_moves(self, paths: Iterable[str]) -> None:
        self._step()
        super().settle_moves(paths)

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)


class PowerLossFiles(LocalFiles):
    """Local files that fail where a power failure could undo moves that have to stay."""

    def __init__(self, root: Path, fails_at: int = 0) -> None:
        super().__init__(root)
        self._left, self._unsettled = fails_at, set[str]()

    def move(self, source: str, target: str) -> None:
        self._left -= 1
        if self._left == 0:
            raise OSError("disk")
        super().move(source, target)
        self._unsettled.add(target)

    def settle_moves(self, paths: Iterable[str]) -> None:
        settled = set(paths)
        super().settle_moves(settled)
        self._unsettled -= settled

    def put(self, path: str, data: bytes) -> None:
        assert not self._unsettled, (path, self._unsettled)
        super().put(path, data)

    def remove(self, path: str) -> None:
        assert path != COMMIT_PATH or not self._unsettled, self._unsettled
        super().remove(path)


def extent(ledger_id: int, last: int, state: str = "CLOSED") -> LedgerExtent:
    return LedgerExtent(
        LedgerId(ledger_id), EntryId(last), 10 * (last + 1), state, "CRC32C", 1_700_000_000_000
    )


def written(path: str, ledger_id: int, first: int, last: int, data: bytes) -> WrittenFile:
    ranges = (WrittenRange(LedgerId(ledger_id), EntryId(first), EntryId(last)),)
    return WrittenFile(path, len(data), last - first + 1, 10, "00", ranges)


def file(path: str, *ranges: tuple[int, int, int]) -> WrittenFile:
    """Return a file of 3 bytes with these entries of these ledgers."""
    held = tuple(WrittenRange(LedgerId(n), EntryId(a), EntryId(b)) for n, a, b in ranges)
    return WrittenFile(path, 3, sum(one.last + 1 - one.first for one in held), 10, "00", held)


def stage(files: TargetFiles, path: str, data: bytes) -> None:
    with files.create(f"{STAGED}/{path}") as stream:
        stream.write(data)


def change(files: TargetFiles, tree: TargetTree) -> Commit:
    """Replace ledger 1's file, add a file to ledger 2, add ledger 3."""
    stage(files, "ledger=1/part-b.parquet", b"one, again")
    stage(files, "ledger=2/part-b.parquet", b"two, more")
    stage(files, "ledger=3/part-a.parquet", b"three")
    new = [
        written("ledger=1/part-b.parquet", 1, 0, 5, b"one, again"),
        written("ledger=2/part-b.parquet", 2, 4, 5, b"two, more"),
        written("ledger=3/part-a.parquet", 3, 0, 5, b"three"),
    ]
    removed = ["ledger=1/part-a.parquet"]
    record = tree.next_record(
        cluster="c",
        layout="ledger",
        now_ms=1,
        ledgers=[extent(1, 5), extent(2, 5), extent(3, 5)],
        files=new,
        removed=removed,
    )
    existing = frozenset(files.names())
    added = added_paths("ledger", record.run, new, existing, by_file=files.is_object_store)
    ready = gather(files, STAGED, [file.path for file in new])
    return Commit(STAGED, moves_of(STAGED, ready, added, removed), record)


def seeded(root: Path) -> tuple[LocalFiles, TargetTree]:
    """Make a directory with ledgers 1 and 2, and a note of the user's."""
    files = LocalFiles(root)
    seed(files)
    (root / "ledger=1" / "_notes.txt").write_text("mine")
    return files, load_tree(files)


def seed(files: TargetFiles) -> None:
    """Make a run with ledgers 1 and 2."""
    tree = TargetTree()
    first = [
        written("ledger=1/part-a.parquet", 1, 0, 5, b"one"),
        written("ledger=2/part-a.parquet", 2, 0, 3, b"two"),
    ]
    stage(files, "ledger=1/part-a.parquet", b"one")
    stage(files, "ledger=2/part-a.parquet", b"two")
    record = tree.next_record(
        cluster="c",
        layout="ledger",
        now_ms=1,
        ledgers=[extent(1, 5), extent(2, 3, "OPEN")],
        files=first,
        removed=[],
    )
    ready = gather(files, STAGED, [file.path for file in first])
    added = added_paths("ledger", 1, first, frozenset(), by_file=files.is_object_store)
    commit(files, Commit(STAGED, moves_of(STAGED, ready, added, []), record))


def shown(root: Path) -> dict[str, bytes]:
    """Return what a reader sees."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.relative_to(root).parts[0].startswith("_")
    }


BEFORE = {
    "ledger=1/part-a.parquet": b"one",
    "ledger=1/_notes.txt": b"mine",
    "ledger=2/part-a.parquet": b"two",
}
AFTER = {
    "ledger=1/part-b.parquet": b"one, again",
    "ledger=1/_notes.txt": b"mine",
    "ledger=2/part-a.parquet": b"two",
    "ledger=2/part-b.parquet": b"two, more",
    "ledger=3/part-a.parquet": b"three",
}
MOVES = 4
STEPS = 1 + MOVES + 1 + 3
"""commit.json, the moves, their sync, the record, and the removal of the staging directory and
commit.json."""


def test_a_commit_puts_all_in_place(tmp_path) -> None:
    files, tree = seeded(tmp_path)
    assert shown(tmp_path) == BEFORE
    commit(files, change(files, tree))
    assert shown(tmp_path) == AFTER
    again = load_tree(files)
    assert (again.run, sorted(again.ledgers)) == (2, [1, 2, 3])
    assert set(again.files) == {path for path in AFTER if path.endswith(".parquet")}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "_bkctl",
        "ledger=1",
        "ledger=2",
        "ledger=3",
    ]


def test_files_of_attempts_that_failed_are_not_put_in_place(tmp_path) -> None:
    files, tree = seeded(tmp_path)
    for path in ("ledger=3/part-half.parquet", "ledger=2/part-twice.parquet"):
        stage(files, path, b"of an attempt that failed")
    decided = change(files, tree)
    # An attempt that Spark believes lost goes on after the driver has looked.
    stage(files, "ledger=3/part-late.parquet", b"late")
    commit(files, decided)
    assert shown(tmp_path) == AFTER


def test_an_attempt_that_was_given_up_makes_no_file_behind_the_end(tmp_path) -> None:
    files = LocalFiles(tmp_path)
    with staging(files) as staged:
        of_task = open_files(files.child(staged).uri, follow=False)
        of_task.create("ledger=1/part-a.parquet").close()
    with pytest.raises(FileNotFoundError):
        of_task.create("ledger=2/part-a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_that_was_given_up_may_add_files_while_they_are_removed(tmp_path) -> None:
    files, late = LocalFiles(tmp_path), ["a", "b", "c"]
    (tmp_path / STAGED).mkdir()

    def add_before_it_is_removed(event: str, words: tuple[object, ...]) -> None:
        if event == "os.rmdir" and late and str(words[0]).endswith(STAGED):
            files.create(f"{STAGED}/ledger={late.pop()}/part-a.parquet").close()

    sys.addaudithook(add_before_it_is_removed)
    files.remove(STAGED)
    assert late == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_process_that_dies_at_any_step_leaves_all_or_nothing(tmp_path, step) -> None:
    files, tree = seeded(tmp_path)
    decided = change(files, tree)
    with pytest.raises(Killed):
        commit(FailingFiles(tmp_path, step, Killed()), decided)
    # The next export dies, too, at its first step, and then there is one that does not.
    if (tmp_path / COMMIT_PATH).exists():
        with pytest.raises(Killed):
            load_tree(FailingFiles(tmp_path, 1, Killed()))
    found = load_tree(files)
    sweep_staging(files)
    assert shown(tmp_path) == (BEFORE if step == 1 else AFTER)
    assert found.run == (1 if step == 1 else 2)
    assert not list(tmp_path.glob(f"{STAGING_PREFIX}*"))
    assert not (tmp_path / COMMIT_PATH).exists()


@pytest.mark.parametrize("step", range(1, 1 + MOVES + 1))
def test_a_move_that_fails_brings_back_what_was_there(tmp_path, step) -> None:
    files, tree = seeded(tmp_path)
    decided = change(files, tree)
    with pytest.raises(OSError, match="disk"):
        commit(FailingFiles(tmp_path, step, OSError("disk")), decided)
    assert shown(tmp_path) == BEFORE
    assert load_tree(files).run == 1
    assert not (tmp_path / COMMIT_PATH).exists()


def test_moves_that_cannot_be_synced_are_finished_by_the_next_export(tmp_path) -> None:
    files, tree = seeded(tmp_path)
    decided = change(files, tree)
    with pytest.raises(OSError, match="disk"):
        commit(FailingFiles(tmp_path, 1 + MOVES + 1, OSError("disk")), decided)
    assert load_tree(files).run == 2
    assert shown(tmp_path) == AFTER


@pytest.mark.parametrize("step", range(1 + MOVES))
def test_a_power_failure_undoes_no_move_that_has_to_stay(tmp_path, step) -> None:
    files, tree = seeded(tmp_path)
    decided = change(PowerLossFiles(tmp_path), tree)
    failing = PowerLossFiles(tmp_path, step)
    with contextlib.suppress(OSError):
        commit(failing, decided)
    assert load_tree(files).run == (1 if 0 < step <= MOVES else 2)


@pytest.mark.parametrize("step", range(2, 2 + MOVES))
def test_a_power_failure_undoes_no_move_of_a_commit_that_was_interrupted(tmp_path, step) -> None:
    files, tree = seeded(tmp_path)
    decided = change(files, tree)
    with pytest.raises(Killed):
        commit(FailingFiles(tmp_path, step, Killed()), decided)
    load_tree(PowerLossFiles(tmp_path))
    assert shown(tmp_path) == AFTER


def test_a_commit_syncs_no_directory_for_each_new_ledger(tmp_path, monkeypatch) -> None:
    files, fsync = LocalFiles(tmp_path), os.fsync
    new = [written(f"ledger={n}/part-a.parquet", n, 0, 5, b"one") for n in range(100)]
    for one in new:
        stage(files, one.path, b"one")
    record = TargetTree().next_record(
        cluster="c",
        layout="ledger",
        now_ms=1,
        ledgers=[extent(n, 5) for n in range(100)],
        files=new,
        removed=[],
    )
    ready = gather(files, STAGED, [one.path for one in new])
    moves = moves_of(STAGED, ready, added_paths("ledger", 1, new, frozenset()), [])
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(number) or fsync(number))
    commit(files, Commit(STAGED, moves, record))
    assert len(shown(tmp_path)) == 100
    assert len(synced) < 20


class TakenOverFiles(LocalFiles):
    """Local files of an export that stands still after its n-th change, until its lock is lost."""

    def __init__(self, root: Path, stands_at: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(root)
        self._left, self._meanwhile, self._is_lost = stands_at, meanwhile, False

    def _stepped(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._is_lost = True
            self._meanwhile()

    def put(self, path: str, data: bytes) -> None:
        super().put(path, data)
        self._stepped()

    def move(self, source: str, target: str) -> None:
        super().move(source, target)
        self._stepped()

    def settle_moves(self, paths: Iterable[str]) -> None:
        super().settle_moves(paths)
        self._stepped()

    def remove(self, path: str) -> None:
        super().remove(path)
        self._stepped()

    def check_locked(self) -> None:
        if self._is_lost:
            raise BlockingIOError("the lock was lost")


@pytest.mark.parametrize("dies_at", [2, 3, 99])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_an_export_that_lost_its_lock_leaves_the_next_one_alone(tmp_path, step, dies_at) -> None:
    files, tree = seeded(tmp_path)
    decided = change(files, tree)

    def next_export() -> None:
        other = load_tree(files)
        sweep_staging(files)
        staged = f"{STAGING_PREFIX}2"
        with files.create(f"{staged}/ledger=4/part-a.parquet") as stream:
            stream.write(b"four")
        record = other.next_record(
            cluster="c",
            layout="ledger",
            now_ms=1,
            ledgers=[extent(4, 5)],
            files=[written("ledger=4/part-a.parquet", 4, 0, 5, b"four")],
            removed=[],
        )
        moves = moves_of(staged, staged, [("ledger=4", "ledger=4")], [])
        with contextlib.suppress(Killed):
            commit(FailingFiles(tmp_path, dies_at, Killed()), Commit(staged, moves, record))

    with contextlib.suppress(OSError):
        commit(TakenOverFiles(tmp_path, step, next_export), decided)
    found = load_tree(files)
    sweep_staging(files)
    expected = AFTER | {"ledger=4/part-a.parquet": b"four"}
    assert shown(tmp_path) == expected
    assert found.run == 3
    assert set(found.files) == {path for path in expected if path.endswith(".parquet")}
    assert not (tmp_path / COMMIT_PATH).exists()


def test_records_are_folded_now_and_then(tmp_path) -> None:
    files, tree = seeded(tmp_path)
    for _ in range(2 * FULL_EVERY):
        record = tree.next_record(
            cluster="c",
            layout="ledger",
            now_ms=1,
            ledgers=[extent(2, tree.run + 10, "OPEN")],
            files=[],
            removed=[],
        )
        commit(files, Commit(STAGED, (), record))
        tree.apply(record)
    assert load_tree(files) == tree
    assert tree.run == 2 * FULL_EVERY + 1
    assert len(list((tmp_path / "_bkctl").iterdir())) == 2


def test_a_record_that_is_missing_or_damaged_is_an_error(tmp_path) -> None:
    files, tree = seeded(tmp_path)
    commit(files, change(files, tree))
    first = tmp_path / "_bkctl" / "run-000001.json"
    kept = first.read_bytes()
    first.unlink()
    with pytest.raises(ManifestError, match=r"run-000001.json is missing"):
        load_tree(files)
    for damage in (b"", b"{}", b"[]", b'{"format": 3}', kept[:-1], b"\xff", b"[" * 100_000):
        first.write_bytes(damage)
        with pytest.raises(ManifestError, match=r"run-000001.json cannot be read"):
            load_tree(files)
        with pytest.raises(ManifestError):
            decode_commit(damage)


def test_a_directory_of_something_else_is_refused(tmp_path) -> None:
    _, tree = seeded(tmp_path)
    check_ours(tree, "c", "ledger", "parquet", "/data")
    with pytest.raises(ForeignFilesError, match="cluster c; this is cluster d"):
        check_ours(tree, "d", "ledger", "parquet", "/data")
    with pytest.raises(ForeignFilesError, match="arranged by ledger"):
        check_ours(tree, "c", "none", "parquet", "/data")
    for path in ("ledger=1/mine.parquet", "part.parquet", "README"):
        with pytest.raises(ForeignFilesError, match=path):
            check_strangers(tree, {path: 1}, "/data")
    check_strangers(tree, {"ledger=1/_notes.txt": 1, "_old/x.parquet": 1}, "/data")


class TestChanges:
    """What an export does about each ledger."""

    SIZES = {"ledger=1/part-a.parquet": 3, "ledger=2/part-a.parquet": 3}  # noqa: RUF012
    SHARED = {"run=1/a": 3, "run=1/b": 3}  # noqa: RUF012

    @pytest.fixture
    def tree(self, tmp_path) -> TargetTree:
        return seeded(tmp_path)[1]

    @pytest.fixture
    def shared(self) -> TargetTree:
        """Return a tree whose ledgers share a file; ledger 2 is in a second one, too."""
        files = (
            file("run=1/a", (1, 0, 5), (2, 0, 1), (3, 0, 2)),
            file("run=1/b", (2, 2, 3)),
        )
        ledgers = (extent(1, 5), extent(2, 3, "OPEN"), extent(3, 2))
        return TargetTree(
            layout="none",
            run=1,
            ledgers={one.ledger_id: one for one in ledgers},
            files={one.path: one for one in files},
        )

    def test_a_closed_ledger_that_is_there_is_left_alone(self, tree) -> None:
        found = find_changes(tree, [extent(1, 5)], self.SIZES, again=False)
        assert (found.todo, found.removed, found.noted, found.unchanged) == ((), (), (), {1})

    def test_of_a_ledger_that_grew_the_rest_is_copied(self, tree) -> None:
        found = find_changes(tree, [extent(2, 9)], self.SIZES, again=False)
        (rest,) = found.todo
        assert (rest.first_entry_id, rest.last_entry_id, rest.length) == (4, 9, 60)
        assert found.removed == ()

    def test_a_state_that_changed_is_noted(self, tree) -> None:
        found = find_changes(tree, [extent(2, 3)], self.SIZES, again=False)
        assert (found.todo, found.noted) == ((), (extent(2, 3),))

    def test_bookies_that_know_less_of_an_open_ledger_change_nothing(self, tree) -> None:
        found = find_changes(tree, [extent(2, 1, "OPEN")], self.SIZES, again=False)
        assert found.unchanged == {2}

    @pytest.mark.parametrize(("sizes", "again"), [(SIZES, True), ({}, False)])
    def test_an_open_ledger_is_written_anew_as_far_as_it_was(self, tree, sizes, again) -> None:
        found = find_changes(tree, [extent(2, 1, "OPEN")], sizes, again=again)
        assert (found.todo, found.removed) == (
            (extent(2, 3, "OPEN"),),
            ("ledger=2/part-a.parquet",),
        )

    def test_a_ledger_that_is_closed_too_early_is_an_error(self, tree) -> None:
        with pytest.raises(ExportVerifyError, match="closed at entry 1"):
            find_changes(tree, [extent(2, 1)], self.SIZES, again=False)

    @pytest.mark.parametrize("sizes", [{}, {"ledger=1/part-a.parquet": 2}])
    def test_a_file_that_is_lost_or_changed_is_written_anew(self, tree, sizes) -> None:
        found = find_changes(tree, [extent(1, 5)], sizes, again=False)
        assert (found.todo, found.removed) == ((extent(1, 5),), ("ledger=1/part-a.parquet",))

    def test_another_ledger_of_the_same_id_replaces_it(self, tree) -> None:
        other = attrs.evolve(extent(1, 5), ctime_ms=1_800_000_000_000)
        found = find_changes(tree, [other], self.SIZES, again=False)
        assert (found.todo, found.removed) == ((other,), ("ledger=1/part-a.parquet",))

    def test_a_closed_ledger_that_grew_is_another_one(self, tree) -> None:
        """Older metadata has no creation time."""
        grown = extent(1, 6)
        found = find_changes(tree, [grown], self.SIZES, again=False)
        assert (found.todo, found.removed) == ((grown,), ("ledger=1/part-a.parquet",))

    def test_what_contradicts_an_earlier_export_is_known_before(self, tree) -> None:
        other = attrs.evolve(extent(1, 5), ctime_ms=1_800_000_000_000)
        assert "export 1 --to DIR` replaces" in (contradiction(tree, other) or "")
        assert "closed at entry 1" in (contradiction(tree, extent(2, 1)) or "")
        assert [contradiction(tree, one) for one in (extent(2, 3), extent(9, 1))] == [None, None]
        tree.layout = "none"
        assert "another ledger with the id 1 was exported" in (contradiction(tree, other) or "")

    @pytest.mark.parametrize(("sizes", "again"), [(SHARED, True), ({"run=1/b": 3}, False)])
    def test_of_shared_files_all_is_copied_again(self, shared, sizes, again) -> None:
        found = find_changes(shared, [extent(1, 5), extent(2, 9)], sizes, again=again)
        parts = [(one.ledger_id, one.first_entry_id, one.last_entry_id) for one in found.recopied]
        of_b = [(2, 2, 3)] if again else []
        assert parts == [(1, 0, 5), (2, 0, 1), (3, 0, 2), *of_b]
        assert found.removed == ("run=1/a", *(["run=1/b"] if again else []))
        (rest,) = found.todo
        assert (rest.ledger_id, rest.first_entry_id, rest.last_entry_id) == (2, 4, 9)
        assert found.damaged == (() if again else (1, 2))
        assert found.unchanged == frozenset()

    def test_shared_files_of_other_ledgers_stay(self, shared) -> None:
        found = find_changes(shared, [extent(2, 3)], {"run=1/a": 3}, again=False)
        assert (found.removed, found.damaged) == (("run=1/b",), (2,))
        assert [(one.ledger_id, one.length) for one in found.recopied] == [(2, 20)]

    def test_another_ledger_of_the_same_id_replaces_no_shared_file(self, shared) -> None:
        other = attrs.evolve(extent(1, 5), ctime_ms=1_800_000_000_000)
        with pytest.raises(ForeignFilesError, match="another ledger with the id 1 was exported"):
            find_changes(shared, [other], {}, again=True)

    def test_many_ledgers_without_any_change_are_no_work(self) -> None:
        tree = TargetTree(ledgers={n: extent(n, 0) for n in range(100_000)})
        found = find_changes(tree, list(tree.ledgers.values()), {}, again=False)
        assert len(found.unchanged) == 100_000
