"""What the integrity check does to real storages, whatever garbage collection does meanwhile."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest

from bkclient.errors import NoSuchLedgerError
from bookied.data_integrity.storage import RepairedStorages
from bookied.storage.index.rocks.index import RocksIndex
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.ledger_storage.storage_limits import StorageEvents
from bookied.storage.replay import do_now
from bookied.storage.storages import Storages
from tests.sim.world.disk import SimFiles
from tests.sim.world.key_values import SimKeyValues
from wire.ids import EntryId, LedgerId

L, HERE = LedgerId(7), Path("/ledgers/current")


def packet(entry_id: int) -> bytes:
    return struct.pack(">qqqq", L, entry_id, -1, 0) + b"payload"


@pytest.fixture
def storages() -> Storages:
    files = SimFiles(Random(1))
    files.mkdirs(HERE)
    index = RocksIndex(HERE, lambda path: SimKeyValues(files, path))
    storage = LedgerStorage(
        files, [HERE], index, events=StorageEvents(on_fatal=lambda _error: None)
    )
    found = Storages(files, [storage], flags=index)
    found.open()
    return found


@pytest.fixture
def repaired(storages: Storages) -> RepairedStorages:
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
    assert repaired.lacking(L, [EntryId(0), EntryId(1)]) == [1]
    storages.of(L).ledgers.delete(L)
    with pytest.raises(NoSuchLedgerError):
        repaired.remember(L)
    with pytest.raises(NoSuchLedgerError):
        repaired.lacking(L, [EntryId(1)])
    with pytest.raises(NoSuchLedgerError):
        repaired.add(L, EntryId(1), packet(1))
