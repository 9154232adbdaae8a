"""The autorecovery commands on a cluster in memory."""

from __future__ import annotations

import getpass
import re
import socket
import time
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bkclient.metadata import zk_paths
from bkclient.metadata.versions_and_watches import NEW
from bkclient.replication.autorecovery_admin import CHECKS
from bkctl.commands.autorecovery.audit import INTERVALS
from tests.bkclient.metadata.values import B1, B2
from tests.bkclient.replication_world import closed_ledger, marks, member, open_writer, store_of
from tests.bkclient.worlds import World
from tests.bkctl.support.world import run_in
from tests.support.memory_zookeeper import MemoryMetadata
from wire.ids import BookieId, LedgerId
from wire.records.cookie import Cookie, encode_cookie


@pytest.fixture
def world() -> World:
    return World(0)


@pytest.fixture
def store(world: World) -> MemoryMetadata:
    made = world.metadata.metadata()
    world.run(made.connect())
    return made


def dump(world: World, store: MemoryMetadata) -> dict[str, Any]:
    return world.run(store.dump())


def test_it_is_switched_for_the_whole_cluster_and_twice_is_once(
    world: World, store: MemoryMetadata
) -> None:
    assert run_in(world, "autorecovery", "disable").out == "autorecovery disabled\n"
    assert run_in(world, "autorecovery", "disable").out == "autorecovery was disabled before\n"
    assert not world.run(store.replication_enabled())
    assert run_in(world, "autorecovery", "enable", "--json").json == {
        "schema": 1, "enabled": True, "changed": True,
    }  # fmt: skip
    assert world.run(store.replication_enabled())


def test_a_dry_run_switches_nothing(world: World, store: MemoryMetadata) -> None:
    before = dump(world, store)
    assert run_in(world, "autorecovery", "disable", "--dry-run").out == (
        "would disable autorecovery\n"
    )
    assert run_in(world, "autorecovery", "enable", "--dry-run").out == "would change nothing\n"
    assert run_in(world, "autorecovery", "delay", "5m", "--dry-run").out == (
        "would set the delay to 300 s\n"
    )
    assert run_in(world, "autorecovery", "trigger", "--dry-run").out.startswith("would have the")
    assert dump(world, store) == before


def test_the_status_of_a_new_cluster_and_of_one_that_mends_itself(
    world: World, store: MemoryMetadata
) -> None:
    new = run_in(world, "autorecovery", "status", "--json").json
    assert new["enabled"] is True
    assert new["auditor"] is new["oldest"] is new["delay_s"] is None
    world.run(store.elect(B1))
    world.run(store.mark_underreplicated(LedgerId(1), (B1,)))
    world.run(store.mark_underreplicated(LedgerId(2), (B1,)))
    world.run(store.set_lost_bookie_recovery_delay(0))
    assert world.run(store.acquire_lock(LedgerId(2)))
    found = run_in(world, "autorecovery", "status", "--json").json
    assert (found["auditor"], found["marked"], found["being_repaired"]) == (B1, 2, 1)
    said = run_in(world, "autorecovery", "status").out
    assert "all-ledgers: never" in said
    # The worker may have failed, and keep its lock: nothing says that it repairs.
    assert "locked by workers  1" in said


@pytest.mark.parametrize("form", [(), ("--detail",), ("--count",), ("-o", "jsonl")])
def test_a_damaged_mark_hides_no_other(world: World, store: MemoryMetadata, form) -> None:
    ids = [LedgerId(number) for number in (101, 202, 303)]
    for ledger_id in ids:
        world.run(store.mark_underreplicated(ledger_id, (B1,)))
    world.metadata.set(zk_paths.mark(ids[1]), b"\xffnonsense")
    said = run_in(world, "autorecovery", "list", *form, ok=False)
    assert said.status == 8
    assert f"the mark of ledger {ids[1]}: " in said.err
    assert f"1 mark cannot be read: {ids[1]}" in said.err
    if form == ("--count",):
        assert said.out == "2\n"
    else:
        assert all(str(one) in said.out for one in (ids[0], ids[2]))
    assert run_in(world, "autorecovery", "status", "--json").json["marked"] == 3


