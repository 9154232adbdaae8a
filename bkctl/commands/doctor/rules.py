"""The doctor's rules: what each thing seen means, how bad it is, and what repairs it.

Functions of values alone. A rule yields nothing where it finds no fault. The order in a list is the
order among findings of one severity.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from bkclient.config.findings import Severity
from bkclient.metadata.stored_values import BookieState
from bkctl.bookies.columns import LOGIN_NEEDED, BookieSummary
from bkctl.bookies.rack_losses import REMEMBERED_MAX, LedgerSample
from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.commands.doctor.local_rules import SAME_TIME, local_findings
from bkctl.commands.doctor.survey_values import ClusterSurvey, LocalSurvey
from bkctl.output.autorecovery_pause import pause_text
from bkctl.output.units import counted, human_bytes, human_duration, human_time
from wire.ids import LEDGER_ID_REFUSED, BookieId, LedgerId

_ENABLE: Final = "bkctl autorecovery enable"
START_AUDITOR: Final = "bookied autorecovery --conf FILE"
_NAMED_MAX: Final = 5
"""Ledgers that a sentence names."""


Rule = Callable[[ClusterSurvey], Iterator[ClusterFinding]]


def diagnose(cluster: ClusterSurvey, local: LocalSurvey | None) -> list[ClusterFinding]:
    """Return everything that is wrong, the worst first."""
    found = [one for rule in rules_for(cluster) for one in rule(cluster)]
    if local is not None:
        found += local_findings(local)
    return sorted(found, key=lambda one: one.severity.rank)


def rules_for(cluster: ClusterSurvey) -> tuple[Rule, ...]:
    """Return the rules that can be applied: without the ledgers, those that need none of them."""
    return CLUSTER_RULES if cluster.has_ledgers else _WITHOUT_LEDGERS


def _of(
    severity: Severity, name: str, some: LedgerSample, what: str, fix: str
) -> Iterator[ClusterFinding]:
    """Yield a finding about ledgers, if there are any; ``what`` follows their number."""
    if some.count:
        what = f"{counted(some.count, 'ledger')} {what}"
        yield ClusterFinding(severity, name, what, fix=fix, examples=some.first, count=some.count)


def _about(
    severity: Severity, name: str, bookies: Collection[BookieId], what: str, fix: str
) -> Iterator[ClusterFinding]:
    """Yield a finding about bookies, if there are any; ``what`` follows their number."""
    if bookies:
        what = f"{counted(len(bookies), 'bookie')} {what}"
        yield ClusterFinding(severity, name, what, fix=fix, examples=bookies, count=len(bookies))


def _does(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


# Ledgers ----------------------------------------------------------------------------------------


def _refused_id(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    what = (
        f"has the id {LEDGER_ID_REFUSED}: the next garbage collection of every Java bookie deletes "
        "all that it holds"
    )
    fix = f"bkctl ledger delete {LEDGER_ID_REFUSED} --force open-ledgers"
    yield from _of(Severity.LOSS, "ledger-id-deadly", seen.ledgers.refused_id, what, fix)


def _out_of_reach(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.out_of_reach
    has = _does(some.count, "has", "have")
    what = f"{has} entries without a copy on any bookie in service"
    yield from _of(
        Severity.LOSS, "ledgers-out-of-reach", some, what, _bring_copies_back(seen, some)
    )


def _unanswered(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.unanswered
    has = _does(some.count, "has", "have")
    what = f"{has} entries without a copy on any bookie that answers: they cannot be read now"
    silent = sorted(seen.ledgers.silent & {*seen.ledgers.holds})
    fix = f"bring back one of {', '.join(silent[:3])}{', ...' if silent[3:] else ''}"
    yield from _of(Severity.LOSS, "ledgers-unanswered", some, what, fix)


def _lost(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.lost
    what = (
        f"{_does(some.count, 'has', 'have')} lost entries: all bookies are in service, and none of "
        "them has the first or the last entry of a fragment"
    )
    fix = ""
    if some.first:
        fix = (
            f"bkctl ledger verify {some.first[0]}, which reads all entries, or "
            f"{_bring_copies_back(seen, some)}"
        )
    yield from _of(Severity.LOSS, "ledgers-lost", some, what, fix)


def _bring_copies_back(seen: ClusterSurvey, some: LedgerSample) -> str:
    """Return how to reach entries that no bookie in service has; never how to delete them."""
    down = [one.bookie_id for one in seen.of_state(BookieState.DOWN)]
    if down:
        return _again(seen, down[:3])
    first = some.first[0] if some.first else ""
    return f"bkctl disk salvage {first} --out DIR, where a disk has it still"


def _lacking(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    ledgers = seen.ledgers
    some, unmarked, last = ledgers.lacking, ledgers.unmarked.count, ledgers.last_copy
    what = f"{_does(some.count, 'is', 'are')} under-replicated"
    if last.count:
        what += f"; {_of_them(last, some.count)} entries with one copy left"
    if unmarked == some.count:
        what += f"; {_does(some.count, 'it is not', 'none is')} marked for repair"
    elif unmarked:
        what += f"; {unmarked} are not marked for repair"
    fix = _repair_advice(seen, unmarked=bool(unmarked))
    yield from _of(Severity.RISK, "ledgers-lack-copies", some, what, fix)


def _of_them(part: LedgerSample, whole: int) -> str:
    if whole == 1:
        return "it has"
    if part.count == whole:
        return "all have"
    ids = ", ".join(map(str, part.first[:_NAMED_MAX]))
    if part.count > _NAMED_MAX:
        return f"{part.count} ({ids}, ...) have"
    return f"{_does(part.count, 'ledger', 'ledgers')} {ids} {_does(part.count, 'has', 'have')}"


def _repair_advice(seen: ClusterSurvey, *, unmarked: bool = False) -> str:
    """Return what makes autorecovery repair ledgers, by what keeps it from that."""
    if not seen.enabled:
        return _enabling(seen)
    if seen.auditor is None:
        return _start_auditor(seen)
    if unmarked:
        return "bkctl autorecovery audit"
    writable = len(seen.of_state(BookieState.WRITABLE))
    when = " once more bookies are writable" if writable < seen.ledgers.ensemble_max else ""
    return f"workers repair it{when}; why a ledger waits: bkctl autorecovery list --detail"


def _unreadable(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.unreadable
    what = (
        f"{_does(some.count, 'has', 'have')} metadata that cannot be read; an auditor stops there"
    )
    fix = f"bkctl ledger show {some.first[0]}" if some.first else ""
    yield from _of(Severity.RISK, "ledgers-unreadable", some, what, fix)


def _damaged(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    for what, fix in seen.damaged.items():
        yield ClusterFinding(Severity.RISK, "metadata-damaged", what, fix=fix)


def _damaged_logs(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    names = seen.damaged_logs
    if names:
        has = _does(len(names), "has", "have")
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


def _abandoned(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.abandoned
    what = (
        f"{_does(some.count, 'is', 'are')} open on a bookie that is down: no writer runs, or it "
        "adds nothing"
    )
    yield from _of(Severity.RISK, "ledgers-abandoned", some, what, _recover(some))


def _stuck_in_recovery(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = LedgerSample(len(seen.stuck), list(seen.stuck))
    what = (
        f"{_does(some.count, 'is', 'are')} in recovery, until a client or a worker closes "
        f"{_does(some.count, 'it', 'them')}"
    )
    yield from _of(Severity.TROUBLE, "ledgers-in-recovery", some, what, _recover(some))


def _open_long(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.open_long
    age = human_duration(seen.limits.open_s)
    what = f"{_does(some.count, 'is', 'are')} open for more than {age}: does a writer still run?"
    yield from _of(Severity.TROUBLE, "ledgers-open-long", some, what, _recover(some))


def _recover(some: LedgerSample) -> str:
    """Return the line that recovers the first ledgers."""
    return f"bkctl ledger recover {' '.join(map(str, some.first[:_NAMED_MAX]))}"


def _in_one_rack(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    racks = seen.ledgers.rack_losses.by_rack
    odd = "; with two racks and two copies, use an even ensemble size: odd sizes cause this"
    for rack, some in racks.items():
        what = f"{_does(some.count, 'has', 'have')} entries with every copy in rack {rack}"
        fix = (
            "set repairedPlacementPolicyNotAdheringBookieEnabled=true in the settings file of each "
            "process that runs autorecovery, restart it, then: bkctl autorecovery audit --check "
            f"placement{odd if len(racks) == 2 else ''}"  # noqa: PLR2004 -- a ring of two colours
        )
        yield from _of(Severity.TROUBLE, "ledgers-in-one-rack", some, what, fix)


def _no_racks(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    error = seen.topology_error
    if error is not None:
        yield ClusterFinding(Severity.RISK, "topology-script", str(error), fix=error.hint)


def _single(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.single
    what = f"{_does(some.count, 'keeps', 'keep')} one copy of each entry, which cannot be repaired"
    yield from _of(
        Severity.NOTE, "ledgers-single", some, what, "write with a write quorum of 2 or more"
    )


# Bookies ----------------------------------------------------------------------------------------


def _too_few(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    writable = len(seen.of_state(BookieState.WRITABLE))
    short = {size: some for size, some in seen.ledgers.by_ensemble.items() if size > writable}
    if not writable:
        yield ClusterFinding(
            Severity.RISK, "bookies-none-writable", "no bookie is writable", fix=_start(seen)
        )
    elif short:
        count = sum(some.count for some in short.values())
        size = f"{min(short)}" if len(short) == 1 else f"{min(short)} to {max(short)}"
        what = (
            f"only {counted(writable, 'bookie')} {_does(writable, 'is', 'are')} writable: no "
            f"bookie can replace a lost one in {counted(count, 'ledger')} with an ensemble of "
            f"{size}"
        )
        ids = sorted(one for some in short.values() for one in some.first)[:REMEMBERED_MAX]
        yield ClusterFinding(
            Severity.RISK,
            "bookies-too-few",
            what,
            fix=_start(seen),
            examples=ids,
            count=count,
        )
    elif writable < seen.ledgers.newest_ensemble:
        what = (
            f"only {counted(writable, 'bookie')} {_does(writable, 'is', 'are')} writable, and the "
            f"newest ledger has an ensemble of {seen.ledgers.newest_ensemble}: another ledger of "
            "this size cannot be created"
        )
        yield ClusterFinding(Severity.TROUBLE, "bookies-too-few", what, fix=_start(seen))


def _again(seen: ClusterSurvey, bookies: Sequence[BookieId]) -> str:
    """Return how to start bookies again; a cluster of `bkctl local` has a line for each."""
    if seen.local_directory is None:
        return f"start {' and '.join(bookies)} again"
    directory = shlex.quote(seen.local_directory)
    return "; ".join(f"bkctl local start {directory} {one}" for one in bookies)


def _start(seen: ClusterSurvey) -> str:
    """Return which bookies to start."""
    down = [one.bookie_id for one in seen.of_state(BookieState.DOWN)][:3]
    if down:
        return f"{_again(seen, down)}, or add bookies"
    by_hand = sorted(seen.read_only_by_hand)
    return f"bkctl bookie readonly {by_hand[0]} off, or add bookies" if by_hand else "add bookies"


def _down(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    gone = {one.bookie_id for one in seen.of_state(BookieState.DOWN)}
    for bookie_id in sorted(gone):
        ledgers = seen.ledgers.holds[bookie_id]
        if ledgers:
            what = f"{bookie_id} is down, and {counted(ledgers, 'ledger')} {_list_it(ledgers)}"
            fix = _again(seen, [bookie_id])
            if _can_do_without(seen):
                fix += f", or remove it for good: bkctl decommission {bookie_id}"
            yield ClusterFinding(Severity.RISK, "bookie-down", what, fix=fix, examples=(bookie_id,))
        else:
            what = f"{bookie_id} is down, and no ledger lists it"
            again = _again(seen, [bookie_id])
            fix = f"{again}, or remove it for good: bkctl decommission {bookie_id}"
            yield ClusterFinding(
                Severity.NOTE, "bookie-retired", what, fix=fix, examples=(bookie_id,)
            )


def _can_do_without(seen: ClusterSurvey) -> bool:
    """Tell whether the writable bookies can take over what a bookie that is down holds."""
    writable = len(seen.of_state(BookieState.WRITABLE))
    return writable >= seen.ledgers.ensemble_max and not seen.ledgers.out_of_reach.count


def _list_it(count: int) -> str:
    return _does(count, "lists it", "list it")


def _unknown(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    known = {one.bookie_id for one in seen.bookies}
    lost = sorted(set(seen.ledgers.holds) - known)
    what = f"{_does(len(lost), 'is', 'are')} listed by ledgers, without cookie or registration"
    yield from _about(
        Severity.RISK, "bookies-unknown", lost, what, _repair_advice(seen, unmarked=True)
    )


def _moved(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    up = {_place(seen, one.address or ""): one for one in seen.bookies if one.is_registered}
    for one in seen.of_state(BookieState.DOWN):
        host, _, port = one.bookie_id.rpartition(":")
        if not host or not port.isdigit():
            continue
        now = up.get(_place(seen, one.bookie_id))
        if now is not None and seen.ledgers.holds[one.bookie_id]:
            what = f"{one.bookie_id} is down, and {now.bookie_id} is at its address: has it moved?"
            fix = f"bkctl bookie rename {one.bookie_id} {now.bookie_id}"
            yield ClusterFinding(
                Severity.RISK,
                "bookie-moved",
                what,
                fix=fix,
                examples=(one.bookie_id, now.bookie_id),
            )


def _place(seen: ClusterSurvey, address: str) -> tuple[str, str]:
    """Return the host of an address, as it resolves here, and its port."""
    host, _, port = address.rpartition(":")
    return seen.addresses.get(host, host), port


def _same_address(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    by_place: dict[tuple[str, str], list[BookieSummary]] = {}
    for one in seen.bookies:
        if one.is_registered and one.address:
            by_place.setdefault(_place(seen, one.address), []).append(one)
    for (host, port), ones in by_place.items():
        if len(ones) > 1:
            ids = [one.bookie_id for one in ones]
            what = (
                f"{len(ones)} bookies are registered at {host}:{port}: entries are stored on "
                "the wrong bookie"
            )
            yield ClusterFinding(
                Severity.RISK, "bookies-at-one-address", what, fix="stop all but one", examples=ids
            )


def _refusing(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    refusing = [one for one in seen.bookies if one.refuses]
    if refusing:
        what = (
            f"{_does(len(refusing), 'refuses', 'refuse')} this client, so their disks and entries "
            f"were not looked at: {refusing[0].unreachable}"
        )
        ids = [one.bookie_id for one in refusing]
        yield from _about(Severity.TROUBLE, "bookies-refuse", ids, what, LOGIN_NEEDED)


def _unreachable(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    for one in seen.bookies:
        if one.unreachable and not one.refuses:
            ledgers = seen.ledgers.holds[one.bookie_id]
            lists = f", and {counted(ledgers, 'ledger')} {_list_it(ledgers)}" if ledgers else ""
            what = f"{one.bookie_id} is registered and does not answer{lists}: {one.unreachable}"
            fix = (
                f"start {one.bookie_id} again if its process has ended; while it runs, "
                f"bkctl bookie test {one.bookie_id}, which shows what fails"
            )
            yield ClusterFinding(
                Severity.RISK, "bookie-unreachable", what, fix=fix, examples=(one.bookie_id,)
            )


def _read_only(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    for one in seen.of_state(BookieState.READ_ONLY):
        by_hand = one.bookie_id in seen.read_only_by_hand
        what = f"{one.bookie_id} is read-only{' by hand' if by_hand else ''}{_fullness(one)}"
        fix = _back_or_out(seen, one.bookie_id) if by_hand else _SPACE
        yield ClusterFinding(
            Severity.TROUBLE, "bookie-read-only", what, fix=fix, examples=(one.bookie_id,)
        )


def _back_or_out(seen: ClusterSurvey, bookie_id: BookieId) -> str:
    """Return how a bookie takes adds again, and, if no ledger lists it, how to take it out."""
    back = f"bkctl bookie readonly {bookie_id} off"
    if seen.ledgers.holds[bookie_id]:
        return f"if no drain of it is in progress: {back}"
    return f"stop it, then: bkctl decommission {bookie_id}, or keep it: {back}"


def _full(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    for one in seen.of_state(BookieState.WRITABLE):
        if one.used is not None and one.used > seen.limits.full_at:
            what = f"{one.bookie_id} is nearly full{_fullness(one)}"
            yield ClusterFinding(
                Severity.TROUBLE,
                "bookie-nearly-full",
                what,
                fix=_SPACE,
                examples=(one.bookie_id,),
            )


_SPACE: Final = (
    "on its machine: bkctl disk usage -c FILE, which shows what can be freed; "
    "bkctl ledger orphans --keep-file IDS lists ledgers that the application no longer names"
)


def _fullness(one: BookieSummary) -> str:
    if one.free is None or one.total is None or one.used_percent is None:
        return ""
    used = f"{one.used_percent:.0f} % used"
    return f" ({used}, {human_bytes(one.free)} free of {human_bytes(one.total)})"


def _cookies(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    broken = [bookie_id for bookie_id, cookie in seen.cookies.items() if cookie is None]
    what = f"{_does(len(broken), 'has a cookie', 'have cookies')} that cannot be read"
    fix = f"bkctl cookie update {broken[0]} --file VERSION" if broken else ""
    yield from _about(Severity.RISK, "cookies-unreadable", broken, what, fix)
    yield from _cookies_of_others(seen)
    without = [
        one.bookie_id
        for one in seen.bookies
        if one.is_registered and one.bookie_id not in seen.cookies
    ]
    what = f"{_does(len(without), 'runs', 'run')} without a stored cookie, and will not start again"
    fix = f"bkctl cookie create {without[0]} --file VERSION" if without else ""
    yield from _about(Severity.RISK, "cookies-missing", without, what, fix)


def _cookies_of_others(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    theirs = {
        bookie_id: cookie.instance_id
        for bookie_id, cookie in seen.cookies.items()
        if cookie is not None and cookie.instance_id != seen.instance_id
    }
    if theirs and seen.instance_id is None:
        ids = " or ".join(sorted({one for one in theirs.values() if one is not None}))
        what = f"the cluster has no instance id, and no bookie will start again; cookies say {ids}"
        fix = f"store {ids} as the node INSTANCEID with the metadata service's own tools"
        yield ClusterFinding(Severity.RISK, "instance-id-missing", what, fix=fix)
        return
    what = (
        f"{_does(len(theirs), 'has a cookie', 'have cookies')} of another cluster than "
        f"{seen.instance_id}, and will not start again"
    )
    fix = "bkctl cookie verify -c FILE, on its host, shows if its directories are of this cluster"
    yield from _about(Severity.RISK, "cookies-of-another-cluster", theirs, what, fix)


# Autorecovery -----------------------------------------------------------------------------------


def _disabled(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    if not seen.enabled:
        needed = _is_needed(seen)
        why = "" if seen.pause is None else pause_text(seen.pause, seen.now_ms / 1000)
        yield ClusterFinding(
            Severity.RISK if needed else Severity.TROUBLE,
            "autorecovery-disabled",
            f"autorecovery is disabled{why}: nothing{' of this' if needed else ''} is repaired",
            fix=f"the pause ends by itself at {human_time(until_ms, utc=True)}; to end it now: "
            f"{_ENABLE}"
            if (until_ms := _pause_end_ms(seen)) is not None
            else _ENABLE,
        )


def _enabling(seen: ClusterSurvey) -> str:
    """Return what switches autorecovery on; of a pause that lasts another finding has the end."""
    return _ENABLE if _pause_end_ms(seen) is None else "bkctl explain autorecovery-disabled"


def _pause_end_ms(seen: ClusterSurvey) -> int | None:
    """Return when a pause ends by itself; None where it does not."""
    until_ms = None if seen.pause is None else seen.pause.until_ms
    return until_ms if until_ms is not None and until_ms > seen.now_ms else None


def _no_auditor(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    if seen.auditor is not None:
        return
    severity, why = Severity.TROUBLE, "the ledgers of a lost bookie are not repaired"
    if _is_needed(seen):
        severity = Severity.RISK
    elif seen.is_on_one_machine:
        severity, why = Severity.NOTE, "all bookies are on one machine, so this may be intended"
    yield ClusterFinding(
        severity, "auditor-missing", f"no auditor is elected: {why}", fix=_start_auditor(seen)
    )


def _start_auditor(seen: ClusterSurvey) -> str:
    """Return what to start for an auditor: bookies that are down may run autorecovery too."""
    down = [one.bookie_id for one in seen.of_state(BookieState.DOWN)][:3]
    return f"{_again(seen, down)}, or {START_AUDITOR}" if down else START_AUDITOR


def _is_needed(seen: ClusterSurvey) -> bool:
    return bool(seen.ledgers.lacking.count or seen.ledgers.out_of_reach.count or seen.marks)


def _stale_marks(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
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
        f"{_does(len(old), 'is', 'are')} marked for more than {age}, and no worker repairs "
        f"{_does(len(old), 'it', 'them')}: {why}"
    )
    yield from _of(Severity.RISK, "marks-stale", LedgerSample(len(old), old), what, fix)


def _why_idle(seen: ClusterSurvey) -> tuple[str, str]:
    """Return what most likely keeps the workers from their work, and what ends that."""
    if not seen.enabled:
        return "autorecovery is disabled", _enabling(seen)
    writable = len(seen.of_state(BookieState.WRITABLE))
    if writable < seen.ledgers.ensemble_max:
        return f"{counted(writable, 'writable bookie')} leave no bookie to copy to", _start(seen)
    some = seen.ledgers.unmendable
    if some.count:
        return "some ledgers have no copy that a worker could copy from", _bring_copies_back(
            seen, some
        )
    if seen.auditor is None:
        return "do workers run?", _start_auditor(seen)
    return "do workers run?", "bkctl autorecovery list --detail, which says why each waits"


def _unmendable(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.unmendable
    what = (
        f"{_does(some.count, 'is', 'are')} marked and cannot be repaired now: no bookie in service "
        "has a copy"
    )
    fix = _bring_copies_back(seen, some)
    yield from _of(Severity.TROUBLE, "marks-unmendable", some, what, fix)


def _marks_in_service(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    some = seen.ledgers.marked_in_service
    what = (
        f"{_does(some.count, 'is', 'are')} marked, and the bookies of each entry are registered: "
        "a bookie returned, hangs, or lost some entries; workers check that and repair it"
    )
    yield from _of(Severity.NOTE, "marks-in-service", some, what, "")


def _marks_of_gone(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    gone = sorted(seen.ledgers.marks_of_gone)
    what = (
        f"{_does(len(gone), 'is', 'are')} marked and deleted; a worker drops such marks when it "
        "next tries to repair them, within minutes"
    )
    yield from _of(
        Severity.NOTE, "marks-of-deleted", LedgerSample(len(gone), gone), what, _forget(gone)
    )


def _forget(ledgers: Sequence[LedgerId]) -> str:
    return f"bkctl autorecovery forget {ledgers[0]}" if ledgers else ""


def _stale_locks(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    before_ms = seen.now_ms - seen.limits.stale_s * 1000
    old = [lock for lock in seen.locks if (lock.since_ms or seen.now_ms) < before_ms]
    if old:
        oldest = min(old, key=lambda lock: lock.since_ms or seen.now_ms)
        age = human_duration((seen.now_ms - (oldest.since_ms or 0)) / 1000)
        held = _does(len(old), "a repair lock is", f"{len(old)} repair locks are")
        what = f"{held} held for long, one for {age} by {oldest.owner or 'an unknown bookie'}"
        ids = [lock.ledger_id for lock in old]
        fix = "restart that worker: its locks go with its session"
        yield ClusterFinding(
            Severity.TROUBLE, "locks-stale", what, fix=fix, examples=ids, count=len(old)
        )


def _long_delay(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    if seen.delay_s is not None and seen.delay_s > seen.limits.delay_s:
        delay = human_duration(seen.delay_s)
        what = f"a lost bookie is repaired only after {delay}: was this forgotten?"
        yield ClusterFinding(Severity.TROUBLE, "delay-long", what, fix="bkctl autorecovery delay 0")


def _check_overdue(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    last_ms = seen.checked_ms.get("all-ledgers")
    if last_ms is not None and seen.now_ms - last_ms > seen.limits.check_s * 1000:
        # Not for how long: `bkctl autorecovery audit --check` sets the stored time back.
        what = "the auditor's check of all ledgers is due"
        check = "bkctl autorecovery audit --check all-ledgers"
        fix = (
            START_AUDITOR
            if seen.auditor is None
            else f"{check}, or restart the auditor if Java's: {seen.auditor}"
        )
        yield ClusterFinding(Severity.NOTE, "check-overdue", what, fix=fix)


def _health_check(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    if not seen.health_check:
        what = "the health check of bookies is off: clients keep using bookies that fail"
        yield ClusterFinding(
            Severity.NOTE, "health-check-off", what, fix="bkctl cluster health-check enable"
        )


# Clocks -----------------------------------------------------------------------------------------


def _clock_skew(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
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


_WITHOUT_LEDGERS: Final[tuple[Rule, ...]] = (
    _unreachable,
    _refusing,
    _same_address,
    _no_racks,
    _disabled,
    _no_auditor,
    _cookies,
    _damaged,
    _stale_locks,
    _full,
    _long_delay,
    _health_check,
)

CLUSTER_RULES: Final[tuple[Rule, ...]] = (
    _refused_id,
    _out_of_reach,
    _unanswered,
    _lost,
    _damaged_logs,
    _too_few,
    _moved,
    _down,
    _unknown,
    _unreachable,
    _refusing,
    _same_address,
    _no_racks,
    _lacking,
    _disabled,
    _no_auditor,
    _cookies,
    _unreadable,
    _damaged,
    _abandoned,
    _stale_marks,
    _unmendable,
    _stuck_in_recovery,
    _open_long,
    _in_one_rack,
    _stale_locks,
    _read_only,
    _full,
    _long_delay,
    _clock_skew,
    _single,
    _marks_in_service,
    _marks_of_gone,
    _check_overdue,
    _health_check,
)
"""In the order in which findings of one severity are listed: causes come before what follows."""
