"""The entry logs of a storage as files: which are finished, which ids are free, which may go."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Final

import attrs

from bookied.storage.entrylog.next_log_directory import LogDirectories
from bookied.storage.entrylog.reader import EntryLogReader, list_all_logs
from bookied.storage.entrylog.writer import EntryLogWriter
from bookied.storage.files.files import Files


@attrs.frozen
class LogsSnapshot:
    """Which entry logs this process had begun at some moment."""

    active_log_id: int
    log_ids: frozenset[int]


NONE_FINISHED: Final = LogsSnapshot(-1, frozenset())
"""Before this process had begun any."""


class EntryLogs:
    """What garbage collection asks about logs, and how it removes them.

    A log is finished once the writer has gone on to the next one. A finished log is never written
    to again. Only who knows that nothing points into a log may remove it.
    """

    def __init__(
        self,
        files: Files,
        directories: LogDirectories,
        *,
        writer: EntryLogWriter,
        reader: EntryLogReader,
    ) -> None:
        self._files, self._directories = files, directories
        self._log, self._reader = writer, reader

    def begun(self) -> LogsSnapshot:
        """Return which logs may still be written to; see ``finished``."""
        return LogsSnapshot(self._log.active_log_id, frozenset(self._log.paths))

    def end_if_dead(self, alive: Container[int]) -> bool:
        """End the active log if most of it is of ledgers that are not ``alive``; return whether."""
        ledgers = self._log.file.ledgers_of(self._log.active_log_id)
        dead_bytes = sum(size for one, size in ledgers.items() if one not in alive)
        is_dead = 2 * dead_bytes > sum(ledgers.values())
        if is_dead:
            self._log.finish()
        return is_dead

    def finished(self, begun: LogsSnapshot) -> dict[int, Path]:
        """Return the logs that were complete when ``begun`` was asked for, by id. Blocks.

        After a checkpoint that began after that, all that points into them is on disk. Logs whose
        id two directories have are not among them.
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
        """Note in files that an id was given out, so that none gets it again. Blocks.

        Raises:
            OSError: it could not be noted.
        """
        self._log.ids.note(log_id)

    def remove(self, path: Path) -> None:
        """Remove a log that nothing points into, durably. Blocks.

        Raises:
            OSError: it may be there still.
        """
        if self._files.exists(path):
            self._files.remove(path)
        self._files.sync_dir(path.parent)

    def forget(self, log_id: int) -> None:
        """Forget a log that was removed: close its file, and drop what is known about it."""
        self._reader.forget(log_id)
        self._log.paths.pop(log_id, None)
