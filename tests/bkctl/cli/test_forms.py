"""Each command that only reads, on a cluster, in every form: values that the schema knows.

A new command that reads is put into ``LINES``, with a line that prints something, or into
``ELSEWHERE`` with the tests that hold it to the same.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from bkclient.blocking import BlockingClient
from bkclient.log import Cursors, Position
from bkctl.exit_status import Effect, ExitStatus
from bkctl.global_options import OUTPUTS
from tests.bkctl.cli.test_root import TREE
from tests.bkctl.support.cluster import Cluster, local_cluster
from tests.bkctl.support.runner import Run, runner
from tests.bkctl.support.schema import check
from tests.bkctl.support.terminal import run_here
from tests.support.programs import require_zookeeper

pytestmark = pytest.mark.processes

LINES: Final = {
    "ledger list": "", "ledger show": "LEDGER", "ledger read": "LEDGER 0-1",
    "ledger tail": "LEDGER", "bookie list": "",
    "bookie state": "BOOKIE", "bookie ready": "BOOKIE", "bookie gc-status": "BOOKIE",
    "bookie config": "BOOKIE", "bookie metrics": "BOOKIE --grep ^bookied_info",
    "autorecovery status": "",
    "autorecovery list": "", "autorecovery auditor": "", "cookie list": "",
    "cookie show": "BOOKIE", "doctor": "", "log list": "", "log show": "LOG", "log tail": "LOG",
    "log cursors": "LOG",
    "profile list": "", "config show": "", "explain": "BK-LOCKED",
    "version": "--all", "autorecovery active": "", "bookie decommission-status": "BOOKIE",
    "bookie show": "BOOKIE",
    "bookie plot": "BOOKIE adds -i 0.2s --for 1s", "cluster show": "/", "cluster id": "",
    "cluster map": "", "cluster ping": "", "cluster status": "",
    "cluster tree": "", "completion": "bash", "ledger map": "LEDGER", "ledger verify": "LEDGER",
    "top": "--once -i 0.2s",
}  # fmt: skip

ELSEWHERE: Final = {
    "disk": "test_disk_read", "shell": "tests/shell", "profile show": "test_output_schema",
    "config check": "test_output_schema", "config diff": "test_output_schema",
    "cookie generate": "test_cookie", "cookie verify": "test_cookie_local",
    "bookie slow": "test_top_screen",
    "cluster backup": "test_cluster_metadata", "cluster watch": "test_cluster_metadata",
    "ledger metadata dump": "test_ledger_verify", "ledger orphans": "test_ledger_verify",
    "debug bundle": "test_bundle", "spark bundle": "test_bundle", "topic": "test_topic",
    "help": "test_root", "options": "test_root",
}  # fmt: skip

SILENT: Final = {"autorecovery list", "autorecovery active", "profile list", "doctor"}
"""Nothing to say about a new cluster, except that there is nothing."""

AS_IT_IS: Final = {"ledger read", "ledger tail", "log tail"}
"""Without -o json the entries themselves, in forms of their own."""

SCRIPTS: Final = {"config show", "cookie show"}
"""Tables that are not tables, to be kept in a file."""


def test_every_command_that_reads_is_held_to_this() -> None:
    reading = {" ".join(path) for path in TREE if TREE[path].effect is Effect.READ}
    held = {path for path in reading if path in ELSEWHERE or path.split()[0] in ELSEWHERE}
    assert reading - held - set(LINES) == set(), "put new commands into LINES, or into ELSEWHERE"
    assert set(LINES) <= reading


@pytest.fixture(
    scope="module",
    params=["sqlite", pytest.param("zookeeper", marks=pytest.mark.interop)],
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("forms") / "bk"
    settings = ("httpServerEnabled=true", "httpServerPort=0", "allowEphemeralPorts=true")
    options = [word for setting in settings for word in ("--set", setting)]
    if request.param == "zookeeper":
        require_zookeeper()
        options.append("--zookeeper")
    with local_cluster(directory, 1, *options) as running:
        yield running


@pytest.fixture(scope="module")
def run(cluster: Cluster) -> Iterator[Run]:
    with runner(cluster) as running:
        yield running


@pytest.fixture(scope="module")
def names(run: Run, cluster: Cluster) -> dict[str, str]:
    ledger = run("ledger", "write", "-", "-E", 1, "-W", 1, "-A", 1, typed="a\nb\n").id
    run("log", "create", "events", "-E", 1, "-W", 1, "-A", 1)
    run("log", "append", "events", "x")
    with BlockingClient(cluster.uri) as client:
        client.call(lambda connected: Cursors(connected, "events").advance("etl", Position(0, 0)))
    bookie = run("bookie", "list", "-o", "id").id
    return {"LEDGER": ledger, "BOOKIE": bookie, "LOG": "events"}


@pytest.mark.parametrize("path", LINES)
def test_every_form_of_every_command_is_what_it_says(
    run: Run, names: dict[str, str], path: str
) -> None:
    words = [*path.split(), *(names.get(word, word) for word in LINES[path].split())]
    fine = {ExitStatus.DONE, ExitStatus.WARNINGS, ExitStatus.PROBLEMS, ExitStatus.NOT_FOUND}
    for form in OUTPUTS:
        found = run(*words, "-o", form, ok=False)
        assert found.status in fine, (form, found.err)
        if path not in SILENT and found.status != ExitStatus.NOT_FOUND:
            assert found.out.strip(), form
        if form == "json" and found.out:
            assert found.json["schema"] == 1
        if form == "jsonl":
            for line in found.out.splitlines():
                check(json.loads(line))
        if form == "csv" and found.out and path not in AS_IT_IS:
            header, *rows = csv.reader(io.StringIO(found.out))
            assert all(len(row) == len(header) for row in rows)


# Watching, on a cluster ------------------------------------------------------------------------


def test_a_state_can_be_waited_for(run: Run, names: dict[str, str]) -> None:
    assert run("bookie", "list", "--until", "healthy").out
    assert run("bookie", "ready", names["BOOKIE"], "--until", "healthy").status == 0
    assert run("ledger", "show", names["LEDGER"], "--until", "done").status == 0
    piped = run("ledger", "show", "-", "--until", "done", typed=f"{names['LEDGER']}\n")
    assert (piped.status, bool(piped.out)) == (0, True)
    assert run("autorecovery", "status", "--until", "marked=0").status == 0
    assert run("autorecovery", "list", "--until", "done").status == 0
    for command, condition in (("autorecovery", "count=0"), ("ledger", "count>0")):
        counting = (command, "list", "--count", "--until", condition, "--timeout", 10)
        assert run(*counting).status == 0
    opened = run("ledger", "create", "-E", 1, "-W", 1, "-A", 1).id
    rounds: list[dict[str, Any]] = []
    for limit_s in (1, 5, 30):  # However few rounds a busy machine gets to within a second.
        if len(rounds) > 2:
            break
        late = run(
            "ledger", "show", "-", "--until", "state=closed", "--watch=0.1", "--timeout", limit_s,
            "--json", typed=f"{opened}\n", ok=False,
        )  # fmt: skip
        assert late.status == ExitStatus.TIME_LIMIT
        assert "state=closed did not hold within" in late.error["error"]
        rounds = [check(json.loads(line)) for line in late.out.splitlines()]
    assert len(rounds) > 2
    assert {one["ledger_id"] for one in rounds} == {opened}


def test_ledgers_are_picked_and_put_in_order(run: Run) -> None:
    marked = [
        run("ledger", "write", "-", "-E", 1, "-W", 1, "-A", 1, typed="x" * size).id
        for size in (30, 10, 20)
    ]
    by_size = run(
        "ledger", "list", "-o", "id", "--filter", "length>9", "--sort-by", "length:desc"
    ).out.split()
    assert [one for one in by_size if one in marked] == [marked[0], marked[2], marked[1]]


def test_versions_of_all_are_told(run: Run, names: dict[str, str]) -> None:
    members = {one["member"]: one for one in run("version", "--all", "--json").json["members"]}
    bookie = members[names["BOOKIE"]]
    assert (bookie["kind"], bookie["version"]) == ("bookied", members["bkctl"]["version"])
    assert members["metadata"]["version"] == "hierarchical"


def test_a_column_of_the_metrics_is_asked_for_where_it_is_named(run: Run) -> None:
    version = run("version", "--json").json["version"]
    row = run("bookie", "list", "--columns", "version,uptime").out.splitlines()[1]
    assert (version in row, "-" in row.split()) == (True, False)
    assert run("bookie", "list", "--filter", f"version~{version}", "-o", "id").out


def test_a_bookie_that_is_nearly_named_is_offered(run: Run, names: dict[str, str]) -> None:
    wrong = names["BOOKIE"][:-1]
    missing = run("bookie", "info", wrong, ok=False)
    assert missing.status == ExitStatus.NOT_FOUND
    assert f"did you mean {names['BOOKIE']}?" in missing.err


_ARGUMENTS: Final = {"LEDGER": "1", "BOOKIE": "10.0.0.1:3181", "LOG": "log"}
_ONE_VALUE: Final = {
    "autorecovery auditor", "bookie ready", "bookie state", "cluster id", "completion",
    "config show", "cookie show", "explain", "profile list", "top",
}  # fmt: skip
"""Commands without a list from a cluster, and `top`, whose bookies have names of their own."""


@pytest.mark.parametrize("name", [name for name in LINES if name not in _ONE_VALUE])
@pytest.mark.parametrize("option", ["--columns=nope", "--sort-by=nope", "--filter=nope=1"])
def test_an_unknown_field_is_refused_before_any_request(name: str, option: str) -> None:
    words = [_ARGUMENTS.get(word, word) for word in f"{name} {LINES[name]}".split()]
    done = run_here("-u", "zk://127.0.0.1:1/ledgers", *words, option)
    assert done.returncode == ExitStatus.USAGE, done.stderr
    assert f"{option.partition('=')[0]}" in done.stderr
    assert "no field 'nope'" in done.stderr


def test_an_unknown_order_of_top_is_refused_before_any_request() -> None:
    done = run_here("-u", "zk://127.0.0.1:1/ledgers", "top", "--once", "--sort-by=nope")
    assert done.returncode == ExitStatus.USAGE
    assert "--sort-by: no field 'nope'" in done.stderr
