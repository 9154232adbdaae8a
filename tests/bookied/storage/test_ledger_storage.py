from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail

from bookied.errors import (
    CorruptError,
    DiskWriteFailedError,
    IndexEntryError,
    IndexFormatError,
    StorageError,
    return_code,
)
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.entrylog.reader import READ_NOW_BYTES_MAX
from bookied.storage.files.files import RealFiles
from bookied.storage.index.file_names import relative_path
from bookied.storage.index.format import HEADER_BYTES, PAGE_SLOTS
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.ledger_pages import CachedLedger, Move
from bookied.storage.journal.format import ledger_key_record
from bookied.storage.journal.mark import LastMark
from bookied.storage.ledger_storage.reads import NeedsDisk
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents, StorageLimits
from bookied.storage.replay import do_now, run_now
from bookied.storage.storages import Storages
from tests.bookied.worlds.storage_world import Blocking, JournalPosition, Turns
from tests.sim.world.disk import SimFiles
from tests.support.stored_entries import stored_entries
from wire.codes import ReturnCode
from wire.errors import NoSuchEntryError
from wire.frames.entry_packets import Packets

L0, L1, I0 = Path("/l0/current"), Path("/l1/current"), Path("/i0/current")
SMALL = StorageLimits(
    cache_bytes=3000, dirty_pages_max=8, clean_pages_max=2, ledgers_max=3, checkpoint_bytes=20_000
)


def packet(ledger: int, entry: int, size: int = 60, lac: int | None = None) -> bytes:
    known = entry - 1 if lac is None else lac
    return struct.pack(">qqqq", ledger, entry, known, 0) + b"%d/%d." % (ledger, entry) * size


class Desk:
    """A storage on a simulated disk, every step of it done at once."""

    def __init__(self, limits: StorageLimits = SMALL, files: SimFiles | None = None) -> None:
        self.files = files or SimFiles(Random(1))
        self.files.make_durable(L0, L1, I0)
        self.limits = limits
        self.fatal: list[DiskWriteFailedError] = []
        self.storage = self.start()

    def start(self) -> LedgerStorage:
        rng = Random(2)
        self.storage = LedgerStorage(
            self.files,
            [L0, L1],
            IndexFiles(self.files, [I0], rng=rng),
            events=StorageEvents(on_fatal=self.fatal.append),
            rng=rng,
            limits=self.limits,
            log_settings=LogSettings(size_bytes_max=9000),
        )
        self.storages = Storages(self.files, [self.storage])
        self.storage.open()
        return self.storage

    def flush(self) -> None:
        run_now(self.storage.flush(do_now))

    def restart(self) -> LedgerStorage:
        run_now(self.storages.stop([], do_now))
        self.files.crash()
        return self.start()

    def ledger(self, ledger_id: int) -> CachedLedger:
        state = self.storage.ledgers.lookup(ledger_id)
        return state or self.storage.ledgers.create(ledger_id, b"k" * 20)

    def add(self, ledger_id: int, entry_id: int, size: int = 60) -> bytes:
        sent = packet(ledger_id, entry_id, size)
        self.storage.adds.add(self.ledger(ledger_id), entry_id, sent)
        return sent

    def read(self, ledger_id: int, entry_id: int) -> bytes | None:
        state = self.storage.ledgers.lookup(ledger_id)
        assert state is not None
        found = self.storage.reads.read_memory(state, entry_id)
        if isinstance(found, NeedsDisk):
            return self.storage.reads.fetch(found, entry_id)
        return found


def test_entries_are_read_from_memory_then_from_disk_then_after_a_restart() -> None:
    desk = Desk()
    sent = {
        (ledger, entry): desk.add(ledger, entry) for entry in range(60) for ledger in (1, 2, 300)
    }
    state = desk.ledger(1)
    assert isinstance(desk.storage.reads.read_memory(state, 59), bytes)
    assert {at: desk.read(*at) for at in sent} == sent
    desk.flush()
    assert isinstance(desk.storage.reads.read_memory(state, 0), NeedsDisk)
    assert {at: desk.read(*at) for at in sent} == sent
    desk.restart()
    assert {at: desk.read(*at) for at in sent} == sent
    assert sorted(desk.storage.ledgers.ids()) == [1, 2, 300]
    assert stored_entries(desk.storage, 300) == list(range(60))


