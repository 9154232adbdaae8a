"""A walk over the metadata of all ledgers, many reads at a time, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import attrs

from bkclient.errors import MetadataSerializationError, NoSuchLedgerError
from bkclient.metadata.api import LedgerStore, Versioned
from bkclient.metadata.tree.nodes import together
from wire.errors import FormatError
from wire.ids import LedgerId
from wire.ledger_metadata import LedgerMetadata

READS_AT_ONCE: Final = 64
"""Metadata reads in flight."""

IDS_AT_ONCE: Final = 500
"""Ledgers whose metadata is held in memory."""


@attrs.frozen
class StoredLedger:
    """A ledger as the store has it; ``stored`` is None where that cannot be read."""

    ledger_id: LedgerId
    stored: Versioned[LedgerMetadata] | None

    @property
    def metadata(self) -> LedgerMetadata | None:
        return None if self.stored is None else self.stored.value


async def read_ledgers(store: LedgerStore, ids: Sequence[LedgerId]) -> list[StoredLedger]:
    """Read the metadata of ledgers, in the order of ``ids``; those that are gone are left out."""
    waiting = iter(ids)
    found: dict[LedgerId, StoredLedger] = {}

    async def work() -> None:
        for ledger_id in waiting:
            try:
                found[ledger_id] = StoredLedger(ledger_id, await store.read_ledger(ledger_id))
            except NoSuchLedgerError:
                continue
            except (MetadataSerializationError, FormatError):
                found[ledger_id] = StoredLedger(ledger_id, None)

    await together(work() for _ in range(min(READS_AT_ONCE, len(ids))))
    return [found[ledger_id] for ledger_id in ids if ledger_id in found]


async def walk(store: LedgerStore) -> AsyncIterator[StoredLedger]:
    """Yield every ledger with its metadata, ascending."""
    async for ids in store.ledger_ranges():
        for at in range(0, len(ids), IDS_AT_ONCE):
            for one in await read_ledgers(store, ids[at : at + IDS_AT_ONCE]):
                yield one
