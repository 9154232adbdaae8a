"""The racks of ledgers after bookies leave, predicted before the move and checked after it.

A rack may also be a region or a zone: the domain by which the placement separates bookies.

The forecast uses this client's configured placement. BookKeeper 4.18.0 does not check racks before
it decommissions or recovers a bookie. Without known racks the forecast is empty.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator

import attrs

from bkclient.admin.ledger_scan import READS_AT_ONCE
from bkclient.client import Client
from bkclient.concurrency import for_each
from bkclient.errors import NoSuchLedgerError, NotEnoughBookiesError
from bkclient.placement.policy import Ensemble, PlacementRequest, replace_failed
from bkclient.replication.recover_bookies import BookieLedger
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata


async def placement_domain(client: Client) -> str:
    """Return the domain by which the placement separates bookies: rack, region or zone."""
    return client.cluster.placement.domain


async def placement_shortfall(client: Client) -> str:
    """Return a phrase, the end of a sentence, about ledgers in too few domains."""
    return client.cluster.placement.shortfall


@attrs.frozen
class RackForecast:
    """The effect of the next move on some ledgers."""

    too_few: tuple[LedgerId, ...] = ()
    """Ledgers that will be on too few racks."""
    already: tuple[LedgerId, ...] = ()
    """Ledgers of ``too_few`` that are on too few racks already."""
    nowhere: tuple[LedgerId, ...] = ()
    """Ledgers that cannot be moved: there are too few bookies, or racks are enforced."""
    why: str = ""
    """The reason why they cannot be moved."""


async def rack_forecast(
    client: Client,
    leaving: Collection[BookieId],
    ledgers: Collection[BookieLedger],
    *,
    to: BookieId | None = None,
) -> RackForecast:
    """Return the effect on ledgers when bookies leave; with ``to`` only that bookie joins.

    Raises:
        ScriptError: racks are enforced and the script fails.
    """
    if client.cluster.topology is None:
        return RackForecast()
    there = await client.store.writable_bookies() - set(leaving)
    joining = there if to is None else there & {to}
    await _learn(client, joining, ledgers)
    too_few, already, nowhere, why = [], [], [], ""
    for one in ledgers:
        now = list(_ensembles(one.metadata, one))
        try:
            changed = [_without(client, one.metadata, each, leaving, joining) for each in now]
        except NotEnoughBookiesError as error:
            why = str(error)
            nowhere.append(one.ledger_id)
        else:
            if not _adhere(client, one.metadata, changed):
                too_few.append(one.ledger_id)
                if not _adhere(client, one.metadata, now):
                    already.append(one.ledger_id)
    return RackForecast(tuple(too_few), tuple(already), tuple(nowhere), why)


async def on_too_few_racks(client: Client, ledgers: Collection[BookieLedger]) -> list[LedgerId]:
    """Return the ledgers of which a fragment to move is on too few racks, ascending."""
    if client.cluster.topology is None:
        return []
    found: list[tuple[BookieLedger, LedgerMetadata]] = []

    async def look(one: BookieLedger) -> None:
        with contextlib.suppress(NoSuchLedgerError):
            found.append((one, (await client.store.read_ledger(one.ledger_id)).value))

    await for_each(ledgers, look, READS_AT_ONCE)
    # In one call: it may forget the racks of other bookies.
    await client.cluster.learn_racks(
        frozenset().union(*(metadata.all_bookies() for _, metadata in found))
    )
    return sorted(
        one.ledger_id
        for one, metadata in found
        if not _adhere(client, metadata, _ensembles(metadata, one))
    )


async def _learn(
    client: Client, joining: frozenset[BookieId], ledgers: Collection[BookieLedger]
) -> None:
    listed = (one.metadata.all_bookies() for one in ledgers)
    await client.cluster.learn_racks(joining.union(*listed))


def _ensembles(metadata: LedgerMetadata, moved: BookieLedger) -> Iterator[Ensemble]:
    """Yield the current ensembles of the fragments to move."""
    for fragment in metadata.fragments:
        if fragment.first_entry_id in moved.fragments:
            yield fragment.ensemble


def _adhere(client: Client, metadata: LedgerMetadata, ensembles: Iterable[Ensemble]) -> bool:
    placement = client.cluster.placement
    return all(placement.adheres(one, metadata.write_quorum) for one in ensembles)


def _without(
    client: Client,
    metadata: LedgerMetadata,
    ensemble: Ensemble,
    leaving: Collection[BookieId],
    joining: Collection[BookieId],
) -> Ensemble:
    return replace_failed(
        client.cluster.placement,
        ensemble,
        {index: one for index, one in enumerate(ensemble) if one in leaving},
        PlacementRequest(metadata.write_quorum, metadata.ack_quorum, writable=joining),
    )
