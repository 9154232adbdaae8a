"""The file systems that an export writes to: local ones, S3, HDFS and what else pyarrow knows.

Paths are relative to one directory, the root, with ``/`` between names.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from bkctl.commands.export.target.arrow_file_systems import DRAFT_SUFFIX, ArrowFiles


class TargetFiles(Protocol):
    """A directory tree; whatever fails raises ``OSError``."""

    @property
    def uri(self) -> str:
        """The root, as an absolute path or a URI without a ``/`` at its end."""

    @property
    def is_object_store(self) -> bool:
        """Whether a move copies a file and then deletes it, and directories never move."""

    def child(self, path: str) -> TargetFiles:
        """Return the tree below a directory of this one."""

    def sizes(self) -> dict[str, int]:
        """Return all files by path, with their sizes in bytes."""

    def names(self, path: str = "") -> list[str]:
        """Return the names in a directory; none where the directory is missing."""

    def exists(self, path: str) -> bool: ...

    def create(self, path: str) -> Any:
        """Return a stream that writes a new file; its directory is made."""

    def settle(self, path: str) -> int:
        """Make a file that was written survive a power failure; return its size in bytes."""

    def open(self, path: str) -> Any:
        """Return a file for random reading."""

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None where the file is missing."""

    def put(self, path: str, data: bytes) -> None:
        """Write a small file: on return it is complete, and before it was not there."""

    def move(self, source: str, target: str) -> None:
        """Rename a file or directory to a name that nothing has; an object store moves only files.

        A move that fails leaves the file at the source, or has been made: its answer was lost.
        """

    def finish_move(self, source: str, target: str) -> None:
        """Move ``source`` as ``move`` does, where an earlier move may have died at any point.

        A missing source is a move that was done.
        """

    def remove(self, path: str) -> None:
        """Remove a file or a directory with all that is in it; a missing one counts as removed."""

    def make_root(self) -> None:
        """Make the root and its parents where they are missing."""

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep other exports out of this tree.

        Raises:
            BlockingIOError: another export is at work.
        """

    def check_locked(self) -> None:
        """Check that the lock is still held.

        Raises:
            BlockingIOError: another export may have taken it.
        """


def open_files(target: str) -> TargetFiles:
    """Return the tree below ``target``: a path, or a URI.

    Raises:
        OSError: the file system of the URI cannot be reached, or pyarrow does not know it.
    """
    scheme = urlsplit(target).scheme if "://" in target or target.startswith("file:") else ""
    if scheme in ("", "file"):
        path = unquote(urlsplit(target).path) if scheme else target
        return LocalFiles(Path(path).absolute())
    return ArrowFiles.at(target)


class LocalFiles:
    """A tree of this host's."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def uri(self) -> str:
        return str(self._root)

    @property
    def is_object_store(self) -> bool:
        return False

    def child(self, path: str) -> LocalFiles:
        return LocalFiles(self._root / path)

    def sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for directory, _, names in os.walk(self._root):
            for name in names:
                file = Path(directory, name)
                with contextlib.suppress(FileNotFoundError):
                    found[file.relative_to(self._root).as_posix()] = file.stat().st_size
        return found

    def names(self, path: str = "") -> list[str]:
        try:
            return sorted(one.name for one in (self._root / path).iterdir())
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._root / path)

    def create(self, path: str) -> Any:
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("xb")

    def settle(self, path: str) -> int:
        with (self._root / path).open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def open(self, path: str) -> Any:
        return open(self._root / path, "rb", opener=_without_wait)

    def read(self, path: str) -> bytes | None:
        try:
            with self.open(path) as file:
                return file.read()  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None

    def put(self, path: str, data: bytes) -> None:
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{uuid.uuid4().hex}{DRAFT_SUFFIX}")
        try:
            with draft.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(file)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        _sync_directory(file.parent)

    def move(self, source: str, target: str) -> None:
        to = self._root / target
        to.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(to):
            raise FileExistsError(f"{to} exists")
        (self._root / source).rename(to)
        _sync_directory(to.parent)

    def finish_move(self, source: str, target: str) -> None:
        if self.exists(source):
            self.move(source, target)

    def remove(self, path: str) -> None:
        import shutil

        gone = self._root / path
        if gone.is_dir() and not gone.is_symlink():
            shutil.rmtree(gone)
        else:
            gone.unlink(missing_ok=True)

    def make_root(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        import fcntl

        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # The kernel lets go of it when the process ends, however that is.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)

    def check_locked(self) -> None:
        """Nothing to check: the kernel keeps the lock."""


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _without_wait(path: str, flags: int) -> int:
    """Open a file; a pipe in its place is read as empty, and not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)
