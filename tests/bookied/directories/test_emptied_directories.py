"""An emptied directory is told from a new one by the notes beside it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from random import Random

import pytest

from bookied.config.db import RocksSettings
from bookied.directories.emptied_directories import (
    NAME,
    ContentsNotes,
    check_losses,
    forget,
    forget_index,
    losses,
)
from bookied.directories.last_journal_note import NAME as SERVED
from bookied.directories.last_journal_note import NO_LEDGER, LastJournalNote, note_journal
from bookied.directories.roots import Directories
from bookied.errors import CorruptError, DirectoryEmptiedError, JournalMissingError
from bookied.storage.files.files import RealFiles, remove_tree
from bookied.storage.index.rocks.database import open_of_index
from bookied.storage.journal.format import header
from tests.bookied.worlds.golden import DIRECTORY
from tests.sim.world.disk import SimFiles

J, L0, L1, I0 = Path("/j"), Path("/l0"), Path("/l1"), Path("/i0")
FOUND = Directories((J,), (L0, L1), (I0,))


class Desk:
    """A bookie's directories, as some life of it has left them."""

    def __init__(self, found: Directories = FOUND) -> None:
        self.found = found
        self.files = SimFiles(Random(1))
        for root in found.roots:
            self.files.mkdirs(root / "current")
            self.put(root, "VERSION")
            self.files.sync_dir(root)
        self.files.sync_dir(Path("/"))

    def put(self, root: Path, *names: str) -> None:
        for name in names:
            path = root / "current" / name
            self.files.mkdirs(path.parent)
            self.files.write_atomic(path, header(6) if path.suffix == ".txn" else b"-")

    def serve(self) -> None:
        self.put(J, "1e.txn", "1f.txn")
        note_journal(self.files, J, LastJournalNote(0x1F, NO_LEDGER))
        for root in self.found.ledgers:
            self.put(root, "lastMark")
        self.put(L0, "lastId", "0.log")
        for root in self.found.indexes:
            self.put(root, "0/5/5.idx")
        ContentsNotes(self.files, self.found).update()

    def empty(self, root: Path) -> None:
        for name in self.files.list(root / "current"):
            if name != "VERSION":
                remove_tree(self.files, root / "current" / name)

    def lost(self) -> list[Path]:
        return [loss.root for loss in losses(self.files, self.found)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def served(desk: Desk) -> Desk:
    desk.serve()
    return desk


def refusal(desk: Desk) -> CorruptError:
    with pytest.raises(CorruptError) as caught:
        check_losses(desk.files, desk.found)
    assert caught.value.exit_status == 7
    return caught.value


def test_a_new_bookie_and_one_that_served_have_lost_nothing(desk: Desk) -> None:
    check_losses(desk.files, desk.found)
    desk.serve()
    check_losses(desk.files, desk.found)


@pytest.mark.parametrize("root", [L0, L1, I0])
def test_an_emptied_directory_is_named(served: Desk, root: Path) -> None:
    served.empty(root)
    error = refusal(served)
    assert isinstance(error, DirectoryEmptiedError)
    assert error.path == root / "current"
    assert "emptied" in str(error)
    assert served.lost() == [root]


def lose(desk: Desk, root: Path) -> None:
    """Take a directory away with its notes, and put an empty one with a cookie in its place."""
    remove_tree(desk.files, root)
    desk.files.mkdirs(root / "current")
    desk.put(root, "VERSION")


@pytest.mark.parametrize("root", [L0, L1, I0])
def test_a_new_directory_with_a_copied_cookie_is_a_loss(served: Desk, root: Path) -> None:
    """Its own note is lost with it: the journal's root has kept word."""
    lose(served, root)
    error = refusal(served)
    assert isinstance(error, DirectoryEmptiedError)
    assert error.path == root / "current"
    assert served.lost() == [root]


def test_a_directory_that_is_added_was_never_lost(served: Desk) -> None:
    l2 = Path("/l2")
    served.found = Directories((J,), (L0, L1, l2), (I0, l2))
    served.files.mkdirs(l2 / "current")
    served.put(l2, "VERSION")
    check_losses(served.files, served.found)


def test_one_directory_that_begins_anew_leaves_what_is_noted_of_the_others(served: Desk) -> None:
    lose(served, L0)
    forget(served.files, served.found, L0)
    check_losses(served.files, served.found)
    served.files.crash()
    check_losses(served.files, served.found)
    lose(served, L1)
    assert served.lost() == [L1]


def test_of_one_root_for_all_each_loss_is_told() -> None:
    desk = Desk(Directories((J,), (J,), (J,)))
    desk.put(J, "lastMark", "5.txn", "0/5/5.idx")
    note_journal(desk.files, J, LastJournalNote(5, NO_LEDGER))
    ContentsNotes(desk.files, desk.found).update()
    desk.files.crash()
    desk.empty(J)
    kinds = [type(loss.error) for loss in losses(desk.files, desk.found)]
    assert sorted(kinds, key=str) == [DirectoryEmptiedError] * 2 + [JournalMissingError]


def test_an_index_that_is_gone_is_a_loss_while_logs_and_marks_are_there() -> None:
    desk = Desk(Directories((J,), (L0,), (L0,)))
    desk.put(L0, "lastMark", "0.log", "metadata-cache/CURRENT")
    desk.put(L0, "ledgers/CURRENT", "locations/CURRENT")
    ContentsNotes(desk.files, desk.found).update()
    for name in ("ledgers", "locations"):
        remove_tree(desk.files, L0 / "current" / name)
    assert "index" in str(refusal(desk))


def test_a_directory_without_logs_and_without_ledgers_was_not_emptied(served: Desk) -> None:
    """As after the deletion of every ledger, and a round of garbage collection."""
    for path in (L0 / "current/0.log", L0 / "current/lastId", I0 / "current/0/5/5.idx"):
        served.files.remove(path)
    check_losses(served.files, served.found)


def test_the_last_journal_that_was_begun_or_a_later_one_has_to_be_there(served: Desk) -> None:
    served.files.remove(J / "current/1f.txn")
    error = refusal(served)
    assert isinstance(error, JournalMissingError)
    assert error.path == J / "current/1f.txn"
    served.put(J, "20.txn")  # Java's, after which ours may have gone.
    check_losses(served.files, served.found)


@pytest.mark.parametrize("begin", [b"", b"BKL", bytes(512)])
def test_the_last_journal_that_was_begun_still_has_its_first_bytes(
    served: Desk, begin: bytes
) -> None:
    """They are on disk before the note says that the journal was begun."""
    served.files.write_atomic(J / "current/1e.txn", b"")  # As another bookie's crash leaves it.
    check_losses(served.files, served.found)
    served.files.write_atomic(J / "current/1f.txn", begin)
    error = refusal(served)
    assert isinstance(error, JournalMissingError)
    assert error.path == J / "current/1f.txn"
    assert "cut" in str(error)
    served.put(J, "20.txn")  # Java's, which did not notice.
    assert served.lost() == [J]


@pytest.mark.parametrize("data", [None, b"nonsense"])
def test_without_a_note_nothing_is_known(served: Desk, data: bytes | None) -> None:
    for root in FOUND.roots:
        served.empty(root)
        for name in (NAME, SERVED):
            if data is not None:
                served.files.write_atomic(root / name, data)
            elif served.files.exists(root / name):
                served.files.remove(root / name)
    check_losses(served.files, served.found)


def test_a_directory_that_begins_anew_has_no_past(served: Desk) -> None:
    for root in FOUND.roots:
        served.empty(root)
        forget(served.files, served.found, root)
    check_losses(served.files, served.found)
    served.files.crash()
    check_losses(served.files, served.found)


def test_what_a_note_tells_of_is_durable_before_it() -> None:
    """The power may go anywhere in it: a directory is never taken for emptied."""
    for cut in range(1, 60):
        desk = Desk()
        desk.files.mkdirs(I0 / "current/0/5")
        desk.put(L1, "lastMark")
        desk.files.cut_at = desk.files.operations + cut
        try:
            ContentsNotes(desk.files, desk.found).update()
        except BaseException as error:  # noqa: BLE001  # the power is gone
            assert type(error).__name__ == "PowerCut"  # noqa: PT017
        desk.files.crash()
        assert desk.lost() == []


def test_what_comes_later_is_noted_then_and_nothing_is_written_twice(desk: Desk) -> None:
    notes = ContentsNotes(desk.files, desk.found)
    notes.update()
    assert not desk.files.exists(L0 / NAME)
    desk.serve()
    notes.update()
    before = desk.files.operations
    notes.update()
    assert desk.files.operations == before
    desk.empty(L0)
    assert desk.lost() == [L0]


def test_a_note_that_cannot_be_written_is_tried_again(desk: Desk) -> None:
    notes = ContentsNotes(desk.files, desk.found)
    desk.put(L0, "lastMark")
    desk.files.fault = lambda *_: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    notes.update()
    desk.files.fault = None
    assert not desk.files.exists(L0 / NAME)
    notes.update()
    desk.empty(L0)
    assert desk.lost() == [L0]


@pytest.mark.parametrize("lost", ["ledgers", "locations"])
def test_one_of_two_databases_is_no_index(lost: str) -> None:
    """The bookie would make the other one anew, and deny what it held."""
    desk = Desk(Directories((J,), (L0,), (I0,)))
    desk.put(I0, "ledgers/CURRENT", "locations/CURRENT")
    ContentsNotes(desk.files, desk.found).update()
    check_losses(desk.files, desk.found)
    desk.files.remove(I0 / "current" / lost / "CURRENT")
    assert desk.lost() == [I0]
    remove_tree(desk.files, I0 / "current" / lost)
    assert desk.lost() == [I0]


@pytest.mark.parametrize("lost", ["ledgers", "locations"])
def test_one_of_two_databases_of_a_java_bookie_is_a_loss_without_a_note(
    lost: str, tmp_path: Path
) -> None:
    """Without ``ledgers``, all locations would go as of deleted ledgers, and then the logs."""
    shutil.copytree(DIRECTORY / "db" / "clean", tmp_path, dirs_exist_ok=True)
    found = Directories((tmp_path / "journal",), (tmp_path / "ledgers",), (tmp_path / "ledgers",))
    check_losses(RealFiles(), found)
    shutil.rmtree(tmp_path / "ledgers/current" / lost)
    with pytest.raises(DirectoryEmptiedError, match="holds no whole one"):
        check_losses(RealFiles(), found)


def test_a_first_start_that_made_one_database_is_no_loss(tmp_path: Path) -> None:
    open_of_index(RocksSettings(), tmp_path / "current/ledgers").close()
    check_losses(RealFiles(), Directories((), (tmp_path,), (tmp_path,)))


def test_a_database_that_is_being_made_beside_index_directories_is_no_loss() -> None:
    desk = Desk(Directories((J,), (L0,), (I0,)))
    desk.put(I0, "0/5/5.idx")
    ContentsNotes(desk.files, desk.found).update()
    desk.files.remove(I0 / "current/0/5/5.idx")
    desk.put(I0, "ledgers/CURRENT")
    check_losses(desk.files, desk.found)


@pytest.mark.parametrize(
    "name", ["lastMark.0a1b2c3d.tmp", "lastId.0a1b2c3d.tmp", "hs_err.log", "old/backup", "dir/1/x"]
)
def test_what_may_go_again_is_not_noted(desk: Desk, name: str) -> None:
    for root in (L0, I0):
        desk.put(root, name)
    ContentsNotes(desk.files, desk.found).update()
    assert not any(desk.files.exists(root / NAME) for root in desk.found.roots)


def test_forgetting_the_index_keeps_word_of_the_entries() -> None:
    desk = Desk(Directories((J,), (L0,), (L0,)))
    desk.put(L0, "lastMark", "0/5/5.idx")
    ContentsNotes(desk.files, desk.found).update()
    remove_tree(desk.files, L0 / "current/0")
    forget_index(desk.files, desk.found, L0)
    check_losses(desk.files, desk.found)
    desk.files.crash()
    check_losses(desk.files, desk.found)
    desk.empty(L0)
    assert [str(loss.error) for loss in losses(desk.files, desk.found)] == [str(refusal(desk))]
    assert "mark" in str(refusal(desk))
    forget_index(desk.files, desk.found, L1)  # Nothing was noted there.
