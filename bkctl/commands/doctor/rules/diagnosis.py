"""All rules in their order.

A rule is a function of the survey. It yields a finding for each problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.commands.doctor.rules import autorecovery, bookies, clocks, ledgers
from bkctl.commands.doctor.rules.local_bookie import local_findings
from bkctl.commands.doctor.survey_values import ClusterSurvey, LocalSurvey

Rule = Callable[[ClusterSurvey], Iterator[ClusterFinding]]


def diagnose(cluster: ClusterSurvey, local: LocalSurvey | None) -> list[ClusterFinding]:
    """Return all findings, the most severe first."""
    found = [one for rule in rules_for(cluster) for one in rule(cluster)]
    if local is not None:
        found += local_findings(local)
    return sorted(found, key=lambda one: one.severity.rank)


def rules_for(cluster: ClusterSurvey) -> tuple[Rule, ...]:
    """Return the rules that can be applied.

    Rules that need the ledgers are omitted without them.
    """
    return CLUSTER_RULES if cluster.has_ledgers else _WITHOUT_LEDGERS


_WITHOUT_LEDGERS: Final[tuple[Rule, ...]] = (
    bookies.unreachable, bookies.refusing, bookies.same_address, ledgers.no_racks,
    autorecovery.disabled, autorecovery.no_auditor, bookies.cookies, ledgers.damaged,
    autorecovery.stale_locks, bookies.full, autorecovery.long_delay, autorecovery.health_check,
)  # fmt: skip

CLUSTER_RULES: Final[tuple[Rule, ...]] = (
    ledgers.refused_id, ledgers.out_of_reach, ledgers.unanswered, ledgers.lost,
    ledgers.damaged_logs, bookies.too_few, bookies.moved, bookies.down, bookies.unknown,
    bookies.unreachable, bookies.refusing, bookies.same_address, ledgers.no_racks, ledgers.lacking,
    ledgers.bad_copies, autorecovery.disabled, autorecovery.no_auditor, bookies.cookies,
    ledgers.unreadable,
    ledgers.damaged, ledgers.abandoned, autorecovery.stale_marks, autorecovery.unmendable,
    ledgers.stuck_in_recovery, ledgers.open_long, ledgers.in_one_rack, autorecovery.stale_locks,
    bookies.read_only, bookies.full, autorecovery.long_delay, clocks.clock_skew, ledgers.single,
    autorecovery.marks_in_service, autorecovery.marks_of_gone, autorecovery.check_overdue,
    autorecovery.health_check,
)  # fmt: skip
"""The order of findings of one severity: causes come before their effects."""
