"""The auditor on a cluster in memory: what it marks, when, and what does not stop it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from twisted.internet.defer import CancelledError

from bkclient.client import Client
from bkclient.metadata import zk_paths
from bkclient.metadata.tree.nodes import ATTEMPTS_MAX
from bkclient.metadata.versions_and_watches import NEW
from bkclient.replication.autorecovery_admin import request_checks
from bookied.autorecovery.audit_schedule import AGAIN_S, REQUESTS_S, RETRY_S
from bookied.autorecovery.auditor import Auditor
from bookied.config.autorecovery import AutoRecoveryConfig
from tests.bkclient.replication_world import (
    TRIPLE,
    closed_ledger,
    mark,
    marks,
    member,
    open_writer,
    store_of,
)
from tests.bkclient.worlds import Fate, Running, World
from tests.support.memory_zookeeper import Fault, MemoryMetadata, TreeOperation
from wire.ids import BookieId, LedgerId

AUDITOR = BookieId("auditor")
LONG = 3600
CHECKS = ("all-ledgers", "placement", "replicas")


class Term:
    """An elected auditor at work; only the checks that are asked for run."""

    def __init__(
        self, world: World, *, client: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        given: dict[str, Any] = {"bookie_check_interval_s": 0, "ledger_check_interval_s": 0}
        self.world = world
        self.client: Client = world.client(**(client or {}))
        world.run(self.client.store.elect(AUDITOR))
        auditor = Auditor(
            self.client, AutoRecoveryConfig(**(given | settings)), AUDITOR, random.Random(0)
        )
        self.running: Running[None] = world.start(auditor.run())
        world.settle()

    @property
    def session(self) -> Any:
        assert isinstance(self.client.store, MemoryMetadata)
        return self.client.store.session

    def end(self) -> None:
        self.running.deferred.cancel()
        self.world.settle()
        self.world.run(self.client.close())
        self.world.run(self.client.store.close())


def world_with_cookies(bookies: int = 4) -> World:
    world = World(bookies)
    store = store_of(world)
    for bookie_id in world.bookies:
        world.run(store.write_cookie(bookie_id, b"4\ncookie", NEW))
    return world


def lose(world: World, ledger_id: LedgerId, index: int = 0) -> BookieId:
    bookie_id = member(world, ledger_id, index).bookie_id
    world.kill(bookie_id)
    world.settle()
    return bookie_id


# Lost bookies ----------------------------------------------------------------------------------


def test_the_ledgers_of_a_lost_bookie_are_marked_with_its_name() -> None:
    world = world_with_cookies()
    client = world.client()
    ledgers = [closed_ledger(world, client) for _ in range(6)]
    Term(world)
    lost = lose(world, ledgers[0])
    affected = [i for i in ledgers if lost in world.stored(i).all_bookies()]
    assert 0 < len(affected) < len(ledgers)
    assert marks(world) == dict.fromkeys(affected, (lost,))


def test_open_ledgers_and_old_fragments_count_too() -> None:
    world = world_with_cookies(5)
    client = world.client()
    writer = open_writer(world, client, 3)
    Term(world, lost_bookie_recovery_delay_s=LONG)
    first = lose(world, writer.ledger_id, 0)
    world.run(writer.add(b"in a second fragment"))
    assert len(world.stored(writer.ledger_id).fragments) == 2
    second = lose(world, writer.ledger_id, 1)
    assert marks(world) == {writer.ledger_id: tuple(sorted({first, second}))}


def test_s34_bookies_that_died_before_the_auditor_began_are_marked_at_its_start() -> None:
    """Even with a delay: nobody knows since when they are gone."""
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client())
    lost = lose(world, ledger_id)
    Term(world, lost_bookie_recovery_delay_s=LONG)
    assert marks(world) == {ledger_id: (lost,)}


def test_a_read_only_bookie_is_not_lost() -> None:
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client())
    Term(world)
    world.turn_read_only(member(world, ledger_id).bookie_id)
    world.settle()
    assert marks(world) == {}


def test_one_lost_bookie_has_the_delay_to_come_back() -> None:
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client())
    Term(world, lost_bookie_recovery_delay_s=60)
    lost = lose(world, ledger_id)
    world.settle(59)
    assert marks(world) == {}
    world.restart(lost)
    world.settle(LONG)
    assert marks(world) == {}
    world.kill(lost)
    world.settle(61)
    assert marks(world) == {ledger_id: (lost,)}


def test_when_a_second_bookie_goes_the_delay_is_over() -> None:
    world = world_with_cookies(5)
    ledger_id = closed_ledger(world, world.client())
    Term(world, lost_bookie_recovery_delay_s=LONG)
    gone = [lose(world, ledger_id, index) for index in (0, 1)]
    assert marks(world) == {ledger_id: tuple(sorted(gone))}


def test_the_delay_of_the_configuration_is_stored_where_there_is_none() -> None:
    world = world_with_cookies()
    Term(world, lost_bookie_recovery_delay_s=77)
    assert world.run(store_of(world).lost_bookie_recovery_delay()) == 77


@pytest.mark.parametrize("damaged", [b"\x80\xff", b"", b"-5", b"1" + b"0" * 400])
def test_the_delay_of_the_configuration_counts_while_the_stored_one_cannot_be_read(
    damaged: bytes,
) -> None:
    world = world_with_cookies()
    world.run(store_of(world).set_lost_bookie_recovery_delay(LONG))
    world.metadata.set(zk_paths.LOST_BOOKIE_DELAY, damaged)
    ledger_id = closed_ledger(world, world.client())
    Term(world, lost_bookie_recovery_delay_s=60)
    lost = lose(world, ledger_id)
    world.settle(61)
    assert marks(world) == {ledger_id: (lost,)}


def test_the_stored_delay_wins_over_the_configuration() -> None:
    world = world_with_cookies()
    world.run(store_of(world).set_lost_bookie_recovery_delay(0))
    ledger_id = closed_ledger(world, world.client())
    Term(world, lost_bookie_recovery_delay_s=LONG)
    lost = lose(world, ledger_id)
    assert marks(world) == {ledger_id: (lost,)}


@pytest.mark.parametrize("value", [0, LONG])
def test_writing_zero_or_the_same_delay_triggers_an_audit(value: int) -> None:
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client())
    Term(world, lost_bookie_recovery_delay_s=LONG)
    lost = lose(world, ledger_id)
    assert marks(world) == {}
    world.run(store_of(world).set_lost_bookie_recovery_delay(value))
    world.settle()
    assert marks(world) == {ledger_id: (lost,)}


def test_a_new_delay_is_counted_from_when_it_was_stored() -> None:
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client())
    Term(world, lost_bookie_recovery_delay_s=60)
    lose(world, ledger_id)
    world.settle(30)
    world.run(store_of(world).set_lost_bookie_recovery_delay(50))
    world.settle(49)
    assert marks(world) == {}
    world.settle(2)
    assert len(marks(world)) == 1


def test_a_connection_that_breaks_for_a_moment_is_no_trigger() -> None:
    """It makes all watches fire, that on the delay too."""
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client())
    term = Term(world, lost_bookie_recovery_delay_s=LONG)
    lose(world, ledger_id)
    term.session.suspend()
    world.settle(1)
    term.session.resume()
    world.settle(10)
    assert marks(world) == {}


def test_a_mark_that_is_there_gets_the_other_bookie_added() -> None:
    world = world_with_cookies(5)
    ledger_id = closed_ledger(world, world.client())
    mark(world, ledger_id, "someone")
    Term(world)
    lost = lose(world, ledger_id)
    assert marks(world) == {ledger_id: (BookieId("someone"), lost)}


def test_a_bookie_that_registers_during_the_walk_is_not_lost() -> None:
    world = world_with_cookies()
    client = world.client()
    ledger_id = closed_ledger(world, client)
    lost = lose(world, ledger_id)
    came: list[TreeOperation] = []

    def fault(operation: TreeOperation) -> Fault:
        if operation.name == "get" and "/L" in operation.path and not came:
            came.append(operation)
            world.restart(lost)
        return Fault.NONE

    world.metadata.faults = fault
    Term(world)
    assert came
    assert marks(world) == {}


def test_a_ledger_that_is_stored_behind_the_audit_with_the_lost_bookie_is_marked_too() -> None:
    """Its client chose the bookie just before. Java's decommissionbookie waits for its move."""
    world = world_with_cookies(3)
    Term(world)
    world.metadata.delay_s = lambda operation: (
        5.0 if operation.name == "create" and "/L" in operation.path else 0.0
    )
    creating = world.start(world.client().create_ledger(**TRIPLE))
    world.settle(1)
    world.kill(BookieId("b1"))
    world.settle(5)
    ledger_id = creating.finish().ledger_id
    assert marks(world) == {}
    world.settle(AGAIN_S)
    assert marks(world) == {ledger_id: (BookieId("b1"),)}


