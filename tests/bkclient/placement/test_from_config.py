"""``ensemblePlacementPolicy`` by its Java names, and ensembles over racks in a whole client."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bkclient.client import Client
from bkclient.errors import IncorrectParameterError, NotEnoughBookiesError
from bkclient.ledger.writer import LedgerWriter
from bkclient.placement.rack_script import ScriptError
from tests.bkclient.worlds import Fate, World, collect, is_add, when
from wire.messages import BatchReadRequest, ReadRequest

OF_JAVA = "org.apache.bookkeeper.client."


class Script:
    """A topology script: odd bookies are in /odd, even ones in /even."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, hosts: Sequence[str]) -> str:
        self.calls += 1
        return " ".join("/odd" if int(host[-1]) % 2 else "/even" for host in hosts)


async def one_rack(hosts: Sequence[str]) -> str:
    return " ".join("/same" for _ in hosts)


async def two_racks(hosts: Sequence[str]) -> str:
    return " ".join("/fourth" if host.endswith("4") else "/others" for host in hosts)


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

    async def scenario() -> None:
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

    world.run(scenario())


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
    client = world.client(placement_policy="org.example.OurOwnPlacementPolicy")
    assert world.run(client.open_ledger(ledger.ledger_id)).is_closed
    with pytest.raises(IncorrectParameterError, match=r"OurOwnPlacementPolicy is not offered"):
        world.run(ensemble_of(client))


REGIONS = {"placement_policy": f"{OF_JAVA}RegionAwareEnsemblePlacementPolicy"}
ZONES = {"placement_policy": f"{OF_JAVA}ZoneawareEnsemblePlacementPolicy"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (REGIONS | {"regions_to_write": "eu;us"}, "reppRegionsToWrite needs network"),
        (REGIONS | {"enforce_racks": True}, "enforceMinNumRacksPerWriteQuorum needs network"),
        (ZONES, "enforceStrictZoneawarePlacement needs networkTopologyScriptFileName"),
        (REGIONS | {"regions_to_write": "eu; "}, "lists 1 regions, fewer than .*Durability=2"),
        (ZONES | {"zones_per_write_quorum_min": 4}, "4 is above desiredNumZones.*=3"),
    ],
)
def test_a_policy_that_cannot_be_as_it_is_set_is_refused_where_a_bookie_is_chosen(
    settings, said
) -> None:
    world = World(3)
    with pytest.raises(IncorrectParameterError, match=said):
        world.run(ensemble_of(world.client(**settings)))


@pytest.mark.parametrize("settings", [REGIONS, ZONES | {"enforce_zones": False}])
def test_without_a_script_any_bookies_do_where_nothing_is_enforced(settings) -> None:
    world = World(2)
    assert set(world.run(ensemble_of(world.client(**settings)))) == {"b1", "b2"}


async def six_places(hosts: Sequence[str]) -> str:
    """Put b1, b4, b7 into /r1 or /z1, the next into the second, and so on; each in its own rack."""
    return " ".join(f"/r{(int(host[-1]) - 1) % 3 + 1}/k{host[-1]}" for host in hosts)


def region(bookie: str) -> int:
    return (int(bookie[-1]) - 1) % 3 + 1


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        (REGIONS | {"regions_to_write": "r1;r2;r3"}, {"write_quorum": 3, "ack_quorum": 3}),
        (REGIONS, {"write_quorum": 3, "ack_quorum": 2}),
        (ZONES, {"write_quorum": 3, "ack_quorum": 2}),
    ],
)
def test_all_that_was_confirmed_outlives_a_lost_region_or_zone(settings, sizes) -> None:
    world = World(9)
    client = world.client(topology_script=six_places, **settings)
    payloads = [b"%d" % number for number in range(12)]

    async def scenario() -> None:
        writer = await client.create_ledger(ensemble_size=3, **sizes)
        for payload in payloads[:6]:
            await writer.add(payload)
        before = writer.metadata.ensemble
        assert {region(bookie) for bookie in before} == {1, 2, 3}
        for name in ("b1", "b4", "b7"):
            world.kill(name)
        reader = await client.open_ledger(writer.ledger_id, recover=False)
        assert await collect(reader.read(last=4)) == payloads[:5]
        for payload in payloads[6:]:
            await writer.add(payload)
        after = (await writer.close()).ensemble
        assert sorted(region(bookie) for bookie in after) in ([2, 2, 3], [2, 3, 3])
        assert sum(old != new for old, new in zip(before, after, strict=True)) == 1
        reader = await client.open_ledger(writer.ledger_id)
        assert await collect(reader.read()) == payloads

    world.run(scenario())


