"""``BOOKIE_STATUS``: the mode of a bookie, kept over restarts with ``persistBookieStatusEnabled``.

One line in each ledger directory's ``current``; agrees with BookKeeper 4.18.0, BookieStatus:

    1,READ_ONLY|READ_WRITE,<milliseconds since 1970>,<set by hand: true|false>

A line without the last field counts as set by hand. The newest line of all directories counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs
from twisted.logger import Logger

from bookied.errors import StatusFileError
from bookied.storage.files.files import Files

NAME: Final = "BOOKIE_STATUS"

_LAYOUT: Final = "1"
_MODES: Final = {"READ_ONLY": True, "READ_WRITE": False}
_FIELDS_MIN, _FIELDS_MAX = 3, 4
_DIGITS_MAX: Final = 19

log = Logger()


@attrs.frozen
class PersistedMode:
    """A mode and the time of its begin. If an operator set the mode, only an operator ends it."""

    read_only: bool = False
    time_ms: int = -1
    by_hand: bool = False


def encode_status(status: PersistedMode) -> bytes:
    """Return the file's content."""
    mode = "READ_ONLY" if status.read_only else "READ_WRITE"
    return f"{_LAYOUT},{mode},{status.time_ms},{str(status.by_hand).lower()}\n".encode()


def decode_status(data: bytes, path: Path) -> PersistedMode:
    """Return the status in a file's content.

    Raises:
        StatusFileError: the content has another form.
    """
    parts = [part.strip() for part in data.decode("utf-8", "replace").split("\n")[0].split(",")]
    if not _FIELDS_MIN <= len(parts) <= _FIELDS_MAX or parts[0] != _LAYOUT:
        raise StatusFileError(path, None, f"no status of layout {_LAYOUT}: {data[:80]!r}")
    if parts[1] not in _MODES or not _is_time(parts[2]):
        raise StatusFileError(path, None, f"no mode and time: {data[:80]!r}")
    by_hand = len(parts) < _FIELDS_MAX or parts[3].lower() == "true"
    return PersistedMode(_MODES[parts[1]], int(parts[2]), by_hand)


def _is_time(text: str) -> bool:
    return text.isdecimal() and len(text) <= _DIGITS_MAX


def read_status(files: Files, directories: Iterable[Path]) -> PersistedMode:
    """Return the newest status; a file that cannot be read is logged and skipped."""
    newest = PersistedMode()
    for directory in directories:
        path = directory / NAME
        try:
            found = decode_status(files.read(path), path)
        except FileNotFoundError:
            continue
        except (StatusFileError, OSError) as error:
            log.warn("ignoring a status file: {error}", error=error)
            continue
        newest = max(newest, found, key=lambda status: status.time_ms)
    return newest


def write_status(files: Files, directories: Iterable[Path], status: PersistedMode) -> None:
    """Write a status to every directory; a failed write is logged. Blocks."""
    for directory in directories:
        try:
            files.write_atomic(directory / NAME, encode_status(status))
        except OSError as error:
            log.warn(
                "cannot write the status file in {directory}: {error}",
                directory=directory,
                error=error,
            )
