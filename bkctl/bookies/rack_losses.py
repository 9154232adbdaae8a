"""Ledgers that would lose entries with one rack: every copy of some entry is in that rack.

Counts and the first ids only, so that many ledgers take no more memory than one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from bkclient.placement.rack import DEFAULT_RACK
from bkclient.quorum.fragments import racks_with_all_copies

if TYPE_CHECKING:
    from bkctl.bookies.bookie_columns import BookieSummary
    from wire.ids import BookieId, LedgerId
    from wire.ledger_metadata import LedgerMetadata

REMEMBERED_MAX: Final = 20


@attrs.define
class LedgerSample:
    """The number of ledgers of a kind, and the first few of them."""

    count: int = 0
    first: list[LedgerId] = attrs.field(factory=list)

    def add(self, ledger_id: LedgerId) -> None:
        self.count += 1
        if len(self.first) < REMEMBERED_MAX:
            self.first.append(ledger_id)

    def remove(self, ledger_id: LedgerId) -> None:
        """Remove a counted ledger."""
        self.count -= 1
        if ledger_id in self.first:
            self.first.remove(ledger_id)


@attrs.frozen
class RackLosses:
    """The ledgers that the loss of each rack would damage; empty unless there are several racks."""

    racks: Mapping[BookieId, str] = attrs.field(factory=dict)
    """The rack of each bookie whose rack is known."""
    by_rack: Mapping[str, LedgerSample] = attrs.field(factory=dict)

    @classmethod
    def of(cls, bookies: Iterable[BookieSummary]) -> RackLosses:
        """Return the racks of these bookies, without ledgers."""
        racks = {
            one.bookie_id: one.rack
            for one in bookies
            if one.rack is not None and one.rack != DEFAULT_RACK
        }
        names = sorted(set(racks.values()))
        return cls(racks, {name: LedgerSample() for name in names}) if len(names) > 1 else cls()

    def add(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> None:
        """Count one ledger."""
        if self.by_rack:
            for rack in racks_with_all_copies(metadata, self.racks):
                self.by_rack[rack].add(ledger_id)
