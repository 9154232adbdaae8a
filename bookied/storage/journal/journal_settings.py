"""How a journal is written, and who is notified."""

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
    """What a journal's files look like, when it syncs, and which of its files it keeps."""

    group_commit: GroupCommit = attrs.field(factory=GroupCommit)
    """When to write; at once unless given."""
    version: int = attrs.field(default=layout.VERSION, validator=_check_version)
    """``journalFormatVersionToWrite``, 4 to 6."""
    alignment: int = attrs.field(default=512, converter=group_format.group_alignment)
    """``journalAlignmentSize`` in bytes; groups are aligned to 4096 as well."""
    size_bytes_max: int = 2048 * 1024 * 1024
    """``journalMaxSizeMB``: the next file begins after a group beyond it."""
    preallocate: int = 0
    """Step of preallocation in bytes; 0 for none."""
    remove_from_page_cache: bool = False
    """``journalRemoveFromPageCache``: past the page cache; see ``is_direct``."""
    sync_data: bool = True
    """``journalSyncData``; without it a record counts as done when written."""
    unsynced_s_max: float = 1.0
    """``journalPageCacheFlushIntervalMSec``: how old unsynced bytes get then."""
    backups_max: int = 5
    """``journalMaxBackups``: old journals that ``remove_old`` keeps."""

    @property
    def in_groups(self) -> bool:
        """Whether the version has padding records, which groups are marked with."""
        return self.version >= layout.PADDING_SINCE

    @property
    def is_direct(self) -> bool:
        """Whether to write past the page cache: only in groups, over space that is there."""
        return self.remove_from_page_cache and self.in_groups and self.preallocate > 0

    @property
    def takes_explicit_lacs(self) -> bool:
        """Whether the version has a record for them; one in an older file stops the next start."""
        return self.version >= layout.SINCE[layout.EXPLICIT_LAC]


@attrs.frozen(kw_only=True)
class JournalEvents:
    """Who is notified by a journal. All but the last are called on the reactor."""

    on_synced: Callable[[list[Any]], object]
    """Gets what was given as ``done`` of each member of a group that is on disk."""
    on_fatal: Callable[[DiskWriteFailedError], object]
    """The journal has failed; the bookie has to stop."""
    on_space: Callable[[DiskWriteFailedError | None], object] = lambda error: None  # noqa: ARG005
    """The disk is full, and nothing is written until there is space; None: it is written again."""
    on_begun: Callable[[int], object] = lambda journal_id: None  # noqa: ARG005
    """Gets the id of each file that was begun, before a record is in it. From any thread; it may
    block."""