def test_marks_are_listed_by_whose_replicas_they_lack(world: World, store: MemoryMetadata) -> None:
    for ledger_id, missing in ((1, (B1,)), (2, (B1, B2)), (3, (B2,))):
        world.run(store.mark_underreplicated(LedgerId(ledger_id), missing))
    world.run(store.acquire_lock(LedgerId(3)))

    def ids(*options: str) -> list[str]:
        return run_in(world, "autorecovery", "list", "-o", "id", *options).out.split()

    assert ids() == ["1", "2", "3"]
    assert ids("--missing", B1) == ["1", "2"]
    assert ids("--not-missing", B1) == ["3"]
    assert ids("--missing", B1, "--not-missing", B2) == ["1"]
    assert run_in(world, "autorecovery", "list", "--count").out == "3\n"
    assert run_in(world, "autorecovery", "list", "--count", "--filter", "ledger>1").out == "2\n"
    listed = run_in(world, "autorecovery", "list", "--json").json["marks"]
    assert listed[2]["worker"] == "localhost"
    assert listed[1]["missing"] == [B1, B2]
    table = run_in(world, "autorecovery", "list").out
    assert table.splitlines()[0].split() == ["LEDGER", "MISSING", "SINCE", "WORKER"]


def test_of_many_missing_replicas_a_table_shows_some(world: World, store: MemoryMetadata) -> None:
    missing = tuple(BookieId(f"b{number:05}:3181") for number in range(3500))
    world.run(store.mark_underreplicated(LedgerId(1), missing))
    table = run_in(world, "autorecovery", "list").out
    assert "b00009:3181 and 3,490 more" in table
    assert "b00010" not in table
    assert "b03499" in run_in(world, "autorecovery", "list", "--exact").out


def test_a_cluster_without_marks_and_lost_bookies_needs_no_more_words(world: World) -> None:
    run_in(world, "autorecovery", "disable")
    quiet = run_in(world, "autorecovery", "list")
    assert quiet.err.startswith("no ledger is marked under-replicated\n")
    assert "lacks" not in quiet.err


def with_lost_bookie(
    delay_s: int = 600, *, unregister: bool = True
) -> tuple[World, BookieId, MemoryMetadata]:
    """Return a cluster with a ledger on a lost bookie, that bookie, and the auditor's session."""
    world = World(5)
    ledger_id = closed_ledger(world, world.client(), 5)
    gone = world.stored(ledger_id).ensemble[0]
    store = store_of(world)
    cookie = encode_cookie(Cookie(gone, "/j", ("/l",)))
    world.run(store.write_cookie(gone, cookie, NEW))
    world.run(store.elect(BookieId("auditor")))
    world.run(store.set_lost_bookie_recovery_delay(delay_s))
    world.kill(gone, unregister=unregister)
    return world, gone, store


UNMARKED = "1 ledger lacks replicas and is not marked yet: "


def test_a_lost_bookies_ledgers_are_counted_before_they_are_marked() -> None:
    world, gone, store = with_lost_bookie()
    told = run_in(world, "autorecovery", "list").err
    nothing, why = told.splitlines()
    assert nothing == "no ledger is marked under-replicated"
    assert why == (
        f"{UNMARKED}1 bookie is down; the auditor marks its ledgers when it has been down for 10m; "
        "`bkctl autorecovery audit` marks them now"
    )
    for_programs = run_in(world, "autorecovery", "list", "--json")
    assert (for_programs.json["marks"], for_programs.err) == ([], f"{why}\n")
    assert UNMARKED not in run_in(world, "autorecovery", "list", "--older-than", "1h").err
    world.run(store.set_lost_bookie_recovery_delay(0))
    assert f"{UNMARKED}1 bookie is down; the auditor marks its ledgers soon\n" in (
        run_in(world, "autorecovery", "list").err
    )
    world.run(store.resign())
    assert f"{UNMARKED}1 bookie is down, and no auditor is elected\n" in (
        run_in(world, "autorecovery", "list").err
    )
    run_in(world, "autorecovery", "disable")
    disabled = run_in(world, "autorecovery", "list").err
    assert f"{UNMARKED}1 bookie is down, and autorecovery is disabled\n" in disabled
    world.run(store.mark_underreplicated(LedgerId(0), (gone,)))
    assert UNMARKED not in run_in(world, "autorecovery", "list").err


