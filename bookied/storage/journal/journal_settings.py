"""Settings of a journal, and its callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from bookied.errors import DiskWriteFailedError
from bookied.storage.journal import format as layout
from bookied.storage.journal import group_format
from bookied.storage.journal.group_commit import GroupCommit


def _check_version(_settings: object, _field: object, version: int) -> None:
    assert layout.SINCE[layout.FENCE] <= version <= layout.VERSION_MAX, version


@attrs.frozen(kw_only=True)
class JournalSettings:
    """The settings of a journal: the format of its files, its syncs, and its old files."""

    group_commit: GroupCommit = attrs.field(factory=GroupCommit)
    """The rule for when to write; at once by default."""
    version: int = attrs.field(default=layout.VERSION, validator=_check_version)
    """``journalFormatVersionToWrite``, 4 to 6."""
    alignment: int = attrs.field(default=512, converter=group_format.group_alignment)
    """``journalAlignmentSize`` in bytes; groups are aligned to 4096 as well."""
    size_bytes_max: int = 2048 * 1024 * 1024
    """``journalMaxSizeMB`` in bytes: the next file begins after the group that exceeds it."""
    preallocate: int = 0
    """Step of preallocation in bytes; 0 for none."""
    remove_from_page_cache: bool = False
    """``journalRemoveFromPageCache``: bypass the page cache; see ``is_direct``."""
    sync_data: bool = True
    """``journalSyncData``; if False a record is reported once it is written."""
    unsynced_s_max: float = 1.0
    """``journalPageCacheFlushIntervalMSec``: the greatest age of unsynced bytes in that case."""
    backups_max: int = 5
    """``journalMaxBackups``: old journals that ``remove_old`` keeps."""

    @property
    def in_groups(self) -> bool:
        """True if the version has padding records, which mark groups."""
        return self.version >= layout.PADDING_SINCE

    @property
    def is_direct(self) -> bool:
        """True if writes bypass the page cache: only with groups, in preallocated space."""
        return self.remove_from_page_cache and self.in_groups and self.preallocate > 0

    @property
    def takes_explicit_lacs(self) -> bool:
        """True if the version has records of explicit LACs; in an older file they stop a start."""
        return self.version >= layout.SINCE[layout.EXPLICIT_LAC]


@attrs.frozen(kw_only=True)
class JournalEvents:
    """The callbacks of a journal. All but the last are called on the reactor."""

    on_synced: Callable[[list[Any]], object]
    """Called with the ``done`` of each member of a group that is on disk."""
    on_fatal: Callable[[DiskWriteFailedError], object]
    """Called when the journal has failed: the bookie has to stop."""
    on_space: Callable[[DiskWriteFailedError | None], object] = lambda error: None  # noqa: ARG005
    """Called with the error when writes wait for disk space; with None when they succeed again."""
    on_begun: Callable[[int], object] = lambda journal_id: None  # noqa: ARG005
    """Called with the id of each new file, before the file has a record. From any thread.

    May block.
    """
