"""What a client reaches bookies with, put together from its settings.

``Client`` imports this when it first needs a bookie: a command that reads metadata alone starts
without the path of the data.
"""

from __future__ import annotations

import random
from typing import Any

from bkclient.config.client import ClientConfig
from bkclient.connection.bookie_health import TroubleBook
from bkclient.connection.handshake import Greeting
from bkclient.connection.pool import BookiePool, Connect
from bkclient.ledger.context import Cluster
from bkclient.metadata.api import MetadataStore
from bkclient.metadata.update import Updater
from bkclient.placement.free_space import FreeSpace, ask_sizes
from bkclient.placement.from_config import placement_of
from bkclient.placement.policy import Placement
from bkclient.placement.topology import RunScript
from wire.codes import ProtocolVersion
from wire.ids import BookieId


def assemble(
    store: MetadataStore,
    *,
    clock: Any,
    connect: Connect,
    config: ClientConfig,
    rng: random.Random,
    protocol: ProtocolVersion | None,
    placement: Placement | None,
    topology_script: RunScript | None,
    local_host: str | None,
    greeting: Greeting | None,
) -> Cluster:
    """Return the parts of one client; the arguments are those of ``Client``."""
    if protocol is None:
        protocol = ProtocolVersion.V2 if config.use_v2_protocol else ProtocolVersion.V3
    pool = BookiePool(connect, clock, store, config, protocol=protocol, rng=rng, greeting=greeting)

    async def host_of(bookie: BookieId) -> str:
        return (await pool.address(bookie))[0]

    topology = free_space = None
    if placement is None:
        if config.weighted_placement:
            free_space = _free_space(pool, clock, config)
        placement, topology = placement_of(
            config,
            rng,
            clock,
            script=topology_script,
            host_of=host_of,
            local_host=local_host,
            free_of=None if free_space is None else free_space.of,
        )
    return Cluster(
        store=store,
        pool=pool,
        placement=placement,
        topology=topology,
        free_space=free_space,
        troubles=TroubleBook(
            clock,
            config.failure_memory_ms / 1000 if config.track_failures else 0.0,
            pool.quarantine,
            # Where load decides who is asked, slowness is not held against a bookie as well.
            minds_slow=config.reorder_pending_threshold <= 0,
        ),
        updater=Updater(store=store, clock=clock, rng=rng),
        clock=clock,
        rng=rng,
        config=config,
    )


def _free_space(pool: BookiePool, clock: Any, config: ClientConfig) -> FreeSpace:
    return FreeSpace(
        clock,
        lambda bookie: ask_sizes(pool, bookie).addCallback(lambda sizes: sizes.free_bytes or 0),
        interval_s=config.bookie_info_interval_s,
        retry_s=config.bookie_info_retry_s,
    )
