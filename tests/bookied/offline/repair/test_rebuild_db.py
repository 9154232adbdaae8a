"""The databases of DbLedgerStorage made anew: as they were, fenced, and never half there."""

from __future__ import annotations

import shutil
import struct
from array import array
from functools import partial
from pathlib import Path
from random import Random

import attrs
import pytest

from bookied.directories.last_journal_note import (
    ALL_LEDGERS,
    NO_LEDGER,
    LastJournalNote,
    encode_note,
    fences_in_doubt_to,
)
from bookied.directories.roots import Directories
from bookied.errors import DbRecordError, LedgerPlaceError
from bookied.offline.repair.convert import Conversion
from bookied.offline.repair.flush import flush
from bookied.offline.repair.open_storages import open_rocks, storages_of
from bookied.offline.repair.rebuild_db import NoLedgersError, RebuildDb
from bookied.storage.entrylog.format import LogHeader, location
from bookied.storage.files.files import Files, RealFiles, remove_tree
from bookied.storage.index.format import FENCED, IndexHeader
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.key_value_store import KeyValues, OpenKeyValues
from bookied.storage.index.ledger_pages import LedgerChange
from bookied.storage.index.rocks import format as layout
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.journal import format as journal_layout
from bookied.storage.journal.mark import LastMark, encode_mark
from tests.bookied.offline.repair.test_convert import ONE, TWO, Seen, contents, disk, in_db
from tests.bookied.offline.repair.test_rebuild_index import KEY, journal, lac_packet, log, packet
from tests.bookied.worlds.golden import DIRECTORY, expected
from tests.bookied.worlds.golden_disk import ledgers_of, locations
from tests.bookied.worlds.old_layouts import each_crash, put_files
from tests.sim.world.disk import SimFiles
from tests.sim.world.key_values import SimKeyValues

APART = attrs.evolve(TWO, indexes=(Path("/x0"), Path("/x1")))


def rebuild(files: Files, found: Directories = ONE, **changes: bool) -> RebuildDb:
    return RebuildDb(files, found, partial(SimKeyValues, files), "s1", **changes)


def rows(files: Files, name: str, directory: str = "/l0/current") -> dict[bytes, bytes]:
    store = SimKeyValues(files, Path(directory) / name)
    found = dict(store.items(b"", b"\xff" * 9, 10_000))
    store.close()
    return found


def ledger_row(header: IndexHeader) -> bytes:
    return layout.encode_ledger(header)


def make(files: SimFiles) -> SimFiles:
    """A bookie with two ledgers in its database, and the entries of a third in its log."""
    disk(
        ONE,
        {
            "/l0/current/0.log": log(packet(7, 0), packet(8, 1), packet(9, 0)),
            "/l0/current/1.log": log(packet(7, 0, b"compacted"), packet(7, 1)),
            "/j/current/1.txn": journal(
                journal_layout.ledger_key_record(8, KEY),
                journal_layout.explicit_lac_record(8, lac_packet(8, 3)),
                journal_layout.ledger_key_record(9, KEY),
            ),
        },
        files,
    )
    store = RocksIndex(Path("/l0/current"), partial(SimKeyValues, files))
    store.open()
    store.write(
        [
            LedgerChange(7, IndexHeader(KEY, explicit_lac=lac_packet(7, 1)), page(7)),
            LedgerChange(8, IndexHeader(b"", FENCED), page(8)),
        ]
    )
    store.close()
    for directory in ("/l0/current", "/l0", "/"):
        files.sync_dir(Path(directory))
    return files


def page(ledger_id: int) -> tuple[tuple[int, bytes], ...]:
    slots = array("q", bytes(8192))
    if ledger_id == 7:
        slots[0], slots[1] = location(1, 1028), location(1, 1028 + 45)
    else:
        slots[1] = location(0, 1071)
    return ((0, slots.tobytes()),)


