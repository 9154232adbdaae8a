"""The settings and the state that the parts of one garbage collector share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs
from twisted.internet.interfaces import IReactorTime

from bookied.config.bookie import BookieConfig
from bookied.stats.metrics import CollectorStats
from bookied.storage.files.files import Files
from bookied.storage.garbage.compaction_rate import Pace
from bookied.storage.garbage.compaction_rules import Schedule, Schedules
from bookied.storage.garbage.status import CollectorStatus
from bookied.storage.garbage.unneeded_ledgers import LedgerGarbage
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import RunBlocking
from wire.ids import LedgerId


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


class OnLedgerDeleted(Protocol):
    """A callback for deleted ledgers: were they fenced, and do other bookies still have them."""

    def __call__(self, ledger_id: LedgerId, *, was_fenced: bool, lives_on: bool) -> None: ...


@attrs.frozen(kw_only=True)
class CollectorEffects:
    """The callbacks of a collector, besides its storage."""

    garbage: LedgerGarbage
    checkpoint: Callable[[], Awaitable[None]]
    """Runs a complete checkpoint that begins after the call."""
    run_blocking: RunBlocking
    ledger_deleted: OnLedgerDeleted
    """Called on the reactor before a ledger is dropped."""
    keep_deletions: Callable[[], Awaitable[None]]
    """Makes the calls of ``ledger_deleted`` durable, before the ledgers are dropped."""


@attrs.define(eq=False, kw_only=True)
class CollectionRound:
    """One storage's collector: its parts, settings, status and totals. The reactor's thread."""

    files: Files
    storage: LedgerStorage
    clock: IReactorTime
    pace: Pace
    effects: CollectorEffects
    settings: CollectorSettings
    """The present settings: they can change between rounds, and in the middle of a round."""
    stats: CollectorStats = attrs.field(factory=CollectorStats)
    status: CollectorStatus = attrs.field(factory=CollectorStatus)
    """The state and totals of the collector."""

    def note(self, **changes: Any) -> None:
        """Change fields of the status."""
        for name, value in changes.items():
            setattr(self.status, name, value)

    def count(self, **more: int) -> None:
        """Add to counters of the status."""
        self.note(**{name: getattr(self.status, name) + count for name, count in more.items()})
