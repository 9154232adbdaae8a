"""The placement that ``ensemblePlacementPolicy`` configures, of those of Java's that exist here."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from twisted.internet.interfaces import IReactorTime

from bkclient.config.client import RACK_AWARE, RANDOM, REGION_AWARE, ZONE_AWARE, ClientConfig
from bkclient.errors import IncorrectParameterError
from bkclient.placement.free_space import WeightedDraw
from bkclient.placement.policy import Draw, Placement, RandomPlacement
from bkclient.placement.rack import RackAwarePlacement
from bkclient.placement.rack_script import (
    HostOf,
    RackScript,
    RunScript,
    Topology,
    is_script_resolver,
    run_script,
)
from bkclient.placement.region import RegionAwarePlacement
from bkclient.placement.zone import ZoneAwarePlacement
from wire.ids import BookieId


def real_script(config: ClientConfig, run_blocking: Callable[..., Any]) -> RunScript | None:
    """Return a function that runs the configured script off the reactor; None without a script."""
    path = config.topology_script
    if not path:
        return None

    async def run(hosts: Sequence[str]) -> str:
        said: str = await run_blocking(partial(run_script, path, hosts))
        return said

    return run


async def real_racks(config: ClientConfig, run_blocking: Callable[..., Any]) -> RackScript | None:
    """Return the racks of a cluster by its configured script; None without a script."""
    script = real_script(config, run_blocking)
    if script is None:
        return None
    return RackScript(script, await run_blocking(partial(local_host_of, config)))


def placement_of(
    config: ClientConfig,
    rng: random.Random,
    clock: IReactorTime,
    *,
    racks: RackScript | None,
    host_of: HostOf,
    free_of: Callable[[BookieId], int] | None = None,
) -> tuple[Placement, Topology | None]:
    """Return the configured policy, and the topology if it uses one.

    A policy that is not supported, invalid settings, and enforced racks without a script are errors
    only when a bookie must be chosen: a client that only reads needs no policy.

    Args:
        config: the settings.
        rng: the random numbers.
        clock: for the topology.
        racks: the script and this host; None without a script.
        host_of: returns the host of a bookie.
        free_of: returns the free bytes of a bookie, if they count.
    """
    name = config.placement_name
    if name not in _OFFERED:
        return _NoPlacement(
            f"ensemblePlacementPolicy {config.placement_policy} is not offered; "
            f"{', '.join(_OFFERED)} are"
        ), None
    fault = next(config.placement_faults(), None)
    if fault is not None:
        return _NoPlacement(f"{fault.key} {fault.message}"), None
    draw = None
    if free_of is not None:
        draw = WeightedDraw(rng, free_of, config.weighted_placement_multiple_max)
    if name == RANDOM:
        return RandomPlacement(rng, draw), None
    strict_key = _strictness_key(config, name)
    if racks is not None and is_script_resolver(config.dns_resolver_class):
        topology = Topology(
            clock,
            racks.run,
            host_of,
            local_host=racks.local_host,
            arguments_max=config.topology_script_arguments_max,
            strict=strict_key is not None,
            remember_s=config.topology_stabilize_s,
        )
        return _over_racks(name, config, rng, topology, draw), topology
    if strict_key is not None:
        return _NoPlacement(
            f"{strict_key} needs networkTopologyScriptFileName, a script that says in which rack a "
            "host is"
        ), None
    return RandomPlacement(rng, draw), None


def _strictness_key(config: ClientConfig, name: str) -> str | None:
    """Return the setting that forbids to choose bookies without known racks."""
    if name == ZONE_AWARE:
        return "enforceStrictZoneawarePlacement" if config.enforce_zones else None
    if config.enforce_racks:
        return "enforceMinNumRacksPerWriteQuorum"
    if name == REGION_AWARE and config.durable_regions_min > 1:
        return "reppRegionsToWrite"
    return None


def _over_racks(
    name: str, config: ClientConfig, rng: random.Random, topology: Topology, draw: Draw | None
) -> Placement:
    if name == ZONE_AWARE:
        return ZoneAwarePlacement(
            rng,
            topology.rack_of,
            zones_min=config.zones_per_write_quorum_min,
            zones_desired=config.zones_per_write_quorum_desired,
            strict=config.enforce_zones,
            draw=draw,
        )
    racks_min = config.racks_per_write_quorum_min
    if name == RACK_AWARE:
        return RackAwarePlacement(
            rng,
            topology.rack_of,
            racks_min=racks_min,
            enforced=config.enforce_racks,
            local_rack=lambda: topology.local_rack,
            draw=draw,
        )
    return RegionAwarePlacement(
        rng,
        topology.rack_of,
        racks_min=racks_min,
        enforce_racks=config.enforce_racks,
        local_rack=lambda: topology.local_rack,
        regions_min=config.durable_regions_min,
        durable_in_replace=config.durability_in_replace,
        draw=draw,
    )


_OFFERED: Final = (RACK_AWARE, REGION_AWARE, ZONE_AWARE, RANDOM)


def reads_near(config: ClientConfig) -> bool:
    """Return whether the policy reads from near bookies first, and a script can locate them."""
    return bool(config.topology_script) and config.placement_name == REGION_AWARE


def local_host_of(config: ClientConfig) -> str | None:
    """Return this host's name for the script, as in Java's policy.

    May use the system's resolver.
    """
    if config.ignore_local_node:
        return None
    name = socket.gethostname()
    if config.use_hostname_for_local_node:
        return socket.getfqdn(name)
    try:
        return socket.gethostbyname(name)
    except OSError:
        return None


class _NoPlacement(RandomPlacement):
    """A policy that chooses no bookie, and raises the reason; reads work."""

    def __init__(self, why: str) -> None:
        super().__init__(random.Random(0))
        self._why = why

    def choose(self, *_asked: Any, **_how: Any) -> NoReturn:
        """See ``Placement``.

        Raises:
            IncorrectParameterError: always.
        """
        raise IncorrectParameterError(self._why)

    replace = choose
