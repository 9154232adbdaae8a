"""The rules about ledgers: lost, with too few copies, damaged, open for long, in one rack."""
# ruff: noqa: D103 -- the sentence of its finding says what each is for

from __future__ import annotations

import shlex
from collections.abc import Iterator

from bkclient.config.findings import Severity
from bkctl.bookies.rack_losses import LedgerSample
from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.commands.doctor.rules.findings import (
    NAMED_MAX,
    bring_copies_back,
    ledger_finding,
    repair_advice,
    verb,
)
from bkctl.commands.doctor.survey_values import ClusterSurvey
from bkctl.output.units import counted, human_duration
from wire.ids import LEDGER_ID_REFUSED


def refused_id(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    what = (
        f"has the id {LEDGER_ID_REFUSED}: the next garbage collection of every Java bookie deletes "
        "all that it holds"
    )
    fix = f"bkctl ledger delete {LEDGER_ID_REFUSED} --force open-ledgers"
    yield from ledger_finding(Severity.LOSS, "ledger-id-deadly", seen.ledgers.refused_id, what, fix)


def out_of_reach(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.out_of_reach
    has = verb(some.count, "has", "have")
    what = f"{has} entries without a copy on any bookie in service"
    yield from ledger_finding(
        Severity.LOSS, "ledgers-out-of-reach", some, what, bring_copies_back(seen, some)
    )


def unanswered(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.unanswered
    has = verb(some.count, "has", "have")
    what = f"{has} entries without a copy on any bookie that answers: they cannot be read now"
    silent = sorted(seen.ledgers.silent & {*seen.ledgers.holds})
    fix = f"bring back one of {', '.join(silent[:3])}{', ...' if silent[3:] else ''}"
    yield from ledger_finding(Severity.LOSS, "ledgers-unanswered", some, what, fix)


def lost(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.lost
    what = (
        f"{verb(some.count, 'has', 'have')} lost entries: all bookies are in service, and none of "
        "them has the first or the last entry of a fragment"
    )
    fix = ""
    if some.first:
        fix = (
            f"bkctl ledger verify {some.first[0]}, which reads all entries, or "
            f"{bring_copies_back(seen, some)}"
        )
    yield from ledger_finding(Severity.LOSS, "ledgers-lost", some, what, fix)


def bad_copies(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.bad_copies
    what = (
        f"{verb(some.count, 'has', 'have')} copies of a first or last entry that are missing, "
        "damaged or unreadable on bookies that answer"
    )
    fix = ""
    if some.first:
        fix = f"bkctl ledger verify {some.first[0]}, which names the copies and what repairs them"
    yield from ledger_finding(Severity.RISK, "ledgers-bad-copies", some, what, fix)


def lacking(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    ledgers = seen.ledgers
    some, unmarked, last = ledgers.lacking, ledgers.unmarked.count, ledgers.last_copy
    what = f"{verb(some.count, 'is', 'are')} under-replicated"
    if last.count:
        what += f"; {_of_them(last, some.count)} entries with one copy left"
    if unmarked == some.count:
        what += f"; {verb(some.count, 'it is not', 'none is')} marked for repair"
    elif unmarked:
        what += f"; {unmarked} are not marked for repair"
    fix = repair_advice(seen, unmarked=bool(unmarked))
    yield from ledger_finding(Severity.RISK, "ledgers-lack-copies", some, what, fix)


def _of_them(part: LedgerSample, whole: int) -> str:
    if whole == 1:
        return "it has"
    if part.count == whole:
        return "all have"
    ids = ", ".join(map(str, part.first[:NAMED_MAX]))
    if part.count > NAMED_MAX:
        return f"{part.count} ({ids}, ...) have"
    return f"{verb(part.count, 'ledger', 'ledgers')} {ids} {verb(part.count, 'has', 'have')}"


def unreadable(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.unreadable
    what = f"{verb(some.count, 'has', 'have')} metadata that cannot be read; an auditor stops there"
    fix = f"bkctl ledger show {some.first[0]}" if some.first else ""
    yield from ledger_finding(Severity.RISK, "ledgers-unreadable", some, what, fix)


def damaged(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    for what, fix in seen.damaged.items():
        yield ClusterFinding(Severity.RISK, "metadata-damaged", what, fix=fix)


def damaged_logs(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    names = seen.damaged_logs
    if names:
        has = verb(len(names), "has", "have")
        what = (
            f"{counted(len(names), 'log')} {has} lost entries: a ledger is gone, or the list of "
            "ledgers cannot be read"
        )
        yield ClusterFinding(
            Severity.LOSS,
            "logs-damaged",
            what,
            fix=f"bkctl log show {shlex.quote(names[0])}, then bkctl explain BK-LOG-DAMAGED",
            examples=names,
            count=len(names),
        )


def abandoned(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.abandoned
    what = (
        f"{verb(some.count, 'is', 'are')} open on a bookie that is down: no writer runs, or it "
        "adds nothing"
    )
    yield from ledger_finding(Severity.RISK, "ledgers-abandoned", some, what, _recover(some))


def stuck_in_recovery(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = LedgerSample(len(seen.stuck), list(seen.stuck))
    what = (
        f"{verb(some.count, 'is', 'are')} in recovery, until a client or a worker closes "
        f"{verb(some.count, 'it', 'them')}"
    )
    yield from ledger_finding(Severity.TROUBLE, "ledgers-in-recovery", some, what, _recover(some))


def open_long(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.open_long
    age = human_duration(seen.limits.open_s)
    what = f"{verb(some.count, 'is', 'are')} open for more than {age}: does a writer still run?"
    check = f"bkctl ledger tail {next(iter(some.first), 0)} -f -n 0"
    fix = f"if `{check}` prints no entries of a writer: {_recover(some)}"
    yield from ledger_finding(Severity.TROUBLE, "ledgers-open-long", some, what, fix)


def _recover(some: LedgerSample) -> str:
    """Return the command that recovers the first ledgers."""
    return f"bkctl ledger recover {' '.join(map(str, some.first[:NAMED_MAX]))}"


def in_one_rack(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    racks = seen.ledgers.rack_losses.by_rack
    odd = ", or for new ledgers of two copies in two racks: use an even ensemble size"
    for rack, some in racks.items():
        what = f"{verb(some.count, 'has', 'have')} entries with every copy in rack {rack}"
        fix = (
            "set repairedPlacementPolicyNotAdheringBookieEnabled=true in the settings file of each "
            "process that runs autorecovery, restart it, then: bkctl autorecovery audit --check "
            "placement, or for one ledger and one of its bookies: bkctl bookie recover BOOKIE "
            f"--ledger LEDGER{odd if len(racks) == 2 else ''}"  # noqa: PLR2004 -- a ring
        )
        # On one machine the racks are only a model, as those of `bkctl local`.
        severity = Severity.NOTE if seen.is_on_one_machine else Severity.TROUBLE
        yield from ledger_finding(severity, "ledgers-in-one-rack", some, what, fix)


def no_racks(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    error = seen.topology_error
    if error is not None:
        yield ClusterFinding(Severity.RISK, "topology-script", str(error), fix=error.hint)


def single(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.single
    what = f"{verb(some.count, 'keeps', 'keep')} one copy of each entry, which cannot be repaired"
    yield from ledger_finding(
        Severity.NOTE, "ledgers-single", some, what, "write with a write quorum of 2 or more"
    )
