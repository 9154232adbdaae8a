"""A directory for the files of one Spark session. Directories that killed processes left go too."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "bkctl-spark-"

AGE_S_MIN: Final = 60.0
"""A younger directory is not removed: its process may not have locked it yet."""


@contextlib.contextmanager
def scratch_directory(prefix: str = PREFIX) -> Iterator[Path]:
    """Make a directory; remove it afterwards, whatever it holds then.

    The directory is locked meanwhile. Those of the same prefix that are not, as their processes
    were killed, are removed before.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # It is in use, or another user's.
            _remove_left(left)
    made = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    with made as name, _locked(Path(name)):
        yield Path(name)


def _remove_left(directory: Path) -> None:
    with _locked(directory) as descriptor:
        status = os.fstat(descriptor)
        if status.st_uid == os.getuid() and time.time() - status.st_mtime > AGE_S_MIN:
            shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[int]:
    """Lock a directory; yield its descriptor.

    Raises:
        BlockingIOError: another process has locked it.
        OSError: it is a link, gone, or cannot be read.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)
