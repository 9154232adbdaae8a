"""The check of a bookie's directories: nothing on sound ones, each damage by its name and place."""

from __future__ import annotations

import shutil
import struct
from array import array
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from bkclient.config.findings import Severity
from bookied.directories.emptied_directories import ContentsNotes
from bookied.directories.last_journal_note import NO_LEDGER, LastJournalNote, note_journal
from bookied.directories.lock import DirectoryLocks
from bookied.directories.root_paths import note_paths
from bookied.directories.roots import Directories
from bookied.offline.bookie import OfflineBookie
from bookied.offline.check.check import stages
from bookied.offline.check.findings import DiskFinding, Findings
from bookied.offline.check.start import check_journals
from bookied.offline.repair.open_storages import open_rocks
from bookied.storage.entrylog.format import LogHeader, location
from bookied.storage.files.files import RealFiles
from bookied.storage.index.format import IndexHeader
from bookied.storage.journal.format import entry_record, header, ledger_key_record
from bookied.storage.journal.mark import LastMark, encode_mark
from tests.bookied.worlds.golden import CRASHED, DIRECTORY, WITH_LEDGERS, expected
from wire.records.cookie import Cookie, encode_cookie

SLOT = struct.Struct(">q")


class Place:
    """A copy of a golden directory, to be damaged and checked."""

    def __init__(self, root: Path, name: str) -> None:
        shutil.copytree(DIRECTORY / name, root)
        self.journal = root / "journal/current"
        self.ledgers = root / "ledgers/current"
        found = Directories((root / "journal",), (root / "ledgers",), (root / "ledgers",))
        self.bookie = OfflineBookie(RealFiles(), found)
        cookie = Cookie("b:1", str(root / "journal"), (str(root / "ledgers"),))
        for directory in (self.journal, self.ledgers):
            (directory / "VERSION").write_bytes(encode_cookie(cookie))
        self.findings = Findings()

    def check(self, *, deep: bool = False, is_live: bool = False) -> list[DiskFinding]:
        self.findings = Findings(is_live=is_live)
        with self.bookie.shards() as shards:
            parts = stages(self.bookie, self.findings, shards=shards, deep=deep)
            return [found for part in parts for found in part.run(lambda _done, _items: None)]

    def index(self, ledger_id: int) -> Path:
        return self.ledgers / f"{ledger_id >> 8:x}/{ledger_id & 255:x}/{ledger_id:x}.idx"

    def set_location(self, ledger_id: int, entry_id: int, location: int) -> None:
        patch(self.index(ledger_id), 1024 + 8 * entry_id, SLOT.pack(location))


def patch(path: Path, offset: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "bookie", "sorted/clean")


@pytest.fixture
def rotated(tmp_path: Path) -> Place:
    return Place(tmp_path / "bookie", "interleaved/rotated")


def the_one(found: list[DiskFinding]) -> DiskFinding:
    assert len(found) == 1, found
    return found[0]


# Sound directories -------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", [*WITH_LEDGERS, *CRASHED, "db/clean", "db/crash"])
def test_directories_that_java_left_are_sound(tmp_path: Path, name: str, *, deep: bool) -> None:
    place = Place(tmp_path / "bookie", name)
    found = place.check(deep=deep)
    assert [one for one in found if one.severity is not Severity.NOTE] == []
    ledgers = {} if name in CRASHED else expected(name)["ledgers"]
    counts = place.findings.counts
    assert counts.ledgers == len(ledgers)
    assert counts.entries == sum(len(facts["entries"]) for facts in ledgers.values())
    if deep:
        assert counts.verified + counts.unverified == counts.entries
        crc = [f for f in ledgers.values() if f["digestType"].startswith("CRC32")]
        assert counts.verified == sum(len(facts["entries"]) for facts in crc)


def test_what_is_looked_at_is_told_as_it_goes(rotated: Place) -> None:
    told: list[tuple[str, int]] = []
    with rotated.bookie.shards() as shards:
        for part in stages(rotated.bookie, Findings(), shards=shards, deep=True):
            list(part.run(lambda done, _items, title=part.title: told.append((title, done))))
            if part.title in {"entry logs", "index"}:
                assert told[-1] == (part.title, part.total)


# Start: cookies, marks, journals -----------------------------------------------------------------


