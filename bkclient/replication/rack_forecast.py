"""What becomes of the racks of ledgers when bookies go: told before they go, and afterwards.

Racks, or regions or zones: whatever the placement keeps bookies apart by.

The choice is that of the placement that this client is configured with; BookKeeper 4.18.0 looks at
no racks before it decommissions a bookie or recovers one. Without known racks nothing is told.
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
    """Return what the placement keeps bookies apart by: rack, region or zone."""
    return client.cluster.placement.domain


async def placement_shortfall(client: Client) -> str:
    """Return what ledgers span that are on too few, as the end of a sentence."""
    return client.cluster.placement.shortfall


@attrs.frozen
class RackForecast:
    """What the next move would make of some ledgers."""

    too_few: tuple[LedgerId, ...] = ()
    """Those that will be on too few racks."""
    already: tuple[LedgerId, ...] = ()
    """Those of ``too_few`` that are now."""
    nowhere: tuple[LedgerId, ...] = ()
    """Those that no bookie can take over: there are too few bookies, or racks are enforced."""
    why: str = ""
    """Why no bookie can."""


async def rack_forecast(
    client: Client,
    leaving: Collection[BookieId],
    ledgers: Collection[BookieLedger],
    *,
    to: BookieId | None = None,
) -> RackForecast:
    """Return what becomes of ledgers when bookies leave them; with ``to`` that one joins.

    Raises:
        ScriptError: racks are enforced and the script does not run.
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
    """Return the ledgers of which a fragment that was to move is on too few racks, ascending."""
    if client.cluster.topology is None:
        return []
    found: list[tuple[BookieLedger, LedgerMetadata]] = []

    async def look(one: BookieLedger) -> None:
        with contextlib.suppress(NoSuchLedgerError):
            found.append((one, (await client.store.read_ledger(one.ledger_id)).value))

    await for_each(ledgers, look, READS_AT_ONCE)
    # At once: racks of others than those that are asked for may be forgotten.
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
    """Give the ensembles, as metadata has them, of the fragments that are to move."""
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
