"""`recover` and `decommission` on a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar

import attrs
import pytest
from twisted.internet.defer import Deferred

from bkclient.metadata import zk_paths
from bkclient.metadata.versions_and_watches import NEW
from bkclient.replication.decommission import DecommissionProgress, decommission
from bkclient.replication.recover_bookies import recover_bookies
from bkclient.replication.repair_states import RepairState
from bkctl.commands.bookie.retire.worker_copies import MoveProgress, increase, latest
from bkctl.output.progress import Progress
from tests.bkclient.replication_world import (
    STRIPED,
    TRIPLE,
    check_whole,
    closed_ledger,
    has_cookie,
    marks,
    open_writer,
    payloads,
    store_of,
)
from tests.bkclient.worlds import World
from tests.bkctl.support.world import run_in
from wire.ids import BookieId, LedgerId
from wire.records.cookie import Cookie, encode_cookie

B1, B2 = BookieId("b1"), BookieId("b2")


def lost(world: World, *, entries: int = 10) -> LedgerId:
    """Return a ledger with entries on a bookie that is down and has a cookie."""
    client = world.client()
    while True:
        ledger_id = closed_ledger(world, client, entries, **STRIPED)
        if B2 in world.stored(ledger_id).all_bookies():
            break
        world.run(client.delete_ledger(ledger_id))
    store = store_of(world)
    world.run(store.write_cookie(B2, encode_cookie(Cookie(B2, "/j", ("/l",))), NEW))
    world.kill("b2")
    return ledger_id


async def racks(hosts: Sequence[str]) -> str:
    """Put b1 and b4 into one rack, all others into another."""
    return " ".join("/one" if host in {"host-b1", "host-b4"} else "/two" for host in hosts)


def spread_ledger(world: World) -> LedgerId:
    """Return a ledger on b1 and b2, which are in two racks."""
    return ledger_on(world, {B1, B2}, topology_script=racks)


def ledger_on(world: World, bookies: AbstractSet[BookieId], **settings: Any) -> LedgerId:
    """Return a ledger on these two bookies."""
    client = world.client(**settings)
    while True:
        pair = {"ensemble_size": 2, "write_quorum": 2, "ack_quorum": 2}
        ledger_id = closed_ledger(world, client, 5, **pair)
        if world.stored(ledger_id).all_bookies() == bookies:
            return ledger_id
        world.run(client.delete_ledger(ledger_id))


MOVE = "move 1 ledger: 6 copies of entries, about 42 B of payload"


class TestRacks:
    @pytest.mark.parametrize("command", ["recover", "decommission"])
    def test_ledgers_that_will_span_too_few_racks_are_told_before(self, command) -> None:
        world = World(4)
        ledger_id = spread_ledger(world)
        world.kill("b2")
        fine = run_in(world, command, "b2", "--dry-run", topology_script=racks)
        assert "rack" not in fine.err
        world.kill("b3")
        told = run_in(world, command, "b2", "--dry-run", topology_script=racks)
        words = "1 ledger spans fewer racks than minNumRacksPerWriteQuorum asks for, after the move"
        assert f"{words}: {ledger_id}" in told.err
        assert "rack" not in run_in(world, command, "b2", "--dry-run").err

    def test_ledgers_that_span_too_few_racks_before_the_move_are_counted(self) -> None:
        world = World(5)
        ledger_ids = spread_ledger(world), ledger_on(world, {B2, BookieId("b3")})
        world.kill("b4")
        told = run_in(world, "recover", "b1", "b3", "--dry-run", topology_script=racks)
        words = "1 ledger spans fewer racks than minNumRacksPerWriteQuorum asks for, "
        assert f"{words}after the move: {ledger_ids[0]}\n" in told.err
        assert f"{words}before and after the move: {ledger_ids[1]}\n" in told.err

    def test_the_mark_of_a_ledger_that_was_moved_goes_with_its_reason(self) -> None:
        world = World(4)
        ledger_id = lost(world)
        other = closed_ledger(world, world.client(), **STRIPED)
        store = store_of(world)
        world.run(store.mark_underreplicated(ledger_id, (B2,)))
        world.run(store.mark_underreplicated(other, (BookieId("b3"),)))
        run_in(world, "recover", "b2", "--dry-run")
        assert {*marks(world)} == {ledger_id, other}
        told = run_in(world, "recover", "b2", "--yes").err
        assert "1 ledger is not marked for repair any more\n" in told
        assert {*marks(world)} == {other}

    def test_where_racks_are_enforced_nobody_would_ever_take_its_place(self) -> None:
        world = World(4)
        ledger_id = spread_ledger(world)
        for name in ("b2", "b3"):
            world.kill(name)
        strict = {"topology_script": racks, "enforce_racks": True}
        refused = run_in(world, "decommission", "b2", "--yes", ok=False, **strict)
        assert (refused.status, "--force few-racks" in refused.err) == (4, True)
        assert f"1 ledger cannot be moved ({ledger_id}): no bookie can" in refused.err
        assert "enforceMinNumRacksPerWriteQuorum" in refused.err
        assert marks(world) == {}

    def test_ledgers_that_span_too_few_racks_are_told_afterwards(self) -> None:
        world = World(4)
        ledger_id = spread_ledger(world)
        for name in ("b2", "b3"):
            world.kill(name)
        done = run_in(world, "recover", "b2", "--yes", topology_script=racks)
        words = "1 ledger spans fewer racks than minNumRacksPerWriteQuorum asks for: "
        assert f"{words}{ledger_id}" in done.err
        assert world.stored(ledger_id).all_bookies() == {B1, BookieId("b4")}

    def test_copies_go_to_the_rack_that_was_left(self) -> None:
        world = World(4)
        ledger_id = spread_ledger(world)
        world.kill("b2")
        done = run_in(world, "recover", "b2", "--yes", topology_script=racks)
        assert "rack" not in done.err
        assert world.stored(ledger_id).all_bookies() == {B1, BookieId("b3")}


class TestZones:
    settings: ClassVar[dict[str, Any]] = {
        "placement_policy": "org.apache.bookkeeper.client.ZoneawareEnsemblePlacementPolicy"
    }

    @staticmethod
    async def script(hosts: Sequence[str]) -> str:
        """Put b1 to b3 into one zone, all others into another, each into its own domain."""
        return " ".join(f"/{'one' if host[-1] in '123' else 'two'}/{host[-1]}" for host in hosts)

    def ledger(self, world: World) -> LedgerId:
        """Return a ledger on b1, b2 and b4."""
        client = world.client(topology_script=self.script, **self.settings)
        while True:
            sizes = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}
            ledger_id = closed_ledger(world, client, 5, **sizes)
            if world.stored(ledger_id).all_bookies() == {B1, B2, BookieId("b4")}:
                return ledger_id
            world.run(client.delete_ledger(ledger_id))

    def test_where_zones_are_enforced_nobody_would_ever_take_its_place(self) -> None:
        world = World(4)
        ledger_id = self.ledger(world)
        world.kill("b4")
        strict = {"topology_script": self.script, **self.settings}
        refused = run_in(world, "decommission", "b4", "--yes", ok=False, **strict)
        assert refused.status == 4
        assert f"1 ledger cannot be moved ({ledger_id}): no bookie can" in refused.err
        assert "start a bookie in another zone" in refused.err

    def test_ledgers_that_will_span_too_few_zones_are_told_before(self) -> None:
        world = World(4)
        ledger_id = self.ledger(world)
        world.kill("b4")
        lax = {"topology_script": self.script, "enforce_zones": False, **self.settings}
        told = run_in(world, "recover", "b4", "--dry-run", **lax)
        words = (
            "1 ledger spans fewer zones than minNumZonesPerWriteQuorum asks for, or one upgrade "
        )
        assert f"{words}domain of a zone, before and after the move: {ledger_id}" in told.err


class TestRecover:
    def test_what_a_lost_bookie_held_is_copied_to_others(self) -> None:
        world = World(5)
        ledger_id = lost(world)
        asked = run_in(world, "recover", "b2", typed="n\n", tty=True, ok=False)
        assert (asked.status, "1 ledger will move away from b2" in asked.err) == (4, True)
        said = run_in(world, "bookie", "recover", "b2", typed="y\n", tty=True)
        assert said.out.startswith("moved 1 ledger: ")
        check_whole(world, ledger_id, payloads(10))
        assert has_cookie(world, "b2")
        assert run_in(world, "recover", "b2").out == "no ledger was left to move\n"

    def test_the_progress_has_entries_and_bytes(self) -> None:
        world = World(5)
        lost(world)
        said = run_in(world, "recover", "b2", "--yes", "--progress", "jsonl")
        steps = [json.loads(line) for line in said.err.splitlines() if line.startswith("{")]
        assert steps[-1]["unit"] == "bytes"
        assert steps[-1]["done"] == steps[-1]["total"] == 42, "of payload, as the plan has it"
        assert steps[-1]["items"] == 6
        assert said.out.startswith("moved 1 ledger: 6 copies of entries, 42 B")

    def test_a_number_was_meant_for_a_ledger(self) -> None:
        refused = run_in(World(3), "bookie", "recover", "42", ok=False)
        assert refused.status == 3
        assert "`bkctl ledger recover 42`" in refused.err

    def test_a_query_and_a_plan_change_nothing(self) -> None:
        world = World(5)
        ledger_id = lost(world)
        before = world.stored(ledger_id)
        assert run_in(world, "recover", "b2", "--query", "-o", "id").out == f"{ledger_id}\n"
        planned = run_in(world, "recover", "b2", "--dry-run")
        assert planned.out.startswith(f"would move ledger {ledger_id}\n  0-9: b2 -> b")
        assert world.stored(ledger_id) == before
        assert run_in(world, "recover", "b3", "--query", "--ledger", ledger_id).status == 0

    def test_a_query_for_a_bookie_that_nothing_knows_says_so(self) -> None:
        world = World(5)
        ledger_id = lost(world)
        unknown = run_in(world, "recover", "b22", "--query", ok=False)
        assert (unknown.status, unknown.out) == (3, "")
        assert "there is no bookie b22: " in unknown.err
        assert "did you mean" not in unknown.err  # A healthy bookie is no suggestion here.
        both = run_in(world, "recover", "b2", "x9", "--query", "-o", "id", ok=False)
        assert (both.status, both.out) == (3, f"{ledger_id}\n")
        assert "there is no bookie x9: " in both.err
        nowhere = run_in(world, "recover", "b2", "--query", "--ledger", 987, ok=False)
        assert nowhere.status == 3

    def test_where_nobody_can_take_over_the_plan_says_so(self) -> None:
        world = World(3)
        lost(world)
        assert "no other bookie can take over" in run_in(world, "recover", "b2", "--dry-run").out
        failed = run_in(world, "recover", "b2", "--yes", ok=False)
        assert failed.status == 8
        assert "warning: ledger" in failed.err

    def test_it_goes_on_behind_a_ledger_that_cannot_be_moved_and_names_it(self) -> None:
        world = World(5)
        single = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
        client = world.client()
        while world.stored(only_there := closed_ledger(world, client, 3, **single)).ensemble != (
            B2,
        ):
            world.run(client.delete_ledger(only_there))
        other = lost(world)
        assert only_there < other
        words = ("recover", "b2", "--yes", "--concurrency", 1)
        ended = run_in(world, *words, "--stop-at-unrecoverable", ok=False)
        assert ended.status == 1
        assert "2 of 2 ledgers are left" in ended.err
        assert "--skip-unrecoverable continues after" in ended.err
        assert B2 in world.stored(other).all_bookies()
        failed = run_in(world, *words, ok=False)
        assert failed.status == 8
        assert f"warning: ledger {only_there}: " in failed.err
        assert f"ledger {only_there} was not moved; " in failed.err
        check_whole(world, other, payloads(10))
        assert run_in(world, *words, "--skip-unrecoverable", ok=False).status == 8

    def test_a_plan_tells_how_much_there_is_to_do(self) -> None:
        world = World(5)
        ledger_id = lost(world)
        planned = run_in(world, "recover", "b2", "--plan", "--json")
        (one,) = planned.json["ledgers"]
        assert (one["ledger_id"], one["fenced"], one["unrecoverable"]) == (
            str(ledger_id), False, False,
        )  # fmt: skip
        assert one["size"] == one["copies"] * 7
        assert "1 ledger, 1 fragment, 6 copies, about 42 B" in planned.err
        asked = run_in(world, "recover", "b2", typed="n\n", tty=True, ok=False)
        assert "1 ledger will move away from b2: 1 fragment, about 42 B to copy." in asked.err

    def test_everything_goes_to_the_one_bookie_that_is_named(self) -> None:
        world = World(4)
        ledger_id = lost(world)
        (spare,) = {"b1", "b3", "b4"} - set(world.stored(ledger_id).ensemble)
        nobody = run_in(world, "recover", "b2", "--to", "b9", "--yes", ok=False)
        assert (nobody.status, "is not writable" in nobody.err) == (3, True)
        run_in(world, "recover", "b2", "--to", spare, "--concurrency", "2", "--yes")
        assert spare in check_whole(world, ledger_id, payloads(10)).all_bookies()
        again = run_in(world, "recover", "b2", "--ledger", ledger_id, "--to", spare, "--yes")
        assert f"no fragment of ledger {ledger_id} lists b2: its entries are on" in again.err

    def test_a_plan_to_write_copies_again_counts_the_entries_that_are_lost(self) -> None:
        world = World(3)
        ledger_id = closed_ledger(world, world.client(), 10, **TRIPLE)
        for bookie in world.bookies.values():
            del bookie.ledgers[ledger_id].entries[4]
        del world[BookieId("b2")].ledgers[ledger_id].entries[6]
        plan = run_in(world, "bookie", "recover", "b2", "--to", "b2", "--dry-run").out
        assert f"ledger {ledger_id}, 2 entries: 4, 6; 1 entry of the ledger cannot be" in plan

    def test_all_ledgers_that_are_named_are_moved(self) -> None:
        world = World(4)
        client = world.client()
        sizes = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
        ids = [closed_ledger(world, client, 4, **sizes) for _ in range(12)]
        on_b2 = [one for one in ids if "b2" in world.stored(one).all_bookies()]
        first, second, *others = on_b2
        words = ("recover", "b2", "--ledger", second, "--ledger", first)
        asked = run_in(world, *words, "--query", "-o", "id").out.split()
        assert asked == [str(first), str(second)]
        assert run_in(world, *words, "--ledger", 99, "--yes", ok=False).status == 3
        assert "moved 2 ledgers" in run_in(world, *words, "--yes").out
        left = [one for one in on_b2 if "b2" in world.stored(one).all_bookies()]
        assert left == others

    def test_the_cookie_goes_last_and_wants_the_bookies_id(self) -> None:
        world = World(5)
        lost(world)
        wrong = run_in(world, "recover", "b2", "--delete-cookie", typed="y\n", tty=True, ok=False)
        assert (wrong.status, has_cookie(world, "b2")) == (4, True)
        run_in(world, "recover", "b2", "--delete-cookie", typed="b2\n", tty=True)
        assert not has_cookie(world, "b2")

    def test_the_cookie_stays_where_a_ledger_is_left_and_the_report_is_shown(self) -> None:
        world = World(3)
        ledger_id = lost(world)
        words = ("recover", "b2", "--delete-cookie", "--yes")
        failed = run_in(world, *words, ok=False)
        assert (failed.status, has_cookie(world, "b2")) == (8, True)
        assert failed.out.startswith("moved 0 ledgers")
        assert f"ledger {ledger_id} was not moved; the cookies stay; " in failed.err
        whole = run_in(world, *words, "-o", "json", ok=False).json
        assert whole["cookies_deleted"] == []

    def test_a_writer_is_not_fenced_unasked(self) -> None:
        world = World(5)
        client = world.client()
        writer = open_writer(world, client, 5, **STRIPED)
        gone = world.stored(writer.ledger_id).ensemble[0]
        asked = run_in(world, "recover", gone, typed="n\n", tty=True, ok=False)
        assert "may have a writer, which is fenced" in asked.err
        assert f"{gone} is running and will be asked where these ledgers end. Stop" in asked.err
        spared = run_in(world, "recover", gone, "--skip-open", "--yes", ok=False)
        assert spared.status == 8
        assert (
            f"ledger {writer.ledger_id}: skipped: it is open, and its writer is not fenced"
            in spared.err
        )
        assert gone in world.stored(writer.ledger_id).all_bookies()

    def test_a_number_is_a_ledger_and_anything_else_a_bookie(self) -> None:
        world = World(3)
        writer = open_writer(world, world.client(), 3)
        said = run_in(world, "recover", writer.ledger_id, "--yes")
        assert said.out.startswith(f"ledger {writer.ledger_id} recovered and closed")
        mixed = run_in(world, "recover", writer.ledger_id, "b2", ok=False)
        assert (mixed.status, "`bkctl ledger recover --help`" in mixed.err) == (2, True)


class TestDecommission:
    def test_it_waits_until_the_workers_have_moved_everything(self) -> None:
        world = World(5)
        ledger_id = lost(world)
        worker = world.client()
        world.clock.callLater(
            10, lambda: Deferred.fromCoroutine(recover_bookies(worker, [B2])).addErrback(print)
        )
        began_s = world.clock.seconds()
        said = run_in(world, "decommission", "b2", typed="b2\n", tty=True)
        assert said.out == "bookie b2 is decommissioned: 1 ledger moved, its cookie deleted\n"
        assert "waiting for the workers to move 1 ledger" in said.err
        assert "no auditor is elected" in said.err
        assert world.clock.seconds() - began_s >= 10
        check_whole(world, ledger_id, payloads(10))
        assert not has_cookie(world, "b2")

    def test_a_mark_that_cannot_be_read_is_told_with_what_mends_it_and_stops_nothing(self) -> None:
        world = World(5)
        ledger_id = lost(world)
        store = store_of(world)
        world.run(store.mark_underreplicated(ledger_id, (B2,)))
        world.metadata.set(zk_paths.mark(ledger_id), b"\xffnonsense")
        told = f"the mark of ledger {ledger_id}: "
        for words in (["bookie", "decommission-status", "b2"], ["cluster", "info"]):
            assert run_in(world, *words).status == 0
        assert told in run_in(world, "bookie", "decommission-status", "b2").err
        worker = world.client()
        world.clock.callLater(
            10, lambda: Deferred.fromCoroutine(recover_bookies(worker, [B2])).addErrback(print)
        )
        said = run_in(world, "decommission", "b2", "--yes", "--force", "others-lost")
        assert "b2 is decommissioned: 1 ledger moved" in said.out
        assert said.err.count(told) == 1
        assert f"bkctl autorecovery forget {ledger_id}" in " ".join(said.err.split())
        check_whole(world, ledger_id, payloads(10))

    def test_cancelling_goes_on_behind_a_mark_that_cannot_be_read(self) -> None:
        world = World(5)
        ledger_id, spoilt = lost(world), LedgerId(0)
        for one in (ledger_id, spoilt):
            world.run(store_of(world).mark_underreplicated(one, (B2,)))
        world.metadata.set(zk_paths.mark(spoilt), b"\xffnonsense")
        world.restart("b2")
        said = run_in(world, "decommission", "b2", "--cancel")
        assert said.out == "decommission of b2 cancelled, 1 mark removed: the bookie is writable\n"
        assert f"the mark of ledger {spoilt}: " in said.err

    def test_it_wants_the_bookies_id_and_shows_what_goes(self) -> None:
        world = World(5)
        lost(world)
        wrong = run_in(world, "decommission", "b2", typed="y\n", tty=True, ok=False)
        assert wrong.status == 4
        assert "move 1 ledger" in wrong.err
        planned = run_in(world, "bookie", "decommission", "b2", "--dry-run").out
        assert planned == f"would {MOVE}\nwould remove the cookie of b2\n"
        assert has_cookie(world, "b2")

    def test_it_does_not_begin_what_cannot_end(self) -> None:
        world = World(3)
        lost(world)
        few = run_in(world, "decommission", "b2", "--yes", ok=False)
        assert (few.status, "--force too-few-bookies" in few.err) == (4, True)
        run_in(world, "autorecovery", "disable")
        off = run_in(world, "decommission", "b2", "--yes", ok=False)
        assert (off.status, "`bkctl autorecovery enable`" in off.err) == (4, True)

    def test_what_makes_no_progress_is_told_with_the_reason_and_a_time_limit_resumes(self) -> None:
        world = World(4)
        ledger_id = lost(world)
        spare = {"b1", "b3", "b4"} - set(world.stored(ledger_id).ensemble)
        progress: list[DecommissionProgress] = []
        running = world.start(decommission(world.client(), B2, progress.append))
        world.turn_read_only(spare.pop())
        world.settle(200)
        assert not running.done
        stuck = [one for step in progress for one in step.stuck]
        assert {(one.ledger_id, one.repair_state) for one in stuck} == {
            (ledger_id, RepairState.TOO_FEW)
        }
        assert len(stuck) >= 2

    def test_what_a_worker_holds_for_long_is_a_note_with_when_it_is_tried_again(
        self,
    ) -> None:
        world = World(5)
        ledger_id = lost(world)
        worker = world.client()
        world.run(worker.store.acquire_lock(ledger_id))

        async def repair() -> None:
            await worker.store.release_lock(ledger_id)
            await recover_bookies(worker, [B2])

        world.clock.callLater(100, lambda: Deferred.fromCoroutine(repair()).addErrback(print))
        said = run_in(world, "decommission", "b2", "--yes")
        assert "no progress" not in said.err, "the worker may be copying"
        (stuck,) = [line for line in said.err.splitlines() if "no ledger ended" in line]
        assert f"ledger {ledger_id}: a worker holds its lock: it copies the ledger, or" in stuck
        assert "is tried again within lockReleaseOfFailedLedgerGracePeriod (5m by default)" in stuck
        assert "has held the lock for " in stuck

    def test_a_rate_is_for_what_is_copied_from_here(self) -> None:
        refused = run_in(World(3), "decommission", "b2", "--rate", "1MB", ok=False)
        assert (refused.status, "--rate is for --drain" in refused.err) == (2, True)
        assert "replicationRateByBytes" in refused.err

    def test_its_cookie_can_stay(self) -> None:
        world = World(5)
        lost(world)
        world.run(recover_bookies(world.client(), [B2]))
        kept = run_in(world, "decommission", "b2", "--keep-cookie", "--yes")
        assert (
            kept.out
            == "bookie b2 is decommissioned: no ledger was left to move, no cookie deleted\n"
        )
        assert has_cookie(world, "b2")
        empty = run_in(world, "bookie", "decommission-status", "b2").out
        assert empty == "bookie b2 is empty and down; it has a cookie\n"
        assert run_in(world, "bookie", "decommission-status", "b2", "--detail").out == empty
        run_in(world, "decommission", "b2", "--yes")
        assert "b2 is decommissioned" in run_in(world, "bookie", "decommission-status", "b2").out

    def test_its_status_warns_of_an_id_that_may_be_mistyped(self) -> None:
        found = run_in(World(5), "bookie", "decommission-status", "bb3")
        assert "bb3 is decommissioned, or never was in this cluster" in found.out
        assert "nothing in the cluster has the id bb3; did you mean b3?" in found.err

    def test_its_status_says_what_is_left_and_why(self) -> None:
        world = World(5)
        ledger_id = lost(world)
        store = store_of(world)
        world.run(store.mark_underreplicated(ledger_id, (B2,)))
        world.run(store.acquire_lock(ledger_id))
        found = run_in(world, "bookie", "decommission-status", "b2", "--json").json
        told = {key: found[key] for key in ("ledgers", "marked", "being_repaired", "size", "out")}
        assert told == {"ledgers": 1, "marked": 1, "being_repaired": 1, "size": 42, "out": False}
        said = run_in(world, "bookie", "decommission-status", "b2").out
        assert said.startswith("bookie b2 is down and has 1 ledger, all closed, about 42 B")
        (one,) = run_in(world, "bookie", "decommission-status", "b2", "--detail", "--json").json[
            "ledgers"
        ]
        assert (one["ledger_id"], one["prospect"]) == (str(ledger_id), "being repaired")

    def test_it_is_cancelled_only_for_a_bookie_that_runs_again(self) -> None:
        world = World(5)
        alone, both = lost(world), LedgerId(77)
        store = store_of(world)
        world.run(store.mark_underreplicated(alone, (B2,)))
        world.run(store.mark_underreplicated(both, (B2, BookieId("b3"))))
        down = run_in(world, "decommission", "b2", "--cancel", ok=False)
        assert (down.status, "so its ledgers lack replicas" in down.err) == (4, True)
        world.restart("b2")
        planned = run_in(world, "decommission", "b2", "--cancel", "--dry-run").out
        assert planned == "would remove the marks that name only b2\n"
        said = run_in(world, "decommission", "b2", "--cancel").out
        assert said == "decommission of b2 cancelled, 1 mark removed: the bookie is writable\n"
        assert set(marks(world)) == {both}
        mixed = run_in(world, "decommission", "b2", "--cancel", "--keep-cookie", ok=False)
        assert mixed.status == 2

    def test_cancelling_leaves_the_marks_of_what_the_bookie_has_really_lost(self) -> None:
        world = World(5)
        ledger_id = lost(world)
        world.run(store_of(world).mark_underreplicated(ledger_id, (B2,)))
        world.restart("b2")
        world.bookies[B2].ledgers[ledger_id].entries.clear()
        said = run_in(world, "decommission", "b2", "--cancel")
        assert said.out == "decommission of b2 cancelled: the bookie is writable\n"
        assert f"these ledgers keep their marks: {ledger_id}\n" in said.err
        assert set(marks(world)) == {ledger_id}
        assert world.run(store_of(world).repair_locks()) == []

    def test_draining_what_runs_is_planned_like_taking_out_what_does_not(self) -> None:
        world = World(5)
        lost(world)
        world.restart("b2")
        planned = run_in(world, "decommission", "b2", "--drain", "--dry-run", ok=False)
        assert planned.out == f"would make b2 read-only, with its admin token\nwould {MOVE}\n"
        assert (planned.status, "no HTTP server" in planned.err) == (4, True)
        nowhere = run_in(world, "decommission", "b2", "--drain", "--yes", ok=False)
        assert (nowhere.status, "no HTTP server" in nowhere.err) == (3, True)

    def test_a_plan_to_drain_names_the_ledgers_that_no_free_bookie_can_take(self) -> None:
        world = World(3)
        ledger_id = lost(world)
        world.restart("b2")
        drain = ("decommission", "b2", "--drain", "--dry-run", "--force", "too-few-bookies")
        planned = run_in(world, *drain, ok=False).out
        assert "would move 0 ledgers: 0 copies of entries" in planned
        assert f"would leave 1 ledger there, for no bookie is free: {ledger_id}\n" in planned

    def test_it_does_not_begin_while_another_loss_is_being_repaired(self) -> None:
        world = World(5)
        lost(world)
        world.run(store_of(world).mark_underreplicated(LedgerId(9), (BookieId("b3"),)))
        refused = run_in(world, "decommission", "b2", "--yes", ok=False)
        assert (refused.status, "--force others-lost" in refused.err) == (4, True)
        assert "bkctl autorecovery forget" in refused.err

    def test_what_nobody_else_has_is_told_before_it_is_waited_for(self) -> None:
        world = World(3)
        ledger_id = world.run(world.client().create_ledger(
            ensemble_size=3, write_quorum=1, ack_quorum=1
        )).ledger_id  # fmt: skip
        world.kill("b2")
        refused = run_in(
            world, "decommission", "b2", "--yes", "--force", "too-few-bookies", ok=False
        )
        assert (refused.status, "--force only-copies" in refused.err) == (4, True)
        assert f"cannot be moved: {ledger_id};" in refused.err
        assert marks(world) == {}

    def test_the_others_need_room_for_what_it_holds(self) -> None:
        world = World(5)  # Each of these bookies says that it has 400 bytes left.
        lost(world, entries=400)
        refused = run_in(world, "decommission", "b2", "--yes", ok=False)
        assert (refused.status, "--force too-little-space" in refused.err) == (4, True)
        planned = run_in(world, "decommission", "b2", "--dry-run", ok=False)
        assert "refused without --force too-little-space" in planned.err
        assert planned.status == refused.status, "a script takes 0 for a permission"
        assert "would move " in planned.out

    @pytest.mark.parametrize("command", ["decommission", "recover"])
    def test_an_id_that_nothing_has_is_no_bookie_that_is_out(self, command: str) -> None:
        world = World(5)
        lost(world)
        unknown = run_in(world, command, "b22", "--yes", ok=False)
        assert (unknown.status, unknown.out) == (3, "")
        assert "there is no bookie b22: " in unknown.err
        assert "did you mean" not in unknown.err  # A healthy bookie is no suggestion here.

    def test_a_ledger_that_is_not_there_is_not_taken_for_moved(self) -> None:
        world = World(5)
        lost(world)
        assert run_in(world, "recover", "b2", "--ledger", 99, "--yes", ok=False).status == 3

    @pytest.mark.parametrize("command", ["decommission", "recover"])
    def test_a_bookie_that_runs_keeps_its_cookie(self, command: str) -> None:
        world = World(5)
        lost(world)
        world.restart("b2")
        more = ["--delete-cookie"] if command == "recover" else []
        for how in ("--yes", "--dry-run"):
            refused = run_in(world, command, "b2", how, *more, ok=False)
            assert (refused.status, "it runs" in refused.err) == (4, True)
        assert ("bkctl decommission b2 --drain" in refused.err) == (command == "decommission")
        assert has_cookie(world, "b2")

    def test_a_bookie_that_runs_and_is_empty_has_only_to_be_stopped(self) -> None:
        world = World(3)
        refused = run_in(world, "decommission", "b2", "--yes", ok=False)
        assert refused.status == 4
        assert refused.err.startswith("bkctl: b2 is registered: it runs; stop the bookie first")
        assert "--drain" not in refused.err


class TestUnreadable:
    """One ledger's metadata cannot be read."""

    def damaged(self, world: World) -> tuple[LedgerId, LedgerId]:
        """Return a ledger on a lost bookie, and one that cannot be read."""
        good = lost(world)
        bad = closed_ledger(world, world.client(), 3)
        world.metadata.set(zk_paths.LAYOUTS["hierarchical"].path_of(bad), b"no metadata")
        return good, bad

    def test_the_others_are_recovered_and_it_is_named(self) -> None:
        world = World(5)
        good, bad = self.damaged(world)
        ended = run_in(world, "recover", "b2", "--yes", ok=False)
        assert ended.status == 8
        assert B2 not in world.stored(good).all_bookies()
        assert f"ledger {bad} was not moved" in ended.err
        assert ended.err.count(f"ledger {bad}:") == 1
        listed = run_in(world, "recover", "b1", "--query", ok=False)
        assert (listed.status, f"ledger {bad}: " in listed.err) == (8, True)
        assert run_in(world, "recover", "b1", "--ledger", bad, ok=False).status not in {0, 8}

    def test_it_can_be_deleted_by_force(self) -> None:
        world = World(5)
        good, bad = self.damaged(world)
        refused = run_in(world, "ledger", "delete", bad, good, "--yes", ok=False)
        assert (refused.status, "unknown" in refused.err) == (4, True)
        force = ("--force", "open-ledgers")
        planned = run_in(world, "ledger", "delete", bad, "--dry-run", *force)
        assert "unreadable metadata" in planned.out + planned.err
        done = run_in(world, "ledger", "delete", bad, "--yes", *force)
        assert f"ledger {bad} deleted" in done.out
        assert run_in(world, "ledger", "delete", bad, "--yes", ok=False).status == 3
        assert world.stored(good).is_closed