def test_a_registered_bookie_that_does_not_answer_counts_as_lost() -> None:
    world, _, _ = with_lost_bookie(unregister=False)
    told = run_in(world, "autorecovery", "list", "--fail-if-any", ok=False)
    words = (
        "1 bookie does not answer; the auditor marks its ledgers when its registration has ended"
    )
    assert (told.status, f"{UNMARKED}{words}\n" in told.err) == (10, True)


def test_after_the_repair_no_ledger_is_said_to_lack_replicas() -> None:
    world, gone, _ = with_lost_bookie()
    world.run(world.client().delete_ledger(LedgerId(0)))
    told = run_in(world, "autorecovery", "list", "--fail-if-any")
    assert told.err == (
        "no ledger is marked under-replicated\n1 bookie is down, and no ledger lists it\n"
    )
    assert run_in(world, "autorecovery", "list", "--until", "done").status == 0
    assert run_in(world, "autorecovery", "list", "--missing", gone, "--until", "done").status == 0


def test_a_wait_for_the_repair_does_not_end_before_it_has_begun() -> None:
    world, gone, _ = with_lost_bookie()
    limit = ("--timeout", 1)
    for words in (
        ("list", "--until", "done"),
        ("list", "--missing", gone, "--until", "done"),
        ("status", "--until", "done"),
        ("status", "--until", "healthy"),
    ):
        early = run_in(world, "autorecovery", *words, *limit, ok=False)
        assert (early.status, "is not marked yet" in early.err) == (6, True), words
    for words in ((), ("--count",), ("--missing", gone)):
        found = run_in(world, "autorecovery", "list", "--fail-if-any", *words, ok=False)
        assert found.status == 10
        assert "1 ledger lacks replicas and is not marked" in found.err
    for words in (("--missing", "b9"), ("--not-missing", gone), ("--older-than", "1h")):
        assert run_in(world, "autorecovery", "list", "--fail-if-any", *words).status == 0
    assert run_in(world, "autorecovery", "list", "--not-missing", gone, "--until", "done").out == ""


def test_old_marks_can_be_told_from_new_ones(world: World, store: MemoryMetadata) -> None:
    world.run(store.mark_underreplicated(LedgerId(1), (B1,)))
    world.clock.advance(time.time() - world.clock.seconds())
    world.run(store.mark_underreplicated(LedgerId(2), (B1,)))
    old = "autorecovery", "list", "--older-than", "1h"
    assert run_in(world, *old, "-o", "id").out == "1\n"
    found = run_in(world, *old, "--fail-if-any", ok=False)
    assert (found.status, found.out.split()[4]) == (10, "1")
    assert "1 ledger lacks replicas" in found.err
    for more in (["--filter", "ledger=7"], ["--filter", "ledger=7", "--count"], ["--missing", B2]):
        assert run_in(world, *old, "--fail-if-any", *more).status == 0
    assert run_in(world, *old, "--fail-if-any", "--count", ok=False).status == 10


def test_no_auditor_is_status_3_with_what_starts_one(world: World, store: MemoryMetadata) -> None:
    none = run_in(world, "autorecovery", "auditor", ok=False)
    assert none.status == 3
    assert "bookied autorecovery" in none.err
    assert run_in(world, "autorecovery", "trigger", ok=False).status == 3
    world.run(store.elect(B1))
    assert run_in(world, "autorecovery", "auditor").out == f"{B1}\n"


def test_an_audit_is_asked_for_where_one_can_be_made(world: World, store: MemoryMetadata) -> None:
    world.run(store.elect(B1))
    world.run(store.set_lost_bookie_recovery_delay(60))
    assert f"auditor {B1}" in run_in(world, "autorecovery", "trigger").out
    run_in(world, "autorecovery", "disable")
    refused = run_in(world, "autorecovery", "trigger", ok=False)
    assert refused.status == 7
    assert "`bkctl autorecovery enable`" in refused.err