def test_the_first_audit_of_a_term_is_done_twice_also_where_it_failed_at_first() -> None:
    world = world_with_cookies(3)
    marked = closed_ledger(world, world.client())
    world.metadata.delay_s = lambda operation: (
        30.0 if operation.name == "create" and "/L0" in operation.path else 0.0
    )
    creating = world.start(world.client().create_ledger(**TRIPLE))
    world.settle(1)
    world.kill(BookieId("b1"))
    listed: list[TreeOperation] = []

    def fault(operation: TreeOperation) -> Fault:
        if (operation.name, operation.path) != ("children", "") or len(listed) >= ATTEMPTS_MAX:
            return Fault.NONE
        listed.append(operation)
        return Fault.REQUEST_LOST

    world.metadata.faults = fault
    Term(world, lost_bookie_recovery_delay_s=LONG)
    assert listed
    assert marks(world) == {}
    world.settle(RETRY_S + 1)
    assert marks(world) == {marked: (BookieId("b1"),)}
    world.settle(AGAIN_S)
    ledger_id = creating.finish().ledger_id
    assert marks(world) == dict.fromkeys((marked, ledger_id), (BookieId("b1"),))


def test_the_periodic_check_finds_what_no_watch_told() -> None:
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client())
    Term(world, bookie_check_interval_s=1000)
    # Not known by a cookie, and never seen: only the metadata names it.
    changed = world.stored(ledger_id)
    path = path_of(world, ledger_id)
    text = world.metadata.get(path).value.replace(b"b1", b"b9")
    world.metadata.set(path, text)
    world.settle(999)
    assert marks(world) == {}
    world.settle(2)
    assert list(marks(world)) == [ledger_id]
    assert changed.is_closed


