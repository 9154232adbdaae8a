"""What the index of a stopped bookie has of one ledger."""

from __future__ import annotations

from bookied.offline.bookie import OfflineBookie, shard_of
from bookied.offline.index import entries_of


def index_entries(bookie: OfflineBookie, ledger_id: int) -> dict[int, int]:
    """Return the location of each entry, by ascending id; nothing for a ledger not here."""
    with bookie.shards() as shards:
        index = shard_of(shards, ledger_id).index
        return {} if index.load(ledger_id) is None else dict(entries_of(index, ledger_id))
