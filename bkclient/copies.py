"""Who holds copies of a ledger's entries: rules about metadata and who is in service."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bkclient.distribution import write_set
from wire.ids import BookieId
from wire.ledger_metadata import LedgerMetadata


def write_sets(metadata: LedgerMetadata) -> Iterator[frozenset[BookieId]]:
    """Yield the write set of each kind of entry that the ledger has or may have.

    A fragment has as many kinds as bookies, fewer where it has fewer entries. The last fragment of
    a ledger that is not closed may have entries of every kind.
    """
    ends = [fragment.first_entry_id for fragment in metadata.fragments[1:]]
    last = metadata.last_entry_id
    for fragment, end in zip(
        metadata.fragments, (*ends, None if last is None else last + 1), strict=True
    ):
        first, size = fragment.first_entry_id, len(fragment.ensemble)
        count = size if end is None else min(size, end - first)
        for entry_id in range(first, first + count):
            indexes = write_set(entry_id, size, metadata.write_quorum)
            yield frozenset(fragment.ensemble[index] for index in indexes)


def is_only_copy(
    metadata: LedgerMetadata, bookie_id: BookieId, alive: Collection[BookieId]
) -> bool:
    """Tell whether an entry of the ledger can be on ``bookie_id`` and on no bookie in ``alive``.

    ``alive`` are those that serve now, without ``bookie_id``: a copy on a bookie that is down may
    come back, or may not.
    """
    serving = frozenset(alive) - {bookie_id}
    return any(bookie_id in holders and not holders & serving for holders in write_sets(metadata))


def is_out_of_reach(metadata: LedgerMetadata, alive: Collection[BookieId]) -> bool:
    """Tell whether some entry of the ledger has no copy on any bookie in ``alive``."""
    serving = frozenset(alive)
    return any(not holders & serving for holders in write_sets(metadata))


def lacks_copies(metadata: LedgerMetadata, alive: Collection[BookieId]) -> bool:
    """Tell whether some entry of the ledger has fewer copies on ``alive`` than it should."""
    serving = frozenset(alive)
    # Most ledgers of most clusters end here.
    return not metadata.all_bookies() <= serving and any(
        not holders <= serving for holders in write_sets(metadata)
    )