def test_the_copies_of_workers_count_between_two_moved_ledgers() -> None:
    shown: list[tuple[int, int | None]] = []

    class Shown(Progress):
        def update(self, done: int, items: int | None = None, *_: object, **__: object) -> None:
            shown.append((done, items))

    step = DecommissionProgress(
        bookie_id=B2, step="moving", ledgers=2, ledgers_left=2, entries=10, entries_left=10,
        size_bytes=1000, size_bytes_left=1000,
    )  # fmt: skip
    moves = MoveProgress(Shown(), None)
    moves.copied(1)  # Before the first report the total is unknown.
    moves.moved(step)
    moves.copied(3)
    moves.moved(attrs.evolve(step, ledgers_left=1, entries_left=4, size_bytes_left=300))
    moves.copied(90)
    moves.moved(attrs.evolve(step, ledgers_left=0, entries_left=0, size_bytes_left=0))
    assert shown == [(100, 1), (400, 4), (700, 6), (1000, 10), (1000, 10)]


def test_a_worker_that_restarts_or_is_silent_for_a_while_keeps_the_count() -> None:
    known, total = [5, None, 7], 0
    for now in ([9, 3, None], [2, 4, 8]):
        total += increase(known, now)
        known = [*latest(known, now)]
    assert total == (4 + 0 + 0) + (2 + 1 + 1)
    assert known == [2, 4, 8]
