from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bookied.errors import JournalMissingError, JournalRecordError
from bookied.storage.index.file_names import relative_path
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.ledger_pages import LedgerChange
from bookied.storage.journal import format as layout
from bookied.storage.journal import group_format
from bookied.storage.journal.group_format import group_head
from bookied.storage.journal.mark import LastMark, encode_mark
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents, StorageLimits
from bookied.storage.replay import ReplayReport, do_now, recover, run_now
from bookied.storage.storages import Storages
from tests.sim.world.disk import SimFiles
from tests.support.stored_entries import stored_entries

J, L = Path("/j/current"), Path("/l/current")
KEY = b"k" * 20


def entry(ledger: int, number: int, payload: bytes = b"payload") -> bytes:
    return layout.entry_record(struct.pack(">qqqq", ledger, number, number - 1, 0) + payload)


def lac_packet(ledger: int, lac: int) -> bytes:
    return struct.pack(">qqi", ledger, lac, 1)


class Desk:
    """Journals as a crash left them, and the storage they are replayed into."""

    def __init__(self, seed: int = 1) -> None:
        self.files = SimFiles(Random(seed))
        self.files.make_durable(J, L)

    def journal(self, number: int, *records: bytes, version: int = 6) -> None:
        data = layout.header(version) + b"".join(records)
        if version >= 5:
            data += layout.padding(len(data), 512)
        self.files.write_atomic(J / layout.file_name(number), data)

    def replay(
        self, limits: StorageLimits | None = None, journals: Sequence[Path] = (J,), **options: Any
    ) -> ReplayReport:
        self.storage = LedgerStorage(
            self.files,
            [L],
            IndexFiles(self.files, [L]),
            events=StorageEvents(on_fatal=print),
            limits=limits or StorageLimits(),
        )
        self.storages = Storages(self.files, [self.storage])
        self.storages.open()
        return recover(self.files, self.storages, journals, **options)

    def restart(self) -> ReplayReport:
        run_now(self.storages.stop([], do_now))
        self.files.crash()
        return self.replay()


