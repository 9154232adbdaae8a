"""The status of a garbage collector, for operators, the admin API and metrics."""

from __future__ import annotations

import attrs

from bookied.stats.metric_declaration import count, level
from bookied.storage.garbage.compaction_rules import TENTHS, CompactionKind


@attrs.define(kw_only=True)
class CollectorStatus:
    """The status of one collector. Times are seconds since the epoch, None for never.

    Counts since start.

    Java's GarbageCollectionStatus and GarbageCollectorStats (4.18.0) have the same values under
    other names.
    """

    is_running: bool = False
    is_forced: bool = False
    """Whether an operator requested the current or last round."""
    compacting: CompactionKind | None = None
    rounds: int = 0
    failed_rounds: int = 0
    last_began_s: float | None = None
    last_ended_s: float | None = None
    next_s: float | None = None
    """The time of the next round; None while a round runs."""
    last_error: str | None = None
    """The error that ended the last round early."""
    minor_compactions: int = count("MINOR_COMPACTION_TOTAL")
    major_compactions: int = count("MAJOR_COMPACTION_TOTAL")
    last_minor_s: float | None = None
    last_major_s: float | None = None
    last_share: float = level("ENTRY_LOG_COMPACT_RATIO")
    """The share of finished logs that the last compaction has rewritten, 0 to 1."""

    ledgers: int = level("ACTIVE_LEDGER_TOTAL")
    ledgers_dropped: int = count("DELETED_LEDGER_TOTAL")
    logs: int = level("ACTIVE_ENTRY_LOG_TOTAL")
    """Finished logs; the fields below are about them."""
    unreadable_logs: int = count("RECLAIM_FAILED_TO_DELETE")
    """Damaged logs, which are kept unchanged."""
    total_bytes: int = level("ENTRY_LOG_SPACE_BYTES")
    live_bytes: int = level("ACTIVE_ENTRY_LOG_SPACE_BYTES")
    tenths: tuple[int, ...] = (0,) * TENTHS
    """The numbers of logs with up to a tenth of live bytes, up to two tenths, and so on."""
    logs_removed: int = 0
    freed_by_removal_bytes: int = count("RECLAIMED_DELETION_SPACE_BYTES")
    freed_by_compaction_bytes: int = count("RECLAIMED_COMPACTION_SPACE_BYTES")
    copied_entries: int = 0
    copied_bytes: int = 0

    def round_ended(self, began_s: float, ended_s: float, error: str | None) -> CollectorStatus:
        """Return the status after a round."""
        return attrs.evolve(
            self,
            is_running=False,
            rounds=self.rounds + 1,
            failed_rounds=self.failed_rounds + (error is not None),
            last_began_s=began_s,
            last_ended_s=ended_s,
            last_error=error,
        )

    def compaction_ended(self, kind: CompactionKind, now_s: float) -> CollectorStatus:
        """Return the status after a compaction, complete or not."""
        if kind is CompactionKind.MAJOR:
            runs = self.major_compactions + 1
            return attrs.evolve(self, compacting=None, major_compactions=runs, last_major_s=now_s)
        runs = self.minor_compactions + 1
        return attrs.evolve(self, compacting=None, minor_compactions=runs, last_minor_s=now_s)