@pytest.mark.parametrize("zeroed", [range(5, 6), range(3), range(1, 29), range(1020, 1029)])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_slots_that_read_zero_are_damage_where_the_log_has_their_entries(
    zeroed: range, *, is_restarted: bool
) -> None:
    """A recovery would take "no such entry" as proof; another copy heals damage."""
    desk = Desk()
    for entry in range(1100):
        for ledger in (1, 2):
            desk.add(ledger, entry, 2)
    desk.restart()
    file = desk.files.open_update(I0 / relative_path(1))
    file.write_at(HEADER_BYTES + 8 * zeroed.start, bytes(8 * len(zeroed)))
    file.sync()
    file.close()
    if is_restarted:
        desk.restart()
    for entry in zeroed:
        with pytest.raises(IndexEntryError, match=f"no location of entry {entry}, which is in log"):
            desk.read(1, entry)
    assert desk.read(1, zeroed.stop) == packet(1, zeroed.stop, 2)
    assert desk.read(2, zeroed.start) == packet(2, zeroed.start, 2)


def test_entries_that_other_bookies_have_are_missing() -> None:
    desk = Desk()
    alike = struct.pack(">iqq", 40, 1, 4) * 3
    for entry in range(0, 90, 3):
        desk.add(1, entry)
        desk.add(2, entry + 1)
        desk.storage.adds.add(desk.ledger(3), 1, struct.pack(">qqq", 3, 1, 4) + alike)
    assert desk.read(1, 4) is None
    for _ in range(2):
        desk.restart()
        for entry in (1, 2, 4, 85):
            with pytest.raises(NoSuchEntryError):
                desk.read(1, entry)
        assert desk.read(1, 88) is None, "behind the last one"
    desk.add(1, 4)
    assert desk.read(1, 4) == packet(1, 4)
    with pytest.raises(NoSuchEntryError):
        desk.read(1, 5)


def test_a_ledger_made_again_has_no_entry_of_its_predecessor() -> None:
    """Its index file is still there while a checkpoint is under way."""
    desk = Desk()
    for entry in range(9):
        desk.add(1, entry)
    desk.flush()
    flushing = Turns(desk.storage.flush(Blocking))
    desk.storage.ledgers.delete(1)
    desk.add(1, 8)
    assert desk.read(1, 3) is None
    flushing.finish()
    desk.flush()
    assert desk.read(1, 8) == packet(1, 8)


def test_logs_that_begin_after_a_collection_are_not_finished_for_it() -> None:
    """What points into them need not be on disk, and one of them is still written to."""
    desk = Desk()
    desk.add(1, 0)
    begun = desk.storage.logs.begun()
    for entry in range(1, 100):
        desk.add(1, entry)
    desk.flush()
    later = desk.storage.logs.begun()
    assert later.active_log_id > 1
    assert desk.storage.logs.finished(begun) == {}
    assert sorted(desk.storage.logs.finished(later)) == [*range(later.active_log_id)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([1, 1, 1, 2]), st.integers(0, 200)),
        st.sampled_from(["write", "flush", "restart", "again"]),
    ),
    max_size=40,
)


@given(STEPS)
def test_rows_are_what_reads_of_the_entries_one_by_one_give(
    steps: list[tuple[int, int] | str],
) -> None:
    desk, sent = Desk(), dict[int, list[bytes]]({1: [], 2: []})
    for ledger in sent:
        sent[ledger].append(desk.add(ledger, 0))
    for step in steps:
        if step == "write":
            desk.storage.adds.write_out()
        elif step == "flush":
            desk.flush()
        elif step == "restart":
            desk.restart()
        elif step == "again":  # The newer one counts.
            sent[1][-1] = desk.add(1, len(sent[1]) - 1, 7)
        else:
            assert isinstance(step, tuple)
            ledger, size = step
            sent[ledger].append(desk.add(ledger, len(sent[ledger]), size))
        for ledger, packets in sent.items():
            require_rows(desk, ledger, packets)


