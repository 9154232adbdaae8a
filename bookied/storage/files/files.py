"""The only access to the disk for journals, entry logs, indexes and marks.

``Files`` is the interface for the storage engine; ``RealFiles`` is the operating system. A
simulation passes an in-memory disk that forgets unsynced data. Errors stay ``OSError`` here: the
callers of this module translate them.

Durability is explicit: bytes are safe after ``sync`` of their file, a name after ``sync_dir`` of
its directory, and nothing earlier.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from bookied.storage.files.buffered_file import BufferedAppendFile, closing, write_all
from bookied.storage.files.direct_file import DirectAppendFile, DirectRefusedError
from bookied.storage.files.preallocated_file import PreallocatedFile

READ_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most bytes of one ``read``; cookies, marks and lists are much smaller."""

Buffer = bytes | bytearray | memoryview


class AppendFile(Protocol):
    """A file that only grows. One thread at a time writes; ``sync`` may run in parallel."""

    @property
    def readable_bytes(self) -> int:
        """The bytes of the file that another descriptor can read."""

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append all of ``buffers``. After an error none of them counts.

        The write may be retried.
        """

    def flush(self) -> None:
        """Make all appended bytes readable; only a direct file buffers any."""

    def sync(self) -> None:
        """Return once all bytes that were readable at the call are on disk (fdatasync).

        Raises:
            FileNotFoundError: the file was removed, with its content.
            OSError: the content on disk is unknown.
        """

    def tell(self) -> int:
        """Return the number of bytes appended."""

    def close(self) -> None:
        """Flush and close the descriptor; does not sync."""


class ReadFile(Protocol):
    """A file to read from, from any thread."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer at the end of the file."""

    def read_now(self, offset: int, buffer: bytearray | memoryview) -> int:
        """Copy bytes that are in memory without waiting for a disk; return how many, perhaps 0.

        Memory is the page cache for files. 0 may also mean the end of the file.
        """

    def read_ahead(self, offset: int, size: int) -> None:
        """Make the system prefetch bytes; never wait for them."""

    def size(self) -> int: ...

    def next_data(self, offset: int) -> int | None:
        """Return the offset of the next bytes that may be non-zero, at or after ``offset``."""

    def close(self) -> None: ...


