"""Index files made anew: complete, fenced, with their keys; old ones stay until new ones are."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bookied.directories.emptied_directories import ContentsNotes, check_losses
from bookied.directories.last_journal_note import (
    ALL_LEDGERS,
    NO_LEDGER,
    LastJournalNote,
    encode_note,
    fences_in_doubt_to,
)
from bookied.directories.roots import Directories
from bookied.errors import DirectoryEmptiedError, EntryLogRecordError, IndexFormatError
from bookied.offline.bookie import OfflineBookie
from bookied.offline.index import FileIndex
from bookied.offline.repair.rebuild_index import IndexRebuildResult, RebuiltLedger, rebuild
from bookied.offline.repair.rescan import size_of
from bookied.storage.entrylog.format import LogHeader, location
from bookied.storage.entrylog.log_file import LogSettings
from bookied.storage.files.files import Files
from bookied.storage.index import format as layout
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.index_files.reads import read_index
from bookied.storage.journal import format as journal_layout
from bookied.storage.journal.mark import LastMark, encode_mark
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents
from bookied.storage.replay import recover
from bookied.storage.storages import Storages
from tests.bookied.offline.index_contents import index_entries
from tests.bookied.worlds.golden_disk import ledgers_of, load_golden, locations
from tests.bookied.worlds.old_layouts import each_crash, put_files
from tests.sim.world.disk import SimFiles
from tests.support.stored_entries import stored_entries
from wire.digest import master_key

SETS = ["interleaved/clean", "interleaved/rotated", "sorted/clean"]
FOUND = Directories((Path("/j"),), (Path("/l0"), Path("/l1")), (Path("/l0"), Path("/l1")))
KEY = b"k" * 20
INDEX_7 = Path("/l0/current/0/7/7.idx")


def packet(ledger_id: int, entry_id: int, text: bytes = b"payload") -> bytes:
    return struct.pack(">qqqq", ledger_id, entry_id, entry_id - 1, 0) + text


def log(*packets: bytes) -> bytes:
    return LogHeader().encode() + b"".join(map(journal_layout.entry_record, packets))


def journal(*records: bytes) -> bytes:
    return journal_layout.header(6) + b"".join(records)


def lac_packet(ledger_id: int, lac: int) -> bytes:
    return struct.pack(">qqi", ledger_id, lac, 0)


def index(key: bytes = KEY, places: tuple[int, ...] = (), **header: Any) -> bytes:
    page = b"".join(struct.pack(">q", place) for place in places)
    return layout.IndexHeader(key, **header).encode() + page.ljust(layout.PAGE_BYTES, b"\0")


def world(changes: dict[str, bytes], files: SimFiles | None = None) -> SimFiles:
    files = files or SimFiles(Random(1))
    files.make_durable(*FOUND.all_dirs)
    put_files(files, changes)
    return files


def two_ledgers_by_turns(count: int) -> tuple[SimFiles, str, tuple[int, ...], int]:
    """Return files with a log of ledgers 7 and 8 by turns, an index of 7 alone, and both keys.

    With them the log's path, the places of ledger 7, and how many bytes of the log an entry takes.
    """
    data = log(*(packet(7 + (entry_id & 1), entry_id >> 1) for entry_id in range(2 * count)))
    size = len(packet(0, 0)) + 4
    places = tuple(location(0, 1028 + 2 * number * size) for number in range(count))
    keys = journal(*(journal_layout.ledger_key_record(one, KEY) for one in (7, 8)))
    path = "/l0/current/0.log"
    files = world({path: data, str(INDEX_7): index(places=places), "/j/current/1.txn": keys})
    return files, path, places, size


def stored(files: Files, path: Path = INDEX_7) -> layout.IndexHeader:
    file = files.open_read(path)
    try:
        return read_index(file, path).header
    finally:
        file.close()


def storages_on(files: Files, found: Directories) -> Storages:
    index = IndexFiles(files, found.index_dirs)
    storage = LedgerStorage(
        files,
        found.ledger_dirs,
        index,
        events=StorageEvents(on_fatal=print),
        log_settings=LogSettings(direct=False),
    )
    return Storages(files, [storage])


def entries(files: Files, ledger_id: int, found: Directories = FOUND) -> dict[int, int]:
    return index_entries(OfflineBookie(files, found), ledger_id)


def only(rebuilt: IndexRebuildResult) -> RebuiltLedger:
    assert len(rebuilt.ledgers) == 1
    return rebuilt.ledgers[0]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("pages_max", [1, 1000])
def test_deleted_indexes_of_java_come_back_from_logs_and_journals(
    name: str, pages_max: int
) -> None:
    files = SimFiles(Random(1))
    found = load_golden(files, name, leave_out=".idx")
    rebuilt = rebuild(
        files,
        found,
        None,
        pages_max=pages_max,
        key_of=lambda ledger_id: (master_key(b"not asked"), "password"),
    )
    assert not rebuilt.damaged
    said = ledgers_of(name)
    assert [one.ledger_id for one in rebuilt.ledgers] == sorted(said)
    for one in rebuilt.ledgers:
        expected = said[one.ledger_id]
        assert entries(files, one.ledger_id, found) == locations(expected)
        assert one.entries == len(expected["entries"])
        assert (one.first, one.last) == (0, one.entries - 1)
        header = stored(files, one.path)
        assert header.is_fenced
        assert one.key_from in {"journal", "password"}
        if one.key_from == "journal":
            assert header.master_key.hex() == expected["masterKey"]
            lac = expected["explicitLac"]
            assert (header.explicit_lac or b"").hex() == (lac["hex"] if lac else "")


def test_the_journals_of_java_know_the_keys_and_explicit_lacs() -> None:
    files = SimFiles(Random(1))
    found = load_golden(files, "sorted/clean", leave_out=".idx")
    rebuilt = rebuild(files, found, None)
    assert {one.key_from for one in rebuilt.ledgers} == {"journal"}
    assert {one.ledger_id: one.explicit_lac for one in rebuilt.ledgers}[3] == 3


def test_an_index_that_is_there_gives_the_key_and_the_rest_of_its_header() -> None:
    lac = lac_packet(7, 1)
    files = world(
        {
            "/l0/current/0.log": log(packet(7, 0), packet(7, 1), packet(8, 0)),
            str(INDEX_7): index(state_bits=4, explicit_lac=lac),
        }
    )
    one = only(rebuild(files, FOUND, [7]))
    assert (one.key_from, one.entries, one.explicit_lac) == ("index", 2, 1)
    header = stored(files)
    assert (header.master_key, header.state_bits, header.explicit_lac) == (KEY, 5, lac)
    assert entries(files, 7) == {0: location(0, 1028), 1: location(0, 1028 + 43)}
    assert not files.exists(Path("/l0/current/0/8"))


def test_a_key_in_the_journal_counts_before_the_one_in_the_index() -> None:
    files = world(
        {
            "/l0/current/0.log": log(packet(7, 0)),
            str(INDEX_7): index(key=b""),
            "/j/current/1.txn": journal(
                journal_layout.ledger_key_record(7, KEY),
                journal_layout.explicit_lac_record(7, lac_packet(7, 5)),
                journal_layout.ledger_key_record(7, b""),
            ),
        }
    )
    one = only(rebuild(files, FOUND, [7], key_of=lambda _: (b"p" * 20, "password")))
    assert (one.key_from, one.explicit_lac) == ("journal", 5)
    assert stored(files).master_key == KEY


def test_a_key_that_nobody_knows_leaves_the_old_index_alone() -> None:
    old = index(key=bytes(20))
    files = world({"/l0/current/0.log": log(packet(7, 0)), str(INDEX_7): old})
    one = only(rebuild(files, FOUND, [7]))
    assert (one.key_from, one.is_written, one.entries) == (None, False, 1)
    assert files.read(INDEX_7) == old
    assert files.list(INDEX_7.parent) == ["7.idx"]
    asked: list[int] = []

    def key_of(ledger_id: int) -> tuple[bytes, str]:
        asked.append(ledger_id)
        return master_key(b"secret"), "metadata"

    assert only(rebuild(files, FOUND, [7], key_of=key_of)).key_from == "metadata"
    assert asked == [7]
    assert stored(files).master_key == master_key(b"secret")


def test_places_in_a_ruined_index_are_believed_only_where_a_log_can_have_been() -> None:
    """Behind a header that is none lies anything; what names no log of ours is not an entry."""
    lost, invented = location(1, 2000), location(0x51F3A2C4, 0x0B7D91E2)
    ruined = bytes(4) + index(places=(0, lost, invented))[4:]
    files = world(
        {"/l0/current/0.log": log(packet(7, 0)), "/l0/current/lastId": b"1\n", str(INDEX_7): ruined}
    )
    one = only(rebuild(files, FOUND, [7], key_of=lambda _ledger_id: (KEY, "password")))
    assert (one.entries, one.unreadable, one.last) == (1, 1, 1)
    whole = index(places=(0, lost, invented))
    files = world({"/l0/current/0.log": log(packet(7, 0)), str(INDEX_7): whole})
    assert only(rebuild(files, FOUND, [7])).unreadable == 2


def test_the_copy_in_the_later_log_counts() -> None:
    """Compaction writes what lives into later logs, and may die before the old one is gone."""
    files = world(
        {
            "/l0/current/9.log": log(packet(7, 0, b"old"), packet(7, 1, b"old")),
            "/l1/current/a.log": log(packet(7, 1, b"new"), packet(7, 1, b"newest")),
            "/l1/current/b.log.compacting": log(packet(7, 0, b"unfinished")),
            str(INDEX_7): index(),
        }
    )
    rebuild(files, FOUND, [7])
    assert entries(files, 7) == {0: location(9, 1028), 1: location(10, 1028 + 4 + 32 + 3)}


class TestWhatCannotBeRead:
    def test_an_entry_in_a_log_that_is_gone_is_not_denied(self) -> None:
        files = world(
            {
                "/l0/current/0.log": log(packet(7, 0)),
                str(INDEX_7): index(places=(location(0, 1028), location(5, 1028), 0, 17)),
            }
        )
        one = only(rebuild(files, FOUND, [7]))
        assert (one.entries, one.unreadable, one.last) == (1, 1, 1)
        assert entries(files, 7) == {0: location(0, 1028), 1: location(5, 1028)}

    def test_what_follows_damage_keeps_its_place_and_what_is_not_there_does_not(self) -> None:
        damaged = log(packet(7, 0)) + b"\0\0\0\5damage" + log(packet(7, 1))
        behind = len(damaged) - 32
        files = world(
            {
                "/l0/current/0.log": damaged,
                str(INDEX_7): index(places=(0, location(0, behind), location(0, 1040))),
            }
        )
        rebuilt = rebuild(files, FOUND, [7])
        assert [type(error) for error in rebuilt.damaged] == [EntryLogRecordError]
        one = only(rebuilt)
        assert (one.entries, one.unreadable) == (1, 1)
        assert entries(files, 7) == {0: location(0, 1028), 1: location(0, behind)}

    @pytest.mark.parametrize(
        "damage", [b"\xff", b"x", b"\0", b"\0\0\0\3", Random(7).randbytes(300)]
    )
    def test_damage_within_a_log_costs_the_entries_there_and_none_behind(
        self, damage: bytes
    ) -> None:
        """Not those of the ledger whose index has gone either: another shows where to go on."""
        data = log(*(packet(7 + (entry_id & 1), entry_id >> 1) for entry_id in range(20_000)))
        size = len(packet(0, 0)) + 4
        begin = 1024 + 10_000 * size
        first = begin - 10
        data = data[:first] + (damage * 300)[:300] + data[first + 300 :]
        places = tuple(location(0, 1028 + 2 * number * size) for number in range(10_000))
        path = "/l0/current/0.log"
        whole = layout.IndexHeader(KEY).encode()
        whole += b"".join(struct.pack(">q", place) for place in places)
        records = [
            journal_layout.ledger_key_record(8, KEY),
            *(journal_layout.entry_record(packet(7, entry_id)) for entry_id in range(9000)),
        ]
        files = world(
            {
                path: data,
                str(INDEX_7): whole.ljust(1024 + 10 * layout.PAGE_BYTES, b"\0"),
                "/j/current/1.txn": journal(*records),
                "/j/current/2.txn": journal(*records),
                "/l0/current/lastMark": encode_mark(LastMark(3, 0)),
            }
        )
        rebuilt = rebuild(files, FOUND, None)
        seven = rebuilt.ledgers[0]
        assert (seven.entries, seven.unreadable, seven.journal_only) == (9996, 4, 4)
        assert entries(files, 7) == dict(enumerate(places)), "those keep their places"
        assert set(range(10_000)) - entries(files, 8).keys() == {5000, 5001, 5002, 5003}
        told = rebuilt.damaged[-1]
        assert (told.path, told.offset) == (Path(path), begin - size), "behind entry 4999 of 7"

    def test_what_the_disk_has_lost_of_a_log_costs_no_other_entry(self) -> None:
        files, path, places, size = two_ledgers_by_turns(200)
        files.unreadable[Path(path)] = {1028 + 2 * 100 * size + 3}
        rebuilt = rebuild(files, FOUND, None)
        seven = rebuilt.ledgers[0]
        assert (seven.entries, seven.unreadable) == (199, 1)
        assert entries(files, 7) == dict(enumerate(places)), "it keeps its place"
        assert set(range(200)) - entries(files, 8).keys() == {100}, "no index says where it begins"
        assert rebuilt.damaged[0].path == Path(path)

    @pytest.mark.parametrize("lost_at", [16, 30, 38])
    @pytest.mark.parametrize("numbers", [(100,), (100, 101), (0, 1, 3, 198, 199)])
    def test_the_entry_behind_one_that_the_disk_has_lost_is_found(
        self, numbers: tuple[int, ...], lost_at: int
    ) -> None:
        files, path, places, size = two_ledgers_by_turns(200)
        files.unreadable[Path(path)] = {1028 + 2 * one * size + lost_at for one in numbers}
        rebuilt = rebuild(files, FOUND, None)
        seven = rebuilt.ledgers[0]
        assert (seven.entries, seven.unreadable) == (200 - len(numbers), len(numbers))
        assert entries(files, 7) == dict(enumerate(places)), "they keep their places"
        assert set(range(200)) == entries(files, 8).keys()
        assert rebuilt.damaged[0].path == Path(path)

    def test_a_lost_entry_that_an_index_has_is_passed_once(self) -> None:
        files, path, places, size = two_ledgers_by_turns(20)
        body, next_head = 1028 + 2 * 10 * size + 30, 1024 + 2 * 11 * size + 5
        files.unreadable[Path(path)] = {body, next_head}
        seven = rebuild(files, FOUND, None).ledgers[0]
        assert (seven.entries, seven.unreadable) == (18, 2)
        assert entries(files, 7) == dict(enumerate(places)), "they keep their places"

    def test_a_log_that_the_disk_does_not_open_keeps_its_entries_in_the_index(self) -> None:
        data = log(*(packet(7, entry_id) for entry_id in range(20)))
        size = len(packet(0, 0)) + 4
        places = tuple(location(0, 1028 + number * size) for number in range(20))
        path = Path("/l0/current/0.log")
        for header_only in (False, True):
            files = world({str(path): data, str(INDEX_7): index(places=places)})
            files.unreadable[path] = {8}
            files.unopenable = set() if header_only else {path}
            rebuilt = rebuild(files, FOUND, None)
            assert (rebuilt.ledgers[0].entries, rebuilt.ledgers[0].unreadable) == (0, 20)
            assert entries(files, 7) == dict(enumerate(places))
            assert "cannot be read" in str(rebuilt.damaged[0])

    @pytest.mark.parametrize("at", [4, 11])
    @pytest.mark.parametrize(
        "ids",
        [(7, 400), (7, 2), (7, 4), (7, -5), (6, 3), (6, 7), (8, 1), (999, 3), (-1, 3), (7, 3)],
    )
    def test_an_entry_whose_ids_are_damaged_is_not_denied(
        self, ids: tuple[int, int], at: int
    ) -> None:
        """Nor does it take the place of the entry whose ids it has now."""
        heads = [(6 + number % 3, number // 3) for number in range(21)]
        damaged = [ids if head == (7, 3) else head for head in heads]
        data = log(*(packet(*head) for head in damaged[at:] + damaged[:at]))
        shown = {
            head: location(0, 1028 + 43 * ((number - at) % 21)) for number, head in enumerate(heads)
        }
        files = world(
            {
                "/l0/current/0.log": data,
                **{
                    f"/l0/current/0/{ledger_id}/{ledger_id}.idx": index(
                        places=tuple(shown[ledger_id, entry_id] for entry_id in range(7))
                    )
                    for ledger_id in (6, 7, 8)
                },
            }
        )
        rebuilt = {one.ledger_id: one for one in rebuild(files, FOUND, None).ledgers}
        assert [rebuilt[one].unreadable for one in (6, 7, 8)] == [0, int(ids != (7, 3)), 0]
        for ledger_id in (6, 7, 8):
            found = entries(files, ledger_id)
            assert [found.get(entry_id) for entry_id in range(7)] == [
                shown[ledger_id, entry_id] for entry_id in range(7)
            ]

    def test_a_damaged_index_is_replaced_where_its_key_is_known_otherwise(self) -> None:
        files = world({"/l0/current/0.log": log(packet(7, 0)), str(INDEX_7): b"x" * 5000})
        rebuilt = rebuild(files, FOUND, [7], key_of=lambda _: (KEY, "password"))
        assert [type(error) for error in rebuilt.damaged] == [IndexFormatError]
        assert stored(files).master_key == KEY
        assert entries(files, 7)[0] == location(0, 1028)

    def test_what_a_length_hides_that_has_grown_by_the_records_after_it_is_not_denied(self) -> None:
        data = bytearray(log(packet(7, 0, b""), packet(7, 1, b"y" * 28)))
        data[1024:1028] = struct.pack(">i", 32 + 64)
        changes = {
            "/l0/current/0.log": bytes(data),
            "/j/current/1.txn": journal(journal_layout.ledger_key_record(7, KEY)),
        }
        assert only(rebuild(world(changes), FOUND, [7])).in_doubt

    @pytest.mark.parametrize("old", [None, index()[:-5], index()[:100]])
    def test_where_no_index_says_what_damage_has_taken_the_new_one_is_in_doubt(
        self, old: bytes | None
    ) -> None:
        changes = {
            "/l0/current/0.log": log(packet(7, 0)) + b"\0\0\0\5damage" + log(packet(7, 1)),
            "/j/current/1.txn": journal(journal_layout.ledger_key_record(7, KEY)),
        }
        files = world(changes if old is None else {**changes, str(INDEX_7): old})
        one = only(rebuild(files, FOUND, [7]))
        assert one.in_doubt
        storages = storages_on(files, FOUND)
        storages.open()
        for _ in range(2):
            recover(files, storages, FOUND.journal_dirs)
            state = storages.of(7).ledgers.lookup(7)
            assert state is not None
            assert state.doubt is not None
            assert stored_entries(storages.of(7), 7) == [0]

    def test_what_only_an_old_journal_has_is_not_denied(self) -> None:
        records = (
            journal_layout.ledger_key_record(7, KEY),
            journal_layout.entry_record(packet(7, 0)),
        )
        mark = encode_mark(LastMark(1, 512 + sum(map(len, records))))
        files = world({"/j/current/1.txn": journal(*records), "/l0/current/lastMark": mark})
        assert only(rebuild(files, FOUND, [7])).in_doubt

    def test_a_ledger_that_is_nowhere_is_named(self) -> None:
        rebuilt = rebuild(world({}), FOUND, [7])
        assert (rebuilt.ledgers, rebuilt.missing) == ([], [7])


def test_entries_that_only_a_journal_has_are_counted_or_come_with_the_next_start() -> None:
    records = [
        journal_layout.ledger_key_record(7, KEY),
        journal_layout.entry_record(packet(7, 0)),
        journal_layout.entry_record(packet(7, 1)),
    ]
    mark = LastMark(1, 512 + len(records[0]) + len(records[1]))
    files = world(
        {
            "/j/current/1.txn": journal(*records),
            "/l0/current/lastMark": encode_mark(mark),
            "/l1/current/lastMark": encode_mark(mark),
        }
    )
    one = only(rebuild(files, FOUND, [7]))
    assert (one.entries, one.journal_only, one.key_from) == (0, 1, "journal")
    storages = storages_on(files, FOUND)
    storages.open()
    recover(files, storages, FOUND.journal_dirs)
    state = storages.of(7).ledgers.lookup(7)
    assert state is not None
    assert stored_entries(storages.of(7), 7) == [1], (
        "without an index replay drops it: no key is behind"
    )
    assert state.fenced


@pytest.mark.parametrize("is_lost", [False, True])
def test_where_an_index_is_lost_fences_are_looked_up_in_the_metadata(*, is_lost: bool) -> None:
    """A ledger that was fenced before its first entry is in its index alone."""
    changes = {
        "/l0/current/0.log": log(packet(7, 0)),
        "/j/current/1.txn": journal(journal_layout.ledger_key_record(7, KEY)),
        "/j/bookied.journal": encode_note(LastJournalNote(1, NO_LEDGER)),
    }
    files = world(changes if is_lost else {**changes, str(INDEX_7): index()})
    rebuild(files, FOUND, None)
    expected = ALL_LEDGERS if is_lost else NO_LEDGER
    assert fences_in_doubt_to(files, FOUND.journals) == expected


def test_a_dry_run_finds_all_and_writes_nothing() -> None:
    files = SimFiles(Random(1))
    found = load_golden(files, "interleaved/rotated", leave_out=".idx")
    before, done_before = files.contents(), files.operations
    rebuilt = rebuild(files, found, None, dry_run=True, key_of=lambda _: (KEY, "password"))
    assert len(rebuilt.ledgers) == 6
    assert not any(one.is_written for one in rebuilt.ledgers)
    assert (files.contents(), files.operations) == (before, done_before)


def test_progress_ends_at_the_size_of_what_is_read() -> None:
    files = SimFiles(Random(1))
    found = load_golden(files, "interleaved/rotated")
    told: list[int] = []
    rebuild(files, found, [39], progress=told.append)
    assert told == sorted(told)
    assert told[-1] == size_of(files, found.journal_dirs, found.ledger_dirs)


def test_a_version_0_header_stays_one() -> None:
    files = world(
        {"/l0/current/0.log": log(packet(7, 0)), str(INDEX_7): index(version=0)},
    )
    rebuild(files, FOUND, [7])
    assert stored(files).version == 0


@pytest.mark.parametrize("pages_max", [1, 100])
def test_after_a_crash_anywhere_each_index_is_the_old_one_or_the_new_one(pages_max: int) -> None:
    old = index(places=(location(5, 1028),))
    logs = {
        "/l0/current/0.log": log(packet(7, 0), packet(8, 1500), packet(7, 2000), packet(8, 1)),
        "/l1/current/1.log": log(packet(7, 1), packet(9, 0)),
        "/j/current/1.txn": journal(journal_layout.ledger_key_record(9, KEY)),
    }

    def make(files: SimFiles) -> SimFiles:
        return world(
            logs
            | {str(INDEX_7): old, "/l1/current/0/8/8.idx": index(explicit_lac=lac_packet(8, 1))},
            files,
        )

    def act(files: SimFiles) -> IndexRebuildResult:
        return rebuild(files, FOUND, None, pages_max=pages_max)

    reference = make(SimFiles(Random(0)))
    act(reference)
    after = {name: data for name, data in reference.contents().items() if name.endswith(".idx")}
    nine = next(name for name in after if name.endswith("9.idx"))
    before = {str(INDEX_7): old, "/l1/current/0/8/8.idx": index(explicit_lac=lac_packet(8, 1))}
    crashes = 0
    for files, through in each_crash(make, act, seeds=2):
        crashes += not through
        contents = files.contents()
        for name, data in after.items():
            assert contents.get(name) in {before.get(name), data}, name
        assert all(contents[name] == data for name, data in logs.items())
        act(files)
        contents = files.contents()
        assert {name: contents.get(name) for name in after} == after
        assert nine in after
    assert crashes > 15


def test_without_room_the_old_index_stays() -> None:
    old = index(places=(location(5, 1028),))
    files = world({"/l0/current/0.log": log(packet(7, 0)), str(INDEX_7): old})
    files.bytes_max = sum(map(len, files.contents().values())) + 100
    with pytest.raises(OSError, match="No space"):
        rebuild(files, FOUND, [7])
    assert files.read(INDEX_7) == old
    assert files.list(INDEX_7.parent) == ["7.idx"]
    files.bytes_max = None
    assert only(rebuild(files, FOUND, [7])).is_written


def test_an_index_directory_that_was_emptied_may_stay_so_once_all_is_elsewhere() -> None:
    """New index files go where there is most room."""
    old = log(packet(7, 0))
    files = world(
        {
            "/j/current/1.txn": journal(journal_layout.ledger_key_record(7, KEY)),
            "/l0/current/0.log": old,
            "/l1/current/lastMark": encode_mark(LastMark(1, 0)),
            str(INDEX_7): index(places=(location(0, len(LogHeader().encode()) + 4),)),
        }
    )
    files.mkdirs(Path("/l1/current/0/9"))
    ContentsNotes(files, FOUND).update()
    for name in ("9", ""):
        files.remove_dir(Path("/l1/current/0") / name)
    rebuild(files, FOUND, None, dry_run=True)
    rebuild(files, FOUND, [7])
    with pytest.raises(DirectoryEmptiedError):
        check_losses(files, FOUND)
    rebuild(files, FOUND, None)
    check_losses(files, FOUND)
    files.remove(Path("/l1/current/lastMark"))
    with pytest.raises(DirectoryEmptiedError, match="entries"):
        check_losses(files, FOUND)


def with_emptied_index(files: SimFiles) -> SimFiles:
    """Return directories that have lost all index files of ledgers 7 to 9, and know it."""
    keys = (journal_layout.ledger_key_record(ledger_id, KEY) for ledger_id in (7, 8, 9))
    world(
        {
            "/l0/current/0.log": log(packet(7, 0), packet(8, 0), packet(9, 0)),
            "/j/current/1.txn": journal(*keys),
        },
        files,
    )
    files.mkdirs(Path("/l0/current/0"))
    ContentsNotes(files, FOUND).update()
    files.remove_dir(Path("/l0/current/0"))
    files.sync_dir(Path("/l0/current"))
    return files


def test_a_bookie_that_has_a_part_of_its_lost_index_again_does_not_start() -> None:
    """It would deny the entries of the other ledgers."""
    files = with_emptied_index(SimFiles(Random(1)))
    rebuild(files, FOUND, [7])
    with pytest.raises(DirectoryEmptiedError, match="rebuild-index --all"):
        check_losses(files, FOUND)
    ContentsNotes(files, FOUND).update()
    rebuild(files, FOUND, None)
    check_losses(files, FOUND)
    crashes = 0
    for disk, through in each_crash(with_emptied_index, lambda one: rebuild(one, FOUND, None)):
        crashes += not through
        if set(index_of(disk).ledger_ids()) != {7, 8, 9}:
            with pytest.raises(DirectoryEmptiedError):
                check_losses(disk, FOUND)
        rebuild(disk, FOUND, None)
        check_losses(disk, FOUND)
    assert crashes > 20


def test_two_index_files_of_a_ledger_become_one() -> None:
    """A directory was put back from a snapshot, after its index files had moved to another one."""
    other = Path("/l1/current/0/7/7.idx")
    files = world(
        {
            "/l0/current/0.log": log(packet(7, 0), packet(7, 1)),
            str(INDEX_7): index(places=(location(0, 1028), 0, location(5, 1028))),
            str(other): index(places=(location(0, 1028), location(0, 1028 + 43))),
        }
    )
    assert index_of(files).ledger_ids() == [7]
    with pytest.raises(IndexFormatError, match="is of the same ledger"):
        index_of(files).load(7)
    one = only(rebuild(files, FOUND, [7]))
    assert (one.entries, one.unreadable) == (2, 1), "the log of the third entry is gone"
    assert not files.exists(other)
    found = entries(files, 7)
    assert found == {0: location(0, 1028), 1: location(0, 1028 + 43), 2: location(5, 1028)}
    assert index_of(files).load(7) is not None


@pytest.mark.parametrize("wanted", [None, [7]])
def test_an_index_is_not_rebuilt_from_some_of_the_ledger_directories(
    wanted: list[int] | None,
) -> None:
    """The bookie would deny the entries in the others; later there would be two indexes."""
    files = world(
        {
            "/j/current/1.txn": journal(journal_layout.ledger_key_record(7, KEY)),
            "/l0/current/0.log": log(packet(7, 0)),
            "/l1/current/1.log": log(packet(7, 1)),
        }
    )
    ContentsNotes(files, FOUND).update()
    files.remove(Path("/l1/current/1.log"))
    with pytest.raises(DirectoryEmptiedError, match="entries"):
        rebuild(files, FOUND, wanted)
    assert not files.exists(INDEX_7)


def index_of(files: SimFiles) -> FileIndex:
    return FileIndex(files, FOUND.index_dirs)
