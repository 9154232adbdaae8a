"""The metrics of autorecovery under Java's names and types (4.18.0)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bookied.admin.monitoring.prometheus_text import Family, declared, gauge
from bookied.stats.metrics import RepairStats

BESIDE_BOOKIE: Final = "replication_"
"""The prefix of names if autorecovery runs in a bookie; alone, Java has no such prefix."""


def families(stats: RepairStats, prefix: str = BESIDE_BOOKIE) -> Iterator[Family]:
    """Yield all metrics of autorecovery."""
    stats.auditor.settle()
    stats.worker.settle()
    yield from declared(stats.auditor, f"{prefix}auditor_")
    yield from declared(stats.worker, f"{prefix}replication_worker_")
    yield gauge("bookied_last_audit_time_seconds", round(stats.auditor.audited_s, 3))