# Disabled --------------------------------------------------------------------------------------


def enable(world: World, *, enabled: bool) -> None:
    world.run(store_of(world).set_replication_enabled(enabled=enabled))
    world.settle()


def test_while_re_replication_is_disabled_audits_wait() -> None:
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client())
    enable(world, enabled=False)
    Term(world)
    lost = lose(world, ledger_id)
    world.settle(LONG)
    assert marks(world) == {}
    enable(world, enabled=True)
    assert marks(world) == {ledger_id: (lost,)}


def test_what_was_found_while_it_was_being_disabled_is_not_marked_but_found_again() -> None:
    world = world_with_cookies()
    client = world.client()
    ledger_id = closed_ledger(world, client)
    Term(world)
    disabled: list[TreeOperation] = []

    def fault(operation: TreeOperation) -> Fault:
        if operation.name == "get" and "/L" in operation.path and not disabled:
            disabled.append(operation)
            world.metadata.create(zk_paths.REPLICATION_DISABLED, b"")
        return Fault.NONE

    world.metadata.faults = fault
    lost = lose(world, ledger_id)
    assert disabled
    assert marks(world) == {}
    enable(world, enabled=True)
    assert marks(world) == {ledger_id: (lost,)}


# What must not stop it -------------------------------------------------------------------------


def path_of(world: World, ledger_id: LedgerId) -> str:
    layout = zk_paths.LAYOUTS["hierarchical"]
    return layout.path_of(ledger_id)


def test_l5_a_ledger_with_unreadable_metadata_keeps_no_other_waiting() -> None:
    world = world_with_cookies()
    client = world.client()
    bad, good = closed_ledger(world, client), closed_ledger(world, client)
    world.metadata.set(path_of(world, bad), b"no metadata")
    Term(world)
    lost = lose(world, good)
    assert marks(world) == {good: (lost,)}


