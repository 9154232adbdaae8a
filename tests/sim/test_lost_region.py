"""A region that is lost with its disks takes no entry along, where placement minds regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bkclient.errors import LedgerRecoveryError
from tests.sim.engine.scene import Scene, add, at
from tests.sim.world.network import Fate

REGIONS_OF_TWO: dict[str, Any] = {
    "placement_policy": "org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy",
    "regions_to_write": "r0;r1;r2",
}


def region(name: str) -> int:
    return (int(name[1:]) - 1) // 3


async def script(hosts: Sequence[str]) -> str:
    """Put three bookies into each region, by what is behind the last letter of their host."""
    return " ".join(f"/r{region('b' + host.rpartition('b')[2])}/rack" for host in hosts)


def lose_a_region(seed: int, **settings: Any) -> None:
    """Write with one member that hears nothing, lose a region, and read with another client.

    Raises:
        BrokenInvariantError: a confirmed entry is gone.
        LedgerRecoveryError: nobody is left who could know where the ledger ends.
    """
    scene = Scene(9)
    w = scene.client(f"w{seed}", topology_script=script, **settings)
    writer = scene.writer(w, ensemble_size=4, write_quorum=4, ack_quorum=3)
    members = scene.members(writer)
    regions = [region(member.name) for member in members]
    doomed = max(regions, key=regions.count)
    deaf = next((m for m in members if region(m.name) != doomed), members[0])
    scene.when(at(deaf, add), Fate.HOLD)
    added = [scene.add(writer, b"%d" % number) for number in range(10)]
    scene.drive(3)
    assert [one[0] for one in added] == [*range(10)]
    w.kill()
    for bookie in scene.world.bookies.values():
        if region(bookie.name) == doomed:
            bookie.lose_disk()
    scene.drive(10)
    scene.open(scene.client("r", topology_script=script, **settings), writer)


@pytest.mark.parametrize("seed", range(4))
def test_what_was_confirmed_outlives_a_region(seed: int) -> None:
    lose_a_region(seed, **REGIONS_OF_TWO)


@pytest.mark.parametrize("seed", [12, 19])
def test_where_placement_minds_no_regions_one_may_take_entries_along(seed: int) -> None:
    careless = "org.apache.bookkeeper.client.DefaultEnsemblePlacementPolicy"
    with pytest.raises(LedgerRecoveryError, match="too few bookies of the last fragment"):
        lose_a_region(seed, placement_policy=careless)
