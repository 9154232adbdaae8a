"""The creation of ledgers: ensemble, metadata and a free id.

Agrees with BookKeeper 4.18.0, LedgerCreateOp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from bkclient.concurrency import wall_ms
from bkclient.errors import IncorrectParameterError, LedgerExistsError, NotEnoughBookiesError
from bkclient.ledger.cluster import Cluster
from bkclient.metadata.versions_and_watches import Versioned
from bkclient.placement.policy import Ensemble
from bkclient.quorum.distribution import check_quorums
from wire.codes import DigestType, LedgerState
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

CREATE_TRIES_MAX: Final = 100
"""Generated ids that may be in use before a creation fails."""


@attrs.frozen(kw_only=True)
class NewLedger:
    """The parameters of a new ledger; without ``ledger_id`` an id is generated."""

    ensemble_size: int = 3
    write_quorum: int = 2
    ack_quorum: int = 2
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = attrs.field(default=b"", repr=False)
    custom: Mapping[str, bytes] = attrs.field(factory=dict)
    ledger_id: LedgerId | None = None


async def create(cluster: Cluster, new: NewLedger) -> tuple[LedgerId, Versioned[LedgerMetadata]]:
    """Store the metadata of a new, open ledger on bookies that are chosen now.

    Raises:
        QuorumError: the sizes are invalid.
        NotEnoughBookiesError: there are fewer writable bookies than the ensemble needs.
        LedgerExistsError: the id is in use.
        MetadataStoreError: the store failed.
    """
    check_quorums(new.ensemble_size, new.write_quorum, new.ack_quorum)
    store, metadata = cluster.store, await _metadata(cluster, new)
    if new.ledger_id is not None:
        version = await store.create_ledger(new.ledger_id, metadata)
        return new.ledger_id, Versioned(metadata, version)
    for _ in range(CREATE_TRIES_MAX):
        generated = await store.allocate_ledger_id()
        try:
            version = await store.create_ledger(generated, metadata, is_allocated=True)
        except LedgerExistsError:
            continue
        return generated, Versioned(metadata, version)
    raise LedgerExistsError(f"{CREATE_TRIES_MAX} generated ledger ids were all in use")


async def _metadata(cluster: Cluster, new: NewLedger) -> LedgerMetadata:
    ensemble = await _choose(cluster, new)
    wanted = cluster.config.ledger_metadata_version
    return LedgerMetadata(
        ensemble_size=len(ensemble),
        write_quorum=new.write_quorum,
        ack_quorum=new.ack_quorum,
        state=LedgerState.OPEN,
        fragments=(Fragment(EntryId(0), ensemble),),
        digest_type=new.digest_type,
        password=new.password,
        custom=new.custom,
        creator_token=cluster.rng.getrandbits(62) + 1,
        format_version=3 if wanted <= 0 else wanted,
        **_creation_time(cluster),
    )


def _creation_time(cluster: Cluster) -> dict[str, Any]:
    if not cluster.config.store_creation_time:
        return {}
    return {"ctime_ms": wall_ms(cluster.clock), "store_ctime": True}


async def _choose(cluster: Cluster, new: NewLedger) -> Ensemble:
    """Return an ensemble; with opportunistic striping a smaller one if there are few bookies."""
    size = wanted = new.ensemble_size
    smallest = new.write_quorum if cluster.config.opportunistic_striping else size
    while True:
        try:
            return await cluster.choose_ensemble(size, new.write_quorum, new.ack_quorum)
        except NotEnoughBookiesError:
            if size <= smallest:
                raise
        except IncorrectParameterError:
            # The placement may refuse a smaller size, and allow the next one.
            if size in {wanted, smallest}:
                raise
        size -= 1