def test_l5_a_mark_that_cannot_be_read_keeps_no_other_waiting() -> None:
    world = world_with_cookies()
    client = world.client()
    bad, good = closed_ledger(world, client), closed_ledger(world, client)
    mark(world, bad, "someone")
    world.metadata.set(zk_paths.mark(bad), b"{no mark")
    Term(world)
    lost = lose(world, good)
    store = store_of(world)
    found = world.run(store.underreplicated(good))
    assert found is not None
    assert found.replicas == (lost,)


def test_s36_a_ledger_that_is_deleted_during_the_audit_is_passed_over() -> None:
    world = world_with_cookies()
    client = world.client()
    ledgers = [closed_ledger(world, client) for _ in range(3)]
    Term(world)

    def fault(operation: TreeOperation) -> Fault:
        if operation.name == "get" and operation.path == path_of(world, ledgers[1]):
            world.metadata.faults = lambda _operation: Fault.NONE
            world.metadata.delete(operation.path)
        return Fault.NONE

    world.metadata.faults = fault
    world.kill("b1")
    world.kill("b2")
    world.settle()
    assert sorted(marks(world)) == [ledgers[0], ledgers[2]]


def test_an_audit_that_fails_is_tried_again() -> None:
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client())
    term = Term(world)
    broken = True

    def fault(operation: TreeOperation) -> Fault:
        mine = operation.session_id == term.client.store.session_id
        return Fault.REQUEST_LOST if broken and mine and "/L" in operation.path else Fault.NONE

    world.metadata.faults = fault
    lost = lose(world, ledger_id)
    assert marks(world) == {}
    broken = False
    world.settle(RETRY_S + 1)
    assert marks(world) == {ledger_id: (lost,)}
    assert not term.running.done


def test_an_audit_after_the_delay_that_fails_is_tried_again_whatever_other_bookies_do() -> None:
    """The outage that fails the audit also ends sessions of bookies that are well."""
    world = world_with_cookies(5)
    ledger_id = closed_ledger(world, world.client())
    term = Term(world, lost_bookie_recovery_delay_s=60)
    lost = lose(world, ledger_id)
    broken = True

    def fault(operation: TreeOperation) -> Fault:
        mine = operation.session_id == term.client.store.session_id
        return Fault.REQUEST_LOST if broken and mine and "/L" in operation.path else Fault.NONE

    world.metadata.faults = fault
    world.settle(61)
    broken = False
    other = next(one for one in world.bookies if one != lost)
    world.kill(other)
    world.settle(1)
    world.restart(other)
    world.settle(RETRY_S + 1)
    assert marks(world) == {ledger_id: (lost,)}


def test_who_lost_its_vote_is_not_the_auditor_any_more() -> None:
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client())
    term = Term(world)
    (vote,) = [n for n in world.metadata.children(zk_paths.ELECTION) if n.startswith("V_")]
    world.metadata.delete(f"{zk_paths.ELECTION}/{vote}")
    lose(world, ledger_id)
    assert term.running.done
    assert marks(world) == {}


def test_an_auditor_that_is_cancelled_leaves_no_timer_behind() -> None:
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client())
    settings: dict[str, Any] = dict.fromkeys(
        ("ledger_check_interval_s", "placement_check_interval_s", "replicas_check_interval_s"), LONG
    )
    term = Term(world, lost_bookie_recovery_delay_s=60, bookie_check_interval_s=LONG, **settings)
    lose(world, ledger_id)
    term.end()
    world.settle()
    assert world.clock.getDelayedCalls() == []


@pytest.mark.parametrize("check", ["bookies", "all-ledgers"])
def test_an_auditor_that_is_cancelled_in_the_middle_of_its_work_ends(check: str) -> None:
    world = world_with_cookies()
    closed_ledger(world, world.client(), 3)
    if check == "bookies":
        world.metadata.delay_s = lambda operation: 5.0 if "/L" in operation.path else 0.0
    else:
        for bookie in world.bookies.values():
            bookie.policy = lambda _request: Fate.HOLD
    term = Term(world, ledger_check_interval_s=1000)
    assert check == "bookies" or any(bookie.held for bookie in world.bookies.values())
    term.running.deferred.cancel()
    assert isinstance(term.running.result, CancelledError)
    world.settle(1000)
    assert check_time_s(world, "all-ledgers") is None


# Periodic checks -------------------------------------------------------------------------------


