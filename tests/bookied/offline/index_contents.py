"""What the index of a stopped bookie has."""

from __future__ import annotations

from bookied.offline.bookie import IndexedLedger, OfflineBookie, indexed, shard_of
from bookied.offline.index import entries_of
from wire.ids import LedgerId


def index_entries(bookie: OfflineBookie, ledger_id: int) -> dict[int, int]:
    """Return the location of each entry, by ascending id; nothing for a ledger not here."""
    with bookie.shards() as shards:
        index = shard_of(shards, ledger_id).index
        return {} if index.load(ledger_id) is None else dict(entries_of(index, ledger_id))


def indexed_ledgers(bookie: OfflineBookie) -> list[IndexedLedger]:
    """Return all ledgers, by id."""
    with bookie.shards() as shards:
        return [
            indexed(shard.index, LedgerId(ledger_id), stored)
            for shard in shards
            for ledger_id in shard.index.ledger_ids()
            if (stored := shard.index.load(ledger_id)) is not None
        ]
