"""What a failed write or sync of an entry log comes to: a retry, another log, or the end."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from twisted.logger import Logger

from bookied.errors import NO_SPACE, DiskWriteFailedError
from bookied.storage.files.files import AppendFile, UpdateFile
from bookied.storage.files.open_files import NO_DESCRIPTOR

log = Logger()


class SyncGuard:
    """Syncs one file at a time, and none after a sync has failed.

    The system reports a failed sync to one of two that wait for it, and the next one succeeds and
    saves nothing. Any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_failed = False
        """Whether a sync has failed: what the file holds is unknown, whatever the error."""

    def sync(self, file: AppendFile | UpdateFile) -> None:
        """Sync a file.

        Raises:
            OSError: it failed, or an earlier one has.
        """
        with self._lock:
            if self.is_failed:
                raise OSError(errno.EIO, "an earlier sync has failed")
            try:
                file.sync()
            except BaseException:
                self.is_failed = True
                raise


class WriteFailures:
    """Weighs failures, and remembers what they came to.

    Without a descriptor, and without space, it can be tried again; without space perhaps in another
    directory. Anything else is the end. Belongs to the writing thread, the attributes to any
    thread.
    """

    def __init__(
        self,
        syncs: SyncGuard,
        *,
        on_fatal: Callable[[DiskWriteFailedError], object],
        on_full: Callable[[Path], object],
    ) -> None:
        """Begin without any.

        Args:
            syncs: says whether a sync has failed: nothing is tried again then.
            on_fatal: nothing more can be written; called once.
            on_full: a directory has no space; called when that, or ``is_stuck``, changes.
        """
        self._syncs, self._on_fatal, self._on_full = syncs, on_fatal, on_full
        self.failure: DiskWriteFailedError | None = None
        self.is_stuck = False
        """Whether the last attempt found a full disk, and no other; it is repeated."""
        self._reported: tuple[Path, bool] | None = None

    def guard(self, action: Callable[[], None], path: Path, move: Callable[[Path], bool]) -> None:
        """Do something with the log at ``path``.

        Args:
            action: what to do; it may be done again.
            path: of the log.
            move: where that has no space: lets the rest go elsewhere, and says whether it can.

        Raises:
            OSError: it can be tried again, perhaps elsewhere.
            DiskWriteFailedError: nothing more can be written.
        """
        try:
            action()
        except Exception as error:  # noqa: BLE001  # told apart there
            self._weigh(path, error, move)

    def _weigh(self, path: Path, error: Exception, move: Callable[[Path], bool]) -> NoReturn:
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # A write to a descriptor does not name its file.
        if number in NO_DESCRIPTOR:
            raise error
        if number in NO_SPACE and not self._syncs.is_failed:
            try:
                has_other = move(path)
            except OSError as worse:
                self._die(path, worse)
            self._report_full(path.parent, is_stuck=not has_other)
            raise error
        self._die(path, error)

    def _die(self, path: Path, error: Exception) -> NoReturn:
        if self.failure is None:  # Else the other thread was there before.
            self.failure = DiskWriteFailedError(path, error)
            log.critical("entry log {path} has failed: {error!r}", path=path, error=error)
            self._on_fatal(self.failure)
        raise self.failure from error

    def _report_full(self, directory: Path, *, is_stuck: bool) -> None:
        self.is_stuck = is_stuck
        if self._reported != (directory, is_stuck):
            self._reported = (directory, is_stuck)
            self._on_full(directory)

    def note_space(self) -> None:
        """Note that something was written."""
        self.is_stuck, self._reported = False, None
