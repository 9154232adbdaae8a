"""Golden directories on a simulated disk, where they can be changed and crashed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bookied.directories.roots import Directories
from bookied.storage.files.files import Files
from tests.bookied.worlds.golden import DIRECTORY, expected
from tests.bookied.worlds.old_layouts import put_files


def load_golden(files: Files, name: str, *, leave_out: str = "") -> Directories:
    """Put a golden set on a disk, without the files whose names end with ``leave_out``."""
    root = DIRECTORY / name
    put_files(
        files,
        {
            f"/{path.relative_to(root)}": path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file()
            and path.name != "expected.json"
            and not (leave_out and path.name.endswith(leave_out))
        },
    )
    roots = sorted(path.parent for path in root.rglob("current") if path.is_dir())
    by_kind: dict[str, tuple[Path, ...]] = {
        kind: tuple(Path("/") / path.relative_to(root) for path in roots if path.name[0] == kind)
        for kind in "jli"
    }
    return Directories(by_kind["j"], by_kind["l"], by_kind["i"] or by_kind["l"])


def locations(ledger: Any) -> dict[int, int]:
    """Return the places that a golden set states for a ledger's entries."""
    return {
        entry["entryId"]: entry["location"]["value"]
        for entry in ledger["entries"]
        if entry["location"] is not None
    }


def ledgers_of(name: str) -> dict[int, Any]:
    """Return what a golden set states, by ledger id."""
    return {int(ledger_id): said for ledger_id, said in expected(name)["ledgers"].items()}
