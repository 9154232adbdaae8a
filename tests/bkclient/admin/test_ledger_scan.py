"""Reading the metadata of many ledgers."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock

from bkclient.admin.ledger_scan import IDS_AT_ONCE, read_ledgers, walk
from bkclient.errors import MetadataSerializationError, MetadataStoreError, NoSuchLedgerError
from bkclient.metadata.versions_and_watches import StoredLedger, Versioned
from tests.bkclient.metadata.values import metadata, run
from tests.support.memory_zookeeper import MemoryZooKeeper
from wire.ids import LedgerId


class _Store:
    def __init__(self, by_id: dict[int, Any]) -> None:
        self._by_id = by_id

    async def read_ledger(self, ledger_id: int) -> Any:
        found = self._by_id[ledger_id]
        if isinstance(found, Exception):
            raise found
        return Versioned(found, 3)


def test_ledgers_that_are_gone_are_left_out_and_unreadable_ones_are_not() -> None:
    damaged = MetadataSerializationError("damaged")
    stored: Any = _Store({1: metadata(), 2: NoSuchLedgerError(), 3: damaged})
    found = run(read_ledgers(stored, [LedgerId(n) for n in (3, 2, 1)]), Clock())
    assert found == [
        StoredLedger(LedgerId(3), None),
        StoredLedger(LedgerId(1), Versioned(metadata(), 3)),
    ]
    assert [one.metadata for one in found] == [None, metadata()]
    assert [one.error for one in found] == [damaged, None]


def test_a_store_that_fails_is_never_a_shorter_list() -> None:
    stored: Any = _Store({1: metadata(), 2: MetadataStoreError("away")})
    with pytest.raises(MetadataStoreError, match="away"):
        run(read_ledgers(stored, [LedgerId(1), LedgerId(2)]), Clock())


def test_a_walk_meets_every_ledger_once_in_order() -> None:
    clock = Clock()
    store = MemoryZooKeeper.initialized(clock).metadata()

    async def scenario() -> list[int]:
        await store.connect()
        for ledger_id in (2**40, *range(IDS_AT_ONCE + 3)):
            await store.create_ledger(LedgerId(ledger_id), metadata())
        return [one.ledger_id async for one in walk(store)]

    assert run(scenario(), clock) == [*range(IDS_AT_ONCE + 3), 2**40]