def require_rows(desk: Desk, ledger: int, packets: list[bytes]) -> None:
    state = desk.ledger(ledger)
    for entry, packet_ in enumerate(packets):
        desk.read(ledger, entry)  # Has the index's page there after a restart.
        on_disk = desk.storage.reads.rows_on_disk(state, entry, 5)
        for rows in (
            desk.storage.reads.read_rows(state, entry, 5, 1 << 30),
            on_disk(1 << 30, 0) if on_disk is not None else None,
        ):
            if rows is not None:
                found = list(Packets(b"".join(rows.pieces), rows.entries))
                assert found == packets[entry : entry + len(found)]
        if isinstance(desk.storage._cache.get(state.location(entry) or 0, ledger, entry), bytes):
            rows = desk.storage.reads.read_rows(state, entry, 5, 1 << 30)
            assert rows is not None, packet_


def need(desk: Desk, entry_id: int) -> NeedsDisk:
    found = desk.storage.reads.read_memory(desk.ledger(1), entry_id)
    assert isinstance(found, NeedsDisk)
    return found


def test_an_index_page_that_one_read_needed_is_there_for_the_next() -> None:
    desk = Desk()
    sent = {entry: desk.add(1, entry) for entry in (*range(10), PAGE_SLOTS)}
    desk.restart()
    needed = need(desk, 3)
    assert needed.location == 0
    assert desk.storage.reads.fetch(needed, 3) == sent[3]
    found = desk.storage.reads.read_memory(desk.ledger(1), 4)
    assert found == sent[4] or (isinstance(found, NeedsDisk) and found.location)


def test_the_last_index_page_is_there_once_a_ledger_was_looked_up() -> None:
    desk = Desk()
    sent = [desk.add(1, entry) for entry in range(10)]
    desk.restart()
    needed = need(desk, 3)
    assert needed.location
    assert desk.storage.reads.fetch(needed, 3) == sent[3]


@pytest.mark.parametrize("taken", [False, True], ids=["read-before", "kept-before"])
def test_a_page_that_is_written_to_is_read_again(*, taken: bool) -> None:
    desk = Desk()
    desk.limits = attrs.evolve(desk.limits, clean_pages_max=0)
    desk.add(1, 3)
    desk.add(1, PAGE_SLOTS)
    desk.restart()
    desk.storage.reads.fetch(need(desk, 3), 3)
    if taken:
        assert desk.ledger(1).location(3) is None
        need_or_bytes = desk.storage.reads.read_memory(desk.ledger(1), 3)
        assert need_or_bytes is not None
        assert desk.ledger(1).location(3)
    newer = desk.add(1, 3, size=90)
    desk.flush()
    assert desk.ledger(1).pages == {}, "clean pages are not kept here"
    assert desk.read(1, 3) == newer


@pytest.mark.parametrize("taken", [False, True], ids=["read-before", "kept-before"])
def test_a_page_whose_entry_moves_is_read_again(*, taken: bool) -> None:
    desk = Desk()
    desk.add(1, 3)
    desk.add(1, 4)
    desk.restart()
    state = desk.ledger(1)
    desk.storage.reads.fetch(need(desk, 3), 3)
    if taken:
        desk.storage.reads.read_memory(state, 3)
    old, new = (desk.storage._index.location(1, entry) for entry in (3, 4))
    run_now(desk.storage.relocation.switch([Move(1, 3, old, new)], do_now))
    desk.storage.reads.read_memory(state, 3)
    assert state.location(3) in {None, new}


