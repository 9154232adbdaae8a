"""A directory for the files of one Spark session. Directories that killed processes left go too."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "bkctl-spark-"

MARK: Final = ".bkctl-scratch"
"""A file in each directory, locked while the directory is in use. It has the machine's name."""

_NAME_BYTES_MAX: Final = 256


@contextlib.contextmanager
def scratch_directory(prefix: str = PREFIX) -> Iterator[Path]:
    """Make a directory; remove it afterwards, whatever it holds then.

    Those of the same prefix that killed processes of this machine left are removed before. Another
    directory that has only its name in common with them stays.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # It is in use, no directory of ours, or another user's.
            _remove_left(left)
    made = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    with made as name, (Path(name) / MARK).open("xb", buffering=0) as mark:
        # Where files cannot be locked the mark stays empty, and the directory is not removed later.
        with contextlib.suppress(OSError):
            fcntl.flock(mark, fcntl.LOCK_EX)  # Another session may look at it just now.
            mark.write(os.uname().nodename.encode())
        yield Path(name)


def _remove_left(directory: Path) -> None:
    """Remove a directory whose process has ended.

    Raises:
        BlockingIOError: its process has not.
        OSError: it is a link, or another user's, or has no mark.
    """
    with _opened(directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return
        # For writing, as locks on NFS ask for it.
        with _opened(MARK, os.O_RDWR | os.O_NONBLOCK, within=descriptor) as mark:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.read(mark, _NAME_BYTES_MAX) == os.uname().nodename.encode():
                shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _opened(path: Path | str, flags: int, *, within: int | None = None) -> Iterator[int]:
    """Open a file, but no link, and yield its descriptor."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
