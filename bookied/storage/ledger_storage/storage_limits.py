"""What a ledger storage is made with: limits of memory, and who is notified."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs

from bookied.errors import DiskWriteFailedError

RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking function elsewhere and gives its value or error, as ``deferToThread`` does."""


@attrs.frozen(kw_only=True)
class StorageLimits:
    """How much memory the storage takes: about the sum of the first three, twice the pages.

    Beyond ``cache_bytes`` the oldest written entries leave memory. Unwritten ones never do: the
    bookie accepts no more adds above ``unwritten_bytes_max``. Dirty pages above ``dirty_pages_max``
    count as unwritten bytes and ask for a checkpoint; clean ones above ``clean_pages_max`` leave.
    """

    cache_bytes: int = 32 * 1024 * 1024
    unwritten_bytes_max: int = 64 * 1024 * 1024
    dirty_pages_max: int = 4096
    clean_pages_max: int = 1024
    read_pages_bytes_max: int = 16 * 1024 * 1024
    """Index pages kept for readers alone, some 700 to 8,900 bytes each: a small one a ledger."""

    ledgers_max: int = 20_000
    """Ledgers in memory; clean ones beyond are forgotten, at some 0.5 KiB each."""

    checkpoint_bytes: int = 512 * 1024 * 1024
    """Ask for a checkpoint after so many bytes of entries: bounds what a restart replays."""

    open_logs_max: int = 256
    open_indexes_max: int = 1024
    open_to_write_max: int = 128
    """Index files open at once while a checkpoint writes."""

    def share(self, count: int) -> StorageLimits:
        """Return the limits of each of ``count`` storages that have these together."""
        whole = attrs.asdict(self)
        return StorageLimits(**{name: max(1, value // count) for name, value in whole.items()})


@attrs.frozen(kw_only=True)
class StorageEvents:
    """Who is notified of what happens to entry logs and index; all are called from any thread."""

    on_fatal: Callable[[DiskWriteFailedError], object]
    """Entries can no longer be written, the bookie has to stop."""
    on_full: Callable[[Path], object] = lambda path: None  # noqa: ARG005
    """This directory has no space, and yet something has to be written there."""
    on_given_up: Callable[[], object] = lambda: None
    """``take_back`` is waited for. Without a thread of the entry log's, ``flush`` does it."""
