"""Folders stay small enough to find a file in by one look, and modules stand above each other."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("wire", "bkclient", "bookied", "bkctl", "shell", "pyspark_bookkeeper")


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


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types and imports in functions count."""
    files = [path for top in PACKAGES for path in (ROOT / top).rglob("*.py")]
    names = {_module(path): path for path in files if not path.name.endswith("_pb2.py")}
    imports = {name: set(_imported(path, names)) - {name} for name, path in names.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, known: Collection[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found = whole if whole in known else node.module
                if found in known:
                    yield found