@pytest.mark.parametrize("has_failed", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_what_was_not_synced_when_the_process_died_stays_under_the_mark(
    seed: int, *, has_failed: bool
) -> None:
    """Or the next power cut takes it from there, and journals from before the mark are replayed."""
    desk = Desk(seed)
    desk.journal(5, layout.ledger_key_record(1, KEY), entry(1, 0))
    path = J / layout.file_name(5)
    file = desk.files.open_update(path)
    late = entry(1, 1)
    file.write_at(file.size(), late + layout.padding(file.size() + len(late), 512))
    if has_failed:
        desk.files.fault = lambda operation, _: OSError("broken") if operation == "sync" else None
        with pytest.raises(OSError, match="broken"):
            file.sync()
        desk.files.fault = None
    file.close()
    desk.files.kill()
    end = desk.files.size(path)
    assert desk.replay().marks == [LastMark(5, end)]
    desk.files.crash()
    assert desk.files.size(path) == end
    assert desk.replay().entries == 0


def test_everything_in_a_journal_comes_back_and_is_durable_then() -> None:
    desk = Desk()
    desk.journal(
        5,
        layout.ledger_key_record(1, KEY),
        entry(1, 0),
        entry(1, 1),
        layout.ledger_key_record(2, KEY),
        layout.fence_record(2),
        layout.ledger_key_record(3, b"other"),
        layout.explicit_lac_record(3, lac_packet(3, 9)),
    )
    found = desk.replay()
    assert (found.entries, found.journals, found.dropped, found.torn) == (2, 1, 0, [])
    desk.files.crash()
    for replayed in (desk.replay(), desk.restart()):
        assert (replayed.entries, replayed.marks) == (0, [LastMark(5, 1024)])
        one, two, three = (desk.storage.ledgers.lookup(number) for number in (1, 2, 3))
        assert one is not None
        assert two is not None
        assert three is not None
        assert stored_entries(desk.storage, 1) == [0, 1]
        assert desk.storage.reads.read_disk(0, 1, 1) == entry(1, 1)[4:]
        assert (one.fenced, two.fenced, two.last_entry) == (False, True, -1)
        assert (three.explicit_lac, three.lac) == (lac_packet(3, 9), 9)
        assert (one.master_key, three.master_key) == (KEY, b"other")


@pytest.mark.parametrize("beside", ["not", "written", "failing"])
def test_entries_of_two_storages_between_those_that_nobody_knows_find_their_places(
    beside: str,
) -> None:
    """Each run is cut where the storage changes, and where the entries are dropped."""
    desk, other = Desk(), Path("/m/current")
    desk.files.mkdirs(other)
    rng, payload = Random(3), bytes(1000)
    known = [2, 3, 4, 5]
    records = [layout.ledger_key_record(number, KEY) for number in known]
    expected: dict[int, list[int]] = {number: [] for number in known}
    for number in range(1500):
        ledger = rng.choice([*known, 8, 9])
        records.append(entry(ledger, number, payload))
        if ledger in expected:
            expected[ledger].append(number)
    desk.journal(5, *records)
    shards = [
        LedgerStorage(
            desk.files,
            [directory],
            IndexFiles(desk.files, [directory]),
            events=StorageEvents(on_fatal=print),
        )
        for directory in (L, other)
    ]
    storages = Storages(desk.files, shards)
    storages.open()
    threads: list[str] = []

    def fault(_operation: str, path: Path) -> OSError | None:
        if path.suffix != ".log":
            return None
        threads.append(name := threading.current_thread().name)
        return no_space(path) if beside == "failing" and name == "replay-writes" else None

    desk.files.fault = fault
    found = recover(desk.files, storages, [J], drain_bytes=20_000, writes_beside=beside != "not")
    assert ("replay-writes" in threads) is (beside != "not")
    if beside == "failing":  # From then on the start itself looks for space, and bounds its memory.
        assert threads.count("replay-writes") == 1
    assert "replay-writes" not in {thread.name for thread in threading.enumerate()}
    assert found.entries == sum(map(len, expected.values()))
    assert found.dropped == 1500 - found.entries
    for ledger, numbers in expected.items():
        reads = storages.of(ledger).reads
        assert stored_entries(storages.of(ledger), ledger) == numbers
        for number in numbers:
            assert reads.read_disk(0, ledger, number) == entry(ledger, number, payload)[4:]
        state = storages.of(ledger).ledgers.lookup(ledger)
        assert state is not None
        assert (state.last_entry, state.lac) == (numbers[-1], numbers[-1] - 1)


def test_a_replay_that_fails_leaves_no_thread_that_writes() -> None:
    desk, writes, goes_on = Desk(), threading.Event(), threading.Event()
    records = [entry(1, number, bytes(1000)) for number in range(350)]
    desk.journal(5, layout.ledger_key_record(1, KEY), *records)
    desk.journal(6, layout.LENGTH.pack(-5) + b"x" * 500)
    storage = LedgerStorage(
        desk.files, [L], IndexFiles(desk.files, [L]), events=StorageEvents(on_fatal=print)
    )
    storages = Storages(desk.files, [storage])
    storages.open()

    def fault(_operation: str, path: Path) -> OSError | None:
        if path.suffix == ".log":
            writes.set()
            assert goes_on.wait(60)
        return None

    def read_fault(_operation: str, path: Path) -> OSError | None:
        if path.name == "6.txn" and writing() and writes.wait(60):
            goes_on.set()
        return None

    def writing() -> bool:
        return "replay-writes" in {thread.name for thread in threading.enumerate()}

    desk.files.fault, desk.files.read_fault = fault, read_fault
    with pytest.raises(JournalRecordError, match="negative"):
        recover(desk.files, storages, [J], drain_bytes=20_000, writes_beside=True)
    assert goes_on.is_set()
    assert not writing()


@pytest.mark.parametrize("writes_beside", [False, True])
def test_what_a_full_disk_does_not_take_goes_to_another(*, writes_beside: bool) -> None:
    desk, payload = Desk(), bytes(1000)
    other, index_dir = Path("/m/current"), Path("/i/current")
    for directory in (other, index_dir):
        desk.files.mkdirs(directory)
    records = [entry(1, number, payload) for number in range(3000)]
    desk.journal(5, layout.ledger_key_record(1, KEY), *records)
    index = IndexFiles(desk.files, [index_dir])
    events = StorageEvents(on_fatal=print)
    rng = Random(2)  # It takes the first directory first.
    storage = LedgerStorage(desk.files, [L, other], index, events=events, rng=rng)
    storages = Storages(desk.files, [storage])
    storages.open()
    desk.files.space_max[L] = desk.files.used(L) + 1_000_000
    found = recover(desk.files, storages, [J], drain_bytes=500_000, writes_beside=writes_beside)
    assert found.entries == len(records)
    assert {path.parent for path in storage.adds._log.paths.values()} == {L, other}
    for number, record in enumerate(records):
        assert storage.reads.read_disk(0, 1, number) == record[4:]


def test_entries_of_many_ledgers_do_not_fill_the_memory_with_index_pages() -> None:
    desk = Desk()
    ledgers = range(1, 3001)
    records = [layout.ledger_key_record(number, KEY) + entry(number, 0) for number in ledgers]
    desk.journal(5, *records)
    written: list[int] = []
    dirty: list[int] = []

    class Watched(IndexFiles):
        def write(self, changes: Sequence[LedgerChange], *args: Any) -> Any:
            written.append(sum(len(change.pages) for change in changes))
            dirty.append(written[-1] + storage._pages.dirty_page_count)
            return super().write(changes, *args)

    limits = StorageLimits(dirty_pages_max=1000)
    index = Watched(desk.files, [L])
    storage = LedgerStorage(
        desk.files, [L], index, events=StorageEvents(on_fatal=print), limits=limits
    )
    storages = Storages(desk.files, [storage])
    storages.open()
    assert recover(desk.files, storages, [J]).entries == len(ledgers)
    assert sum(written) == len(ledgers)
    assert max(dirty) <= 1500
    assert sorted(storage.ledgers.ids()) == [*ledgers]


def test_replay_begins_at_the_mark() -> None:
    desk = Desk()
    desk.journal(4, entry(1, 7))
    desk.journal(5, layout.ledger_key_record(1, KEY), entry(1, 0), entry(1, 1))
    desk.journal(6, entry(1, 2))
    second = 512 + len(layout.ledger_key_record(1, KEY))
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, second)))
    # The key is behind the mark, so its ledger is taken for a deleted one.
    assert desk.replay().dropped == 3
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, 512)))
    found = desk.replay()
    assert (found.entries, found.journals) == (3, 2)
    assert found.marks == [LastMark(6, 1024)]


