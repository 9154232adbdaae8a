from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest

from bookied.errors import IndexEntryError, IndexFormatError, IndexTruncatedError
from bookied.storage.index import format as layout
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.ledger_pages import LedgerChange, LedgerPages, Move
from tests.sim.world.disk import SECTOR, PowerCut, SimFiles

A, B = Path("/a"), Path("/b")
HEADER = layout.IndexHeader(b"k" * 20)


@pytest.fixture
def files() -> SimFiles:
    files = SimFiles(Random(1))
    files.make_durable(A, B)
    return files


def opened(files: SimFiles) -> IndexFiles:
    index = IndexFiles(files, [A, B])
    index.avoid([B])
    index.open()
    return index


def page(**slots: int) -> bytes:
    locations = layout.decode_page(b"")
    for name, location in slots.items():
        locations[int(name[1:])] = location
    return locations.tobytes()


def test_a_new_ledger_is_found_again_after_a_power_cut(files: SimFiles) -> None:
    index = opened(files)
    index.write([LedgerChange(1, HEADER, ((0, page(e0=5000, e9=6000)), (3, page(e1=7000))))])
    files.crash()
    index = opened(files)
    assert index.ledger_ids() == [1]
    stored = index.load(1)
    assert stored is not None
    assert (stored.header, stored.pages, stored.last_entry) == (HEADER, 4, 3 * 1024 + 1)
    assert index.location(1, 9) == 6000
    assert index.location(1, 10) == index.location(1, 2000) == index.location(1, 10**9) == 0
    assert (len(files.read(A / "0/1/1.idx")) - 1024) % 8192 == 0
    assert {number for number, _ in index.pages(1)} >= {0, 3}


def test_a_change_of_the_header_leaves_the_entries(files: SimFiles) -> None:
    index = opened(files)
    index.write([LedgerChange(1, HEADER, ((0, page(e0=5000)),))])
    fenced = layout.IndexHeader(b"k" * 20, layout.FENCED)
    index.write([LedgerChange(1, fenced, ())])
    files.crash()
    index = opened(files)
    stored = index.load(1)
    assert stored is not None
    assert stored.header.is_fenced
    assert index.location(1, 0) == 5000


def test_there_is_no_file_before_all_of_it_is_on_disk(files: SimFiles) -> None:
    index = opened(files)
    index._writes._publish = lambda created: None  # type: ignore[method-assign]
    index.write([LedgerChange(1, HEADER, ((0, page(e0=5000)),))])
    assert files.list(A / "0/1") == ["1.idx.tmp"]
    assert opened(files).ledger_ids() == []
    assert files.list(A / "0/1") == []


@pytest.mark.parametrize("seed", range(200))
def test_a_file_that_grows_ends_with_a_complete_page_wherever_the_power_goes(seed: int) -> None:
    files = SimFiles(Random(seed))
    files.make_durable(A, B)
    index = opened(files)
    ledgers = (1, 2, 3)
    index.write([LedgerChange(number, HEADER, ((0, page(e0=5000)),)) for number in ledgers])
    files.cut_at = files.operations + 1 + seed % 17
    more = ((0, page(e0=5000, e1=6000)), (1, page(e0=7000)), (4, page(e9=8000)))
    with contextlib.suppress(PowerCut):
        index.write([LedgerChange(number, HEADER, more) for number in ledgers])
    files.crash()
    index = opened(files)
    for number in ledgers:
        stored = index.load(number)
        assert stored is not None
        assert stored.doubt is None
        assert index.location(number, 0) == 5000