def test_moves_of_a_switch_that_failed_are_made_with_the_next_ones() -> None:
    desk = Desk()
    for entry in range(4):
        desk.add(1, entry)
    desk.flush()
    places = [desk.storage._index.location(1, entry) for entry in range(4)]
    relocation = desk.storage.relocation

    def no_disk(_work: Callable[[], Any]) -> Deferred[Any]:
        return fail(OSError(errno.EIO, "no disk"))

    with pytest.raises(OSError, match="no disk"):
        run_now(relocation.switch([Move(1, 0, places[0], places[2])], no_disk))
    run_now(relocation.switch([Move(1, 1, places[1], places[3])], do_now))
    assert relocation.locations([(1, 0), (1, 1)]) == places[2:]


def test_pages_kept_for_readers_go_with_their_ledger() -> None:
    desk = Desk()
    desk.add(1, 3)
    desk.restart()
    desk.storage.reads.fetch(need(desk, 3), 3)
    desk.storage.reads.read_memory(desk.ledger(1), 3)
    desk.storage.ledgers.delete(1)
    newer = desk.add(1, 5)
    desk.flush()
    with pytest.raises(NoSuchEntryError):
        desk.read(1, 3)
    assert desk.read(1, 5) == newer


def test_what_the_page_cache_holds_needs_no_disk(tmp_path: Path) -> None:
    limits = StorageLimits(cache_bytes=0)
    files = RealFiles()
    index = IndexFiles(files, [tmp_path])
    storage = LedgerStorage(
        files, [tmp_path], index, events=StorageEvents(on_fatal=print), limits=limits
    )
    storage.open()
    state = storage.ledgers.create(1, b"k" * 20)
    sizes = [15, 500, 1250, 25_000, 75_000, 15]
    sent = [packet(1, entry, size) for entry, size in enumerate(sizes)]
    for entry, each in enumerate(sent):
        storage.adds.add(state, entry, each)
    run_now(storage.flush(do_now))
    found = storage.reads.read_memory(state, 0)
    assert isinstance(found, NeedsDisk), "its log is not open yet"
    assert storage.reads.fetch(found, 0) == sent[0]
    for entry, each in enumerate(sent):
        storage.reads.read_disk(0, 1, entry)  # Whatever the disk did before, it is in memory now.
        found = storage.reads.read_memory(state, entry)
        if len(each) > READ_NOW_BYTES_MAX or not HAS_NO_WAIT:
            assert isinstance(found, NeedsDisk)
        else:
            assert found == each
    storage.abandon()


HAS_NO_WAIT = hasattr(os, "RWF_NOWAIT")


def test_what_was_never_added_is_not_there() -> None:
    desk = Desk()
    desk.add(1, 5)
    desk.add(1, 2000)
    for _ in range(2):
        state = desk.storage.ledgers.lookup(1)
        assert state is not None
        assert state.last_entry == 2000
        for entry in (0, 4, 6, 1999):
            with_disk = desk.storage.reads.read_memory(state, entry)
            if isinstance(with_disk, NeedsDisk):
                with pytest.raises(NoSuchEntryError):
                    desk.storage.reads.fetch(with_disk, entry)
            else:
                assert with_disk is None
        assert desk.storage.reads.read_memory(state, 2001) is None
        assert desk.storage.reads.read_memory(state, -1) is None
        assert desk.storage.ledgers.lookup(2) is None
        assert stored_entries(desk.storage, 1) == [5, 2000]
        assert stored_entries(desk.storage, 2) == []
        desk.restart()


def test_the_newest_of_two_entries_with_one_id_counts() -> None:
    desk = Desk()
    desk.add(1, 0, 10)
    newest = desk.add(1, 0, 20)
    assert desk.read(1, 0) == newest
    desk.restart()
    assert desk.read(1, 0) == newest
    newest = desk.add(1, 0, 30)
    desk.restart()
    assert desk.read(1, 0) == newest
    assert stored_entries(desk.storage, 1) == [0]


