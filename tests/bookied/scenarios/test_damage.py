"""Damage to each file of a bookie: flipped, cut, zeroed, swapped, doubled, taken from a backup.

Whatever happened to a file, of an entry that was acknowledged a bookie gives the very entry or
EIO, or it does not start and names the file. It never says "no such entry": recovery takes that
for proof that the entry was never written. It makes nothing up, and deletes no file.

What it cannot know it serves: a payload has no checksum of the bookie's, clients have one. What
nobody can tell from the files alone is tested for at the end, so that it is known.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookied.directories.status_file import PersistedMode, read_status, write_status
from bookied.errors import CorruptError, JournalMissingError, JournalRecordError
from bookied.storage.entrylog.log_list import next_log_id
from bookied.storage.entrylog.scan import open_scan
from bookied.storage.index.file_names import relative_path
from bookied.storage.index.format import HEADER_BYTES, PAGE_BYTES
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents
from tests.bookied.worlds.damaged_bookie import (
    ABSENT,
    FENCED,
    L0,
    L1,
    NEVER,
    NEW,
    OLD,
    ONE,
    TWO,
    J,
    Patient,
    copy,
    healthy,
    packet,
    start,
)
from tests.bookied.worlds.served_bookie import KEY as SERVED_KEY
from tests.bookied.worlds.served_bookie import Serving
from tests.bookied.worlds.served_bookie import packet as served_packet
from tests.sim.world.disk import SimFiles
from wire.codes import ProtocolVersion, ReturnCode
from wire.ids import EntryId, LedgerId
from wire.messages import AddRequest, ReadRequest

EIO = ReturnCode.EIO
ACKED = [(ledger_id, entry_id) for ledger_id in (ONE, TWO) for entry_id in (*OLD, *NEW)]


@functools.cache
def contents() -> dict[str, bytes]:
    return healthy().contents()


def find(suffix: str) -> str:
    """Return the one file with such a name."""
    (name,) = [name for name in contents() if name.endswith(suffix)]
    return name


INDEX_ONE, INDEX_TWO = (str(relative_path(ledger_id)) for ledger_id in (ONE, TWO))


def damaged(changes: dict[str, bytes | None]) -> SimFiles:
    """Return the disk with some files replaced, or gone where None."""
    changed = {name: changes.get(name, data) for name, data in contents().items()} | changes
    return copy({name: data for name, data in changed.items() if data is not None})


def flips(data: bytes, until: int | None = None) -> Iterator[bytes]:
    for at in range(len(data) if until is None else min(until, len(data))):
        for mask in (0x01, 0x80, 0xFF):
            yield data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def check(files: SimFiles, *, may_change: bool = False, lost: set[tuple[int, int]] = frozenset()):
    """Start on a damaged disk and hold the bookie to its word; None if it does not start.

    Args:
        files: the disk.
        may_change: whether the damage may be in a payload, which the bookie cannot tell.
        lost: entries that may be absent: their journal ends before them, as in a crash.
    """
    before = set(files.contents())
    try:
        patient = start(files)
    except CorruptError as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert refused.path.parent in {J, L0, L1}
        return None
    for (ledger_id, entry_id), found in patient.everything().items():
        wanted = packet(ledger_id, entry_id)
        if isinstance(found, ReturnCode):
            is_absent = found in ABSENT
            assert not is_absent or (ledger_id, entry_id) in lost, f"{ledger_id}/{entry_id} {found}"
            assert is_absent or found is EIO
        elif found != wanted:
            assert may_change
            assert (found[:16], len(found)) == (wanted[:16], len(wanted))
    for ledger_id in (ONE, TWO, 77):
        assert not isinstance(patient.read(ledger_id, NEVER), bytes), "made up"
    assert before <= set(files.contents()), "deleted"
    return patient


def outcome(patient: Patient, ledger_id: int) -> list[object]:
    return [patient.read(ledger_id, entry_id) for entry_id in (*OLD, *NEW)]


def whole(ledger_id: int) -> list[object]:
    return [packet(ledger_id, entry_id) for entry_id in (*OLD, *NEW)]


def test_without_damage_everything_is_there() -> None:
    patient = check(copy(contents()))
    assert patient.everything() == {place: packet(*place) for place in ACKED}
    assert patient.replayed.entries == 2 * len(NEW)
    assert patient.read(ONE, NEVER) is ReturnCode.ENOENTRY
    assert patient.read(77, 0) is ReturnCode.ENOLEDGER
    assert patient.add(FENCED, 0) is ReturnCode.EFENCED


# Index files --------------------------------------------------------------------------------------


def test_a_flip_in_an_index_hits_its_ledger_alone() -> None:
    name = find(INDEX_ONE)
    data = contents()[name]
    for changed in flips(data, 40):
        check_index(name, changed)
    for slot in range(12):
        at = HEADER_BYTES + 8 * slot
        for part in flips(data[at : at + 8]):
            check_index(name, data[:at] + part + data[at + 8 :])


def check_index(name: str, data: bytes) -> None:
    patient = check(damaged({name: data}))
    assert patient is not None, "a ledger's index is no reason not to start"
    assert outcome(patient, TWO) == whole(TWO)


def test_an_index_slot_that_leads_to_another_entry_is_an_error() -> None:
    name = find(INDEX_ONE)
    data = bytearray(contents()[name])
    data[HEADER_BYTES : HEADER_BYTES + 8] = data[HEADER_BYTES + 8 : HEADER_BYTES + 16]
    patient = check(damaged({name: bytes(data)}))
    assert patient.read(ONE, 0) is EIO
    assert outcome(patient, ONE)[1:] == whole(ONE)[1:]


def test_an_index_cut_anywhere_says_of_nothing_that_it_was_never_there() -> None:
    name = find(INDEX_ONE)
    data = contents()[name]
    lengths = {*range(0, 60, 3), 1023, *range(1024, 1024 + 12 * 8 + 9), 4096, 8192, len(data) - 1}
    for length in sorted(lengths - {HEADER_BYTES}):
        patient = check(damaged({name: data[:length]}))
        assert outcome(patient, TWO) == whole(TWO)
        assert patient.read(ONE, NEVER) is EIO
        assert patient.list_entries(ONE) is EIO


def test_a_cut_index_serves_what_it_still_has() -> None:
    name = find(INDEX_ONE)
    files = damaged({name: contents()[name][: HEADER_BYTES + 8 * 4]})
    patient = check(files)
    assert outcome(patient, ONE)[:4] == whole(ONE)[:4]
    assert outcome(patient, ONE)[8:] == whole(ONE)[8:], "the journal had these"
    assert outcome(patient, ONE)[4:8] == [EIO] * 4
    assert patient.read(ONE, -1) is EIO


@pytest.mark.parametrize("left_bytes", [1, 4, 8 * 12])
def test_a_replay_into_a_later_page_hides_no_damage_there(left_bytes: int) -> None:
    patient = start(copy({}))
    for entry_id in range(1040):
        assert patient.add(ONE, entry_id) is ReturnCode.EOK
    patient.checkpoint()
    assert patient.add(ONE, 1040) is ReturnCode.EOK, "in the journal alone"
    contents = patient.files.contents()
    name = next(name for name in contents if name.endswith(INDEX_ONE))
    cut = contents[name][: HEADER_BYTES + PAGE_BYTES + left_bytes]
    files = copy(contents | {name: cut})
    for _ in range(2):
        patient = start(files)
        assert patient.read(ONE, 1040) == packet(ONE, 1040)
        for entry_id in range(1024, 1040):
            assert patient.read(ONE, entry_id) in (packet(ONE, entry_id), EIO)
        assert patient.read(ONE, 1039) is EIO
        assert patient.add(ONE, 1041) is EIO, "it would hide the damage"
        patient.checkpoint()
        files = copy(files.contents())


def test_the_last_entry_of_a_full_page_is_the_last_one_after_a_restart() -> None:
    patient = start(copy({}))
    for entry_id in range(1024):
        assert patient.add(ONE, entry_id) is ReturnCode.EOK
    patient.checkpoint()
    patient = start(copy(patient.files.contents()))
    assert patient.read(ONE, -1) == packet(ONE, 1023)


MARKS = {str(directory / "lastMark"): None for directory in (L0, L1)}


def logs() -> dict[str, bytes]:
    return {name: data for name, data in contents().items() if name.endswith(".log")}


def test_an_empty_index_is_a_new_ledger_where_the_journal_has_all_of_it() -> None:
    """A Java bookie that is killed when it has created the file leaves it empty.

    In a flush that is after it has written the entries to a log.
    """
    name = find(INDEX_ONE)
    for gone in ({}, dict.fromkeys(logs())):
        patient = check(damaged({name: b""} | MARKS | gone))
        assert outcome(patient, ONE) == whole(ONE), "all of it is in the journal"
        assert patient.read(ONE, NEVER) is ReturnCode.ENOENTRY


def test_an_empty_index_is_damage_where_the_journal_lacks_what_a_log_has() -> None:
    name = find(INDEX_ONE)
    patient = check(damaged({name: b""}))
    assert outcome(patient, ONE) == [EIO] * 12, "the old entries are in a log alone"
    log, data = next(iter(logs().items()))
    more = packet(ONE, NEVER)
    record = len(more).to_bytes(4, "big") + more
    at = data.find(packet(ONE, 0)) - 4
    assert at >= 1024, "the log of entry 0"
    patient = check(damaged({name: b"", log: data[:at] + record + data[at:]} | MARKS))
    assert outcome(patient, ONE) == [EIO] * 12, "one entry is in a log alone"
    assert patient.read(ONE, NEVER) is EIO


def test_an_empty_index_is_damage_where_a_log_cannot_be_read() -> None:
    log, data = next(iter(logs().items()))
    patient = check(damaged({find(INDEX_ONE): b"", log: b"XXXX" + data[4:]} | MARKS))
    assert outcome(patient, ONE) == [EIO] * 12


def test_swapped_index_files_are_noticed() -> None:
    one, two = find(INDEX_ONE), find(INDEX_TWO)
    patient = check(damaged({one: contents()[two], two: contents()[one]}))
    for ledger_id in (ONE, TWO):
        assert not set(outcome(patient, ledger_id)[: len(OLD)]) & ABSENT
        assert patient.read(ledger_id, NEVER) is EIO


def test_two_index_files_of_one_ledger_are_one_too_many() -> None:
    name = find(INDEX_ONE)
    here, there = (L0, L1) if name.startswith(str(L0)) else (L1, L0)
    double = name.replace(str(here), str(there))
    patient = check(damaged({double: contents()[name][: HEADER_BYTES + PAGE_BYTES]}))
    assert outcome(patient, ONE) == [EIO] * 12
    assert outcome(patient, TWO) == whole(TWO)


def test_the_explicit_lac_of_another_ledger_is_damage() -> None:
    name = find(INDEX_TWO)
    data = contents()[name]
    at = data.index(TWO.to_bytes(8, "big"), 12 + 20)
    patient = check(damaged({name: data[: at + 7] + b"\x09" + data[at + 8 :]}))
    assert outcome(patient, TWO) == [EIO] * 12


@pytest.mark.parametrize("kind", ["cut in its header", "empty", "cut later", "doubled"])
def test_no_compaction_drops_what_a_damaged_index_has_lost(kind: str) -> None:
    """To a compaction, what no index points at is garbage; here it is the last copy."""
    name = find(INDEX_ONE)
    data = contents()[name]
    here, there = (L0, L1) if name.startswith(str(L0)) else (L1, L0)
    damage = {
        "cut in its header": {name: data[:1000]},
        "empty": {name: b""},
        "cut later": {name: data[: HEADER_BYTES + 8 * 4]},
        "doubled": {name.replace(str(here), str(there)): data[: HEADER_BYTES + PAGE_BYTES]},
    }
    storage = LedgerStorage(
        files := damaged(damage[kind]),
        [L0, L1],
        IndexFiles(files, [L0, L1]),
        events=StorageEvents(on_fatal=print),
    )
    storage.open()
    log = open_scan(files, Path(find("/0.log")))
    places = [(one.ledger_id, one.entry_id, one.location) for one in log]
    assert storage.relocation.still_at([one for one in places if one[0] == TWO]) == [True] * len(
        OLD
    )
    with pytest.raises(CorruptError, match=Path(name).name):
        storage.relocation.still_at(places)


# Entry logs ---------------------------------------------------------------------------------------


def test_a_flip_in_an_entry_log_is_an_error_or_in_a_payload() -> None:
    name = find("/0.log")
    data = contents()[name]
    for changed in flips(data, 20):
        check(damaged({name: changed}))
    for at in range(1024, len(data)):
        changed = data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
        check(damaged({name: changed}), may_change=True)


def test_a_flipped_length_of_a_record_is_an_error() -> None:
    name = find("/0.log")
    data = contents()[name]
    length = int.from_bytes(data[1024:1028], "big")
    for wrong in (length - 1, length + 4, length + 12, length ^ 0x40, length + 2**16, 15, -1):
        changed = data[:1024] + (wrong & 0xFFFFFFFF).to_bytes(4, "big") + data[1028:]
        assert check(damaged({name: changed})).read(ONE, 0) is EIO


def test_an_entry_log_cut_anywhere_loses_what_it_no_longer_has() -> None:
    name = find("/0.log")
    data = contents()[name]
    for length in {*range(0, 1200, 37), *range(1200, len(data), 11), len(data) - 1}:
        check(damaged({name: data[:length]}))


def test_zeroed_blocks_of_an_entry_log_are_errors() -> None:
    name = find("/0.log")
    data = contents()[name]
    for at in range(0, len(data), 512):
        zeroed = data[:at] + bytes(512) + data[at + 512 :]
        check(damaged({name: zeroed[: len(data)]}), may_change=True)


def test_of_a_missing_entry_log_each_entry_is_an_error() -> None:
    patient = check(damaged({find("/0.log"): None}))
    assert outcome(patient, ONE) == [EIO] * len(OLD) + whole(ONE)[len(OLD) :]
    assert patient.read(ONE, NEVER) is ReturnCode.ENOENTRY, "the index is sound"


def test_swapped_and_doubled_entry_logs_give_no_wrong_entry() -> None:
    patient = start(copy(contents()))
    patient.add(ONE, NEW[-1] + 1)
    patient.checkpoint()
    now = patient.files.contents()
    first, second = (next(n for n in now if n.endswith(f"/{log}.log")) for log in "01")
    swapped = start(copy(now | {first: now[second], second: now[first]}))
    for (ledger_id, entry_id), found in swapped.everything().items():
        assert found == packet(ledger_id, entry_id) or found is EIO
    for name in (first, second):
        there = str(L1 if name.startswith(str(L0)) else L0)
        doubled = start(copy(now | {f"{there}/{Path(name).name}": now[name][:1500]}))
        for (ledger_id, entry_id), found in doubled.everything().items():
            assert found == packet(ledger_id, entry_id) or found is EIO


# Journals and marks -------------------------------------------------------------------------------


def written_past_its_mark(entries: int) -> tuple[Patient, str, bytes]:
    """Return a bookie, its journal's name, and what the journal held some entries ago."""
    patient = start(copy({}))
    for entry_id in range(5):
        assert patient.add(ONE, entry_id) is ReturnCode.EOK
    (name,) = (one for one in patient.files.contents() if one.endswith(".txn"))
    older = patient.files.contents()[name]
    for entry_id in range(5, 10):
        assert patient.add(ONE, entry_id) is ReturnCode.EOK
    patient.checkpoint()
    for entry_id in range(10, 10 + entries):
        assert patient.add(ONE, entry_id) is ReturnCode.EOK
    return patient, name, older


