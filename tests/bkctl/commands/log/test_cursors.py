"""``bkctl log cursors`` and ``delete-cursor`` on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkclient.blocking import BlockingClient
from bkclient.log import Cursors, Position
from bkctl.commands.log.columns import CursorRow
from bkctl.commands.log.cursors import gauges
from bkctl.exit_status import ExitStatus
from tests.bkctl.support.cluster import Cluster, local_cluster
from tests.bkctl.support.runner import Run, runner


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
    run(*trim, "--force", "unread-entries")
    file = tmp_path / "bkctl.prom"
    rows = {
        row["name"]: row
        for row in run("log", "cursors", "--metrics", file, "--json").json["cursors"]
    }
    assert {name for name, row in rows.items() if row["trimmed"]} == {"etl"}
    assert 'bkctl_cursor_lag_entries{source="events",cursor="late"} 1\n' in file.read_text()
    assert 'bkctl_cursor_trimmed{source="events",cursor="etl"} 1\n' in file.read_text()


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