def asked_to_read(world: World) -> set[str]:
    """Return which bookies were asked for entries, and forget who was."""
    asked = {
        bookie.bookie_id
        for bookie in world.bookies.values()
        if any(isinstance(request, (ReadRequest, BatchReadRequest)) for request in bookie.log)
    }
    for bookie in world.bookies.values():
        bookie.log.clear()
    return asked


def test_a_region_aware_client_reads_from_its_own_region_although_nobody_gives_trouble() -> None:
    world = World(6)
    client = world.client(topology_script=six_places, local_host="host-b2", **REGIONS)

    async def scenario() -> None:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
        for number in range(9):
            await writer.add(b"%d" % number)
        metadata = await writer.close()
        assert region(metadata.ensemble[0]) == 2
        reader = await client.open_ledger(writer.ledger_id)
        assert len(await collect(reader.read())) == 9
        assert asked_to_read(world) == set(metadata.ensemble[:1])

    world.run(scenario())


def test_who_only_reads_knows_its_region_too_and_that_of_bookies_that_join_later() -> None:
    world = World(6)
    writing, reading = (
        world.client(topology_script=six_places, local_host=host, **REGIONS)
        for host in ("host-b1", "host-b2")
    )

    def near(writer: LedgerWriter) -> str:
        (found,) = (one for one in writer.metadata.ensemble if region(one) == 2)
        return found

    async def scenario() -> None:
        sizes = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 3}
        writer = await writing.create_ledger(**sizes)
        for number in range(5):
            await writer.add(b"%d" % number)
        reader = await reading.open_ledger(writer.ledger_id, recover=False)
        asked_to_read(world)
        assert len(await collect(reader.read(last=3))) == 4
        assert asked_to_read(world) == {near(writer)}
        world.add_bookie("b8")
        for name in ("b2", "b5"):
            world.kill(name)
        for number in range(5, 9):
            await writer.add(b"%d" % number)
        await writer.close()
        assert near(writer) == "b8"
        await reader.refresh()
        asked_to_read(world)
        assert len(await collect(reader.read(first=5))) == 4
        assert asked_to_read(world) == {"b8"}

    world.run(scenario())


def test_who_only_reads_does_so_although_the_script_of_enforced_racks_fails() -> None:
    world = World(3)
    writer = world.run(world.client().create_ledger())
    world.run(writer.add(b"x"))
    client = world.client(topology_script=broken, enforce_racks=True, **REGIONS)
    reader = world.run(client.open_ledger(writer.ledger_id, recover=False))
    assert reader.last_add_confirmed == -1


def test_opportunistic_striping_leaves_out_the_sizes_that_zones_do_not_allow() -> None:
    world = World(5)
    client = world.client(topology_script=six_places, opportunistic_striping=True, **ZONES)

    async def scenario() -> None:
        writer = await client.create_ledger(ensemble_size=6, write_quorum=3, ack_quorum=2)
        assert len(writer.metadata.ensemble) == 3
        with pytest.raises(IncorrectParameterError, match="not a multiple"):
            await client.create_ledger(ensemble_size=5, write_quorum=3, ack_quorum=2)

    world.run(scenario())


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


def test_no_ledger_is_created_whose_adds_no_acks_can_confirm() -> None:
    world = World(3)
    client = world.client(topology_script=one_rack, enforce_fault_domains=True)
    with pytest.raises(NotEnoughBookiesError, match=r"fewer racks.*no add to them would be"):
        world.run(client.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2))


def test_an_add_fails_once_no_replacement_is_left_in_a_second_rack() -> None:
    world = World(4)
    client = world.client(topology_script=two_racks, enforce_fault_domains=True)
    writer = world.run(client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2))
    world.kill("b4")
    with pytest.raises(NotEnoughBookiesError, match="no add to them would be acknowledged"):
        world.run(writer.add(b"acks of one rack alone"))
