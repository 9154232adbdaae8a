"""Small files that take their names when all of them is on the disk."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from bkctl.errors import ConflictError, NothingFoundError

PART: Final = ".part"
"""Ends the name of a file that is not complete."""


def write_whole(path: str, data: bytes, *, only_new: bool = False, private: bool = False) -> None:
    """Write a file; ``private``: only its owner may read it.

    Raises:
        ConflictError: ``only_new``, and there is one with other content.
        NothingFoundError: its directory is not there, or not ours to write.
    """
    part = f"{path}{PART}"
    try:
        if only_new and os.path.exists(path):  # noqa: PTH110 -- pathlib costs start time
            with open(path, "rb") as file:  # noqa: PTH123
                if file.read() == data:
                    return
            raise ConflictError(f"{path} is there already", next_step="give another file")
        opener = _private if private else None
        with open(part, "wb", opener=opener) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)  # noqa: PTH105
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)  # noqa: PTH108
        raise NothingFoundError(f"{path}: {error.strerror or error}") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a stream whose bytes replace a file at the end; only its owner may read it.

    A link stays a link. After an error the file is as it was.
    """
    target = path.resolve()
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=target.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(target)
        _sync(target.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _sync(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def keep_private(stream: Any) -> None:
    """Let only the owner read a file that stdout was sent to; other streams stay."""
    try:
        number = stream.fileno()
        found = os.fstat(number)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            os.fchmod(number, stat.S_IMODE(found.st_mode) & 0o700)
    except (AttributeError, OSError, ValueError):
        return  # It is not a file of the system.


def _private(path: str, flags: int) -> int:
    number = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    os.fchmod(number, 0o600)  # One that was left behind may be readable by others.
    return number
