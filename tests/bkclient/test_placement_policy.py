"""``ensemblePlacementPolicy`` by its Java names, and ensembles over racks in a whole client."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bkclient.client import Client
from bkclient.errors import IncorrectParameterError, NotEnoughBookiesError
from bkclient.topology import ScriptError
from tests.bkclient.fakes import Fate, World, collect, is_add, when

OF_JAVA = "org.apache.bookkeeper.client."


class Script:
    """A topology script: odd bookies are in /odd, even ones in /even."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, hosts: Sequence[str]) -> str:
        self.calls += 1
        return " ".join("/odd" if int(host[-1]) % 2 else "/even" for host in hosts)


async def broken(_hosts: Sequence[str]) -> str:
    raise ScriptError("racks.sh ended with status 1")


def racks(ensemble: Sequence[str]) -> set[int]:
    return {int(bookie[-1]) % 2 for bookie in ensemble}


async def ensemble_of(client: Client) -> tuple[str, ...]:
    writer = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
    return (await client.read_metadata(writer.ledger_id)).value.ensemble


def test_ensembles_span_the_racks_that_the_script_tells() -> None:
    world = World(8)
    for seed in range(20):
        client = world.client(seed=seed, topology_script=Script())
        assert racks(world.run(ensemble_of(client))) == {0, 1}


def test_the_random_policy_asks_no_script() -> None:
    world, script = World(8), Script()
    client = world.client(
        topology_script=script, placement_policy=f"{OF_JAVA}DefaultEnsemblePlacementPolicy"
    )
    assert {len(racks(world.run(ensemble_of(client)))) for _ in range(30)} == {1, 2}
    assert script.calls == 0


def test_a_failed_bookie_is_replaced_by_one_of_its_rack() -> None:
    world = World(6)
    client = world.client(topology_script=Script())

    async def story() -> None:
        writer = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
        before = (await client.read_metadata(writer.ledger_id)).value.ensemble
        world.kill(before[0])
        payloads = [b"%d" % number for number in range(10)]
        for payload in payloads:
            await writer.add(payload)
        metadata = await writer.close()
        assert before[0] not in metadata.ensemble
        assert racks(metadata.ensemble[:1]) == racks(before[:1])
        reader = await client.open_ledger(writer.ledger_id)
        assert await collect(reader.read()) == payloads

    world.run(story())


def test_a_script_that_fails_is_no_hindrance_unless_racks_are_enforced() -> None:
    world = World(4)
    assert world.run(ensemble_of(world.client(topology_script=broken)))
    with pytest.raises(ScriptError):
        world.run(ensemble_of(world.client(topology_script=broken, enforce_racks=True)))


def test_enforced_racks_are_never_given_up() -> None:
    world = World(6)
    client = world.client(topology_script=Script(), enforce_racks=True)
    for even in ("b2", "b4", "b6"):
        world.kill(even)
    with pytest.raises(NotEnoughBookiesError, match="enforceMinNumRacksPerWriteQuorum"):
        world.run(ensemble_of(client))


def test_enforced_racks_need_a_script() -> None:
    world = World(4)
    with pytest.raises(IncorrectParameterError, match="networkTopologyScriptFileName"):
        world.run(ensemble_of(world.client(enforce_racks=True)))


def test_a_policy_that_is_not_offered_is_refused_where_a_bookie_is_chosen() -> None:
    world = World(3)
    ledger = world.run(world.client().create_ledger())
    world.run(ledger.close())
    client = world.client(placement_policy=f"{OF_JAVA}RegionAwareEnsemblePlacementPolicy")
    assert world.run(client.open_ledger(ledger.ledger_id)).is_closed
    with pytest.raises(IncorrectParameterError, match=r"RegionAware.* is not offered"):
        world.run(ensemble_of(client))


@pytest.mark.parametrize("asked", [True, False])
def test_an_add_counts_only_once_its_acks_span_the_racks_where_that_is_asked(
    *, asked: bool
) -> None:
    world = World(4)
    client = world.client(topology_script=Script(), enforce_fault_domains=asked)
    writer = world.run(client.create_ledger(ensemble_size=4, write_quorum=4, ack_quorum=2))
    for even in ("b2", "b4"):
        world[even].policy = when(is_add, Fate.HOLD)
    add = writer.add(b"with acks of the odd rack")
    world.settle(1)
    assert add.called is not asked
    world["b2"].release()
    world.settle(1)
    assert add.called
