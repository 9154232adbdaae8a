"""The highest ledger there is, found with few questions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookied.directories.highest_ledger import highest_ledger
from bookied.directories.last_journal_note import ALL_LEDGERS, NO_LEDGER
from tests.bookied.worlds.fakes import done
from wire.ids import LedgerId


class Ledgers:
    """Metadata that has ledgers, and gives few of them at a time."""

    def __init__(self, *ids: int) -> None:
        self._ids, self.asked = sorted(ids), 0

    async def ledger_ranges(
        self, *, after: LedgerId | None = None
    ) -> AsyncIterator[tuple[LedgerId, ...]]:
        self.asked += 1
        assert after is not None
        assert NO_LEDGER <= after <= ALL_LEDGERS
        yield ()
        above = [LedgerId(one) for one in self._ids if one > after]
        for at in range(0, len(above), 3):
            yield tuple(above[at : at + 3])


def test_a_new_cluster_is_asked_once() -> None:
    ledgers = Ledgers()
    assert done(highest_ledger(ledgers)) == NO_LEDGER
    assert ledgers.asked == 1


@pytest.mark.parametrize("highest", [0, 1, 2**31, 2**62, ALL_LEDGERS - 1, ALL_LEDGERS])
def test_ids_of_all_sizes_are_found(highest: int) -> None:
    assert done(highest_ledger(Ledgers(highest))) == highest


@pytest.mark.parametrize("highest", [2**62 + 8, ALL_LEDGERS])
def test_the_highest_of_many_high_ids_is_found(highest: int) -> None:
    assert done(highest_ledger(Ledgers(*range(highest - 8, highest + 1)))) == highest


@given(st.sets(st.integers(0, ALL_LEDGERS) | st.integers(0, 1000), min_size=1, max_size=40))
def test_the_highest_is_found_without_reading_all(ids: set[int]) -> None:
    ledgers = Ledgers(*ids)
    assert done(highest_ledger(ledgers)) == max(ids)
    assert ledgers.asked <= 65
