"""Replay without a bookie: everything in files, so that a start has nothing to bring back."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from bookied.directories.last_journal_note import ALL_LEDGERS, fences_in_doubt_to
from bookied.errors import DirectoryEmptiedError, JournalRecordError, NoWritableDirError
from bookied.offline.bookie import OfflineBookie
from bookied.offline.repair.flush import flush
from bookied.offline.repair.open_storages import storages_of
from bookied.storage.files.files import remove_tree
from bookied.storage.journal.format import entry_record, fence_record, header, ledger_key_record
from bookied.storage.journal.mark import decode_mark
from bookied.storage.replay import recover
from tests.bookied.offline.index_contents import index_entries, indexed_ledgers
from tests.bookied.offline.repair.test_rebuild_index import FOUND, KEY, packet, storages_on, world
from tests.bookied.worlds.golden_disk import ledgers_of, load_golden
from tests.bookied.worlds.old_layouts import each_crash, put_files
from tests.sim.world.disk import SimFiles


@pytest.mark.parametrize("name", ["interleaved/crash", "sorted/crash"])
def test_a_killed_java_bookie_looks_as_after_a_clean_stop(name: str) -> None:
    files = SimFiles(Random(1))
    found = load_golden(files, name)
    put_files(files, {f"{found.ledger_dirs[0]}/DIRTY": b""})
    replayed = flush(files, found, storages_on(files, found))
    said = ledgers_of(name.replace("crash", "clean"))
    bookie = OfflineBookie(files, found)
    ledgers = {one.ledger_id: one for one in indexed_ledgers(bookie)}
    assert set(ledgers) == set(said)
    for ledger_id, expected in said.items():
        one = ledgers[ledger_id]
        assert (one.master_key.hex(), one.is_fenced) == (expected["masterKey"], expected["fenced"])
        lac = expected["explicitLac"]
        assert (one.explicit_lac or b"").hex() == (lac["hex"] if lac else "")
        entries = list(index_entries(bookie, one.ledger_id))
        assert entries == [entry["entryId"] for entry in expected["entries"]]
    assert not files.exists(found.ledger_dirs[0] / "DIRTY")
    assert replayed.entries >= sum(len(expected["entries"]) for expected in said.values())
    again = storages_on(files, found)
    again.open()
    assert recover(files, again, found.journal_dirs).entries == 0


JOURNAL = header(6) + ledger_key_record(7, KEY) + entry_record(packet(7, 0)) + fence_record(7)


def test_a_journal_without_entries_leaves_nothing_to_replay() -> None:
    """Java's replay forgets a fence that no entry comes with, and moves the mark (D3)."""
    files = world({"/j/current/1.txn": header(6) + ledger_key_record(7, KEY) + fence_record(7)})
    flush(files, FOUND, storages_on(files, FOUND))
    (ledger,) = indexed_ledgers(OfflineBookie(files, FOUND))
    assert ledger.is_fenced
    assert decode_mark(files.read(Path("/l0/current/lastMark")), Path("/")).journal_id == 1


def test_after_a_crash_anywhere_it_can_be_repeated() -> None:
    def make(files: SimFiles) -> SimFiles:
        return world({"/j/current/1.txn": JOURNAL, "/l0/current/DIRTY": b""}, files)

    crashes = 0
    for files, through in each_crash(
        make, lambda files: flush(files, FOUND, storages_on(files, FOUND))
    ):
        crashes += not through
        assert files.read(Path("/j/current/1.txn")) == JOURNAL
        flush(files, FOUND, storages_on(files, FOUND))
        bookie = OfflineBookie(files, FOUND)
        (ledger,) = indexed_ledgers(bookie)
        assert (ledger.master_key, ledger.is_fenced, ledger.last_entry) == (KEY, True, 0)
        storage = storages_on(files, FOUND)
        storage.open()
        assert storage.of(7).reads.read_disk(0, 7, 0) == packet(7, 0)
        assert not files.exists(Path("/l0/current/DIRTY"))
    assert crashes > 20


def test_a_damaged_journal_keeps_the_mark_and_dirty_where_they_are() -> None:
    files = world({"/j/current/1.txn": JOURNAL + b"\0\0\0\3bad", "/l0/current/DIRTY": b""})
    with pytest.raises(JournalRecordError):
        flush(files, FOUND, storages_on(files, FOUND))
    assert files.exists(Path("/l0/current/DIRTY"))
    assert not files.exists(Path("/l0/current/lastMark"))
    flush(files, FOUND, storages_on(files, FOUND), skip_invalid=True)
    (ledger,) = indexed_ledgers(OfflineBookie(files, FOUND))
    assert ledger.last_entry == 0
    assert fences_in_doubt_to(files, FOUND.journals) == ALL_LEDGERS, "the rest may have had one"


def test_without_room_nothing_counts_as_flushed() -> None:
    entries = b"".join(entry_record(packet(7, n, b"x" * 500)) for n in range(20))
    journal = header(6) + ledger_key_record(7, KEY) + entries
    files = world({"/j/current/1.txn": journal, "/l0/current/DIRTY": b""})
    files.bytes_max = sum(map(len, files.contents().values())) + 2000
    with pytest.raises((NoWritableDirError, OSError), match=r"(?i)no (room|space)"):
        flush(files, FOUND, storages_on(files, FOUND))
    assert files.exists(Path("/l0/current/DIRTY"))
    assert not files.exists(Path("/l0/current/lastMark"))
    files.bytes_max = None
    told: list[int] = []
    flush(files, FOUND, storages_on(files, FOUND), progress=told.append)
    (ledger,) = indexed_ledgers(OfflineBookie(files, FOUND))
    assert ledger.last_entry == 19
    assert told


def test_what_it_puts_into_a_directory_is_missed_there_afterwards() -> None:
    """The marks it moves, in every directory, say that the journals are not needed any more."""
    files = world({"/j/current/1.txn": JOURNAL})
    flush(files, FOUND, storages_of(files, FOUND))
    (held,) = (Path(path).parent for path in files.contents() if path.endswith(".log"))
    for name in files.list(held):
        remove_tree(files, held / name)
    with pytest.raises(DirectoryEmptiedError):
        flush(files, FOUND, storages_of(files, FOUND))