def test_a_damaged_cookie_a_missing_one_and_one_of_another_bookie_are_problems(
    place: Place,
) -> None:
    path = place.ledgers / "VERSION"
    original = path.read_bytes()
    path.write_bytes(b"")
    assert (the_one(place.check()).kind, the_one(place.check()).path) == ("bad-cookie", path)
    path.unlink()
    missing = the_one(place.check())
    assert (missing.kind, missing.fix) == ("cookie-missing", "bkctl cookie repair -c FILE")
    path.write_bytes(original.replace(b"b:1", b"b:2"))
    found = the_one(place.check())
    assert (found.kind, found.severity) == ("cookie-mismatch", Severity.PROBLEM)


def test_no_cookie_is_copied_into_an_empty_directory(place: Place) -> None:
    """The bookie would start without its entries, and report them as missing."""
    shutil.rmtree(place.ledgers)
    place.ledgers.mkdir()
    found = next(one for one in place.check() if one.kind == "cookie-missing")
    assert "is empty" in found.message
    assert "bkctl recover b:1" in found.fix
    assert "cp " not in found.fix


def test_a_directory_that_is_new_in_the_settings_has_lost_nothing(place: Place) -> None:
    new = place.ledgers.parent.with_name("new")
    (new / "current").mkdir(parents=True)
    found = place.bookie.found
    place.bookie = OfflineBookie(
        RealFiles(), Directories(found.journals, (*found.ledgers, new), found.indexes)
    )
    missing = next(one for one in place.check() if one.kind == "cookie-missing")
    assert missing.path == new / "current/VERSION"
    assert missing.fix.startswith("bkctl disk expand")


def test_directories_in_another_order_than_the_cookies_are_a_warning(place: Place) -> None:
    cookie = Cookie("b:1", "/elsewhere", (str(place.ledgers.parent),))
    for directory in (place.journal, place.ledgers):
        (directory / "VERSION").write_bytes(encode_cookie(cookie))
    found = the_one(place.check())
    assert (found.kind, found.severity) == ("cookie-directories", Severity.WARNING)
    assert "journal directories are /elsewhere in the cookie" in found.message


@pytest.mark.parametrize(
    ("mark", "kind", "severity"),
    [
        (LastMark(0x1A1FC678C2B, 560), "mark-inside-record", Severity.WARNING),
        (LastMark(0x1A1FC678C2A, 512), "journal-missing", Severity.PROBLEM),
        (LastMark(0x1A1FC678C2C, 1 << 30), "mark-beyond-end", Severity.WARNING),
        (LastMark(0x1A1FC678C2B, 556), None, None),
        (LastMark(0x1A1FC678C2C, 512), None, None),
    ],
)
def test_a_mark_is_a_place_to_begin_at_or_a_finding(
    place: Place, mark: LastMark, kind: str | None, severity: Severity | None
) -> None:
    (place.ledgers / "lastMark").write_bytes(encode_mark(mark))
    found = {one.kind: one.severity for one in place.check()}
    found.pop("journal-residue", None)  # Where the middle of a record is taken for a length.
    assert found == ({kind: severity} if kind else {})


def test_a_damaged_mark_is_a_warning(place: Place) -> None:
    (place.ledgers / "lastMark").write_bytes(b"short")
    found = next(one for one in place.check() if one.severity is Severity.WARNING)
    assert (found.kind, found.path) == ("last-mark", place.ledgers / "lastMark")


def test_damage_in_a_journal_counts_where_it_is_replayed(place: Place) -> None:
    path = place.journal / "1a1fc678c2b.txn"
    patch(path, 1024, struct.pack(">i", -5))
    assert place.check() == []  # The mark lies behind it, and nobody reads it.
    found = the_one(place.check(deep=True))
    assert (found.kind, found.severity) == ("journal-record", Severity.WARNING)
    (place.ledgers / "lastMark").write_bytes(encode_mark(LastMark(0x1A1FC678C2B, 512)))
    found = the_one(place.check())
    assert (found.path, found.offset, found.severity) == (path, 1024, Severity.PROBLEM)
    steps = ["bkctl disk salvage", "bkctl recover b:1", "skipReplayJournalInvalidRecord"]
    assert [found.fix.index(step) for step in steps] == sorted(map(found.fix.index, steps))