def test_a_mark_in_the_middle_of_a_file_skips_what_is_before_it() -> None:
    desk = Desk()
    key = layout.ledger_key_record(1, KEY)
    desk.journal(5, key, entry(1, 0), entry(1, 1))
    desk.replay()
    run_now(desk.storages.stop([], do_now))
    desk.files.write_atomic(
        L / "lastMark", encode_mark(LastMark(5, 512 + len(key) + len(entry(1, 0))))
    )
    assert desk.replay().entries == 1


def test_the_journal_that_the_mark_names_must_be_there() -> None:
    desk = Desk()
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, 512)))
    with pytest.raises(JournalMissingError, match=r"5\.txn"):
        desk.replay()
    desk.journal(6, entry(1, 0))
    with pytest.raises(JournalMissingError) as caught:
        desk.replay()
    assert caught.value.exit_status == 7


def test_records_of_deleted_ledgers_are_dropped() -> None:
    desk = Desk()
    desk.journal(5, entry(1, 0), layout.fence_record(1), layout.ledger_key_record(2, KEY))
    found = desk.replay()
    assert (found.dropped, found.entries) == (2, 0)
    assert desk.storage.ledgers.ids() == [2]


def test_a_ledger_that_comes_again_behind_its_deletion_has_what_follows() -> None:
    desk = Desk()
    desk.journal(5, entry(1, 0), layout.ledger_key_record(1, KEY), entry(1, 1), entry(1, 2))
    found = desk.replay()
    assert (found.dropped, found.entries) == (1, 2)
    assert stored_entries(desk.storage, 1) == [1, 2]


