"""Rules of compaction: which entry logs to rewrite, when and in what order. No files.

The thresholds and intervals are settings of ``bookied.config.garbage``.

Agrees with BookKeeper 4.18.0, GarbageCollectorThread (``runWithFlags``, ``doCompactEntryLogs``).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

import attrs

from bookied.storage.entrylog.usage import LogUsage

TENTHS: Final = 10


class CompactionKind(enum.Enum):
    """The two compactions: minor, frequent for nearly empty logs; major, rare and thorough."""

    MINOR = "minor"
    MAJOR = "major"


@attrs.frozen(kw_only=True)
class Schedule:
    """The schedule of one kind of compaction, and its threshold."""

    threshold: float
    """Logs with a smaller share of live bytes are rewritten."""
    interval_s: float
    time_s_max: float | None
    """Seconds after which no further log is begun; None for no limit."""

    @property
    def is_enabled(self) -> bool:
        """True if the compaction runs by itself."""
        return self.interval_s > 0 and self.threshold > 0

    @property
    def may_be_forced(self) -> bool:
        """True if ``forceAllowCompaction`` permits it on request even if it is not enabled."""
        return 0 < self.threshold < 1

    def is_over(self, spent_s: float) -> bool:
        """Return whether the time for one compaction is spent."""
        return self.time_s_max is not None and spent_s >= self.time_s_max


@attrs.frozen(kw_only=True)
class Schedules:
    """Both schedules, and whether an operator may request a disabled compaction."""

    minor: Schedule
    major: Schedule
    force_always_allowed: bool = False

    def of(self, kind: CompactionKind) -> Schedule:
        return self.major if kind is CompactionKind.MAJOR else self.minor


@attrs.frozen
class SuspendedCompactions:
    """The kinds of compaction that must wait: for disk space, or because they are not requested."""

    minor: bool = False
    major: bool = False

    def of(self, kind: CompactionKind) -> bool:
        return self.major if kind is CompactionKind.MAJOR else self.minor

    def __or__(self, other: SuspendedCompactions) -> SuspendedCompactions:
        return SuspendedCompactions(self.minor or other.minor, self.major or other.major)


@attrs.define
class LastRuns:
    """The last end of each kind, in seconds of one clock; at first, the start of the bookie."""

    minor_s: float
    major_s: float

    def of(self, kind: CompactionKind) -> float:
        return self.major_s if kind is CompactionKind.MAJOR else self.minor_s

    def ended(self, kind: CompactionKind, now_s: float) -> None:
        """Note the end of a compaction; a major one counts as minor, too."""
        self.minor_s = now_s
        if kind is CompactionKind.MAJOR:
            self.major_s = now_s


def due(
    schedules: Schedules,
    last: LastRuns,
    now_s: float,
    suspended: SuspendedCompactions,
    *,
    force: bool,
) -> CompactionKind | None:
    """Return the compaction to run now, if any; never both.

    Args:
        schedules: as configured.
        last: the last end of each kind.
        now_s: the time now.
        suspended: the kinds that may not run.
        force: whether an operator requested it: it does not wait for the interval.
    """
    for kind in (CompactionKind.MAJOR, CompactionKind.MINOR):
        schedule = schedules.of(kind)
        is_time = force or now_s - last.of(kind) > schedule.interval_s
        is_allowed = force and schedules.force_always_allowed and schedule.may_be_forced
        if (is_allowed or (schedule.is_enabled and is_time)) and not suspended.of(kind):
            return kind
    return None


def suspended_by_disks(
    *, nearly_full: bool, full: bool, collects_when_full: bool
) -> SuspendedCompactions:
    """Return the compactions that wait while disks are short of space: a rewrite needs space first.

    Agrees with InterleavedLedgerStorage's disk listener. With ``isForceGCAllowWhenNoSpace`` nothing
    waits. Nearly full disks suspend major compaction, full disks both.
    """
    if collects_when_full:
        return SuspendedCompactions()
    return SuspendedCompactions(minor=full, major=full or nearly_full)


def share(usage: LogUsage, target_bytes: int | None) -> float:
    """Return the live share of a log, 0 to 1.

    Args:
        usage: of the log.
        target_bytes: the wanted size of a log with ``useTargetEntryLogSizeForGc``: small logs that
            have lost any entry are then worth joining. None without.
    """
    if not usage.total_bytes:
        return 0.0
    found = usage.live_bytes / usage.total_bytes
    if target_bytes is not None and found < 1:
        return usage.live_bytes / max(usage.total_bytes, target_bytes)
    return found


def tenth(found: float) -> int:
    """Return the tenth to which a share belongs, 0 to 9."""
    return min(TENTHS - 1, int(found * TENTHS))


def worth_rewriting(
    usages: Iterable[LogUsage], threshold: float, target_bytes: int | None
) -> list[LogUsage]:
    """Return the logs below the threshold: the emptiest tenth first, in a tenth by log id."""
    found = [(share(usage, target_bytes), usage) for usage in usages]
    chosen = [(tenth(part), usage.log_id, usage) for part, usage in found if part < threshold]
    return [usage for _, _, usage in sorted(chosen, key=lambda row: row[:2])]


def tenths(usages: Iterable[LogUsage], target_bytes: int | None) -> tuple[int, ...]:
    """Return the number of logs in each tenth."""
    counts = [0] * TENTHS
    for usage in usages:
        counts[tenth(share(usage, target_bytes))] += 1
    return tuple(counts)
