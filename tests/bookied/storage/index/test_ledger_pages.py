"""What ledgers in memory cost when they go: never more than what is in memory of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import pytest

from bookied.storage.index import format as layout
from bookied.storage.index.ledger_pages import LedgerOnDisk, LedgerPages
from tests.support.bounded_work import at_most

POWERS = [1 << power for power in (0, 10, 20, 30, 40)]


class OneEntry:
    """A disk that has one entry of each ledger, the one with a given id."""

    def __init__(self, entry_id: int) -> None:
        self.entry_id = entry_id

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        page = layout.decode_page(b"")
        if page_no == self.entry_id >> 10:
            page[self.entry_id & 1023] = 5000
        return page

    def load(self, ledger_id: int) -> LedgerOnDisk:
        pages = (self.entry_id >> 10) + 1
        return LedgerOnDisk(layout.IndexHeader(b"key"), pages, self.entry_id)

    def load_many(self, ledger_ids: Sequence[int]) -> Iterator[tuple[int, LedgerOnDisk]]:
        return ((one, self.load(one)) for one in ledger_ids)


@pytest.mark.parametrize("entry_id", POWERS)
def test_a_ledger_goes_at_the_cost_of_its_pages_in_memory(entry_id: int) -> None:
    source = OneEntry(entry_id)
    pages = LedgerPages(source, clean_pages_max=0, ledgers_max=1, read_pages_bytes_max=1 << 20)
    for ledger_id in (1, 2, 3):
        state = pages.find(ledger_id)
        assert state is not None
        page_no = entry_id >> 10
        pages.keep_read(state, state.changes, page_no, source.load_page(ledger_id, page_no))
    with at_most(1000):
        pages.drop_idle_ledgers()
        pages.remove(2)
        pages.remove(3)
    assert (pages.evicted, len(pages.hot), len(pages.read_pages)) == (2, 0, 0)


def test_a_key_that_is_replaced_while_the_one_before_is_written_is_not_logged_yet() -> None:
    """The journal has to have the new key before an entry under it."""
    pages = LedgerPages(OneEntry(0), clean_pages_max=0, ledgers_max=1)
    state = pages.create(1, b"")
    (taken,) = pages.take([1], pages_max=1)
    state.master_key = b"new"
    pages.header_changed(state)
    pages.written(taken)
    assert not state.key_logged
    (taken,) = pages.take([1], pages_max=1)
    pages.written(taken)
    assert state.key_logged


@pytest.mark.parametrize("comes_again", [False, True], ids=["deleted", "created again"])
def test_of_a_ledger_that_is_deleted_between_two_lists_no_more_is_taken(
    *, comes_again: bool
) -> None:
    pages = LedgerPages(OneEntry(0), clean_pages_max=0, ledgers_max=1)
    state = pages.create(1, b"old")
    for page_no in range(3):
        state.page_for_write(page_no)[0] = 5000
    lists = pages.take([1], pages_max=2)
    pages.written(next(lists))
    pages.header_changed(state)
    pages.remove(1)
    if comes_again:
        pages.create(1, b"new")
    assert list(lists) == []
    assert pages.dirty_ledgers() == [1] * comes_again
    assert pages.dirty_page_count == 0
