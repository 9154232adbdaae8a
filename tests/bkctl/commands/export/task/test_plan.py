"""How an export is cut into tasks."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from bkctl.commands.export.task.partitions import (
    ENTRY_OVERHEAD_BYTES,
    PIECES_MAX,
    TASK_BYTES_MIN,
    EntryRange,
    LedgerExtent,
    cut,
    task_bytes,
)
from wire.ids import EntryId, LedgerId

MIB = 1024 * 1024


def extent(ledger_id: int, entries: int, length: int) -> LedgerExtent:
    return LedgerExtent(LedgerId(ledger_id), EntryId(entries - 1), length, "CLOSED", "CRC32C", 1700)


extents = st.lists(
    st.builds(
        extent,
        st.integers(0, 2**62),
        st.integers(0, 5000),
        st.integers(0, 600 * MIB),
    ),
    max_size=6,
    unique_by=lambda e: e.ledger_id,
)


@given(extents, st.integers(1, 64))
def test_each_entry_is_in_exactly_one_task_and_in_order(ledgers, cores) -> None:
    seen = [r for task in cut(ledgers, cores) for r in task]
    for ledger in ledgers:
        mine = [r for r in seen if r.ledger_id == ledger.ledger_id]
        entries = [e for r in mine for e in range(r.first, r.last + 1)]
        assert entries == list(range(ledger.entries))


@given(extents, st.integers(1, 64))
def test_no_task_is_much_larger_than_the_target_unless_one_entry_is(ledgers, cores) -> None:
    costs = {e.ledger_id: e.length + e.entries * ENTRY_OVERHEAD_BYTES for e in ledgers}
    target = task_bytes(sum(costs.values()), cores)
    counts = {e.ledger_id: e.entries for e in ledgers}
    for task in cut(ledgers, cores):
        size = sum(r.entries * costs[r.ledger_id] // counts[r.ledger_id] for r in task)
        largest_entry = max(costs[r.ledger_id] // counts[r.ledger_id] + 1 for r in task)
        assert size <= target + largest_entry


def test_small_ledgers_share_a_task() -> None:
    assert len(cut([extent(n, 10, 1000) for n in range(100)], 2)) == 1


def test_a_large_ledger_is_spread_over_the_cores() -> None:
    tasks = cut([extent(7, 100_000, 100 * MIB)], 2)
    assert len(tasks) == 6
    assert max(r.entries for t in tasks for r in t) - min(r.entries for t in tasks for r in t) <= 1


def test_a_size_that_cannot_be_gives_no_endless_plan() -> None:
    tasks = cut([extent(7, 2**62, 2**62)], 2)
    assert len(tasks) == PIECES_MAX
    assert tasks[-1][-1].last == 2**62 - 1


def test_an_empty_ledger_gives_no_task() -> None:
    assert cut([extent(7, 0, 0)], 4) == []
    assert task_bytes(0, 4) == TASK_BYTES_MIN


def test_a_part_of_a_ledger_begins_where_it_says() -> None:
    part = attrs.evolve(extent(7, 1000, 90 * MIB), first_entry_id=400)
    ranges = [r for task in cut([part], 2) for r in task]
    assert [(ranges[0].first, ranges[-1].last)] == [(400, 999)]
    assert sum(r.entries for r in ranges) == part.entries == 600
    assert part.length - len(ranges) <= sum(r.length for r in ranges) <= part.length


def test_a_range_counts_both_ends() -> None:
    assert EntryRange(LedgerId(1), EntryId(3), EntryId(3)).entries == 1
