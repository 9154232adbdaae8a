"""Replays a stopped bookie's journals and puts everything into files, without starting a bookie.

After it, entry logs and indexes are complete, the marks stand at the ends of the journals, and no
fence, master key or explicit LAC depends on a replay. A Java bookie that starts on the directories
then has nothing to replay: it would lose a tail of a journal that holds no entry (storage.md
section 17, D2 and D3 at replay).
"""

from __future__ import annotations

from collections.abc import Callable

from bookied.directories.emptied_directories import check_losses
from bookied.directories.roots import Directories, clear_dirty
from bookied.errors import NoWritableDirError
from bookied.storage.files.files import Files
from bookied.storage.replay import ReplayReport, recover
from bookied.storage.storages import Storages


def flush(
    files: Files,
    found: Directories,
    storages: Storages,
    *,
    skip_invalid: bool = False,
    tell: Callable[[int], None] = lambda _bytes: None,
) -> ReplayReport:
    """Bring logs, indexes and marks to the end of the journals; safe to repeat after a crash.

    Args:
        files: the disk.
        found: the roots; they have cookies.
        storages: of these directories, not open yet; they are closed on return.
        skip_invalid: ``skipReplayJournalInvalidRecord``.
        tell: hears now and then how many bytes of entries were replayed.

    Raises:
        CorruptError: a journal is damaged or missing, or a directory was emptied; the marks stay
            where they were.
        NoWritableDirError: there was no space for all of it; likewise.
        StorageError: not everything could be written; likewise. So for ``OSError``.
    """
    check_losses(files, found)
    try:
        storages.open()
        replayed = recover(
            files, storages, found.journal_dirs, skip_invalid=skip_invalid, tell=tell
        )
        reached = storages.marks.read(len(found.journals))
    finally:
        storages.abandon()
    if any(mark < end for mark, end in zip(reached, replayed.marks, strict=True)):
        # A bookie would go on with that in memory, read-only.
        raise NoWritableDirError("no space for all that the journals hold; they keep it")
    # As after a clean stop: nothing is left that a start would have to bring back.
    clear_dirty(files, found)
    return replayed
