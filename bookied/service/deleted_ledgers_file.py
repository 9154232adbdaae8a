"""The file of the fenced ledgers that were deleted: read at the start, written as it changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock

from bookied.server.rules.deleted_ledgers import FencedDeletions, read_deletions, write_deletions
from bookied.storage.files.files import Files


class DeletedLedgersFile:
    """Keeps what a bookie remembers over a restart; one write at a time."""

    def __init__(
        self,
        deletions: FencedDeletions,
        files: Files,
        root: Path,
        run_blocking: Callable[[Callable[[], Any]], Deferred[Any]],
    ) -> None:
        """Begin with nothing read.

        Args:
            deletions: what the bookie remembers.
            files: where the file is.
            root: its directory.
            run_blocking: runs what waits for the disk in a thread.
        """
        self._deletions, self._files, self._root = deletions, files, root
        self._run_blocking = run_blocking
        self._keeping = DeferredLock()

    async def restore(self) -> None:
        """Remember what the file has, if there is one."""
        kept = await self._run_blocking(partial(read_deletions, self._files, self._root))
        if kept is not None:
            self._deletions.restore(kept)

    async def keep(self) -> None:
        """Return once all that is remembered is in the file.

        Raises:
            OSError: the file could not be written; the next call tries again.
        """
        deletions = self._deletions
        async with self._keeping:
            if not deletions.has_changes:
                return
            data, deletions.has_changes = deletions.encode(), False
            try:
                await self._run_blocking(partial(write_deletions, self._files, self._root, data))
            except OSError:
                deletions.has_changes = True
                raise