def set_check_time(world: World, check: str, ago_s: float) -> None:
    now_ms = int(world.clock.seconds() * 1000)
    world.run(store_of(world).set_check_time(check, now_ms - int(ago_s * 1000)))


def check_time_s(world: World, check: str) -> float | None:
    ended_ms = world.run(store_of(world).check_time(check))
    return None if ended_ms is None else ended_ms / 1000


INTERVALS = {
    "all-ledgers": "ledger_check_interval_s",
    "placement": "placement_check_interval_s",
    "replicas": "replicas_check_interval_s",
}


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_runs_at_once_where_none_ever_ran_and_then_at_its_interval(check: str) -> None:
    world = world_with_cookies()
    world.clock.advance(100_000)
    Term(world, **{INTERVALS[check]: 1000})
    assert check_time_s(world, check) == 100_000
    world.settle(999)
    assert check_time_s(world, check) == 100_000
    world.settle(2)
    assert check_time_s(world, check) == 101_000
    assert [check_time_s(world, other) for other in CHECKS if other != check] == [None, None]


@pytest.mark.parametrize("check", CHECKS)
def test_a_new_auditor_goes_on_from_when_the_last_one_checked(check: str) -> None:
    world = world_with_cookies()
    world.clock.advance(100_000)
    set_check_time(world, check, ago_s=400)
    Term(world, **{INTERVALS[check]: 1000})
    world.settle(599)
    assert check_time_s(world, check) == 99_600
    world.settle(2)
    assert check_time_s(world, check) == 100_600


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("interval_s", [0, 1000], ids=["off", "on"])
def test_a_time_of_a_check_that_cannot_be_read_stops_no_other_check(
    check: str, interval_s: int
) -> None:
    world = world_with_cookies()
    world.clock.advance(100_000)
    ledger_id = closed_ledger(world, world.client())
    set_check_time(world, check, ago_s=10)
    world.metadata.set(zk_paths.CHECK_TIMES[check], b"\xff")
    Term(world, **{INTERVALS[check]: interval_s})
    (other, *_) = (one for one in CHECKS if one != check)
    world.run(request_checks(world.client(), [other], 100_000_000))
    world.settle(2 * REQUESTS_S)
    ended_s = check_time_s(world, other)
    assert ended_s is not None
    assert ended_s >= 100_000
    lost = lose(world, ledger_id)
    assert marks(world) == {ledger_id: (lost,)}
    if interval_s:  # It runs at once, and its time is stored anew.
        assert check_time_s(world, check) == 100_000


@pytest.mark.parametrize("check", CHECKS)
def test_checks_are_left_out_while_a_lost_bookie_has_its_delay(check: str) -> None:
    world = world_with_cookies()
    world.clock.advance(100_000)
    ledger_id = closed_ledger(world, world.client())
    set_check_time(world, check, ago_s=990)
    Term(world, lost_bookie_recovery_delay_s=LONG, **{INTERVALS[check]: 1000})
    lose(world, ledger_id)
    world.settle(20)
    assert marks(world) == {}
    assert check_time_s(world, check) == 99_010


@pytest.mark.parametrize("check", CHECKS)
def test_checks_are_left_out_while_re_replication_is_disabled(check: str) -> None:
    world = world_with_cookies()
    world.clock.advance(100_000)
    set_check_time(world, check, ago_s=990)
    Term(world, **{INTERVALS[check]: 1000})
    enable(world, enabled=False)
    world.settle(20)
    assert check_time_s(world, check) == 99_010
    enable(world, enabled=True)
    world.settle(1000)
    assert check_time_s(world, check) == 101_010


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("interval_s", [0, 100 * 86_400], ids=["off", "later"])
def test_a_check_that_an_operator_requests_runs_within_a_minute(
    check: str, interval_s: int
) -> None:
    world = world_with_cookies()
    world.clock.advance(30 * 86_400)
    set_check_time(world, check, ago_s=10)
    Term(world, **{INTERVALS[check]: interval_s})
    for _ in range(2):
        world.settle(REQUESTS_S)
        now_s = world.clock.seconds()
        world.run(request_checks(world.client(), [check], int(now_s * 1000)))
        world.settle(REQUESTS_S)
        ended_s = check_time_s(world, check)
        assert ended_s is not None
        assert now_s <= ended_s <= now_s + REQUESTS_S
    world.settle(10 * REQUESTS_S)
    assert check_time_s(world, check) == ended_s


