"""The file systems that an export writes to: local ones, S3, HDFS and others of pyarrow.

Paths are relative to one directory, the root, with ``/`` between names.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from bkctl.commands.export.target.arrow_file_systems import DRAFT_SUFFIX, ArrowFiles

T = TypeVar("T")

SYNCS_AT_ONCE: Final = 8
REMOVALS_MAX: Final = 10


class TargetFiles(Protocol):
    """A directory tree; every failure raises ``OSError``."""

    @property
    def uri(self) -> str:
        """The root, as an absolute path or a URI without a trailing ``/``."""

    @property
    def is_object_store(self) -> bool:
        """True if a move copies and deletes a file, and directories cannot be moved."""

    def child(self, path: str) -> TargetFiles:
        """Return the tree below a directory of this one."""

    def sizes(self) -> dict[str, int]:
        """Return all files by path, with their sizes in bytes."""

    def names(self, path: str = "") -> list[str]:
        """Return the names in a directory; empty if the directory is missing."""

    def exists(self, path: str) -> bool: ...

    def create(self, path: str) -> Any:
        """Return a stream that writes a new file; make its directory below the root."""

    def settle(self, paths: Iterable[str]) -> None:
        """Make written files survive a power failure."""

    def settle_moves(self, paths: Iterable[str]) -> None:
        """Make the moves from and to these paths survive a power failure."""

    def open(self, path: str) -> Any:
        """Return a file for random reading."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if the file is missing."""

    def put(self, path: str, data: bytes) -> None:
        """Write a small file atomically: the file appears when it is complete."""

    def move(self, source: str, target: str) -> None:
        """Rename a file or directory to an unused name; an object store moves only files.

        After a failed move the file is at the source, or at the target because the answer was lost.
        ``settle_moves`` is called after many moves.
        """

    def finish_move(self, source: str, target: str) -> None:
        """Move ``source`` like ``move``, after an earlier move that may have failed at any point.

        If the source is missing, the move was made.
        """

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content; a missing path is not an error."""

    def make_root(self) -> None:
        """Make the root and its missing parents."""

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Lock this tree against other exports.

        Raises:
            BlockingIOError: another export is in progress.
        """

    def check_locked(self) -> None:
        """Check that this export still has the lock.

        Raises:
            BlockingIOError: another export may have acquired the lock.
        """


def open_files(target: str, *, follow: bool = True) -> TargetFiles:
    """Return the tree below ``target``, a path or a URI; ``follow``: it may be a symbolic link.

    Raises:
        OSError: the file system of the URI cannot be reached, pyarrow does not know it, or a
            ``file:`` URI has more than a path.
    """
    scheme = urlsplit(target).scheme if "://" in target or target.startswith("file:") else ""
    if scheme in ("", "file"):
        path = unquote(_path_of(target)) if scheme else target
        return LocalFiles(Path(path).absolute(), follow=follow)
    return ArrowFiles.at(target)


