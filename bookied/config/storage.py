"""What a bookie's storage can be told: journal, entry logs, index, disks, garbage collection.

Keys, defaults and limits are Java's (BookKeeper 4.18.0, ServerConfiguration). Numbers keep the
unit their key has in a file; the properties give bytes and seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

import attrs

from bkclient.config.findings import Severity, invalid
from bkclient.config.settings import FindingKind, SettingFinding, setting

_MB: Final = 1024 * 1024
_LOG_BYTES_MAX: Final = 1024 * _MB
_INT32_MAX: Final = 2**31 - 1
_ONE_LOG: Final = "all ledgers share one entry log"


class StorageClass(enum.Enum):
    """How entries are stored; the value is the simple name of Java's class."""

    INTERLEAVED = "InterleavedLedgerStorage"
    SORTED = "SortedLedgerStorage"
    DB = "DbLedgerStorage"


def _storage_class(text: str) -> StorageClass:
    try:
        return StorageClass(text.rsplit(".", 1)[-1])
    except ValueError:
        raise ValueError("is no ledger storage we know") from None


def _in_tmp(key: str, directories: tuple[str, ...]) -> Iterator[SettingFinding]:
    for directory in directories:
        if f"{directory}/".startswith("/tmp/"):  # noqa: S108  # what we warn of
            message = f"{directory} may be emptied by the system; data there is not safe"
            yield SettingFinding(Severity.WARNING, FindingKind.RISKY, message, key)


@attrs.frozen(kw_only=True, slots=False)  # One of several bases.
class JournalConfig:
    """The journal: where, how large, and when a group of adds is worth an fsync."""

    _journal_directories: tuple[str, ...] = setting(
        (),
        key="journalDirectories",
        group="Journal",
        doc="Journal directories, each with its own thread; wins over journalDirectory.",
    )
    journal_directory: str = setting(
        "/tmp/bk-txn",  # noqa: S108  # Java's default, warned about
        key="journalDirectory",
        doc="The journal directory where journalDirectories is not set.",
    )
    journal_max_size_mb: int = setting(
        2048, key="journalMaxSizeMB", unit="MiB", minimum=1, doc="Size at which a journal rolls."
    )
    journal_backups_max: int = setting(
        5, key="journalMaxBackups", minimum=0, doc="Old journals kept behind the mark."
    )
    journal_prealloc_mb: int = setting(
        16, key="journalPreAllocSizeMB", unit="MiB", minimum=1, doc="Preallocation step."
    )
    journal_write_buffer_kb: int = setting(
        64,
        key="journalWriteBufferSizeKB",
        unit="KiB",
        minimum=1,
        doc="Write buffer.",
        without_effect="a group is written with one call",
    )
    journal_remove_from_page_cache: bool = setting(
        True,
        key="journalRemoveFromPageCache",
        doc="Keep journals out of the page cache: by direct writes over space that is zeroed "
        "ahead, or where the file system takes none by dropping pages after a sync.",
    )
    journal_adaptive_groups: bool = setting(
        True,
        key="journalAdaptiveGroupWrites",
        doc="Let adds share an fsync.",
        without_effect="what arrives in one fsync shares the next",
    )
    journal_group_wait_ms: int | None = setting(
        None,
        key="journalMaxGroupWaitMSec",
        unit="ms",
        minimum=0,
        doc="Longest wait to share an fsync. Not set: none, and what arrives in one fsync shares "
        "the next.",
    )
    journal_group_bytes_max: int = setting(
        524_288,
        key="journalBufferedWritesThreshold",
        unit="bytes",
        minimum=0,
        doc="Bytes that end a group.",
    )
    journal_group_entries_max: int = setting(
        0, key="journalBufferedEntriesThreshold", minimum=0, doc="Adds that end a group; 0 is off."
    )
    journal_flush_when_empty: bool = setting(
        False, key="journalFlushWhenQueueEmpty", doc="Sync as soon as nothing more is queued."
    )
    journal_sync: bool = setting(
        True,
        key="journalSyncData",
        doc="Sync before adds are acknowledged.",
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
        doc="Format of new journals, at least the one that knows fences; 6 and file info format 1 "
        "go together, and below them explicit LACs do not outlive the process.",
    )
    file_info_format_version: int = setting(
        1,
        key="fileInfoFormatVersionToWrite",
        minimum=0,
        maximum=1,
        doc="Format of new index headers.",
    )
    journal_alignment_bytes: int = setting(
        512,
        key="journalAlignmentSize",
        unit="bytes",
        minimum=512,
        doc="Groups are padded to a multiple of it, and of 4096.",
    )
    journal_queue_max: int = setting(
        10_000,
        key="journalQueueSize",
        minimum=1,
        doc="Adds queued for the journal.",
        without_effect="the queue is bounded by bytes",
    )
    journal_memory_mb_max: int | None = setting(
        None,
        key="journalMaxMemorySizeMb",
        unit="MiB",
        minimum=1,
        doc="Bytes queued for the journal.",
        default_text="32",
    )
    journal_page_cache_flush_ms: int = setting(
        1000,
        key="journalPageCacheFlushIntervalMSec",
        unit="ms",
        minimum=1,
        doc="How old unsynced bytes get where journalSyncData is false.",
    )
    journal_reuse_files: bool = setting(
        False,
        key="journalReuseFiles",
        doc="Write new journals over old ones.",
        without_effect="behind a torn write a Java bookie would replay what an old file held; "
        "space is zeroed ahead instead",
    )
    skip_invalid_records: bool = setting(
        False,
        key="skipReplayJournalInvalidRecord",
        doc="Skip broken records at replay.",
        risky=lambda on: "entries in broken journal records are lost in silence" if on else None,
    )

    @property
    def journal_directories(self) -> tuple[str, ...]:
        """The journal directories, as configured and in order."""
        return self._journal_directories or (self.journal_directory,)

    @property
    def journal_bytes_max(self) -> int:
        """Size at which a journal rolls."""
        return self.journal_max_size_mb * _MB

    @property
    def journal_prealloc_bytes(self) -> int:
        """How much a journal is preallocated at a time."""
        return self.journal_prealloc_mb * _MB

    @property
    def journal_queue_bytes_max(self) -> int:
        """Bytes that may be received and not yet synced."""
        return (self.journal_memory_mb_max or 32) * _MB

    def journal_problems(self) -> Iterator[SettingFinding]:
        """Give what Java's validate() refuses about the journal, and unsafe directories."""
        key = "journalDirectories" if self._journal_directories else "journalDirectory"
        yield from _in_tmp(key, self.journal_directories)
        if self.journal_alignment_bytes % 512:
            yield invalid("journalAlignmentSize", "must be a multiple of 512")
        if self.journal_alignment_bytes > self.journal_prealloc_bytes:
            yield invalid("journalAlignmentSize", "is larger than journalPreAllocSizeMB")
        if (self.journal_format_version >= 6) != (self.file_info_format_version >= 1):  # noqa: PLR2004  # the version that keeps the explicit LAC
            yield invalid(
                "journalFormatVersionToWrite",
                "6 goes with fileInfoFormatVersionToWrite 1, and 5 or less with 0",
            )


