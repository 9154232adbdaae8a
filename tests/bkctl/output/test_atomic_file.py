"""A file that is replaced is the old one or the new one, and its owner's alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from bkctl.output.atomic_file import replacing


def test_a_file_is_replaced_and_a_link_to_it_stays_one(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    file, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    file.write_bytes(b"old")
    file.chmod(0o644)
    link.symlink_to(file)
    with replacing(link) as stream:
        stream.write(b"new")
        assert file.read_bytes() == b"old"
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_after_an_error_the_file_is_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(file) as stream:
        stream.writelines([b"new", None])  # type: ignore[list-item]
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