def test_the_stored_key_is_kept_unless_it_is_empty() -> None:
    desk = Desk()
    desk.journal(5, layout.ledger_key_record(1, KEY), layout.ledger_key_record(2, bytes(20)))
    desk.replay()
    desk.journal(6, layout.ledger_key_record(1, b"bad"), layout.ledger_key_record(2, KEY))
    desk.restart()
    keys = [desk.storage.ledgers.lookup(number).master_key for number in (1, 2)]  # type: ignore[union-attr]
    assert keys == [KEY, KEY]


def test_damage_in_a_journal_stops_the_start_unless_told_otherwise() -> None:
    desk = Desk()
    key = layout.ledger_key_record(1, KEY)
    desk.journal(5, key, entry(1, 0), struct.pack(">i", -7), entry(1, 1))
    desk.journal(6, entry(1, 2))
    with pytest.raises(JournalRecordError, match="negative") as caught:
        desk.replay()
    assert "skipReplayJournalInvalidRecord" in caught.value.hint
    assert desk.storages.marks.read(1) == [LastMark(0, 0)]
    found = desk.replay(skip_invalid=True)
    assert found.entries == 2
    assert stored_entries(desk.storage, 1) == [0, 2]


def test_a_torn_tail_is_where_writing_stopped() -> None:
    desk = Desk()
    key = layout.ledger_key_record(1, KEY)
    data = layout.header(6) + key + entry(1, 0) + entry(1, 1)[:-3]
    desk.files.write_atomic(J / "5.txn", data)
    found = desk.replay()
    assert (found.entries, found.torn) == (1, [J / "5.txn"])
    # Behind what is torn, for Java would read on in it.
    assert found.marks == [LastMark(5, len(data))]
    assert desk.restart().entries == 0


def test_what_a_gap_of_zeros_hides_is_reported_and_no_reason_to_stop() -> None:
    desk = Desk()
    desk.journal(5, layout.ledger_key_record(1, KEY), entry(1, 0))
    data = desk.files.read(J / "5.txn")
    desk.files.write_atomic(J / "5.txn", data + bytes(512) + entry(1, 1))
    found = desk.replay()
    assert (found.entries, found.residues, found.torn) == (1, [J / "5.txn"], [])


@pytest.mark.parametrize("offset", [99_999, 512 + 30, 1024 + 8])
def test_a_mark_where_no_record_begins_is_not_believed(offset: int) -> None:
    """What it passes over would be lost; what is replayed twice does no harm."""
    desk = Desk()
    desk.journal(5, layout.ledger_key_record(1, KEY), entry(1, 0))
    desk.journal(6, layout.ledger_key_record(1, KEY), entry(1, 1))
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, offset)))
    found = desk.replay()
    assert (found.entries, found.marks) == (2, [LastMark(6, 1024)])


@pytest.mark.parametrize("offset", [1024, 1028])
def test_a_mark_at_the_end_of_its_journal_is_believed(offset: int) -> None:
    """Java's own is four bytes behind it, where a zero length ended the replay."""
    desk = Desk()
    desk.journal(5, layout.ledger_key_record(1, KEY), entry(1, 0))
    desk.journal(6, layout.ledger_key_record(1, KEY), entry(1, 1))
    desk.files.write_atomic(J / "5.txn", desk.files.read(J / "5.txn") + bytes(4096))
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, offset)))
    assert desk.replay().entries == 1


def test_a_journal_of_another_directory_stops_the_start() -> None:
    """Two directories may have files of the same ids: after a copy, or an exchange of mounts."""
    desk, other = Desk(), Path("/k/current")
    desk.files.mkdirs(other)
    desk.journal(5, layout.ledger_key_record(2, KEY), entry(2, 0))
    desk.files.write_atomic(other / "5.txn", desk.files.read(J / "5.txn"))
    desk.files.write_atomic(L / "lastMark.1", encode_mark(LastMark(5, 1024)))
    with pytest.raises(JournalMissingError, match=r"/k/.*5\.txn.* journal directory 1 of 2"):
        desk.replay(journals=[J, other])
    desk.files.remove(other / "5.txn")
    desk.files.remove(L / "lastMark.1")
    assert desk.replay(journals=[J, other]).entries == 1


