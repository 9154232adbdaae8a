"""Locks on a bookie's directories: one process at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bookied.errors import DirectoryError, DirectoryInUseError
from bookied.storage.files.files import open_regular, read_regular

LOCK: Final = "bookied.lock"
LOCK_MODE: Final = 0o600
LOCK_BYTES_MAX: Final = 20
"""Bytes that are read of a lock file, which contains a process id."""
_LOCKS: Final = Path("/proc/locks")
_PROC: Final = Path("/proc")
_TRIES: Final = 20
_TRY_EVERY_S: Final = 0.01

_NO_LOCK_FILE: Final = frozenset({errno.ELOOP, errno.EISDIR, errno.EINVAL, errno.ENXIO})
"""The ``OSError`` numbers if a link, directory, FIFO or socket has the file's name."""


class DirectoryLocks:
    """Advisory locks on roots, for one process at a time; they end with the process."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def take(self, roots: Iterable[Path]) -> None:
        """Lock every root.

        Raises:
            DirectoryInUseError: another process has locked a root; no lock is kept.
            DirectoryError: a lock file cannot be created, or two roots are one directory.
        """
        try:
            for root in roots:
                self._require_other(root)
                self._fds.append(_lock(root))
        except BaseException:
            self.release()
            raise

    def _require_other(self, root: Path) -> None:
        """Refuse a root that is locked already, under another path."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = (root / LOCK).stat()
            if any(os.path.samestat(found, os.fstat(fd)) for fd in self._fds):
                raise DirectoryError(
                    f"{root} is another one of the bookie's directories, by a link or a mount: "
                    "each needs a directory of its own"
                )

    def release(self) -> None:
        """Release all locks. The files stay: their removal could unlock a successor's root."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


def _lock(root: Path) -> int:
    path = root / LOCK
    try:
        root.mkdir(parents=True, exist_ok=True)
        fd = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, LOCK_MODE)
    except OSError as error:
        if error.errno in _NO_LOCK_FILE:
            raise DirectoryError(
                f"{path} cannot be used as a lock file: {error.strerror}; remove it"
            ) from error
        raise DirectoryError(f"{root} cannot be used: {error.strerror or error}") from error
    _keep_others_out(fd, path)
    try:
        _take_exclusive(fd)
    except OSError as error:
        owner = os.pread(fd, LOCK_BYTES_MAX, 0).decode("ascii", "replace").strip()
        os.close(fd)
        by = f" (process {owner})" if owner else ""
        raise DirectoryInUseError(f"{root} is in use by another bookie{by}") from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _take_exclusive(fd: int) -> None:
    """Lock a file, even while ``is_locked`` of another process has a short shared lock.

    Raises:
        OSError: another process has the exclusive lock.
    """
    for _ in range(_TRIES):
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Fails at once if another process has the exclusive lock.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(fd, fcntl.LOCK_UN)
            time.sleep(_TRY_EVERY_S)
    return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _keep_others_out(fd: int, path: Path) -> None:
    """Restrict a lock file to its owner: another user who can open it could lock it."""
    found = os.fstat(fd)
    if os.geteuid() not in {found.st_uid, 0}:
        os.close(fd)
        raise DirectoryError(f"{path} belongs to user {found.st_uid}, which could lock bookied out")
    if found.st_uid == os.geteuid() and found.st_mode & 0o077:
        os.fchmod(fd, LOCK_MODE)


def is_locked(root: Path) -> bool:
    """Return whether a running bookied uses this root; for offline tools."""
    try:
        fd = open_regular(root / LOCK, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:  # The file is another user's; /proc/locks still lists its locks.
        return _has_lock((root / LOCK).stat().st_ino, _LOCKS.read_text(encoding="ascii"))
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def lock_owner(root: Path) -> int | None:
    """Return the id of the process that has locked a root; None if it cannot be determined.

    The id in the lock file is not proof: another process may have the id now.
    """
    try:
        text = read_regular(root / LOCK, LOCK_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError:
        return None
    if not text.isdecimal() or (_PROC.is_dir() and not _holds(_PROC / text, root / LOCK)):
        return None
    return int(text)


def _holds(process: Path, path: Path) -> bool:
    """Return whether a process has an exclusive lock on a file, by its open files (proc(5))."""
    try:
        wanted = path.stat()
        numbers = list((process / "fd").iterdir())
    except OSError:
        return False
    return any(_is_locked_as(process, number, wanted) for number in numbers)


def _is_locked_as(process: Path, number: Path, wanted: os.stat_result) -> bool:
    """Return whether a process's open file is the wanted one, with an exclusive lock."""
    try:
        return os.path.samestat(number.stat(), wanted) and " FLOCK  ADVISORY  WRITE " in (
            process / "fdinfo" / number.name
        ).read_text("ascii")
    except OSError:  # The file may be closed by now, or a socket.
        return False


def _has_lock(inode: int, locks: str) -> bool:
    """Return whether /proc/locks (proc(5)) has an exclusive lock on a file."""
    lines = (line.split() for line in locks.splitlines())
    return any(
        fields[1:4] == ["FLOCK", "ADVISORY", "WRITE"] and fields[5].endswith(f":{inode}")
        for fields in lines
    )
