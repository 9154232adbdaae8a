"""The replay of a stopped bookie's journals into its storage, without starting the bookie.

After it, entry logs and indexes are complete, the marks are at the ends of the journals, and no
fence, master key or explicit LAC depends on a replay. A Java bookie that then starts on the
directories has nothing to replay. It would lose a journal's tail that has no entry (storage.md
section 17, D2 and D3 at replay).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bookied.directories.emptied_directories import check_losses
from bookied.directories.last_journal_note import ALL_LEDGERS, note_doubt
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
    progress: Callable[[int], None] = lambda _bytes: None,
) -> ReplayReport:
    """Replay the journals into logs, indexes and marks; safe to repeat after a crash.

    Args:
        files: the disk.
        found: the roots, which have cookies.
        storages: the storages of these directories, not open yet; they are closed on return.
        skip_invalid: ``skipReplayJournalInvalidRecord``.
        progress: gets the number of replayed entry bytes now and then.

    Raises:
        CorruptError: a journal is damaged or missing, or a directory was emptied. After this and
            any other error the marks are unchanged.
        NoWritableDirError: there was not enough space.
        StorageError, OSError: not everything could be written.
    """
    check_losses(files, found)
    try:
        storages.open()
        replayed = recover(
            files,
            storages,
            found.journal_dirs,
            skip_invalid=skip_invalid,
            skipped=partial(note_doubt, files, found.journals, ALL_LEDGERS),
            progress=progress,
        )
        reached = storages.marks.read(len(found.journals))
    finally:
        storages.abandon()
    if any(mark < end for mark, end in zip(reached, replayed.marks, strict=True)):
        # A bookie would continue read-only with the rest in memory.
        raise NoWritableDirError("no space for all that the journals hold; they keep it")
    # As after a clean stop: a start has nothing to replay.
    clear_dirty(files, found)
    return replayed
