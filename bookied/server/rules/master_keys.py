"""Master keys: a write needs its ledger's key, and the journal gets the key before the write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bookied.stats.metrics import RequestStats
from bookied.storage.index.ledger_pages import CachedLedger
from bookied.storage.journal.writer import Journal
from bookied.storage.storages import Storages
from wire.errors import BadRequestError, UnauthorizedError
from wire.ids import LedgerId

MASTER_KEY_BYTES_MAX: Final = 512
"""A master key must fit the 1024-byte header of an index file, with space to spare."""


class LedgerWrites:
    """The steps of every write: find the ledger, and journal its key before the write's record.

    Storage gets a write before the journal, so that a checkpoint at any moment covers every
    acknowledged write.
    """

    def __init__(
        self, storages: Storages, journals: Sequence[Journal], stats: RequestStats
    ) -> None:
        """``journals``: ledger ``id % len(journals)`` belongs to that journal."""
        self.storages, self.journals, self._stats = storages, journals, stats

    def ledger_to_write(self, ledger_id: LedgerId, master_key: bytes) -> CachedLedger:
        """Return the ledger if the key matches; create the ledger if it does not exist.

        Raises:
            UnauthorizedError: the ledger has another key.
        """
        if ledger_id < 0 or len(master_key) > MASTER_KEY_BYTES_MAX:
            raise BadRequestError(f"ledger {ledger_id}, key of {len(master_key)} bytes")
        storage = self.storages.of(ledger_id)
        state = storage.ledgers.lookup(ledger_id)
        if state is None:
            return storage.ledgers.create(ledger_id, master_key)
        # A rebuilt index has no keys: the first write to the ledger sets its key again.
        if state.master_key != master_key and not storage.ledgers.adopt_key(state, master_key):
            self._stats.keys_refused += 1
            raise UnauthorizedError(f"ledger {ledger_id}")
        return state

    def journal(self, ledger_id: int) -> Journal:
        """Return the ledger's journal."""
        return self.journals[ledger_id % len(self.journals)]

    def append(
        self, state: CachedLedger, record: bytes, done: Callable[[], None], *, early: bool = False
    ) -> None:
        """Journal a record, after the ledger's key unless the key is journalled or on disk.

        Without the key, a replay would treat the ledger as deleted and drop the record.
        """
        records = 1
        if not state.key_logged:
            record = self.storages.of(state.ledger_id).ledgers.key_record(state) + record
            state.key_logged, records = True, 2
        self.journal(state.ledger_id).append(record, done, early=early, entries=records)
