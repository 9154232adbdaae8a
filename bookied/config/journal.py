"""The settings of a bookie's journal: directories, sizes, and the time of syncs.

Keys, defaults and limits are Java's (BookKeeper 4.18.0, ServerConfiguration). Numbers keep the
unit that their key has in a file; the properties are bytes and seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from bkclient.config.declaration import setting
from bkclient.config.findings import SettingFinding, invalid, risky

_MB: Final = 1024 * 1024


def may_be_emptied(key: str, directories: tuple[str, ...]) -> Iterator[SettingFinding]:
    """Yield a warning for each directory in /tmp."""
    for directory in directories:
        if f"{directory}/".startswith("/tmp/"):  # noqa: S108  # what we warn of
            message = f"{directory} may be emptied by the system; data there can be lost"
            yield risky(key, message)


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class JournalConfig:
    """The journal's directories and sizes, and the limits of a group of adds between two syncs."""

    _journal_directories: tuple[str, ...] = setting(
        (),
        key="journalDirectories",
        group="Journal",
        doc="Journal directories, each with its own thread; overrides journalDirectory.",
    )
    journal_directory: str = setting(
        "/tmp/bk-txn",  # noqa: S108  # Java's default, warned about
        key="journalDirectory",
        doc="The journal directory, if journalDirectories is not set.",
    )
    journal_max_size_mb: int = setting(
        2048,
        key="journalMaxSizeMB",
        unit="MiB",
        minimum=1,
        doc="Size at which the bookie starts a new journal file.",
    )
    journal_backups_max: int = setting(
        5,
        key="journalMaxBackups",
        minimum=0,
        doc="Journal files to keep although a checkpoint no longer needs them.",
    )
    journal_prealloc_mb: int = setting(
        16,
        key="journalPreAllocSizeMB",
        unit="MiB",
        minimum=1,
        doc="Space that is allocated at a time for a journal file.",
    )
    journal_remove_from_page_cache: bool = setting(
        True,
        key="journalRemoveFromPageCache",
        doc="Keep journals out of the page cache: by direct writes to preallocated space, or by "
        "dropping pages after a sync.",
    )
    journal_group_wait_ms: int | None = setting(
        None,
        key="journalMaxGroupWaitMSec",
        minimum=0,
        doc="Longest time that an add waits for others to share an fsync. Without a value, or with "
        "0, no add waits: those that arrive during one fsync share the next.",
    )
    journal_group_bytes_max: int = setting(
        524_288,
        key="journalBufferedWritesThreshold",
        minimum=0,
        doc="Bytes in a group of adds that start the fsync.",
    )
    journal_group_entries_max: int = setting(
        0,
        key="journalBufferedEntriesThreshold",
        minimum=0,
        doc="Number of adds in a group that start the fsync; 0 means no limit.",
    )
    journal_flush_when_empty: bool = setting(
        False,
        key="journalFlushWhenQueueEmpty",
        doc="Start the fsync as soon as the queue is empty.",
    )
    journal_sync: bool = setting(
        True,
        key="journalSyncData",
        doc="Fsync the journal before adds are acknowledged.",
        risky=lambda on: None if on else "acknowledged entries are lost when the machine fails",
    )
    journal_write: bool = setting(
        True,
        key="journalWriteData",
        doc="Write adds to the journal.",
        refuse=lambda on: None if on else "would lose acknowledged entries in any crash",
    )
    journal_format_version: int = setting(
        6,
        key="journalFormatVersionToWrite",
        minimum=4,
        maximum=6,
        doc="Format of new journal files. 6 needs fileInfoFormatVersionToWrite=1. With a lower "
        "format, explicit LACs are lost when the process ends.",
    )
    file_info_format_version: int = setting(
        1,
        key="fileInfoFormatVersionToWrite",
        minimum=0,
        maximum=1,
        doc="Format of the headers of new index files.",
    )
    journal_alignment_bytes: int = setting(
        512,
        key="journalAlignmentSize",
        minimum=512,
        doc="Pad each group of adds to a multiple of this value, and of 4096.",
    )
    journal_memory_mb_max: int | None = setting(
        None,
        key="journalMaxMemorySizeMb",
        unit="MiB",
        minimum=1,
        doc="Memory for adds in the journal's queue.",
        default_text="32",
    )
    journal_page_cache_flush_ms: int = setting(
        1000,
        key="journalPageCacheFlushIntervalMSec",
        minimum=1,
        doc="Longest time that bytes stay without an fsync if journalSyncData is false.",
    )
    skip_invalid_records: bool = setting(
        False,
        key="skipReplayJournalInvalidRecord",
        doc="Skip damaged records when the journal is replayed.",
        risky=lambda on: "entries in broken journal records are lost in silence" if on else None,
    )

    @property
    def journal_directories(self) -> tuple[str, ...]:
        """The journal directories, as configured and in order."""
        return self._journal_directories or (self.journal_directory,)

    @property
    def journal_bytes_max(self) -> int:
        """The size at which a new journal begins."""
        return self.journal_max_size_mb * _MB

    @property
    def journal_prealloc_bytes(self) -> int:
        """The bytes by which a journal is preallocated."""
        return self.journal_prealloc_mb * _MB

    @property
    def journal_queue_bytes_max(self) -> int:
        """The bytes that may be received and not yet synced."""
        return (self.journal_memory_mb_max or 32) * _MB

    def journal_problems(self) -> Iterator[SettingFinding]:
        """Yield settings of the journal that Java's validate() refuses, and unsafe directories."""
        key = "journalDirectories" if self._journal_directories else "journalDirectory"
        yield from may_be_emptied(key, self.journal_directories)
        if self.journal_alignment_bytes % 512:
            yield invalid("journalAlignmentSize", "must be a multiple of 512")
        if self.journal_alignment_bytes > self.journal_prealloc_bytes:
            yield invalid("journalAlignmentSize", "is larger than journalPreAllocSizeMB")
        if (self.journal_format_version >= 6) != (self.file_info_format_version >= 1):  # noqa: PLR2004  # the version that keeps the explicit LAC
            yield invalid(
                "journalFormatVersionToWrite",
                "6 goes with fileInfoFormatVersionToWrite 1, and 5 or less with 0",
            )
