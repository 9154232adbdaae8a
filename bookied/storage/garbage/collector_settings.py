"""The settings of a collector, from the bookie's settings."""

from __future__ import annotations

import attrs

from bookied.config.bookie import BookieConfig
from bookied.storage.garbage.compaction_rules import Schedule, Schedules


@attrs.frozen(kw_only=True)
class CollectorSettings:
    """The settings of one collector, in seconds and bytes."""

    wait_s: float
    """Seconds between two rounds."""
    schedules: Schedules
    copied_per_s: float
    throttle_by_bytes: bool
    outstanding_max: int
    transactional: bool
    target_bytes: int | None
    """The wanted size of a log, for ``useTargetEntryLogSizeForGc``; None if that is off."""
    collects_when_full: bool
    excess_wait_s: float | None
    """Seconds between two searches for over-replicated ledgers; None for never."""
    free_bytes_min: int
    """Bytes that must stay free on a disk that copies are written to."""
    direct: bool = True

    @classmethod
    def of(cls, config: BookieConfig, *, direct: bool = True) -> CollectorSettings:
        """Return the settings in ``config``; ``direct`` bypasses the page cache for entry logs."""
        by_bytes = config.compaction_by_bytes
        excess_ms = config.over_replicated_wait_ms
        return cls(
            wait_s=config.gc_wait_ms / 1000,
            schedules=_schedules(config),
            copied_per_s=config.compaction_byte_rate if by_bytes else config.compaction_entry_rate,
            throttle_by_bytes=by_bytes,
            outstanding_max=config.compaction_outstanding_max,
            transactional=config.transactional_compaction,
            target_bytes=config.log_bytes_max if config.target_log_size_for_gc else None,
            collects_when_full=config.gc_when_full,
            excess_wait_s=excess_ms / 1000 if excess_ms > 0 else None,
            free_bytes_min=config.entry_log_bytes_min(config.log_bytes_max),
            direct=direct,
        )


def _schedules(config: BookieConfig) -> Schedules:
    return Schedules(
        minor=Schedule(
            threshold=config.minor_threshold,
            interval_s=config.minor_interval_s,
            time_s_max=_seconds(config.minor_time_ms_max),
        ),
        major=Schedule(
            threshold=config.major_threshold,
            interval_s=config.major_interval_s,
            time_s_max=_seconds(config.major_time_ms_max),
        ),
        force_always_allowed=config.compaction_always_allowed,
    )


def _seconds(limit_ms: int) -> float | None:
    return limit_ms / 1000 if limit_ms > 0 else None
