"""The rules about clocks: times in the future, in the cluster and on this machine."""
# ruff: noqa: D103 -- the sentence of its finding says what each is for

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bkclient.config.findings import Severity
from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.commands.doctor.survey_values import ClusterSurvey, LocalSurvey
from bkctl.output.units import human_duration

SAME_TIME: Final = "compare `date -u` on all hosts, this one too; run a time daemon"
"""The repair of a wrong clock."""

_AHEAD_MS_MAX: Final = 60_000


def clock_skew(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    ahead = {
        f"ledger {ledger_id} was created": seen.ledgers.future_ms
        for ledger_id in seen.ledgers.from_future.first[:1]
    }
    for mark in seen.marks:
        if mark.since_ms is not None:
            ahead[f"ledger {mark.ledger_id} was marked"] = mark.since_ms - seen.now_ms
    for lock in seen.locks:
        if lock.since_ms is not None:
            ahead[f"ledger {lock.ledger_id} was locked"] = lock.since_ms - seen.now_ms
    for check, time_ms in seen.checked_ms.items():
        if time_ms is not None:
            ahead[f"the check {check} ended"] = time_ms - seen.now_ms
    what, most_ms = max(ahead.items(), key=lambda item: item[1], default=("", 0))
    if most_ms > seen.limits.skew_s * 1000:
        late = human_duration(most_ms / 1000)
        yield ClusterFinding(
            Severity.TROUBLE,
            "clock-skew",
            f"{what} {late} in the future: the clock of a host is wrong",
            fix=SAME_TIME,
        )


def local_clock(seen: LocalSurvey) -> Iterator[ClusterFinding]:
    ahead_ms = seen.newest_ms - seen.now_ms
    if ahead_ms > _AHEAD_MS_MAX:
        late = human_duration(ahead_ms / 1000)
        what = f"a file of this bookie was written {late} in the future: the clock went back"
        yield ClusterFinding(Severity.TROUBLE, "local-clock", what, fix=SAME_TIME)
