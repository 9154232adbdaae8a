"""What the storage needs of an index, of index files and of DbLedgerStorage's two databases."""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from bookied.config.db import RocksSettings
from bookied.storage.index import format as layout
from bookied.storage.index.format import FENCED, IndexHeader
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.ledger_pages import LedgerChange, LedgerPages, Move
from bookied.storage.index.rocks.database import ledgers_options, open_database
from bookied.storage.index.rocks.format import ledger_key, location_key
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.index.store import IndexStore
from tests.sim.world.disk import SimFiles
from tests.sim.world.key_values import SimKeyValues

CURRENT = Path("/current")
KEY = b"k" * 20
HEADER = IndexHeader(KEY)


class Desk:
    """An index that can be opened again, after a power cut where the disk is a simulated one."""

    def __init__(self, new: Callable[[], IndexStore], crash: Callable[[], None]) -> None:
        self._new, self._crash = new, crash
        self.index = self.start()

    def start(self) -> IndexStore:
        self.index = self._new()
        self.index.open()
        return self.index

    def restart(self) -> IndexStore:
        self.index.close()
        self._crash()
        return self.start()


def files_desk() -> Desk:
    files = some_files()
    return Desk(lambda: IndexFiles(files, [CURRENT]), files.crash)


def simulated_desk() -> Desk:
    files = some_files()
    return Desk(lambda: RocksIndex(CURRENT, partial(SimKeyValues, files)), files.crash)


def some_files() -> SimFiles:
    files = SimFiles(Random(1))
    files.make_durable(CURRENT)
    return files


def rocks_desk(tmp_path: Path) -> Desk:
    options = partial(ledgers_options, RocksSettings())
    return Desk(
        lambda: RocksIndex(tmp_path, lambda path: open_database(path, options)), lambda: None
    )


