"""What settings do, each in a small cluster: those that no other test is about."""

from __future__ import annotations

from typing import Any

import pytest

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.config.properties import parse_properties
from bkclient.config.settings import load
from bkclient.errors import (
    BookieUnavailableError,
    ClientDigestMismatchError,
    NotEnoughBookiesError,
    WriteFailedError,
)
from tests.bkclient.worlds import Fate, World, is_add, when
from wire.codes import DigestType
from wire.ids import BookieId, LedgerId
from wire.messages import ReadRequest, Request

TRIPLE = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


def made(world: World, client: Client, **options: Any) -> Any:
    return world.run(client.create_ledger(**{**TRIPLE, **options}))


@pytest.mark.parametrize(("setting", "stored"), [(-1, 3), (0, 3), (1, 1), (2, 2), (3, 3)])
def test_metadata_is_stored_in_the_version_asked_for(setting: int, stored: int) -> None:
    world = World(3)
    client = world.client(ledger_metadata_version=setting)
    # The oldest knows no ack quorum of its own.
    writer = made(world, client, digest_type=DigestType.CRC32, ack_quorum=3)
    assert world.stored(writer.ledger_id).format_version == stored


@pytest.mark.parametrize("kept", [True, False])
def test_the_time_of_creation_is_kept_where_asked_for(kept: bool) -> None:  # noqa: FBT001
    world = World(3)
    world.settle(1234)
    writer = made(world, world.client(store_creation_time=kept))
    assert world.stored(writer.ledger_id).store_ctime is kept
    if kept:
        assert world.stored(writer.ledger_id).ctime_ms == 1234_000


def test_ledgers_are_spread_over_the_connections_to_a_bookie() -> None:
    world = World(3)
    client = world.client(channels_per_bookie=2)
    for number in range(4):
        writer = made(world, client, ledger_id=LedgerId(number))
        world.run(writer.add(b"x"))
    world.settle(1)
    assert [len(bookie.connections) for bookie in world.bookies.values()] == [2, 2, 2]


@pytest.mark.parametrize("striping", [True, False])
def test_striping_is_given_up_where_bookies_are_few_and_that_is_allowed(
    striping: bool,  # noqa: FBT001
) -> None:
    world = World(3)
    client = world.client(opportunistic_striping=striping)
    sizes = {"ensemble_size": 5, "write_quorum": 2, "ack_quorum": 2}
    if not striping:
        with pytest.raises(NotEnoughBookiesError):
            made(world, client, **sizes)
        return
    writer = made(world, client, **sizes)
    assert world.stored(writer.ledger_id).ensemble_size == 3
    with pytest.raises(NotEnoughBookiesError):
        made(world, client, ensemble_size=5, write_quorum=4, ack_quorum=2)


def test_a_ledger_has_so_many_ensemble_changes_and_no_more() -> None:
    world = World(8)
    writer = made(world, world.client(ensemble_changes_max=2))
    world.run(writer.add(b"w"))
    for _ in range(2):
        world.kill(writer.metadata.last_fragment.ensemble[0])
        world.run(writer.add(b"x"))
        world.run(writer.add(b"y"))
    assert len(writer.metadata.fragments) == 3
    for bookie in writer.metadata.last_fragment.ensemble[:2]:
        world.kill(bookie)
    error = world.failure(writer.add(b"z"))
    assert type(error) is WriteFailedError
    assert error.outcome_unknown


@pytest.mark.parametrize("reorder", [True, False])
def test_reads_keep_their_order_where_they_must(reorder: bool) -> None:  # noqa: FBT001
    world = World(3)
    client = world.client(reorder_reads=reorder)
    writer = made(world, client)
    world.run(writer.add_many([b"x"] * 30))
    world.run(writer.close())
    reader = world.run(client.open_ledger(writer.ledger_id))
    silent = world.bookies[reader.metadata.ensemble[0]]
    silent.policy = when(lambda request: isinstance(request, ReadRequest), Fate.LOSE)
    for entry_id in (0, 3, 6):
        world.run(reader.read_entry(entry_id))
    asked = sum(isinstance(request, ReadRequest) for request in silent.log)
    assert asked == (1 if reorder else 3)


