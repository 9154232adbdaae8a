"""Small files that appear under their names only when all their bytes are on the disk."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from bkctl.errors import ConflictError, file_errors

PART: Final = ".part"
"""The suffix of an incomplete file."""


def write_atomically(
    path: str, data: bytes, *, only_new: bool = False, private: bool = False
) -> None:
    """Write a file; with ``private`` only its owner may read it.

    Raises:
        ConflictError: with ``only_new``, the file exists with other content.
        NothingFoundError: its directory is missing, or this user may not write to it.
    """
    file = Path(path)
    with file_errors(path):
        if only_new and file.exists():
            if file.read_bytes() == data:
                return
            require_new(path)
        with replacing_file(file, private=private) as stream:
            stream.write(data)


@contextlib.contextmanager
def replacing_file(path: Path, *, private: bool = True) -> Iterator[BinaryIO]:
    """Yield a stream whose bytes replace a file at the end; ``private`` as in ``write_atomically``.

    A link stays a link, and a device or pipe is written to directly. After an error the file is
    unchanged.

    Raises:
        OSError: its directory is missing, this user may not write to it, or the disk is full.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            yield stream
        return
    with _whole(path.resolve(), os.replace, private=private) as stream:
        yield stream


@contextlib.contextmanager
def making_file(path: str, *, private: bool = False) -> Iterator[BinaryIO]:
    """Yield a stream whose bytes become a new file at the end; an existing file is never replaced.

    Raises:
        ConflictError: the file exists, now or at the end.
        NothingFoundError: as ``write_atomically``.
    """
    require_new(path)
    with file_errors(path):
        try:
            with _whole(Path(path), os.link, private=private) as stream:
                yield stream
        except FileExistsError as error:
            raise _exists(path) from error


def require_new(path: str | Path) -> None:
    """Raise if ``path`` exists, even if only as a dangling link.

    Raises:
        ConflictError: the file exists.
    """
    if os.path.lexists(path):
        raise _exists(path)


def _exists(path: str | Path) -> ConflictError:
    return ConflictError(f"{path} exists already", next_step="give another file")


@contextlib.contextmanager
def _whole(target: Path, put: Callable[[Path, Path], None], *, private: bool) -> Iterator[BinaryIO]:
    """Yield the stream of a file beside ``target``; ``put`` renames or links it to ``target``."""
    part = target.with_name(f".{target.name}.{os.urandom(4).hex()}{PART}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        number = os.open(part, flags, 0o600 if private else 0o666)
    except OSError as error:
        error.filename = str(target)  # The user does not know the name of the part.
        raise
    try:
        with os.fdopen(number, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        put(part, target)
        _sync(target.parent)
    finally:
        part.unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def keep_private(stream: Any) -> None:
    """Deny group and others access to a file that stdout is redirected to; ignore other streams."""
    try:
        number = stream.fileno()
        found = os.fstat(number)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            os.fchmod(number, stat.S_IMODE(found.st_mode) & 0o700)
    except (AttributeError, OSError, ValueError):
        return  # The stream is not a file of the system.
