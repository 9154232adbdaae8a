"""The memory limits of a ledger storage, and its callbacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs

from bookied.errors import DiskWriteFailedError

RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking function in a thread; returns its value or error, as ``deferToThread`` does."""


@attrs.frozen(kw_only=True)
class StorageLimits:
    """The memory of a storage: about the sum of the first three limits, twice the pages.

    Above ``cache_bytes`` the oldest written entries are dropped. Unwritten entries never are: above
    ``unwritten_bytes_max`` the bookie accepts no more adds. Dirty pages above ``dirty_pages_max``
    count as unwritten bytes and request a checkpoint. Clean pages above ``clean_pages_max`` are
    dropped.
    """

    cache_bytes: int = 32 * 1024 * 1024
    unwritten_bytes_max: int = 64 * 1024 * 1024
    dirty_pages_max: int = 4096
    clean_pages_max: int = 1024
    read_pages_bytes_max: int = 16 * 1024 * 1024
    """Index pages for readers only, about 700 to 8,900 bytes each: a small one for each ledger."""

    ledgers_max: int = 20_000
    """Ledgers in memory, about 0.5 KiB each; clean ones above the limit are dropped."""

    checkpoint_bytes: int = 512 * 1024 * 1024
    """Bytes of entries after which a checkpoint is due: limits the replay of a restart."""

    open_logs_max: int = 256
    open_indexes_max: int = 1024
    open_to_write_max: int = 128
    """Index files open at once while a checkpoint writes."""

    def share(self, count: int) -> StorageLimits:
        """Return the limits of each of ``count`` storages that share these limits."""
        whole = attrs.asdict(self)
        return StorageLimits(**{name: max(1, value // count) for name, value in whole.items()})


@attrs.frozen(kw_only=True)
class StorageEvents:
    """The callbacks for events of entry logs and index; called from any thread."""

    on_fatal: Callable[[DiskWriteFailedError], object]
    """Entries can no longer be written: the bookie has to stop."""
    on_full: Callable[[Path], object] = lambda path: None  # noqa: ARG005
    """A directory has no space for data that must be written."""
    on_given_up: Callable[[], object] = lambda: None
    """A log was given up and waits for ``take_back``. Without a log thread, ``flush`` calls it."""
