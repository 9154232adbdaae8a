"""`ledger map`: drawings, machine forms and exit statuses."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from bkclient.replication.replica_map import Health, MappedFragment, ReplicaMap, ReplicaPlace
from bkctl.commands.ledger.replicas import map as ledger_map_work
from bkctl.commands.ledger.replicas.map import LedgerMap, drawing, verdict
from bkctl.output.charts import Canvas
from tests.bkclient.worlds import World
from tests.bkctl.commands.bookie.test_bookie import written
from tests.bkctl.support.drawings import WIDTHS, check_drawing
from tests.bkctl.support.world import run_in
from wire.codes import LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata


def ledger_map(ensembles: Sequence[str], healths: Sequence[Sequence[Health]]) -> LedgerMap:
    """Return the map of a closed ledger of fragments of 100 entries on bookies by letter."""
    names = [
        tuple(BookieId(f"bk-{letter}.example.org:3181") for letter in letters)
        for letters in ensembles
    ]
    metadata = LedgerMetadata(
        ensemble_size=3, write_quorum=2, ack_quorum=2, state=LedgerState.CLOSED,
        length=1000, last_entry_id=EntryId(100 * len(names) - 1),
        fragments=tuple(Fragment(EntryId(100 * n), ids) for n, ids in enumerate(names)),
    )  # fmt: skip
    fragments = tuple(
        MappedFragment(
            first=EntryId(100 * n),
            last=EntryId(100 * n + 99),
            is_closed=True,
            places=tuple(
                ReplicaPlace(
                    bookie_id=bookie,
                    health=health,
                    expected=66,
                    held={Health.OK: 66, Health.PARTLY: 12, Health.MISSING: 0}.get(health),
                    why="connection refused" if health is Health.UNREACHABLE else "",
                )
                for bookie, health in zip(ids, row, strict=True)
            ),
            copies=max(0, list(row).count(Health.OK) - 1),
        )
        for n, (ids, row) in enumerate(zip(names, healths, strict=True))
    )
    found = ReplicaMap(
        ledger_id=LedgerId(42), metadata=metadata, lac=metadata.last_entry_id, fragments=fragments
    )
    states: dict[BookieId, str] = dict.fromkeys(metadata.all_bookies(), "writable")
    states[BookieId("bk-d.example.org:3181")] = "down"
    return LedgerMap(replicas=found, states=states)


OK, PARTLY, GONE, AWAY = Health.OK, Health.PARTLY, Health.MISSING, Health.UNREACHABLE
SOME = ledger_map(["abc", "abd", "ebd"], [[OK, OK, OK], [OK, PARTLY, AWAY], [OK, GONE, AWAY]])


class TestDrawing:
    @pytest.mark.parametrize("width", [40, *WIDTHS])
    @pytest.mark.parametrize("unicode", [True, False])
    def test_fragments_are_drawn_by_bookies_with_their_health(
        self,
        width: int,
        unicode: bool,  # noqa: FBT001
    ) -> None:
        name = "ledger-map" if unicode else "ledger-map-ascii"
        check_drawing(name, drawing(SOME, Canvas(width, unicode)), width)

    @pytest.mark.parametrize("width", WIDTHS)
    def test_more_bookies_than_columns_are_drawn_in_blocks(self, width: int) -> None:
        letters = "abcdefghijklmnopqrstuvwxyzABCDEF"
        ensembles = [letters[n : n + 3] for n in range(0, 30, 3)]
        found = ledger_map(ensembles, [[OK, OK, OK]] * 10)
        check_drawing("ledger-map-many", drawing(found, Canvas(width)), width)

    def test_bookies_have_letters_and_then_two(self) -> None:
        found = list(itertools.islice(ledger_map_work.labels(), 28))
        assert (found[0], found[25], found[26], found[27]) == ("A", "Z", "AA", "AB")

    def test_the_verdict_names_what_is_worst(self) -> None:
        whole = ledger_map(["abc"], [[OK, OK, OK]])
        assert verdict(whole.replicas).startswith("every bookie lists its entries; `bkctl ledger ")
        assert verdict(SOME.replicas) == (
            "some entries of 2 fragments have no copy on a bookie that answers"
        )
        assert (
            verdict(ledger_map(["abc"], [[GONE] * 3]).replicas)
            == "no bookie has a copy of 100 entries"
        )
        partly = ledger_map(["abc"], [[OK, OK, PARTLY]])
        assert verdict(partly.replicas) == "1 lacking some entries of 3 replicas of fragments"
        silent = ledger_map(["abc"], [[OK, OK, AWAY]])
        assert verdict(silent.replicas) == "1 unreachable of 3 replicas of fragments"

    def test_a_bookie_that_is_registered_and_silent_is_not_drawn_as_writable(self) -> None:
        found = ledger_map(["abc"], [[OK, OK, AWAY]])
        line = next(one for one in drawing(found, Canvas(80)) if "bk-c" in one)
        assert line.split()[1:4] == ["✗", "bk-c.example.org:3181", "unreachable"]


class TestMap:
    def test_people_get_a_drawing_and_programs_the_numbers(self) -> None:
        world = World(3)
        ledger_id = written(world)
        drawn = run_in(world, "ledger", "map", ledger_id)
        assert f"every bookie lists its entries; `bkctl ledger verify {ledger_id}`" in drawn.out
        assert "0-9      ●  ●  ●     2/2" in drawn.out
        shown = run_in(world, "ledger", "map", ledger_id, "--json").json
        assert (shown["state"], shown["intact"], shown["last_confirmed"]) == ("closed", True, 9)
        held = [one["held"] for one in shown["fragments"][0]["replicas"]]
        assert sum(held) == 20

    def test_a_lost_replica_is_status_10_on_request(self) -> None:
        world = World(3)
        ledger_id = written(world)
        assert run_in(world, "ledger", "map", ledger_id, "--fail-if-any").status == 0
        world.kill("b1")
        assert run_in(world, "ledger", "map", ledger_id).status == 0
        failed = run_in(world, "ledger", "map", ledger_id, "--fail-if-any", ok=False)
        assert failed.status == 10
        assert "1 unreachable of 3 replicas" in failed.err
        assert run_in(world, "ledger", "map", 999, ok=False).status == 3


class TestEntry:
    def test_an_entry_is_listed_with_the_state_of_its_bookies(self) -> None:
        world = World(3)
        ledger_id = written(world)
        world.kill("b1")
        shown = [
            one
            for entry_id in range(3)
            for one in run_in(world, "ledger", "map", ledger_id, entry_id, "--json").json["places"]
        ]
        assert [(one["first_entry"], one["last_entry"]) for one in shown] == [(0, 9)] * 6
        assert {one["bookie_id"]: one["state"] for one in shown} == {
            "b1": "gone", "b2": "writable", "b3": "writable",
        }  # fmt: skip

    def test_an_entry_is_on_its_write_set_in_its_order(self) -> None:
        world = World(3)
        ledger_id = written(world)
        ensemble = world.stored(ledger_id).ensemble
        for entry_id in range(6):
            said = run_in(world, "ledger", "map", ledger_id, entry_id, "-o", "id")
            wanted = [ensemble[entry_id % 3], ensemble[(entry_id + 1) % 3]]
            assert said.out.split() == wanted
            holders = {b for b in world.bookies if entry_id in world[b].entries(ledger_id)}
            assert holders == set(wanted)

    def test_beyond_the_end_of_a_closed_ledger_there_is_nothing(self) -> None:
        world = World(3)
        ledger_id = written(world)
        beyond = run_in(world, "ledger", "where", ledger_id, 10, ok=False)
        assert (beyond.status, "no entry 10: the ledger is closed" in beyond.err) == (3, True)
