"""Moving ledgers off bookies by hand: what is moved, what is refused, what a dry run says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from bkclient.admin.cookies import CookieNeededError, delete_cookies, ledgers_that_need_cookies
from bkclient.client import Client
from bkclient.errors import (
    IllegalOperationError,
    IncorrectParameterError,
    LedgerRecoveryError,
    MetadataStoreError,
    NotEnoughBookiesError,
)
from bkclient.ledger.recovery_run import mark
from bkclient.metadata import zk_paths
from bkclient.metadata.versions_and_watches import NEW
from bkclient.replication.fragment_copy import CopiedEntry
from bkclient.replication.recover_bookies import (
    LedgerMove,
    LedgerOutcome,
    RecoverOptions,
    RecoverReport,
    ledgers_on_bookies,
    recover_bookies,
)
from tests.bkclient.replication_world import (
    STRIPED,
    TRIPLE,
    check_whole,
    closed_ledger,
    has_cookie,
    member,
    open_writer,
    payloads,
    store_of,
)
from tests.bkclient.worlds import Fate, World, is_fence, is_recovery_add, when
from tests.support.memory_zookeeper import Fault, TreeOperation
from wire.codes import LedgerState
from wire.ids import BookieId, LedgerId

SINGLE: dict[str, Any] = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}


class Recover:
    """One run of the tool, and what it reported."""

    def __init__(self, world: World, bookies: Collection[str], **options: Any) -> None:
        self.world = world
        self.moves: list[LedgerMove] = []
        self.copied: list[CopiedEntry] = []
        self.client: Client = world.client(seed=9)
        self.running = world.start(
            recover_bookies(
                self.client,
                [BookieId(name) for name in bookies],
                RecoverOptions(**options),
                self.moves.append,
                self.copied.append,
            )
        )

    def finish(self) -> RecoverReport:
        return self.running.finish(1000)

    @property
    def outcomes(self) -> dict[LedgerId, LedgerOutcome]:
        return {move.ledger_id: move.outcome for move in self.moves}


def write_cookie(world: World, name: str) -> None:
    world.run(store_of(world).write_cookie(BookieId(name), b"4\ncookie", NEW))


def test_all_ledgers_of_dead_bookies_are_moved_and_no_other_is_touched() -> None:
    world = World(7)
    client = world.client()
    ledgers = {closed_ledger(world, client, n, **kind): n for n in (0, 7) for kind in ({}, STRIPED)}
    apart = [i for i in ledgers if world.stored(i).all_bookies().isdisjoint({"b1", "b2"})]
    before = {ledger_id: world.stored(ledger_id) for ledger_id in apart}
    for name in ("b1", "b2"):
        world.kill(name)
    recover = Recover(world, ("b1", "b2"))
    report = recover.finish()
    for ledger_id, entries in ledgers.items():
        check_whole(world, ledger_id, payloads(entries))
    assert report.moved == len(ledgers) - len(apart)
    assert set(recover.outcomes.values()) == {LedgerOutcome.MOVED}
    assert {ledger_id: world.stored(ledger_id) for ledger_id in apart} == before
    assert report.copied_entries == sum(one.copies for one in recover.copied)


def test_a_bookie_that_runs_is_drained_and_gets_nothing_back() -> None:
    world = World(4)
    client = world.client()
    ledgers = [closed_ledger(world, client, 4, **SINGLE) for _ in range(6)]
    Recover(world, ["b1"]).finish()
    for ledger_id in ledgers:
        assert "b1" not in check_whole(world, ledger_id, payloads(4)).all_bookies()


def test_one_ledger_can_be_moved_alone() -> None:
    world = World(4)
    client = world.client()
    one, other = closed_ledger(world, client), closed_ledger(world, client)
    lost = min(set(world.stored(one).ensemble) & set(world.stored(other).ensemble))
    world.kill(lost)
    Recover(world, [lost], ledger_ids=[one]).finish()
    assert lost not in world.stored(one).all_bookies()
    assert lost in world.stored(other).all_bookies()


def test_a_ledger_that_grows_on_the_bookie_is_recovered_first() -> None:
    world = World(4)
    writer = open_writer(world, world.client(), 5)
    lost = member(world, writer.ledger_id).bookie_id
    world.kill(lost)
    recover = Recover(world, [lost])
    recover.finish()
    assert recover.moves[0].fenced
    assert check_whole(world, writer.ledger_id, payloads(5)).is_closed


def test_a_ledger_that_grows_elsewhere_is_moved_without_fencing_its_writer() -> None:
    world = World(5)
    writer = open_writer(world, world.client(), 5)
    lost = member(world, writer.ledger_id).bookie_id
    world.kill(lost)
    world.run(writer.add_many(payloads(2, b"later")))
    recover = Recover(world, [lost])
    recover.finish()
    assert not recover.moves[0].fenced
    assert not any(is_fence(r) for bookie in world.bookies.values() for r in bookie.log)
    assert lost not in world.stored(writer.ledger_id).all_bookies()
    assert world.run(writer.add(b"still mine")) == 7


def test_open_ledgers_can_be_skipped_but_not_those_in_recovery() -> None:
    world = World(4)
    client = world.client()
    writer, half = open_writer(world, client, 3), open_writer(world, client, 3)
    world.kill("b1")
    local = world.run(client.local_metadata(half.ledger_id))
    world.run(mark(client.cluster, local, half.ledger_id))
    affected = [i for i in (writer.ledger_id, half.ledger_id) if "b1" in world.stored(i).ensemble]
    recover = Recover(world, ["b1"], skip_open=True)
    report = recover.finish()
    expected = {
        writer.ledger_id: LedgerOutcome.SKIPPED_OPEN,
        half.ledger_id: LedgerOutcome.MOVED,
    }
    assert recover.outcomes == {ledger_id: expected[ledger_id] for ledger_id in affected}
    assert world.stored(writer.ledger_id).state is LedgerState.OPEN
    assert len(report.left) == (writer.ledger_id in affected)


def test_a_dry_run_says_what_would_be_done_and_does_nothing() -> None:
    world = World(5)
    client = world.client()
    writer, closed = open_writer(world, client, 3), closed_ledger(world, client, 4)
    lost = member(world, closed).bookie_id
    world.kill(lost)
    before = {i: world.stored(i) for i in (writer.ledger_id, closed)}
    writes: list[TreeOperation] = []

    def fault(operation: TreeOperation) -> Fault:
        if operation.writes:
            writes.append(operation)
        return Fault.NONE

    world.metadata.faults = fault
    recover = Recover(world, [lost], dry_run=True)
    report = recover.finish()
    assert writes == []
    assert {i: world.stored(i) for i in before} == before
    assert not any(is_fence(r) for bookie in world.bookies.values() for r in bookie.log)
    (move,) = [move for move in recover.moves if move.ledger_id == closed]
    (fragment,) = move.fragments
    assert (fragment.first, fragment.last, fragment.old) == (0, 3, before[closed].ensemble)
    assert fragment.new is not None
    assert lost not in fragment.new
    assert not move.fenced
    planned = {move.ledger_id: move.fenced for move in report.left}
    assert planned[closed] is False
    if lost in before[writer.ledger_id].ensemble:
        assert planned[writer.ledger_id] is True


def test_a_plan_says_how_much_is_copied_and_what_nobody_has() -> None:
    world = World(5)
    client = world.client()
    striped, single = (
        closed_ledger(world, client, 9, **STRIPED),
        closed_ledger(world, client, 4, **SINGLE),
    )
    lost = member(world, single).bookie_id
    gone = {lost, member(world, striped, 1).bookie_id}
    world.kill(lost)
    recover = Recover(world, gone, dry_run=True)
    recover.finish()
    moves = {move.ledger_id: move for move in recover.moves}
    assert moves[single].is_unrecoverable
    assert (moves[single].copies, moves[single].size_bytes) == (4, 4 * len(b"entry 0"))
    assert not moves[striped].is_unrecoverable
    places = len(gone & world.stored(striped).all_bookies())
    assert moves[striped].copies == 6 * places
    assert moves[striped].size_bytes == 6 * places * len(b"entry 0")


def test_a_plan_knows_no_size_of_a_ledger_that_is_not_closed() -> None:
    world = World(5)
    writer = open_writer(world, world.client(), 5)
    recover = Recover(world, [world.stored(writer.ledger_id).ensemble[0]], dry_run=True)
    recover.finish()
    (move,) = recover.moves
    assert move.size_bytes is None
    assert move.fenced


def test_all_goes_to_one_bookie_where_that_is_wanted() -> None:
    world = World(6)
    client = world.client()
    ledgers = [closed_ledger(world, client, 4, **SINGLE) for _ in range(12)]
    before = {ledger_id: world.stored(ledger_id).ensemble for ledger_id in ledgers}
    assert ("b1",) in before.values()
    Recover(world, ["b1"], to=BookieId("b6"), at_once=3).finish()
    for ledger_id, ensemble in before.items():
        now = check_whole(world, ledger_id, payloads(4)).ensemble
        assert now == (("b6",) if ensemble == ("b1",) else ensemble)


def test_a_ledger_that_is_on_the_one_bookie_already_fails() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 4)
    old, other, _ = world.stored(ledger_id).ensemble
    recover = Recover(world, [old], to=other, skip_unrecoverable=True)
    assert [move.ledger_id for move in recover.finish().left] == [ledger_id]
    with pytest.raises(IncorrectParameterError):
        Recover(world, [old], to=old).finish()


def test_several_ledgers_are_under_way_at_a_time() -> None:
    world = World(5)
    client = world.client()
    ledgers = [closed_ledger(world, client, 3) for _ in range(8)]
    world.kill("b1")
    listed = [i for i in ledgers if "b1" in world.stored(i).all_bookies()]
    held: set[str] = set()
    most = 0

    def count(operation: TreeOperation) -> Fault:
        nonlocal most
        if operation.path.startswith(f"{zk_paths.LOCKS}/") and operation.writes:
            (held.discard if operation.name == "delete" else held.add)(operation.path)
            most = max(most, len(held))
        return Fault.NONE

    world.metadata.faults = count
    assert Recover(world, ["b1"], at_once=3).finish().moved == len(listed)
    assert (most, held) == (3, set())
    for ledger_id in ledgers:
        check_whole(world, ledger_id, payloads(3))


def test_a_bookie_is_emptied_around_its_writers() -> None:
    world = World(5)
    client = world.client()
    writer, closed = open_writer(world, client, 5), closed_ledger(world, client, 4)
    leaving = (
        set(world.stored(writer.ledger_id).ensemble) & set(world.stored(closed).ensemble)
    ).pop()
    world.turn_read_only(leaving)
    recover = Recover(world, [leaving], spare_writers=True)
    recover.finish()
    assert recover.outcomes == {
        writer.ledger_id: LedgerOutcome.SKIPPED_OPEN, closed: LedgerOutcome.MOVED,
    }  # fmt: skip
    assert not world.stored(writer.ledger_id).is_closed
    world.run(writer.add(b"not fenced"))
    world.settle()
    assert leaving not in world.stored(writer.ledger_id).ensemble
    again = Recover(world, [leaving], spare_writers=True)
    again.finish()
    assert leaving not in world.stored(writer.ledger_id).all_bookies()
    world.run(writer.close())


def test_a_dry_run_says_where_nobody_can_take_over() -> None:
    world = World(3)
    closed_ledger(world, world.client())
    world.kill("b1")
    recover = Recover(world, ["b1"], dry_run=True)
    recover.finish()
    assert recover.moves[0].fragments[0].new is None


def test_a_ledger_that_fails_ends_it_unless_it_may_be_skipped() -> None:
    world = World(5)
    client = world.client()
    bad, good = closed_ledger(world, client, 3, **SINGLE), closed_ledger(world, client, 4)
    lost = member(world, bad).bookie_id
    world.kill(lost)
    gone = [lost, *world.stored(good).ensemble[:1]]
    with pytest.raises(LedgerRecoveryError, match=f"ledger {bad}"):
        Recover(world, gone).finish()
    recover = Recover(world, gone, skip_unrecoverable=True)
    report = recover.finish()
    assert recover.outcomes == {bad: LedgerOutcome.FAILED, good: LedgerOutcome.MOVED}
    assert [move.ledger_id for move in report.left] == [bad]


def test_a_ledger_with_unreadable_metadata_is_left_and_the_others_are_moved() -> None:
    world = World(5)
    client = world.client()
    bad, good = closed_ledger(world, client), closed_ledger(world, client)
    lost = member(world, good).bookie_id
    world.kill(lost)
    world.metadata.set(zk_paths.LAYOUTS["hierarchical"].path_of(bad), b"no metadata")
    recover = Recover(world, [lost])
    report = recover.finish()
    assert recover.outcomes == {bad: LedgerOutcome.FAILED, good: LedgerOutcome.MOVED}
    assert [move.ledger_id for move in report.left] == [bad]


def test_without_a_bookie_to_copy_to_it_fails() -> None:
    world = World(3)
    closed_ledger(world, world.client())
    world.kill("b1")
    with pytest.raises(LedgerRecoveryError) as caught:
        Recover(world, ["b1"]).finish()
    assert isinstance(caught.value.__cause__, NotEnoughBookiesError)


def test_s36_a_ledger_that_is_deleted_meanwhile_counts_as_done() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 4)
    lost = member(world, ledger_id).bookie_id
    world.kill(lost)
    for bookie in world.bookies.values():
        bookie.policy = when(is_recovery_add, Fate.HOLD_ANSWER)
    recover = Recover(world, [lost])
    world.settle(1)
    world.run(client.delete_ledger(ledger_id))
    for bookie in world.bookies.values():
        bookie.release()
    recover.finish()
    assert recover.outcomes == {ledger_id: LedgerOutcome.DELETED}


def test_s29_copies_that_were_dropped_before_the_swap_are_made_again() -> None:
    world = World(6)
    ledger_id = closed_ledger(world, world.client(), 6)
    lost = member(world, ledger_id).bookie_id
    world.kill(lost)
    dropped: list[TreeOperation] = []

    def fault(operation: TreeOperation) -> Fault:
        if operation.name == "set" and "/L" in operation.path and not dropped:
            dropped.append(operation)
            for name in set(world.bookies) - set(world.stored(ledger_id).ensemble):
                world.bookies[name].ledgers.clear()
        return Fault.NONE

    world.metadata.faults = fault
    Recover(world, [lost]).finish()
    assert dropped
    check_whole(world, ledger_id, payloads(6))


def test_a_ledgers_lock_is_held_while_it_is_moved_and_released_then() -> None:
    """It keeps bookies from collecting the copies as over-replicated."""
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 6)
    lost = member(world, ledger_id).bookie_id
    world.kill(lost)
    for bookie in world.bookies.values():
        bookie.policy = when(is_recovery_add, Fate.HOLD_ANSWER)
    recover = Recover(world, [lost])
    world.settle(1)
    other = store_of(world)
    assert not world.run(other.acquire_lock(ledger_id))
    for bookie in world.bookies.values():
        bookie.release()
    recover.finish()
    assert world.run(other.acquire_lock(ledger_id))


def test_a_ledgers_lock_is_released_when_its_new_ensemble_cannot_be_stored() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 6)
    lost = member(world, ledger_id).bookie_id
    world.kill(lost)

    def fault(operation: TreeOperation) -> Fault:
        is_lost = operation.name == "set" and "/L" in operation.path
        return Fault.REQUEST_LOST if is_lost else Fault.NONE

    world.metadata.faults = fault
    with pytest.raises(MetadataStoreError):
        Recover(world, [lost]).finish()
    assert world.run(store_of(world).acquire_lock(ledger_id))


def test_a_ledger_that_a_worker_has_locked_is_moved_all_the_same() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 6)
    other = store_of(world)
    assert world.run(other.acquire_lock(ledger_id))
    lost = member(world, ledger_id).bookie_id
    world.kill(lost)
    Recover(world, [lost]).finish()
    check_whole(world, ledger_id, payloads(6))
    assert world.run(other.lock_owner(ledger_id)) is not None


def test_the_rate_of_the_options_wins_over_the_clients() -> None:
    world = World(4)
    client = world.client()
    writer = open_writer(world, client)
    world.run(writer.add_many([bytes(964)] * 100))
    world.run(writer.close())
    lost = member(world, writer.ledger_id).bookie_id
    world.kill(lost)
    Recover(world, [lost], bytes_per_s=50_000).finish()
    assert 1.8 < world.clock.seconds() < 2.3


def test_ledgers_under_a_rate_end_one_after_another_and_stay_moved() -> None:
    world = World(4)
    client = world.client()
    ledgers = []
    for _ in range(4):
        writer = open_writer(world, client, **TRIPLE)
        world.run(writer.add_many([bytes(964)] * 100))
        world.run(writer.close())
        ledgers.append(writer.ledger_id)
    lost = min(set.intersection(*(set(world.stored(one).ensemble) for one in ledgers)))
    began_s = world.clock.seconds()
    recover = Recover(world, [lost], bytes_per_s=50_000, at_once=4)
    ended_s: dict[LedgerId, float] = {}
    while not recover.running.done:
        world.settle(0.1)
        for move in recover.moves:
            ended_s.setdefault(move.ledger_id, world.clock.seconds() - began_s)
    assert list(ended_s) == ledgers
    for number, took_s in enumerate(ended_s.values(), 1):
        assert took_s == pytest.approx(2 * number, abs=1), "two seconds each, not eight"


def test_after_an_interruption_it_goes_on_with_what_is_left() -> None:
    world = World(5)
    client = world.client()
    ledgers = [closed_ledger(world, client, 12) for _ in range(5)]
    world.kill("b1")
    last = max(i for i in ledgers if "b1" in world.stored(i).all_bookies())
    hold = when(lambda r: is_recovery_add(r) and r.ledger_id == last, Fate.HOLD)
    for bookie in world.bookies.values():
        bookie.policy = hold
    recover = Recover(world, ["b1"])
    world.settle(1)
    recover.running.deferred.cancel()
    world.settle(1)
    assert recover.running.done
    moved = set(recover.outcomes)
    for bookie in world.bookies.values():
        bookie.policy = lambda _request: Fate.SERVE
    again = Recover(world, ["b1"])
    again.finish()
    assert set(again.outcomes) == {last}
    assert moved.isdisjoint(again.outcomes)
    for ledger_id in ledgers:
        check_whole(world, ledger_id, payloads(12))


# Asking ----------------------------------------------------------------------------------------


def test_a_query_lists_ledgers_and_their_fragments() -> None:
    world = World(5)
    client = world.client()
    writer = open_writer(world, client, 5)
    first = member(world, writer.ledger_id).bookie_id
    world.kill(first)
    world.run(writer.add(b"moves on"))
    closed_ledger(world, client, 2)

    async def query(bookie: BookieId) -> dict[LedgerId, tuple[int, ...]]:
        found = ledgers_on_bookies(client, [bookie])
        return {one.ledger_id: one.fragments async for one in found}

    assert world.run(query(first)) == {writer.ledger_id: (0,)}
    both = set(world.stored(writer.ledger_id).fragments[0].ensemble) - {first}
    assert world.run(query(min(both)))[writer.ledger_id] == (0, 5)


# Cookies ---------------------------------------------------------------------------------------


def test_the_cookie_goes_once_all_is_moved() -> None:
    world = World(5)
    client = world.client()
    closed_ledger(world, client)
    write_cookie(world, "b1")
    world.kill("b1")
    report = Recover(world, ["b1"], delete_cookies=True).finish()
    assert report.cookies_deleted == ("b1",)
    assert not has_cookie(world, "b1")


def test_a_cookie_that_is_not_there_is_no_error() -> None:
    world = World(5)
    world.kill("b1")
    assert Recover(world, ["b1"], delete_cookies=True).finish().cookies_deleted == ()


def test_the_cookie_of_a_running_bookie_stays_and_nothing_is_begun() -> None:
    world = World(5)
    ledger_id = closed_ledger(world, world.client())
    before = world.stored(ledger_id)
    write_cookie(world, "b1")
    with pytest.raises(IllegalOperationError, match="b1 is running"):
        Recover(world, ["b1"], delete_cookies=True).finish()
    assert world.stored(ledger_id) == before
    assert has_cookie(world, "b1")


def test_the_cookie_stays_where_ledgers_were_left() -> None:
    world = World(4)
    client = world.client()
    writer = open_writer(world, client, 3)
    lost = member(world, writer.ledger_id).bookie_id
    write_cookie(world, lost)
    world.kill(lost)
    report = Recover(world, [lost], delete_cookies=True, skip_open=True).finish()
    assert [one.ledger_id for one in report.left] == [writer.ledger_id]
    assert report.cookies_deleted == ()
    assert has_cookie(world, lost)


def test_s10_a_cookie_stays_while_a_ledger_that_is_not_closed_lists_its_bookie() -> None:
    """In any fragment: as a new bookie under its old name it would know of no fence."""
    world = World(5)
    client = world.client()
    writer = open_writer(world, client, 3)
    lost = member(world, writer.ledger_id).bookie_id
    write_cookie(world, lost)
    world.kill(lost)
    world.run(writer.add(b"moves on"))
    assert lost not in world.stored(writer.ledger_id).ensemble
    assert world.run(ledgers_that_need_cookies(client, [lost])) == (writer.ledger_id,)
    with pytest.raises(CookieNeededError) as caught:
        world.run(delete_cookies(client, [lost]))
    assert caught.value.ledgers == (writer.ledger_id,)
    assert has_cookie(world, lost)
    world.run(writer.close())
    assert world.run(delete_cookies(client, [lost])) == (lost,)


@pytest.mark.parametrize("options", [{"dry_run": True}, {"ledger_ids": [3]}])
def test_cookies_do_not_go_with_less_than_everything(options: dict[str, Any]) -> None:
    world = World(3)
    with pytest.raises(IncorrectParameterError):
        Recover(world, ["b1"], delete_cookies=True, **options).finish()


def test_somebody_has_to_be_named() -> None:
    with pytest.raises(IncorrectParameterError):
        Recover(World(3), []).finish()
