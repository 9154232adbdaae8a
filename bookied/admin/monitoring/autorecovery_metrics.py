"""Figures of autorecovery under the names and types that Java's has (4.18.0)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bookied.admin.monitoring.prometheus_text import Family, declared, gauge
from bookied.stats.metrics import RepairStats

BESIDE_BOOKIE: Final = "replication_"
"""Before every name where autorecovery runs in a bookie; alone Java gives it no such scope."""


def families(stats: RepairStats, prefix: str = BESIDE_BOOKIE) -> Iterator[Family]:
    """Give all of it."""
    stats.auditor.settle()
    stats.worker.settle()
    yield from declared(stats.auditor, f"{prefix}auditor_")
    yield from declared(stats.worker, f"{prefix}replication_worker_")
    yield gauge("bookied_last_audit_time_seconds", round(stats.auditor.audited_s, 3))