def test_a_clean_stop_leaves_fence_key_and_lac_in_the_index_without_any_entry() -> None:
    desk = Desk()
    lac = struct.pack(">qqi", 7, 41, 99)
    desk.storage.ledgers.set_fenced(desk.storage.ledgers.create(7, b"secret" * 3))
    desk.storage.ledgers.set_explicit_lac(desk.ledger(7), lac)
    storage = desk.restart()
    state = storage.ledgers.lookup(7)
    assert state is not None
    assert (state.master_key, state.fenced, state.explicit_lac) == (b"secret" * 3, True, lac)
    assert (state.lac, state.last_entry, state.key_logged) == (41, -1, True)


def test_the_highest_lac_comes_back() -> None:
    desk = Desk()
    state = desk.ledger(1)
    for entry in range(5):
        desk.storage.adds.add(state, entry, packet(1, entry, lac=entry - 1))
    assert state.lac == 3
    assert desk.restart().ledgers.lookup(1).lac == 3  # type: ignore[union-attr]
    desk.storage.ledgers.set_explicit_lac(desk.ledger(1), struct.pack(">qqi", 1, 4, 0))
    assert desk.restart().ledgers.lookup(1).lac == 4  # type: ignore[union-attr]
    desk.storage.ledgers.set_explicit_lac(desk.ledger(1), struct.pack(">qqi", 1, 2, 0))
    assert desk.ledger(1).lac == 4
    assert desk.ledger(1).explicit_lac == struct.pack(">qqi", 1, 2, 0)


def test_only_an_empty_key_can_be_replaced() -> None:
    desk = Desk()
    zeros = desk.storage.ledgers.create(1, bytes(20))
    empty = desk.storage.ledgers.create(2, b"")
    real = desk.storage.ledgers.create(3, b"k" * 20)
    assert desk.storage.ledgers.adopt_key(zeros, b"new")
    assert desk.storage.ledgers.adopt_key(empty, b"new")
    assert not desk.storage.ledgers.adopt_key(real, b"new")
    assert desk.storage.ledgers.key_record(zeros) == ledger_key_record(1, b"new")
    storage = desk.restart()
    keys = [storage.ledgers.lookup(number).master_key for number in (1, 2, 3)]  # type: ignore[union-attr]
    assert keys == [b"new", b"new", b"k" * 20]


def test_a_key_that_replaces_an_empty_one_goes_into_the_journal() -> None:
    """A power cut before the next checkpoint would leave the ledger to the next key that comes."""
    desk = Desk()
    state = desk.storage.ledgers.create(1, b"")
    desk.flush()
    assert state.key_logged
    assert desk.storage.ledgers.adopt_key(state, b"new")
    assert not state.key_logged
    desk.flush()
    assert state.key_logged


def test_memory_stays_bounded_however_much_is_added() -> None:
    desk = Desk()
    rng = Random(5)
    for step in range(3000):
        desk.add(rng.randrange(40), step, 20)
        if desk.storage.needs_checkpoint:
            desk.flush()
            storage = desk.storage
            assert len(storage.hot) <= SMALL.ledgers_max
            assert sum(len(state.pages) for state in storage.hot.values()) <= SMALL.clean_pages_max
            assert storage._cache.size_bytes <= SMALL.cache_bytes + 9000
            assert storage.unwritten_bytes == 0
    assert not desk.fatal


def test_unwritten_bytes_count_pages_beyond_the_limit() -> None:
    desk = Desk()
    for ledger in range(20):
        desk.add(ledger, 0)
    assert desk.storage.unwritten_bytes >= (20 - SMALL.dirty_pages_max) * 8192
    desk.flush()
    assert desk.storage.unwritten_bytes == 0


def test_a_checkpoint_is_asked_for_by_bytes() -> None:
    desk = Desk()
    while not desk.storage.needs_checkpoint:
        desk.add(1, 0, 100)
    assert desk.storage._changes.entry_bytes >= SMALL.checkpoint_bytes
    desk.flush()
    assert not desk.storage.needs_checkpoint
    assert not desk.storage.has_changes
    desk.add(1, 1)
    assert desk.storage.has_changes


