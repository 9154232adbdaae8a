"""Copies that a bookie lacks or has damaged are written again on the same bookie.

Java has nothing like it. Where each writable bookie has a copy already, no other repair works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bkclient.client import Client
from bkclient.quorum.fragments import LedgerFragment, fragments_of
from bkclient.repair.fragment_copy import ByteRate, CopiedEntry, FragmentRepairer
from bkclient.repair.replica_check import view
from bkclient.repair.verify import with_handover_end
from wire.ids import BookieId, EntryId, LedgerId


async def rewrite_copies(
    client: Client,
    ledger_id: LedgerId,
    bookie_id: BookieId,
    entries: Sequence[tuple[EntryId, EntryId]],
    *,
    bytes_per_s: int | None = None,
    report: Callable[[CopiedEntry], None] = lambda _copied: None,
) -> None:
    """Write confirmed entries of a ledger again on a bookie of their write sets.

    The entries are read from the bookies that have them intact. No writer is fenced, and the
    metadata does not change. ``entries`` are ranges, both ends included; others than those that are
    striped to the bookie are left out. ``bytes_per_s``: limit on copying; ``None`` is the client's
    setting. ``report`` hears of each entry.

    Raises:
        NoSuchLedgerError: there is no such ledger.
        UnreadableEntryError: no bookie has an intact copy of an entry.
        ClientError: the bookie does not take an entry.
    """
    ledger = with_handover_end(await view(client, ledger_id))
    config = client.config
    rate = config.repair_bytes_per_s if bytes_per_s is None else bytes_per_s
    repairer = FragmentRepairer(
        cluster=client.cluster,
        rate=ByteRate(client.cluster.clock, rate),
        batch_entries=config.repair_batch_entries,
        report=report,
    )
    for fragment in fragments_of(ledger.metadata, ledger.lac):
        if bookie_id in fragment.ensemble and not fragment.may_be_empty:
            index = fragment.ensemble.index(bookie_id)
            await repairer.write_again(ledger, fragment, index, _striped(fragment, index, entries))


def _striped(
    fragment: LedgerFragment, index: int, entries: Sequence[tuple[EntryId, EntryId]]
) -> Iterator[EntryId]:
    """Give the entries of these ranges that are striped to a place of a fragment."""
    for first, last in entries:
        for entry_id in range(max(first, fragment.first), min(last, fragment.last) + 1):
            if fragment.holds(entry_id, index):
                yield EntryId(entry_id)
