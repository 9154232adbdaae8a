"""The entry logs of a storage as files: finished logs, free ids, and removals."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Final

import attrs

from bookied.storage.entrylog.log_ids_and_directories import LogDirectories
from bookied.storage.entrylog.log_list import list_all_logs
from bookied.storage.entrylog.reader import EntryLogReader
from bookied.storage.entrylog.writer import EntryLogWriter
from bookied.storage.files.files import Files


@attrs.frozen
class LogsSnapshot:
    """The entry logs that this process had begun at some moment."""

    active_log_id: int
    log_ids: frozenset[int]


NONE_FINISHED: Final = LogsSnapshot(-1, frozenset())
"""The snapshot before this process has begun a log."""


@attrs.define(eq=False)
class EntryLogs:
    """The entry logs for garbage collection: which are finished, and how to remove them.

    A log is finished once the writer has begun the next one. A finished log is never written again.
    A caller may remove a log only if it knows that nothing points into the log.
    """

    _files: Files
    _directories: LogDirectories
    _log: EntryLogWriter = attrs.field(alias="writer")
    _reader: EntryLogReader

    def begun(self) -> LogsSnapshot:
        """Return the logs that may still be written to; see ``finished``."""
        return LogsSnapshot(self._log.active_log_id, frozenset(self._log.paths))

    def end_if_dead(self, alive: Container[int]) -> bool:
        """End the active log if over half of it belongs to deleted ledgers.

        Return whether it did.
        """
        ledgers = self._log.file.ledgers_of(self._log.active_log_id)
        dead_bytes = sum(size for one, size in ledgers.items() if one not in alive)
        is_dead = 2 * dead_bytes > sum(ledgers.values())
        if is_dead:
            self._log.finish()
        return is_dead

    def finished(self, begun: LogsSnapshot) -> dict[int, Path]:
        """Return the logs that were complete when ``begun`` was called, by id. Blocks.

        After a checkpoint that began later, every index entry that points into them is on disk. A
        log id that two directories have is left out.
        """
        finished = begun.log_ids - {begun.active_log_id}
        unfinished = {begun.active_log_id, *self._log.paths} - finished
        found = list_all_logs(self._files, self._directories.all)
        return {
            log_id: paths[0]
            for log_id, paths in found.items()
            if len(paths) == 1 and log_id not in unfinished
        }

    def new(self) -> tuple[int, Path]:
        """Return the id and the directory of a log for another writer."""
        return self._log.ids.give_out(), self._directories.choose()

    def note_id(self, log_id: int) -> None:
        """Note a used id in files, so that it is not used again. Blocks.

        Raises:
            OSError: the id could not be noted.
        """
        self._log.ids.note(log_id)

    def remove(self, path: Path) -> None:
        """Remove a log that nothing points into, durably. Blocks.

        Raises:
            OSError: the log may still exist.
        """
        if self._files.exists(path):
            self._files.remove(path)
        self._files.sync_dir(path.parent)

    def forget(self, log_id: int) -> None:
        """Forget a log that was removed: close its file, and drop its path."""
        self._reader.forget(log_id)
        self._log.paths.pop(log_id, None)