@pytest.mark.parametrize("is_cut", [False, True], ids=["older copy", "cut"])
@pytest.mark.parametrize("entries", [0, 3])
def test_a_journal_that_ends_before_its_mark_stops_the_start(entries: int, *, is_cut: bool) -> None:
    patient, name, older = written_past_its_mark(entries)
    data = older.rstrip(b"\0") if is_cut else older
    files = copy(patient.files.contents() | {name: data})
    with pytest.raises(JournalRecordError, match="ends here, and lastMark is at"):
        start(files)
    assert start(files, skip_invalid=True).read(ONE, 9) == packet(ONE, 9)


def test_wrong_bytes_before_a_mark_with_nothing_behind_it_are_no_reason_to_stop() -> None:
    patient, name, older = written_past_its_mark(0)
    data = bytearray(patient.files.contents()[name])
    data[len(older.rstrip(b"\0")) + 100 + 512] ^= 1
    patient = start(copy(patient.files.contents() | {name: bytes(data)}))
    assert [patient.read(ONE, entry_id) for entry_id in range(10)] == [
        packet(ONE, entry_id) for entry_id in range(10)
    ]


def last_group() -> set[tuple[int, int]]:
    """The entry of the last group: of that one a crash may have left a part."""
    return {(TWO, NEW[-1])}


