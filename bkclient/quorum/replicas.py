"""Who holds copies of a ledger's entries: rules about metadata and who is in service."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bkclient.quorum.fragments import LedgerFragment, fragments_of, is_lost
from wire.ids import BookieId
from wire.ledger_metadata import LedgerMetadata


def write_sets(metadata: LedgerMetadata) -> Iterator[frozenset[BookieId]]:
    """Yield the write set of each kind of entry that the ledger has or may have."""
    for fragment in _fragments(metadata):
        yield from fragment.write_sets()


def _fragments(metadata: LedgerMetadata) -> tuple[LedgerFragment, ...]:
    """Return the fragments; the last one of an open ledger may have entries of every kind."""
    last = metadata.last_fragment
    return fragments_of(metadata, last.first_entry_id + len(last.ensemble) - 1)


def is_only_copy(
    metadata: LedgerMetadata, bookie_id: BookieId, alive: Collection[BookieId]
) -> bool:
    """Tell whether an entry of the ledger can be on ``bookie_id`` and on no bookie in ``alive``.

    ``alive`` are those that serve now, without ``bookie_id``: a copy on a bookie that is down may
    come back, or may not.
    """
    serving = frozenset(alive) - {bookie_id}
    return any(
        bookie_id in holders and holders.isdisjoint(serving) for holders in write_sets(metadata)
    )


def is_out_of_reach(metadata: LedgerMetadata, alive: Collection[BookieId]) -> bool:
    """Tell whether some entry of the ledger has no copy on any bookie in ``alive``."""
    return any(is_lost(fragment, alive) for fragment in _fragments(metadata))


def lacks_copies(metadata: LedgerMetadata, alive: Collection[BookieId]) -> bool:
    """Tell whether some entry of the ledger has fewer copies on ``alive`` than it should."""
    serving = frozenset(alive)
    # Most ledgers of most clusters end here.
    return not metadata.all_bookies() <= serving and any(
        not holders <= serving for holders in write_sets(metadata)
    )
