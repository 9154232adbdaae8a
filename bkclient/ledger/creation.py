"""New ledgers: their ensembles, their metadata, and the ids that are free.

Agrees with BookKeeper 4.18.0, LedgerCreateOp.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from bkclient.concurrency import wall_s
from bkclient.errors import IncorrectParameterError, LedgerExistsError, NotEnoughBookiesError
from bkclient.ledger.context import Cluster
from bkclient.metadata.api import Versioned
from bkclient.placement.policy import Ensemble
from wire.codes import LedgerState
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

CREATE_TRIES_MAX: Final = 100
"""Generated ids that may be in use before creating fails."""


async def new_metadata(cluster: Cluster, quorums: Quorums, **rest: Any) -> LedgerMetadata:
    """Return the metadata of a new, open ledger on bookies that are chosen now.

    Raises:
        NotEnoughBookiesError: there are fewer writable bookies than the ensemble has.
    """
    ensemble = await _choose(cluster, quorums)
    wanted = cluster.config.ledger_metadata_version
    return LedgerMetadata(
        ensemble_size=len(ensemble),
        write_quorum=quorums.write,
        ack_quorum=quorums.ack,
        state=LedgerState.OPEN,
        fragments=(Fragment(EntryId(0), ensemble),),
        creator_token=cluster.rng.getrandbits(62) + 1,
        format_version=3 if wanted <= 0 else wanted,
        **_creation_time(cluster),
        **rest,
    )


async def store_new(
    cluster: Cluster, metadata: LedgerMetadata, ledger_id: LedgerId | None
) -> tuple[LedgerId, Versioned[LedgerMetadata]]:
    """Store the metadata of a new ledger, under an id that is free unless one is given.

    Raises:
        LedgerExistsError: the id is in use.
        MetadataStoreError: the store failed.
    """
    store = cluster.store
    if ledger_id is not None:
        version = await store.create_ledger(ledger_id, metadata)
        return ledger_id, Versioned(metadata, version)
    for _ in range(CREATE_TRIES_MAX):
        generated = await store.allocate_ledger_id()
        try:
            version = await store.create_ledger(generated, metadata, is_allocated=True)
        except LedgerExistsError:
            continue
        return generated, Versioned(metadata, version)
    raise LedgerExistsError(f"{CREATE_TRIES_MAX} generated ledger ids were all in use")


@attrs.frozen
class Quorums:
    """How many bookies a ledger has, how many get an entry, and how many must have stored it."""

    ensemble: int
    write: int
    ack: int


def _creation_time(cluster: Cluster) -> dict[str, Any]:
    if not cluster.config.store_creation_time:
        return {}
    return {"ctime_ms": int(wall_s(cluster.clock) * 1000), "store_ctime": True}


async def _choose(cluster: Cluster, quorums: Quorums) -> Ensemble:
    """Return an ensemble; a smaller one with opportunistic striping, where bookies are few."""
    size = wanted = quorums.ensemble
    smallest = quorums.write if cluster.config.opportunistic_striping else size
    while True:
        try:
            return await cluster.choose_ensemble(size, quorums.write, quorums.ack)
        except NotEnoughBookiesError:
            if size <= smallest:
                raise
        except IncorrectParameterError:
            # A smaller size may be none that the placement allows, and the next one again.
            if size in {wanted, smallest}:
                raise
        size -= 1
