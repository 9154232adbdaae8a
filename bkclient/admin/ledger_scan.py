"""A walk over the metadata of all ledgers, many reads at a time, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from bkclient.concurrency import for_each
from bkclient.errors import MetadataSerializationError, NoSuchLedgerError
from bkclient.metadata.versions_and_watches import StoredLedger
from wire.ids import LedgerId

if TYPE_CHECKING:
    from bkclient.metadata.tree.store import MetadataStore

READS_AT_ONCE: Final = 100
"""Metadata reads in flight."""

AT_FIRST: Final = 50
"""Ledgers that are read before the first is shown to a waiting user."""

IDS_AT_ONCE: Final = 500
"""Ledgers whose metadata is in memory."""


async def read_ledgers(store: MetadataStore, ids: Sequence[LedgerId]) -> list[StoredLedger]:
    """Read the metadata of ledgers, in the order of ``ids``, without deleted ones."""
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


async def walk(store: MetadataStore) -> AsyncIterator[StoredLedger]:
    """Yield every ledger with its metadata, ascending."""
    async for ids in store.ledger_ranges():
        async with aclosing(store.read_ledgers(ids)) as found:
            async for some in found:
                for one in some:
                    yield one
