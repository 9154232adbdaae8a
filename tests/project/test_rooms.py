"""Folders stay small enough to find a file in by one look."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _modules_and_folders(top: str) -> Counter[Path]:
    """Return how many modules and folders of modules each folder has."""
    modules = set((ROOT / top).rglob("*.py"))
    entries = {path for path in modules if path.name != "__init__.py"}
    entries |= {path.parent for path in modules if path.parent != ROOT / top}
    return Counter(path.parent.relative_to(ROOT) for path in entries)


@pytest.mark.parametrize(
    ("top", "most"),
    [("wire", 14), ("bkclient", 14), ("bookied", 14), ("bkctl", 14), ("shell", 14), ("tests", 20)],
)
def test_no_folder_is_crowded(top: str, most: int) -> None:
    crowded = {str(path): n for path, n in _modules_and_folders(top).items() if n > most}
    assert crowded == {}
