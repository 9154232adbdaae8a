"""New locations of pages that are not in memory: no page is read for a few, and none is lost."""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from bookied.storage.index.format import PAGE_BYTES, PAGE_SLOTS, IndexHeader
from bookied.storage.index.ledger_pages import (
    BLOCK_SHIFT,
    CachedLedger,
    LedgerChange,
    LedgerOnDisk,
    LedgerPages,
    Move,
    switch,
)
from bookied.storage.index.unflushed_locations import (
    PAGES_IN_ONE,
    SLOTS_MAX,
    WritablePage,
    with_slots,
)

KEY = b"k" * 20


class Store:
    """Keeps single locations, as DbLedgerStorage's index does."""

    def __init__(self) -> None:
        self.headers: dict[int, IndexHeader] = {}
        self.locations: dict[tuple[int, int], int] = {}
        self.loads = 0

    def load_page(self, ledger_id: int, page_no: int) -> array[int]:
        self.loads += 1
        first = page_no * PAGE_SLOTS
        ids = range(first, first + PAGE_SLOTS)
        return array("q", [self.locations.get((ledger_id, one), 0) for one in ids])

    def load(self, ledger_id: int) -> LedgerOnDisk | None:
        if ledger_id not in self.headers:
            return None
        last = max((entry for other, entry in self.locations if other == ledger_id), default=-1)
        return LedgerOnDisk(self.headers[ledger_id], -(-(last + 1) // PAGE_SLOTS), last)

    def load_many(self, ledger_ids: Sequence[int]) -> Iterator[tuple[int, LedgerOnDisk]]:
        return iter(())

    def write(self, changes: Sequence[LedgerChange]) -> None:
        for change in changes:
            if change.header is not None:
                self.headers[change.ledger_id] = change.header
            pages = [(number, enumerate(array("q", page))) for number, page in change.pages]
            for number, slots in [*pages, *((one, new.items()) for one, new in change.new)]:
                for slot, location in slots:
                    if location:
                        self.locations[change.ledger_id, number * PAGE_SLOTS + slot] = location


class World:
    """Ledgers over such a store, and which locations there should be."""

    def __init__(
        self, *, ledgers_max: int = 100, clean_pages_max: int = 0, keeps_open: bool = False
    ) -> None:
        self.store, self._keeps_open = Store(), keeps_open
        self.pages = LedgerPages(
            self.store,
            clean_pages_max=clean_pages_max,
            ledgers_max=ledgers_max,
            read_pages_bytes_max=100_000,
            keeps_before=True,
        )
        self.wanted: dict[tuple[int, int], int] = {}

    def ledger(self, ledger_id: int) -> CachedLedger:
        return self.pages.find(ledger_id) or self.pages.create(ledger_id, KEY)

    def add(self, ledger_id: int, *entries: int) -> CachedLedger:
        state = self.ledger(ledger_id)
        for entry_id in entries:
            location = 5000 + 10 * len(self.wanted) + self.wanted.get((ledger_id, entry_id), 0)
            self._page(state, entry_id)[entry_id & 1023] = location
            state.last_entry = max(state.last_entry, entry_id)
            self.wanted[ledger_id, entry_id] = location
        self.pages.dirty.locations += len(entries)
        return state

    def _page(self, state: CachedLedger, entry_id: int) -> WritablePage:
        if state.open_block == entry_id >> BLOCK_SHIFT:
            return state.open_page
        is_kept = self._keeps_open
        return state.open_for(entry_id) if is_kept else state.page_for_write(entry_id >> 10)

    def checkpoint(self) -> None:
        for changes in self.pages.take(self.pages.dirty_ledgers(), pages_max=100):
            self.store.write(changes)
            self.pages.written(changes)
        self.pages.drop_idle_ledgers()

    def look(self, ledger_id: int, entry_id: int) -> int:
        """Return where an entry is, as a reader finds it, who keeps what was read for it."""
        state = self.ledger(ledger_id)
        location, changes = state.location(entry_id), state.changes
        if location is None:
            page = self.store.load_page(ledger_id, entry_id >> 10)
            self.pages.keep_read(state, changes, entry_id >> 10, page)
            location = page[entry_id & 1023]
        return location


def test_no_page_is_read_for_a_few_adds_to_each_of_many_ledgers() -> None:
    world = World()
    for round_ in range(5):
        for ledger_id in range(50):
            world.add(ledger_id, 2 * round_, 2 * round_ + 1)
        assert world.pages.dirty_page_count == 50 // PAGES_IN_ONE
        world.checkpoint()
        assert (world.pages.dirty_page_count, world.pages.dirty_ledgers()) == (0, [])
    assert world.store.loads == 0
    assert world.store.locations == world.wanted
    assert all(world.look(*each) == world.wanted[each] for each in world.wanted)


def test_new_locations_count_as_the_pages_that_they_fill() -> None:
    world = World()
    for ledger_id in range(40):
        world.add(ledger_id, *range(SLOTS_MAX // 4))
    assert world.pages.dirty_page_count == 10
    (changes,) = world.pages.take(world.pages.dirty_ledgers(), pages_max=100)
    assert world.pages.dirty_page_count == 0
    world.pages.put_back(changes)
    assert world.pages.dirty_page_count == 10
    world.add(1, *range(100, 100 + 50 * SLOTS_MAX, 50))
    assert world.pages.dirty_page_count == 11
    world.checkpoint()
    assert world.pages.dirty_page_count == 0


@pytest.mark.parametrize("entries", [1, 20, SLOTS_MAX])
def test_new_locations_count_at_least_half_of_the_memory_they_take(entries: int) -> None:
    world = World()
    tracemalloc.start()
    try:
        for ledger_id in range(2000):
            state = world.ledger(ledger_id)
            page = state.page_for_write(0)
            for slot in range(entries):
                page[slot] = 5000 + slot
            world.pages.dirty.locations += entries
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    page_bytes = 2 * PAGE_BYTES  # With what each was before.
    assert taken_bytes / 2 <= world.pages.dirty_page_count * page_bytes <= 3 * taken_bytes


def test_many_new_locations_become_the_page() -> None:
    world = World()
    world.add(1, *range(300))
    assert (1, world.store.loads) == (world.pages.dirty_page_count, 0)
    world.checkpoint()
    state = world.add(1, *range(300, 301 + SLOTS_MAX))
    assert world.store.loads == 0
    state.page_for_write(0)
    assert (world.pages.dirty_page_count, world.store.loads) == (1, 1)
    assert state.locations(0, 1000)[298:302].tolist() == [  # type: ignore[attr-defined]
        world.wanted[1, entry_id] for entry_id in range(298, 302)
    ]
    world.checkpoint()
    assert world.store.locations == world.wanted


def test_an_open_page_that_new_locations_become_gets_the_next_ones() -> None:
    world = World(keeps_open=True)
    world.add(1, *range(SLOTS_MAX + 1))
    world.add(1, SLOTS_MAX + 1, 2 * SLOTS_MAX)
    assert (world.pages.dirty.pages, world.pages.dirty.new_pages) == (1, 0)
    world.checkpoint()
    assert world.store.locations == world.wanted


def test_readers_get_what_is_new_and_what_is_stored_at_once() -> None:
    world = World()
    world.add(1, *range(10))
    world.checkpoint()
    assert list(world.ledger(1).locations(0, 10)) == []
    assert world.look(1, 3) == world.wanted[1, 3]
    state = world.add(1, 10, 11)
    assert list(state.locations(8, 10)) == [world.wanted[1, one] for one in (8, 9, 10, 11)]
    world.checkpoint()
    assert world.look(1, 11) == world.wanted[1, 11]


def test_what_is_new_may_move_before_it_is_stored() -> None:
    world = World()
    world.add(1, 0, 1)
    old = world.wanted[1, 1]
    switch(world.pages, [Move(1, 0, old, 9000), Move(1, 1, old, 9001)])
    world.wanted[1, 1] = 9001
    world.checkpoint()
    assert world.store.locations == world.wanted


def test_all_new_locations_of_a_page_move_however_many_there_are() -> None:
    world = World()
    entries = range(SLOTS_MAX + 1)
    world.add(1, *entries)
    moves = [Move(1, one, world.wanted[1, one], 90_000 + one) for one in entries]
    switch(world.pages, moves)
    world.checkpoint()
    assert [world.store.locations[1, one] for one in entries] == [move.new for move in moves]


def test_a_ledger_that_is_deleted_takes_what_is_new_with_it() -> None:
    world = World()
    world.add(1, 0)
    (changes,) = world.pages.take([1], pages_max=10)
    world.add(1, 1)
    world.pages.remove(1)
    world.pages.put_back(changes)
    assert (world.pages.dirty_page_count, world.pages.dirty_ledgers()) == (0, [])
    world.add(1, 7)
    assert world.look(1, 0) == world.look(1, 1) == 0


@pytest.mark.parametrize("keeps_open", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_no_location_is_lost_whatever_fails_and_leaves_memory(
    seed: int, *, keeps_open: bool
) -> None:
    rng = Random(seed)
    world = World(ledgers_max=3, clean_pages_max=2, keeps_open=keeps_open)
    for _ in range(900):
        ledger_id, entry_id = rng.randrange(5), rng.choice([rng.randrange(6000), rng.randrange(90)])
        state = world.add(ledger_id, entry_id)
        if rng.random() < 0.3:
            state.page_for_write(entry_id >> 10)
        assert world.look(ledger_id, entry_id) == world.wanted[ledger_id, entry_id]
        each = rng.choice(list(world.wanted))
        assert world.look(*each) == world.wanted[each]
        for more, location in enumerate(world.ledger(each[0]).locations(each[1], 5)):
            assert location in (0, world.wanted.get((each[0], each[1] + more)))
        if rng.random() < 0.03:
            _checkpoint_with_trouble(world, rng)
    world.checkpoint()
    assert world.store.locations == world.wanted
    assert (world.pages.dirty_page_count, world.pages.dirty_ledgers()) == (0, [])


def _checkpoint_with_trouble(world: World, rng: Random) -> None:
    """Write what is dirty, or fail to; and let entries come meanwhile."""
    for changes in world.pages.take(world.pages.dirty_ledgers(), pages_max=3):
        for change in rng.sample(changes, rng.randrange(len(changes) + 1)):
            first = rng.choice([number for number, _ in (*change.pages, *change.new)] or [0]) << 10
            some = [rng.randrange(first, first + 1000) for _ in range(rng.choice([1, 80]))]
            world.add(change.ledger_id, *some).page_for_write(first >> 10)
        written = changes if rng.random() < 0.6 else changes[: rng.randrange(len(changes) + 1)]
        world.store.write(written)
        if written is changes:
            world.pages.written(changes)
        else:
            world.pages.put_back(changes)
    world.pages.drop_idle_ledgers()


def test_a_page_may_be_short() -> None:
    page = with_slots(array("q", [1, 2]), {1: 5, 900: 7})
    assert (len(page), page[0], page[1], page[2], page[900]) == (PAGE_SLOTS, 1, 5, 0, 7)
