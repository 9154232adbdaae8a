"""Bytes that a disk does not give back: damage, and not a failure that passes."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bookied.errors import CorruptError

_LOST: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})


@contextlib.contextmanager
def lost_is_damaged(path: Path, kind: type[CorruptError]) -> Iterator[None]:
    """Raise an error of this kind, about a file, where the disk has lost what is read of it.

    For what only reads: a write that fails like this leaves unknown what the disk has.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _LOST:
            raise
        raise kind(path, None, f"cannot be read: {error}") from error
