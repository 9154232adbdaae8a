"""What ledgers that lack replicas wait for."""

from __future__ import annotations

from bkclient.replication.repair_states import (
    LedgerRepairState,
    MissingReplicas,
    RepairState,
    repair_states,
)
from tests.bkclient.replication_world import STRIPED, closed_ledger, open_writer, store_of
from tests.bkclient.worlds import World
from wire.codes import LedgerState
from wire.ids import BookieId, LedgerId


def look(world: World, *lacking: MissingReplicas) -> list[LedgerRepairState]:
    async def listed() -> list[LedgerRepairState]:
        return [one async for one in repair_states(world.client(), lacking)]

    return world.run(listed())


def test_a_ledger_waits_for_a_worker_until_one_has_it() -> None:
    world = World(5)
    ledger_id = closed_ledger(world, world.client(), 4)
    gone = world.stored(ledger_id).ensemble[0]
    world.kill(gone)
    waiting = MissingReplicas(ledger_id, (gone,), since_ms=7)
    (found,) = look(world, waiting)
    assert (found.repair_state, found.state, found.since_ms) == (
        RepairState.WAITING, LedgerState.CLOSED, 7,
    )  # fmt: skip
    assert found.size_bytes == 4 * len(b"entry 0")
    worker = store_of(world)
    world.run(worker.acquire_lock(ledger_id))
    (found,) = look(world, waiting)
    assert (found.repair_state, found.worker) == (RepairState.REPAIRING, "localhost")
    assert found.worker_since_ms is not None


def test_what_no_worker_can_mend_is_told_though_one_has_it() -> None:
    world = World(4)
    client = world.client()
    full, lost = closed_ledger(world, client, 4), closed_ledger(world, client, 4, **STRIPED)
    worker = store_of(world)
    for ledger_id in (full, lost):
        world.run(worker.acquire_lock(ledger_id))
    (spare,) = {"b1", "b2", "b3", "b4"} - set(world.stored(full).ensemble)
    world.turn_read_only(spare)
    gone = world.stored(full).ensemble[0]
    world.kill(gone)
    assert look(world, MissingReplicas(full, (gone,)))[0].repair_state is RepairState.TOO_FEW
    for bookie_id in world.stored(lost).ensemble[:2]:
        if world.bookies[bookie_id].up:
            world.kill(bookie_id)
    assert look(world, MissingReplicas(lost, ()))[0].repair_state is RepairState.LOST


def test_a_bookie_that_returned_after_the_mark_can_take_the_copies() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 4)
    ensemble = world.stored(ledger_id).ensemble
    (spare,) = {BookieId(name) for name in ("b1", "b2", "b3", "b4")} - set(ensemble)
    world.kill(ensemble[0])
    marked = MissingReplicas(ledger_id, (ensemble[0], spare))
    assert look(world, marked)[0].repair_state is RepairState.WAITING


def test_a_ledger_that_grows_on_a_lost_bookie_waits_for_its_writer() -> None:
    world = World(5)
    ledger_id = open_writer(world, world.client(), 3).ledger_id
    gone = world.stored(ledger_id).ensemble[0]
    world.kill(gone)
    (found,) = look(world, MissingReplicas(ledger_id, (gone,)))
    assert (found.repair_state, found.size_bytes) == (RepairState.OPEN, None)
    assert "writer" in found.why


def test_a_mark_of_a_deleted_ledger_waits_for_nothing() -> None:
    world = World(3)
    (found,) = look(world, MissingReplicas(LedgerId(99), (BookieId("b1"),)))
    assert (found.repair_state, found.state) == (RepairState.GONE, None)
