"""`bookie show`, `bookie test` and `bookie rename` on a cluster in memory."""

from __future__ import annotations

import pytest

from bkclient.metadata import zk_paths
from bkctl.bookies.bookie_columns import BookieSummary
from bkctl.commands.bookie.details import space
from tests.bkclient.worlds import World
from tests.bkctl.support.world import run_in
from wire.ids import BookieId, LedgerId


def written(world: World, *, entries: int = 10) -> LedgerId:
    client = world.client()

    async def scenario() -> LedgerId:
        writer = await client.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2)
        await writer.add_many([b"x"] * entries)
        await writer.close()
        return writer.ledger_id

    return world.run(scenario())


class TestInfo:
    def test_one_bookie_is_shown_whole(self) -> None:
        world = World(2)
        shown = run_in(world, "bookie", "info", "b1", "--json").json
        assert (shown["state"], shown["free"], shown["total"]) == ("writable", 400, 1000)
        assert shown["endpoints"][0]["host"] == "host-b1"
        assert shown["used"] == 60.0
        listed = run_in(world, "bookie", "list", "--filter", "used>=60").out.splitlines()
        assert listed[0].split() == ["BOOKIE", "STATE", "ADDRESS", "FREE", "TOTAL", "USED"]
        assert listed[1].split()[-2:] == ["60", "%"]
        assert "bookie-rpc host-b1:1" in run_in(world, "bookie", "info", "b1").out

    def test_all_together_count_a_shared_disk_once(self) -> None:
        world = World(3)
        said = run_in(world, "bookie", "info")
        assert said.out.splitlines()[0].split() == ["BOOKIE", "STATE", "FREE", "TOTAL", "USED"]
        assert "together 1.2 KiB free of 2.9 KiB" in said.err

        def one(name: str, host: str, total: int) -> BookieSummary:
            return BookieSummary(BookieId(name), "writable", f"{host}:3181", free=1, total=total)

        assert space([one("a", "h1", 10), one("b", "h1", 10), one("c", "h2", 10)]) == (2, 20)
        here = [one(name, name, 10) for name in ("localhost", "127.0.0.1", "127.0.0.2")]
        assert space([*here, one("c", "h2", 10)]) == (2, 20)

    def test_a_filter_on_metrics_warns_of_bookies_that_publish_none(self) -> None:
        world = World(2)
        chosen = run_in(world, "bookie", "show", "--filter", "add_p99_ms>5")
        for bookie in world.bookies:
            why = f"the metrics of bookie {bookie} are unknown: it publishes no HTTP server"
            assert why in chosen.err
        assert "are unknown" not in run_in(world, "bookie", "show", "--json").err

    def test_the_ledgers_of_each_are_counted_on_request(self) -> None:
        world = World(4)
        ledger_id = written(world)
        shown = run_in(world, "bookie", "info", "--ledgers", "--json").json["bookies"]
        listed = world.stored(ledger_id).all_bookies()
        assert {one["bookie_id"]: one["ledgers"] for one in shown} == {
            bookie: int(bookie in listed) for bookie in world.bookies
        }
        table = run_in(world, "bookie", "show", "--ledgers").out.splitlines()
        assert table[0].split()[5:] == ["LEDGERS", "NOT", "CLOSED", "SIZE"]
        assert "VERSION" in run_in(world, "bookie", "show", "-o", "wide").out.splitlines()[0]

    def test_a_bookie_that_does_not_answer_says_why_and_an_unknown_one_is_status_3(self) -> None:
        world = World(2)
        world.kill("b1", unregister=False)
        shown = run_in(world, "bookie", "info", "b1", "--json").json
        assert shown["free"] is None
        assert shown["unreachable"]
        assert run_in(world, "bookie", "info", "b9", ok=False).status == 3


class TestList:
    def test_a_registered_bookie_that_does_not_answer_is_named(self) -> None:
        world = World(2)
        world.kill("b1", unregister=False)
        listed = run_in(world, "bookie", "list")
        assert [line.split()[:2] for line in listed.out.splitlines()[1:]] == [
            ["b1", "unreachable"], ["b2", "writable"],
        ]  # fmt: skip
        shown = run_in(world, "bookie", "list", "--json").json["bookies"]
        assert [one["state"] for one in shown] == ["unreachable", "writable"]
        chosen = run_in(world, "bookie", "list", "--filter", "state=unreachable", "-o", "id")
        assert chosen.out == "b1\n"
        unasked = run_in(world, "bookie", "list", "--no-ask", "--json").json["bookies"]
        assert {one["state"] for one in unasked} == {"writable"}, "as they are registered"
        assert "b1 is registered and does not answer: " in listed.err
        assert "b2 is" not in listed.err