def test_periodic_checks_are_made_due(world: World, store: MemoryMetadata) -> None:
    said = run_in(world, "autorecovery", "trigger", "--check", "placement", "--check", "replicas")
    assert said.out.startswith("due: placement, replicas. bookied's auditor begins within a")
    off_by_default = "auditorPeriodicPlacementPolicyCheckInterval and auditorReplicasCheckInterval"
    assert f"when it starts, if {off_by_default} is above 0" in said.out
    assert set(INTERVALS) == set(CHECKS)
    status = run_in(world, "autorecovery", "status").out
    assert "placement: due" in status
    assert "21d ago" not in status
    day_ms = 86_400_000
    for check in ("placement", "replicas"):
        checked = world.run(store.check_time(check))
        assert checked is not None
        assert abs(time.time() * 1000 - 21 * day_ms - checked) < day_ms
    assert world.run(store.check_time("all-ledgers")) is None


def test_the_delay_is_shown_and_set_zero_included(world: World, store: MemoryMetadata) -> None:
    none = run_in(world, "autorecovery", "delay", ok=False)
    assert none.status == 3
    assert run_in(world, "autorecovery", "delay", "30m").out == "delay 30m\n"
    assert run_in(world, "autorecovery", "delay", "60").out == "delay 1m, was 30m\n"
    assert "looks for lost bookies now" in run_in(world, "autorecovery", "delay", "60").out
    assert run_in(world, "autorecovery", "delay").out == "delay 1m\n"
    (node,) = [path for path in world.run(store.dump()) if path.endswith("RecoveryDelay")]
    world.metadata.set(node, b"soon")
    assert run_in(world, "autorecovery", "delay", "0").out.startswith("delay 0s; ")
    assert world.run(store.lost_bookie_recovery_delay()) == 0


def test_who_disables_it_says_for_how_long_and_why_and_a_pause_without_end_is_repeated(
    world: World, store: MemoryMetadata
) -> None:
    off = run_in(world, "autorecovery", "disable", "--for", "30m", "--reason", "new disks")
    assert " by " not in off.err
    assert "disabled" not in run_in(world, "ledger", "list").err, "the pause ends by itself"
    by = rf" by {getpass.getuser()}@{socket.gethostname()}, \S+ ago, for another (30|29)m"
    assert re.search(by, run_in(world, "doctor", ok=False).out)
    shown = run_in(world, "autorecovery", "status", "--json")
    assert shown.json["pause"]["reason"] == "new disks"
    assert "(new disks)" in run_in(world, "autorecovery", "status").out
    assert "(new disks)" in run_in(world, "doctor", ok=False).out
    replaced = "this replaces the pause by "
    plan = run_in(world, "autorecovery", "disable", "--for", "15m", "--dry-run").out
    assert plan.startswith(f"would disable autorecovery for 15m; {replaced}"), plan
    assert replaced not in run_in(world, "autorecovery", "disable").err
    again = run_in(world, "autorecovery", "disable", "--reason", "more disks").err
    assert again.startswith(replaced), again
    assert again.endswith("(new disks)\n"), again
    said = run_in(world, "ledger", "list").err.splitlines()[-1]
    assert said.startswith(f"bkctl: autorecovery is disabled by {getpass.getuser()}@")
    assert said.endswith("(more disks)")
    assert "disabled" not in run_in(world, "ledger", "list", "--quiet").err
    run_in(world, "autorecovery", "enable")
    assert "disabled" not in run_in(world, "ledger", "list").err
    assert world.run(store.replication_note()) is None


def test_where_java_may_be_the_auditor_the_line_for_cron_is_shown(world: World) -> None:
    said = run_in(world, "autorecovery", "disable", "--for", "30m").err
    assert "bookied enables autorecovery again at 20" in said
    (line,) = (line for line in said.splitlines() if line.endswith(" autorecovery enable"))
    assert re.match(r"  \d+ \d+ \d+ \d+ \*  bkctl -u ", line)
    run_in(world, "autorecovery", "enable")
    assert "cron" not in run_in(world, "autorecovery", "disable").err
    assert f" by {getpass.getuser()}@" in run_in(world, "ledger", "list").err
    assert run_in(world, "autorecovery", "disable").out == "autorecovery was disabled before\n"