def test_locations_come_back_as_they_were_from_the_latest_logs() -> None:
    files = make(SimFiles(Random(1)))
    before = rows(files, "locations")
    (done,) = rebuild(files).locations()
    assert rows(files, "locations") == before
    assert (done.ledgers, done.entries, done.unreadable) == (2, 3, 0)
    assert done.backup == Path("/l0/current/locations.BACKUP-s1")
    assert rows(files, "locations.BACKUP-s1") == before


def test_locations_that_are_gone_come_back_from_the_logs() -> None:
    files = make(SimFiles(Random(1)))
    before = rows(files, "locations")
    remove_tree(files, Path("/l0/current/locations"))
    (done,) = rebuild(files).locations()
    assert rows(files, "locations") == before
    assert done.backup is None


def test_an_entry_in_a_log_that_is_gone_keeps_its_place() -> None:
    files = make(SimFiles(Random(1)))
    files.remove(Path("/l0/current/1.log"))
    (done,) = rebuild(files).locations()
    assert (done.entries, done.unreadable) == (2, 1)
    found = in_db(files)[7].places
    assert found == {0: location(0, 1028), 1: location(1, 1028 + 45)}


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_an_entry_that_a_journal_has_before_its_mark_and_no_log_is_not_denied(
    *, is_rebuilt: bool
) -> None:
    """Its log is gone, and so is the index that would say so; a start does not replay it.

    Of a list of ledgers that comes from journals, too, some were deleted.
    """
    files = make(SimFiles(Random(1)))
    records = [packet(7, 5), packet(7, 1), packet(8, 1), packet(9, 9)]
    journalled = journal(*map(journal_layout.entry_record, records))
    put_files(
        files,
        {
            "/j/current/3.txn": journalled,
            "/j/current/4.txn": journal(journal_layout.entry_record(packet(8, 6))),
            "/l0/current/lastMark": encode_mark(LastMark(3, len(journalled))),
        },
    )
    remove_tree(files, Path("/l0/current/locations"))
    (done,) = rebuild(files).locations(are_ledgers_rebuilt=is_rebuilt)
    assert done.lacking == (() if is_rebuilt else (7,))
    limbo = {one for one, seen in in_db(files).items() if seen.header.limbo}
    assert limbo == {*done.lacking}


@pytest.mark.parametrize("ids", [(7, 400), (7, 0), (8, 1), (8, 7), (9, 5), (999, 1), (-1, 1)])
def test_an_entry_whose_ids_are_damaged_keeps_its_place(ids: tuple[int, int]) -> None:
    """Nor does it take the place of the entry whose ids it has now."""
    files = make(SimFiles(Random(1)))
    damaged = log(packet(7, 0, b"compacted"), packet(*ids))
    files.remove(Path("/l0/current/1.log"))
    put_files(files, {"/l0/current/1.log": damaged})
    (done,) = rebuild(files).locations()
    assert done.unreadable == 1
    found = in_db(files)
    assert (found[7].places[0], found[7].places[1]) == (location(1, 1028), location(1, 1028 + 45))
    assert found[8].places[1] == location(0, 1071)


def damage_a_log(files: SimFiles) -> None:
    """Take the only copy of ledger 7's last entry away, as the disk does with a lost block."""
    files.remove(Path("/l0/current/1.log"))
    put_files(files, {"/l0/current/1.log": log(packet(7, 0, b"compacted"), b"\0")})


@pytest.mark.parametrize("what", ["locations", "ledgers"])
def test_where_a_log_is_damaged_no_ledger_is_said_to_lack_entries(what: str) -> None:
    """Any ledger may have had entries there, which the bookie would deny."""
    files = make(SimFiles(Random(1)))
    damage_a_log(files)
    remove_tree(files, Path("/l0/current/locations"))
    (done,) = getattr(rebuild(files), what)()
    assert done.damaged
    assert all(one.header.limbo for one in in_db(files).values())
    assert in_db(files)[7].header.explicit_lac == lac_packet(7, 1)
    assert rows(files, "ledgers")[layout.FLAGS_KEY] == layout.encode_location(
        layout.NEEDS_INTEGRITY_CHECK
    )


