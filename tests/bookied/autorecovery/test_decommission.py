"""Retiring a bookie while auditors and workers run; they are what moves its ledgers."""

from __future__ import annotations

from typing import Any

import pytest

from bkclient.admin.cookies import CookieNeededError
from bkclient.client import Client
from bkclient.errors import IllegalOperationError, MetadataSerializationError
from bkclient.metadata import zk_paths
from bkclient.metadata.versions_and_watches import NEW
from bkclient.replication.decommission import (
    LOOK_S_MAX,
    DecommissionProgress,
    DecommissionReport,
    cancel_decommission,
    decommission,
)
from bkclient.replication.recover_bookies import recover_bookies
from tests.bkclient.replication_world import (
    STRIPED,
    check_whole,
    closed_ledger,
    has_cookie,
    mark,
    marks,
    member,
    open_writer,
    payloads,
    store_of,
)
from tests.bkclient.worlds import Fate, World
from tests.bookied.autorecovery.workers import RunningAutoRecovery, RunningWorker
from wire.codes import LedgerState
from wire.ids import BookieId


class Decommission:
    """One run, and what it said."""

    def __init__(self, world: World, bookie: str) -> None:
        self.world = world
        self.progress: list[DecommissionProgress] = []
        self.client: Client = world.client(seed=9)
        self.running = world.start(
            decommission(self.client, BookieId(bookie), self.progress.append)
        )

    def finish(self, limit_s: float = 1000) -> DecommissionReport:
        return self.running.finish(limit_s)

    @property
    def steps(self) -> list[str]:
        return list(dict.fromkeys(one.step for one in self.progress))


def retire(world: World, bookie: str) -> None:
    """Give a bookie its cookie, and stop it."""
    world.run(store_of(world).write_cookie(BookieId(bookie), b"4\ncookie", NEW))
    world.kill(bookie)
    world.settle()


def test_a_bookie_that_was_stopped_is_emptied_and_its_cookie_goes_last() -> None:
    world = World(6)
    client = world.client()
    ledgers = {closed_ledger(world, client, n, **kind): n for n in (0, 8) for kind in ({}, STRIPED)}
    writer = open_writer(world, client, 4)
    listed = [i for i in (*ledgers, writer.ledger_id) if "b1" in world.stored(i).all_bookies()]
    RunningAutoRecovery(world, lost_bookie_recovery_delay_s=100_000)
    retire(world, "b1")
    run = Decommission(world, "b1")
    world.settle(0.1)
    assert has_cookie(world, "b1")
    report = run.finish()
    assert report == DecommissionReport(BookieId("b1"), len(listed), cookie_deleted=True)
    for ledger_id, entries in ledgers.items():
        assert "b1" not in check_whole(world, ledger_id, payloads(entries)).all_bookies()
    assert not has_cookie(world, "b1")
    assert run.steps[0] == "marking"
    assert run.steps[-2:] == ["deleting the cookie", "done"]
    assert {one.auditor for one in run.progress} == {"auditor"}


def test_it_needs_no_auditor_only_workers() -> None:
    world = World(5)
    ledger_id = closed_ledger(world, world.client(), 4)
    retire(world, member(world, ledger_id).bookie_id)
    lost = world.stored(ledger_id).ensemble[0]
    RunningWorker(world)
    run = Decommission(world, lost)
    run.finish()
    check_whole(world, ledger_id, payloads(4))
    assert {one.auditor for one in run.progress} == {None}


def test_a_mark_that_cannot_be_read_is_told_and_hides_no_other() -> None:
    world = World(6)
    client = world.client()
    ledgers = [closed_ledger(world, client, 4, **STRIPED) for _ in range(8)]
    held = [one for one in ledgers if "b1" in world.stored(one).all_bookies()]
    spared = next(one for one in ledgers if one not in held)
    retire(world, "b1")
    for ledger_id in (held[0], spared):
        mark(world, ledger_id, "b1")
        world.metadata.set(zk_paths.mark(ledger_id), b"\xffnonsense")
    run = Decommission(world, "b1")
    world.settle(100)
    assert not run.running.done
    told = {one: why for step in run.progress for one, why in step.damaged.items()}
    assert list(told) == [held[0]]
    assert f"the mark of ledger {held[0]}: " in told[held[0]]
    world.run(recover_bookies(client, [BookieId("b1")]))
    assert run.finish().ledgers == len(held)
    told = {one: why for step in run.progress for one, why in step.damaged.items()}
    assert set(told) == {held[0], spared}
    assert not has_cookie(world, "b1")