@pytest.mark.parametrize("has_failed", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_growth_that_was_not_synced_when_a_process_died_or_a_disk_failed_is_synced_first(
    files: SimFiles, seed: int, *, has_failed: bool
) -> None:
    files.rng.seed(seed)
    index = opened(files)
    index.write([LedgerChange(1, HEADER, ((0, page(e0=5000)),))])
    more = [LedgerChange(1, None, ((1, page(e0=6000)),))]
    files.cut_at = None if has_failed else files.operations + 2
    files.fault = lambda operation, _: OSError("broken") if operation == "sync" else None
    with pytest.raises((OSError, PowerCut)):
        index.write(more)
    if not has_failed:
        files.kill()
        index = opened(files)
        assert index.load(1) is not None

    def cut_after_write(operation: str, _: Path) -> None:
        files.cut_at = files.operations + 1 if operation == "write" else None

    files.fault = cut_after_write
    with pytest.raises(PowerCut):
        index.write(more)
    files.crash()
    files.fault = None
    stored = opened(files).load(1)
    assert stored is not None
    assert stored.doubt is None


def test_what_is_written_to_a_damaged_file_leaves_the_page_it_ends_in(files: SimFiles) -> None:
    index = opened(files)
    location = 0x7F000000_00001000
    index.write([LedgerChange(1, HEADER, ((0, page(e0=5000)), (1, page(e0=location))))])
    file = files.open_update(A / "0/1/1.idx")
    file.truncate(layout.page_offset(1) + 100)
    file.close()
    index = opened(files)
    fenced = layout.IndexHeader(b"k" * 20, layout.FENCED)
    assert index.write([LedgerChange(1, fenced, ())]).keys() == {1}
    stored = opened(files).load(1)
    assert stored is not None
    assert stored.doubt is not None
    assert stored.header.is_fenced
    assert opened(files).location(1, 1024) == location


def test_a_damaged_file_that_moves_to_where_there_is_space_stays_damaged(files: SimFiles) -> None:
    index = opened(files)
    index.write([LedgerChange(1, HEADER, ((0, page(e0=5000)), (1, page(e0=6000))))])
    file = files.open_update(A / "0/1/1.idx")
    file.truncate(layout.page_offset(1) + 100)
    file.close()
    files.space_max[A] = files.used(A)
    index = IndexFiles(files, [A, B])
    index.open()
    assert index.write([LedgerChange(1, None, ((2, page(e0=7000)),))]).keys() == {1}
    assert files.list(B / "0/1") == ["1.idx"]
    index = opened(files)
    stored = index.load(1)
    assert stored is not None
    assert stored.doubt is not None
    assert (stored.header, index.location(1, 0), index.location(1, 2048)) == (HEADER, 5000, 7000)


def test_many_ledgers_are_written_with_few_files_open(files: SimFiles) -> None:
    index = opened(files)
    index.write([LedgerChange(number, HEADER, ((0, page(e0=5000)),)) for number in range(300)])
    files.crash()
    assert sorted(opened(files).ledger_ids()) == list(range(300))


def test_a_file_on_its_way_elsewhere_arrives(files: SimFiles) -> None:
    index = opened(files)
    index.write([LedgerChange(number, HEADER, ()) for number in (1, 2)])
    files.mkdirs(B / "0/1")
    files.mkdirs(B / "0/2")
    for number in (1, 2):
        data = files.read(A / f"0/{number}/{number}.idx")
        files.write_atomic(B / f"0/{number}/{number}.idx.rloc", data)
    files.remove(A / "0/2/2.idx")
    index = opened(files)
    assert index.path(1) == A / "0/1/1.idx"
    assert index.path(2) == B / "0/2/2.idx"
    assert (files.list(B / "0/1"), files.list(B / "0/2")) == ([], ["2.idx"])


def test_a_file_cut_within_its_header_is_damage(files: SimFiles) -> None:
    files.mkdirs(B / "0/1")
    files.write_atomic(B / "0/1/1.idx", b"BKLE")
    index = opened(files)
    with pytest.raises(IndexTruncatedError, match=r"1\.idx at offset 4"):
        index.load(1)
    assert not index.begin_anew(1)
    assert index.ledger_ids() == [1]


def test_an_empty_file_is_made_anew_when_told_so(files: SimFiles) -> None:
    files.mkdirs(B / "0/1")
    files.write_atomic(B / "0/1/1.idx", b"")
    index = opened(files)
    with pytest.raises(IndexTruncatedError):
        index.load(1)
    assert index.begin_anew(1)
    assert index.load(1) is None
    index.write([LedgerChange(1, HEADER, ((0, page(e0=5000)),))])
    assert files.list(B / "0/1") == ["1.idx"]
    assert opened(files).location(1, 0) == 5000


def test_damage_is_named(files: SimFiles) -> None:
    index = opened(files)
    index.write([LedgerChange(1, HEADER, ((0, page(e0=5000, e1=3, e2=-1)),))])
    with pytest.raises(IndexEntryError, match="location 0x3") as caught:
        index.location(1, 1)
    assert (caught.value.path, caught.value.offset) == (A / "0/1/1.idx", 1032)
    with pytest.raises(IndexEntryError):
        index.location(1, 2)
    with pytest.raises(IndexEntryError, match="location 0x3"):
        index.locations([(1, entry_id) for entry_id in range(20)])
    file = files.open_update(A / "0/1/1.idx")
    file.write_at(0, b"XXXX")
    with pytest.raises(IndexFormatError):
        opened(files).load(1)


def test_ledgers_that_cannot_be_loaded_are_left_out_of_many(files: SimFiles) -> None:
    index = opened(files)
    index.write([LedgerChange(one, HEADER, ((0, page(e0=5000)),)) for one in range(1, 6)])
    files.open_update(A / "0/1/1.idx").write_at(0, b"XXXX")
    files.open_update(A / "0/2/2.idx").truncate(100)
    files.mkdirs(B / "0/3")
    files.write_atomic(B / "0/3/3.idx", files.read(A / "0/3/3.idx"))
    index = opened(files)
    files.remove(A / "0/4/4.idx")
    assert [ledger_id for ledger_id, _ in index.load_many(range(8))] == [5]
    assert index.open_count == 0


def test_pages_that_cannot_be_read_are_left_out_of_many(files: SimFiles) -> None:
    index = opened(files)
    changes = [LedgerChange(one, HEADER, ((0, page(e0=5000 + one)),)) for one in range(1, 4)]
    index.write(changes)
    files.open_update(A / "0/1/1.idx").truncate(5000)
    files.remove(A / "0/2/2.idx")
    (found,) = index.load_pages([(one, 0) for one in range(5)] + [(3, 1), (3, 1 << 60)])
    assert (found[0], found[1], found[2][0]) == (3, 0, 5003)
    assert index.open_count == 0


def test_other_files_are_left_alone(files: SimFiles) -> None:
    files.mkdirs(A / "0/1")
    files.mkdirs(A / "zz/1")
    for name in ("0/1/x.idx", "0/1/readme", "zz/1/1.idx", "VERSION"):
        files.write_atomic(A / name, b"")
    assert opened(files).ledger_ids() == []
    assert sorted(files.list(A / "0/1")) == ["readme", "x.idx"]


class TestLedgerPages:
    """What is in memory, over real index files on a simulated disk."""

    @pytest.fixture
    def index(self, files: SimFiles) -> IndexFiles:
        return opened(files)

    @pytest.fixture
    def pages(self, index: IndexFiles) -> LedgerPages:
        return LedgerPages(index, clean_pages_max=2, ledgers_max=2)

    def test_new_headers_are_of_the_version_asked_for(self, index: IndexFiles) -> None:
        for version in (0, 1):
            new = LedgerPages(index, clean_pages_max=2, ledgers_max=2, header_version=version)
            lac = version.to_bytes(8, "big") + b"L" * 12
            new.create(version, b"key").explicit_lac = lac
            self.flush(new, index)
        kept = LedgerPages(index, clean_pages_max=2, ledgers_max=2)
        states = [kept.find(number) for number in (0, 1)]
        assert [state and (state.version, state.explicit_lac) for state in states] == [
            (0, None),
            (1, lac),
        ]

    def flush(self, pages: LedgerPages, index: IndexFiles) -> None:
        for changes in pages.take(pages.dirty_ledgers(), pages_max=3):
            index.write(changes)
            pages.written(changes)

    def test_pages_come_and_go_without_losing_a_location(
        self, pages: LedgerPages, index: IndexFiles
    ) -> None:
        rng = Random(3)
        wanted: dict[tuple[int, int], int] = {}
        for step in range(400):
            ledger_id, entry_id = rng.randrange(5), rng.randrange(6000)
            state = pages.find(ledger_id) or pages.create(ledger_id, b"k" * 20)
            state.page_for_write(entry_id >> 10)[entry_id & 1023] = 5000 + step
            state.last_entry = max(state.last_entry, entry_id)
            wanted[ledger_id, entry_id] = 5000 + step
            if step % 7 == 0:
                self.flush(pages, index)
                pages.drop_idle_ledgers()
                assert pages.dirty_page_count == 0
                assert sum(len(state.pages) for state in pages.hot.values()) <= 2
                assert len(pages.hot) <= 2
        for (ledger_id, entry_id), location in wanted.items():
            found = pages.find(ledger_id)
            assert found is not None
            in_memory = found.location(entry_id)
            assert location == (
                index.location(ledger_id, entry_id) if in_memory is None else in_memory
            )

    def test_what_could_not_be_written_stays_dirty(
        self, pages: LedgerPages, index: IndexFiles
    ) -> None:
        state = pages.create(1, b"k")
        for page_no in range(5):
            state.page_for_write(page_no)[0] = 5000 + page_no
        for changes in pages.take([1], pages_max=3):
            pages.put_back(changes)
            break
        assert pages.dirty_ledgers() == [1]
        assert pages.dirty_page_count == 5
        self.flush(pages, index)
        assert pages.dirty_page_count == 0
        assert [index.location(1, 1024 * page_no) for page_no in range(5)] == list(
            range(5000, 5005)
        )

    def test_writing_goes_on_while_a_checkpoint_is_under_way(
        self, pages: LedgerPages, index: IndexFiles
    ) -> None:
        state = pages.create(1, b"k")
        state.page_for_write(0)[0] = 5000
        (changes,) = pages.take([1], pages_max=10)
        state.page_for_write(0)[1] = 6000
        index.write(changes)
        pages.written(changes)
        assert (index.location(1, 0), index.location(1, 1)) == (5000, 0)
        assert not state.is_clean
        self.flush(pages, index)
        assert index.location(1, 1) == 6000
        assert state.is_clean

    def test_there_is_one_state_of_a_ledger_even_if_it_was_dropped(
        self, pages: LedgerPages, index: IndexFiles
    ) -> None:
        held = pages.create(1, b"k")
        for ledger_id in (2, 3, 4):
            pages.create(ledger_id, b"k")
        self.flush(pages, index)
        pages.drop_idle_ledgers()
        assert 1 not in pages.hot
        assert pages.find(1) is held
        assert pages.hot[1] is held

    def test_a_state_that_was_dropped_can_still_be_written_to(
        self, pages: LedgerPages, index: IndexFiles
    ) -> None:
        held = pages.create(1, b"k")
        for ledger_id in (2, 3, 4):
            pages.create(ledger_id, b"k")
        self.flush(pages, index)
        pages.drop_idle_ledgers()
        held.page_for_write(0)[3] = 5000
        self.flush(pages, index)
        assert index.location(1, 3) == 5000
        pages.remove(1)
        with pytest.raises(AssertionError, match="deleted"):
            held.page_for_write(0)

    def test_a_key_counts_as_logged_once_the_file_has_it(
        self, pages: LedgerPages, index: IndexFiles
    ) -> None:
        state = pages.create(1, b"k")
        assert not state.key_logged
        self.flush(pages, index)
        assert state.key_logged
        again = LedgerPages(index, clean_pages_max=2, ledgers_max=2).find(1)
        assert again is not None
        assert again.key_logged

    def test_unknown_state_bits_are_kept(
        self, files: SimFiles, pages: LedgerPages, index: IndexFiles
    ) -> None:
        bits = layout.IndexHeader(b"k", 0x50, version=0)
        index.write([LedgerChange(1, bits, ())])
        state = pages.find(1)
        assert state is not None
        assert not state.fenced
        state.fenced = True
        pages.header_changed(state)
        self.flush(pages, index)
        stored = index.load(1)
        assert stored is not None
        assert (stored.header.state_bits, stored.header.version) == (0x51, 0)

    def test_a_deleted_ledger_leaves_nothing(self, pages: LedgerPages, index: IndexFiles) -> None:
        state = pages.create(1, b"k")
        for page_no in range(4):
            state.page_for_write(page_no)[0] = 5000
        self.flush(pages, index)
        state.page_for_write(0)[0] = 6000
        pages.remove(1)
        index.hide(1)
        assert pages.find(1) is None
        assert (pages.dirty_page_count, pages.dirty_ledgers()) == (0, [])
        self.flush(pages, index)
        pages.create(1, b"other")
        self.flush(pages, index)
        stored = index.load(1)
        assert stored is not None
        assert (stored.header.master_key, stored.last_entry) == (b"other", -1)


@pytest.mark.parametrize("last", [0, 1022, 1023, 1024, 2046, 2047, 2048])
def test_the_last_entry_is_found_at_either_end_of_a_page(files: SimFiles, last: int) -> None:
    number, slot = divmod(last, layout.PAGE_SLOTS)
    full = [(n, page(e0=5000, e1023=6000)) for n in range(number)]
    index = opened(files)
    index.write([LedgerChange(1, HEADER, (*full, (number, page(**{f"e{slot}": 7000}))))])
    files.crash()
    stored = opened(files).load(1)
    assert stored is not None
    assert stored.last_entry == last


def test_the_last_entry_is_found_before_empty_pages_and_holes(files: SimFiles) -> None:
    index = opened(files)
    index.write([LedgerChange(1, HEADER, ((0, page(e7=5000)), (900, page())))])
    stored = index.load(1)
    assert stored is not None
    assert (stored.last_entry, stored.pages) == (7, 901)
    index.write([LedgerChange(2, HEADER, ())])
    empty = index.load(2)
    assert empty is not None
    assert (empty.last_entry, empty.pages) == (-1, 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_removed_file_stays_away_once_its_ledger_has_another(seed: int) -> None:
    """A process that dies before the removal's name is synced leaves that to the next one."""
    files = SimFiles(Random(seed))
    files.make_durable(A, B)
    index = opened(files)
    index.write([LedgerChange(1, HEADER, ((0, page(e0=5000)),))])
    index.hide(1)
    files.fault = lambda operation, path: OSError(5, "no") if operation == "sync_dir" else None
    with pytest.raises(OSError, match="no"):
        index.remove_hidden()
    files.fault = None
    files.kill()
    index = IndexFiles(files, [A, B])
    index.avoid([A])
    index.open()
    index.write([LedgerChange(1, HEADER, ((0, page(e0=6000)),))])
    files.crash()
    index = opened(files)
    assert index.location(1, 0) == 6000
    assert not files.exists(A / "0/1/1.idx")


# Compaction


MOVES = [Move(1, 0, 5000, 9000), Move(1, 1, 5100, 9100), Move(1, 3, 1, 9300), Move(2, 0, 1, 2)]


def test_a_location_is_switched_if_it_still_is_the_old_one_and_durably(files: SimFiles) -> None:
    index = opened(files)
    slots = page(e0=5000, e1=5100, e2=5200, e3=5300)
    index.write([LedgerChange(1, HEADER, ((0, slots), (2, page(e0=7000))))])
    index.switch([Move(1, 2048, 7000, 9700), *MOVES])
    files.crash()
    index = opened(files)
    assert [index.location(1, entry) for entry in (0, 1, 2, 3)] == [9000, 9100, 5200, 5300]
    assert index.location(1, 2048) == 9700
    assert index.ledger_ids() == [1]


def test_a_switch_that_could_not_be_synced_is_made_again(files: SimFiles) -> None:
    index = opened(files)
    index.write([LedgerChange(1, HEADER, ((0, page(e0=5000, e1=5100)),))])
    files.fault = lambda operation, path: OSError(5, "no") if operation == "sync" else None
    files.rng = Random(3)
    with pytest.raises(OSError, match="no"):
        index.switch(MOVES)
    files.fault = None
    index.switch(MOVES)
    files.crash()
    index = opened(files)
    assert [index.location(1, entry) for entry in (0, 1)] == [9000, 9100]


@pytest.mark.parametrize("seed", range(30))
def test_a_power_cut_leaves_each_location_old_or_new(seed: int) -> None:
    files = SimFiles(Random(seed))
    files.tear_bytes = SECTOR
    files.make_durable(A)
    index = IndexFiles(files, [A])
    slots = page(**{f"e{entry}": 5000 + entry for entry in range(1024)})
    index.write([LedgerChange(1, HEADER, ((0, slots),))])
    files.cut_at = files.operations + 1 + seed % 3
    with contextlib.suppress(PowerCut):
        index.switch([Move(1, entry, 5000 + entry, 9000 + entry) for entry in range(1024)])
    files.crash()
    index = IndexFiles(files, [A])
    index.open()
    for entry in range(1024):
        assert index.location(1, entry) in {5000 + entry, 9000 + entry}
