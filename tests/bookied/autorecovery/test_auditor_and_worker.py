"""Election, auditor and worker together: whole clusters that heal, and sessions that end."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from bkclient.client import Client
from bkclient.config.client import ClientConfig
from bkclient.errors import LedgerRecoveryError
from bkclient.ledger.writer import LedgerWriter
from bkclient.metadata import zk_paths
from bkclient.metadata.tree.store import MetadataStore
from bkclient.replication.recover_bookies import RecoverReport, recover_bookies
from bookied.autorecovery.auditor_and_worker import AGAIN_S, AutoRecoveryBesideBookie
from bookied.config.autorecovery import AutoRecoveryConfig
from bookied.errors import SessionLostError
from tests.bkclient.replication_world import (
    STRIPED,
    TRIPLE,
    check_whole,
    closed_ledger,
    marks,
    member,
    open_writer,
    payloads,
    store_of,
)
from tests.bkclient.worlds import Fate, Running, World, is_recovery_add
from tests.bookied.autorecovery.workers import (
    CHECKS_OFF,
    RunningAutoRecovery,
    RunningWorker,
    run_until_no_marks,
)
from tests.support.memory_zookeeper import Fault, MemoryMetadata, TreeOperation
from wire.codes import LedgerState
from wire.ids import BookieId, LedgerId
from wire.messages import Request

KINDS = (TRIPLE, STRIPED, {"ensemble_size": 4, "write_quorum": 2, "ack_quorum": 2})


def auditor(world: World) -> BookieId | None:
    return world.run(store_of(world).current_auditor())


def some_ledgers(world: World, client: Client, count: int = 9) -> dict[LedgerId, list[bytes]]:
    """Make ledgers of all kinds; each has entries of its own."""
    made = {}
    for number in range(count):
        writer = world.run(client.create_ledger(**KINDS[number % len(KINDS)]))
        entries = payloads(number * 3, b"of %d" % number)
        if entries:
            world.run(writer.add_many(entries))
        world.settle()
        world.run(writer.close())
        made[writer.ledger_id] = entries
    return made


def test_a_lost_bookie_is_noticed_and_everything_is_whole_again() -> None:
    world = World(6)
    ledgers = some_ledgers(world, world.client())
    RunningAutoRecovery(world)
    world.kill("b2")
    world.settle(1)
    run_until_no_marks(world)
    for ledger_id, entries in ledgers.items():
        check_whole(world, ledger_id, entries)


def test_bookies_lost_one_after_the_other_leave_everything_whole() -> None:
    world = World(8)
    ledgers = some_ledgers(world, world.client())
    for name in ("one", "two"):
        RunningAutoRecovery(world, name, seed=len(name))
    for lost in ("b1", "b2", "b3"):
        world.kill(lost)
        world.settle(1)
        run_until_no_marks(world)
    for ledger_id, entries in ledgers.items():
        check_whole(world, ledger_id, entries)


def test_a_bookie_that_flaps_costs_nothing_within_its_delay() -> None:
    world = World(5)
    client = world.client()
    ledgers = some_ledgers(world, client)
    writer = open_writer(world, client, 3)
    before = {ledger_id: world.stored(ledger_id) for ledger_id in ledgers}
    RunningAutoRecovery(world, lost_bookie_recovery_delay_s=60)
    for _ in range(20):
        world.kill("b1")
        world.settle(40)
        world.restart("b1")
        world.settle(5)
    assert marks(world) == {}
    assert {ledger_id: world.stored(ledger_id) for ledger_id in ledgers} == before
    assert world.stored(writer.ledger_id).state is LedgerState.OPEN


def test_there_is_one_auditor_and_another_takes_over_when_it_goes() -> None:
    world = World(5)
    ledgers = some_ledgers(world, world.client())
    first = RunningAutoRecovery(world, "first", seed=1)
    second = RunningAutoRecovery(world, "second", seed=2)
    assert auditor(world) == "first"
    first.running.deferred.cancel()
    world.settle()
    world.run(first.client.store.close())
    world.settle()
    assert auditor(world) == "second"
    assert not second.running.done
    world.kill("b1")
    world.settle(1)
    run_until_no_marks(world)
    for ledger_id, entries in ledgers.items():
        check_whole(world, ledger_id, entries)


def test_the_loss_of_the_session_ends_auditor_and_worker() -> None:
    world = World(5)
    closed_ledger(world, world.client())
    lost = RunningAutoRecovery(world)
    lost.session.expire()
    world.settle()
    assert isinstance(lost.running.result, SessionLostError)
    assert lost.running.result.exit_status == 3
    world.kill("b1")
    world.settle(100)
    assert marks(world) == {}


def test_a_vote_that_an_operator_removed_is_cast_again() -> None:
    world = World(5)
    ledger_id = closed_ledger(world, world.client())
    RunningAutoRecovery(world)
    (vote,) = [n for n in world.metadata.children(zk_paths.ELECTION) if n.startswith("V_")]
    world.metadata.delete(f"{zk_paths.ELECTION}/{vote}")
    victim = member(world, ledger_id).bookie_id
    world.kill(victim)
    world.settle(AGAIN_S + 1)
    run_until_no_marks(world)
    assert auditor(world) == "auditor"
    check_whole(world, ledger_id, payloads(5))


def test_a_metadata_service_that_fails_at_the_start_is_asked_again() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client())
    broken = True

    def fault(operation: TreeOperation) -> Fault:
        return Fault.REQUEST_LOST if broken and "underreplication" in operation.path else Fault.NONE

    world.metadata.faults = fault
    RunningAutoRecovery(world)
    world.settle(20)
    broken = False
    world.kill(member(world, ledger_id).bookie_id)
    world.settle(30)
    run_until_no_marks(world)
    check_whole(world, ledger_id, payloads(5))


# Beside a bookie -------------------------------------------------------------------------------


class Beside:
    """Autorecovery as a bookie has it; ``stores`` are its sessions, the latest last.

    The first sessions cannot be opened: ``errors`` say why.
    """

    def __init__(self, world: World, *errors: Exception) -> None:
        self.world, self.errors = world, list(errors)
        self.stores: list[MemoryMetadata] = []
        self.part = AutoRecoveryBesideBookie(
            self._open,
            self._client,
            AutoRecoveryConfig(**CHECKS_OFF),
            BookieId("b1"),
            world.clock,
            random.Random(0),
        )
        self.part.start()
        world.settle()

    def _open(self) -> MetadataStore:
        if self.errors:
            raise self.errors.pop(0)
        self.stores.append(self.world.metadata.metadata())
        return self.stores[-1]

    def _client(self, store: MetadataStore) -> Client:
        return Client(
            store,
            clock=self.world.clock,
            connect=self.world.connect,
            config=ClientConfig(),
            rng=random.Random(0),
        )


def test_beside_a_bookie_it_begins_anew_in_a_new_session() -> None:
    world = World(5)
    ledger_id = closed_ledger(world, world.client())
    beside = Beside(world)
    assert auditor(world) == "b1"
    beside.stores[0].session.expire()
    world.settle(AGAIN_S + 1)
    assert len(beside.stores) == 2
    assert auditor(world) == "b1"
    world.kill(member(world, ledger_id, 1).bookie_id)
    world.settle(1)
    run_until_no_marks(world)
    check_whole(world, ledger_id, payloads(5))


def test_beside_a_bookie_it_begins_anew_whatever_has_failed() -> None:
    world = World(3)
    Beside(world, OSError(errno.EMFILE, "too many open files"))
    assert auditor(world) is None
    world.settle(AGAIN_S + 1)
    assert auditor(world) == "b1"


def test_beside_a_bookie_it_stops_with_its_session() -> None:
    world = World(4)
    beside = Beside(world)
    world.run(beside.part.stop())
    world.settle(100)
    assert auditor(world) is None
    assert len(beside.stores) == 1
    assert not world.metadata.is_live(beside.stores[0].session_id)


def test_beside_a_bookie_it_stops_before_it_has_begun() -> None:
    world = World(3)
    part = AutoRecoveryBesideBookie(
        world.metadata.metadata,
        lambda store: pytest.fail(f"a client over {store}"),
        AutoRecoveryConfig(),
        BookieId("b1"),
        world.clock,
        random.Random(0),
    )
    world.run(part.stop())


# Dying ----------------------------------------------------------------------------------------


def die_at(world: World, worker: RunningWorker, step: int, counted: list[Any]) -> Any:
    """Return faults that kill a worker in its step with this number; 2n is before, 2n+1 after."""

    def fault(operation: TreeOperation) -> Fault:
        if operation.session_id != worker.session_id:
            return Fault.NONE
        if len(counted) > step // 2:
            return Fault.REQUEST_LOST
        counted.append(operation)
        if len(counted) <= step // 2:
            return Fault.NONE
        worker.session.suspend()
        world.clock.callLater(0, worker.die)
        return Fault.ANSWER_LOST if step % 2 else Fault.REQUEST_LOST

    return fault


@pytest.mark.parametrize("kind", ["closed", "open"])
def test_a_worker_may_die_between_any_two_steps_and_the_next_makes_the_ledger_whole(
    kind: str,
) -> None:
    step, deaths = 0, 0
    while True:
        world = World(5)
        writer = open_writer(world, world.client(), 4)
        ledger_id = writer.ledger_id
        victim = member(world, ledger_id).bookie_id
        world.kill(victim)
        world.run(writer.add_many(payloads(3, b"later")))
        world.settle()
        if kind == "closed":
            world.run(writer.close())
        else:
            world.kill(member(world, ledger_id, 1).bookie_id)
        world.run(store_of(world).mark_underreplicated(ledger_id, (victim,)))
        counted: list[Any] = []
        worker = RunningWorker(world, seed=1, begins=False)
        world.metadata.faults = die_at(world, worker, step, counted)
        worker.begin()
        world.settle(100)
        survived = len(counted) <= step // 2
        if not survived:
            deaths += 1
            assert worker.running.done
        world.metadata.faults = lambda _operation: Fault.NONE
        RunningWorker(world, seed=2)
        run_until_no_marks(world)
        check_whole(world, ledger_id, [*payloads(4), *payloads(3, b"later")])
        if survived:
            break
        step += 1
    assert deaths > 20


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.SERVE], ids=["before", "after"])
def test_a_worker_may_die_with_any_copy_it_sends(fate: Fate) -> None:
    entries = payloads(13)
    for fatal in range(len(entries)):
        world = World(4)
        ledger_id = closed_ledger(world, world.client(), len(entries))
        victim = member(world, ledger_id).bookie_id
        world.kill(victim)
        world.run(store_of(world).mark_underreplicated(ledger_id, (victim,)))
        worker = RunningWorker(world, seed=1, begins=False)

        def policy(
            request: Request, worker: RunningWorker = worker, world: World = world, n: int = fatal
        ) -> Fate:
            if not is_recovery_add(request) or request.entry_id != n:
                return Fate.SERVE
            for bookie in world.bookies.values():
                bookie.policy = lambda _request: Fate.SERVE
            worker.session.suspend()
            world.clock.callLater(0, worker.die)
            return fate

        for bookie in world.bookies.values():
            bookie.policy = policy
        worker.begin()
        world.settle(1)
        assert worker.running.done
        assert victim in world.stored(ledger_id).ensemble
        RunningWorker(world, seed=2)
        run_until_no_marks(world)
        check_whole(world, ledger_id, entries)


@pytest.mark.parametrize("seed", range(12))
def test_two_workers_and_a_manual_recovery_at_once_leave_everything_whole(seed: int) -> None:
    """S28, with the order of all messages left to chance; a writer goes on meanwhile."""
    world = World(7, seed=seed)
    client = world.client(seed=seed)
    ledgers = some_ledgers(world, client, 6)
    writer = open_writer(world, client, 3)
    lost = member(world, min(ledgers)).bookie_id
    for number in range(2):
        RunningAutoRecovery(world, f"number {number}", seed=seed + number)
    chance = random.Random(seed)
    world.delay_s = lambda: chance.uniform(0, 0.01)
    world.metadata.delay_s = lambda _operation: chance.uniform(0, 0.01)
    world.kill(lost)
    recovering = world.start(recover_bookies(world.client(seed=90 + seed), [lost]))
    more = payloads(4, b"meanwhile")
    adding = Running(world, writer.add_many(more)) if lost not in ensemble_of(writer) else None
    world.settle(2)
    run_until_no_marks(world)
    # A repair that somebody else got in the way of may end it; it is there to be run again.
    assert recovering.done
    assert isinstance(recovering.result, (RecoverReport, LedgerRecoveryError))
    if adding is not None:
        assert adding.done
        ledgers[writer.ledger_id] = [*payloads(3), *more]
        assert world.stored(writer.ledger_id).state is LedgerState.OPEN
    for ledger_id, entries in ledgers.items():
        assert lost not in check_whole(world, ledger_id, entries).all_bookies()


def ensemble_of(writer: LedgerWriter) -> tuple[BookieId, ...]:
    return writer.metadata.ensemble
