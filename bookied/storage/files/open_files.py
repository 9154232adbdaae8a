"""Descriptors that are kept open for reading, up to a limit.

If a checkpoint finds no free descriptor, ``bookied.storage.checkpoints`` reports it and
``bookied.state.read_only_mode`` refuses adds. ``bookied.service.storage_engine`` has the limits of
open files of each kind, ``bookied.process.process_limits`` the least that a bookie needs to start.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bookied.storage.files.files import Files, ReadFile

NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The error numbers of too many open files: of this process, or of the system."""


class OpenFiles:
    """The most recently read files, open: at most ``files_max``, plus those in use.

    Safe from any thread. A file is closed once no thread reads from it and others were used later.
    """

    def __init__(self, files: Files, *, files_max: int) -> None:
        self._files, self._files_max = files, files_max
        self.lock = threading.Lock()
        """While a caller has this lock, open files stay open."""
        self._open: OrderedDict[Path, SharedFile] = OrderedDict()
        self._forgotten = 0  # The number of calls of ``forget``.

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def use(self, path: Path) -> Iterator[ReadFile]:
        """Yield the open file.

        Raises:
            FileNotFoundError: the file is missing.
        """
        shared = self._acquire(path)
        try:
            yield shared.file
        finally:
            self._release(shared)

    def opened(self, path: Path) -> ReadFile | None:
        """Return a file that is open already, valid while the caller has ``lock``."""
        shared = self._open.get(path)
        return shared.file if shared is not None else None

    def borrow(self, path: Path) -> SharedFile | None:
        """Return a file that is open already, for ``give_back``; None if it is not open."""
        with self.lock:
            shared = self._open.get(path)
            if shared is not None:
                shared.users += 1
        return shared

    def give_back(self, shared: SharedFile) -> None:
        """Return a file from ``borrow``."""
        self._release(shared)

    def _acquire(self, path: Path) -> SharedFile:
        with self.lock:
            shared = self._open.get(path)
            if shared is not None:
                self._open.move_to_end(path)
                shared.users += 1
                return shared
            forgotten = self._forgotten
        opened = SharedFile(self.open_alone(path))
        with self.lock:
            if forgotten != self._forgotten:  # The path may have another file by now.
                opened.users, opened.is_out = 1, True
                return opened
            shared = self._open.setdefault(path, opened)
            shared.users += 1
            closing = [opened] if shared is not opened else []
            while len(self._open) > self._files_max:
                closing += self._take_out(next(iter(self._open)))
        for old in closing:
            old.file.close()
        return shared

    def open_alone(self, path: Path) -> ReadFile:
        """Open a file for the caller, who closes it.

        If no descriptor is free, files that no thread reads from are closed.

        Raises:
            FileNotFoundError: the file is missing.
        """
        try:
            return self._files.open_read(path)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR or not self.close_idle():
                raise
        return self._files.open_read(path)

    def close_idle(self) -> bool:
        """Close files that no thread reads from; return whether there were any."""
        with self.lock:
            idle = [path for path, shared in self._open.items() if not shared.users]
            closing = [shared for path in idle for shared in self._take_out(path)]
        for old in closing:
            old.file.close()
        return bool(closing)

    def _take_out(self, path: Path) -> list[SharedFile]:
        """Forget a file; return it if it must be closed now. The caller has the lock."""
        shared = self._open.pop(path, None)
        if shared is None:
            return []
        shared.is_out = True
        return [] if shared.users else [shared]

    def _release(self, shared: SharedFile) -> None:
        with self.lock:
            shared.users -= 1
            is_last = shared.is_out and not shared.users
        if is_last:
            shared.file.close()

    def forget(self, path: Path) -> None:
        """Close a file that was removed or replaced, once it is not in use."""
        with self.lock:
            self._forgotten += 1
            closing = self._take_out(path)
        for old in closing:
            old.file.close()

    def close(self) -> None:
        """Close all files."""
        for path in list(self._open):
            self.forget(path)


class SharedFile:
    """An open file, the number of its users, and whether the last user closes it."""

    __slots__ = ("file", "is_out", "users")

    def __init__(self, file: ReadFile) -> None:
        self.file, self.users, self.is_out = file, 0, False