@pytest.mark.parametrize("what", ["locations", "ledgers"])
def test_a_length_that_has_grown_by_the_records_after_it_is_damage(what: str) -> None:
    """A scan meets nothing wrong, and without the old locations nobody knows what it passed by."""
    files = make(SimFiles(Random(1)))
    data = bytearray(log(packet(7, 0, b""), packet(7, 1, b"y" * 28), packet(7, 2)))
    data[1024:1028] = struct.pack(">i", 32 + 64)
    files.remove(Path("/l0/current/1.log"))
    put_files(files, {"/l0/current/1.log": bytes(data)})
    remove_tree(files, Path("/l0/current/locations"))
    (done,) = getattr(rebuild(files), what)()
    assert [error.offset for error in done.damaged] == [1024]
    assert all(one.header.limbo for one in in_db(files).values())


def test_a_length_that_leads_behind_a_finished_log_is_damage() -> None:
    """A crash cuts off the last record of a log without map only."""
    files = make(SimFiles(Random(1)))
    records = b"".join(map(journal_layout.entry_record, (packet(7, 0), packet(7, 1))))
    data = bytearray(LogHeader(map_offset=1024 + len(records), ledgers=1).encode() + records)
    data[1024:1028] = struct.pack(">i", 1 << 20)
    files.remove(Path("/l0/current/1.log"))
    put_files(files, {"/l0/current/1.log": bytes(data + bytes(40))})
    (done,) = rebuild(files).locations()
    assert (len(done.damaged), done.unreadable) == (1, 1)


def test_without_ledgers_there_is_nothing_to_rebuild_locations_for() -> None:
    with pytest.raises(NoLedgersError, match="no database ledgers"):
        rebuild(disk(ONE, {})).locations()


def test_ledgers_are_fenced_and_keep_what_journals_and_the_old_database_know() -> None:
    files = make(SimFiles(Random(1)))
    (done,) = rebuild(files).ledgers()
    assert (done.ledgers, done.keyless) == (3, ())
    found = in_db(files)
    assert found[7].header == IndexHeader(KEY, FENCED, lac_packet(7, 1))
    assert found[8].header == IndexHeader(KEY, FENCED, lac_packet(8, 3))
    assert found[9].header == IndexHeader(KEY, FENCED)
    assert {len(key) for key in rows(files, "ledgers")} == {8}
    assert set(rows(files, "ledgers.PREV-s1")) == {layout.ledger_key(7), layout.ledger_key(8)}


def test_keys_that_nobody_knows_are_asked_for_and_else_empty() -> None:
    files = disk(ONE, {"/l0/current/0.log": log(packet(7, 0), packet(8, 0))})
    (done,) = rebuild(files).ledgers(lambda one: (KEY, "metadata") if one == 7 else None)
    assert (done.keyless, done.backup) == ((8,), None)
    assert in_db(files)[7].header.master_key == KEY


def test_keys_of_16_bytes_do_not_survive_and_damaged_rows_leave_a_fenced_ledger() -> None:
    files = make(SimFiles(Random(1)))
    store = SimKeyValues(files, Path("/l0/current/ledgers"))
    other = ledger_row(IndexHeader(b"", FENCED))
    store.put([(layout.long_ledger_key(7), other), (layout.ledger_key(11), b"\xff\xff")])
    store.put([(layout.FLAGS_KEY, layout.encode_location(1))])
    store.sync()
    store.close()
    (done,) = rebuild(files).ledgers()
    assert len(done.damaged) == 1
    ledgers = (7, 8, 9, 11)
    assert set(rows(files, "ledgers")) == {*map(layout.ledger_key, ledgers), layout.FLAGS_KEY}
    assert in_db(files)[11].header == IndexHeader(b"", FENCED, limbo=True)
    assert in_db(files)[7].header.explicit_lac == lac_packet(7, 1)


