"""How long ledgers are left alone whose repair failed."""

from __future__ import annotations

from bookied.autorecovery.repair_retries import REMEMBERED_MAX, RepairFailures
from wire.ids import EntryId, LedgerId

ONE, OTHER = LedgerId(1), LedgerId(2)


def test_the_lock_of_a_failing_ledger_is_held_twice_as_long_each_time_up_to_a_limit() -> None:
    failures = RepairFailures(300.0)
    held = [failures.failed(ONE) for _ in range(7)]
    assert held == [9.375, 18.75, 37.5, 75.0, 150.0, 300.0, 300.0]
    assert failures.failed(OTHER) == 9.375


def test_a_ledger_that_became_whole_begins_anew() -> None:
    failures = RepairFailures(300.0)
    failures.failed(ONE)
    failures.unreadable(ONE, EntryId(3))
    assert failures.lost(ONE)
    failures.forget(ONE)
    assert failures.failed(ONE) == 9.375
    assert failures.to_read_first(ONE, 0, 9) == []
    assert failures.lost(ONE)


def test_that_a_ledger_is_lost_is_news_once() -> None:
    failures = RepairFailures(300.0)
    assert [failures.lost(ONE), failures.lost(ONE), failures.lost(OTHER)] == [True, False, True]


def test_entries_that_nobody_gave_are_remembered_by_where_they_are() -> None:
    failures = RepairFailures(300.0)
    for entry_id in (7, 3, 12):
        failures.unreadable(ONE, EntryId(entry_id))
    assert failures.to_read_first(ONE, 0, 9) == [3, 7]
    failures.readable(ONE, [EntryId(3)])
    assert failures.to_read_first(ONE, 0, 20) == [7, 12]
    assert failures.to_read_first(OTHER, 0, 20) == []


def test_no_more_ledgers_are_remembered_than_there_is_room_for() -> None:
    failures = RepairFailures(32.0)
    for ledger_id in range(REMEMBERED_MAX + 1):
        failures.failed(LedgerId(ledger_id))
    assert failures.failed(LedgerId(0)) == 1.0
    assert failures.failed(LedgerId(REMEMBERED_MAX)) == 2.0