class TestSanity:
    def test_a_sound_bookie_passes(self) -> None:
        world = World(2)
        assert run_in(world, "bookie", "sanity", "b2").out.startswith("bookie b2 is sane: 10 ent")
        assert run_in(world, "ledger", "list", "--count").out == "0\n"

    @pytest.mark.parametrize("unregister", [True, False])
    def test_one_that_is_gone_fails(self, unregister: bool) -> None:  # noqa: FBT001
        world = World(2)
        world.kill("b2", unregister=unregister)
        failed = run_in(world, "bookie", "sanity", "b2", ok=False)
        assert failed.status == (3 if unregister else 1)

    def test_a_dry_run_writes_nothing(self) -> None:
        world = World(1)
        run_in(world, "bookie", "sanity", "b1", "--dry-run")
        assert not world["b1"].ledgers


class TestUpdateBookie:
    def moved(self) -> tuple[World, LedgerId]:
        world = World(3)
        ledger_id = written(world)
        world.add_bookie("b4").ledgers = world["b1"].ledgers
        world.kill("b1")
        return world, ledger_id

    def test_a_bookie_that_moved_is_found_under_its_new_id(self) -> None:
        world, ledger_id = self.moved()
        plan = run_in(world, "ledger", "update-bookie", "b1", "b4", "--dry-run")
        assert plan.out == "would replace b1 with b4 in 1 ledger\n"
        said = run_in(world, "ledger", "update-bookie", "b1", "b4", typed="y\n", tty=True)
        assert said.out == "1 ledger changed from b1 to b4\n"
        assert world.stored(ledger_id).all_bookies() == {"b2", "b3", "b4"}
        assert run_in(world, "ledger", "update-bookie", "b1", "b4").out.startswith("0 ledgers")

    @pytest.mark.parametrize(
        "words",
        [("replace-id", "b1", "b4"), ("rename", "--from", "b1", "--to", "b4")],
        ids=lambda words: words[0],
    )
    def test_it_has_other_names_among_the_bookies(self, words: tuple[str, ...]) -> None:
        world, ledger_id = self.moved()
        plan = run_in(world, "bookie", *words, "--dry-run").out
        assert plan == "would replace b1 with b4 in 1 ledger\n"
        assert run_in(world, "bookie", *words, "--yes").out == "1 ledger changed from b1 to b4\n"
        assert world.stored(ledger_id).all_bookies() == {"b2", "b3", "b4"}

    def test_a_bookie_without_the_entries_is_not_believed(self) -> None:
        world, ledger_id = self.moved()
        world["b4"].ledgers = {}
        before = world.stored(ledger_id)
        said = run_in(world, "ledger", "update-bookie", "b1", "b4", "--yes", ok=False)
        assert said.status == 8
        assert "does not show its entries" in said.err
        assert world.stored(ledger_id) == before

    def test_a_ledger_whose_metadata_cannot_be_read_may_list_the_old_bookie(self) -> None:
        world, ledger_id = self.moved()
        damaged = written(world)
        world.metadata.set(zk_paths.LAYOUTS["hierarchical"].path_of(damaged), b"no metadata")
        said = run_in(world, "bookie", "rename", "b1", "b4", "--yes", ok=False)
        assert said.status == 8
        assert f"ledger {damaged}: not renamed: its metadata cannot be read" in said.err
        assert "b4" in world.stored(ledger_id).all_bookies()

    def test_without_asking_the_new_bookie_it_counts_as_a_loss(self) -> None:
        world, ledger_id = self.moved()
        args = ("ledger", "update-bookie", "b1", "b4", "--force", "unverified")
        refused = run_in(world, *args, typed="y\n", tty=True, ok=False)
        assert refused.status == 4
        assert "To confirm, type b1" in refused.err
        run_in(world, *args, typed="b1\n", tty=True)
        assert "b4" in world.stored(ledger_id).all_bookies()

    def test_a_bookie_that_runs_keeps_its_ledgers_and_one_that_is_away_gets_none(self) -> None:
        world, _ = self.moved()
        running = run_in(world, "ledger", "update-bookie", "b2", "b4", "--yes", ok=False)
        assert (running.status, "b2 is registered" in running.err) == (4, True)
        away = run_in(world, "ledger", "update-bookie", "b1", "b9", "--yes", ok=False)
        assert (away.status, "--force unverified" in away.err) == (4, True)
        same = run_in(world, "ledger", "update-bookie", "b1", "b1", "--yes", ok=False)
        assert same.status == 2

    def test_a_limit_and_a_rate_are_kept(self) -> None:
        world = World(3)
        ledgers = [written(world) for _ in range(3)]
        world.add_bookie("b4").ledgers = world["b1"].ledgers
        world.kill("b1")
        began_s = world.clock.seconds()
        run_in(world, "ledger", "update-bookie", "b1", "b4", "--limit", 2, "--rate", "0.5", "--yes")
        changed = [ledger for ledger in ledgers if "b4" in world.stored(ledger).all_bookies()]
        assert changed == ledgers[:2]
        assert world.clock.seconds() - began_s >= 2
