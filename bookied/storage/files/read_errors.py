"""Bytes that a disk has lost: permanent damage, not a temporary failure."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bookied.errors import CorruptError
from bookied.storage.files.files import ReadFile, UpdateFile

LOST: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})
"""The ``OSError`` numbers of a read of lost bytes."""

_BLOCK_BYTES: Final = 4096
"""Bytes of one read before lost bytes: the unit of the page cache."""


@contextlib.contextmanager
def lost_is_damaged(
    path: Path, kind: type[CorruptError], offset: int | None = None
) -> Iterator[None]:
    """Raise an error of type ``kind`` if the disk has lost bytes of a file.

    For reads only: after a write that fails like this the content of the disk is unknown.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in LOST:
            raise
        raise kind(path, offset, f"cannot be read: {error}") from error


def read_before_loss(file: ReadFile | UpdateFile, offset: int, size: int, least: int) -> bytes:
    """Return up to ``size`` bytes: fewer at the end of the file, or before lost bytes.

    Raises:
        OSError: not even ``least`` bytes can be read.
    """
    try:
        return file.read_at(offset, size)
    except OSError as error:
        if error.errno not in LOST or least >= size:
            raise
    data = file.read_at(offset, least)
    while len(data) < size:
        at = offset + len(data)
        try:
            block = file.read_at(at, min(_BLOCK_BYTES - at % _BLOCK_BYTES, size - len(data)))
        except OSError:
            break
        if not block:
            break
        data += block
    return data