@pytest.mark.parametrize(("first_ms", "asked"), [(100, 3), (1500, 2), (0, 1)])
def test_a_long_poll_speculates_as_it_is_told(first_ms: int, asked: int) -> None:
    world = World(3)
    writer = made(world, world.client())
    world.run(writer.add(b"x"))
    client = world.client(
        seed=1,
        speculative_lac_first_timeout_ms=first_ms,
        speculative_lac_timeout_max_ms=first_ms,
    )
    reader = world.run(client.open_ledger(writer.ledger_id, recover=False))

    def is_poll(request: Request) -> bool:
        return isinstance(request, ReadRequest) and request.previous_lac is not None

    for bookie in world.bookies.values():
        bookie.policy = when(is_poll, Fate.LOSE)
    polling = world.start(reader.poll_lac(0))
    world.settle(2.5)
    assert sum(is_poll(r) for b in world.bookies.values() for r in b.log) == asked
    polling.deferred.cancel()


@pytest.mark.parametrize("detect", [True, False])
def test_another_digest_type_is_refused_where_it_is_not_detected(
    detect: bool,  # noqa: FBT001
) -> None:
    world = World(3)
    client = world.client(detect_digest_type=detect)
    writer = made(world, client, digest_type=DigestType.CRC32C)
    world.run(writer.close())
    opening = client.open_ledger(writer.ledger_id, digest_type=DigestType.CRC32)
    if detect:
        assert world.run(opening).last_add_confirmed == -1
    else:
        with pytest.raises(ClientDigestMismatchError):
            world.run(opening)


def test_without_a_resolver_a_bookies_id_is_its_address() -> None:
    world = World(3)
    client = world.client(resolve_addresses=False)
    with pytest.raises(BookieUnavailableError, match="b1 is not registered"):
        world.run(client.cluster.pool.address(BookieId("b1")))
    assert world.run(client.cluster.pool.address(BookieId("h:3181"))) == ("h", 3181)


def test_whoever_connects_is_told_how_long_that_may_take() -> None:
    world, waits = World(3), list[float]()

    def connect(host: str, port: int, make: Any, timeout_s: float) -> Any:
        waits.append(timeout_s)
        return world.connect(host, port, make, timeout_s)

    store = world.metadata.metadata()
    world.run(store.connect())
    config = ClientConfig(connect_timeout_ms=1234)
    client = Client(store, clock=world.clock, connect=connect, config=config)
    world.run(made(world, client).add(b"x"))
    assert waits == [1.234] * 3


@pytest.mark.parametrize(
    ("policy", "text", "key"),
    [
        ("RegionAware", "reppRegionsToWrite=eu", "reppRegionsToWrite"),
        ("RegionAware", "reppRegionsToWrite=eu;us", None),
        ("Zoneaware", "minNumZonesPerWriteQuorum=4", "minNumZonesPerWriteQuorum"),
        ("Rackaware", "minNumZonesPerWriteQuorum=4\nreppRegionsToWrite=eu", None),
    ],
)
def test_what_no_bookie_can_be_chosen_with_is_told_before(
    policy: str, text: str, key: str | None
) -> None:
    java_class = f"org.apache.bookkeeper.client.{policy}EnsemblePlacementPolicy"
    _, findings = load(
        ClientConfig, parse_properties(f"ensemblePlacementPolicy={java_class}\n{text}")
    )
    assert [finding.key for finding in findings] == ([] if key is None else [key])


def test_what_changes_nothing_says_so() -> None:
    text = "recoveryBatchReadEnabled=true\ndisableEnsembleChangeFeatureName=x"
    _, findings = load(ClientConfig, parse_properties(text))
    assert {finding.key for finding in findings} == {
        line.partition("=")[0] for line in text.split()
    }


def test_a_failed_add_by_too_many_changes_ends_the_ledger_where_it_was_confirmed() -> None:
    world = World(4)
    writer = made(world, world.client(ensemble_changes_max=0))
    world.run(writer.add(b"x"))
    for bookie in writer.metadata.ensemble[:2]:
        world.bookies[bookie].policy = when(is_add, Fate.LOSE)
    world.failure(writer.add(b"y"))
    world.settle(1)
    assert world.stored(writer.ledger_id).last_entry_id == 0
