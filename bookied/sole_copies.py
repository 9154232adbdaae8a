"""Whether one bookie has the only copy of something: a rule about metadata and who is alive."""

from __future__ import annotations

from collections.abc import Collection

from bkclient.distribution import write_set
from wire.ids import BookieId
from wire.ledger_metadata import LedgerMetadata


def is_only_copy(
    metadata: LedgerMetadata, bookie_id: BookieId, alive: Collection[BookieId]
) -> bool:
    """Tell whether an entry of the ledger can be on ``bookie_id`` and on no bookie in ``alive``.

    ``alive`` are those that serve now, without ``bookie_id``: a copy on a bookie that is down may
    come back, or may not.
    """
    for fragment in metadata.fragments:
        ensemble = fragment.ensemble
        if bookie_id not in ensemble:
            continue
        size = len(ensemble)
        for entry_id in range(size):
            holders = {ensemble[n] for n in write_set(entry_id, size, metadata.write_quorum)}
            if bookie_id in holders and not holders & set(alive):
                return True
    return False