def test_a_requested_check_waits_until_autorecovery_is_enabled() -> None:
    world = world_with_cookies()
    world.clock.advance(30 * 86_400)
    set_check_time(world, "replicas", ago_s=10)
    Term(world)
    enable(world, enabled=False)
    now_ms = int(world.clock.seconds() * 1000)
    world.run(request_checks(world.client(), ["replicas"], now_ms))
    world.settle(3 * REQUESTS_S)
    assert check_time_s(world, "replicas") == 9 * 86_400
    enable(world, enabled=True)
    now_s = world.clock.seconds()
    world.settle(REQUESTS_S)
    assert (check_time_s(world, "replicas") or 0) >= now_s


@pytest.mark.parametrize("check", CHECKS)
def test_the_next_auditor_runs_a_check_that_was_requested_of_the_last_one(check: str) -> None:
    world = world_with_cookies()
    world.clock.advance(30 * 86_400)
    set_check_time(world, check, ago_s=10)
    term = Term(world)
    now_s = world.clock.seconds()
    world.run(request_checks(world.client(), [check], int(now_s * 1000)))
    term.end()
    Term(world)
    world.settle(2 * REQUESTS_S)
    assert (check_time_s(world, check) or 0) >= now_s


def test_a_check_that_is_requested_while_it_runs_runs_again() -> None:
    world = world_with_cookies()
    world.clock.advance(30 * 86_400)
    ledger_id = closed_ledger(world, world.client())
    bookie = member(world, ledger_id)
    bookie.policy = lambda _request: Fate.HOLD
    Term(world)
    client = world.client()
    world.run(request_checks(client, ["all-ledgers"], int(world.clock.seconds() * 1000)))
    world.settle(REQUESTS_S + 1)  # The check waits for the bookie.
    world.run(request_checks(client, ["all-ledgers"], int(world.clock.seconds() * 1000)))
    requested_s = check_time_s(world, "all-ledgers")
    bookie.policy = lambda _request: Fate.SERVE
    bookie.release()
    world.settle(1)
    assert check_time_s(world, "all-ledgers") == requested_s
    world.settle(REQUESTS_S)
    assert (check_time_s(world, "all-ledgers") or 0) > 30 * 86_400


def test_the_check_of_all_ledgers_marks_what_is_missing_or_corrupt() -> None:
    """S40: also by the digest of the last entry."""
    world = world_with_cookies()
    client = world.client()
    ledgers = [closed_ledger(world, client, 10) for _ in range(4)]
    lacking, corrupt = member(world, ledgers[1], 1), member(world, ledgers[2], 2)
    del lacking.ledgers[ledgers[1]]
    entries = corrupt.ledgers[ledgers[2]].entries
    entries[9] = entries[9][:-1] + b"!"
    Term(world, ledger_check_interval_s=1000)
    world.settle(30)
    assert marks(world) == {
        ledgers[1]: (lacking.bookie_id,),
        ledgers[2]: (corrupt.bookie_id,),
    }


def test_a_percentage_finds_what_is_missing_in_the_middle() -> None:
    world = world_with_cookies()
    ledger_id = closed_ledger(world, world.client(), 10)
    lacking = member(world, ledger_id, 1)
    del lacking.ledgers[ledger_id].entries[4]
    Term(world, ledger_check_interval_s=1000, verified_percentage=100)
    world.settle(1)
    assert marks(world) == {ledger_id: (lacking.bookie_id,)}


def test_a_check_that_is_disabled_half_way_is_not_counted() -> None:
    world = world_with_cookies()
    client = world.client()
    for _ in range(3):
        closed_ledger(world, client, 3)
    asked: list[Any] = []

    def policy(request: Any) -> Any:
        if not asked:
            world.metadata.create(zk_paths.REPLICATION_DISABLED, b"")
        asked.append(request)
        return real(request)

    (bookie,) = [world["b1"]]
    real = bookie.policy
    bookie.policy = policy
    Term(world, ledger_check_interval_s=1000, ledgers_checked_at_once=1)
    world.settle(30)
    assert asked
    assert check_time_s(world, "all-ledgers") is None