def test_a_journal_missing_between_others_stops_the_start() -> None:
    desk = Desk()
    for number in (5, 6, 8):
        desk.journal(number, layout.ledger_key_record(1, KEY), entry(1, number))
    with pytest.raises(JournalMissingError, match=r"7\.txn: missing between 6\.txn and 8\.txn"):
        desk.replay()


def test_a_tear_in_a_journal_that_another_followed_is_damage() -> None:
    """The next one was begun when all of this one was on disk, or had been replayed."""
    desk = Desk()
    key = layout.ledger_key_record(1, KEY)
    desk.journal(5, key, entry(1, 0), entry(1, 1))
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, 512)))
    desk.files.write_atomic(J / "5.txn", desk.files.read(J / "5.txn")[: 512 + len(key) + 20])
    assert desk.replay().torn == [J / "5.txn"]
    desk.journal(6, entry(1, 2))
    torn_at = 512 + len(key)
    desk.files.remove(L / "lastMark")
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, 512)))
    with pytest.raises(JournalRecordError, match=rf"5\.txn at offset {torn_at}: ends here"):
        desk.replay()
    assert desk.replay(skip_invalid=True).entries == 1
    desk.files.remove(L / "lastMark")
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, torn_at)))
    with pytest.raises(JournalRecordError, match=rf"5\.txn at offset {torn_at}: ends here"):
        desk.replay()  # No start leaves the mark there: it goes behind what is torn.


def test_a_damaged_group_that_the_mark_is_in_front_of_stops_the_start() -> None:
    """The last one of its journal: no group behind it tells that it was on disk."""
    desk = Desk()
    data = bytearray(in_groups([layout.ledger_key_record(1, KEY)], [entry(1, 0)]))
    desk.files.write_atomic(J / "5.txn", bytes(data[:8192]))
    assert desk.replay().marks == [LastMark(5, 8192)]
    desk.files.write_atomic(J / "6.txn", in_groups([entry(1, 1)]))
    data[-1] ^= 1
    desk.files.write_atomic(J / "5.txn", bytes(data))
    with pytest.raises(JournalRecordError, match=r"5\.txn at offset 8192: ends here, and a later"):
        desk.replay()
    assert desk.replay(skip_invalid=True).entries == 1


@pytest.mark.parametrize("marked", [4, 5])
@pytest.mark.parametrize("damage", [b"\x7f", bytes(4)])
def test_a_damaged_length_does_not_hide_all_of_a_journal(marked: int, damage: bytes) -> None:
    """Of the first record of a journal without checksums, or the first one behind the mark."""
    desk = Desk()
    desk.journal(4, layout.ledger_key_record(1, KEY))
    desk.journal(5, entry(1, 0), entry(1, 1))
    desk.journal(6, entry(1, 2))
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(marked, 512)))
    data = desk.files.read(J / "5.txn")
    desk.files.write_atomic(J / "5.txn", data[:512] + damage + data[512 + len(damage) :])
    if marked == 5 and damage == bytes(4):
        # Or a Java bookie has replayed it, and found there that nothing more was written.
        assert desk.replay().dropped == 1
        return
    with pytest.raises(JournalRecordError, match=r"5\.txn at offset 512: ends here, and a later"):
        desk.replay()


def test_without_a_mark_each_journal_may_end_as_a_crash_left_it() -> None:
    desk = Desk()
    key = layout.ledger_key_record(1, KEY)
    for number in (5, 6):
        desk.journal(number, key, entry(1, number), entry(1, 9))
        data = desk.files.read(J / layout.file_name(number))
        desk.files.write_atomic(J / layout.file_name(number), data[: 512 + len(key) + 70])
    found = desk.replay()
    assert found.torn == [J / "5.txn", J / "6.txn"]
    assert stored_entries(desk.storage, 1) == [5, 6]