def test_a_worker_mends_what_a_mark_that_cannot_be_read_is_of() -> None:
    world = World(5)
    ledger_id = closed_ledger(world, world.client(), 4)
    retire(world, member(world, ledger_id).bookie_id)
    lost = world.stored(ledger_id).ensemble[0]
    mark(world, ledger_id, lost)
    world.metadata.set(zk_paths.mark(ledger_id), b"\xffnonsense")
    RunningWorker(world)
    Decommission(world, lost).finish()
    check_whole(world, ledger_id, payloads(4))
    assert marks(world) == {}


def test_a_bookie_that_runs_is_refused() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client())
    with pytest.raises(IllegalOperationError, match="b1 is running"):
        Decommission(world, "b1").finish()
    world.turn_read_only("b1")
    with pytest.raises(IllegalOperationError, match="b1 is running"):
        Decommission(world, "b1").finish()
    assert marks(world) == {}
    assert world.stored(ledger_id).is_closed


def test_while_re_replication_is_disabled_it_is_refused() -> None:
    world = World(4)
    retire(world, "b1")
    world.run(store_of(world).set_replication_enabled(enabled=False))
    with pytest.raises(IllegalOperationError, match="disabled"):
        Decommission(world, "b1").finish()
    assert has_cookie(world, "b1")


@pytest.mark.parametrize("change", ["bookie starts", "disabled"])
def test_it_gives_up_when_what_it_needs_changes_meanwhile(change: str) -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client())
    lost = member(world, ledger_id).bookie_id
    retire(world, lost)
    run = Decommission(world, lost)
    world.settle(1)
    if change == "disabled":
        world.run(store_of(world).set_replication_enabled(enabled=False))
    else:
        world.restart(lost)
    with pytest.raises(IllegalOperationError):
        run.finish()
    assert has_cookie(world, lost)


def test_it_waits_as_long_as_it_takes_and_says_how_many_are_left() -> None:
    world = World(3)
    client = world.client()
    ledgers = [closed_ledger(world, client, 2) for _ in range(3)]
    retire(world, "b1")
    RunningWorker(world)
    run = Decommission(world, "b1")
    world.settle(2000)
    assert not run.running.done
    assert {one.ledgers_left for one in run.progress if one.step == "moving"} == {3}
    world.add_bookie("b4")
    run.finish(2000)
    for ledger_id in ledgers:
        check_whole(world, ledger_id, payloads(2))


def test_looks_are_three_seconds_a_ledger_apart_up_to_a_limit() -> None:
    world = World(3)
    client = world.client()
    for _ in range(2):
        closed_ledger(world, client, 1)
    retire(world, "b1")
    run = Decommission(world, "b1")
    world.settle(20)
    assert len(run.progress) == 1 + 4
    assert LOOK_S_MAX > 6


def test_it_can_be_interrupted_and_started_again() -> None:
    world = World(5)
    ledger_id = closed_ledger(world, world.client(), 4)
    lost = member(world, ledger_id).bookie_id
    retire(world, lost)
    run = Decommission(world, lost)
    world.settle(1)
    run.running.deferred.cancel()
    world.settle(100)
    assert run.running.done
    assert has_cookie(world, lost)
    assert marks(world) == {ledger_id: (lost,)}
    RunningWorker(world)
    again = Decommission(world, lost)
    assert again.finish().cookie_deleted
    check_whole(world, ledger_id, payloads(4))


def test_once_more_on_a_retired_bookie_finds_nothing_to_do() -> None:
    world = World(4)
    world.kill("b1")
    assert Decommission(world, "b1").finish() == DecommissionReport(
        BookieId("b1"), 0, cookie_deleted=False
    )


def test_a_mark_that_somebody_took_away_is_made_again() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 2)
    lost = member(world, ledger_id).bookie_id
    retire(world, lost)
    run = Decommission(world, lost)
    world.settle(1)
    world.metadata.delete(zk_paths.mark(ledger_id))
    world.settle(10)
    assert marks(world) == {ledger_id: (lost,)}
    RunningWorker(world)
    run.finish()


def test_s36_ledgers_that_are_deleted_meanwhile_count_as_done() -> None:
    world = World(4)
    client = world.client()
    ledger_id = closed_ledger(world, client, 2)
    lost = member(world, ledger_id).bookie_id
    retire(world, lost)
    run = Decommission(world, lost)
    world.settle(1)
    world.run(client.delete_ledger(ledger_id))
    assert run.finish().cookie_deleted


def test_a_fragment_without_entries_on_the_bookie_does_not_keep_it() -> None:
    """Of a closed ledger; old workers leave such fragments as they are."""
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 1, **STRIPED)
    bookie = member(world, ledger_id, 2).bookie_id
    retire(world, bookie)
    assert Decommission(world, bookie).finish().cookie_deleted
    assert bookie in world.stored(ledger_id).all_bookies()


