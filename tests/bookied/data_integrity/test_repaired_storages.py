"""What the integrity check does to real storages, whatever garbage collection does meanwhile."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest

from bkclient.errors import NoSuchLedgerError
from bookied.data_integrity.repaired_storages import RepairedStorages
from bookied.storage.files.files import remove_tree
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents
from bookied.storage.replay import do_now
from bookied.storage.storages import Storages
from tests.bookied.worlds.fakes import done
from tests.sim.world.disk import SimFiles
from tests.sim.world.key_values import SimKeyValues
from wire.ids import EntryId, LedgerId

L, HERE, INDEX = LedgerId(7), Path("/ledgers/current"), Path("/index/current")


def packet(entry_id: int) -> bytes:
    return struct.pack(">qqqq", L, entry_id, -1, 0) + b"payload"


@pytest.fixture
def storages() -> Storages:
    return opened(SimFiles(Random(1)))


def opened(files: SimFiles) -> Storages:
    for directory in (HERE, INDEX):
        files.mkdirs(directory)
    index = RocksIndex(INDEX, lambda path: SimKeyValues(files, path))
    storage = LedgerStorage(
        files, [HERE], index, events=StorageEvents(on_fatal=lambda _error: None)
    )
    found = Storages(files, [storage], flags=index)
    found.open()
    return found


@pytest.fixture
def repaired(storages: Storages) -> RepairedStorages:
    return repaired_of(storages)


def repaired_of(storages: Storages) -> RepairedStorages:
    return RepairedStorages(
        storages,
        run_blocking=do_now,
        flush=lambda: storages.flush(do_now),
        needs_check=True,
    )


def test_a_ledger_that_is_collected_while_it_is_repaired_is_one_that_was_deleted(
    storages: Storages, repaired: RepairedStorages
) -> None:
    repaired.ensure(L, b"key")
    repaired.forget(L)
    repaired.add(L, EntryId(0), packet(0))
    assert done(repaired.lacking(L, [EntryId(0), EntryId(1)])) == [1]
    storages.of(L).ledgers.delete(L)
    with pytest.raises(NoSuchLedgerError):
        repaired.remember(L)
    with pytest.raises(NoSuchLedgerError):
        done(repaired.lacking(L, [EntryId(1)]))
    with pytest.raises(NoSuchLedgerError):
        repaired.add(L, EntryId(1), packet(1))


@pytest.mark.parametrize("is_used_again", [False, True])
def test_entries_whose_logs_are_gone_are_lacking_though_the_index_has_them(
    is_used_again: bool,  # noqa: FBT001
) -> None:
    """As where the disk of a ledger directory is replaced, and the index is on another one."""
    files = SimFiles(Random(1))
    before = opened(files)
    repaired = repaired_of(before)
    repaired.ensure(L, b"key")
    for entry_id in range(2):
        repaired.add(L, EntryId(entry_id), packet(entry_id))
    assert done(repaired.lacking(L, [EntryId(0), EntryId(1)])) == []
    done(repaired.flush())
    assert done(repaired.lacking(L, [EntryId(0), EntryId(1)])) == []
    before.abandon()
    remove_tree(files, HERE)
    after = opened(files)
    repaired = repaired_of(after)
    if is_used_again:  # Logs begin with the same id again.
        repaired.add(L, EntryId(2), packet(2))
        done(repaired.flush())
    assert done(repaired.lacking(L, [EntryId(0), EntryId(1)])) == [0, 1]
    for entry_id in range(2):
        repaired.add(L, EntryId(entry_id), packet(entry_id))
    done(repaired.flush())
    assert done(repaired.lacking(L, [EntryId(0), EntryId(1)])) == []