def test_a_pause_that_is_over_is_told_as_such(world: World, store: MemoryMetadata) -> None:
    run_in(world, "autorecovery", "disable", "--for", "1ms")
    time.sleep(0.002)
    assert "should have ended " in run_in(world, "ledger", "list").err
    world.run(store.set_replication_note(b"by hand"))
    assert run_in(world, "ledger", "list").err.endswith("autorecovery is disabled (by hand)\n")
    world.run(store.set_replication_note(b"A" * 900_000))
    assert len(run_in(world, "ledger", "list").err) < 300
    assert len(run_in(world, "autorecovery", "status").out) < 2000


def test_active_repairs_are_listed_with_their_workers(world: World, store: MemoryMetadata) -> None:
    assert "no repairs" in run_in(world, "autorecovery", "active").err
    world.run(store.acquire_lock(LedgerId(7)))
    (one,) = run_in(world, "autorecovery", "active", "--json").json["repairs"]
    assert (one["ledger_id"], one["worker"]) == ("7", "localhost")


def test_only_a_mark_that_nobody_needs_is_forgotten() -> None:
    world = World(5)
    client, store = world.client(), store_of(world)
    whole, lacking = closed_ledger(world, client, 5), closed_ledger(world, client, 5)
    open_one = open_writer(world, client, 2).ledger_id
    for ledger_id in (whole, lacking, open_one, LedgerId(99)):
        world.run(store.mark_underreplicated(ledger_id, (B1,)))
    del member(world, lacking, 1).ledgers[lacking].entries[3]
    planned = run_in(world, "autorecovery", "forget", whole, "--dry-run").out
    assert planned.startswith("would remove the mark of ledger")
    assert "every replica of every entry" in run_in(world, "autorecovery", "forget", whole).out
    assert "the ledger is deleted" in run_in(world, "autorecovery", "forget", 99).out
    unmarked = run_in(world, "autorecovery", "forget", 99, ok=False)
    assert unmarked.status == 3
    assert "ledger 99 is not marked; `bkctl autorecovery list` lists" in unmarked.err
    for ledger_id, why in ((lacking, "lacks replicas on"), (open_one, "is not closed")):
        refused = run_in(world, "autorecovery", "forget", ledger_id, ok=False)
        assert (refused.status, why in refused.err) == (7, True)
    assert run_in(world, "autorecovery", "forget", whole, ok=False).status == 3
    assert set(marks(world)) == {lacking, open_one}
    assert world.run(store.repair_locks()) == []
    world.run(store.acquire_lock(lacking))
    taken = run_in(world, "autorecovery", "forget", lacking, ok=False)
    assert "is locked by a worker" in taken.err


def _spoil_mark(world: World, ledger_id: LedgerId) -> None:
    world.run(store_of(world).mark_underreplicated(ledger_id, (B1,)))
    world.metadata.set(zk_paths.mark(ledger_id), b"\xffnonsense")


def test_a_damaged_mark_that_nobody_needs_is_forgotten_as_any() -> None:
    world = World(5)
    whole, other = (closed_ledger(world, world.client(), 5) for _ in range(2))
    for ledger_id in (whole, LedgerId(99)):
        _spoil_mark(world, ledger_id)
    world.run(store_of(world).mark_underreplicated(other, (B1,)))
    assert "every replica of every entry" in run_in(world, "autorecovery", "forget", whole).out
    assert "the ledger is deleted" in run_in(world, "autorecovery", "forget", 99).out
    assert set(marks(world)) == {other}


def test_a_damaged_mark_is_replaced_by_what_is_seen_to_be_lacking_if_so_told() -> None:
    world = World(5)
    lacking = closed_ledger(world, world.client(), 5)
    open_one = open_writer(world, world.client(), 2).ledger_id
    thin = member(world, lacking, 1)
    del thin.ledgers[lacking].entries[3]
    for ledger_id in (lacking, open_one):
        _spoil_mark(world, ledger_id)
        refused = run_in(world, "autorecovery", "forget", ledger_id, ok=False)
        assert (refused.status, "--force damaged-mark" in refused.err) == (4, True)
        assert f"the mark of ledger {ledger_id}: " in refused.err
    forced = ("autorecovery", "forget", lacking, "--force", "damaged-mark")
    assert "replace it with a mark" in run_in(world, *forced, "--dry-run").out
    assert run_in(world, *forced, ok=False).status == 4  # Nobody can be asked.
    told = run_in(world, *forced, "--yes").out
    assert f"the ledger lacks replicas on {thin.bookie_id}" in told
    open_forced = ("autorecovery", "forget", open_one, *forced[3:], "--yes")
    assert "no replica was found missing" in run_in(world, *open_forced).out
    assert marks(world) == {lacking: (thin.bookie_id,)}
    assert world.run(store_of(world).repair_locks()) == []