def test_s10_a_ledger_that_is_not_closed_keeps_the_cookie_though_nothing_of_it_is_there() -> None:
    world = World(6)
    client = world.client()
    writer = open_writer(world, client, 1, **STRIPED)
    bookie = world.stored(writer.ledger_id).ensemble[2]
    others = world.stored(writer.ledger_id).ensemble[:2]
    world.kill(others[0])
    world.kill(bookie)
    world.run(writer.add_many(payloads(3, b"later")))
    world.restart(others[0])
    world.restart(bookie)
    old, new = world.stored(writer.ledger_id).fragments
    assert bookie in old.ensemble
    assert bookie not in new.ensemble
    retire(world, bookie)
    run = Decommission(world, bookie)
    world.settle(50)
    assert not run.running.done
    RunningWorker(world)
    assert run.finish().cookie_deleted
    assert world.stored(writer.ledger_id).state is LedgerState.OPEN


def test_a_ledger_that_cannot_be_read_may_list_anybody() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client())
    retire(world, "b1")
    world.metadata.set(zk_paths.LAYOUTS["hierarchical"].path_of(ledger_id), b"no metadata")
    with pytest.raises(MetadataSerializationError):
        Decommission(world, "b1").finish()
    assert has_cookie(world, "b1")


def test_a_ledger_that_begins_to_list_the_bookie_at_the_very_end_keeps_the_cookie() -> None:
    world = World(4)
    retire(world, "b1")
    run: Any = None

    def late(progress: DecommissionProgress) -> None:
        if progress.step == "deleting the cookie":
            world.metadata.create(path, value)

    path = zk_paths.LAYOUTS["hierarchical"].path_of(open_writer(world, world.client()).ledger_id)
    value = world.metadata.get(path).value
    ensemble = value.count(b"b1")
    world.metadata.delete(path)
    if not ensemble:
        value = value.replace(b"b2", b"b1")
    client = world.client(seed=4)
    run = world.start(decommission(client, BookieId("b1"), late))
    world.settle(10)
    assert isinstance(run.result, CookieNeededError)
    assert has_cookie(world, "b1")


def test_cancelling_keeps_the_mark_of_a_ledger_of_which_nobody_knows_how_far_it_goes() -> None:
    world = World(3)
    writer = open_writer(world, world.client(), 4, ensemble_size=3, write_quorum=3, ack_quorum=2)
    mark(world, writer.ledger_id, "b1")
    world["b1"].ledgers[writer.ledger_id].entries.clear()
    for name in ("b2", "b3"):
        world[name].policy = lambda _request: Fate.LOSE
    found = world.run(cancel_decommission(world.client(seed=9), BookieId("b1")))
    assert (found.ledgers, found.kept) == ((), (writer.ledger_id,))
    assert list(marks(world)) == [writer.ledger_id]
    assert world.run(store_of(world).repair_locks()) == []


def test_cancelling_keeps_the_mark_of_a_ledger_that_names_another_bookie_too() -> None:
    """A check may have found there what a look at the first and last entries does not find."""
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 9)
    bookies = sorted(member(world, ledger_id, index).bookie_id for index in (0, 1))
    mark(world, ledger_id, *bookies)
    found = world.run(cancel_decommission(world.client(seed=9), bookies[0]))
    assert (found.ledgers, found.kept) == ((), ())
    assert marks(world) == {ledger_id: tuple(bookies)}


def test_cancelling_keeps_a_mark_that_comes_to_name_another_bookie_meanwhile() -> None:
    world = World(4)
    first, second = (closed_ledger(world, world.client(), 9) for _ in range(2))
    bookie, other = (member(world, second, index).bookie_id for index in (0, 1))
    for ledger_id in (first, second):
        mark(world, ledger_id, bookie)
    cancelling = world.start(cancel_decommission(world.client(seed=9), bookie))
    while world.run(store_of(world).repair_locks()) == []:
        world.settle(0.001)
    mark(world, second, other)
    cancelling.finish(100)
    assert marks(world)[second] == (bookie, other)


def test_cancelling_keeps_the_mark_of_a_ledger_that_lacks_an_entry_in_the_middle() -> None:
    """A check has found there what a look at the first and last entries does not find."""
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 9)
    bookie = member(world, ledger_id, 0)
    mark(world, ledger_id, bookie.bookie_id)
    held = sorted(bookie.ledgers[ledger_id].entries)
    del bookie.ledgers[ledger_id].entries[held[len(held) // 2]]
    found = world.run(cancel_decommission(world.client(seed=9), bookie.bookie_id))
    assert (found.ledgers, found.kept) == ((), (ledger_id,))
    assert list(marks(world)) == [ledger_id]
