from __future__ import annotations

import contextlib
import errno
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bookied.errors import (
    DiskWriteFailedError,
    EntryLogRecordError,
    LedgerPlaceError,
    StorageError,
    WrongEntryError,
)
from bookied.storage.index.index_files.index import IndexFiles
from bookied.storage.journal.mark import LastMark
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents, StorageLimits
from bookied.storage.replay import do_now, run_now
from bookied.storage.storages import Storages, require_own_logs
from tests.bookied.worlds.storage_world import Blocking, JournalPosition, Turns
from tests.sim.world.disk import SimFiles
from tests.support.stored_entries import stored_entries

L0, L1 = Path("/l0/current"), Path("/l1/current")


def packet(ledger: int, entry: int) -> bytes:
    return struct.pack(">qqqq", ledger, entry, entry - 1, 0) + b"body" * 20


class Desk:
    """Two storages, a directory each, on a simulated disk."""

    def __init__(self) -> None:
        self.files = SimFiles(Random(1))
        self.files.make_durable(L0, L1)
        self.fatal: list[DiskWriteFailedError] = []
        self.start()

    def start(self) -> None:
        self.storages = Storages(self.files, [self.storage(L0), self.storage(L1)])
        self.storages.open()

    def storage(self, directory: Path) -> LedgerStorage:
        index = IndexFiles(self.files, [directory])
        return LedgerStorage(
            self.files, [directory], index, events=StorageEvents(on_fatal=self.fatal.append)
        )

    def add(self, ledger: int, entry: int) -> None:
        storage = self.storages.of(ledger)
        state = storage.ledgers.lookup(ledger) or storage.ledgers.create(ledger, b"k")
        storage.adds.add(state, entry, packet(ledger, entry))

    def held(self) -> dict[int, list[int]]:
        return {
            ledger: stored_entries(one, ledger)
            for one in self.storages
            for ledger in one.ledgers.ids()
        }


def test_a_ledger_belongs_to_the_directory_that_its_id_says() -> None:
    desk = Desk()
    for ledger in (0, 1, 2, 2**40 + 1):
        desk.add(ledger, 0)
    first, second = desk.storages
    assert (sorted(first.ledgers.ids()), sorted(second.ledgers.ids())) == ([0, 2], [1, 2**40 + 1])
    assert desk.storages.ledgers_in_memory == 4
    run_now(desk.storages.flush(do_now))
    assert desk.files.exists(L0 / "0/2/2.idx")
    assert desk.files.exists(L1 / "0/1/1.idx")
    # Each has a log id space of its own.
    assert desk.files.exists(L0 / "0.log")
    assert desk.files.exists(L1 / "0.log")


def test_the_marks_move_only_when_all_storages_are_on_disk() -> None:
    desk = Desk()
    desk.add(0, 0)
    desk.add(1, 0)
    position = JournalPosition(LastMark(5, 512))
    checkpoint = Turns(desk.storages.checkpoint([position], Blocking))
    position.synced = LastMark(5, 9999)
    while not checkpoint.is_done:
        if not desk.files.exists(L1 / "0/1/1.idx"):
            assert desk.storages.marks.read(1) == [LastMark(0, 0)]
        checkpoint.step()
    assert desk.storages.marks.read(1) == [LastMark(5, 512)]
    assert position.removed == [LastMark(5, 512)]
    assert [desk.files.exists(one / "lastMark") for one in (L0, L1)] == [True, True]
    desk.files.crash()
    desk.start()
    assert desk.held() == {0: [0], 1: [0]}


def test_a_storage_that_cannot_be_flushed_keeps_the_marks_where_they_are() -> None:
    desk = Desk()
    desk.add(0, 0)
    desk.add(1, 0)
    desk.files.fault = lambda operation, path: (
        OSError(5, "EIO") if L1 in path.parents and operation == "sync" else None
    )
    with pytest.raises((StorageError, OSError)):
        run_now(desk.storages.checkpoint([JournalPosition(LastMark(5, 512))], do_now))
    desk.files.fault = None
    assert desk.storages.marks.read(1) == [LastMark(0, 0)]
    assert desk.storages.has_changes


def test_what_one_needs_all_of_them_need() -> None:
    desk = Desk()
    assert not desk.storages.has_changes
    desk.add(1, 0)
    assert desk.storages.has_changes
    assert not desk.storages.needs_checkpoint
    assert desk.storages.unwritten_bytes == sum(one.unwritten_bytes for one in desk.storages) > 0


def test_a_ledger_in_the_wrong_directory_keeps_the_bookie_from_starting() -> None:
    desk = Desk()
    desk.add(4, 0)
    run_now(desk.storages.stop([], do_now))
    desk.files.mkdirs(L1 / "0/4")
    desk.files.write_atomic(L1 / "0/4/4.idx", desk.files.read(L0 / "0/4/4.idx"))
    with pytest.raises(LedgerPlaceError, match="ledger 4 is in /l1, directory 2 of 2, and belongs"):
        desk.start()


def test_only_storages_with_a_place_for_it_remember_a_check() -> None:
    class Flags:
        kept = 6

        def flags(self) -> int:
            return self.kept

        def set_flags(self, flags: int) -> None:
            self.kept = flags

    desk, flags = Desk(), Flags()
    assert not desk.storages.integrity_flag.is_kept
    assert not desk.storages.integrity_flag.is_set()
    with pytest.raises(StorageError, match="only DbLedgerStorage"):
        desk.storages.integrity_flag.set(needed=True)
    with pytest.raises(StorageError, match="only DbLedgerStorage"):
        desk.storages.of(0).ledgers.set_limbo(
            desk.storages.of(0).ledgers.create(0, b"k"), limbo=True
        )
    db = Storages(desk.files, [*desk.storages], flags=flags)
    db.integrity_flag.set(needed=True)
    assert (db.integrity_flag.is_set(), flags.kept) == (True, 7)
    db.integrity_flag.set(needed=False)
    assert (db.integrity_flag.is_set(), flags.kept) == (False, 6)


def test_storages_share_one_amount_of_memory() -> None:
    whole = StorageLimits(cache_bytes=1000, open_logs_max=1)
    half = whole.share(2)
    assert (half.cache_bytes, half.open_logs_max) == (500, 1)
    assert half.unwritten_bytes_max == whole.unwritten_bytes_max // 2
    assert whole.share(1) == whole


@pytest.mark.parametrize(
    ("found", "is_refused"),
    [
        ([], False),
        ([EntryLogRecordError], False),
        ([OSError], False),
        ([2], False),
        ([3], True),
        ([2, 3, EntryLogRecordError], True),
        ([3, 3, None], False),
    ],
    ids=str,
)
def test_only_logs_that_have_nothing_of_their_index_are_of_another(
    found: list[Any], *, is_refused: bool
) -> None:
    """A number is the ledger in place of the entry, an error its damage, None the entry."""

    def check(location: int, _ledger_id: int, _entry_id: int) -> None:
        one = found[location]
        if isinstance(one, int):
            error = WrongEntryError("0.log", 1024, "another entry")
            error.ledger_id = one
            raise error
        if one is OSError:
            raise OSError(errno.EIO, "lost")
        if one is not None:
            raise one("0.log", 1024, "damaged")

    places = [(location, 4, 0) for location in range(len(found))]
    refused = pytest.raises(LedgerPlaceError) if is_refused else contextlib.nullcontext()
    with refused:
        require_own_logs(places, check, Path("/l0"), 0, 2)
