"""The change of a bookie's id in the metadata of its ledgers.

Agrees with BookKeeper 4.18.0, UpdateLedgerOp (updateledgers and updateBookieInLedger), with two
exceptions: a ledger that already lists the new id is unchanged, and if requested, the new bookie
must first return entries of each fragment.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import attrs

from bkclient.admin import cluster_operations
from bkclient.admin.ledger_scan import walk
from bkclient.client import Client
from bkclient.errors import ClientError, MetadataSerializationError, NoSuchLedgerError
from bkclient.metadata.ledger_metadata_updates import LocalMetadata
from bkclient.metadata.versions_and_watches import StoredLedger
from bkclient.quorum.fragments import fragments_of
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata


class RenameOutcome(enum.Enum):
    """The result for one ledger."""

    DONE = "renamed"
    UNVERIFIED = "not renamed: the new bookie does not show its entries"
    BOTH = "not renamed: it lists both ids in one ensemble"
    UNREADABLE = "not renamed: its metadata cannot be read, and may list the old bookie"
    GONE = "deleted meanwhile"


@attrs.frozen
class LedgerRename:
    """One ledger that listed the old id; ``why`` is the reason if it still does."""

    ledger_id: LedgerId
    outcome: RenameOutcome
    why: str = ""


def with_bookie_renamed(metadata: LedgerMetadata, old: BookieId, new: BookieId) -> LedgerMetadata:
    """Return the metadata with ``new`` in every place of ``old``."""
    fragments = tuple(
        attrs.evolve(
            fragment, ensemble=tuple(new if one == old else one for one in fragment.ensemble)
        )
        for fragment in metadata.fragments
    )
    return attrs.evolve(metadata, fragments=fragments, creator_token=0)


def lists_both(metadata: LedgerMetadata, old: BookieId, new: BookieId) -> bool:
    """Return whether a rename would list one bookie twice in an ensemble."""
    return any({old, new} <= set(fragment.ensemble) for fragment in metadata.fragments)


def fragment_ends_on(metadata: LedgerMetadata, bookie_id: BookieId, last: int) -> Iterator[EntryId]:
    """Yield the first and last entry that a bookie must store of each of its fragments.

    ``last`` is the last confirmed entry of a ledger that is not closed.
    """
    for fragment in fragments_of(metadata, last):
        if bookie_id in fragment.ensemble and not fragment.may_be_empty:
            ends = fragment.ends_at(fragment.ensemble.index(bookie_id))
            yield from dict.fromkeys(ends or ())


async def ledgers_listing(client: Client, bookie_id: BookieId) -> list[StoredLedger]:
    """Return the ledgers that list a bookie anywhere; unreadable ones, too, for they may."""
    return [
        one
        async for one in walk(client.store)
        if one.metadata is None or bookie_id in one.metadata.all_bookies()
    ]


async def rename_in_ledger(
    client: Client, ledger_id: LedgerId, old: BookieId, new: BookieId, *, verify: bool
) -> LedgerRename:
    """Replace ``old`` by ``new`` in one ledger; may be repeated.

    With ``verify``, only if ``new`` returns the first and last entry of each of its fragments.
    """
    try:
        local = await client.local_metadata(ledger_id)
        if lists_both(local.value, old, new):
            return LedgerRename(ledger_id, RenameOutcome.BOTH)
        if verify:
            await _verify(client, ledger_id, local, old, new)
        await client.cluster.updater.update(
            ledger_id,
            local,
            lambda metadata: old in metadata.all_bookies() and not lists_both(metadata, old, new),
            lambda metadata: with_bookie_renamed(metadata, old, new),
        )
    except NoSuchLedgerError:
        return LedgerRename(ledger_id, RenameOutcome.GONE)
    except MetadataSerializationError as error:
        return LedgerRename(ledger_id, RenameOutcome.UNREADABLE, str(error))
    except EntryNotReturnedError as error:
        return LedgerRename(ledger_id, RenameOutcome.UNVERIFIED, str(error))
    if old in local.value.all_bookies():
        return LedgerRename(ledger_id, RenameOutcome.BOTH)
    return LedgerRename(ledger_id, RenameOutcome.DONE)


class EntryNotReturnedError(ClientError):
    """A bookie does not return an entry that it should have."""


async def _verify(
    client: Client, ledger_id: LedgerId, local: LocalMetadata, old: BookieId, new: BookieId
) -> None:
    last: int | None = local.value.last_entry_id
    entry_id = None
    try:
        if last is None:
            last, _ = await cluster_operations.confirmed_end(client, ledger_id)
        for entry_id in fragment_ends_on(local.value, old, last):
            await cluster_operations.read_entry_from(client, new, ledger_id, entry_id)
    except (MetadataSerializationError, NoSuchLedgerError):
        raise
    except ClientError as error:
        what = "its end" if entry_id is None else f"entry {entry_id}"
        raise EntryNotReturnedError(f"{what}: {error}") from error
