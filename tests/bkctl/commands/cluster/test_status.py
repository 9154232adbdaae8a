"""`cluster status`, `ping`, `test` and `map`, and what is new of `bookie list`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from bkclient.metadata import zk_paths
from bkclient.metadata.versions_and_watches import NEW
from bkclient.placement.rack_script import ScriptError
from bkctl.bookies.bookie_columns import BookieSummary
from bkctl.bookies.rack_losses import LedgerSample
from bkctl.cli.root import cli
from bkctl.commands.cluster import map as cluster_map
from bkctl.commands.cluster.map import ClusterMap, Rack
from bkctl.exit_status import ExitStatus
from bkctl.output.charts import Canvas
from tests.bkclient.replication_world import closed_ledger, store_of
from tests.bkclient.worlds import Fate, World
from tests.bkctl.commands.bookie.test_bookie import written
from tests.bkctl.commands.bookie.test_retire_commands import ledger_on
from tests.bkctl.support.drawings import WIDTHS, check_drawing
from tests.bkctl.support.terminal import FakeHost
from tests.bkctl.support.world import run_in
from wire.ids import BookieId, LedgerId
from wire.messages import AddRequest, Request
from wire.records.cookie import Cookie, encode_cookie

GIB = 1 << 30


def one_ledger() -> tuple[World, LedgerId, BookieId]:
    """Return a healthy cluster, its only ledger, and a bookie of the ledger that has a cookie."""
    world = World(5)
    ledger_id = closed_ledger(world, world.client(), 5)
    bookie_id = world.stored(ledger_id).ensemble[0]
    store = store_of(world)
    world.run(store.write_cookie(bookie_id, encode_cookie(Cookie(bookie_id, "/j", ("/l",))), NEW))
    world.run(store.elect(BookieId("auditor")))
    return world, ledger_id, bookie_id


class TestStatus:
    def test_a_sound_cluster_has_room_and_only_lacks_an_auditor(self) -> None:
        world = World(4)
        shown = run_in(world, "cluster", "status", "--json").json
        assert (shown["writable"], shown["read_only"], shown["down"]) == (4, 0, 0)
        assert shown["headroom"] == 1
        assert (shown["free"], shown["total"]) == (1600, 4000)
        assert shown["problems"] == ["no auditor is elected"]
        world.run(world.client().store.elect(BookieId("b1")))
        assert run_in(world, "cluster", "status", "--fail-if-any").status == 0

    def test_what_is_wrong_is_told_and_is_status_10_on_request(self) -> None:
        world = World(4)
        world.kill("b1")
        world.kill("b2", unregister=False)
        world.turn_read_only("b3")
        store = world.client().store
        world.run(store.write_cookie(BookieId("b1"), b"cookie", -2))
        world.run(store.mark_underreplicated(LedgerId(7), (BookieId("b1"),)))
        world.run(store.set_replication_enabled(enabled=False))
        shown = run_in(world, "cluster", "status", "--json")
        assert shown.json["problems"] == [
            "1 writable bookie too few for ledgers of an ensemble of 3",
            "1 ledger under-replicated",
            "1 registered bookie unreachable",
            "1 bookie down",
            "1 bookie read-only",
            "autorecovery is disabled",
        ]
        failed = run_in(world, "cluster", "status", "--fail-if-any", ok=False)
        assert failed.status == 10
        assert "6 problems" in failed.err

    def test_the_largest_open_ensemble_needs_room_too_once_ledgers_are_counted(self) -> None:
        world = World(5)
        written(world)
        world.run(world.client().create_ledger(ensemble_size=5, write_quorum=2, ack_quorum=2))
        plain = run_in(world, "cluster", "status", "--json").json
        assert (plain["ledgers"], plain["ensemble_size"], plain["headroom"]) == (None, 3, 2)
        counted = run_in(world, "cluster", "status", "--ledgers", "--json").json
        assert (counted["ledgers"], counted["not_closed"]) == (2, 1)
        assert (counted["ensemble_size"], counted["headroom"]) == (5, 0)

    def test_it_is_healthy_once_no_problem_is_left(self) -> None:
        world, ledger_id, gone = one_ledger()
        store = store_of(world)
        until = ("cluster", "status", "--until", "healthy", "--timeout", 1)
        assert run_in(world, *until).status == 0

        async def repaired() -> None:
            assert await store.take_underreplicated(ledger_id)
            await store.mark_replicated(ledger_id)

        for spoil, restore in (
            (lambda: world.kill(gone), lambda: world.restart(gone)),
            (
                lambda: world.run(store.set_replication_enabled(enabled=False)),
                lambda: world.run(store.set_replication_enabled(enabled=True)),
            ),
            (
                lambda: world.run(store.mark_underreplicated(ledger_id, (gone,))),
                lambda: world.run(repaired()),
            ),
        ):
            spoil()
            assert run_in(world, *until, ok=False).status == 6
            assert run_in(world, "cluster", "status", "--fail-if-any", ok=False).status == 10
            restore()
            assert run_in(world, *until).status == 0

    def test_ledgers_of_a_lost_bookie_are_counted_before_they_are_marked(self) -> None:
        world, _, gone = one_ledger()
        assert "underreplicated    0\n" in run_in(world, "cluster", "status").out
        world.kill(gone)
        plain = run_in(world, "cluster", "status").out
        assert "0 marked; --ledgers counts those without a mark" in plain
        counted = run_in(world, "cluster", "status", "--ledgers")
        assert "0 marked, 1 not marked yet" in counted.out
        shown = run_in(world, "cluster", "status", "--ledgers", "--json").json
        assert (shown["underreplicated"], shown["unmarked"]) == (0, 1)
        assert "1 ledger lacks replicas and is not marked yet" in shown["problems"]

    def test_a_rack_counts_its_registered_bookies(self) -> None:
        async def racks(hosts: Sequence[str]) -> str:
            return " ".join("/one" if host == "one" else "/two" for host in hosts)

        world = World(3)
        down = BookieId("one:3181")
        cookie = encode_cookie(Cookie(down, "/j", ("/l",)))
        world.run(store_of(world).write_cookie(down, cookie, NEW))
        shown = run_in(world, "cluster", "status", "--json", topology_script=racks).json
        assert (shown["down"], shown["racks"]) == (1, {"/two": 3})


class TestPing:
    def test_a_cluster_without_bookies_is_named_as_such(self) -> None:
        assert "no bookie is registered\n" in run_in(World(0), "cluster", "ping").err

    def test_everybody_answers_over_connections_of_their_own(self) -> None:
        world = World(2)
        said = run_in(world, "cluster", "ping", "-o", "jsonl")
        peers = [json.loads(line) for line in said.out.splitlines()]
        assert [one["peer"] for one in peers] == ["metadata", "b1", "b2"]
        assert all(one["error"] is None for one in peers)
        assert all(one["connect_s"] is not None for one in peers[1:])
        assert not any(bookie.connections for bookie in world.bookies.values())

    def test_one_that_is_silent_is_named_and_is_status_5(self) -> None:
        world = World(3)
        world.kill("b2", unregister=False)
        failed = run_in(world, "cluster", "ping", ok=False)
        assert failed.status == 5
        assert "1 of 4 did not answer: b2" in failed.err
        assert "b2" in failed.out

    def test_one_that_is_down_counts_unless_only_registered_ones_are_wanted(self) -> None:
        world = World(2)
        world.run(world.client().store.write_cookie(BookieId("b9"), b"cookie", -2))
        assert run_in(world, "cluster", "ping", ok=False).status == 5
        said = run_in(world, "cluster", "ping", "--registered", "-o", "id")
        assert said.out.split() == ["metadata", "b1", "b2"]


class TestTest:
    def test_a_sound_cluster_passes_and_nothing_is_left(self) -> None:
        world = World(3)
        shown = run_in(world, "cluster", "test", "-n", 20, "--size", "1KiB", "--json").json
        assert (shown["entries"], shown["entry_bytes"], len(shown["ensemble"])) == (20, 1024, 3)
        assert run_in(world, "ledger", "list", "--count").out == "0\n"
        said = run_in(world, "cluster", "test").out
        assert said.startswith("the cluster works: 100 entries of 100 B on 3 bookies")

    def test_the_ledger_is_kept_on_request(self) -> None:
        world = World(3)
        shown = run_in(world, "cluster", "test", "--keep", "-o", "json").json
        assert shown["delete_s"] is None
        assert run_in(world, "ledger", "list", "-o", "id").out.strip() == shown["ledger_id"]

    def test_a_cluster_that_is_too_small_or_does_not_store_fails_and_leaves_nothing(self) -> None:
        world = World(2)
        assert run_in(world, "cluster", "test", ok=False).status == 5
        small = run_in(world, "cluster", "test", "-E", 2, "-W", 3, ok=False)
        assert small.status == 2

        def lose_adds(request: Request) -> Fate:
            return Fate.LOSE if isinstance(request, AddRequest) else Fate.SERVE

        for bookie in world.bookies.values():
            bookie.policy = lose_adds
        failed = run_in(world, "cluster", "test", "-E", 2, ok=False)
        assert failed.status != 0
        assert run_in(world, "ledger", "list", "--count").out == "0\n"

    def test_a_threshold_that_is_broken_is_status_10_after_the_figures(self) -> None:
        world = World(3)
        fine = run_in(world, "cluster", "test", "--fail-if", "add>5m", "--fail-if", "read_s>1h")
        assert "the cluster works" in fine.out
        slow = run_in(world, "cluster", "test", "--fail-if", "entries>=100", ok=False)
        assert slow.status == 10
        assert "the cluster works" in slow.out
        assert "entries is 100 (entries>=100)" in slow.err
        assert run_in(world, "ledger", "list", "--count").out == "0\n"

    def test_a_dry_run_writes_nothing(self) -> None:
        world = World(3)
        said = run_in(world, "cluster", "test", "--dry-run").out
        assert said == "would write, read and delete a ledger of 100 entries\n"
        assert not world["b1"].ledgers


@pytest.mark.parametrize("node", [zk_paths.INSTANCE_ID, zk_paths.LAYOUT])
def test_a_damaged_id_or_layout_keeps_no_command_from_the_rest(node: str) -> None:
    world = World(3)
    world.metadata.set(node, b"\xff\xfe")
    found = run_in(world, "cluster", "status", "--ledgers", "--json").json
    assert node in found["problems"][0]
    assert found["writable"] == 3
    assert run_in(world, "cluster", "ping").out.count("b") >= 3
    assert "b3" in run_in(world, "cluster", "map").out
    assert "b3" in run_in(world, "bookie", "list").out


def test_a_damaged_layout_in_a_file_keeps_no_command_from_the_rest(tmp_path: Path) -> None:
    uri = f"sqlite://{tmp_path}/metadata.db"
    with closing(FakeHost()) as host:
        assert cli.run(["-u", uri, "cluster", "init"], host) == 0
        with closing(sqlite3.connect(tmp_path / "metadata.db")) as file:
            file.execute("UPDATE node SET value = x'fffe' WHERE key = '/LAYOUT'")
            file.commit()
        assert cli.run(["-u", uri, "cluster", "status"], host) == 0
        assert "/LAYOUT cannot be read" in host.out.text
        assert cli.run(["-u", uri, "doctor"], host) == 10


def bookies(*more: BookieSummary) -> Sequence[BookieSummary]:
    one = BookieSummary(
        BookieId("bk-01.example.org:3181"), "writable", "bk-01.example.org:3181",
        60 * GIB, 100 * GIB, rack="/dc1/rack1",
    )  # fmt: skip
    return (
        one,
        attrs.evolve(one, bookie_id=BookieId("bk-02:3181"), state="read-only", free=2 * GIB),
        attrs.evolve(one, bookie_id=BookieId("bk-03:3181"), free=8 * GIB, rack="/dc1/rack2"),
        attrs.evolve(
            one, bookie_id=BookieId("bk-04:3181"), free=None, total=None, rack="/dc1/rack2",
            unreachable="bookie bk-04:3181 cannot be reached: connection refused",
        ),
        BookieSummary(BookieId("bk-05:3181"), "down"),
        *more,
    )  # fmt: skip


def racks() -> ClusterMap:
    found = bookies()
    some = LedgerSample()
    for ledger_id in (4, 1000, *range(2000, 2080)):
        some.add(LedgerId(ledger_id))
    return ClusterMap(
        instance_id="e5189144-9ced-4bce-b0b1-dfb5550c906e",
        racks=(
            Rack("/dc1/rack1", found[:2], some),
            Rack("/dc1/rack2", found[2:4], LedgerSample()),
            Rack("", found[4:]),
        ),
        free=70 * GIB,
        total=300 * GIB,
    )


class TestMap:
    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("unicode", [True, False])
    def test_racks_states_and_fill_are_drawn(self, width: int, unicode: bool) -> None:  # noqa: FBT001
        name = "cluster-map" if unicode else "cluster-map-ascii"
        check_drawing(name, cluster_map.drawing(racks(), Canvas(width, unicode)), width)

    def test_ids_that_are_too_long_are_cut_and_nothing_overflows(self) -> None:
        one = BookieSummary(BookieId("b" * 90), "writable", free=1, total=2)
        found = ClusterMap(instance_id=None, racks=(Rack("/r" * 50, (one,)),))
        for width in (30, 60):
            lines = list(cluster_map.drawing(found, Canvas(width)))
            assert {len(line) for line in lines[2:]} == {width}

    def test_the_command_draws_for_people_and_tells_programs_the_same(self) -> None:
        world = World(2)
        world.kill("b2")
        world.run(world.client().store.write_cookie(BookieId("b2"), b"cookie", -2))
        drawn = run_in(world, "cluster", "map").out
        assert "● b1 writable" in drawn
        assert "✗ b2 down" in drawn
        assert "together 400 B free of 1000 B" in drawn
        shown = run_in(world, "cluster", "map", "--json").json
        assert [b["bookie_id"] for rack in shown["racks"] for b in rack["bookies"]] == ["b1", "b2"]
        assert shown["total"] == 1000
        silent = run_in(world, "cluster", "map", "--no-ask").out
        assert "not asked" in silent


class TestTopology:
    def test_a_script_says_where_bookies_are(self) -> None:
        world = World(3)

        async def script(hosts: Sequence[str]) -> str:
            return " ".join("/dc1/r1" if host == "host-b1" else "/dc1/r2" for host in hosts)

        client = world.client(topology_script=script)
        found = world.run(cluster_map.read_map(client, lambda _: None, ask=False))
        racks = {rack.name: tuple(one.bookie_id for one in rack.bookies) for rack in found.racks}
        assert racks == {"/dc1/r1": ("b1",), "/dc1/r2": ("b2", "b3")}

    def test_ledgers_that_the_loss_of_a_rack_would_take_are_named_before(self) -> None:
        world = World(4)
        pairs = [{"b1", "b2"}, {"b1", "b3"}]

        async def script(hosts: Sequence[str]) -> str:
            return " ".join("/r1" if host in {"host-b1", "host-b2"} else "/r2" for host in hosts)

        lost, spread = (str(ledger_on(world, pair)) for pair in pairs)
        drawn = run_in(world, "cluster", "map", topology_script=script)
        assert f"1 ledger with entries in this rack alone: {lost} " in drawn.out
        assert "0 ledgers with entries in this rack alone " in drawn.out
        shown = run_in(world, "cluster", "map", "--json", topology_script=script).json["racks"]
        assert [(rack["ledgers_only_here"], rack["examples"]) for rack in shown] == [
            (1, [lost]),
            (0, []),
        ]
        fast = run_in(world, "cluster", "map", "--no-ask", "--json", topology_script=script)
        assert [rack["ledgers_only_here"] for rack in fast.json["racks"]] == [None, None]
        single = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
        closed_ledger(world, world.client(), 5, **single)  # Another finding of the doctor.
        told = run_in(world, "doctor", "--json", ok=False, topology_script=script).json["findings"]
        (found,) = [one for one in told if one["name"] == "ledgers-in-one-rack"]
        assert (found["danger"], found["examples"]) == ("trouble", [lost])
        assert "every copy in rack /r1" in found["what"]
        assert "of two copies in two racks: use an even ensemble size" in found["fix"]
        assert "bkctl bookie recover BOOKIE --ledger " in found["fix"]
        assert spread not in found["examples"]
        unknown = run_in(world, "doctor", "--json", ok=False).json["findings"]
        assert "ledgers-in-one-rack" not in {one["name"] for one in unknown}

    def test_the_racks_of_each_ledger_are_listed_without_asking_a_bookie(self) -> None:
        world = World(4)

        async def script(hosts: Sequence[str]) -> str:
            return " ".join("/r1" if host in {"host-b1", "host-b2"} else "/r2" for host in hosts)

        together, spread = (ledger_on(world, pair) for pair in ({"b1", "b2"}, {"b1", "b3"}))
        for bookie_id in tuple(world.bookies):
            world.bookies[bookie_id].policy = lambda _request: Fate.LOSE
        list_ = ("ledger", "list", "-X", "networkTopologyScriptFileName=it")
        shown = run_in(world, *list_, "--racks", topology_script=script).out
        assert [line.split() for line in shown.splitlines()[1:]] == [
            [str(together), "closed", "/r1:", "2", "1"],
            [str(spread), "closed", "/r1:", "1,", "/r2:", "1", "2"],
        ]
        for words in (("--one-rack",), ("--filter", "racks_min=1")):
            found = run_in(world, *list_, *words, "-o", "id", topology_script=script)
            assert found.out == f"{together}\n", words
        told = run_in(world, *list_, "--json", topology_script=script).json["ledgers"]
        assert told[1]["racks"] == {"/r1": ["b1"], "/r2": ["b3"]}
        assert told[1]["racks_min"] == 2
        unknown = run_in(world, "ledger", "list", "--one-rack", ok=False)
        assert unknown.status == ExitStatus.USAGE
        assert "networkTopologyScriptFileName" in unknown.err
        assert "racks" not in run_in(world, "ledger", "list", "--json").json["ledgers"][0]

    def test_a_doctor_goes_on_where_racks_are_enforced_and_the_script_fails(self) -> None:
        async def script(hosts: Sequence[str]) -> str:
            raise ScriptError("the topology script ended with status 1")

        strict = {"topology_script": script, "enforce_racks": True}
        told = run_in(World(2), "doctor", "--json", ok=False, **strict).json["findings"]
        (found,) = [one for one in told if one["name"] == "topology-script"]
        assert (found["danger"], found["what"]) == (
            "risk",
            "the topology script ended with status 1",
        )

    def test_without_a_script_it_says_so(self) -> None:
        said = run_in(World(1), "cluster", "topology")
        assert "no racks are known" in said.err
        assert "● b1 writable" in said.out


def test_no_delay_is_shown_everywhere_as_it_can_be_set() -> None:
    world = World(3)
    world.run(store_of(world).set_lost_bookie_recovery_delay(0))
    assert run_in(world, "autorecovery", "delay").out == "delay 0s\n"
    for words in (("cluster", "status"), ("autorecovery", "status")):
        lines = run_in(world, *words).out.splitlines()
        assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("delay")] == [
            "0s"
        ], words


def test_one_that_is_down_is_not_offered_as_what_was_meant() -> None:
    world = World(3)
    b2 = BookieId("b2")
    cookie = encode_cookie(Cookie(b2, "/j", ("/l",)))
    world.run(store_of(world).write_cookie(b2, cookie, NEW))
    world.kill("b2")
    for words, status in ((("test", "b2"), 3), (("state", "b2"), 7), (("ready", "b2"), 7)):
        found = run_in(world, "bookie", *words, ok=False)
        assert "b2 is not registered: it does not run" in found.err
        assert found.status == status
        assert "did you mean" not in found.err
    until = ("--until", "healthy", "--timeout", 1)
    assert run_in(world, "bookie", "ready", "b2", *until, ok=False).status == 6


@pytest.mark.parametrize("command", ["show", "test", "state", "gc", "decommission-status"])
def test_no_other_bookie_is_offered_for_one_that_was_decommissioned(command: str) -> None:
    world = World(3)
    world.kill("b2")
    found = run_in(world, "bookie", command, "b2", ok=command == "decommission-status")
    assert "did you mean" not in found.err
    if not command.startswith("decommission"):
        why = "bookie b2 is not registered and has no cookie, as after a decommission"
        assert (found.status, why in found.err) == (3, True)


def test_the_id_has_a_short_name() -> None:
    world = World(1)
    assert run_in(world, "cluster", "id").out == run_in(world, "cluster", "instance-id").out


def test_a_bookie_can_be_shown_and_tested_by_the_short_names() -> None:
    world = World(2)
    shown = run_in(world, "bookie", "show", "b2", "--json").json
    assert (shown["bookie_id"], shown["rack"], shown["version"]) == ("b2", None, None)
    assert run_in(world, "bookie", "show", "b9", ok=False).status == 3
    assert run_in(world, "bookie", "test", "b2").out.startswith("bookie b2 is sane")


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        ("RackawareEnsemblePlacementPolicy", None),
        ("RegionAwareEnsemblePlacementPolicy", "region"),
        ("ZoneawareEnsemblePlacementPolicy", "zone"),
    ],
)
def test_racks_of_one_region_or_zone_are_a_problem_where_those_are_kept_apart(
    policy: str, word: str | None
) -> None:
    async def one_place(hosts: Sequence[str]) -> str:
        return " ".join(f"/place/{host[-1]}" for host in hosts)

    settings = {"placement_policy": f"org.apache.bookkeeper.client.{policy}"}
    said = run_in(World(3), "cluster", "status", "--json", topology_script=one_place, **settings)
    told = [one for one in said.json["problems"] if one.startswith("all bookies are in one")]
    assert told == ([] if word is None else [f"all bookies are in one {word}"])


def test_one_that_is_down_is_in_the_rack_of_the_address_in_its_id() -> None:
    async def by_host(hosts: Sequence[str]) -> str:
        return " ".join(f"/rack-{host[-1]}" for host in hosts)

    world = World(1)
    for gone in (BookieId("10.0.0.9:3181"), BookieId("gone")):
        cookie = encode_cookie(Cookie(gone, "/j", ("/l",)))
        world.run(store_of(world).write_cookie(gone, cookie, NEW))
    shown = run_in(world, "bookie", "list", "--json", topology_script=by_host).json["bookies"]
    assert {one["bookie_id"]: one["rack"] for one in shown if one["state"] == "down"} == {
        "10.0.0.9:3181": "/rack-9",
        "gone": None,
    }
