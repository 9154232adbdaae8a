"""How rules make findings: with the number of ledgers or bookies that they are about."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from bkclient.config.findings import Severity
from bkctl.bookies.rack_losses import LedgerSample
from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.output.units import counted
from wire.ids import BookieId

NAMED_MAX: Final = 5
"""Ledgers that a sentence names."""


def ledger_finding(
    severity: Severity, name: str, some: LedgerSample, what: str, fix: str
) -> Iterator[ClusterFinding]:
    """Yield a finding about ledgers, if there are any; ``what`` follows their number."""
    if some.count:
        what = f"{counted(some.count, 'ledger')} {what}"
        yield ClusterFinding(severity, name, what, fix=fix, examples=some.first, count=some.count)


def bookie_finding(
    severity: Severity, name: str, bookies: Collection[BookieId], what: str, fix: str
) -> Iterator[ClusterFinding]:
    """Yield a finding about bookies, if there are any; ``what`` follows their number."""
    if bookies:
        what = f"{counted(len(bookies), 'bookie')} {what}"
        yield ClusterFinding(severity, name, what, fix=fix, examples=bookies, count=len(bookies))


def verb(count: int, one: str, many: str) -> str:
    """Return the verb, or another word, for one or for many."""
    return one if count == 1 else many