def test_a_journal_that_is_missing_between_others_is_a_problem(place: Place) -> None:
    (place.journal / "1a1fc678c2c.txn").rename(place.journal / "1a1fc678c2d.txn")
    found = the_one(place.check())
    assert (found.kind, found.severity) == ("journal-missing", Severity.PROBLEM)
    assert found.path == place.journal / "1a1fc678c2c.txn"
    assert found.fix.index("bkctl disk salvage") < found.fix.index("bkctl disk format --delete")


def test_an_emptied_directory_is_the_same_problem_as_at_a_start(place: Place) -> None:
    found = place.bookie.found
    ContentsNotes(place.bookie.files, found).update()
    note_journal(place.bookie.files, found.journals[0], LastJournalNote(2**60, NO_LEDGER))
    told = the_one(place.check())
    assert (told.kind, told.severity) == ("journal-missing", Severity.PROBLEM)
    for path in place.ledgers.iterdir():
        if path.name != "VERSION":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    kinds = [one.kind for one in place.check() if one.severity is Severity.PROBLEM]
    assert kinds == ["journal-missing", "directory-emptied", "directory-emptied"]
    (fix,) = {one.fix for one in place.check() if "entries" in one.message and one.fix}
    assert fix.index("bkctl disk salvage LEDGER") < fix.index("bkctl disk format --delete-cookie")


def test_exchanged_directories_are_a_problem(place: Place) -> None:
    """A bookie refuses them too; all their cookies are the same."""
    found = place.bookie.found
    note_paths(RealFiles(), found)
    assert "directories-exchanged" not in {one.kind for one in place.check()}
    (journal,), (ledgers,) = found.journals, found.ledgers
    for root, other in ((journal, ledgers), (ledgers, journal)):
        (root / "bookied.path").write_text(f"{other}\n")
    told = [one for one in place.check() if one.kind == "directories-exchanged"]
    assert [one.severity for one in told] == [Severity.PROBLEM] * 2
    assert f"{journal} was {ledgers} at the last start" in told[0].message


def test_a_journal_of_another_directory_is_a_problem(tmp_path: Path) -> None:
    roots = tmp_path / "j0", tmp_path / "j1"
    for root in roots:
        (root / "current").mkdir(parents=True)
    packet = SLOT.pack(2) + SLOT.pack(0) + bytes(16)
    path = roots[1] / "current/1.txn"
    path.write_bytes(header(6) + ledger_key_record(2, b"k" * 20) + entry_record(packet))
    bookie = OfflineBookie(RealFiles(), Directories(roots, (), ()))
    found = list(check_journals(bookie, Findings(), lambda *_: None, deep=False))
    assert [(one.kind, one.severity, one.path) for one in found] == [
        ("journal-missing", Severity.PROBLEM, path)
    ]


def test_a_tear_in_a_journal_that_another_followed_is_a_problem(place: Place) -> None:
    (place.ledgers / "lastMark").write_bytes(encode_mark(LastMark(0x1A1FC678C2B, 512)))
    path = place.journal / "1a1fc678c2b.txn"
    path.write_bytes(path.read_bytes()[:1030])
    found = the_one(place.check())
    assert (found.kind, found.severity, found.path) == ("journal-record", Severity.PROBLEM, path)
    assert "a later journal follows it" in found.message


def test_a_torn_tail_is_a_note(tmp_path: Path) -> None:
    place = Place(tmp_path / "bookie", "sorted/crash")
    path = next(place.journal.glob("*.txn"))
    end = max(one["offset"] for one in expected("sorted/crash")["journals"][path.name]["records"])
    path.write_bytes(path.read_bytes()[: end + 10])
    found = the_one([one for one in place.check() if one.kind == "torn-tail"])
    assert (found.severity, found.offset) == (Severity.NOTE, end)


def test_a_bookie_that_runs_is_told_from_one_that_was_killed(place: Place) -> None:
    (place.ledgers / "DIRTY").touch()
    assert the_one(place.check()).message == "the bookie was not stopped cleanly"
    running = DirectoryLocks()
    running.take([place.ledgers.parent])
    try:
        assert the_one(place.check(is_live=True)).message == "a bookie runs here"
    finally:
        running.release()


# Entry logs and index ----------------------------------------------------------------------------


