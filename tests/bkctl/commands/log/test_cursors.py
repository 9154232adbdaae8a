"""``bkctl log cursors``, ``delete-cursor`` and ``tail --cursor``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from bkclient.blocking import BlockingClient
from bkclient.log import Cursors, Position
from bkclient.metadata.versions_and_watches import NEW
from bkctl.commands.log.columns import CursorRow
from bkctl.commands.log.cursors import gauges
from bkctl.exit_status import ExitStatus
from tests.bkclient.replication_world import store_of
from tests.bkclient.worlds import World
from tests.bkctl.support.cluster import Cluster, local_cluster
from tests.bkctl.support.runner import Run, runner
from tests.bkctl.support.world import run_in


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with local_cluster(tmp_path_factory.mktemp("cursors") / "bk", 1) as running:
        yield running


@pytest.fixture(scope="module")
def run(cluster: Cluster) -> Iterator[Run]:
    with runner(cluster) as running:
        yield running


def advance(cluster: Cluster, source: str, name: str, index: int, entry: int) -> None:
    async def advanced(client) -> None:
        await Cursors(client, source).advance(name, Position(index, entry))

    with BlockingClient(cluster.uri) as client:
        client.call(advanced)


@pytest.mark.processes
def test_cursors_are_listed_with_what_is_left_to_read(run: Run, cluster: Cluster, tmp_path) -> None:
    run("log", "create", "events", "-E", 1, "-W", 1, "-A", 1)
    run("log", "append", "events", "a", "b", "c")
    run("log", "append", "events", "d")
    assert run("log", "cursors", "events", "--json").json["cursors"] == []
    for name, at in (("done", (2, 0)), ("etl", (0, 1)), ("late", (1, 0))):
        advance(cluster, "events", name, *at)
    rows = {row["name"]: row for row in run("log", "cursors", "events", "--json").json["cursors"]}
    behind = {name: (row["position"], row["entries_behind"]) for name, row in rows.items()}
    assert behind == {"done": ("2:0", 0), "etl": ("0:1", 3), "late": ("1:0", 1)}
    assert {name: row["ledgers_behind"] for name, row in rows.items()} == {
        "done": 0,
        "etl": 2,
        "late": 1,
    }
    trim = ("log", "trim", "events", "--before", "1:0", "--yes")
    refused = run(*trim, ok=False)
    assert refused.status == ExitStatus.REFUSED
    assert "1 cursor has not read all of this: etl at 0:1" in refused.err
    assert "`bkctl log trim events --before 0:1` stops before the slowest" in refused.err
    assert "--force unread-entries" in refused.err
    assert "etl at 0:1" in run(*trim, "--dry-run", ok=False).err
    assert run("log", "trim", "events", "--before", "0:1", "--yes").status == 0
    forced = run(*trim, "--force", "unread-entries")
    assert "overridden: 1 cursor has not read all of this: etl at 0:1" in forced.err
    file = tmp_path / "bkctl.prom"
    rows = {
        row["name"]: row
        for row in run("log", "cursors", "--metrics", file, "--json").json["cursors"]
    }
    assert {name for name, row in rows.items() if row["trimmed"]} == {"etl"}
    assert 'bkctl_cursor_lag_entries{source="events",cursor="late"} 1\n' in file.read_text()
    assert 'bkctl_cursor_trimmed{source="events",cursor="etl"} 1\n' in file.read_text()


def moved(world: World, log: str, name: str, index: int, entry: int) -> None:
    world.run(Cursors(world.client(), log).advance(name, Position(index, entry)))


def test_a_reader_in_a_shell_goes_on_where_it_has_ended() -> None:
    world = World(3)
    run = partial(run_in, world)
    run("log", "create", "shop")
    tail = ("log", "tail", "shop", "--cursor")
    run("log", "append", "shop", "a", "b", "c")
    assert run(*tail, "one").out == "a\nb\nc\n"
    assert run(*tail, "one").out == ""
    run("log", "append", "shop", "d")
    assert run(*tail, "two", "--from", "0:1").out == "b\nc\nd\n"
    assert run(*tail, "two", "--from", "0:1").out == ""
    rows = run("log", "cursors", "shop", "--json").json["cursors"]
    assert {row["name"]: row["entries_behind"] for row in rows} == {"one": 1, "two": 0}
    assert run(*tail, "one", "--dry-run").out == "d\n"
    found = run(*tail, "one", "-o", "jsonl", "--entry-format", "string").json
    assert found["payload"] == "d"
    assert run(*tail, "one").out == ""
    assert run(*tail, "new", "-n", 0).out == ""
    assert run(*tail, "one", "-o", "table", ok=False).status == ExitStatus.USAGE
    assert run(*tail, "not/one", ok=False).status == ExitStatus.USAGE
    run("log", "append", "shop", "e")
    advanced = ("log", "trim", "shop", "--before", "2:0", "--yes", "--force", "unread-entries")
    assert run(*tail, "new", "-n", 0).out == "e\n"
    assert run(*tail, "three", "-n", 5).out == "a\nb\nc\nd\ne\n"
    run("log", "delete-cursor", "shop", "one")
    run(*advanced)
    gone = run(*tail, "one", "--from", "0:0", ok=False)
    assert gone.status == ExitStatus.NOT_FOUND
    assert run(*tail, "two").out == "e\n"


def test_a_trim_moves_cursors_that_have_read_all_of_it() -> None:
    world = World(3)
    run = partial(run_in, world)
    run("log", "create", "read")
    for entry in "abc":
        run("log", "append", "read", entry)
    moved(world, "read", "etl", 1, 1)  # As of a reader that saw the ledger open.
    run("log", "trim", "read", "--before", "2:0", "--yes")
    (row,) = run("log", "cursors", "read", "--json").json["cursors"]
    assert (row["position"], row["entries_behind"], row["trimmed"]) == ("2:0", 1, False)
    assert run("log", "tail", "read", "--cursor", "etl").out == "c\n"


def test_a_trim_moves_no_cursor_of_a_log_that_was_made_again_while_its_question_waited() -> None:
    world = World(3)

    def made(*ledgers: str) -> None:
        run_in(world, "log", "create", "again", seed=len(ledgers))  # Another id.
        for entry in ledgers:
            run_in(world, "log", "append", "again", *entry)

    def made_again() -> None:
        run_in(world, "log", "delete", "again", "--yes")
        made("abc")
        moved(world, "again", "etl", 0, 1)

    made("a", "b")
    trim = ("log", "trim", "again", "--before", "1:0")
    gone = run_in(world, *trim, typed="again\n", tty=True, ok=False, while_asked=made_again)
    assert "another was created" in gone.err
    (etl,) = world.run(Cursors(world.client(), "again").list())
    assert str(etl.position) == "0:1"


def test_a_cursor_whose_next_entries_were_trimmed_is_to_be_deleted() -> None:
    world = World(3)
    run = partial(run_in, world)
    run("log", "create", "cut")
    for entry in "abc":
        run("log", "append", "cut", entry)
    moved(world, "cut", "etl", 0, 0)
    run("log", "trim", "cut", "--before", "2:0", "--yes", "--force", "unread-entries")
    gone = run("log", "tail", "cut", "--cursor", "etl", ok=False)
    assert gone.status == ExitStatus.NOT_FOUND
    assert "`bkctl log delete-cursor cut etl`" in gone.err
    run("log", "delete-cursor", "cut", "etl")
    assert run("log", "tail", "cut", "--cursor", "etl").out == "c\n"


def test_cursors_that_cannot_be_read_keep_a_trim_until_it_is_forced() -> None:
    world = World(3)
    run_in(world, "log", "create", "torn")
    for entry in "ab":
        run_in(world, "log", "append", "torn", entry)
    world.run(store_of(world).write_cursors("torn", b"{", NEW))
    trim = ("log", "trim", "torn", "--before", "1:0", "--yes")
    refused = run_in(world, *trim, ok=False)
    assert (refused.status, "the cursors cannot be read" in refused.err) == (4, True)
    assert "overridden: " in run_in(world, *trim, "--force", "unread-entries").err
    assert run_in(world, "log", "tail", "torn").out == "b\n"


@pytest.mark.processes
def test_a_cursor_is_deleted(run: Run, cluster: Cluster) -> None:
    run("log", "create", "audit", "-E", 1, "-W", 1, "-A", 1)
    advance(cluster, "audit", "etl", 0, 5)
    assert (
        run("log", "delete-cursor", "audit", "etl", "--dry-run")
        .out.strip()
        .endswith("delete cursor etl of audit")
    )
    said = run("log", "delete-cursor", "audit", "etl").out
    assert said == "deleted cursor etl of audit, which was at 0:5\n"
    for words in (("delete-cursor", "audit", "etl"), ("cursors", "nothing")):
        assert run("log", *words, ok=False).status == ExitStatus.NOT_FOUND
    decoded = run("cluster", "get", ".cursors/audit", "--json").json
    assert decoded["kind"] == "cursor list"


def test_metrics_leave_out_what_is_unknown_and_quote_their_labels() -> None:
    text = gauges([CursorRow(source='a"\\', name="etl", ledgers_behind=2, updated_ms=1500)])
    assert "bkctl_cursor_lag_entries{" not in text
    assert 'bkctl_cursor_lag_ledgers{source="a\\"\\\\",cursor="etl"} 2\n' in text
    assert 'bkctl_cursor_updated_timestamp_seconds{source="a\\"\\\\",cursor="etl"} 1.5\n' in text
