"""The highest ledger id in the metadata, found without reading all ids."""

from __future__ import annotations

from typing import Final

from bkclient.metadata.tree.store import MetadataStore
from bookied.directories.last_journal_note import NO_LEDGER
from wire.ids import LedgerId

_ABOVE_ALL: Final = 2**63 - 1


async def highest_ledger(store: MetadataStore) -> int:
    """Return the highest ledger id, or ``NO_LEDGER``; asks for at most 64 ranges.

    Raises:
        MetadataStoreError: the store failed.
    """
    highest, above = NO_LEDGER, _ABOVE_ALL
    after = NO_LEDGER  # In a new cluster, without ledgers, one request is enough.
    while highest < above:
        found = await _some_above(store, after)
        if found is None:
            above = after
        else:
            highest = found
        after = (highest + above) // 2
    return highest


async def _some_above(store: MetadataStore, after: int) -> int | None:
    """Return the highest id of the first range above ``after``; None if all ids are lower."""
    async for ids in store.ledger_ranges(after=LedgerId(after)):
        if ids:
            return ids[-1]
    return None