def location_of(name: str, ledger_id: int, entry_id: int) -> int:
    entries = expected(name)["ledgers"][str(ledger_id)]["entries"]
    found: int = next(one["location"]["value"] for one in entries if one["entryId"] == entry_id)
    return found


def test_a_missing_log_is_one_problem_for_each_run_of_entries(place: Place) -> None:
    (place.ledgers / "0.log").unlink()
    found = place.check()
    assert {(one.kind, one.severity) for one in found} == {("missing-log", Severity.PROBLEM)}
    ledgers = expected("sorted/clean")["ledgers"]
    assert {one.ledger_id for one in found} == set(map(int, ledgers))
    assert len(found) == len(ledgers)
    assert sum(one.entries for one in found) == sum(len(f["entries"]) for f in ledgers.values())
    assert all(f"recover b:1 --ledger {one.ledger_id} --to b:1`" in one.fix for one in found)


def test_the_end_of_a_cut_log_is_one_problem_though_a_bookie_has_only_some_entries(
    place: Place,
) -> None:
    facts = expected("sorted/clean")["ledgers"]
    ledger_id, entries = next(
        (int(key), [one["entryId"] for one in found["entries"]])
        for key, found in facts.items()
        if len(found["entries"]) >= 5
    )
    place.set_location(ledger_id, entries[2], 0)  # As in a striped ledger.
    for entry_id in (entries[1], *entries[3:]):
        place.set_location(ledger_id, entry_id, 1 << 20)
    found = the_one([one for one in place.check() if one.ledger_id == ledger_id])
    assert (found.entry_id, found.last_entry) == (entries[1], entries[-1])
    assert found.entries == len(entries) - 2


def test_an_intact_entry_ends_a_run_of_damaged_ones(place: Place) -> None:
    for entry_id in (0, 1, 3):
        place.set_location(0, entry_id, 1 << 20)
    found = [(one.entry_id, one.last_entry) for one in place.check() if one.ledger_id == 0]
    assert found == [(0, 1), (3, None)]


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        (lambda: location_of("sorted/clean", 0, 1), "wrong-entry"),
        (lambda: 1 << 30, "missing-entry"),
        (lambda: location_of("sorted/clean", 0, 2) + 5, "bad-entry-length"),
        (lambda: 17, "index-entry"),
        (lambda: -5, "index-entry"),
    ],
)
def test_a_location_that_leads_elsewhere_is_a_problem(
    place: Place, location: Callable[[], int], kind: str
) -> None:
    place.set_location(0, 2, location())
    for deep in (False, True):
        found = [one for one in place.check(deep=deep) if one.entry_id is not None]
        one = the_one(found)
        assert (one.kind, one.ledger_id, one.entry_id) == (kind, 0, 2)
        assert ("recover b:1 --ledger 0 --to b:1`" in one.fix) is (kind != "index-entry")


def test_what_the_journal_holds_is_no_problem(place: Place) -> None:
    (place.ledgers / "0.log").unlink()
    (place.ledgers / "lastMark").write_bytes(encode_mark(LastMark(0x1A1FC678C2B, 512)))
    found = [one for one in place.check() if one.kind == "missing-log"]
    assert {one.severity for one in found} == {Severity.NOTE}
    assert all("the next start brings it back" in one.fix for one in found)


def test_only_a_deep_check_finds_a_flipped_byte_of_a_payload(place: Place) -> None:
    crc = next(
        (int(key), facts)
        for key, facts in expected("sorted/clean")["ledgers"].items()
        if facts["digestType"] == "CRC32C" and len(facts["entries"]) > 1
    )
    for entry in crc[1]["entries"][:2]:
        at = (entry["location"]["value"] & 0xFFFFFFFF) + 40
        data = (place.ledgers / "0.log").read_bytes()
        patch(place.ledgers / "0.log", at, bytes([data[at] ^ 1]))
    assert place.check() == []
    found = the_one([one for one in place.check(deep=True) if one.kind == "wrong-digest"])
    entries = [entry["entryId"] for entry in crc[1]["entries"][:2]]
    assert (found.ledger_id, found.entry_id, found.last_entry) == (crc[0], *entries)
    location = crc[1]["entries"][0]["location"]["value"]
    assert found.offset == (location & 0xFFFFFFFF) - 4
    assert "CRC32C" in found.message