def test_a_ledger_whose_entries_are_all_damaged_is_not_denied() -> None:
    """The database of ledgers is lost, and with the log's first length all that it has."""
    files = make(SimFiles(Random(1)))
    remove_tree(files, Path("/l0/current/ledgers"))
    files.remove(Path("/j/current/1.txn"))
    for name in ("0.log", "1.log"):
        file = files.open_update(Path("/l0/current") / name)
        file.write_at(1024, bytes(4))
        file.close()
    rebuild(files).ledgers()
    headers = {ledger_id: seen.header for ledger_id, seen in in_db(files).items()}
    assert headers == dict.fromkeys((7, 8), IndexHeader(b"", FENCED, limbo=True))


@pytest.mark.parametrize("is_lost", [False, True])
def test_where_the_old_ledgers_are_lost_fences_are_looked_up_in_the_metadata(
    *, is_lost: bool
) -> None:
    """A ledger that was fenced before its first entry is in that database alone."""
    files = make(SimFiles(Random(1)))
    put_files(files, {"/j/bookied.journal": encode_note(LastJournalNote(1, NO_LEDGER))})
    if is_lost:
        remove_tree(files, Path("/l0/current/ledgers"))
    rebuild(files).ledgers()
    expected = ALL_LEDGERS if is_lost else NO_LEDGER
    assert fences_in_doubt_to(files, ONE.journals) == expected


def test_each_directory_has_only_its_own_ledgers() -> None:
    files = disk(
        TWO,
        {
            "/l0/current/0.log": log(packet(8, 0)),
            "/l1/current/0.log": log(packet(7, 0)),
            "/j/current/1.txn": journal(
                *(journal_layout.ledger_key_record(one, KEY) for one in (5, 6, 7, 8))
            ),
        },
    )
    done = rebuild(files, TWO).ledgers()
    assert [one.ledgers for one in done] == [2, 2]
    rebuild(files, TWO).locations()
    assert {one: seen.places for one, seen in in_db(files, TWO).items()} == {
        5: {},
        6: {},
        7: {0: location(0, 1028)},
        8: {0: location(0, 1028)},
    }


def test_directories_in_another_order_are_refused_before_anything_is_written() -> None:
    """None of their ledgers would be in the new databases, and then their logs would go."""
    files = disk(TWO, {})
    for directory, ledger_id in (("/l0/current", 8), ("/l1/current", 7)):
        store = RocksIndex(Path(directory), partial(SimKeyValues, files))
        store.open()
        store.write([LedgerChange(ledger_id, IndexHeader(KEY), page(ledger_id))])
        store.close()
    exchanged = attrs.evolve(TWO, ledgers=TWO.ledgers[::-1], indexes=TWO.indexes[::-1])
    with pytest.raises(LedgerPlaceError, match="ledger 7 is in /l1, directory 1 of 2"):
        rebuild(files, exchanged).ledgers()
    assert [one.ledgers for one in rebuild(files, TWO).ledgers()] == [1, 1]


def test_exchanged_index_directories_are_refused_before_the_locations_are_rebuilt() -> None:
    """The logs have no entry of the ledgers in the other index, whose locations would go."""
    files = disk(APART, {"/l0/current/0.log": log(packet(8, 1)), "/l1/current/0.log": log()})
    for directory, changes in (
        ("/x0/current", []),
        ("/x1/current", [LedgerChange(8, IndexHeader(KEY), page(8))]),
    ):
        store = RocksIndex(Path(directory), partial(SimKeyValues, files))
        store.open()
        store.write(changes)
        store.close()
    before = rows(files, "locations", "/x1/current")
    with pytest.raises(LedgerPlaceError, match="ledger 8 is in /x1, directory 2"):
        rebuild(files, APART).locations()
    assert rows(files, "locations", "/x1/current") == before


