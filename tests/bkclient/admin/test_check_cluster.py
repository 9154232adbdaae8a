"""Trying a whole cluster with one ledger."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from bkclient.admin.sanity_checks import check_cluster
from bkclient.errors import ClientError
from tests.bkclient.worlds import World

SIZES = {"ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2, "entry_bytes": 10}


def test_every_step_is_timed_and_the_ledger_is_gone_afterwards() -> None:
    world = World(3)
    client = world.client()
    world.delay_s = lambda: 0.01
    found = world.run(check_cluster(client, entries=20, **SIZES))
    assert min(found.add_s, found.read_open_s, found.read_s) >= 0.019
    assert found.delete_s is not None
    assert set(found.ensemble) == {"b1", "b2", "b3"}
    assert sum(len(bookie.entries(found.ledger_id)) for bookie in world.bookies.values()) == 40


@pytest.mark.parametrize("keep", [True, False])
def test_an_entry_that_comes_back_as_another_is_noticed(keep: bool) -> None:  # noqa: FBT001
    world = World(2)
    client = world.client()
    sizes = {**SIZES, "ensemble_size": 2}

    def swap(bookie: object, request: object) -> None:
        for ledger in (one for b in world.bookies.values() for one in b.ledgers.values()):
            if 1 in ledger.entries and 3 in ledger.entries:
                ledger.entries[1] = ledger.entries[3]

    world.on_stored = swap
    error = world.failure(
        Deferred.fromCoroutine(check_cluster(client, entries=9, keep=keep, **sizes))
    )
    assert isinstance(error, ClientError)

    async def ledgers() -> list[int]:
        return [ledger_id async for ledger_id in client.list_ledgers()]

    assert len(world.run(ledgers())) == int(keep)
