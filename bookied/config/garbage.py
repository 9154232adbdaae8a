"""The settings of garbage collection: intervals, rates and the thresholds of compaction.

Keys, defaults and limits are Java's (BookKeeper 4.18.0, ServerConfiguration). Numbers keep the
unit that their key has in a file; the properties are bytes and seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from bkclient.config.declaration import setting
from bkclient.config.findings import SettingFinding, invalid


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes.
class CollectorConfig:
    """The settings of garbage collection, compaction and the scrubber."""

    gc_wait_ms: int = setting(
        600_000,
        key="gcWaitTime",
        reloads=True,
        group="Garbage collection",
        minimum=1,
        doc="Pause between garbage collections. The first one starts up to twice this time after "
        "the bookie.",
    )
    minor_interval_s: int = setting(
        3600,
        key="minorCompactionInterval",
        reloads=True,
        doc="Pause between minor compactions; 0 or less switches minor compaction off.",
    )
    minor_threshold: float = setting(
        0.2,
        key="minorCompactionThreshold",
        reloads=True,
        doc="A minor compaction rewrites an entry log whose share of live bytes is below this "
        "value (0 to 1). Must be below majorCompactionThreshold.",
    )
    minor_time_ms_max: int = setting(
        -1,
        key="minorCompactionMaxTimeMillis",
        reloads=True,
        doc="Longest time of a minor compaction; below 0 means no limit.",
    )
    major_interval_s: int = setting(
        86_400,
        key="majorCompactionInterval",
        reloads=True,
        doc="Pause between major compactions; 0 or less switches major compaction off.",
    )
    major_threshold: float = setting(
        0.8,
        key="majorCompactionThreshold",
        reloads=True,
        doc="A major compaction rewrites an entry log whose share of live bytes is below this "
        "value (0 to 1).",
        risky=lambda share: "1 or more rewrites every log again and again" if share >= 1 else None,
    )
    major_time_ms_max: int = setting(
        -1,
        key="majorCompactionMaxTimeMillis",
        reloads=True,
        doc="Longest time of a major compaction; below 0 means no limit.",
    )
    compaction_outstanding_max: int = setting(
        100_000,
        key="compactionMaxOutstandingRequests",
        minimum=1,
        doc="Entries that compaction moves before it forces a flush.",
    )
    compaction_by_bytes: bool = setting(
        False,
        key="isThrottleByBytes",
        reloads=True,
        doc="Limit the speed of compaction by compactionRateByBytes instead of "
        "compactionRateByEntries.",
    )
    compaction_entry_rate: int = setting(
        1000,
        key="compactionRateByEntries",
        reloads=True,
        aliases=("compactionRate",),
        unit="entries/s",
        minimum=1,
        doc="Speed limit of compaction in entries.",
    )
    compaction_byte_rate: int = setting(
        1_000_000,
        key="compactionRateByBytes",
        reloads=True,
        unit="bytes/s",
        minimum=1,
        doc="Speed limit of compaction in bytes, if isThrottleByBytes is true.",
    )
    transactional_compaction: bool = setting(
        False,
        key="useTransactionalCompaction",
        doc="Compact into a separate entry log, which the bookie reads only once it is complete.",
    )
    target_log_size_for_gc: bool = setting(
        False,
        key="useTargetEntryLogSizeForGc",
        reloads=True,
        doc="Compute the share of live bytes of a small entry log from logSizeLimit instead of "
        "its size.",
    )
    gc_when_full: bool = setting(
        False,
        key="isForceGCAllowWhenNoSpace",
        reloads=True,
        doc="Collect garbage and compact on full disks, too.",
    )
    compaction_always_allowed: bool = setting(
        False,
        key="forceAllowCompaction",
        reloads=True,
        doc="Allow compactions on request even if minor or major compaction is off.",
    )
    over_replicated_wait_ms: int = setting(
        86_400_000,
        key="gcOverreplicatedLedgerWaitTime",
        doc="Pause between searches for ledgers that the bookie stores but no longer belongs to.",
    )
    over_replicated_requests_max: int = setting(
        1000,
        key="gcOverreplicatedLedgerMaxConcurrentRequests",
        minimum=1,
        doc="Metadata requests in flight during the search for over-replicated ledgers.",
    )
    gc_metadata_rate: int = setting(
        1000,
        key="gcMetadataOpRateLimit",
        unit="requests/s",
        minimum=1,
        doc="Metadata requests of a garbage collection.",
    )
    scrub_interval_s: int = setting(
        0,
        key="localScrubInterval",
        minimum=0,
        doc="Pause between checks of the index against the entry logs; 0 switches the checks off.",
    )
    scrub_rate: float = setting(
        60,
        key="localScrubRateLimit",
        unit="entries/s",
        minimum=0,
        doc="Speed limit of the checks of localScrubInterval; 0 means no limit.",
    )

    def collector_problems(self) -> Iterator[SettingFinding]:
        """Yield settings with which Java's GarbageCollectorThread refuses to start."""
        minor = ("minorCompaction", self.minor_interval_s, self.minor_threshold)
        major = ("majorCompaction", self.major_interval_s, self.major_threshold)
        enabled = [one for one in (minor, major) if one[1] > 0 and one[2] > 0]
        for name, interval_s, threshold in enabled:
            if interval_s * 1000 < self.gc_wait_ms:
                yield invalid(f"{name}Interval", "is shorter than gcWaitTime")
            if threshold > 1:
                yield invalid(f"{name}Threshold", "is above 1; a share is 0 to 1")
        if len(enabled) == len((minor, major)):
            if self.minor_interval_s >= self.major_interval_s:
                yield invalid("minorCompactionInterval", "is not below majorCompactionInterval")
            if self.minor_threshold >= self.major_threshold:
                yield invalid("minorCompactionThreshold", "is not below majorCompactionThreshold")