def test_l5_a_ledger_that_cannot_be_checked_keeps_no_other_waiting() -> None:
    world = world_with_cookies()
    client = world.client()
    bad, good = closed_ledger(world, client, 3), closed_ledger(world, client, 3)
    world.metadata.set(path_of(world, bad), b"no metadata")
    lacking = member(world, good)
    lacking.ledgers.clear()
    Term(world, ledger_check_interval_s=1000)
    world.settle(1)
    assert marks(world) == {good: (lacking.bookie_id,)}
    assert check_time_s(world, "all-ledgers") is not None


RACKS = {"host-b1": "/a", "host-b2": "/a", "host-b3": "/b", "host-b4": "/b"}


async def script(hosts: Sequence[str]) -> str:
    return " ".join(RACKS[host] for host in hosts)


@pytest.mark.parametrize("repair", [False, True])
def test_ledgers_that_are_not_spread_well_are_marked_where_that_is_to_be_repaired(
    *, repair: bool
) -> None:
    world = world_with_cookies()
    pair: dict[str, Any] = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 1}
    careless = world.client(seed=1)
    ledgers = [closed_ledger(world, careless, 2, **pair) for _ in range(8)]
    open_writer(world, careless, 2, **pair)
    bad = [
        ledger_id
        for ledger_id in ledgers
        if len({RACKS[f"host-{b}"] for b in world.stored(ledger_id).ensemble}) == 1
    ]
    assert 0 < len(bad) < len(ledgers)
    Term(
        world,
        client={"topology_script": script},
        placement_check_interval_s=1000,
        repair_placement=repair,
    )
    world.settle(1)
    assert marks(world) == (dict.fromkeys(bad, ()) if repair else {})
    assert check_time_s(world, "placement") is not None


@pytest.mark.parametrize(
    ("policy", "ensemble_size", "adheres"),
    [
        ("ZoneawareEnsemblePlacementPolicy", 3, True),
        ("ZoneawareEnsemblePlacementPolicy", 4, False),  # No multiple of the write quorum.
        ("RegionAwareEnsemblePlacementPolicy", 4, True),
    ],
)
def test_zones_and_regions_are_judged_as_java_judges_them(
    policy: str, ensemble_size: int, *, adheres: bool
) -> None:
    async def three_zones(hosts: Sequence[str]) -> str:
        return " ".join(f"/z{int(host[-1]) % 3}/d{host[-1]}" for host in hosts)

    world = World(6)
    settings = {
        "topology_script": three_zones,
        "placement_policy": f"org.apache.bookkeeper.client.{policy}",
    }
    careful = world.client(**settings, enforce_zones=False)
    ledger_id = closed_ledger(
        world, careful, 2, ensemble_size=ensemble_size, write_quorum=3, ack_quorum=2
    )
    Term(world, client=settings, placement_check_interval_s=1000, repair_placement=True)
    world.settle(1)
    assert marks(world) == ({} if adheres else {ledger_id: ()})


def test_the_check_of_replicas_reports_and_marks_nothing(
    logged: Callable[[], list[str]],
) -> None:
    world = world_with_cookies()
    client = world.client()
    whole, lacking, marked, empty = (
        closed_ledger(world, client, 6),
        closed_ledger(world, client, 6),
        closed_ledger(world, client, 6),
        closed_ledger(world, client, 0),
    )
    for ledger_id in (lacking, marked):
        del member(world, ledger_id, 1).ledgers[ledger_id].entries[3]
    mark(world, marked, "someone")
    Term(world, replicas_check_interval_s=1000)
    world.settle(1)
    assert list(marks(world)) == [marked]
    (line,) = [line for line in logged() if "lacks replicas" in line]
    assert f"ledger {lacking} " in line
    assert "below_write_quorum=1" in line
    assert whole != empty


def test_marks_that_are_overdue_are_reported_by_the_placement_check(
    logged: Callable[[], list[str]],
) -> None:
    world = world_with_cookies()
    old = closed_ledger(world, world.client())
    mark(world, old, "someone")
    world.clock.advance(500)
    mark(world, LedgerId(old + 7), "someone")
    Term(world, placement_check_interval_s=1000, overdue_marks_s=400)
    (line,) = [line for line in logged() if "under-replicated for more than" in line]
    assert f"[{old}]" in line