@pytest.fixture(params=["files", "simulated", "rocks"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    if request.param == "rocks":
        return rocks_desk(tmp_path)
    return files_desk() if request.param == "files" else simulated_desk()


def page(**slots: int) -> bytes:
    locations = layout.decode_page(b"")
    for name, location in slots.items():
        locations[int(name[1:])] = location
    return locations.tobytes()


def slots(index: IndexStore, ledger_id: int) -> dict[int, int]:
    return {
        page_no * 1024 + slot: location
        for page_no, locations in index.pages(ledger_id)
        for slot, location in enumerate(locations)
        if location
    }


def test_many_ledgers_are_loaded_as_they_are_one_by_one(desk: Desk) -> None:
    desk.index.write(
        [
            LedgerChange(1, HEADER, ((0, page(e0=5000, e9=6000)), (3, page(e1=7000)))),
            LedgerChange(2, HEADER, ()),
            LedgerChange(3, HEADER, ((0, page(e1023=7000)),)),
        ]
    )
    index = desk.restart()
    found = dict(index.load_many([3, 4, 1, 2]))
    assert found == {ledger_id: index.load(ledger_id) for ledger_id in (3, 1, 2)}
    assert list(index.load_many([])) == []


def test_pages_read_together_are_those_read_one_by_one_or_left_out(desk: Desk) -> None:
    desk.index.write(
        [
            LedgerChange(1, HEADER, ((0, page(e0=5000, e9=6000)), (3, page(e1=7000)))),
            LedgerChange(2, HEADER, ((0, page(e1023=7000)),)),
        ]
    )
    index = desk.restart()
    wanted = [(1, 3), (2, 0), (1, 0), (3, 0), (2, 9), (1, 1 << 50)]
    found = {(ledger_id, page_no): page for ledger_id, page_no, page in index.load_pages(wanted)}
    assert set(found) <= {(1, 3), (2, 0), (1, 0)}
    assert found == {key: index.load_page(*key) for key in found}


def test_what_was_written_is_there_after_a_power_cut(desk: Desk) -> None:
    lac = IndexHeader(KEY, FENCED, (2**40 + 1).to_bytes(8, "big") + b"L" * 12)
    desk.index.write(
        [
            LedgerChange(1, HEADER, ((0, page(e0=5000, e9=6000)), (3, page(e1=7000)))),
            LedgerChange(2**40 + 1, lac, ()),
        ]
    )
    index = desk.restart()
    assert sorted(index.ledger_ids()) == [1, 2**40 + 1]
    stored, empty = index.load(1), index.load(2**40 + 1)
    assert stored is not None
    assert empty is not None
    assert (stored.header, stored.pages, stored.last_entry) == (HEADER, 4, 3 * 1024 + 1)
    assert (empty.header, empty.pages, empty.last_entry) == (lac, 0, -1)
    assert slots(index, 1) == {0: 5000, 9: 6000, 3073: 7000}
    assert list(index.load_page(1, 0)) == list(layout.decode_native(page(e0=5000, e9=6000)))
    found = [index.location(1, at) for at in (0, 9, 10, 2000, 3073, 10**9)]
    assert found == [5000, 6000, 0, 0, 7000, 0]


def test_many_locations_are_those_that_are_found_one_by_one(desk: Desk) -> None:
    full = layout.decode_page(b"")
    for slot in range(layout.PAGE_SLOTS):
        full[slot] = 5000 + 100 * slot if slot % 3 else 0
    desk.index.write(
        [
            LedgerChange(1, HEADER, ((0, full.tobytes()), (2, page(e1=7000)))),
            LedgerChange(2, HEADER, ((0, page(e5=9000)),)),
        ]
    )
    index = desk.restart()
    wanted = [(1, entry_id) for entry_id in range(1100)]  # More than one look-up of RocksDB takes.
    wanted += [(2, 5), (1, 2049), (3, 0), (2, 4), (1, -1), (1, 2**63 - 1), (1, 1)]
    wanted += [(4, entry_id) for entry_id in range(20)]
    assert index.locations(wanted) == [index.location(*entry) for entry in wanted]
    assert index.locations([]) == []


def test_what_is_not_there_is_not_made_up(desk: Desk) -> None:
    desk.index.write([LedgerChange(7, HEADER, ((0, page(e3=5000)),))])
    for _ in range(2):
        index = desk.index
        assert index.load(6) is index.load(8) is None
        assert (7 in index, 6 in index) == (True, False)
        assert index.location(6, 3) == index.location(8, 3) == 0
        assert slots(index, 6) == slots(index, 8) == {}
        desk.restart()


def test_a_page_is_replaced_and_a_header_leaves_the_entries(desk: Desk) -> None:
    before = page(e0=5000, e1=5100)
    desk.index.write([LedgerChange(1, HEADER, ((0, before),))])
    after = page(e0=5000, e1=9000, e2=9100)
    desk.index.write([LedgerChange(1, None, ((0, after),), {0: before})])
    desk.index.write([LedgerChange(1, IndexHeader(KEY, FENCED), ())])
    index = desk.restart()
    assert slots(index, 1) == {0: 5000, 1: 9000, 2: 9100}
    stored = index.load(1)
    assert stored is not None
    assert stored.header.is_fenced


def test_many_ledgers_are_listed(desk: Desk) -> None:
    desk.index.write([LedgerChange(number, HEADER, ()) for number in range(600)])
    assert sorted(desk.restart().ledger_ids()) == list(range(600))


def test_a_deleted_ledger_is_gone_when_it_was_removed(desk: Desk) -> None:
    desk.index.write([LedgerChange(number, HEADER, ((0, page(e1=5000)),)) for number in (1, 2)])
    for ledger_id in (1, 77):
        desk.index.hide(ledger_id)
    for _ in range(2):
        assert desk.index.ledger_ids() == [2]
        assert desk.index.load(1) is None
        assert desk.index.location(1, 1) == 0
        assert slots(desk.index, 1) == {}
        desk.index.remove_hidden()
    assert desk.restart().ledger_ids() == [2]
    assert desk.index.location(2, 1) == 5000


def test_a_ledger_whose_row_is_lost_is_listed_again() -> None:
    """No deletion leaves locations alone; they were removed, and compaction removed the entries."""
    files = SimFiles(Random(1))
    files.make_durable(Path("/i/current"))
    index = RocksIndex(Path("/i/current"), partial(SimKeyValues, files))
    index.open()
    index.write([LedgerChange(number, HEADER, ((0, page(e1=5000)),)) for number in (1, 2, 3)])
    index.close()
    rows = SimKeyValues(files, Path("/i/current/ledgers"))
    rows.delete([ledger_key(1), ledger_key(2)])
    rows.sync()
    rows.close()
    index = RocksIndex(Path("/i/current"), partial(SimKeyValues, files))
    index.open()
    assert index.ledger_ids() == [3]
    index.hide(3)
    index.remove_hidden({2})
    stored = index.load(1)
    assert stored is not None
    assert (stored.header.is_fenced, stored.header.limbo, stored.last_entry) == (True, True, 1)
    assert (index.ledger_ids(), index.location(1, 1)) == ([1], 5000)
    index.write([LedgerChange(2, HEADER, ())])
    assert index.location(2, 1) == 5000, "replay may have only its last entries"
    index.close()


def test_a_key_that_is_not_a_location_ends_no_search_for_lost_rows() -> None:
    files = SimFiles(Random(1))
    files.make_durable(Path("/i/current"))
    rows = SimKeyValues(files, Path("/i/current/locations"))
    rows.put([(location_key(2, 0)[:9], b"")])
    rows.close()
    index = RocksIndex(Path("/i/current"), partial(SimKeyValues, files))
    index.open()
    index.write([LedgerChange(number, HEADER, ((0, page(e1=5000)),)) for number in (1, 3, 4)])
    index.close()
    rows = SimKeyValues(files, Path("/i/current/ledgers"))
    rows.delete([ledger_key(4)])
    rows.sync()
    rows.close()
    index = RocksIndex(Path("/i/current"), partial(SimKeyValues, files))
    index.open()
    assert index.remove_hidden()
    assert index.ledger_ids() == [1, 3, 4]
    index.close()


def test_a_lost_row_that_finds_no_space_is_found_again() -> None:
    files = SimFiles(Random(1))
    files.make_durable(Path("/i/current"))
    index = RocksIndex(Path("/i/current"), partial(SimKeyValues, files))
    index.open()
    index.write([LedgerChange(1, HEADER, ((0, page(e1=5000)),))])
    index.close()
    rows = SimKeyValues(files, Path("/i/current/ledgers"))
    rows.delete([ledger_key(1)])
    rows.sync()
    rows.close()
    index = RocksIndex(Path("/i/current"), partial(SimKeyValues, files))
    index.open()

    def is_full(operation: str, _path: Path) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files.fault = is_full
    with pytest.raises(OSError, match="No space"):
        index.remove_hidden()
    files.fault = None
    index.remove_hidden()
    assert index.ledger_ids() == [1]
    index.close()


def test_a_ledger_that_comes_again_begins_empty(desk: Desk) -> None:
    desk.index.write([LedgerChange(1, HEADER, ((0, page(e1=5000)), (5, page(e1=5000))))])
    desk.index.hide(1)
    desk.index.remove_hidden()
    desk.index.write([LedgerChange(1, IndexHeader(b"other"), ((0, page(e0=6000)),))])
    for _ in range(2):
        stored = desk.index.load(1)
        assert stored is not None
        assert (stored.header.master_key, stored.last_entry) == (b"other", 0)
        assert slots(desk.index, 1) == {0: 6000}
        desk.restart()


def test_what_is_in_memory_over_it_loses_no_location(desk: Desk) -> None:
    rng = Random(3)
    index = desk.index
    pages = LedgerPages(
        index, clean_pages_max=2, ledgers_max=2, keeps_before=index.writes_locations
    )
    wanted: dict[tuple[int, int], int] = {}
    for step in range(1, 800):
        ledger_id, entry_id = rng.randrange(5), rng.choice([rng.randrange(6000), step % 50])
        state = pages.find(ledger_id) or pages.create(ledger_id, KEY)
        state.page_for_write(entry_id >> 10)[entry_id & 1023] = 5000 + step
        state.last_entry = max(state.last_entry, entry_id)
        wanted[ledger_id, entry_id] = 5000 + step
        if step % 7 == 0:
            checkpoint(pages, index, rng)
    while pages.dirty_ledgers():
        checkpoint(pages, index, rng)
    index = desk.restart()
    held = {(led, e): at for led in index.ledger_ids() for e, at in slots(index, led).items()}
    assert held == wanted


@pytest.mark.parametrize("meanwhile", [0, 1], ids=["", "written to meanwhile"])
def test_a_page_that_could_not_be_written_is_written_whole_the_next_time(
    desk: Desk, meanwhile: int
) -> None:
    """Nobody knows how much of it the disk has; less than a page would rely on that."""
    pages = LedgerPages(
        desk.index,
        clean_pages_max=2,
        ledgers_max=2,
        keeps_before=desk.index.writes_locations,
    )
    state = pages.create(1, KEY)
    for entry_id in range(300):
        state.page_for_write(0)[entry_id] = 5000 + entry_id
    state.last_entry = 299 + meanwhile
    changes = [one for some in pages.take(pages.dirty_ledgers(), pages_max=9) for one in some]
    if meanwhile:
        state.page_for_write(0)[300] = 5300
    pages.put_back(changes)
    for some in pages.take(pages.dirty_ledgers(), pages_max=9):
        desk.index.write(some)
        pages.written(some)
    assert slots(desk.restart(), 1) == {n: 5000 + n for n in range(300 + meanwhile)}


def checkpoint(pages: LedgerPages, index: IndexStore, rng: Random) -> None:
    """Write what is dirty, or fail to; and let a page be written to meanwhile."""
    for changes in pages.take(pages.dirty_ledgers(), pages_max=3):
        if rng.random() < 0.2:
            pages.put_back(changes)
            continue
        state = pages.hot[changes[0].ledger_id]
        if rng.random() < 0.3:
            for number, locations in changes[0].pages[:1]:
                state.page_for_write(number)[0] = array("q", locations)[0]
            for number, slots in changes[0].new[:1]:
                slot, location = next(iter(slots.items()))
                state.page_for_write(number)[slot] = location
        if rng.random() < 0.2:
            index.write(changes[: len(changes) // 2])
            pages.put_back(changes)
            continue
        index.write(changes)
        pages.written(changes)
    pages.drop_idle_ledgers()


def test_a_location_is_switched_if_it_still_is_the_old_one(desk: Desk) -> None:
    locations = page(e0=5000, e1=5100, e2=5200, e3=5300)
    desk.index.write([LedgerChange(1, HEADER, ((0, locations), (2, page(e0=7000))))])
    moves = [
        Move(1, 2048, 7000, 9700),
        Move(1, 1, 5100, 9100),
        Move(1, 3, 1, 9300),  # It is elsewhere by now.
        Move(1, 0, 5000, 9000),
        Move(1, 9, 5900, 9900),  # There is no such entry,
        Move(2, 0, 5000, 9000),  # and no such ledger.
    ]
    desk.index.switch(moves)
    desk.index.switch(moves)
    index = desk.restart()
    assert slots(index, 1) == {0: 9000, 1: 9100, 2: 5200, 3: 5300, 2048: 9700}
    assert index.ledger_ids() == [1]


def test_a_ledger_that_is_deleted_is_not_switched(desk: Desk) -> None:
    desk.index.write([LedgerChange(1, HEADER, ((0, page(e0=5000)),))])
    desk.index.hide(1)
    desk.index.switch([Move(1, 0, 5000, 9000)])
    desk.index.remove_hidden()
    index = desk.restart()
    assert index.ledger_ids() == []
    assert slots(index, 1) == {}