def test_the_mark_that_is_written_was_taken_before_the_flush_began() -> None:
    desk = Desk()
    desk.add(1, 0)
    first, second = JournalPosition(LastMark(5, 512)), JournalPosition(LastMark(8, 1024))
    checkpoint = Turns(desk.storages.checkpoint([first, second], Blocking))
    first.synced = LastMark(5, 9999)
    checkpoint.finish()
    assert desk.storages.marks.read(2) == [LastMark(5, 512), LastMark(8, 1024)]
    assert (first.removed, second.removed) == ([LastMark(5, 512)], [LastMark(8, 1024)])
    for directory in (L0, L1):
        assert {"lastMark.0", "lastMark.1"} <= set(desk.files.list(directory))


def test_ledgers_that_are_only_read_do_not_fill_the_memory() -> None:
    desk = Desk()
    for ledger in range(10):
        desk.add(ledger, 0)
    desk.restart()
    for ledger in range(10):
        assert desk.storage.ledgers.lookup(ledger) is not None
    desk.storage.drop_idle()
    assert len(desk.storage.hot) == desk.limits.ledgers_max
    assert [desk.read(ledger, 0) for ledger in range(10)] == [packet(n, 0) for n in range(10)]


def test_a_ledger_that_is_being_written_is_not_taken_for_idle() -> None:
    desk = Desk()
    for ledger in range(10):
        desk.add(ledger, 0)
    flush = Turns(desk.storage.flush(Blocking))
    while not flush.is_done:
        desk.storage.drop_idle()
        assert len(desk.storage.hot) == 10
        flush.step()
    assert len(desk.storage.hot) == desk.limits.ledgers_max


def test_nothing_new_goes_into_a_full_directory() -> None:
    desk = Desk()
    index = IndexFiles(desk.files, [L0, L1], rng=Random(1))
    storage = LedgerStorage(
        desk.files, [L0, L1], index, events=StorageEvents(on_fatal=desk.fatal.append), rng=Random(1)
    )
    storage.open()
    storage.avoid([])
    storage.adds.add(storage.ledgers.create(1, b"k"), 0, packet(1, 0))
    run_now(storage.flush(do_now))
    used = L0 if "0.log" in desk.files.list(L0) else L1
    other = L1 if used == L0 else L0
    storage.avoid([used])
    for ledger in range(2, 12):
        storage.adds.add(storage.ledgers.create(ledger, b"k"), 0, packet(ledger, 0))
    run_now(storage.flush(do_now))
    assert "1.log" in desk.files.list(other)
    assert all(desk.files.exists(other / relative_path(ledger)) for ledger in range(2, 12))
    storage.avoid([L0, L1])
    assert storage.directories.writable == storage.directories.all


def test_marks_and_new_logs_go_to_writable_directories() -> None:
    desk = Desk()
    desk.storage.avoid([L0])
    desk.add(1, 0)
    run_now(desk.storages.checkpoint([JournalPosition(LastMark(5, 512))], do_now))
    assert "lastMark" not in desk.files.list(L0)
    assert "0.log" in desk.files.list(L1)
    assert desk.storages.marks.read(1) == [LastMark(5, 512)]


def test_a_deleted_ledger_is_gone_for_good() -> None:
    desk = Desk()
    desk.add(1, 0)
    desk.add(2, 0)
    desk.flush()
    desk.add(1, 1)
    desk.storage.ledgers.delete(1)
    desk.storage.ledgers.delete(77)
    assert desk.storage.ledgers.lookup(1) is None
    assert desk.storage.ledgers.ids() == [2]
    desk.restart()
    assert desk.storage.ledgers.lookup(1) is None
    assert desk.storage.ledgers.ids() == [2]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_ledger_deleted_during_a_checkpoint_stays_deleted(*, is_new: bool) -> None:
    desk = Desk()
    desk.add(1, 0)
    if not is_new:
        desk.flush()
        desk.add(1, 1)
    flush = Turns(desk.storage.flush(Blocking))
    desk.storage.ledgers.delete(1)
    for _ in range(2):
        assert desk.storage.ledgers.lookup(1) is None
        assert desk.storage.ledgers.ids() == stored_entries(desk.storage, 1) == []
        flush.finish()
    assert desk.storage.ledgers.ids() == []
    desk.restart()
    assert desk.storage.ledgers.ids() == []