@pytest.mark.parametrize("content", [b"", bytes(8192)])
def test_a_journal_without_a_byte_between_others_has_lost_them(content: bytes) -> None:
    desk = Desk()
    desk.journal(5, layout.ledger_key_record(1, KEY), entry(1, 0))
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, 512)))
    desk.files.write_atomic(J / "6.txn", content)
    desk.journal(7, entry(1, 2))
    with pytest.raises(JournalRecordError, match=r"6\.txn at offset 0: is empty, and a later"):
        desk.replay()
    assert desk.replay(skip_invalid=True).entries == 2
    desk.files.remove(L / "lastMark")
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(6, 0)))
    assert desk.replay().entries == 1, "an earlier start has met it, and gone on"


@pytest.mark.parametrize("content", [b"", bytes(8192)])
def test_journals_that_a_crash_left_without_a_byte_go(content: bytes) -> None:
    desk = Desk()
    desk.journal(5, layout.ledger_key_record(1, KEY), entry(1, 0))
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, 512)))
    for name in ("6.txn", "7.txn"):
        desk.files.write_atomic(J / name, content)
    assert desk.replay().entries == 1
    desk.files.crash()
    assert desk.files.list(J) == ["5.txn"]
    desk.journal(6, entry(1, 1))
    assert desk.replay().entries == 1


@pytest.mark.parametrize("space", [0, 20_000])
def test_a_tear_that_no_mark_could_pass_is_no_damage_once_another_follows(space: int) -> None:
    """On full disks the mark stays, or all that was replayed waits in memory."""
    desk = Desk()
    first = [[layout.ledger_key_record(1, KEY)], [entry(1, 0)]]
    desk.files.write_atomic(J / "5.txn", in_groups(*first))
    desk.replay()
    more = in_groups(*first, [entry(1, 1)], [entry(1, 2, b"t" * 9000)])
    desk.files.write_atomic(J / "5.txn", more[:-5000])
    desk.files.space_max[L] = desk.files.used(L) + space
    if space:
        desk.files.fault = lambda _, path: (
            no_space(path) if path.name.startswith("lastMark") else None
        )
    assert desk.replay().torn == [J / "5.txn"]
    desk.files.write_atomic(J / "6.txn", in_groups([entry(1, 3)]))
    desk.files.crash()
    desk.files.space_max.clear()
    desk.files.fault = None
    assert desk.replay().entries == 2


def test_a_mark_stays_where_only_the_mark_itself_has_space() -> None:
    desk = Desk()
    desk.files.write_atomic(J / "5.txn", in_groups([layout.ledger_key_record(1, KEY)]))
    before = desk.replay().marks
    desk.files.write_atomic(
        J / "5.txn", in_groups([layout.ledger_key_record(1, KEY)], [entry(1, 0)])
    )
    desk.files.fault = lambda _, path: no_space(path) if path.suffix in {".log", ".idx"} else None
    assert desk.replay().entries == 1
    assert desk.storages.marks.read(1) == before
    desk.files.crash()
    desk.files.fault = None
    assert desk.restart().entries == 1
    assert stored_entries(desk.storage, 1) == [0]


def test_a_tear_that_the_mark_of_another_bookie_is_in_keeps_its_bytes() -> None:
    """Or the journal would end before that mark, as one that was cut does."""
    desk = Desk()
    data = in_groups([layout.ledger_key_record(1, KEY)], [entry(1, 0)], [entry(1, 1, b"t" * 9000)])
    desk.files.write_atomic(J / "5.txn", data[:-5000])
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, len(data) - 6000)))
    desk.files.fault = lambda _, path: no_space(path) if path.name.startswith("lastMark") else None
    for _ in range(2):
        assert desk.replay().entries == 1


