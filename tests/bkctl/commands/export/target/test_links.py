"""Another user may write in a target: links there do not lead an export elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from bkctl.commands.export.target.file_systems import LocalFiles

Act = Callable[[LocalFiles], object]
ACTS: dict[str, Act] = {
    "create": lambda files: files.create("ledger=1/part"),
    "put": lambda files: files.put("ledger=1/part", b"x"),
    "put below": lambda files: files.put("ledger=1/deeper/part", b"x"),
    "move to": lambda files: files.move("here", "ledger=1/part"),
    "move from": lambda files: files.move("ledger=1/theirs", "there"),
    "read": lambda files: files.read("ledger=1/theirs"),
    "settle": lambda files: files.settle(["ledger=1/theirs"]),
    "remove": lambda files: files.remove("ledger=1/theirs"),
    "names": lambda files: files.names("ledger=1"),
    "exists": lambda files: files.exists("ledger=1/theirs"),
    "child": lambda files: files.child("ledger=1").create("part"),
}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory beside the target, with a file."""
    found = tmp_path / "elsewhere"
    found.mkdir()
    (found / "theirs").write_bytes(b"theirs")
    return found


@pytest.fixture
def target(tmp_path: Path) -> Path:
    found = tmp_path / "target"
    found.mkdir()
    (found / "here").write_bytes(b"ours")
    return found


@pytest.mark.parametrize("name", ACTS)
def test_a_link_in_the_place_of_a_directory_is_refused(
    target: Path, elsewhere: Path, name: str
) -> None:
    (target / "ledger=1").symlink_to(elsewhere)
    with pytest.raises(OSError, match="a symbolic link"):
        ACTS[name](LocalFiles(target))
    assert [one.name for one in elsewhere.iterdir()] == ["theirs"]
    assert (target / "here").read_bytes() == b"ours"


def test_a_link_in_the_place_of_a_file_is_replaced_or_refused(
    target: Path, elsewhere: Path
) -> None:
    files, theirs = LocalFiles(target), elsewhere / "theirs"
    (target / "file").symlink_to(theirs)
    for act in (files.read, lambda path: files.settle([path]), files.open):
        with pytest.raises(OSError, match="a symbolic link"):
            act("file")
    with pytest.raises(FileExistsError):
        files.create("file")
    files.put("file", b"ours")
    assert (theirs.read_bytes(), files.read("file")) == (b"theirs", b"ours")


def test_removal_of_a_link_keeps_what_it_leads_to(target: Path, elsewhere: Path) -> None:
    (target / "link").symlink_to(elsewhere)
    LocalFiles(target).remove("link")
    assert (elsewhere / "theirs").exists()
    assert not (target / "link").is_symlink()


def test_a_directory_is_removed_where_it_was_found_though_a_link_takes_its_parents_place(
    target: Path, elsewhere: Path
) -> None:
    class Raced(LocalFiles):
        @contextlib.contextmanager
        def _directory(self, path: PurePosixPath, *, make: bool = False) -> Iterator[int]:
            with super()._directory(path, make=make) as number:
                (target / "ledger=1").rename(target / "moved")
                (target / "ledger=1").symlink_to(elsewhere)
                yield number

    for where in (target / "ledger=1", elsewhere):
        (where / "drafts").mkdir(parents=True)
        (where / "drafts" / "part").touch()
    Raced(target).remove("ledger=1/drafts")
    assert (elsewhere / "drafts" / "part").exists()
    assert not (target / "moved" / "drafts").exists()


def test_the_target_itself_may_be_a_link(tmp_path: Path, target: Path) -> None:
    (tmp_path / "link").symlink_to(target)
    files = LocalFiles(tmp_path / "link")
    files.put("a/b", b"x")
    assert (target / "a" / "b").read_bytes() == b"x"
    assert files.names() == ["a", "here"]
    files.remove("a")
    assert not files.exists("a/b")
