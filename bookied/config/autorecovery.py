"""The settings of autorecovery, by Java's keys (BookKeeper 4.18.0, ServerConfiguration).

The size and rate of copies are client settings: ``rereplicationEntryBatchSize`` and
``replicationRateByBytes``.
"""

from __future__ import annotations

import attrs

from bkclient.config.declaration import setting


@attrs.frozen(kw_only=True, slots=False)  # One of several base classes of a bookie's settings.
class AutoRecoveryConfig:
    """The intervals of the auditor, and the pauses of workers."""

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
        doc="Time that a lost bookie has to return before the auditor marks its ledgers "
        "under-replicated. A delay stored in the metadata overrides this setting.",
    )
    bookie_check_interval_s: int = setting(
        86_400,
        key="auditorPeriodicBookieCheckInterval",
        minimum=0,
        doc="Interval between the auditor's checks for lost bookies; 0 checks only when the "
        "auditor starts.",
    )
    ledger_check_interval_s: int = setting(
        604_800,
        key="auditorPeriodicCheckInterval",
        doc="Interval between the auditor's checks of all ledgers, which read entries; 0 or less "
        "is never.",
    )
    placement_check_interval_s: int = setting(
        0,
        key="auditorPeriodicPlacementPolicyCheckInterval",
        doc="Interval between the auditor's checks of where closed ledgers are placed; 0 or less "
        "is never.",
    )
    replicas_check_interval_s: int = setting(
        0,
        key="auditorReplicasCheckInterval",
        doc="Interval between the auditor's checks that bookies have the entries of their "
        "ledgers; 0 or less is never.",
    )
    verified_percentage: int = setting(
        0,
        key="auditorLedgerVerificationPercentage",
        unit="%",
        minimum=0,
        maximum=100,
        doc="Share of a fragment's entries that a check reads, in addition to the first and the "
        "last entry.",
    )
    ledgers_checked_at_once: int = setting(
        500,
        key="auditorMaxNumberOfConcurrentOpenLedgerOperations",
        minimum=1,
        doc="Most ledgers that the check of all ledgers reads at a time.",
    )
    check_reads_max: int = setting(
        -1,
        key="inFlightReadEntryNumInLedgerChecker",
        doc="Reads in flight while one ledger is checked; 0 or less is 64.",
    )
    open_ledger_grace_ms: int = setting(
        30_000,
        key="openLedgerRereplicationGracePeriod",
        minimum=0,
        doc="Time that the writer of an open ledger has to replace a lost bookie before the "
        "worker fences the ledger.",
    )
    failed_ledger_grace_ms: int = setting(
        300_000,
        key="lockReleaseOfFailedLedgerGracePeriod",
        minimum=0,
        doc="Longest pause before a failed repair of a ledger is retried.",
    )
    repair_backoff_ms: int = setting(
        5_000,
        key="rwRereplicateBackoffMs",
        minimum=0,
        doc="Pause of a replication worker after a failed repair.",
    )
    repairs_per_s: float = setting(
        0,
        key="zkReplicationTaskRateLimit",
        unit="ledgers/s",
        minimum=0,
        doc="Repairs that a replication worker starts, by ledger; 0 means no limit.",
    )
    overdue_marks_s: int = setting(
        0,
        key="underreplicatedLedgerRecoveryGracePeriod",
        minimum=0,
        doc="The placement check reports ledgers that have been under-replicated for longer than "
        "this; 0 reports none.",
    )
    repair_placement: bool = setting(
        False,
        key="repairedPlacementPolicyNotAdheringBookieEnabled",
        doc="Mark ledgers that violate the placement policy, and move their fragments to other "
        "bookies.",
    )
