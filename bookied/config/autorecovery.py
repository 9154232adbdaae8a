"""What autorecovery can be told, by Java's keys (BookKeeper 4.18.0, ServerConfiguration).

How much is copied at a time, and how fast, are settings of the client:
``rereplicationEntryBatchSize`` and ``replicationRateByBytes``.
"""

from __future__ import annotations

import attrs

from bkclient.config.declaration import setting


@attrs.frozen(kw_only=True, slots=False)  # One of several bases of a bookie's settings.
class AutoRecoveryConfig:
    """When the auditor looks, and how patient workers are."""

    autorecovery: bool = setting(
        False,
        key="autoRecoveryDaemonEnabled",
        group="Autorecovery",
        doc="Run an auditor and a replication worker beside the bookie.",
    )
    lost_bookie_recovery_delay_s: int = setting(
        0,
        key="lostBookieRecoveryDelay",
        minimum=0,
        doc="Time for a lost bookie to return before its ledgers are marked; the delay in the "
        "metadata wins.",
    )
    bookie_check_interval_s: int = setting(
        86_400,
        key="auditorPeriodicBookieCheckInterval",
        minimum=0,
        doc="How often the auditor looks for lost bookies; 0 is only at its start.",
    )
    ledger_check_interval_s: int = setting(
        604_800,
        key="auditorPeriodicCheckInterval",
        doc="How often the auditor reads from all ledgers; not above 0 is never.",
    )
    placement_check_interval_s: int = setting(
        0,
        key="auditorPeriodicPlacementPolicyCheckInterval",
        doc="How often the auditor checks the placement of closed ledgers; not above 0 is never.",
    )
    replicas_check_interval_s: int = setting(
        0,
        key="auditorReplicasCheckInterval",
        doc="How often the auditor asks bookies for their entries; not above 0 is never.",
    )
    verified_percentage: int = setting(
        0,
        key="auditorLedgerVerificationPercentage",
        unit="%",
        minimum=0,
        maximum=100,
        doc="Share of a fragment's entries that a check reads, beside the first and last entry.",
    )
    ledgers_checked_at_once: int = setting(
        500,
        key="auditorMaxNumberOfConcurrentOpenLedgerOperations",
        minimum=1,
        doc="Ledgers that the check of all ledgers reads at a time.",
    )
    check_reads_max: int = setting(
        -1,
        key="inFlightReadEntryNumInLedgerChecker",
        doc="Reads in flight of the check of one ledger; 0 and below is 64.",
    )
    open_ledger_grace_ms: int = setting(
        30_000,
        key="openLedgerRereplicationGracePeriod",
        minimum=0,
        doc="How long the writer of a ledger has to replace a lost bookie before it is fenced.",
    )
    failed_ledger_grace_ms: int = setting(
        300_000,
        key="lockReleaseOfFailedLedgerGracePeriod",
        minimum=0,
        doc="Longest pause before a failed repair is retried.",
    )
    repair_backoff_ms: int = setting(
        5_000,
        key="rwRereplicateBackoffMs",
        minimum=0,
        doc="Pause of a worker after a failed repair.",
    )
    repairs_per_s: float = setting(
        0,
        key="zkReplicationTaskRateLimit",
        unit="ledgers/s",
        minimum=0,
        doc="Ledgers that a worker takes up; 0 is no limit.",
    )
    overdue_marks_s: int = setting(
        0,
        key="underreplicatedLedgerRecoveryGracePeriod",
        minimum=0,
        doc="Age from which the placement check reports marks; 0 reports none.",
    )
    repair_placement: bool = setting(
        False,
        key="repairedPlacementPolicyNotAdheringBookieEnabled",
        doc="Mark ledgers that violate the placement policy, and move their fragments.",
    )
