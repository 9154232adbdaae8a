"""A file that is replaced is the old one or the new one; a new one replaces nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from bkctl.errors import ConflictError, NothingFoundError
from bkctl.output.atomic_file import making_file, replacing_file, require_new, write_atomically


def test_a_file_is_replaced_and_a_link_to_it_stays_one(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    file, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    file.write_bytes(b"old")
    file.chmod(0o644)
    link.symlink_to(file)
    with replacing_file(link) as stream:
        stream.write(b"new")
        assert file.read_bytes() == b"old"
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_after_an_error_the_file_is_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    with pytest.raises(TypeError), replacing_file(file) as stream:
        stream.writelines([b"new", None])  # type: ignore[list-item]
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("private", [True, False])
def test_a_device_or_pipe_is_written_to_and_stays_one(tmp_path: Path, *, private: bool) -> None:
    # For root, /dev/null and /dev/stdout would be files afterwards.
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe, 0o640)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(str(link), b"data", private=private)
        assert os.read(reader, 100) == b"data"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o640
    assert sorted(tmp_path.iterdir()) == [link, pipe]


def test_a_new_file_is_there_at_the_end_alone_and_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with making_file(str(path)) as stream:
        stream.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    with pytest.raises(ConflictError, match="exists already"), making_file(str(path)):
        pass
    path.unlink()
    with pytest.raises(ConflictError, match="exists already"), making_file(str(path)) as stream:
        path.write_bytes(b"another's")
    assert path.read_bytes() == b"another's"
    with pytest.raises(NothingFoundError, match="No such file"), making_file(f"{tmp_path}/no/file"):
        pass
    assert [*tmp_path.iterdir()] == [path]


def test_half_a_new_file_is_none(tmp_path: Path) -> None:
    with pytest.raises(TypeError), making_file(str(tmp_path / "new")) as stream:
        stream.writelines([b"new", None])  # type: ignore[list-item]
    assert [*tmp_path.iterdir()] == []


def test_an_error_names_the_file_and_not_its_part(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "file"
    with pytest.raises(FileNotFoundError) as error, replacing_file(file):
        pass
    assert error.value.filename == str(file)


def test_a_link_to_nothing_is_no_new_file(tmp_path: Path) -> None:
    """Another user may have put it into a directory that all can write to."""
    (tmp_path / "backup").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConflictError):
        require_new(tmp_path / "backup")
