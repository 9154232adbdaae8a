"""A lock for file systems that have none: a file that its holder writes again and again.

A holder that is killed stops writing. After ``LOST_S`` its file counts no more, and the next export
removes the file. Ages are differences of modification times, all by the server's clock.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from typing_extensions import Self

LOCK_FOLDER: Final = "_bkctl"
LOCK_PREFIX: Final = "lock"
BEAT_S: Final = 15.0
"""Time between two writes of the file."""

LOST_S: Final = 90.0
"""Age at which the file of another export counts as left by a killed process."""


class LockTree(Protocol):
    """What a lock needs of a file system."""

    def names(self, path: str = "") -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def modified(self, path: str) -> float | None: ...

    def write(self, path: str, data: bytes) -> None: ...

    def read(self, path: str) -> bytes | None: ...

    def remove(self, path: str) -> None: ...


class LockFile:
    """The lock of one tree, as a context manager.

    Each export writes a file of its own, and then lists the others. Of two exports that begin at
    the same time, one at least finds the other, and gives way.
    """

    def __init__(self, tree: LockTree, *, beat_s: float = BEAT_S, lost_s: float = LOST_S) -> None:
        self._tree, self._beat_s, self._lost_s = tree, beat_s, lost_s
        self._path = f"{LOCK_FOLDER}/{LOCK_PREFIX}-{uuid.uuid4().hex}"
        self._holder = f"process {os.getpid()} on {socket.gethostname()}".encode()
        self._stopping = threading.Event()
        self._written_s = time.monotonic()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="export-lock")

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            BlockingIOError: another export has it; the message names the file and the holder.
            OSError: the file system refuses.
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
        with contextlib.suppress(OSError):  # The file counts no more after a while.
            self._tree.remove(self._path)

    def check(self) -> None:
        """Check that no other export can have taken the lock.

        Raises:
            BlockingIOError: the file is gone, or was not written for too long.
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
            # Without its file the lock is lost. An error may pass before the file is too old.
            with contextlib.suppress(OSError):
                if not self._tree.exists(self._path):
                    return
                self._write()