def test_a_damaged_index_file_is_told_and_the_others_are_checked(place: Place) -> None:
    patch(place.index(1), 0, b"XXXX")
    place.index(2).write_bytes(place.index(2).read_bytes()[:100])
    place.index(3).write_bytes(place.index(3).read_bytes()[:-8])
    found = {one.ledger_id: one for one in place.check()}
    assert found[1].kind == "index-format"
    assert found[1].fix == "bkctl disk rebuild-index 1"
    assert (found[2].kind, found[2].severity) == ("index-truncated", Severity.PROBLEM)
    assert (found[3].kind, found[3].severity) == ("index-partial-page", Severity.WARNING)
    assert place.findings.counts.ledgers == 7


def test_a_ledger_that_a_database_lacks_needs_the_list_of_ledgers_first(tmp_path: Path) -> None:
    """`rebuild-db --locations` alone drops the locations of ledgers that are not listed."""
    db = Place(tmp_path / "bookie", "db/clean")
    rows = open_rocks(db.bookie.found.index_dirs[0] / "ledgers")
    (key, _value), *_others = rows.items(b"", b"\x80", 1)
    rows.delete([key])
    rows.sync()
    rows.close()
    (fix,) = {one.fix for one in db.check(deep=True) if one.kind == "no-index"}
    assert fix.endswith(": bkctl disk rebuild-db --ledgers --locations")


@pytest.mark.parametrize("name", ["ledgers", "locations"])
def test_a_database_that_is_gone_is_rebuilt_by_its_name(tmp_path: Path, name: str) -> None:
    db = Place(tmp_path / "bookie", "db/clean")
    shutil.rmtree(db.bookie.found.index_dirs[0] / name)
    (fix,) = {one.fix for one in db.check() if one.kind == "db-record"}
    assert fix == f"bkctl disk rebuild-db --{name}"


def test_entries_that_the_index_has_lost_are_found_by_a_deep_check(place: Place) -> None:
    place.set_location(0, 3, 0)
    place.index(1).unlink()
    assert place.check() == []
    found = {one.ledger_id: one for one in place.check(deep=True)}
    assert (found[0].kind, found[0].severity) == ("unindexed", Severity.PROBLEM)
    assert "entry 3 (80 bytes)" in found[0].message
    assert (found[1].kind, found[1].severity) == ("no-index", Severity.NOTE)


def test_entries_behind_the_last_that_anything_knows_may_never_have_been_acknowledged(
    place: Place,
) -> None:
    """A bookie killed between log and journal leaves them; that is no reason to fail a check."""
    slots = array("q", place.index(0).read_bytes()[1024:])
    last = max(entry for entry, location in enumerate(slots) if location)
    place.set_location(0, last, 0)
    (found,) = (one for one in place.check(deep=True) if one.ledger_id == 0)
    assert (found.kind, found.severity) == ("unindexed-end", Severity.WARNING)
    assert f"entry {last} (" in found.message
    assert "never acknowledged" in found.message


def test_a_damaged_log_is_told_with_its_offset(rotated: Place) -> None:
    patch(rotated.ledgers / "0.log", 0, b"XXXX")
    found = next(one for one in rotated.check() if one.kind == "entry-log-format")
    assert (found.path, found.offset) == (rotated.ledgers / "0.log", 0)
    patch(rotated.ledgers / "1.log", 1024, struct.pack(">i", 3))
    found = next(one for one in rotated.check(deep=True) if one.kind == "entry-log-record")
    assert (found.path, found.offset) == (rotated.ledgers / "1.log", 1024)


MISREAD = b"\xff\xff" + entry_record(struct.pack(">qqqq", 99, 63_660, -1, 0) + b"of another length")
MISREAD += Random(7).randbytes(300)
"""Damage that looks like an entry behind the end of the ledger."""