def test_an_older_list_of_ledgers_is_not_believed(tmp_path: Path) -> None:
    """The locations of all later ledgers would go; a rebuilt list would then deny their entries."""
    files, current = RealFiles(), tmp_path / "l0/current"
    found = Directories((tmp_path / "j",), (tmp_path / "l0",), (tmp_path / "l0",))
    (tmp_path / "j/current").mkdir(parents=True)
    current.mkdir(parents=True)
    (current / "0.log").write_bytes(log(packet(9, 0), packet(8, 1)))
    for ledger_id in (7, 8):
        store = RocksIndex(current, open_rocks)
        store.open()
        store.write([LedgerChange(ledger_id, IndexHeader(KEY), page(ledger_id))])
        store.note_synced()
        store.close()
        if ledger_id == 7:
            shutil.copytree(current / "ledgers", tmp_path / "older")
    shutil.rmtree(current / "ledgers")
    shutil.copytree(tmp_path / "older", current / "ledgers")
    work = RebuildDb(files, found, open_rocks, "s1")
    with pytest.raises(DbRecordError, match="bkctl disk rebuild-db --ledgers"):
        work.locations()
    work.ledgers()
    work.locations()
    store = RocksIndex(current, open_rocks)
    store.open()
    assert store.location(8, 1) == location(0, 1071)
    store.close()


def test_the_locations_of_a_ledger_whose_row_is_lost_stay() -> None:
    files = make(SimFiles(Random(1)))
    store = SimKeyValues(files, Path("/l0/current/ledgers"))
    store.delete([layout.ledger_key(8)])
    store.sync()
    store.close()
    rebuild(files).locations()
    index = RocksIndex(Path("/l0/current"), partial(SimKeyValues, files))
    index.open()
    index.remove_hidden()
    assert index.location(8, 1) == location(0, 1071)
    index.close()


def test_a_dry_run_writes_nothing() -> None:
    files = make(SimFiles(Random(1)))
    before = files.contents()
    assert rebuild(files, dry_run=True).ledgers()[0].ledgers == 3
    assert rebuild(files, dry_run=True).locations()[0].entries == 4
    assert {name: data for name, data in files.contents().items() if "wal" not in name} == {
        name: data for name, data in before.items() if "wal" not in name
    }
    assert not [name for name in files.contents() if "TEMP" in name or "PREV" in name]


@pytest.mark.parametrize("what", ["ledgers", "locations"])
def test_after_a_crash_anywhere_there_is_the_old_database_or_the_new_one(what: str) -> None:
    reference = make(SimFiles(Random(0)))
    before = rows(reference, what)
    act(what, reference)
    after = rows(reference, what)
    crashes = 0
    for files, through in each_crash(make, partial(act, what), seeds=3):
        crashes += not through
        assert rows(files, what) in (before, after)
        act(what, files)
        assert rows(files, what) == after
        assert not [name for name in files.list(Path("/l0/current")) if "TEMP" in name]
    assert crashes > 20


def act(what: str, files: Files) -> None:
    work = rebuild(files)
    if what == "ledgers":
        work.ledgers()
    else:
        work.locations()


def test_without_room_the_old_database_stays() -> None:
    files = make(SimFiles(Random(1)))
    before = rows(files, "locations")
    files.bytes_max = sum(map(len, files.contents().values())) + 200
    with pytest.raises(OSError, match="No space"):
        rebuild(files).locations()
    files.bytes_max = None
    assert rows(files, "locations") == before
    assert not [name for name in files.list(Path("/l0/current")) if "TEMP" in name]


# Real databases -----------------------------------------------------------------------------------


@attrs.frozen
class Golden:
    found: Directories
    open_key_values: OpenKeyValues = open_rocks

    def seen(self) -> dict[int, Seen]:
        return contents(RocksIndex(self.found.index_dirs[0], self.open_key_values))

    def raw(self, name: str) -> dict[bytes, bytes]:
        store: KeyValues = self.open_key_values(self.found.index_dirs[0] / name)
        try:
            return dict(store.items(b"", b"\xff" * 17, 10_000))
        finally:
            store.close()


@pytest.fixture
def golden(tmp_path: Path) -> Golden:
    """What a Java bookie with DbLedgerStorage left at a clean stop."""
    shutil.copytree(DIRECTORY / "db" / "clean", tmp_path, dirs_exist_ok=True)
    roots = [path.parent for path in tmp_path.rglob("current") if path.is_dir()]
    journals = tuple(path for path in roots if path.name.startswith("j"))
    ledgers = tuple(path for path in roots if path.name.startswith("l"))
    return Golden(Directories(journals, ledgers, ledgers))


