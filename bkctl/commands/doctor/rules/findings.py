"""Constructors of findings, and common repairs: bookies to start, and autorecovery."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from bkclient.config.findings import Severity
from bkclient.metadata.stored_values import BookieState
from bkctl.bookies.rack_losses import LedgerSample
from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.commands.doctor.survey_values import ClusterSurvey
from bkctl.output.units import counted, human_duration
from bkctl.session.safety_checks import some_names
from wire.ids import BookieId

NAMED_MAX: Final = 5
"""The largest number of ledgers, or of lines for bookies, in a sentence."""


def ledger_finding(
    severity: Severity, name: str, some: LedgerSample, what: str, fix: str
) -> Iterator[ClusterFinding]:
    """Yield a finding about ledgers, if any; ``what`` follows their number, or the only id."""
    if some.count:
        is_named = some.count == 1 and some.first
        subject = f"ledger {some.first[0]}" if is_named else counted(some.count, "ledger")
        what = f"{subject} {what}"
        yield ClusterFinding(severity, name, what, fix=fix, examples=some.first, count=some.count)


def bookie_finding(
    severity: Severity, name: str, bookies: Collection[BookieId], what: str, fix: str
) -> Iterator[ClusterFinding]:
    """Yield a finding about bookies, if there are any; ``what`` follows their number."""
    if bookies:
        what = f"{counted(len(bookies), 'bookie')} {what}"
        yield ClusterFinding(severity, name, what, fix=fix, examples=bookies, count=len(bookies))


def verb(count: int, one: str, many: str) -> str:
    """Return the singular or the plural form of a word."""
    return one if count == 1 else many


ENABLE: Final = "bkctl autorecovery enable"
START_AUDITOR: Final = "bookied autorecovery --conf FILE"


def bring_copies_back(seen: ClusterSurvey, some: LedgerSample) -> str:
    """Return how to reach entries that no bookie in service stores. Never advise to delete them."""
    down = seen.startable()
    helpful = [one for one in down if seen.ledgers.needed[one]] or [
        one for one in down if seen.ledgers.holds[one]
    ]
    if helpful or (down and not seen.emptied):
        return start_again(seen, helpful or down)
    first = some.first[0] if some.first else "LEDGER"
    where = ", where a disk has it still"
    if seen.emptied:
        emptied = max(seen.emptied, key=seen.ledgers.needed.__getitem__)
        where = f" -c {shlex.quote(seen.emptied[emptied])}"
    return f"bkctl disk salvage {first} --out DIR{where}"


def repair_advice(seen: ClusterSurvey, *, unmarked: bool = False) -> str:
    """Return the step that lets autorecovery repair ledgers, by the reason why it does not."""
    if not seen.enabled:
        return enabling(seen)
    if seen.auditor is None:
        return start_auditor(seen)
    if unmarked:
        if len(seen.of_state(BookieState.DOWN)) == 1 and seen.delay_s:
            delay = human_duration(seen.delay_s)
            return (
                f"wait: the auditor marks them when the bookie has been down for {delay}, or to "
                "skip this delay: bkctl autorecovery audit"
            )
        return "bkctl autorecovery audit"
    writable = len(seen.of_state(BookieState.WRITABLE))
    when = " once more bookies are writable" if writable < seen.ledgers.ensemble_max else ""
    return f"workers repair it{when}; why a ledger waits: bkctl autorecovery list --detail"


def start_again(seen: ClusterSurvey, bookies: Sequence[BookieId]) -> str:
    """Return how to start bookies again; a cluster of `bkctl local` has a line for each."""
    if seen.local_directory is None:
        return f"start {some_names(bookies)} again"
    if not seen.local_bookies.issuperset(bookies):
        return f"start {some_names(bookies)} again"
    start = f"bkctl local start {shlex.quote(seen.local_directory)}"
    if len(bookies) > NAMED_MAX:
        return f"{start}, which starts {some_names(bookies)}"
    return "; ".join(f"{start} {one}" for one in bookies)


def start_bookies(seen: ClusterSurvey) -> str:
    """Return the bookies to start, or how to add bookies."""
    if down := seen.startable():
        return f"{start_again(seen, down)}, or add bookies"
    by_hand = sorted(seen.read_only_by_hand)
    return f"bkctl bookie readonly {by_hand[0]} off, or add bookies" if by_hand else "add bookies"


def enabling(seen: ClusterSurvey) -> str:
    """Return how to enable autorecovery; another finding reports the end of a pause."""
    return ENABLE if pause_end_ms(seen) is None else "bkctl explain autorecovery-disabled"


def pause_end_ms(seen: ClusterSurvey) -> int | None:
    """Return the time at which a pause ends by itself, or None."""
    until_ms = None if seen.pause is None else seen.pause.until_ms
    return until_ms if until_ms is not None and until_ms > seen.now_ms else None


def start_auditor(seen: ClusterSurvey) -> str:
    """Return how to start an auditor: bookies that are down may run autorecovery, too."""
    down = seen.startable()
    return f"{start_again(seen, down)}, or {START_AUDITOR}" if down else START_AUDITOR
