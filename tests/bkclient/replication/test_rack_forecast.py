"""Which ledgers are on too few racks."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.task import deferLater

from bkclient.replication.rack_forecast import on_too_few_racks
from bkclient.replication.recover_bookies import BookieLedger
from tests.bkclient.replication_world import closed_ledger
from tests.bkclient.worlds import World
from wire.ids import EntryId

PAIR = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 2}


def test_ledgers_that_are_looked_at_together_do_not_forget_each_others_racks() -> None:
    world = World(6)

    async def racks(hosts: Sequence[str]) -> str:
        await deferLater(world.clock, 0.1)
        return " ".join(f"/rack-{int(host[-1]) % 2}" for host in hosts)

    client = world.client(topology_script=racks)
    ledgers = [closed_ledger(world, client, 1, **PAIR) for _ in range(8)]
    known = [
        BookieLedger(ledger_id=one, metadata=world.stored(one), fragments=(EntryId(0),))
        for one in ledgers
    ]
    assert len({one.metadata.all_bookies() for one in known}) > 1
    fresh = world.client(topology_script=racks)
    assert world.run(on_too_few_racks(fresh, known)) == []
