"""Locks on a bookie's directories: one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bookied.errors import DirectoryError, DirectoryInUseError
from bookied.storage.files.files import open_regular, read_regular

LOCK: Final = "bookied.lock"
LOCK_MODE: Final = 0o600
LOCK_BYTES_MAX: Final = 20
"""A lock file holds the number of a process."""
_LOCKS: Final = Path("/proc/locks")


class DirectoryLocks:
    """Advisory locks on roots, one process at a time; they go with the process."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def take(self, roots: Iterable[Path]) -> None:
        """Lock every root.

        Raises:
            DirectoryInUseError: another process has one of them; none is kept.
            DirectoryError: a lock file cannot be made.
        """
        try:
            for root in roots:
                self._fds.append(_lock(root))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give all locks up. The files stay: removing one could unlock a successor's."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


def _lock(root: Path) -> int:
    path = root / LOCK
    try:
        root.mkdir(parents=True, exist_ok=True)
        fd = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, LOCK_MODE)
    except OSError as error:
        raise DirectoryError(f"{root} cannot be used: {error.strerror or error}") from error
    _keep_others_out(fd, path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(fd, LOCK_BYTES_MAX, 0).decode("ascii", "replace").strip()
        os.close(fd)
        by = f" (process {owner})" if owner else ""
        raise DirectoryInUseError(f"{root} is in use by another bookie{by}") from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _keep_others_out(fd: int, path: Path) -> None:
    """Leave a lock file to its owner alone: who can open it can hold its lock against us."""
    found = os.fstat(fd)
    if os.geteuid() not in {found.st_uid, 0}:
        os.close(fd)
        raise DirectoryError(f"{path} belongs to user {found.st_uid}, who could lock us out")
    if found.st_uid == os.geteuid() and found.st_mode & 0o077:
        os.fchmod(fd, LOCK_MODE)


def is_locked(root: Path) -> bool:
    """Whether a running bookie of ours uses this root; for offline tools."""
    try:
        fd = open_regular(root / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:  # Another user's: the system tells about its locks all the same.
        return _has_lock((root / LOCK).stat().st_ino, _LOCKS.read_text(encoding="ascii"))
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def lock_owner(root: Path) -> int | None:
    """Return the process that locked a root last; None if the lock file does not say."""
    try:
        text = read_regular(root / LOCK, LOCK_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _has_lock(inode: int, locks: str) -> bool:
    """Whether a file has an exclusive lock, by the lines of /proc/locks (proc(5))."""
    lines = (line.split() for line in locks.splitlines())
    return any(
        fields[1:4] == ["FLOCK", "ADVISORY", "WRITE"] and fields[5].endswith(f":{inode}")
        for fields in lines
    )