def test_javas_locations_are_rebuilt_byte_for_byte(golden: Golden) -> None:
    before = golden.raw("locations")
    assert before
    work = RebuildDb(RealFiles(), golden.found, open_rocks, "s1")
    (done,) = work.locations()
    assert not done.damaged
    assert golden.raw("locations") == before


def test_javas_ledgers_are_rebuilt_with_their_keys(golden: Golden) -> None:
    before = golden.seen()
    RebuildDb(RealFiles(), golden.found, open_rocks, "s1").ledgers()
    after = golden.seen()
    said = ledgers_of("db/clean")
    assert set(after) == set(said) == set(before)
    for ledger_id, one in after.items():
        assert one.header == attrs.evolve(before[ledger_id].header, state_bits=FENCED)
        assert one.places == locations(said[ledger_id])


def on_disk(tmp_path: Path, name: str) -> Directories:
    """Copy a golden set; return its directories."""
    shutil.copytree(DIRECTORY / name, tmp_path / "golden")
    roots = [path.parent for path in (tmp_path / "golden").rglob("current") if path.is_dir()]
    journals = tuple(path for path in roots if path.name.startswith("j"))
    ledgers = tuple(path for path in roots if path.name.startswith("l"))
    return Directories(journals, ledgers, ledgers)


def test_a_killed_java_bookie_s_databases_are_flushed_and_converted(tmp_path: Path) -> None:
    found = on_disk(tmp_path, "db/crash")
    flush(RealFiles(), found, storages_of(RealFiles(), found))
    done = Conversion(RealFiles(), found, open_rocks, "s1").to_interleaved()
    said = ledgers_of("db/clean")
    assert done.ledgers == len(said)
    seen = contents(IndexFiles(RealFiles(), found.index_dirs))
    for ledger_id, one in said.items():
        header = seen[ledger_id].header
        assert header.master_key.hex() == one["masterKey"]
        assert header.is_fenced == one["fenced"]
        lac = one["explicitLac"]
        assert (header.explicit_lac or b"").hex() == (lac["hex"] if lac else "")
        assert len(seen[ledger_id].places) == len(one["entries"])


def bare(tmp_path: Path, name: str) -> Directories:
    """Put golden files that have no directories around them where a bookie has them."""
    for root in ("journal", "ledgers"):
        (tmp_path / root / "current").mkdir(parents=True)
    current = tmp_path / "ledgers" / "current"
    shutil.copytree(DIRECTORY / name, current, dirs_exist_ok=True)
    (current / "expected.json").unlink()
    ledgers = (tmp_path / "ledgers",)
    return Directories((tmp_path / "journal",), ledgers, ledgers)


def test_direct_io_logs_of_java_are_scanned_for_ledgers_and_locations(tmp_path: Path) -> None:
    found = bare(tmp_path, "db/direct-io")
    work = RebuildDb(RealFiles(), found, open_rocks, "s1")
    assert [one.keyless for one in work.ledgers()] == [(45, 46)]
    (done,) = work.locations()
    assert (done.damaged, done.unreadable) == ((), 0)
    said = {
        (one["ledgerId"], one["entryId"]): location(0, one["recordOffset"] + 4)
        for one in expected("db/direct-io")["entries"]
    }
    seen = Golden(found).seen()
    assert {(one, n): at for one in seen for n, at in seen[one].places.items()} == said


def test_ledgers_that_java_rebuilt_get_their_short_keys_back(tmp_path: Path) -> None:
    found = bare(tmp_path, "db/rebuilt-ledgers-index")
    golden = Golden(found)
    before = {key[:8] for key in golden.raw("ledgers") if len(key) == 16}
    assert before
    RebuildDb(RealFiles(), found, open_rocks, "s1").ledgers()
    after = golden.raw("ledgers")
    assert {len(key) for key in after} == {8}
    assert before <= set(after)