class UpdateFile(Protocol):
    """A file changed in place."""

    def read_at(self, offset: int, size: int) -> bytes: ...

    def write_at(self, offset: int, data: Buffer) -> None: ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Files(Protocol):
    """All operations on files. Missing paths raise ``FileNotFoundError``."""

    def open_append(self, path: Path, *, preallocate: int = 0, direct: bool = False) -> AppendFile:
        """Create ``path``, which must not exist, for appending.

        Args:
            path: the new file.
            preallocate: reserve space in steps of this many bytes; 0 for none. Reserved space reads
                as zeros; ``close`` releases it.
            direct: bypass the page cache if the file system allows it. With ``preallocate`` only
                complete blocks of 4096 bytes may then be appended, and none are buffered.
        """

    def open_read(self, path: Path) -> ReadFile: ...

    def open_update(self, path: Path, *, create: bool = False) -> UpdateFile: ...

    def read(self, path: Path, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """Return the content of a small file.

        Raises:
            OSError: the file has more than ``bytes_max`` (``EFBIG``), or cannot be read.
        """

    def write_atomic(self, path: Path, data: bytes) -> None:
        """Replace the file in one step: after any crash it has the old bytes or the new."""

    def rename(self, old: Path, new: Path) -> None: ...

    def exchange(self, one: Path, other: Path) -> None:
        """Swap two names in a directory, in one step if the file system can."""

    def link(self, old: Path, new: Path) -> None:
        """Create a second name for the file ``old`` on the same file system.

        Raises:
            FileExistsError: ``new`` exists.
            OSError: the file system has no hard links, or ``new`` is on another one (``EXDEV``).
        """

    def remove(self, path: Path) -> None:
        """Remove a file, or a link to a directory; ``IsADirectoryError`` for a directory."""

    def remove_dir(self, directory: Path) -> None:
        """Remove an empty directory; raise ``OSError`` (``ENOTEMPTY``) if it is not empty."""

    def list(self, directory: Path) -> list[str]:
        """Return the names in a directory, in no order."""

    def exists(self, path: Path) -> bool: ...

    def is_dir(self, path: Path) -> bool: ...

    def mkdirs(self, directory: Path) -> None: ...

    def size(self, path: Path) -> int: ...

    def same_file(self, one: Path, other: Path) -> bool:
        """Return whether two names, which must exist, are of one file."""

    def sync_dir(self, directory: Path) -> None:
        """Return once the names in a directory are on disk."""

    def sync_all(self, files: Sequence[UpdateFile]) -> None:
        """Sync many files in parallel, in no order.

        Raises:
            OSError: one file failed. The others may be synced or not: all count as not synced.
        """

    def sync_dirs(self, directories: Iterable[Path]) -> None:
        """Return once the names in all of these directories are on disk; see ``sync_all``."""

    def disk_usage(self, path: Path) -> tuple[int, int]:
        """Return the file system's total and usable bytes."""

    def device(self, path: Path) -> int:
        """Return a number for the file system, equal for all paths in it."""

    def check_usable(self, directory: Path) -> None:
        """Raise ``OSError`` unless the directory is readable and writable; it may be full."""


class RealFiles:
    """``Files`` of the operating system."""

    def open_append(self, path: Path, *, preallocate: int = 0, direct: bool = False) -> AppendFile:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        if direct:
            with contextlib.suppress(DirectRefusedError):
                return (
                    PreallocatedFile(path, preallocate) if preallocate else DirectAppendFile(path)
                )
        return BufferedAppendFile(os.open(path, flags, 0o644), path, preallocate, forget=direct)

    def open_read(self, path: Path) -> ReadFile:
        return _File(open_regular(path, os.O_RDONLY))

    def open_update(self, path: Path, *, create: bool = False) -> UpdateFile:
        return _File(open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0)))

    def read(self, path: Path, bytes_max: int = READ_BYTES_MAX) -> bytes:
        return read_regular(path, bytes_max)

    def write_atomic(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with closing(fd):
                write_all(fd, data, 0)
                os.fsync(fd)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self.sync_dir(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def exchange(self, one: Path, other: Path) -> None:
        if not _exchange(one, other):
            between = one.with_name(f"{one.name}.{secrets.token_hex(4)}.tmp")
            one.rename(between)
            other.rename(one)
            between.rename(other)

    def link(self, old: Path, new: Path) -> None:
        os.link(old, new, follow_symlinks=False)

    def remove(self, path: Path) -> None:
        path.unlink()

    def remove_dir(self, directory: Path) -> None:
        directory.rmdir()

    def list(self, directory: Path) -> list[str]:
        return os.listdir(directory)  # noqa: PTH208  # names, and many

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_dir(self, path: Path) -> bool:
        return path.is_dir()

    def mkdirs(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def same_file(self, one: Path, other: Path) -> bool:
        return one.samefile(other)

    def sync_dir(self, directory: Path) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with closing(fd):
            os.fsync(fd)

    def sync_all(self, files: Sequence[UpdateFile]) -> None:
        _side_by_side([file.sync for file in files])

    def sync_dirs(self, directories: Iterable[Path]) -> None:
        _side_by_side([partial(self.sync_dir, directory) for directory in directories])

    def disk_usage(self, path: Path) -> tuple[int, int]:
        system = os.statvfs(path)
        return system.f_frsize * system.f_blocks, system.f_frsize * system.f_bavail

    def device(self, path: Path) -> int:
        return path.stat().st_dev

    def check_usable(self, directory: Path) -> None:
        with closing(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)):
            pass
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            # The system makes a file system with errors read-only, even for root.
            is_read_only = os.statvfs(directory).f_flag & os.ST_RDONLY
            number = errno.EROFS if is_read_only else errno.EACCES
            raise OSError(number, os.strerror(number), str(directory))


_PIECE_BYTES: Final = 64 * 1024


def open_regular(path: Path, flags: int, mode: int = 0o644) -> int:
    """Return a descriptor of a regular file, without waiting for the other end of a FIFO.

    Raises:
        OSError: the path is a FIFO, a device or a socket (``EINVAL``), a directory, or cannot be
            opened.
    """
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind):
        return fd
    os.close(fd)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_regular(path: Path, bytes_max: int = READ_BYTES_MAX) -> bytes:
    """Return the content of a regular file, at most ``bytes_max`` bytes.

    Raises:
        OSError: the file is larger (``EFBIG``), is not a regular file, or cannot be read.
    """
    data = bytearray()
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        # One read of ``bytes_max`` would allocate all of it.
        while piece := file.read(_PIECE_BYTES):
            data += piece
            if len(data) > bytes_max:
                raise OSError(errno.EFBIG, f"larger than {bytes_max} bytes", str(path))
    return bytes(data)


def read_if_there(files: Files, path: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist.

    Raises:
        OSError: the file exists and cannot be read.
    """
    try:
        return files.read(path)
    except FileNotFoundError:
        return None


_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names on Linux; return False if the system or the file system cannot."""
    import ctypes

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = (os.fsencode(one), os.fsencode(other))
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in {errno.EINVAL, errno.ENOSYS, errno.EPERM}:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def remove_tree(files: Files, path: Path) -> None:
    """Remove a file, or a directory and everything below it; links are removed, not followed."""
    try:
        files.remove(path)
    except IsADirectoryError:
        for name in files.list(path):
            remove_tree(files, path / name)
        files.remove_dir(path)


SYNC_THREADS: Final = 16
"""Parallel syncs: the file system makes one commit of several that wait for it."""


def _side_by_side(actions: Iterable[Callable[[], object]]) -> None:
    """Call all actions in parallel threads, wait for all, and raise one of their errors."""
    queue, errors = deque(actions), deque[BaseException]()

    def work() -> None:
        while queue:
            with contextlib.suppress(IndexError):  # Another thread took the last action.
                action = queue.popleft()
                try:
                    action()
                except BaseException as error:  # noqa: BLE001  # raised below, by who waits
                    errors.append(error)

    helpers: list[threading.Thread] = []
    for _ in range(min(SYNC_THREADS, len(queue)) - 1):
        helper = threading.Thread(target=work, name="sync", daemon=True)
        try:
            helper.start()
        # The process can start no more threads: the existing ones do all the work.
        except RuntimeError:
            break
        helpers.append(helper)
    work()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]


def copy_file(files: Files, old: Path, new: Path) -> None:
    """Copy a file over ``new``; on return its bytes are on disk, but not its name."""
    with (
        contextlib.closing(files.open_read(old)) as source,
        contextlib.closing(files.open_update(new, create=True)) as target,
    ):
        target.truncate(0)
        for at in range(0, source.size(), COPY_BYTES):
            target.write_at(at, source.read_at(at, COPY_BYTES))
        target.sync()


_NO_LINK: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP}
)


def link_or_copy(files: Files, old: Path, new: Path) -> None:
    """Link a file that is never written again, or copy the file if links fail."""
    try:
        files.link(old, new)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        copy_file(files, old, new)


COPY_BYTES: Final = 1024 * 1024
"""Bytes copied at once."""

_NO_WAIT: Final[int] = getattr(os, "RWF_NOWAIT", -1)
"""A Linux flag; elsewhere no flag does the same, and the call fails."""


class _File:
    """One descriptor for reading, and for updating if it was opened for that."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        while 0 < len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def read_now(self, offset: int, buffer: bytearray | memoryview) -> int:
        try:
            return os.preadv(self._fd, (buffer,), offset, _NO_WAIT)
        # The bytes are not in memory, or the system cannot determine that.
        except (OSError, AttributeError):
            return 0

    def read_ahead(self, offset: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_WILLNEED)

    def next_data(self, offset: int) -> int | None:
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            return offset if offset < self.size() else None

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write_at(self, offset: int, data: Buffer) -> None:
        write_all(self._fd, data, offset)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
