"""The rules about autorecovery: disabled, no auditor, old marks and locks."""
# ruff: noqa: D103 -- the sentence of its finding says what each is for

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bkclient.config.findings import Severity
from bkclient.metadata.stored_values import BookieState
from bkctl.bookies.rack_losses import LedgerSample
from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.commands.doctor.rules.findings import (
    ENABLE,
    START_AUDITOR,
    bring_copies_back,
    enabling,
    ledger_finding,
    pause_end_ms,
    start_auditor,
    start_bookies,
    verb,
)
from bkctl.commands.doctor.survey_values import ClusterSurvey
from bkctl.output.autorecovery_pause import pause_text
from bkctl.output.units import counted, human_duration
from wire.ids import LedgerId


def disabled(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    if not seen.enabled:
        needed = _is_needed(seen)
        until_ms = pause_end_ms(seen)
        severity = Severity.TROUBLE if until_ms is None else Severity.NOTE
        why = "" if seen.pause is None else pause_text(seen.pause, seen.now_ms / 1000)
        yield ClusterFinding(
            Severity.RISK if needed else severity,
            "autorecovery-disabled",
            f"autorecovery is disabled{why}: nothing{' of this' if needed else ''} is repaired",
            fix=ENABLE
            if until_ms is None
            else f"the pause ends by itself; to end it now: {ENABLE}",
        )


def no_auditor(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    if seen.auditor is not None:
        return
    severity, why = Severity.TROUBLE, "the ledgers of a lost bookie are not repaired"
    if _is_needed(seen):
        severity = Severity.RISK
    elif seen.is_on_one_machine:
        severity, why = Severity.NOTE, "all bookies are on one machine, so this may be intended"
    yield ClusterFinding(
        severity, "auditor-missing", f"no auditor is elected: {why}", fix=start_auditor(seen)
    )


def _is_needed(seen: ClusterSurvey) -> bool:
    return bool(seen.ledgers.lacking.count or seen.ledgers.out_of_reach.count or seen.marks)


def stale_marks(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    before_ms = seen.now_ms - seen.limits.stale_s * 1000
    gone = seen.ledgers.marks_of_gone
    old = [
        mark.ledger_id
        for mark in seen.marks
        if mark.worker is None
        and mark.since_ms is not None
        and mark.since_ms < before_ms
        and mark.ledger_id not in gone
    ]
    age = human_duration(seen.limits.stale_s)
    why, fix = _why_idle(seen)
    what = (
        f"{verb(len(old), 'is', 'are')} marked for more than {age}, and no worker repairs "
        f"{verb(len(old), 'it', 'them')}: {why}"
    )
    yield from ledger_finding(Severity.RISK, "marks-stale", LedgerSample(len(old), old), what, fix)


def _why_idle(seen: ClusterSurvey) -> tuple[str, str]:
    """Return the most likely reason why the workers are idle, and its repair."""
    if not seen.enabled:
        return "autorecovery is disabled", enabling(seen)
    writable = len(seen.of_state(BookieState.WRITABLE))
    if writable < seen.ledgers.ensemble_max:
        left = counted(writable, "writable bookie")
        return f"{left} leave no bookie to copy to", start_bookies(seen)
    some = seen.ledgers.unmendable
    if some.count:
        return "some ledgers have no copy that a worker could copy from", bring_copies_back(
            seen, some
        )
    if seen.auditor is None:
        return "do workers run?", start_auditor(seen)
    return "do workers run?", "bkctl autorecovery list --detail, which says why each waits"


def unmendable(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.unmendable
    what = (
        f"{verb(some.count, 'is', 'are')} marked and cannot be repaired now: no bookie in service "
        "has a copy"
    )
    fix = bring_copies_back(seen, some)
    yield from ledger_finding(Severity.TROUBLE, "marks-unmendable", some, what, fix)


def marks_in_service(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.marked_in_service
    what = (
        f"{verb(some.count, 'is', 'are')} marked for repair, though all bookies with "
        f"{verb(some.count, 'its', 'their')} entries are registered: a bookie was down, hangs or "
        "lost entries; workers check that and repair it"
    )
    yield from ledger_finding(Severity.NOTE, "marks-in-service", some, what, "")


def marks_of_gone(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    gone = sorted(seen.ledgers.marks_of_gone)
    what = (
        f"{verb(len(gone), 'is', 'are')} marked and deleted; a worker drops such marks when it "
        "next tries to repair them, within minutes"
    )
    yield from ledger_finding(
        Severity.NOTE, "marks-of-deleted", LedgerSample(len(gone), gone), what, _forget(gone)
    )


def _forget(ledgers: Sequence[LedgerId]) -> str:
    return f"bkctl autorecovery forget {ledgers[0]}" if ledgers else ""


def stale_locks(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    before_ms = seen.now_ms - seen.limits.stale_s * 1000
    old = [lock for lock in seen.locks if (lock.since_ms or seen.now_ms) < before_ms]
    if old:
        oldest = min(old, key=lambda lock: lock.since_ms or seen.now_ms)
        age = human_duration((seen.now_ms - (oldest.since_ms or 0)) / 1000)
        locks = verb(len(old), "a repair lock is", f"{len(old)} repair locks are")
        what = f"{locks} held for long, one for {age} by {oldest.owner or 'an unknown bookie'}"
        ids = [lock.ledger_id for lock in old]
        fix = "restart that worker: its locks go with its session"
        yield ClusterFinding(
            Severity.TROUBLE, "locks-stale", what, fix=fix, examples=ids, count=len(old)
        )


def long_delay(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    if seen.delay_s is not None and seen.delay_s > seen.limits.delay_s:
        delay = human_duration(seen.delay_s)
        what = f"a lost bookie is repaired only after {delay}: was this forgotten?"
        yield ClusterFinding(Severity.TROUBLE, "delay-long", what, fix="bkctl autorecovery delay 0")


def check_overdue(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    last_ms = seen.checked_ms.get("all-ledgers")
    if last_ms is not None and seen.now_ms - last_ms > seen.limits.check_s * 1000:
        # The age is omitted: `bkctl autorecovery audit --check` sets the stored time back.
        what = "the auditor's check of all ledgers is due"
        check = "bkctl autorecovery audit --check all-ledgers"
        fix = (
            START_AUDITOR
            if seen.auditor is None
            else f"{check}, or restart the auditor if Java's: {seen.auditor}"
        )
        yield ClusterFinding(Severity.NOTE, "check-overdue", what, fix=fix)


def health_check(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    if not seen.health_check:
        what = "the health check of bookies is off: clients keep using bookies that fail"
        yield ClusterFinding(
            Severity.NOTE, "health-check-off", what, fix="bkctl cluster health-check enable"
        )
