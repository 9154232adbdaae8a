"""The file systems of pyarrow as targets of an export: S3, GCS, Azure and HDFS.

An object store such as S3 shows an object when it is complete, and cannot rename. HDFS renames
files and directories, and shows a file while it is being written.

A killed export stops writing its lock file. After ``LOST_S`` the file does not count any more, and
the next export removes it. Ages are differences of modification times, all by the server's clock.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from typing_extensions import Self


LOCK_FOLDER: Final = "_bkctl"
LOCK_PREFIX: Final = "lock"
BEAT_S: Final = 15.0
"""Seconds between two writes of the lock file."""

LOST_S: Final = 90.0
"""Age in seconds at which the lock file of another export counts as left by a killed process."""


class LockTree(Protocol):
    """The file system operations of a lock."""

    def names(self, path: str = "") -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def modified(self, path: str) -> float | None: ...

    def write(self, path: str, data: bytes) -> None: ...

    def read(self, path: str) -> bytes | None: ...

    def remove(self, path: str) -> None: ...


class LockFile:
    """The lock of one tree, as a context manager.

    Each export writes its own file, and then lists the others. If two exports begin at the same
    time, at least one finds the other, and fails.
    """

    def __init__(self, tree: LockTree, *, beat_s: float = BEAT_S, lost_s: float = LOST_S) -> None:
        self._tree, self._beat_s, self._lost_s = tree, beat_s, lost_s
        self._path = f"{LOCK_FOLDER}/{LOCK_PREFIX}-{uuid.uuid4().hex}"
        self._holder = f"process {os.getpid()} on {socket.gethostname()}".encode()
        self._stopping = threading.Event()
        self._written_s = time.monotonic()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="export-lock")

    def __enter__(self) -> Self:
        """Acquire the lock.

        Raises:
            BlockingIOError: another export has the lock; the message names the file and the holder.
            OSError: the file system reports an error.
        """
        self._write()
        try:
            self._give_way()
        except BaseException:
            with contextlib.suppress(OSError):
                self._tree.remove(self._path)
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        with contextlib.suppress(OSError):  # The file expires after a while.
            self._tree.remove(self._path)

    def check(self) -> None:
        """Check that no other export can have acquired the lock.

        Raises:
            BlockingIOError: the lock file is missing, or was not written for too long.
        """
        silent_s = time.monotonic() - self._written_s
        if silent_s >= self._lost_s or not self._tree.exists(self._path):
            raise BlockingIOError(f"the lock was lost after {silent_s:.0f} s without a write to it")

    def _write(self) -> None:
        began_s = time.monotonic()
        self._tree.write(self._path, self._holder)
        self._written_s = began_s

    def _give_way(self) -> None:
        now = self._tree.modified(self._path)
        for name in self._tree.names(LOCK_FOLDER):
            path = f"{LOCK_FOLDER}/{name}"
            if not name.startswith(LOCK_PREFIX) or path == self._path:
                continue
            written = self._tree.modified(path)
            if now is None or written is None or now - written < self._lost_s:
                if self._tree.exists(path):
                    holder = (self._tree.read(path) or b"")[:200].decode(errors="replace")
                    raise BlockingIOError(f"{path} is held by {holder or 'an unknown process'}")
            else:
                self._tree.remove(path)

    def _beat(self) -> None:
        while not self._stopping.wait(self._beat_s):
            # Without its file the lock is lost. After an error, the next write may still be in
            # time.
            with contextlib.suppress(OSError):
                if not self._tree.exists(self._path):
                    return
                self._write()


DRAFT_SUFFIX: Final = ".tmp"
"""The suffix of a small file's name while it is written."""

_S3_SCHEMES: Final = ("s3a", "s3n")
"""Hadoop's names for the scheme ``s3`` of pyarrow."""

_OBJECT_STORES: Final = ("s3", "gcs")
"""pyarrow's names of file systems without a rename."""