def _path_of(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise OSError(f"{uri} names a host, or more than a path: write file:///DIRECTORY")
    return parts.path


class LocalFiles:
    """A tree of this host. Symbolic links below its root are not followed.

    Otherwise another user with write access to the target could redirect an export.
    """

    def __init__(self, root: Path, *, follow: bool = True) -> None:
        """``follow``: whether the root itself may be a link."""
        self._root, self._root_flags = root, 0 if follow else os.O_NOFOLLOW

    @property
    def uri(self) -> str:
        return str(self._root)

    @property
    def is_object_store(self) -> bool:
        return False

    def child(self, path: str) -> LocalFiles:
        return LocalFiles(self._root / path, follow=False)

    @contextlib.contextmanager
    def _directory(self, path: PurePosixPath, *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of a directory; with ``make``, make it below the root if missing."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        with _links_named(self._root):
            number = os.open(self._root, flags | self._root_flags)
        try:
            for name in path.parts:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=number)
                with _links_named(self._root / path):
                    below = os.open(name, flags | os.O_NOFOLLOW, dir_fd=number)
                os.close(number)
                number = below
            yield number
        finally:
            os.close(number)

    def _open(self, path: str, mode: str) -> Any:
        file, make = PurePosixPath(path), "x" in mode
        with self._directory(file.parent, make=make) as number, _links_named(self._root / path):
            # With O_NONBLOCK a pipe instead of a file reads as empty, without waiting.
            flags = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            return open(
                file.name,
                mode,
                opener=lambda name, own: os.open(name, own | flags, 0o666, dir_fd=number),
            )

    def sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for directory, _, names in os.walk(self._root):
            for name in names:
                file = Path(directory, name)
                with contextlib.suppress(FileNotFoundError):
                    found[file.relative_to(self._root).as_posix()] = file.lstat().st_size
        return found

    def names(self, path: str = "") -> list[str]:
        try:
            with self._directory(PurePosixPath(path)) as number:
                return sorted(os.listdir(number))  # noqa: PTH208 -- a descriptor
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        file = PurePosixPath(path)
        try:
            with self._directory(file.parent) as number:
                os.stat(file.name, dir_fd=number, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def create(self, path: str) -> Any:
        return self._open(path, "xb")

    def settle(self, paths: Iterable[str]) -> None:
        _in_threads(self._settle_file, paths)

    def _settle_file(self, path: str) -> None:
        with self.open(path) as file:
            os.fsync(file.fileno())

    def settle_moves(self, paths: Iterable[str]) -> None:
        # The parents are synced, too: the name of a new directory may be lost.
        above = {parent for path in paths for parent in PurePosixPath(path).parents}
        _in_threads(self._settle_directory, above)

    def _settle_directory(self, path: PurePosixPath) -> None:
        with contextlib.suppress(FileNotFoundError), self._directory(path) as number:
            os.fsync(number)

    def open(self, path: str) -> Any:
        return self._open(path, "rb")

    def read(self, path: str) -> bytes | None:
        try:
            with self.open(path) as file:
                return file.read()  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None

    def put(self, path: str, data: bytes) -> None:
        draft = f"{path}.{uuid.uuid4().hex}{DRAFT_SUFFIX}"
        try:
            with self.create(draft) as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            self._rename(draft, path, os.replace)
            for above in PurePosixPath(path).parents:
                self._settle_directory(above)
        except OSError:
            with contextlib.suppress(OSError):
                self.remove(draft)
            raise

    def move(self, source: str, target: str) -> None:
        if self.exists(target):
            raise FileExistsError(f"{self._root / target} exists")
        self._rename(source, target, os.rename)

    def _rename(self, source: str, target: str, rename: Callable[..., None]) -> None:
        old, new = PurePosixPath(source), PurePosixPath(target)
        with self._directory(old.parent) as here, self._directory(new.parent, make=True) as there:
            rename(old.name, new.name, src_dir_fd=here, dst_dir_fd=there)

    def finish_move(self, source: str, target: str) -> None:
        if self.exists(source):
            self.move(source, target)

    def remove(self, path: str) -> None:
        gone = PurePosixPath(path)
        with contextlib.suppress(FileNotFoundError), self._directory(gone.parent) as number:
            if not stat.S_ISDIR(os.stat(gone.name, dir_fd=number, follow_symlinks=False).st_mode):
                os.unlink(gone.name, dir_fd=number)
            else:
                # Python 3.10 does not accept a descriptor here.
                _remove_tree(f"/proc/self/fd/{number}/{gone.name}")

    def make_root(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        import fcntl

        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # The kernel releases the lock whenever the process ends.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)

    def check_locked(self) -> None:
        """Do nothing: the kernel keeps the lock."""


def _remove_tree(path: str) -> None:
    """Remove a directory; a task that Spark has given up may still add files meanwhile."""
    import shutil

    for left in reversed(range(REMOVALS_MAX)):
        try:
            shutil.rmtree(path)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not left:
                raise
        else:
            return


def _in_threads(work: Callable[[T], None], items: Iterable[T]) -> None:
    """Do the work for all items, several in parallel: a disk syncs many files as fast as one."""
    every = list(items)

    def work_on(first: int) -> None:
        for item in every[first::SYNCS_AT_ONCE]:
            work(item)

    with ThreadPoolExecutor(SYNCS_AT_ONCE, "export-sync") as pool:
        for _ in pool.map(work_on, range(min(len(every), SYNCS_AT_ONCE))):
            pass


@contextlib.contextmanager
def _links_named(path: Path) -> Iterator[None]:
    """Translate the system's error for a symbolic link to an error that names the path."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OSError(
                error.errno,
                "a symbolic link, which an export does not follow, or no directory",
                str(path),
            ) from error
        raise