def journal() -> tuple[str, bytes]:
    name = find(".txn")
    return name, contents()[name].rstrip(b"\0").ljust(1, b"\0")


def test_a_flip_in_a_journal_stops_the_start_or_is_behind_the_mark_or_in_the_last_group() -> None:
    name, data = journal()
    stopped = 0
    for at in range(0, len(data), 97):
        changed = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        patient = check(damaged({name: changed}), lost=last_group())
        stopped += patient is None
    assert stopped > len(data) // 97 // 5, "what was acknowledged behind the mark is missed"


def test_every_byte_of_a_journal_s_header_counts() -> None:
    name, data = journal()
    for changed in flips(data, 16):
        check(damaged({name: changed}))


def test_a_journal_cut_anywhere_keeps_what_is_in_files_and_all_whole_groups() -> None:
    name, data = journal()
    groups = -(-len(data) // 4096)
    for length in range(4096, len(data), 701):
        kept = length // 4096
        late = [place for entry_id in NEW for place in ((ONE, entry_id), (TWO, entry_id))]
        may_be_lost = set(late[max(0, len(late) - (groups - kept)) :])
        check(damaged({name: data[:length]}), lost=may_be_lost)


def test_a_zeroed_block_in_the_middle_of_a_journal_stops_the_start() -> None:
    name, data = journal()
    blocks = [at for at in range(0, len(data) - 4096, 4096) if at // 4096 > 0]
    stops = [check(damaged({name: data[:at] + bytes(4096) + data[at + 4096 :]})) for at in blocks]
    assert None in stops


def test_damage_that_stops_the_start_says_how_to_go_on() -> None:
    name, data = journal()
    at = len(data) - 3 * 4096
    with pytest.raises(JournalRecordError) as caught:
        start(damaged({name: data[:at] + bytes(4096) + data[at + 4096 :]}))
    assert "skipReplayJournalInvalidRecord" in caught.value.hint


def test_a_missing_journal_stops_the_start() -> None:
    with pytest.raises(JournalMissingError, match=r"3e9\.txn"):
        start(damaged({find(".txn"): None}))


def test_swapped_journals_are_noticed_or_harmless() -> None:
    files = copy(contents())
    patient = start(files)
    patient.add(ONE, NEW[-1] + 1)
    now = files.contents()
    first, second = sorted(name for name in now if name.endswith(".txn"))
    check(copy(now | {first: now[second], second: now[first]}))


def marks(data: bytes | None) -> dict[str, bytes | None]:
    return {name: data for name in contents() if name.endswith("lastMark")}


def test_a_flip_in_last_mark_never_hides_an_entry() -> None:
    name = next(name for name in contents() if name.endswith("lastMark"))
    for changed in flips(contents()[name]):
        check(damaged(marks(changed)))


@pytest.mark.parametrize("length", range(16))
def test_a_cut_last_mark_means_all_journals_are_replayed(length: int) -> None:
    name = next(name for name in contents() if name.endswith("lastMark"))
    patient = check(damaged(marks(contents()[name][:length])))
    assert patient.everything() == {place: packet(*place) for place in ACKED}


def test_an_older_copy_of_last_mark_is_as_good() -> None:
    patient = check(damaged(marks(None)))
    assert patient.everything() == {place: packet(*place) for place in ACKED}


def test_a_mark_that_names_a_removed_journal_stops_the_start() -> None:
    """As after a ledger directory was restored from a backup: what came since is missing."""
    files = copy(contents())
    patient = start(files)
    for entry_id in range(12, 40):
        patient.add(ONE, entry_id)
    patient.checkpoint()
    now = files.contents()
    removed = min(name for name in now if name.endswith(".txn"))
    from_backup = {name: data for name, data in now.items() if name.startswith("/j")}
    from_backup |= {name: data for name, data in contents().items() if not name.startswith("/j")}
    del from_backup[removed]
    with pytest.raises(JournalMissingError, match=Path(removed).name):
        start(copy(from_backup))


def test_a_directory_from_a_backup_is_brought_up_to_date_while_the_journals_are_there() -> None:
    files = copy(contents())
    patient = start(files)
    for entry_id in range(12, 40):
        patient.add(ONE, entry_id)
    patient.checkpoint()
    now = files.contents()
    old = {name: data for name, data in contents().items() if not name.startswith("/j")}
    journals = {name: data for name, data in now.items() if name.startswith("/j")}
    patient = start(copy(old | journals))
    assert all(patient.read(ONE, n) == packet(ONE, n) for n in range(40))


# Small files --------------------------------------------------------------------------------------


def test_damage_to_last_id_gives_no_log_id_twice() -> None:
    used = {0}
    name = next(name for name in contents() if name.endswith("lastId"))
    data = contents()[name]
    for changed in [*flips(data), b"", b"\0" * 8, b"zz\n", b"ffffffff\n", b"7fffffff\n", b"-1\n"]:
        files = damaged(dict.fromkeys((n for n in contents() if n.endswith("lastId")), changed))
        assert next_log_id(files, [L0, L1]) not in used
        assert start(files).everything() == {place: packet(*place) for place in ACKED}


def test_damage_to_the_status_is_never_a_reason_not_to_start() -> None:
    files = copy({})
    write_status(files, [L0], PersistedMode(read_only=True))
    (name,) = files.contents()
    data = files.read(Path(name))
    for changed in [*flips(data), *(data[:n] for n in range(len(data)))]:
        files.write_atomic(Path(name), changed)
        assert isinstance(read_status(files, [L0]), PersistedMode)


# Through the wire ---------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", list(ProtocolVersion))
@pytest.mark.parametrize(("suffix", "left"), [(".idx", 500), (".idx", 0), (".log", 1044)])
def test_a_client_hears_of_damage_as_eio(
    tmp_path: Path, suffix: str, left: int, protocol: ProtocolVersion
) -> None:
    serving = Serving(tmp_path)
    add = AddRequest(LedgerId(7), EntryId(0), SERVED_KEY, served_packet(7, 0))
    assert serving.connect(protocol).ask(add).rc is ReturnCode.EOK
    serving.flush()
    serving.close()
    (path,) = tmp_path.rglob(f"*{suffix}")
    path.write_bytes(path.read_bytes()[:left])
    client = Serving(tmp_path).connect(protocol)
    for entry_id in (0, -1):
        assert client.ask(ReadRequest(LedgerId(7), EntryId(entry_id))).rc is EIO
    absent = client.ask(ReadRequest(LedgerId(7), EntryId(5))).rc
    assert absent is (EIO if suffix == ".idx" else ReturnCode.ENOENTRY)


# What nobody can tell -----------------------------------------------------------------------------


def test_a_zeroed_slot_is_damage_where_the_log_has_the_entry_near_its_neighbours() -> None:
    """0 stands for none, and pages have no checksum."""
    name = find(INDEX_ONE)
    data = contents()[name]
    patient = start(damaged({name: data[:HEADER_BYTES] + bytes(8) + data[HEADER_BYTES + 8 :]}))
    assert patient.read(ONE, 0) is ReturnCode.EIO


def test_a_missing_index_file_is_a_ledger_that_was_deleted() -> None:
    patient = start(damaged({find(INDEX_ONE): None}))
    assert patient.read(ONE, 0) in ABSENT
    assert outcome(patient, TWO) == whole(TWO)