def test_a_mark_that_can_be_read_needs_more_than_force_to_go() -> None:
    world = World(5)
    ledger_id = open_writer(world, world.client(), 2).ledger_id
    world.run(store_of(world).mark_underreplicated(ledger_id, (B1,)))
    forced = ("autorecovery", "forget", ledger_id, "--force", "damaged-mark", "--yes")
    refused = run_in(world, *forced, ok=False)
    assert (refused.status, "is not closed" in refused.err) == (7, True)
    assert set(marks(world)) == {ledger_id}


def test_marks_are_listed_with_what_their_ledgers_wait_for() -> None:
    world = World(5)
    ledger_id = closed_ledger(world, world.client(), 5)
    gone = world.stored(ledger_id).ensemble[0]
    world.kill(gone)
    world.run(store_of(world).mark_underreplicated(ledger_id, (gone,)))
    (one,) = run_in(world, "autorecovery", "list", "--detail", "--json").json["ledgers"]
    assert (one["prospect"], one["size"], one["state"]) == ("waiting", 35, "closed")
    assert one["why"] == "it waits for a worker"


def test_an_audit_is_waited_for_until_all_that_is_lost_is_marked() -> None:
    world = World(5)
    ledger_id = closed_ledger(world, world.client(), 5)
    gone = world.stored(ledger_id).ensemble[0]
    store = store_of(world)
    world.run(store.elect(B2))
    world.run(store.set_lost_bookie_recovery_delay(0))
    world.kill(gone)
    world.settle()
    world.clock.callLater(
        5,
        lambda: Deferred.fromCoroutine(store.mark_underreplicated(ledger_id, (gone,))),
    )
    said = run_in(world, "autorecovery", "audit", "--wait")
    assert said.out.startswith(f"audited by {B2} in ")
    assert ": 1 ledger marked; `bkctl autorecovery list` lists the ledgers that" in said.out
    assert set(marks(world)) == {ledger_id}
    nothing = run_in(world, "autorecovery", "audit", "--wait", "--json").json
    assert (nothing["marked"], nothing["took_s"]) == (0, 0)
    assert "would have the auditor" in run_in(world, "autorecovery", "audit", "--dry-run").out
    assert f"asked the auditor {B2}" in run_in(world, "autorecovery", "audit").out


def test_marks_that_workers_remove_during_an_audit_are_counted() -> None:
    world, gone, store = with_lost_bookie(0)
    more = closed_ledger(world, world.client(), 5)

    async def mark_and_repair() -> None:
        await store.mark_underreplicated(LedgerId(0), (gone,))
        await world.client().delete_ledger(LedgerId(0))
        assert await store.take_underreplicated(LedgerId(0))
        await store.mark_replicated(LedgerId(0))

    world.clock.callLater(5, lambda: Deferred.fromCoroutine(mark_and_repair()))
    assert gone not in world.stored(more).all_bookies()
    said = run_in(world, "autorecovery", "audit", "--wait")
    assert ": 1 ledger marked; `bkctl autorecovery list` lists the ledgers that" in said.out
    assert marks(world) == {}


def test_a_periodic_check_is_waited_for_until_its_time_is_stored() -> None:
    world = World(3)
    store = store_of(world)
    world.run(store.elect(B2))
    world.clock.callLater(
        5, lambda: Deferred.fromCoroutine(store.set_check_time("replicas", 10**12))
    )
    words = ("autorecovery", "audit", "--full", "replicas", "--wait", "--json")
    said = run_in(world, *words)
    assert "--timeout limits the wait" in said.err
    assert (said.json["auditor"], said.json["checks"]) == (B2, ["replicas"])
    assert said.json["took_s"] >= 5
    run_in(world, "autorecovery", "disable")
    refused = run_in(world, *words, ok=False)
    assert (refused.status, "no auditor checks anything" in refused.err) == (7, True)
    assert world.run(store.check_time("replicas")) == 10**12