@pytest.mark.parametrize(
    "damage",
    [b"\xff", b"x", b"\0", b"\0\0\0\3", Random(7).randbytes(300), MISREAD],
)
def test_damage_within_a_log_is_one_problem_of_its_entries_and_no_torn_tail(
    place: Place, damage: bytes
) -> None:
    path = place.ledgers / "9.log"
    packets = [struct.pack(">qqqq", 99, entry_id, -1, 0) + b"data" for entry_id in range(10_000)]
    path.write_bytes(LogHeader().encode() + b"".join(map(entry_record, packets)))
    index = IndexHeader(b"k" * 20).encode()
    index += b"".join(SLOT.pack(location(9, 1028 + 40 * number)) for number in range(10_000))
    place.index(99).parent.mkdir()
    place.index(99).write_bytes(index.ljust(1024 + 10 * 8192, b"\0"))
    assert place.check(deep=True) == []
    begin = 1024 + 40 * 5000
    patch(path, begin - 2, (damage * 300)[:300])
    one = the_one([one for one in place.check() if one.ledger_id == 99])
    assert (one.entry_id, one.last_entry, one.entries, one.path) == (5000, 5007, 8, path)
    assert one.message == "unreadable in 9.log: bytes of the log are damaged"
    assert "`bkctl bookie recover b:1 --ledger 99 --to b:1`" in one.fix
    deep, gap = (one for one in place.check(deep=True) if one.severity is not Severity.NOTE)
    assert (gap.kind, gap.path) == ("entry-log-record", path)
    assert begin - 40 <= gap.offset <= begin
    assert deep.kind == "damaged-entry"
    assert deep.entries in {8, 9}, "entry 4999 too, where no record can follow it"
    assert place.check(deep=True) == [deep, gap], "no torn tail"
    again = place.ledgers / "a.log"  # As `bookie recover --to` writes them.
    again.write_bytes(LogHeader().encode() + b"".join(map(entry_record, packets[4999:5009])))
    for number in range(10):
        place.set_location(99, 4999 + number, location(10, 1028 + 40 * number))
    (note,) = place.check(deep=True)
    assert (note.kind, note.severity, note.path) == (gap.kind, Severity.NOTE, path)
    (perhaps,) = place.check(deep=True, is_live=True)
    assert (perhaps.kind, perhaps.severity) == (gap.kind, Severity.WARNING)
    assert "check again once the bookie is stopped" in perhaps.fix
    place.set_location(99, 5003, location(9, 1028 + 40 * 5003))
    assert [one.severity for one in place.check(deep=True)] == [Severity.PROBLEM] * 2


def test_a_ledgers_map_that_leaves_a_ledger_out_is_a_problem(rotated: Place) -> None:
    path = rotated.ledgers / "0.log"
    facts = expected("interleaved/rotated")["entryLogs"]["0.log"]
    row = facts["ledgersMapOffset"] + 24
    patch(path, row, struct.pack(">qq", 999, 5))
    assert rotated.check() == []
    found = [one for one in rotated.check(deep=True) if one.kind == "ledgers-map"]
    lost, extra = sorted(found, key=lambda one: one.ledger_id or 0)
    assert (lost.severity, str(lost.ledger_id) in facts["ledgersMap"]) == (Severity.PROBLEM, True)
    assert (extra.severity, extra.ledger_id) == (Severity.WARNING, 999)
    patch(path, row - 4, struct.pack(">i", -1))
    assert the_one(rotated.check()).severity is Severity.WARNING


def test_overwritten_ids_are_no_ledger(rotated: Place) -> None:
    facts = expected("interleaved/rotated")["ledgers"]
    entries = [
        (int(key), one["entryId"], one["location"]["value"] & 0xFFFFFFFF)
        for key, ledger in facts.items()
        for one in ledger["entries"]
        if one["location"]["value"] >> 32 == 0
    ]
    ledger_id, entry_id, at = entries[1]
    patch(rotated.ledgers / "0.log", at, b"GARBAGE!")
    for deep in (False, True):
        found = the_one([one for one in rotated.check(deep=deep) if one.kind != "no-index"])
        assert (found.kind, found.ledger_id, found.entry_id) == (
            "damaged-entry", ledger_id, entry_id
        )  # fmt: skip
        assert found.message == "unreadable in 0.log: the ids of its record are overwritten"
        assert found.fix.startswith("once the bookie runs, `bkctl bookie recover ")
    named = int.from_bytes(b"GARBAGE!", "big")
    assert named not in {one.ledger_id for one in rotated.check(deep=True)}


def test_a_compaction_that_was_cut_short_is_a_note(rotated: Place) -> None:
    (rotated.ledgers / "9.log.compacting").touch()
    found = the_one(rotated.check())
    assert (found.kind, found.severity) == ("compaction", Severity.NOTE)
