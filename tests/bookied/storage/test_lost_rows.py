"""Ledgers in memory that have locations in the database, and no row."""

from __future__ import annotations

import pytest

from bookied.storage.index.ledger_pages import LedgerChange
from bookied.storage.ledger_storage.storage import LedgerStorage
from tests.bookied.worlds.storage_world import Blocking, Turns, World

LEDGER = 7


def storage_with_locations() -> LedgerStorage:
    """Return a storage whose database has locations of entries 0 to 3 of a new ledger."""
    storage: LedgerStorage = World(1, db=True).storages.of(LEDGER)
    storage.ledgers.create(LEDGER, b"key")
    locations = {entry_id: 5000 + entry_id for entry_id in range(4)}
    storage._index.write([LedgerChange(LEDGER, None, (), new=((0, locations),))])
    storage._index._search_at, storage._index.lists_all = 0, False  # As after a start.
    return storage


@pytest.mark.parametrize("is_made_again", [False, True])
def test_only_the_ledger_that_was_searched_gets_the_locations(*, is_made_again: bool) -> None:
    storage = storage_with_locations()
    removal = Turns(storage.remove_deleted(Blocking))
    removal.step()  # The search, in its thread.
    if is_made_again:
        storage.ledgers.delete(LEDGER)
        storage.ledgers.create(LEDGER, b"another key")
    removal.finish()
    state = storage.ledgers.lookup(LEDGER)
    assert state is not None
    assert state.last_entry == (-1 if is_made_again else 3)
    assert state.location(1) == (0 if is_made_again else None), "None: the disk knows"
