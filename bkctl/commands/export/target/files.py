"""The file systems that an export writes to: local ones, S3, HDFS and what else pyarrow knows.

Paths are relative to one directory, the root, with ``/`` between names.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

_S3_SCHEMES: Final = ("s3a", "s3n")
"""Hadoop's names for what pyarrow calls ``s3``."""


class Files(Protocol):
    """A directory tree; whatever fails raises ``OSError``."""

    @property
    def uri(self) -> str:
        """The root, as an absolute path or a URI without a ``/`` at its end."""

    def child(self, path: str) -> Files:
        """Return the tree below a directory of this one."""

    def sizes(self, path: str = "") -> dict[str, int]:
        """Return all files below a directory by path, with their sizes in bytes."""

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
        """Rename a file or directory to a name that nothing has."""

    def remove(self, path: str) -> None:
        """Remove a file or a directory with all that is in it; a missing one counts as removed."""

    def make_root(self) -> None:
        """Make the root and its parents where they are missing."""

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep other exports out of this tree.

        Raises:
            BlockingIOError: another export is at work.
        """


def open_files(target: str) -> Files:
    """Return the tree below ``target``: a path, or a URI.

    Raises:
        OSError: the file system of the URI cannot be reached, or pyarrow does not know it.
    """
    scheme = urlsplit(target).scheme if "://" in target or target.startswith("file:") else ""
    if scheme in ("", "file"):
        path = unquote(urlsplit(target).path) if scheme else target
        return LocalFiles(Path(path).absolute())
    return ArrowFiles(target.rstrip("/"), *_file_system(scheme, target))


def _file_system(scheme: str, target: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    known = target.replace(f"{scheme}://", "s3://", 1) if scheme in _S3_SCHEMES else target
    try:
        system, path = fs.FileSystem.from_uri(known)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise OSError(f"{target}: pyarrow has no file system for {scheme}: {error}") from error
    return system, path


class LocalFiles:
    """A tree of this host's."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def uri(self) -> str:
        return str(self._root)

    def child(self, path: str) -> LocalFiles:
        return LocalFiles(self._root / path)

    def sizes(self, path: str = "") -> dict[str, int]:
        found: dict[str, int] = {}
        for directory, _, names in os.walk(self._root / path):
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
        return (self._root / path).open("rb")

    def read(self, path: str) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, path: str, data: bytes) -> None:
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{uuid.uuid4().hex}.tmp")
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


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LOCK_NAME: Final = "_bkctl/lock"


class ArrowFiles:
    """A tree of one of pyarrow's file systems.

    The lock is a small file, for such file systems have no lock: one that a killed export left has
    to be removed by hand.
    """

    def __init__(self, uri: str, system: Any, root: str) -> None:
        self.uri, self._fs, self._root = uri, system, root.rstrip("/")

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def child(self, path: str) -> ArrowFiles:
        return ArrowFiles(f"{self.uri}/{path}", self._fs, self._path(path))

    def _listed(self, path: str, *, recursive: bool) -> list[Any]:
        from pyarrow import fs

        chosen = fs.FileSelector(self._path(path), allow_not_found=True, recursive=recursive)
        found: list[Any] = self._fs.get_file_info(chosen)
        return found

    def sizes(self, path: str = "") -> dict[str, int]:
        start = len(self._root) + 1
        listed = self._listed(path, recursive=True)
        return {one.path[start:]: one.size for one in listed if one.is_file}

    def names(self, path: str = "") -> list[str]:
        return sorted(one.base_name for one in self._listed(path, recursive=False))

    def exists(self, path: str) -> bool:
        from pyarrow import fs

        kind = self._fs.get_file_info(self._path(path)).type
        return bool(kind != fs.FileType.NotFound)

    def create(self, path: str) -> Any:
        file = self._path(path)
        self._fs.create_dir(file.rpartition("/")[0], recursive=True)
        return self._fs.open_output_stream(file)

    def settle(self, path: str) -> int:
        return int(self._fs.get_file_info(self._path(path)).size)

    def open(self, path: str) -> Any:
        return self._fs.open_input_file(self._path(path))

    def read(self, path: str) -> bytes | None:
        try:
            with self._fs.open_input_file(self._path(path)) as file:
                data: bytes = file.read()
                return data
        except FileNotFoundError:
            return None

    def put(self, path: str, data: bytes) -> None:
        with self.create(path) as stream:
            stream.write(data)

    def move(self, source: str, target: str) -> None:
        if self.exists(target):
            raise FileExistsError(f"{self.uri}/{target} exists")
        if self._fs.type_name == "s3":  # It can rename no directory.
            for path in self.sizes(source) or {source: 0}:
                self._move_one(path, target + path[len(source) :])
        else:
            self._move_one(source, target)

    def _move_one(self, source: str, target: str) -> None:
        self._fs.create_dir(self._path(target).rpartition("/")[0], recursive=True)
        self._fs.move(self._path(source), self._path(target))

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self._fs.get_file_info(self._path(path)).is_file:
                self._fs.delete_file(self._path(path))
            else:
                self._fs.delete_dir(self._path(path))

    def make_root(self) -> None:
        self._fs.create_dir(self._root, recursive=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        token = uuid.uuid4().hex.encode()
        if self.read(LOCK_NAME) is None:
            self.put(LOCK_NAME, token)
        if self.read(LOCK_NAME) != token:
            raise BlockingIOError(f"{self.uri}/{LOCK_NAME} exists")
        try:
            yield
        finally:
            self.remove(LOCK_NAME)
