"""Which entries the journals bring back, asked for at little cost whatever their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookied.offline.journal_tail import PendingLedger
from tests.support.bounded_work import at_most


@given(st.lists(st.integers(0, 30)), st.integers(-1, 32))
def test_a_ledger_holds_what_was_added(added: list[int], asked: int) -> None:
    ledger = PendingLedger()
    for entry_id in added:
        ledger.add_entry(entry_id, may_begin=True)
    assert ledger.holds(asked) == (asked in added)
    assert ledger.last_entry == max(added, default=-1)


def test_entries_in_no_order_are_looked_up_as_fast_as_others() -> None:
    ledger = PendingLedger()
    for entry_id in range(20_000, 0, -2):
        ledger.add_entry(entry_id, may_begin=True)
    assert ledger.holds(2)
    with at_most(1000):
        assert [ledger.holds(entry_id) for entry_id in (2, 3, 10_000, 20_000)] == [
            True, False, True, True,
        ]  # fmt: skip