@attrs.frozen(kw_only=True, slots=False)  # One of several bases.
class LedgerConfig:
    """Entry logs and index: where, how large, how buffered."""

    ledger_directories: tuple[str, ...] = setting(
        ("/tmp/bk-data",),  # noqa: S108  # Java's default, warned about
        key="ledgerDirectories",
        group="Ledger storage",
        doc="Directories of entry logs, and of the index where indexDirectories is not set.",
        refuse=lambda dirs: None if dirs else "leaves the bookie no directory to store entries in",
    )
    _index_directories: tuple[str, ...] = setting(
        (),
        key="indexDirectories",
        doc="Directories of the index.",
        default_text="",
    )
    _storage_class: StorageClass = setting(
        StorageClass.SORTED,
        key="ledgerStorageClass",
        doc="Layout of the ledger directories, by Java's class name.",
        parse=_storage_class,
    )
    sorted_storage: bool = setting(
        True,
        key="sortedLedgerStorageEnabled",
        doc="false: InterleavedLedgerStorage, where ledgerStorageClass is not set.",
    )
    flush_interval_ms: int = setting(
        10_000, key="flushInterval", unit="ms", minimum=1, doc="Pause between checkpoints."
    )
    write_cache_bytes_max: int = setting(
        67_108_864,
        key="skipListSizeLimit",
        unit="bytes",
        minimum=_MB,
        doc="Entries kept in memory before they are flushed.",
    )
    log_bytes_max: int = setting(
        _LOG_BYTES_MAX,
        key="logSizeLimit",
        unit="bytes",
        minimum=2048,
        maximum=_LOG_BYTES_MAX,
        doc="Size at which an entry log rolls.",
    )
    log_preallocation: bool = setting(
        True,
        key="entryLogFilePreallocationEnabled",
        doc="Create the next entry log ahead.",
        without_effect="entry logs begin when they are needed",
    )
    log_flush_bytes: int = setting(
        0,
        key="flushEntrylogBytes",
        unit="bytes",
        minimum=0,
        doc="Sync the entry log after so many bytes; 0 leaves it to the checkpoints.",
        without_effect="entry logs are synced every 32 MiB",
    )
    read_buffer_bytes: int = setting(
        512,
        key="readBufferSizeBytes",
        unit="bytes",
        minimum=1,
        doc="Read buffer of entry logs.",
        without_effect="entries are read 4 KiB at a time",
    )
    write_buffer_bytes: int = setting(
        65_536,
        key="writeBufferSizeBytes",
        unit="bytes",
        minimum=1,
        doc="Their write buffer.",
        without_effect="entry logs are written 1 MiB at a time",
    )
    open_files_max: int = setting(
        20_000,
        key="openFileLimit",
        minimum=0,
        doc="Index files open at a time; 0, as in Pulsar's file, is the default.",
    )
    index_page_bytes: int = setting(
        8192,
        key="pageSize",
        unit="bytes",
        minimum=8,
        doc="Size of an index page.",
        without_effect="index pages are 8192 bytes",
    )
    index_pages_max: int = setting(
        -1, key="pageLimit", minimum=-1, doc="Index pages in memory; -1 is a fixed budget."
    )
    file_info_capacity: int | None = setting(
        None,
        key="fileInfoCacheInitialCapacity",
        doc="Initial size of a Java cache.",
        default_text="",
        without_effect="belongs to Java's memory",
    )
    file_info_idle_s: int = setting(
        0,
        key="fileInfoMaxIdleTime",
        unit="s",
        minimum=0,
        doc="Close index files idle for so long; 0 is never.",
        without_effect="the least used index files are closed",
    )
    log_per_ledger: bool = setting(
        False,
        key="entryLogPerLedgerEnabled",
        doc="One entry log for each ledger.",
        refuse=lambda on: f"is not offered: {_ONE_LOG}" if on else None,
    )
    check_integrity: bool = setting(
        False,
        key="dataIntegrityChecking",
        doc="Fetch entries that are missing here from other bookies (DbLedgerStorage only).",
    )
    stamp_missing_cookies: bool = setting(
        False,
        key="dataIntegrityStampMissingCookies",
        doc="With dataIntegrityChecking: start where cookies are missing or differ, as after the "
        "loss of a disk, heal, and write new ones.",
    )
    consistency_check_at_start: bool = setting(
        False,
        key="localConsistencyCheckOnStartup",
        doc="Check the index against the entry logs at start, and refuse to start if it fails.",
    )

    @property
    def storage_class(self) -> StorageClass:
        """The layout in effect."""
        if self._storage_class is StorageClass.SORTED and not self.sorted_storage:
            return StorageClass.INTERLEAVED
        return self._storage_class

    @property
    def named_index_directories(self) -> tuple[str, ...] | None:
        """The index directories, ``None`` where they are not configured."""
        return self._index_directories or None

    @property
    def index_directories(self) -> tuple[str, ...]:
        """The index directories: the ledger directories where none are configured."""
        return self._index_directories or self.ledger_directories

    def ledger_problems(self) -> Iterator[SettingFinding]:
        """Give what cannot work about entry logs and index, and unsafe directories."""
        yield from _in_tmp("ledgerDirectories", self.ledger_directories)
        yield from _in_tmp("indexDirectories", self._index_directories)
        if self.index_page_bytes % 8:
            yield invalid("pageSize", "must be a multiple of 8")
        ledgers, indexes = len(self.ledger_directories), len(self.index_directories)
        if self.storage_class is StorageClass.DB and ledgers != indexes:
            yield invalid(
                "indexDirectories",
                f"are {indexes} for {ledgers} ledgerDirectories, and DbLedgerStorage has one for "
                "each: name as many, in the same order, or none",
            )
        if self.check_integrity and self.storage_class is not StorageClass.DB:
            yield invalid(
                "dataIntegrityChecking",
                "needs ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage:"
                " only that can note what may be missing",
            )
        if self.stamp_missing_cookies and not self.check_integrity:
            yield invalid(
                "dataIntegrityStampMissingCookies",
                "needs dataIntegrityChecking=true, or lost entries would pass for ones never added",
            )


