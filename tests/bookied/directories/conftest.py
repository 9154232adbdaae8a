"""The directories of a bookie, two of each kind; nothing is there yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookied.directories.roots import Directories


@pytest.fixture
def found(tmp_path: Path) -> Directories:
    names = [tmp_path / name for name in ("j0", "j1", "l0", "l1")]
    return Directories(tuple(names[:2]), tuple(names[2:]), (names[2], tmp_path / "i"))
