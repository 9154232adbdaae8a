"""Repairing one fragment: what is copied where, in which order, and what stops it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from bkclient.client import Client
from bkclient.connection.request_trace import RequestTrace
from bkclient.errors import (
    NoSuchLedgerError,
    NotEnoughBookiesError,
    ReadOnlyBookieClientError,
    RequestTimeoutError,
    UnclosedFragmentError,
)
from bkclient.quorum.fragments import FragmentChangedError, MissingPlaces, Swap
from bkclient.replication.fragment_copy import (
    ByteRate,
    CopiedEntry,
    FragmentRepairer,
    UnreadableEntryError,
)
from bkclient.replication.replica_check import LedgerChecker, view_ledger
from tests.bkclient.replication_world import (
    STRIPED,
    check_whole,
    closed_ledger,
    is_reading,
    member,
    open_writer,
    payloads,
)
from tests.bkclient.worlds import FakeBookie, Fate, World, is_recovery_add, when
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.codes import AddFlag, ProtocolVersion, ReturnCode
from wire.ids import BookieId, EntryId, LedgerId
from wire.messages import AddRequest, AddResponse, ReadRequest, Request


class Repair:
    """A ledger with a lost bookie, and who repairs it."""

    def __init__(
        self,
        world: World,
        client: Client,
        ledger_id: LedgerId,
        *,
        batch: int = 10,
        bytes_per_s: int = -1,
    ) -> None:
        self.world, self.client, self.ledger_id = world, client, ledger_id
        self.copied: list[CopiedEntry] = []
        self.repairer = FragmentRepairer(
            cluster=client.cluster,
            rate=ByteRate(world.clock, bytes_per_s),
            batch_entries=batch,
            report=self.copied.append,
        )

    async def lacks(self) -> tuple[MissingPlaces, ...]:
        checker = LedgerChecker(client=self.client, rng=random.Random(0))
        up = {bookie_id for bookie_id, bookie in self.world.bookies.items() if bookie.up}
        return await checker.check(await view_ledger(self.client, self.ledger_id), up)

    async def run(self, **how: Any) -> list[Swap]:
        """Repair all that the ledger lacks."""
        ledger = await view_ledger(self.client, self.ledger_id)
        return [await self.repairer.repair(ledger, lack, **how) for lack in await self.lacks()]

    def finish(self, **how: Any) -> list[Swap]:
        return self.world.run(self.run(**how))


def lose(world: World, ledger_id: LedgerId, index: int = 0) -> FakeBookie:
    lost = member(world, ledger_id, index)
    world.kill(lost.bookie_id)
    return lost


def new_bookie(world: World, ledger_id: LedgerId) -> FakeBookie:
    """Return the one bookie that the ledger does not have."""
    (free,) = set(world.bookies) - world.stored(ledger_id).all_bookies()
    return world.bookies[free]


def adds_to(bookie: FakeBookie, ledger_id: LedgerId) -> list[AddRequest]:
    return [r for r in bookie.log if isinstance(r, AddRequest) and r.ledger_id == ledger_id]


@pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)
@pytest.mark.parametrize("entries", [0, 1, 9, 10, 11, 35])
def test_a_lost_bookie_is_replaced_by_one_with_the_same_entries(
    entries: int, protocol: ProtocolVersion
) -> None:
    world = World(4)
    client = world.client(protocol=protocol)
    ledger_id = closed_ledger(world, client, entries)
    packets = dict(member(world, ledger_id, 1).ledgers[ledger_id].entries) if entries else {}
    target = new_bookie(world, ledger_id)
    lose(world, ledger_id)
    Repair(world, client, ledger_id).finish()
    assert check_whole(world, ledger_id, payloads(entries)).is_closed
    # To the last bit: LAC, length and digest as the writer sent them.
    assert (target.ledgers[ledger_id].entries if entries else {}) == packets


def test_s32_copies_are_let_in_where_the_ledger_is_fenced() -> None:
    world = World(4)
    client = world.client()
    writer = open_writer(world, client, 4)
    world.run(client.open_ledger(writer.ledger_id)).close()
    target = new_bookie(world, writer.ledger_id)
    lose(world, writer.ledger_id)
    target.ledgers.clear()
    Repair(world, client, writer.ledger_id).finish()
    assert {add.flags for add in adds_to(target, writer.ledger_id)} == {AddFlag.RECOVERY}
    check_whole(world, writer.ledger_id, payloads(4))


def test_a_new_bookie_gets_what_is_striped_to_its_place_and_no_more() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 9, **STRIPED)
    target = new_bookie(world, ledger_id)
    lose(world, ledger_id, 1)
    Repair(world, client, ledger_id).finish()
    assert sorted(target.entries(ledger_id)) == [0, 1, 3, 4, 6, 7]
    check_whole(world, ledger_id, payloads(9))


def test_two_places_get_two_bookies() -> None:
    world = World(5)
    client = world.client()
    ledger_id = closed_ledger(world, client, 12)
    lose(world, ledger_id, 0)
    lose(world, ledger_id, 2)
    (swap,) = Repair(world, client, ledger_id).finish()
    assert sorted(swap.old) == [0, 2]
    check_whole(world, ledger_id, payloads(12))


def test_each_of_two_new_bookies_gets_what_is_striped_to_its_own_place() -> None:
    world = World(6)
    client = world.client()
    quorums = {"ensemble_size": 4, "write_quorum": 3, "ack_quorum": 2}
    ledger_id = closed_ledger(world, client, 12, **quorums)
    lose(world, ledger_id, 0)
    lose(world, ledger_id, 1)
    (swap,) = Repair(world, client, ledger_id).finish()
    held = {i: world.bookies[bookie].entries(ledger_id) for i, bookie in swap.new.items()}
    assert sorted(held[0]) == [entry_id for entry_id in range(12) if entry_id % 4 != 1]
    assert sorted(held[1]) == [entry_id for entry_id in range(12) if entry_id % 4 != 2]
    check_whole(world, ledger_id, payloads(12))


def test_with_one_spare_bookie_one_of_two_places_is_repaired() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 12)
    for index in (0, 2):
        lose(world, ledger_id, index)
    repair = Repair(world, client, ledger_id)
    (swap,) = repair.finish()
    assert len(swap.new) == 1
    (left,) = world.run(repair.lacks())
    assert len(left.indexes) == 1


def test_the_one_spare_bookie_replaces_the_lost_one_and_not_the_slow_one() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 12)
    slow = member(world, ledger_id, 0)
    slow.policy = when(is_reading, Fate.LOSE)
    lost = lose(world, ledger_id, 2)
    (swap,) = Repair(world, client, ledger_id).finish()
    assert list(swap.old.values()) == [lost.bookie_id]


def test_a_bookie_that_answers_while_the_copy_is_made_keeps_its_place() -> None:
    world = World(5)
    client = world.client()
    ledger_id = closed_ledger(world, client, 12)
    spare = [world.bookies[b] for b in sorted(set(world.bookies) - set(ensemble(world, ledger_id)))]
    slow = member(world, ledger_id, 0)
    slow.policy = lambda request: Fate.LOSE if isinstance(request, ReadRequest) else Fate.SERVE
    lost = lose(world, ledger_id, 2)
    for bookie in spare:
        bookie.policy = when(is_recovery_add, Fate.HOLD_ANSWER)
    running = world.start(Repair(world, client, ledger_id).run())
    while not all(bookie.held for bookie in spare):
        world.settle(0.1)
    slow.policy = lambda _request: Fate.SERVE
    for bookie in spare:
        bookie.policy = lambda _request: Fate.SERVE
        bookie.release()
    (swap,) = running.finish()
    assert list(swap.old.values()) == [lost.bookie_id]
    assert slow.bookie_id in ensemble(world, ledger_id)
    check_whole(world, ledger_id, payloads(12))


def test_a_bookie_that_is_still_silent_after_the_copy_loses_its_place() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 12)
    slow = member(world, ledger_id, 0)
    slow.policy = lambda request: Fate.LOSE if isinstance(request, ReadRequest) else Fate.SERVE
    (swap,) = Repair(world, client, ledger_id).finish()
    assert list(swap.old.values()) == [slow.bookie_id]
    assert slow.bookie_id not in ensemble(world, ledger_id)
    check_whole(world, ledger_id, payloads(12))


def ensemble(world: World, ledger_id: LedgerId) -> tuple[BookieId, ...]:
    return world.stored(ledger_id).ensemble


def test_a_bookie_that_answers_in_time_for_the_last_silent_place_ends_the_repair() -> None:
    world = World(5)
    client = world.client()
    ledger_id = closed_ledger(world, client, 12)
    before = world.stored(ledger_id)
    repair = Repair(world, client, ledger_id)
    slow = member(world, ledger_id, 0)
    slow.policy = lambda request: Fate.LOSE if isinstance(request, ReadRequest) else Fate.SERVE
    (lack,) = world.run(repair.lacks())
    slow.policy = lambda _request: Fate.SERVE
    ledger = world.run(view_ledger(client, ledger_id))
    assert world.run(repair.repairer.repair(ledger, lack)).new == {}
    assert world.stored(ledger_id) == before


def test_a_cluster_of_exactly_the_ensemble_cannot_heal() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 3)
    lose(world, ledger_id)
    with pytest.raises(NotEnoughBookiesError):
        Repair(world, client, ledger_id).finish()


def test_nobody_is_copied_to_who_is_to_be_avoided() -> None:
    world = World(5)
    client = world.client()
    ledger_id = closed_ledger(world, client, 3)
    spare = sorted(set(world.bookies) - set(world.stored(ledger_id).ensemble))
    lose(world, ledger_id)
    (swap,) = Repair(world, client, ledger_id).finish(avoid=spare[:1])
    assert list(swap.new.values()) == spare[1:]
    lose(world, ledger_id)
    with pytest.raises(NotEnoughBookiesError):
        Repair(world, client, ledger_id).finish(avoid=spare)


def test_several_fragments_are_repaired_each_with_its_own_entries() -> None:
    world = World(5)
    client = world.client()
    writer = open_writer(world, client, 5)
    lose(world, writer.ledger_id, 0)
    world.run(writer.add_many(payloads(7, b"later")))
    world.run(writer.close())
    lost = lose(world, writer.ledger_id, 1)
    Repair(world, client, writer.ledger_id).finish()
    metadata = check_whole(world, writer.ledger_id, [*payloads(5), *payloads(7, b"later")])
    assert len(metadata.fragments) == 2
    assert lost.bookie_id not in metadata.all_bookies()


# Order -----------------------------------------------------------------------------------------


def writes_of_ledger(seen: Callable[[], None], ledger_path: str = "L") -> Any:
    def fault(operation: TreeOperation) -> Fault:
        if operation.name == "set" and f"/{ledger_path}" in operation.path:
            seen()
        return Fault.NONE

    return fault


def test_all_copies_are_confirmed_before_the_metadata_changes() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 25)
    target = new_bookie(world, ledger_id)
    lose(world, ledger_id)
    target.policy = when(lambda r: isinstance(r, AddRequest) and r.entry_id == 24, Fate.HOLD_ANSWER)
    swaps: list[int] = []
    world.metadata.faults = writes_of_ledger(lambda: swaps.append(len(target.held)))
    before = world.stored(ledger_id)
    running = world.start(Repair(world, client, ledger_id).run())
    world.settle(1.0)
    assert (swaps, world.stored(ledger_id)) == ([], before)
    target.release()
    running.finish()
    assert swaps == [0]
    check_whole(world, ledger_id, payloads(25))


def test_what_is_striped_to_a_place_is_read_in_bulk() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 30, **STRIPED)
    lose(world, ledger_id, 1)
    repair, told = Repair(world, client, ledger_id), list[str]()
    lacks = world.run(repair.lacks())
    client.cluster.pool.trace(RequestTrace(told.append))
    ledger = world.run(view_ledger(client, ledger_id))
    for lack in lacks:
        world.run(repair.repairer.repair(ledger, lack))
    client.cluster.pool.trace(None)
    reads = [line for line in told if "read_entry" in line]
    assert any(" of " in line for line in reads), told
    assert len(reads) < len(repair.copied)
    check_whole(world, ledger_id, payloads(30))


def test_four_batches_of_a_fragment_are_under_way() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 40)
    target = new_bookie(world, ledger_id)
    lose(world, ledger_id)
    target.policy = when(is_recovery_add, Fate.HOLD)
    repair = Repair(world, client, ledger_id, batch=4)
    running = world.start(repair.run())
    world.settle(1.0)
    assert [add.entry_id for add in adds_to(target, ledger_id)] == list(range(16))
    survivors = [world.bookies[b] for b in world.stored(ledger_id).ensemble if world.bookies[b].up]
    asked = {
        r.entry_id
        for b in survivors
        for r in b.log
        if isinstance(r, ReadRequest) and r.entry_id > 0
    }
    assert asked - {39} == set(range(1, 16))
    while not running.done:
        assert target.release() <= 16
        world.settle()
    check_whole(world, ledger_id, payloads(40))
    assert sorted(copied.entry_id for copied in repair.copied) == list(range(40))


def test_a_batch_that_waits_does_not_stop_the_ones_after_it() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 40)
    target = new_bookie(world, ledger_id)
    lose(world, ledger_id)
    target.policy = when(lambda r: isinstance(r, AddRequest) and r.entry_id == 2, Fate.HOLD)
    repair = Repair(world, client, ledger_id, batch=4)
    before = world.stored(ledger_id)
    running = world.start(repair.run())
    world.settle(1.0)
    assert sorted(copied.entry_id for copied in repair.copied) == list(range(4, 40))
    assert world.stored(ledger_id) == before
    target.release()
    running.finish()
    check_whole(world, ledger_id, payloads(40))


def test_batches_hold_no_more_than_8_mib_by_the_size_that_entries_have_lately() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 40)
    target = new_bookie(world, ledger_id)
    lose(world, ledger_id)
    target.policy = when(is_recovery_add, Fate.HOLD)
    repair = Repair(world, client, ledger_id, batch=10)
    for _ in range(100):
        repair.repairer.rate.copied(3 << 20)
    running = world.start(repair.run())
    world.settle(1.0)
    assert len(adds_to(target, ledger_id)) == 4 * 2
    while not running.done:
        target.release()
        world.settle()
    check_whole(world, ledger_id, payloads(40))


def test_the_rate_is_kept_by_the_size_that_entries_have_lately() -> None:
    world = World(4)
    client = world.client()
    writer = open_writer(world, client)
    world.run(writer.add_many([bytes(964)] * 200))
    world.run(writer.close())
    lose(world, writer.ledger_id)
    Repair(world, client, writer.ledger_id, bytes_per_s=100_000).finish()
    # 200 entries of 1000 bytes at 100 kB/s, and the first ones taken for 1024 bytes.
    assert 1.9 < world.clock.seconds() < 2.2


# Failures --------------------------------------------------------------------------------------


def test_the_fragment_that_grows_is_not_copied() -> None:
    """S27: the writer may still add to the old bookie."""
    world = World(4)
    client = world.client()
    writer = open_writer(world, client, 4)
    target = new_bookie(world, writer.ledger_id)
    lose(world, writer.ledger_id)
    with pytest.raises(UnclosedFragmentError):
        Repair(world, client, writer.ledger_id).finish()
    assert target.log == []


def test_an_entry_that_nobody_gives_is_named_and_nothing_is_swapped() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 9)
    before = world.stored(ledger_id)
    lose(world, ledger_id)
    for bookie in world.bookies.values():
        bookie.policy = when(is_reading(7), Fate.LOSE)
    with pytest.raises(UnreadableEntryError) as caught:
        Repair(world, client, ledger_id).finish()
    assert caught.value.entry_id == 7
    assert world.stored(ledger_id) == before


def test_entries_that_could_not_be_read_can_be_tried_alone() -> None:
    world = World(3)
    client = world.client()
    ledger_id = closed_ledger(world, client, 9)
    repair = Repair(world, client, ledger_id)
    ledger = world.run(view_ledger(client, ledger_id))
    world.run(repair.repairer.try_reading(ledger, [EntryId(2), EntryId(7)]))
    for bookie in world.bookies.values():
        bookie.policy = when(is_reading(7), Fate.LOSE)
    with pytest.raises(UnreadableEntryError):
        world.run(repair.repairer.try_reading(ledger, [EntryId(2), EntryId(7)]))


@pytest.mark.parametrize(
    ("ruling", "error"),
    [
        (Fate.LOSE, RequestTimeoutError),
        (AddResponse(ReturnCode.EREADONLY, LedgerId(0), EntryId(0)), ReadOnlyBookieClientError),
    ],
)
def test_a_copy_that_is_not_confirmed_ends_the_repair_of_the_fragment(
    ruling: Any, error: type[Exception]
) -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 12)
    before = world.stored(ledger_id)
    target = new_bookie(world, ledger_id)
    lose(world, ledger_id)

    def policy(request: Request) -> Any:
        if not isinstance(request, AddRequest) or request.entry_id != 3:
            return Fate.SERVE
        return attrs.evolve(ruling, entry_id=3) if isinstance(ruling, AddResponse) else ruling

    target.policy = policy
    with pytest.raises(error):
        Repair(world, client, ledger_id).finish()
    assert world.stored(ledger_id) == before


def test_a_corrupt_copy_is_passed_over_for_a_sound_one() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 6)
    lose(world, ledger_id, 0)
    entries = member(world, ledger_id, 1).ledgers[ledger_id].entries
    entries[3] = entries[3][:-1] + b"X"
    Repair(world, client, ledger_id).finish()
    assert new_entries(world, ledger_id, 0) == payloads(6)


def new_entries(world: World, ledger_id: LedgerId, index: int) -> list[bytes]:
    return list(member(world, ledger_id, index).entries(ledger_id).values())


def test_a_swap_whose_reply_is_lost_is_found_in_place() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 6)
    lose(world, ledger_id)
    lost: list[TreeOperation] = []

    def fault(operation: TreeOperation) -> Fault:
        if operation.name == "set" and not lost:
            lost.append(operation)
            return Fault.ANSWER_LOST
        return Fault.NONE

    world.metadata.faults = fault
    Repair(world, client, ledger_id).finish()
    assert lost
    check_whole(world, ledger_id, payloads(6))


def test_a_ledger_that_is_deleted_meanwhile_is_said_to_be_gone() -> None:
    """S36."""
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 6)
    target = new_bookie(world, ledger_id)
    lose(world, ledger_id)
    target.policy = when(is_recovery_add, Fate.HOLD_ANSWER)
    running = world.start(Repair(world, client, ledger_id).run())
    world.settle(1.0)
    world.run(client.delete_ledger(ledger_id))
    target.release()
    with pytest.raises(NoSuchLedgerError):
        running.finish()


def test_s28_two_repairs_at_once_never_put_one_bookie_into_two_places() -> None:
    """Both copy to the only spare bookie; the later swap is refused."""
    world = World(4)
    client, other = world.client(), world.client(seed=1)
    ledger_id = closed_ledger(world, client, 6)
    target = new_bookie(world, ledger_id)
    gone = [member(world, ledger_id, index).bookie_id for index in (0, 1)]
    target.policy = when(is_recovery_add, Fate.HOLD_ANSWER)

    async def replace(whose: Client, index: int) -> Swap:
        repair = Repair(world, whose, ledger_id)
        ledger = await view_ledger(whose, ledger_id)
        (fragment,) = [lack.fragment for lack in await lacking(repair, gone[index])]
        return await repair.repairer.repair(ledger, MissingPlaces(fragment, (index,)))

    async def lacking(repair: Repair, bookie: BookieId) -> tuple[MissingPlaces, ...]:
        checker = LedgerChecker(client=repair.client, rng=random.Random(0))
        ledger = await view_ledger(repair.client, ledger_id)
        return await checker.check(ledger, set(world.bookies) - {bookie})

    both = [world.start(replace(client, 0)), world.start(replace(other, 1))]
    world.settle(0.5)
    target.release()
    world.settle(1.0)
    errors = [running.result for running in both if isinstance(running.result, Exception)]
    assert [type(error) for error in errors] == [FragmentChangedError]
    metadata = world.stored(ledger_id)
    assert metadata.ensemble.count(target.bookie_id) == 1
    check_whole(world, ledger_id, payloads(6))


def test_s18_a_writer_that_changes_its_ensemble_meanwhile_keeps_its_change() -> None:
    world = World(6)
    client = world.client()
    writer = open_writer(world, client, 5)
    ledger_id = writer.ledger_id
    lose(world, ledger_id, 0)
    world.run(writer.add_many(payloads(3, b"second")))
    old = world.stored(ledger_id)
    (joined,) = set(old.ensemble) - set(old.fragments[0].ensemble)
    # The older fragment is being repaired, while the writer changes the last one.
    spare = [world.bookies[b] for b in sorted(set(world.bookies) - old.all_bookies())]
    for bookie in spare:
        bookie.policy = when(is_recovery_add, Fate.HOLD_ANSWER)
    repair = world.start(Repair(world, world.client(seed=3), ledger_id).run(avoid={joined}))
    world.settle(0.5)
    world.kill(joined)
    world.run(writer.add_many(payloads(3, b"third")))
    for bookie in spare:
        bookie.release()
    repair.finish()
    world.run(writer.close())
    metadata = world.stored(ledger_id)
    assert [f.first_entry_id for f in metadata.fragments] == [0, 5, 8]
    expected = [*payloads(5), *payloads(3, b"second"), *payloads(3, b"third")]
    world.check_copies(ledger_id, expected)
    assert set(metadata.fragments[0].ensemble) <= {b for b in world.bookies if world.bookies[b].up}


def test_after_a_cancelled_repair_nothing_is_swapped_and_another_one_succeeds() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 30)
    before = world.stored(ledger_id)
    target = new_bookie(world, ledger_id)
    lose(world, ledger_id)
    target.policy = when(is_recovery_add, Fate.HOLD)
    running = world.start(Repair(world, client, ledger_id).run())
    world.settle(0.5)
    running.deferred.cancel()
    world.settle(0.5)
    assert running.done
    assert world.stored(ledger_id) == before
    target.policy = lambda _request: Fate.SERVE
    Repair(world, client, ledger_id).finish()
    check_whole(world, ledger_id, payloads(30))
