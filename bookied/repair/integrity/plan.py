"""What a bookie owes to one ledger, by the ledger's metadata. Values in, values out.

Agrees with BookKeeper 4.18.0, DataIntegrityCheckImpl.
"""

from __future__ import annotations

from collections.abc import Iterator

from bkclient.quorum.fragments import fragments_of
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import LedgerMetadata


def belongs_here(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    """Return whether any fragment of the ledger names the bookie."""
    return bookie_id in metadata.all_bookies()


def may_have_forgotten(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    """Return whether an entry or a fence may be lost that only this bookie knows.

    Of a ledger that is not closed, the bookies of the last fragment alone know where it ends, and
    whether its writer was fenced. A ledger like that goes into limbo until it was recovered from
    others.
    """
    return not metadata.is_closed and bookie_id in metadata.last_fragment.ensemble


def entries_owed(metadata: LedgerMetadata, bookie_id: BookieId) -> Iterator[EntryId]:
    """Give the entries that the bookie has to hold, ascending.

    They are all up to the last one if the ledger is closed, else those before the fragment that
    still grows: these are in the ledger for sure.
    """
    for fragment in fragments_of(metadata, None):
        if bookie_id in fragment.ensemble:
            yield from fragment.entries_at(fragment.ensemble.index(bookie_id))
