"""The consequence of a failed write or sync of an entry log: a retry, another log, or the end."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import attrs
from twisted.logger import Logger

from bookied.errors import NO_SPACE, DiskWriteFailedError
from bookied.storage.files.files import AppendFile, UpdateFile
from bookied.storage.files.open_files import NO_DESCRIPTOR

log = Logger()


class SyncGuard:
    """Syncs of files, one at a time, and none after a sync has failed.

    The system reports a failed sync to only one of two waiting callers. The next sync succeeds, but
    saves nothing. Any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_failed = False
        """True after a failed sync: the content of the file is then unknown, whatever the error."""

    def sync(self, file: AppendFile | UpdateFile) -> None:
        """Sync a file.

        Raises:
            OSError: this sync or an earlier one failed.
        """
        with self._lock:
            if self.is_failed:
                raise OSError(errno.EIO, "an earlier sync has failed")
            try:
                file.sync()
            except BaseException:
                self.is_failed = True
                raise


@attrs.define(eq=False)
class WriteFailures:
    """The failures of one writer, and their consequences.

    For lack of descriptors or of space an action can be retried, for lack of space perhaps in
    another directory. Any other failure is the end. Belongs to the writing thread, the attributes
    to any thread.
    """

    _syncs: SyncGuard
    """Knows whether a sync has failed: nothing is retried then."""
    _on_fatal: Callable[[DiskWriteFailedError], object]
    """Nothing more can be written; called once."""
    _on_full: Callable[[Path], object]
    """A directory has no space; called when the directory or ``is_stuck`` changes."""
    failure: DiskWriteFailedError | None = attrs.field(default=None, init=False)
    is_stuck: bool = attrs.field(default=False, init=False)
    """True if the last attempt found a full disk and no other directory; it is repeated."""
    _reported: tuple[Path, bool] | None = attrs.field(default=None, init=False)

    def guard(self, action: Callable[[], None], path: Path, move: Callable[[Path], bool]) -> None:
        """Run an action on the log at ``path``, and handle its failure.

        Args:
            action: can be repeated.
            path: of the log.
            move: called if there is no space: moves the rest to another directory, returns False if
                there is no other.

        Raises:
            OSError: the action can be retried, perhaps elsewhere.
            DiskWriteFailedError: nothing more can be written.
        """
        try:
            action()
        except Exception as error:  # noqa: BLE001  # ``_weigh`` raises
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
        if self.failure is None:  # Otherwise the other thread was first.
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
        """Note that a write succeeded."""
        self.is_stuck, self._reported = False, None