@pytest.mark.parametrize("damage", [b"\x7f", bytes(4)])
def test_whole_groups_behind_damage_stop_the_start(damage: bytes) -> None:
    """A length that ends the reading too early, in a journal that has no checksums."""
    desk = Desk()
    data = layout.header(6)
    places = []
    for records in (layout.ledger_key_record(1, KEY), entry(1, 0), entry(1, 1)):
        places.append(len(data))
        data += records
        data += layout.padding(len(data), 512)
    at = places[1]
    desk.files.write_atomic(J / "5.txn", data[:at] + damage + data[at + len(damage) :])
    message = rf"5\.txn at offset {at}: damaged, and the records after it, at {places[2]}"
    with pytest.raises(JournalRecordError, match=message):
        desk.replay()
    assert desk.replay(skip_invalid=True).entries == 0
    desk.files.write_atomic(J / "5.txn", data[: places[2]] + bytes(2048))
    assert desk.replay().entries == 1


def in_groups(*written: list[bytes]) -> bytes:
    data = group_format.file_start(6, 77, 4096)
    for records in written:
        size = len(data)
        head = group_head(records, generation=77, offset=size, synced=size, alignment=4096)
        data += head + b"".join(records)
    return data


def no_space(path: Path) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_a_journal_that_was_cut_stops_no_start_but_the_first() -> None:
    desk = Desk()
    data = in_groups([layout.ledger_key_record(1, KEY)], [entry(1, 0)], [entry(1, 1)])
    desk.files.write_atomic(J / "5.txn", data)
    desk.replay()
    desk.files.write_atomic(J / "5.txn", data[:8192])
    with pytest.raises(JournalRecordError, match=r"ends here, and lastMark is at 16384"):
        desk.replay()
    assert desk.replay(skip_invalid=True).marks == [LastMark(5, 8192)]
    assert desk.replay().marks == [LastMark(5, 8192)]


def test_a_synced_group_that_is_damaged_stops_the_start_unless_told_otherwise() -> None:
    desk = Desk()
    damaged = bytearray(in_groups([layout.ledger_key_record(1, KEY)], [entry(1, 0)], [entry(1, 1)]))
    damaged[-5000] ^= 1
    desk.files.write_atomic(J / "5.txn", bytes(damaged))
    with pytest.raises(JournalRecordError, match=r"5\.txn at offset 8192: damaged") as caught:
        desk.replay()
    assert "skipReplayJournalInvalidRecord" in caught.value.hint
    found = desk.replay(skip_invalid=True)
    assert (found.entries, desk.storage.ledgers.ids()) == (0, [1])


@pytest.mark.parametrize("has_groups", [False, True])
def test_what_the_disk_lost_of_a_journal_is_damage_and_costs_nothing_in_front_of_it(
    *, has_groups: bool
) -> None:
    desk = Desk()
    data = in_groups([layout.ledger_key_record(1, KEY)], [entry(1, 0)], [entry(1, 1)])
    lost_at = len(data) - 4096 + 40
    if not has_groups:
        data = layout.header(6) + layout.ledger_key_record(1, KEY) + entry(1, 0)
        data += layout.padding(len(data), 512)
        lost_at = len(data) + 40
        data += entry(1, 1, b"p" * 2000)
    desk.files.write_atomic(J / "5.txn", data)
    desk.journal(6, entry(1, 2))
    desk.files.unreadable[J / "5.txn"] = {lost_at}
    with pytest.raises(JournalRecordError, match=r"5\.txn at offset \d+: cannot be read") as caught:
        desk.replay()
    assert "skipReplayJournalInvalidRecord" in caught.value.hint
    desk.replay(skip_invalid=True)
    assert stored_entries(desk.storage, 1) == [0, 2]


@pytest.mark.parametrize("version", [4, 6])
def test_a_torn_rest_that_the_disk_has_lost_can_be_passed_over(version: int) -> None:
    desk = Desk()
    data = layout.header(version) + layout.ledger_key_record(1, KEY) + entry(1, 0)
    torn = entry(1, 1, b"p" * 9000)[:-1000]
    desk.files.write_atomic(J / "5.txn", data + torn)
    desk.files.unreadable[J / "5.txn"] = {len(data) + 5000}
    found = desk.replay(skip_invalid=True)
    assert found.marks == [LastMark(5, len(data + torn))]
    assert desk.replay(skip_invalid=True).marks == found.marks
    assert stored_entries(desk.storage, 1) == [0]


