from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookied.storage.index.read_pages import ENTRY_BYTES, LEDGER_BYTES, ReadPages
from tests.support.bounded_work import at_most


def page(**slots: int) -> array[int]:
    whole = array("q", bytes(8192))
    for name, location in slots.items():
        whole[int(name[1:])] = location
    return whole


@given(st.dictionaries(st.integers(0, 1023), st.integers(1, 2**62), max_size=20))
def test_a_page_says_where_its_entries_are_and_that_others_are_nowhere(
    slots: dict[int, int],
) -> None:
    pages = ReadPages(bytes_max=1 << 20)
    pages.keep(7, 3, page(**{f"_{slot}": location for slot, location in slots.items()}))
    found = {slot: pages.location(7, 3 * 1024 + slot) for slot in range(1024)}
    assert found == {slot: slots.get(slot, 0) for slot in range(1024)}


def test_what_is_not_here_is_unknown() -> None:
    pages = ReadPages(bytes_max=1 << 20)
    pages.keep(7, 0, page(_1=5))
    assert pages.location(7, 1024) is None
    assert pages.location(8, 1) is None


def test_pages_of_a_few_entries_are_small_and_the_first_ones_go_first() -> None:
    pages = ReadPages(bytes_max=10 * (LEDGER_BYTES + ENTRY_BYTES + 8 * 8))
    for ledger_id in range(100):
        pages.keep(ledger_id, 0, page(_5=1028))
    assert len(pages) == 10
    assert [pages.location(ledger_id, 5) for ledger_id in (89, 90, 99)] == [None, 1028, 1028]


def test_a_page_that_does_not_fit_is_not_kept() -> None:
    pages = ReadPages(bytes_max=1000)
    pages.keep(1, 0, page(_0=1028))
    pages.keep(2, 0, page(_1023=1028))
    assert len(pages) == 0


@pytest.mark.parametrize("again", [1, 2, 3])
def test_a_page_kept_again_counts_once(again: int) -> None:
    pages = ReadPages(bytes_max=LEDGER_BYTES + ENTRY_BYTES + 100)
    for location in range(1, again + 1):
        pages.keep(1, 0, page(_0=location))
    assert pages.location(1, 0) == again


def test_dropped_pages_leave_room() -> None:
    pages = ReadPages(bytes_max=LEDGER_BYTES + 2 * (ENTRY_BYTES + 100))
    pages.keep(1, 0, page(_0=1))
    pages.keep(1, 1, page(_0=2))
    pages.drop(1, 0)
    assert (pages.location(1, 0), pages.location(1, 1024)) == (None, 2)
    pages.drop(1, 1)
    pages.drop(1, 1)
    assert (len(pages), pages.size_bytes) == (0, 0)
    pages.keep(2, 0, page(_0=1))
    pages.keep(2, 1, page(_0=2))
    assert len(pages) == 2


def test_a_ledger_is_dropped_at_the_cost_of_the_pages_that_are_here() -> None:
    pages = ReadPages(bytes_max=1 << 20)
    pages.keep(1, 2**30, page(_0=1))
    with at_most(100):
        pages.drop_ledger(1)
    assert len(pages) == 0


def test_a_ledger_is_dropped_with_all_its_pages_and_no_other_ledger_is() -> None:
    pages = ReadPages(bytes_max=1 << 20)
    for ledger_id in (1, 2):
        for page_no in (0, 5, 2**30):
            pages.keep(ledger_id, page_no, page(_0=1))
    pages.drop_ledger(1)
    assert [pages.location(1, page_no << 10) for page_no in (0, 5, 2**30)] == [None, None, None]
    assert [pages.location(2, page_no << 10) for page_no in (0, 5, 2**30)] == [1, 1, 1]
    pages.drop_ledger(2)
    pages.drop_ledger(3)
    assert (len(pages), pages.size_bytes) == (0, 0)