@pytest.mark.parametrize("is_new", [True, False])
def test_a_ledger_that_comes_again_during_a_checkpoint_begins_empty(*, is_new: bool) -> None:
    desk = Desk()
    desk.add(1, 5)
    if not is_new:
        desk.flush()
        desk.add(1, 6)
    flush = Turns(desk.storage.flush(Blocking))
    desk.storage.ledgers.delete(1)
    sent = desk.add(1, 0)
    flush.finish()
    assert stored_entries(desk.storage, 1) == [0]
    for _ in range(2):
        assert desk.read(1, 0) == sent
        desk.restart()
    assert stored_entries(desk.storage, 1) == [0]


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_read_that_was_asked_for_before_its_ledger_was_deleted_finds_nothing(
    *, is_removed: bool
) -> None:
    desk = Desk()
    for entry in range(3000):
        desk.add(1, entry, 0)
    desk.restart()
    state = desk.storage.ledgers.lookup(1)
    assert state is not None
    asked = [desk.storage.reads.read_memory(state, entry) for entry in (0, 1500)]
    desk.storage.ledgers.delete(1)
    if is_removed:
        desk.flush()
    for needed, entry in zip(asked, (0, 1500), strict=True):
        assert isinstance(needed, NeedsDisk)
        with pytest.raises(NoSuchEntryError):
            desk.storage.reads.fetch(needed, entry)
    assert desk.storage.ledgers.lookup(1) is None


@pytest.mark.parametrize("full", [L0, L1])
def test_a_log_that_has_to_begin_in_another_directory_is_written_out_at_once(full: Path) -> None:
    desk = Desk()
    desk.files.space_max = {full.parent: 0}
    for entry in range(100):
        desk.add(1, entry)
    desk.storage.adds.write_out()
    assert desk.storage.unwritten_bytes == 0


@pytest.mark.parametrize("room", range(1500, 9000, 700))
def test_entries_are_found_in_the_log_that_has_taken_what_another_had_no_space_for(
    room: int,
) -> None:
    desk = Desk()
    desk.storage.avoid([L1])
    sent = {entry: desk.add(1, entry, 100) for entry in range(10)}
    desk.storage.adds.write_out()
    desk.storage.avoid([])
    desk.files.space_max = {L0.parent: room}
    sent |= {entry: desk.add(1, entry, 100) for entry in range(10, 100)}
    desk.flush()
    assert {"1.log", "0.log"} <= {*desk.files.list(L0), *desk.files.list(L1)}
    for _ in range(2):
        assert {entry: desk.read(1, entry) for entry in sent} == sent
        desk.restart()


