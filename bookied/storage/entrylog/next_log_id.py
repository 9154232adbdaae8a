"""The next log id, and the files that keep an id from being used twice."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from bookied.errors import NO_SPACE
from bookied.storage.entrylog import format as layout
from bookied.storage.files.files import Files

log = Logger()

IDS_AT_ONCE_MAX: Final = 1000
"""Upper limit of ids in use but not yet noted; an id that is lower by more has started over."""


class LogIds:
    """The source of log ids, in rising order; after the highest possible id they start over.

    ``give_out`` belongs to the reactor's thread, ``note`` to any thread. Noted ids are for the next
    start, which must not use an id again.
    """

    def __init__(self, files: Files, directories: Sequence[Path]) -> None:
        self._files, self._directories = files, tuple(directories)
        self.next = 0
        """Higher than any id in use; may be set before the first ``give_out``."""
        self.turn = 0
        """Restarts of the ids since this object was created."""
        self._noting = threading.Lock()
        self._last_id = -1

    def give_out(self) -> int:
        """Return the next log id, for any writer of that log."""
        log_id = self._free_id()
        self.next = log_id + 1
        return log_id

    def _free_id(self) -> int:
        """Return the next free id; after the highest possible id the ids start over."""
        log_id = self.next
        while log_id > layout.LOG_ID_MAX or self._is_used(log_id):
            if log_id >= layout.LOG_ID_MAX:
                self.turn += 1
            log_id = log_id + 1 if log_id < layout.LOG_ID_MAX else 0
        return log_id

    def _is_used(self, log_id: int) -> bool:
        name = layout.file_name(log_id)
        names = (name, f"{name}.compacting")
        return any(self._files.exists(path / one) for path in self._directories for one in names)

    def note(self, log_id: int) -> None:
        """Note a used id in every directory; full directories are skipped, as in Java.

        A writer that is a little late notes a lower id, which was given out before: the higher one
        stays.
        """
        with self._noting:
            is_late = 0 <= self._last_id - log_id < IDS_AT_ONCE_MAX
            self._last_id = log_id = self._last_id if is_late else log_id
            self._write(log_id)

    def _write(self, log_id: int) -> None:
        for directory in self._directories:
            try:
                self._files.write_atomic(directory / layout.LAST_ID, b"%x\n" % log_id)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                log.warn("no space for {name} in {path}", name=layout.LAST_ID, path=directory)