@attrs.frozen(kw_only=True, slots=False)  # One of several bases.
class DiskConfig:
    """When a disk counts as full, and what happens then."""

    disk_check_interval_ms: int = setting(
        10_000,
        key="diskCheckInterval",
        unit="ms",
        group="Disks",
        minimum=1,
        doc="Pause between disk checks.",
    )
    disk_full_at: float = setting(
        0.95,
        key="diskUsageThreshold",
        reloads=True,
        minimum=0.001,
        maximum=1,
        doc="Share in use above which a disk is full.",
    )
    disk_warn_at: float = setting(
        0.90,
        key="diskUsageWarnThreshold",
        reloads=True,
        minimum=0.001,
        maximum=1,
        doc="Share in use above which a disk is almost full.",
    )
    _disk_writable_below: float | None = setting(
        None,
        key="diskUsageLwmThreshold",
        reloads=True,
        minimum=0.001,
        maximum=1,
        doc="Share in use below which a read-only bookie becomes writable again.",
        default_text="diskUsageThreshold",
    )
    read_only_mode: bool = setting(
        True, key="readOnlyModeEnabled", doc="Go read-only when disks are full, rather than stop."
    )
    read_only_on_any_full: bool = setting(
        True,
        key="readOnlyModeOnAnyDiskFullEnabled",
        reloads=True,
        doc="One full disk is enough for that.",
    )
    persist_status: bool = setting(
        False, key="persistBookieStatusEnabled", doc="Remember read-only over restarts."
    )
    index_file_bytes_min: int = setting(
        100 * _MB,
        key="minUsableSizeForIndexFileCreation",
        unit="bytes",
        minimum=0,
        doc="Space needed for new index files on a full disk: without it no recovery adds are "
        "taken. What is acknowledged is written to any directory with space.",
    )
    _entry_log_bytes_min: int | None = setting(
        None,
        key="minUsableSizeForEntryLogCreation",
        unit="bytes",
        minimum=0,
        doc="Space needed for a new entry log on a full disk.",
        default_text="logSizeLimit",
    )
    _high_priority_bytes_min: int | None = setting(
        None,
        key="minUsableSizeForHighPriorityWrites",
        reloads=True,
        unit="bytes",
        minimum=0,
        doc="Space needed for recovery adds while read-only.",
        default_text="minUsableSizeForEntryLogCreation",
    )
    several_dirs_per_disk: bool = setting(
        True,
        key="allowMultipleDirsUnderSameDiskPartition",
        doc="Allow two directories of a kind on one disk partition.",
    )

    @property
    def disk_writable_below(self) -> float:
        """Share in use below which a read-only bookie becomes writable again."""
        low = self._disk_writable_below
        return self.disk_full_at if low is None else low

    def entry_log_bytes_min(self, log_bytes_max: int) -> int:
        """Space needed for a new entry log on a full disk."""
        least = self._entry_log_bytes_min
        return log_bytes_max if least is None else least

    def disk_problems(self) -> Iterator[SettingFinding]:
        """Give thresholds that contradict each other."""
        if self.disk_writable_below > self.disk_full_at:
            yield invalid("diskUsageLwmThreshold", "is above diskUsageThreshold")
        if self.disk_warn_at > self.disk_full_at:
            yield invalid("diskUsageWarnThreshold", "is above diskUsageThreshold")