def _file_system(target: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow import fs

    scheme = urlsplit(target).scheme
    if scheme == "hdfs" and (found := _native_hdfs(target)):
        return found
    known = target.replace(f"{scheme}://", "s3://", 1) if scheme in _S3_SCHEMES else target
    try:
        system, path = fs.FileSystem.from_uri(known)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise OSError(f"{target}: pyarrow has no file system for {scheme}: {error}") from error
    except OSError as error:
        if scheme != "hdfs":
            raise
        # pyarrow lists all places where it searched for a Java.
        reason = str(error).partition(" dlopen(")[0]
        raise OSError(
            f"{reason}; or install 'bkctl[spark,hdfs]', which needs no libhdfs"
        ) from error
    return system, path


def _native_hdfs(target: str) -> tuple[Any, str] | None:
    """Return the client of HDFS that needs no Java; None if it is not installed."""
    try:
        from hdfs_native.fsspec import HdfsFileSystem
    except ImportError:
        return None
    from pyarrow import fs

    class TimedHdfs(HdfsFileSystem):
        """HDFS with the modification times that pyarrow requests."""

        def info(self, path: str, **kwargs: Any) -> Any:
            found = super().info(path, **kwargs)
            seconds = found["modification_time"] / 1000
            return {**found, "mtime": dt.datetime.fromtimestamp(seconds, tz=dt.timezone.utc)}

    parts = urlsplit(target)
    system = TimedHdfs(parts.hostname, parts.port)
    return fs.PyFileSystem(fs.FSSpecHandler(system)), parts.path


class ArrowFiles:
    """A tree of one of pyarrow's file systems."""

    def __init__(self, uri: str, system: Any, root: str) -> None:
        self.uri, self.system, self.root = uri, system, root.rstrip("/")
        self.is_object_store = system.type_name in _OBJECT_STORES
        self._lock: LockFile | None = None

    @classmethod
    def at(cls, target: str) -> ArrowFiles:
        """Return the tree below a URI.

        Raises:
            OSError: the file system cannot be reached, pyarrow does not know it, or the URI has a
                password, which logs and reports would show.
        """
        if urlsplit(target).password:
            shown = urlsplit(target).hostname
            raise OSError(
                f"the URI of {shown} has a password; use AWS_SECRET_ACCESS_KEY or a file instead"
            )
        path, mark, query = target.partition("?")
        uri = path.rstrip("/") + mark + query
        return cls(uri, *_file_system(uri))

    def _path(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def child(self, path: str) -> ArrowFiles:
        place, mark, query = self.uri.partition("?")
        return ArrowFiles(f"{place}/{path}{mark}{query}", self.system, self._path(path))

    def _listed(self, path: str, *, recursive: bool) -> list[Any]:
        from pyarrow import fs

        chosen = fs.FileSelector(self._path(path), allow_not_found=True, recursive=recursive)
        try:
            found: list[Any] = self.system.get_file_info(chosen)
        except NotADirectoryError:
            # pyarrow asks HDFS twice, and another export may make the directory in between.
            found = self.system.get_file_info(chosen)
        return found

    def sizes(self) -> dict[str, int]:
        start = len(self.root) + 1
        listed = self._listed("", recursive=True)
        return {one.path[start:]: one.size for one in listed if one.is_file}

    def names(self, path: str = "") -> list[str]:
        return sorted(one.base_name for one in self._listed(path, recursive=False))

    def exists(self, path: str) -> bool:
        from pyarrow import fs

        kind = self.system.get_file_info(self._path(path)).type
        return bool(kind != fs.FileType.NotFound)

    def modified(self, path: str) -> float | None:
        """Return a file's modification time in seconds by the server's clock; None if unknown."""
        found = self.system.get_file_info(self._path(path)).mtime
        return None if found is None else float(found.timestamp())

    def create(self, path: str) -> Any:
        file = self._path(path)
        self.system.create_dir(file.rpartition("/")[0], recursive=True)
        return self.system.open_output_stream(file)

    def settle(self, paths: Iterable[str]) -> None:
        """Do nothing: a closed file is stored."""

    def settle_moves(self, paths: Iterable[str]) -> None:
        """Do nothing: a move is stored when it is answered."""

    def open(self, path: str) -> Any:
        return self.system.open_input_file(self._path(path))

    def read(self, path: str) -> bytes | None:
        """Return a small file; None if it is missing.

        Another export may overwrite an object while it is sent, so an object store that fails is
        read once more.
        """
        try:
            return self._content(path)
        except FileNotFoundError:
            return None
        except OSError:
            if not self.is_object_store:
                raise
        with contextlib.suppress(FileNotFoundError):
            return self._content(path)
        return None

    def _content(self, path: str) -> bytes:
        with self.system.open_input_file(self._path(path)) as file:
            data: bytes = file.read()
        return data

    def put(self, path: str, data: bytes) -> None:
        if self.is_object_store:
            self.write(path, data)
            return
        draft = f"{path}.{uuid.uuid4().hex}{DRAFT_SUFFIX}"
        self.write(draft, data)
        self.remove(path)
        self.move(draft, path)

    def write(self, path: str, data: bytes) -> None:
        """Write a small file, or overwrite it: readers may see a part of it."""
        with self.create(path) as stream:
            stream.write(data)

    def move(self, source: str, target: str) -> None:
        if self.exists(target):
            raise FileExistsError(f"{self.uri}/{target} exists")
        self._move(source, target)

    def finish_move(self, source: str, target: str) -> None:
        if self.exists(source):
            if self.is_object_store:  # The copy may be complete, and is repeated.
                self._move(source, target)
            else:
                self.move(source, target)

    def _move(self, source: str, target: str) -> None:
        self.system.create_dir(self._path(target).rpartition("/")[0], recursive=True)
        if not self.is_object_store:
            self.system.move(self._path(source), self._path(target))
            return
        try:
            self.system.copy_file(self._path(source), self._path(target))
            self.system.delete_file(self._path(source))
        except OSError:
            if self.exists(source):
                self.remove(target)
            raise

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.system.get_file_info(self._path(path)).is_file:
                self.system.delete_file(self._path(path))
            else:
                self.system.delete_dir(self._path(path))

    def make_root(self) -> None:
        self.system.create_dir(self.root, recursive=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        with LockFile(self) as self._lock:
            yield

    def check_locked(self) -> None:
        if self._lock is not None:
            self._lock.check()
