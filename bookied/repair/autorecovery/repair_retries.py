"""How long a ledger is left alone whose repair failed: rules, no I/O and no clock."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, TypeVar

from wire.ids import EntryId, LedgerId

T = TypeVar("T")

REMEMBERED_MAX: Final = 2000
"""Ledgers whose failures are remembered; the oldest are forgotten first."""

DOUBLINGS: Final = 5
"""RepairFailures after which the pause is as long as it gets."""


class RepairFailures:
    """Ledgers that could not be repaired: how often, and which entries could not be read."""

    def __init__(self, longest_s: float) -> None:
        """``longest_s``: the longest pause before another try."""
        self._longest_s = longest_s
        self._times: OrderedDict[LedgerId, int] = OrderedDict()
        self._unreadable: OrderedDict[LedgerId, set[EntryId]] = OrderedDict()
        self._lost: OrderedDict[LedgerId, None] = OrderedDict()

    def failed(self, ledger_id: LedgerId) -> float:
        """Count a failure; return for how long the ledger's lock is to be held."""
        times = self._times.pop(ledger_id, 0)
        _keep(self._times, ledger_id, times + 1)
        return self._longest_s / (1 << max(0, DOUBLINGS - times))

    def lost(self, ledger_id: LedgerId) -> bool:
        """Note that a ledger has lost entries for good; return whether that is news."""
        is_news = ledger_id not in self._lost
        _keep(self._lost, ledger_id, None)
        return is_news

    def unreadable(self, ledger_id: LedgerId, entry_id: EntryId) -> None:
        """Note that no bookie returned an entry."""
        entries = self._unreadable.pop(ledger_id, set())
        entries.add(entry_id)
        _keep(self._unreadable, ledger_id, entries)

    def to_read_first(self, ledger_id: LedgerId, first: int, last: int) -> list[EntryId]:
        """Return the entries of a range that no bookie returned, ascending."""
        entries = self._unreadable.get(ledger_id, set())
        return sorted(entry_id for entry_id in entries if first <= entry_id <= last)

    def readable(self, ledger_id: LedgerId, entries: list[EntryId]) -> None:
        """Note that entries could be read after all."""
        self._unreadable.get(ledger_id, set()).difference_update(entries)

    def forget(self, ledger_id: LedgerId) -> None:
        """The ledger has all its replicas, or is deleted."""
        self._times.pop(ledger_id, None)
        self._unreadable.pop(ledger_id, None)
        self._lost.pop(ledger_id, None)


def _keep(kept: OrderedDict[LedgerId, T], ledger_id: LedgerId, value: T) -> None:
    kept[ledger_id] = value
    kept.move_to_end(ledger_id)
    while len(kept) > REMEMBERED_MAX:
        kept.popitem(last=False)
