"""Directories that a Java bookie left behind, opened as ours: stopped cleanly, or killed."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookied.config.db import RocksSettings
from bookied.storage.files.files import RealFiles
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.index.rocks.database import locations_options, open_database
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.index.store import IndexStore
from bookied.storage.journal.mark import LastMark
from bookied.storage.ledger_storage.reads import NeedsDisk
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents
from bookied.storage.replay import ReplayReport, do_now, recover, run_now
from bookied.storage.storages import Storages
from tests.bookied.worlds import golden
from tests.support.stored_entries import stored_entries


class JavaBookie:
    """A copy of a golden directory, opened with our storage."""

    def __init__(self, root: Path) -> None:
        self.journals = sorted(root.glob("j*/current"))
        self.ledgers = sorted(root.glob("l*/current"))
        self.indexes = sorted(root.glob("i*/current"))
        self.storage: LedgerStorage
        self.replayed: ReplayReport
        self.start()

    def start(self) -> None:
        files = RealFiles()
        index = self.index(files)
        self.storage = LedgerStorage(
            files, self.ledgers, index, events=StorageEvents(on_fatal=print)
        )
        self.storages = Storages(files, [self.storage])
        self.storages.open()
        self.replayed = recover(files, self.storages, self.journals)

    def index(self, files: RealFiles) -> IndexStore:
        (first, *_) = self.indexes or self.ledgers
        if (first / "locations").exists():
            options = partial(locations_options, RocksSettings())
            return RocksIndex(first, lambda path: open_database(path, options))
        return IndexFiles(files, self.indexes or self.ledgers)

    def stop(self) -> None:
        run_now(self.storages.stop([], do_now))

    def read(self, ledger_id: int, entry_id: int) -> bytes | None:
        state = self.storage.ledgers.lookup(ledger_id)
        assert state is not None
        found = self.storage.reads.read_memory(state, entry_id)
        if isinstance(found, NeedsDisk):
            return self.storage.reads.fetch(found, entry_id)
        return found


def open_copy(tmp_path: Path, name: str) -> JavaBookie:
    root = tmp_path / "bookie"
    shutil.copytree(golden.DIRECTORY / name, root)
    if name == "sorted/multi-dirs":
        (root / "i0" / "current").mkdir(parents=True, exist_ok=True)  # Empty, so not in git.
    return JavaBookie(root)


def check(bookie: JavaBookie, ledgers: dict[str, Any]) -> None:
    storage = bookie.storage
    assert sorted(storage.ledgers.ids()) == sorted(map(int, ledgers))
    for ledger_id, wanted in ledgers.items():
        state = storage.ledgers.lookup(int(ledger_id))
        assert state is not None
        assert state.master_key.hex() == wanted["masterKey"]
        assert state.fenced == wanted["fenced"]
        lac = wanted["explicitLac"]
        assert state.explicit_lac == (bytes.fromhex(lac["hex"]) if lac else None)
        entries = {entry["entryId"]: entry["storedSha256"] for entry in wanted["entries"]}
        assert stored_entries(storage, int(ledger_id)) == sorted(entries)
        assert state.last_entry == max(entries)
        lacs = [entry["lac"] for entry in wanted["entries"]]
        assert state.lac == max(*lacs, lac["lac"] if lac else -1)
        for entry_id, digest in entries.items():
            packet = bookie.read(int(ledger_id), entry_id)
            assert packet is not None
            assert golden.sha256(packet) == digest


@pytest.mark.parametrize("name", [*golden.WITH_LEDGERS, "db/clean", "db/crash"])
def test_a_bookie_that_java_stopped_starts_with_all_it_had(tmp_path: Path, name: str) -> None:
    bookie = open_copy(tmp_path, name)
    check(bookie, golden.expected(name)["ledgers"])
    bookie.stop()
    bookie.start()
    check(bookie, golden.expected(name)["ledgers"])
    bookie.stop()


@pytest.mark.parametrize("kind", ["interleaved", "sorted"])
def test_a_bookie_that_java_was_killed_in_loses_nothing(tmp_path: Path, kind: str) -> None:
    # The crashed directories hold the same ledgers as the clean ones: in the journal only.
    ledgers = golden.expected(f"{kind}/clean")["ledgers"]
    bookie = open_copy(tmp_path, f"{kind}/crash")
    (journal,) = golden.expected(f"{kind}/crash")["journals"].values()
    entries = [record for record in journal["records"] if record["type"] == "ENTRY"]
    assert bookie.replayed.entries == len(entries)
    check(bookie, ledgers)
    bookie.stop()
    bookie.start()
    assert bookie.replayed.entries == 0
    check(bookie, ledgers)
    bookie.stop()


def test_the_marks_of_several_journals_are_kept_apart(tmp_path: Path) -> None:
    bookie = open_copy(tmp_path, "sorted/multi-dirs")
    wanted = golden.expected("sorted/multi-dirs")["journals"]
    ends = [
        LastMark(0x1A1FC8702AB, wanted[f"j{n}/1a1fc8702ab.txn"]["endOfRecords"]) for n in (0, 1)
    ]
    assert bookie.replayed.marks == ends
    assert bookie.storages.marks.read(2) == ends
    for file, journal in wanted.items():
        for record in journal["records"]:
            if record["type"] == "ENTRY":
                packet = bookie.read(record["ledgerId"], record["entryId"])
                assert packet is not None, file
                assert golden.sha256(packet) == record["storedSha256"]
    bookie.stop()


def test_what_lies_behind_the_mark_is_not_replayed(tmp_path: Path) -> None:
    bookie = open_copy(tmp_path, "interleaved/clean")
    assert bookie.replayed.entries == 0
    assert bookie.replayed.marks == [LastMark(0x1A1FC678C88, 512)]
    bookie.stop()