@pytest.mark.parametrize("has_groups", [False, True])
def test_what_the_disk_lost_in_front_of_the_mark_stops_no_start(*, has_groups: bool) -> None:
    desk = Desk()
    records = [[layout.ledger_key_record(1, KEY)], [entry(1, 0)], [entry(1, 1)]]
    if has_groups:
        desk.files.write_atomic(J / "5.txn", in_groups(*records))
    else:
        desk.journal(5, *(record for some in records for record in some))
    assert desk.replay().entries == 2
    desk.files.unreadable[J / "5.txn"] = {700}
    assert desk.restart().entries == 0
    desk.journal(6, entry(1, 2))
    assert desk.replay().entries == 1
    assert stored_entries(desk.storage, 1) == [0, 1, 2]


def test_unknown_kinds_of_records_are_skipped() -> None:
    desk = Desk()
    unknown = struct.pack(">iqq", 16, 1, -3)
    desk.journal(5, layout.ledger_key_record(1, KEY), unknown, entry(1, 0))
    assert desk.replay().entries == 1


def test_a_ledger_with_a_damaged_index_keeps_its_bytes_and_the_others_start() -> None:
    desk = Desk()
    desk.journal(5, layout.ledger_key_record(1, KEY), layout.ledger_key_record(2, KEY))
    desk.replay()
    run_now(desk.storages.stop([], do_now))
    file = desk.files.open_update(L / relative_path(1))
    file.write_at(0, b"XXXX")
    desk.journal(6, entry(1, 0), entry(2, 0), entry(1, 1))
    found = desk.replay()
    assert found.unreadable == {1}
    assert stored_entries(desk.storage, 2) == [0]
    assert entry(1, 1) in desk.files.read(L / "0.log")


def test_bytes_without_an_index_are_durable_before_the_mark_passes_them() -> None:
    desk = Desk()
    desk.journal(5, layout.ledger_key_record(1, KEY))
    desk.replay()
    run_now(desk.storages.stop([], do_now))
    desk.files.open_update(L / relative_path(1)).write_at(0, b"XXXX")
    desk.journal(6, entry(1, 0))
    found = desk.replay()
    assert desk.storages.marks.read(1) == found.marks == [LastMark(6, 1024)]
    desk.files.crash()
    assert entry(1, 0) in desk.files.read(L / "0.log")


def test_a_journal_much_larger_than_memory_is_replayed_in_parts() -> None:
    desk = Desk()
    key = layout.ledger_key_record(1, KEY)
    desk.journal(5, key, *(entry(1, number) for number in range(3000)))
    found = desk.replay(drain_bytes=2000)
    assert found.entries == 3000
    assert stored_entries(desk.storage, 1) == list(range(3000))


def test_a_checkpoint_during_a_replay_does_not_lose_the_entries_behind_it() -> None:
    """The checkpoint falls in the middle of an index page, which later entries go into again."""
    desk = Desk()
    large = [layout.entry_record(entry(1, number)[4:] + bytes(8000)) for number in range(200)]
    desk.journal(5, layout.ledger_key_record(1, KEY), *large)
    desk.replay(StorageLimits(dirty_pages_max=2))
    assert desk.restart().entries == 0
    assert stored_entries(desk.storage, 1) == [*range(200)]
    for number, record in enumerate(large):
        assert desk.storage.reads.read_disk(0, 1, number) == record[4:]


@pytest.mark.parametrize("following", [5, 100])
def test_a_mark_whose_journal_is_gone_means_nothing_once_that_was_made_up_for(
    following: int,
) -> None:
    """The bookie may be killed before its next checkpoint; its journal may have the same id."""
    desk = Desk()
    records = layout.ledger_key_record(8, KEY), entry(8, 0)
    place = len(layout.header(6)) + sum(map(len, records))
    desk.files.write_atomic(L / "lastMark", encode_mark(LastMark(5, place)))
    with pytest.raises(JournalMissingError):
        desk.replay()
    desk.replay(may_be_missing=True)
    desk.files.crash()
    desk.journal(following, *records, entry(8, 1))
    desk.replay()
    for one in range(2):
        assert desk.storage.reads.read_disk(0, 8, one) == entry(8, one)[4:]
