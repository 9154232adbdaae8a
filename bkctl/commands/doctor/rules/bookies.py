"""The rules about bookies and their cookies: down, read-only, full, unreachable, too few."""
# ruff: noqa: D103 -- the sentence of its finding says what each is for

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from bkclient.config.findings import Severity
from bkclient.metadata.stored_values import BookieState
from bkctl.bookies.bookie_columns import LOGIN_NEEDED, BookieSummary
from bkctl.bookies.rack_losses import REMEMBERED_MAX
from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.commands.doctor.rules.findings import (
    bookie_finding,
    repair_advice,
    start_again,
    start_bookies,
    verb,
)
from bkctl.commands.doctor.survey_values import ClusterSurvey
from bkctl.output.units import counted, human_bytes
from wire.ids import BookieId


def too_few(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    writable = len(seen.of_state(BookieState.WRITABLE))
    short = {size: some for size, some in seen.ledgers.by_ensemble.items() if size > writable}
    if not writable:
        yield ClusterFinding(
            Severity.RISK, "bookies-none-writable", "no bookie is writable", fix=start_bookies(seen)
        )
    elif short:
        count = sum(some.count for some in short.values())
        size = f"{min(short)}" if len(short) == 1 else f"{min(short)} to {max(short)}"
        what = (
            f"only {counted(writable, 'bookie')} {verb(writable, 'is', 'are')} writable: no "
            f"bookie can replace a lost one in {counted(count, 'ledger')} with an ensemble of "
            f"{size}"
        )
        ids = sorted(one for some in short.values() for one in some.first)[:REMEMBERED_MAX]
        yield ClusterFinding(
            Severity.RISK,
            "bookies-too-few",
            what,
            fix=start_bookies(seen),
            examples=ids,
            count=count,
        )
    elif writable < seen.ledgers.newest_ensemble:
        what = (
            f"only {counted(writable, 'bookie')} {verb(writable, 'is', 'are')} writable, and the "
            f"newest ledger has an ensemble of {seen.ledgers.newest_ensemble}: another ledger of "
            "this size cannot be created"
        )
        yield ClusterFinding(Severity.TROUBLE, "bookies-too-few", what, fix=start_bookies(seen))


def down(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    gone = {one.bookie_id for one in seen.of_state(BookieState.DOWN)}
    for bookie_id in sorted(gone):
        ledgers = seen.ledgers.holds[bookie_id]
        if ledgers:
            what = f"{bookie_id} is down, and {counted(ledgers, 'ledger')} {_list_it(ledgers)}"
            fix = _back(seen, bookie_id)
            if _can_do_without(seen):
                fix += f", or remove it for good: bkctl decommission {bookie_id}"
            else:
                fix += (
                    f"; if it is lost for good, add a bookie, then: bkctl decommission {bookie_id}"
                )
            yield ClusterFinding(Severity.RISK, "bookie-down", what, fix=fix, examples=(bookie_id,))
        else:
            what = f"{bookie_id} is down, and no ledger lists it"
            fix = f"{_back(seen, bookie_id)}, or remove it for good: bkctl decommission {bookie_id}"
            yield ClusterFinding(
                Severity.NOTE, "bookie-retired", what, fix=fix, examples=(bookie_id,)
            )


def _back(seen: ClusterSurvey, bookie_id: BookieId) -> str:
    conf = seen.emptied.get(bookie_id)
    if conf is None:
        return start_again(seen, [bookie_id])
    if bookie_id == seen.examined:
        return "the findings about its lost directory say what to do"
    return f"bkctl doctor -c {shlex.quote(conf)}, which says what to do about its lost directory"


def _can_do_without(seen: ClusterSurvey) -> bool:
    """Return whether the writable bookies can replace a bookie that is down."""
    writable = len(seen.of_state(BookieState.WRITABLE))
    return writable >= seen.ledgers.ensemble_max and not seen.ledgers.out_of_reach.count


def _list_it(count: int) -> str:
    return verb(count, "lists it", "list it")


def unknown(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    known = {one.bookie_id for one in seen.bookies}
    lost = sorted(set(seen.ledgers.holds) - known)
    what = f"{verb(len(lost), 'is', 'are')} listed by ledgers, without cookie or registration"
    yield from bookie_finding(
        Severity.RISK, "bookies-unknown", lost, what, repair_advice(seen, unmarked=True)
    )


def moved(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
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
    """Return the host of an address, as it resolves on this machine, and its port."""
    host, _, port = address.rpartition(":")
    return seen.addresses.get(host, host), port


def same_address(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
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


def refusing(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    found = [one for one in seen.bookies if one.refuses]
    if found:
        what = (
            f"{verb(len(found), 'refuses', 'refuse')} this client, so their disks and entries "
            f"were not looked at: {found[0].unreachable}"
        )
        ids = [one.bookie_id for one in found]
        yield from bookie_finding(Severity.TROUBLE, "bookies-refuse", ids, what, LOGIN_NEEDED)


def unreachable(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
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


def read_only(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    for one in seen.of_state(BookieState.READ_ONLY):
        by_hand = one.bookie_id in seen.read_only_by_hand
        what = f"{one.bookie_id} is read-only{' by hand' if by_hand else ''}{_fullness(one)}"
        fix = _back_or_out(seen, one.bookie_id) if by_hand else _SPACE
        yield ClusterFinding(
            Severity.TROUBLE, "bookie-read-only", what, fix=fix, examples=(one.bookie_id,)
        )


def _back_or_out(seen: ClusterSurvey, bookie_id: BookieId) -> str:
    """Return how to make a bookie writable, and, if no ledger lists it, how to remove it."""
    back = f"bkctl bookie readonly {bookie_id} off"
    if seen.ledgers.holds[bookie_id]:
        return f"if no drain of it is in progress: {back}"
    return f"stop it, then: bkctl decommission {bookie_id}, or keep it: {back}"


def full(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
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


def cookies(seen: ClusterSurvey) -> Iterator[ClusterFinding]:
    broken = [bookie_id for bookie_id, cookie in seen.cookies.items() if cookie is None]
    what = f"{verb(len(broken), 'has a cookie', 'have cookies')} that cannot be read"
    fix = f"bkctl cookie update {broken[0]} --file VERSION" if broken else ""
    yield from bookie_finding(Severity.RISK, "cookies-unreadable", broken, what, fix)
    yield from _cookies_of_others(seen)
    without = [
        one.bookie_id
        for one in seen.bookies
        if one.is_registered and one.bookie_id not in seen.cookies
    ]
    what = (
        f"{verb(len(without), 'runs', 'run')} without a stored cookie, and will not start again; "
        "bookied deletes nothing meanwhile, for its garbage collection needs the cookie, but a "
        "Java bookie deletes every ledger that the metadata lacks"
    )
    fix = f"bkctl cookie create {without[0]} --file VERSION" if without else ""
    if without and not seen.cookies:
        fix = (
            "if the cluster was formatted, stop its bookies, then: bkctl cluster restore FILE, "
            "with its backup; to begin anew: bkctl disk format --force metadata -c FILE. "
            f"If it was not: {fix}"
        )
    yield from bookie_finding(Severity.RISK, "cookies-missing", without, what, fix)


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
        f"{verb(len(theirs), 'has a cookie', 'have cookies')} of another cluster than "
        f"{seen.instance_id}, and will not start again"
    )
    fix = "bkctl cookie verify -c FILE, on its host, shows if its directories are of this cluster"
    yield from bookie_finding(Severity.RISK, "cookies-of-another-cluster", theirs, what, fix)
