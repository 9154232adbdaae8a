"""The entry logs in ledger directories, and the ids that they have used."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bookied.storage.entrylog import format as layout
from bookied.storage.files.files import Files, read_if_there

_HEX: Final = re.compile(r"[0-9a-f]+")


def list_logs(files: Files, directories: Iterable[Path]) -> dict[int, Path]:
    """Return the entry logs in ledger directories (their ``current``), by id."""
    return {number: paths[-1] for number, paths in list_all_logs(files, directories).items()}


def list_all_logs(files: Files, directories: Iterable[Path]) -> dict[int, list[Path]]:
    """Return the entry logs in ledger directories by id: one file each, unless ids are doubled."""
    found: dict[int, list[Path]] = {}
    for directory in directories:
        for name in files.list(directory):
            number = layout.log_id(name)
            if number is not None:
                found.setdefault(number, []).append(directory / name)
    return found


def next_log_id(files: Files, directories: Iterable[Path]) -> int:
    """Return a log id after all in use; after the highest possible id the ids start over at 0.

    Agrees with Java 4.18.0: EntryLoggerAllocator, LedgerDirUtil.
    """
    used = {directory: _used_log_ids(files, directory) for directory in directories}
    number = 1 + max(_last_log_id(files, directory, sorted(ids)) for directory, ids in used.items())
    taken = set().union(*used.values())
    while number > layout.LOG_ID_MAX or number in taken:
        number = number + 1 if number < layout.LOG_ID_MAX else 0
    return number


def _used_log_ids(files: Files, directory: Path) -> set[int]:
    numbers = map(layout.used_log_id, files.list(directory))
    return {number for number in numbers if number is not None}


def _last_log_id(files: Files, directory: Path, used: list[int]) -> int:
    last = _read_last_id(files, directory) or (used[-1] if used else -1)
    return max(last, _before_largest_gap(used))


def highest_log_id(files: Files, directories: Iterable[Path]) -> int:
    """Return the highest id that a log of these directories has or may have had; -1 if none."""
    return max(
        (
            number
            for directory in directories
            for number in (*_used_log_ids(files, directory), _read_last_id(files, directory))
            if number is not None
        ),
        default=-1,
    )


def _read_last_id(files: Files, directory: Path) -> int | None:
    data = read_if_there(files, directory / layout.LAST_ID)
    if data is None:
        return None
    text = data.decode("ascii", "replace").strip()
    number = int(text, 16) if _HEX.fullmatch(text) else -1
    return number if 0 <= number <= layout.LOG_ID_MAX else None


def _before_largest_gap(used: list[int]) -> int:
    """Return the id before the longest run of free ids; -1 if the run starts at 0."""
    starts, ends = [-1, *used], [*used, layout.LOG_ID_MAX + 1]
    _, start = max((end - start, start) for start, end in zip(starts, ends, strict=True))
    return start
