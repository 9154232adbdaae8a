"""A walk over the metadata of all ledgers, many reads at a time, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import attrs

from bkclient.bounded import for_each
from bkclient.errors import MetadataSerializationError, NoSuchLedgerError
from bkclient.metadata.api import LedgerStore, Versioned
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata

READS_AT_ONCE: Final = 100
"""Metadata reads in flight."""

IDS_AT_ONCE: Final = 500
"""Ledgers whose metadata is held in memory."""


@attrs.frozen
class StoredLedger:
    """A ledger as the store has it; ``stored`` is None where that cannot be read, by ``error``."""

    ledger_id: LedgerId
    stored: Versioned[LedgerMetadata] | None
    error: MetadataSerializationError | None = attrs.field(default=None, eq=False)

    @property
    def metadata(self) -> LedgerMetadata | None:
        return None if self.stored is None else self.stored.value

    def readable(self) -> LedgerMetadata:
        """Return the metadata.

        Raises:
            MetadataSerializationError: it cannot be read.
        """
        if self.error is not None:
            raise self.error
        assert self.stored is not None
        return self.stored.value


async def read_ledgers(store: LedgerStore, ids: Sequence[LedgerId]) -> list[StoredLedger]:
    """Read the metadata of ledgers, in the order of ``ids``; those that are gone are left out."""
    found: dict[LedgerId, StoredLedger] = {}

    async def look(ledger_id: LedgerId) -> None:
        try:
            found[ledger_id] = StoredLedger(ledger_id, await store.read_ledger(ledger_id))
        except NoSuchLedgerError:
            return
        except MetadataSerializationError as error:
            found[ledger_id] = StoredLedger(ledger_id, None, error)

    await for_each(ids, look, READS_AT_ONCE)
    return [found[ledger_id] for ledger_id in ids if ledger_id in found]


async def walk(store: LedgerStore) -> AsyncIterator[StoredLedger]:
    """Yield every ledger with its metadata, ascending."""
    async for ids in store.ledger_ranges():
        for at in range(0, len(ids), IDS_AT_ONCE):
            for one in await read_ledgers(store, ids[at : at + IDS_AT_ONCE]):
                yield one