class LateFiles(SimFiles):
    """Lets something happen right before a file is opened."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.before: dict[Path, Callable[[], None]] = {}

    def open_read(self, path: Path) -> Any:
        self.before.pop(path, lambda: None)()
        return super().open_read(path)


def test_a_read_finds_nothing_whose_index_file_goes_right_before_it_is_opened() -> None:
    files = LateFiles()
    desk = Desk(files=files)
    desk.add(1, 0)
    desk.add(1, PAGE_SLOTS)
    desk.restart()
    state = desk.storage.ledgers.lookup(1)
    assert state is not None
    needed = desk.storage.reads.read_memory(state, 0)
    assert isinstance(needed, NeedsDisk)
    path = I0 / relative_path(1)
    desk.storage._index._open.forget(path)  # type: ignore[attr-defined]

    def go() -> None:
        desk.storage.ledgers.delete(1)
        desk.flush()

    files.before[path] = go
    with pytest.raises(NoSuchEntryError):
        desk.storage.reads.fetch(needed, 0)
    assert not files.before


def test_a_ledger_can_come_again_after_it_was_deleted() -> None:
    desk = Desk()
    desk.add(1, 5)
    desk.flush()
    desk.storage.ledgers.delete(1)
    sent = desk.add(1, 0)
    assert stored_entries(desk.storage, 1) == [0]
    desk.restart()
    assert stored_entries(desk.storage, 1) == [0]
    assert desk.read(1, 0) == sent


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), flip=st.integers(1, 255), at=st.floats(0, 1))
def test_damage_is_an_error_for_what_it_hits_and_nothing_is_made_up(
    seed: int, flip: int, at: float
) -> None:
    desk = Desk()
    sent = {(ledger, e): desk.add(ledger, e, 8) for ledger in (1, 2) for e in range(30)}
    desk.restart()
    rng = Random(seed)
    paths = [path for path in desk.files.contents() if path.endswith((".idx", ".log"))]
    path = Path(rng.choice(paths))
    data = desk.files.read(path)
    place = int(at * (min(len(data), 1400) - 1))
    damage = rng.choice(["flip", "cut", "zero"])
    if damage == "flip":
        data = data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]
    elif damage == "cut":
        data = data[:place]
    else:
        data = data[:place] + bytes(min(200, len(data) - place)) + data[place + 200 :]
    desk.files.write_atomic(path, data)
    desk.start()
    for (ledger, entry), packet_sent in sent.items():
        try:
            state = desk.storage.ledgers.lookup(ledger)
            found = desk.read(ledger, entry) if state is not None else None
        except (CorruptError, NoSuchEntryError):
            continue
        # A payload has no checksum of the bookie's; its ids and length have to be right.
        assert found is None or found == packet_sent or found[:16] == packet_sent[:16]


def test_a_client_is_told_of_damage_as_an_io_error() -> None:
    assert return_code(IndexFormatError(Path("/1.idx"), 0, "bad")) is ReturnCode.EIO
    assert return_code(OSError(5, "bad")) is ReturnCode.EIO
    assert return_code(NoSuchEntryError("entry 1")) is ReturnCode.ENOENTRY


def test_it_runs_with_its_thread_on_a_real_disk(tmp_path: Path) -> None:
    fatal: list[DiskWriteFailedError] = []

    def new() -> LedgerStorage:
        files = RealFiles()
        storage = LedgerStorage(
            files,
            [tmp_path],
            IndexFiles(files, [tmp_path]),
            events=StorageEvents(on_fatal=fatal.append),
            log_settings=LogSettings(size_bytes_max=500_000),
        )
        storage.open()
        return storage

    storage = new()
    storage.start()
    state = storage.ledgers.create(1, b"k" * 20)
    sent = [packet(1, entry, 300) for entry in range(2000)]
    for entry, data in enumerate(sent):
        storage.adds.add(state, entry, data)
        if entry % 500 == 0:
            run_now(storage.flush(do_now))
    run_now(Storages(RealFiles(), [storage]).stop([], do_now))
    storage = new()
    assert [storage.reads.read_disk(0, 1, entry) for entry in range(2000)] == sent
    run_now(Storages(RealFiles(), [storage]).stop([], do_now))
    assert not fatal


def test_copies_are_read_before_the_index_points_at_them() -> None:
    """What a log on a full disk has not got went elsewhere: the source has to stay."""
    desk = Desk()
    body = packet(7, 0)
    record = struct.pack(">i", len(body)) + body
    base = desk.storage.relocation.append(record, [(7, len(record))])
    steps: list[Callable[[], Any]] = []

    def damage_before_the_second(step: Callable[[], Any]) -> Any:
        steps.append(step)
        if len(steps) == 2:
            (path,) = (one / name for one in (L0, L1) for name in desk.files.list(one)
                       if name.endswith(".log"))  # fmt: skip
            file = desk.files.open_update(path)
            file.write_at(base & 0xFFFFFFFF, bytes(len(record)))
            file.close()
        return do_now(step)

    with pytest.raises(StorageError, match="copies are not where they were written"):
        run_now(desk.storage.relocation.sync([(base + 4, 7, 0)], damage_before_the_second))
    assert len(steps) == 2
