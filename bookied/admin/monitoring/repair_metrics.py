"""Figures of autorecovery under the names and types that Java's has (4.18.0)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bookied.admin.monitoring.java_metrics import Row, rows
from bookied.admin.monitoring.prometheus_text import Family, gauge
from bookied.stats.counters import RepairStats

BESIDE_BOOKIE: Final = "replication_"
"""Before every name where autorecovery runs in a bookie; alone Java gives it no such scope."""


def families(stats: RepairStats, prefix: str = BESIDE_BOOKIE) -> Iterator[Family]:
    """Give all of it."""
    stats.auditor.settle()
    stats.worker.settle()
    yield from rows(_AUDITOR, f"{prefix}auditor_", stats.auditor)
    yield from rows(_WORKER, f"{prefix}replication_worker_", stats.worker)
    yield gauge("bookied_last_audit_time_seconds", round(stats.auditor.audited_s, 3))


_AUDITOR: Final[tuple[Row, ...]] = (
    ("AUDIT_BOOKIES_TIME", "summary", lambda it: it.audit),
    ("BOOKIE_TO_LEDGERS_MAP_CREATION_TIME", "summary", lambda it: it.walk),
    ("URL_PUBLISH_TIME_FOR_LOST_BOOKIE", "summary", lambda it: it.publish),
    ("CHECK_ALL_LEDGERS_TIME", "summary", lambda it: it.check_ledgers),
    ("PLACEMENT_POLICY_CHECK_TIME", "summary", lambda it: it.check_placement),
    ("REPLICAS_CHECK_TIME", "summary", lambda it: it.check_replicas),
    ("NUM_UNDER_REPLICATED_LEDGERS", "summary", lambda it: it.marked),
    ("UNDER_REPLICATED_LEDGERS_TOTAL_SIZE", "summary", lambda it: it.marked_bytes),
    ("NUM_FRAGMENTS_PER_LEDGER", "summary", lambda it: it.fragments),
    ("NUM_BOOKIES_PER_LEDGER", "summary", lambda it: it.bookies),
    ("NUM_LEDGERS_CHECKED", "counter", lambda it: it.ledgers_checked),
    ("NUM_BOOKIE_AUDITS_DELAYED", "counter", lambda it: it.audits_delayed),
    ("NUM_DELAYED_BOOKIE_AUDITS_CANCELLED", "counter", lambda it: it.delayed_audits_cancelled),
    ("NUM_SKIPPING_CHECK_TASK_TIMES", "counter", lambda it: it.checks_skipped),
    ("NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY", "gauge", lambda it: it.misplaced),
    ("NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD", "gauge",
     lambda it: it.overdue),
    ("NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY", "gauge", lambda it: it.without_a_replica),
    ("NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY", "gauge",
     lambda it: it.below_ack_quorum),
    ("NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY", "gauge",
     lambda it: it.below_write_quorum),
)  # fmt: skip

_WORKER: Final[tuple[Row, ...]] = (
    ("rereplicate", "summary", lambda it: it.repair),
    ("NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", "counter", lambda it: it.ledgers),
    ("NUM_NOT_ADHERING_PLACEMENT_LEDGERS_REPLICATED", "counter", lambda it: it.respread),
    ("NUM_ENTRIES_READ", "counter", lambda it: it.entries_read),
    ("NUM_BYTES_READ", "summary", lambda it: it.read_bytes),
    ("NUM_ENTRIES_WRITTEN", "counter", lambda it: it.entries_written),
    ("NUM_BYTES_WRITTEN", "summary", lambda it: it.written_bytes),
    ("NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION", "counter", lambda it: it.unreadable),
    ("NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER", "counter", lambda it: it.deferred),
)
