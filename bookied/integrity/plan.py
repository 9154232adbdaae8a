"""What a bookie owes to one ledger, by the ledger's metadata. Values in, values out.

Agrees with BookKeeper 4.18.0, DataIntegrityCheckImpl.
"""

from __future__ import annotations

from collections.abc import Iterator

from bkclient.distribution import is_striped_to
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import LedgerMetadata


def is_kept_here(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    """Return whether any fragment of the ledger names the bookie."""
    return bookie_id in metadata.all_bookies()


def may_have_forgotten(metadata: LedgerMetadata, bookie_id: BookieId) -> bool:
    """Return whether an entry or a fence may be lost of which nothing but the bookie tells.

    Of a ledger that is not closed, the bookies of the last fragment alone know where it ends, and
    whether its writer was fenced. Such a ledger goes into limbo until it was recovered from others.
    """
    return not metadata.is_closed and bookie_id in metadata.last_fragment.ensemble


def last_certain_entry(metadata: LedgerMetadata) -> EntryId:
    """Return the last entry that is in the ledger for sure, -1 for none.

    That is its last one if it is closed, else the last before the fragment that still grows.
    """
    if metadata.is_closed:
        assert metadata.last_entry_id is not None
        return metadata.last_entry_id
    return EntryId(metadata.last_fragment.first_entry_id - 1)


def entries_owed(metadata: LedgerMetadata, bookie_id: BookieId) -> Iterator[EntryId]:
    """Give the entries that the bookie has to hold, ascending."""
    ends = [fragment.first_entry_id - 1 for fragment in metadata.fragments[1:]]
    ends.append(last_certain_entry(metadata))
    for fragment, last in zip(metadata.fragments, ends, strict=True):
        if bookie_id not in fragment.ensemble:
            continue
        index = fragment.ensemble.index(bookie_id)
        for entry_id in range(fragment.first_entry_id, min(last, ends[-1]) + 1):
            if is_striped_to(entry_id, index, metadata.ensemble_size, metadata.write_quorum):
                yield EntryId(entry_id)