@attrs.frozen(kw_only=True, slots=False)  # One of several bases.
class CollectorConfig:
    """Garbage collection, compaction and the scrubber."""

    gc_wait_ms: int = setting(
        600_000,
        key="gcWaitTime",
        reloads=True,
        unit="ms",
        group="Garbage collection",
        minimum=1,
        doc="Pause between collections.",
    )
    minor_interval_s: int = setting(
        3600,
        key="minorCompactionInterval",
        reloads=True,
        unit="s",
        doc="Pause between minor compactions; not above 0 is off.",
    )
    minor_threshold: float = setting(
        0.2,
        key="minorCompactionThreshold",
        reloads=True,
        doc="Share of live bytes below which a minor compaction rewrites a log.",
    )
    minor_time_ms_max: int = setting(
        -1,
        key="minorCompactionMaxTimeMillis",
        reloads=True,
        unit="ms",
        doc="Longest minor compaction; below 0 is no limit.",
    )
    major_interval_s: int = setting(
        86_400,
        key="majorCompactionInterval",
        reloads=True,
        unit="s",
        doc="Pause between major compactions; not above 0 is off.",
    )
    major_threshold: float = setting(
        0.8,
        key="majorCompactionThreshold",
        reloads=True,
        doc="Share of live bytes below which a major compaction rewrites a log.",
        risky=lambda share: "1 or more rewrites every log again and again" if share >= 1 else None,
    )
    major_time_ms_max: int = setting(
        -1,
        key="majorCompactionMaxTimeMillis",
        reloads=True,
        unit="ms",
        doc="Longest major compaction; below 0 is no limit.",
    )
    compaction_outstanding_max: int = setting(
        100_000,
        key="compactionMaxOutstandingRequests",
        minimum=1,
        doc="Entries moved before a flush is forced.",
    )
    compaction_by_bytes: bool = setting(
        False,
        key="isThrottleByBytes",
        reloads=True,
        doc="Limit compaction by bytes rather than entries.",
    )
    compaction_entry_rate: int = setting(
        1000,
        key="compactionRateByEntries",
        reloads=True,
        aliases=("compactionRate",),
        unit="entries/s",
        minimum=1,
        doc="Speed of compaction.",
    )
    compaction_byte_rate: int = setting(
        1_000_000,
        key="compactionRateByBytes",
        reloads=True,
        unit="bytes/s",
        minimum=1,
        doc="Speed of compaction, by bytes.",
    )
    transactional_compaction: bool = setting(
        False,
        key="useTransactionalCompaction",
        doc="Compact into a file of its own.",
    )
    target_log_size_for_gc: bool = setting(
        False,
        key="useTargetEntryLogSizeForGc",
        reloads=True,
        doc="Take logSizeLimit for the size of a log.",
    )
    gc_when_full: bool = setting(
        False,
        key="isForceGCAllowWhenNoSpace",
        reloads=True,
        doc="Collect on full disks.",
    )
    compaction_always_allowed: bool = setting(
        False,
        key="forceAllowCompaction",
        reloads=True,
        doc="Allow forced compaction where it is off.",
    )
    verify_metadata_on_gc: bool = setting(
        False,
        key="verifyMetadataOnGC",
        doc="Read a ledger's metadata before its entries go.",
    )
    over_replicated_wait_ms: int = setting(
        86_400_000,
        key="gcOverreplicatedLedgerWaitTime",
        unit="ms",
        doc="Pause between searches for ledgers kept in excess.",
    )
    over_replicated_requests_max: int = setting(
        1000,
        key="gcOverreplicatedLedgerMaxConcurrentRequests",
        minimum=1,
        doc="Metadata requests at a time in that search.",
    )
    gc_metadata_rate: int = setting(
        1000,
        key="gcMetadataOpRateLimit",
        unit="requests/s",
        minimum=1,
        doc="Speed of metadata requests in a collection.",
    )
    scrub_interval_s: int = setting(
        0,
        key="localScrubInterval",
        unit="s",
        minimum=0,
        doc="Pause between checks of the index against the entry logs; 0 is off.",
    )
    scrub_rate: float = setting(
        60,
        key="localScrubRateLimit",
        unit="entries/s",
        minimum=0,
        doc="Speed of these checks; 0 is no limit.",
    )

    def collector_problems(self) -> Iterator[SettingFinding]:
        """Give what Java's GarbageCollectorThread refuses to start with."""
        minor = ("minorCompaction", self.minor_interval_s, self.minor_threshold)
        major = ("majorCompaction", self.major_interval_s, self.major_threshold)
        enabled = [one for one in (minor, major) if one[1] > 0 and one[2] > 0]
        for name, interval_s, threshold in enabled:
            if interval_s * 1000 < self.gc_wait_ms:
                yield invalid(f"{name}Interval", "is shorter than gcWaitTime")
            if threshold > 1:
                yield invalid(f"{name}Threshold", "is above 1, and no log is that full")
        if len(enabled) == len((minor, major)):
            if self.minor_interval_s >= self.major_interval_s:
                yield invalid("minorCompactionInterval", "is not below majorCompactionInterval")
            if self.minor_threshold >= self.major_threshold:
                yield invalid("minorCompactionThreshold", "is not below majorCompactionThreshold")
