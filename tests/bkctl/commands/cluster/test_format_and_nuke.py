"""`cluster format`, `metaformat`, `cluster nuke` and `cluster id` on a file."""

from __future__ import annotations

import shlex
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bkclient.blocking import with_store
from bkclient.metadata.versions_and_watches import NEW
from bkctl.cli.root import cli
from bkctl.commands.cluster.metadata_contents import read_contents
from bkctl.errors import ConflictError
from tests.bkclient.metadata.values import B1, B2, closed, info, metadata
from tests.bkclient.worlds import World
from tests.bkctl.support.runner import Result
from tests.bkctl.support.terminal import FakeHost
from wire.ids import LedgerId


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)  # Where backups are written.
    return f"sqlite://{tmp_path}/metadata.db"


def run(uri: str, *words: object, typed: str = "", tty: bool = False, ok: bool = True) -> Result:
    with closing(FakeHost(typed, tty=tty, environ={"PAGER": ""})) as host:
        status = cli.run(["-u", uri, *map(str, words)], host)
    result = Result(status, host.out.data.decode(), host.err.text)
    assert not ok or status == 0, (words, result)
    return result


def make(uri: str, *, ledgers: int = 2) -> str:
    """Make a cluster with ledgers, a cookie and a mark; return its instance id."""

    async def fill(store: Any) -> str:
        await store.initialize()
        for ledger_id in range(ledgers):
            await store.create_ledger(LedgerId(ledger_id), metadata())
            if ledger_id % 2 == 0:
                await store.write_ledger(LedgerId(ledger_id), closed(length=2048), 0)
        await store.write_cookie(B1, b"cookie", NEW)
        await store.mark_underreplicated(LedgerId(1), (B1,))
        return await store.instance_id()

    return with_store(uri, fill)


def dump(uri: str) -> dict[str, Any]:
    async def all_of(store: Any) -> dict[str, Any]:
        return await store.dump()

    return with_store(uri, all_of)


class TestFormat:
    def test_it_shows_what_goes_and_wants_the_clusters_id(self, uri: str) -> None:
        cluster = make(uri)
        before = dump(uri)
        args = ("cluster", "format", "--force", "ledgers")
        wrong = run(uri, *args, typed="yes\n", tty=True, ok=False)
        assert wrong.status == 4
        assert "2 ledgers with 2.0 KiB (1 not closed" in wrong.err
        assert f"1 cookie: {B1}" in wrong.err
        assert "1 mark of ledgers" in wrong.err
        assert f"To confirm, type {cluster}" in wrong.err
        assert dump(uri) == before
        said = run(uri, *args, typed=f"{cluster}\n", tty=True)
        assert f"(was {cluster})" in said.out
        assert run(uri, "ledger", "list", "--count").out == "0\n"
        assert run(uri, "cluster", "instance-id").out != f"{cluster}\n"

    @pytest.mark.parametrize(
        "args",
        [("cluster", "format", "--yes"), ("metaformat", "-n", "-f"),
         ("metaformat", "-nonInteractive", "-force")],
    )  # fmt: skip
    def test_ledgers_are_not_lost_without_the_flag_that_says_so(
        self, uri: str, args: tuple[str, ...]
    ) -> None:
        make(uri)
        before = dump(uri)
        refused = run(uri, *args, ok=False)
        assert refused.status == 4
        option = "--override" if args[0] == "metaformat" else "--force"
        assert f"or {option} ledgers" in refused.err
        assert dump(uri) == before
        run(uri, *args, option, "ledgers")
        assert run(uri, "ledger", "list", "--count").out == "0\n"

    def test_javas_options_alone_format_what_has_no_ledgers(self, uri: str) -> None:
        cluster = make(uri, ledgers=0)
        asked = run(uri, "metaformat", "-n", ok=False, tty=True, typed=f"{cluster}\n")
        assert asked.status == 4
        assert run(uri, "metaformat", "-n", "-f", "--json").json["was"] == cluster

    def test_a_dry_run_tells_all_that_goes_and_what_is_against_it(self, uri: str) -> None:
        make(uri)
        before = dump(uri)
        told = run(uri, "cluster", "format", "--dry-run", ok=False)
        assert told.status == 4
        assert "would remove 2 ledgers" in told.out
        assert "refused without --force ledgers" in told.err
        assert dump(uri) == before

    def test_bookies_that_run_are_not_cut_off(self, uri: str) -> None:
        make(uri, ledgers=0)

        async def try_it(store: Any) -> tuple[Result, Result]:
            from twisted.internet import threads

            await store.register(B2, info(B2), read_only=False)
            refused = await threads.deferToThread(run, uri, "cluster", "format", "--yes", ok=False)
            nuke = await threads.deferToThread(run, uri, "cluster", "nuke", "--yes", ok=False)
            return refused, nuke

        refused, nuke = with_store(uri, try_it)
        assert (refused.status, nuke.status) == (4, 4)
        assert f"{B2} is registered: it runs" in refused.err
        assert "--force live-bookies" in refused.err
        assert "live-bookies" not in nuke.err

    def test_where_there_is_no_cluster_one_is_made(self, uri: str) -> None:
        assert run(uri, "metaformat", "--dry-run").out == f"would make a cluster at {uri}\n"
        made = run(uri, "metaformat", "--json").json
        assert made["was"] is None
        assert run(uri, "cluster", "instance-id").out == made["instance_id"] + "\n"


class TestWayBack:
    def test_the_backup_of_an_interrupted_format_is_named_by_the_next(
        self, uri: str, tmp_path: Path
    ) -> None:
        cluster = make(uri)
        first = tmp_path / f"bkctl-backup-{cluster}-1.jsonl"
        run(uri, "cluster", "backup", str(first))
        said = run(uri, "cluster", "format", "--yes", "--force", "ledgers")
        assert f"an earlier backup of this cluster is {first}" in said.err
        other = run(uri, "cluster", "format", "--yes")
        assert "earlier" not in other.err

    def test_a_formatted_cluster_is_restored_from_the_backup_that_format_wrote(
        self, uri: str, tmp_path: Path
    ) -> None:
        cluster = make(uri)
        before = dump(uri)
        said = run(uri, "cluster", "format", "--yes", "--force", "ledgers")
        made = run(uri, "cluster", "instance-id").out.strip()
        undo = shlex.split(said.out.splitlines()[-1].partition(": ")[2])
        file = undo[-1]
        assert undo == ["bkctl", "-u", uri, "cluster", "restore", file]
        assert Path(file).parent == tmp_path
        assert f"wrote a backup of all metadata to {file}" in said.err
        assert dump(uri) != before
        plan = run(uri, "cluster", "restore", file, "--dry-run").out
        assert f"remove the empty cluster {made}" in plan
        restored = run(uri, "cluster", "restore", file, "--yes")
        assert "ledgers that are newer than the backup have no metadata" in restored.err
        assert "`bkctl disk ledgers -o id -c FILE`" in restored.err
        after = dump(uri)
        assert run(uri, "cluster", "instance-id").out == f"{cluster}\n"
        assert {path: after[path][0] for path in before} == {k: v[0] for k, v in before.items()}

    def test_a_formatted_cluster_that_is_used_again_is_left_alone(self, uri: str) -> None:
        make(uri)
        file = run(uri, "metaformat", "-n", "-f", "--override", "ledgers", "--json").json["backup"]

        async def use(store: Any) -> None:
            await store.create_ledger(LedgerId(9), metadata())

        with_store(uri, use)
        before = dump(uri)
        refused = run(uri, "cluster", "restore", file, "--yes", ok=False)
        assert refused.status == 7
        assert "which is not empty" in refused.err
        assert dump(uri) == before

    def test_bookies_that_run_are_named_before_the_way_back(self, uri: str) -> None:
        make(uri)
        file = run(uri, "cluster", "format", "--yes", "--force", "ledgers", "--json").json["backup"]

        async def try_it(store: Any) -> Result:
            from twisted.internet import threads

            await store.register(B2, info(B2), read_only=False)
            restoring = partial(run, uri, "cluster", "restore", file, "--yes", ok=False)
            return await threads.deferToThread(restoring)

        refused = with_store(uri, try_it)
        assert "which has registered bookies" in refused.err
        assert "stop the bookies, and run the command again" in refused.err

    def test_without_its_backup_nothing_is_formatted(self, uri: str, tmp_path: Path) -> None:
        make(uri)
        before = dump(uri)
        missing = tmp_path / "missing" / "file"
        args = ("cluster", "format", "--yes", "--force", "ledgers")
        failed = run(uri, *args, "--backup", missing, ok=False)
        assert "no such directory" in failed.err
        assert "nothing was formatted" in failed.err
        assert dump(uri) == before
        assert run(uri, *args, "--no-backup", "--json").json["backup"] is None
        assert not list(tmp_path.glob("bkctl-backup-*"))


class TestNuke:
    def test_the_clusters_id_is_the_proof(self, uri: str) -> None:
        cluster = make(uri)
        other = run(uri, "cluster", "nuke", "--instance-id", "x", "--force", "ledgers", ok=False)
        assert other.status == 7
        assert f"this is the cluster {cluster}" in other.err
        kept = run(uri, "cluster", "nuke", "--instance-id", cluster, ok=False)
        assert (kept.status, "2 ledgers would be lost" in kept.err) == (4, True)
        run(uri, "cluster", "nuke", "--instance-id", cluster, "--force", "ledgers")
        gone = run(uri, "cluster", "info", ok=False)
        assert gone.status == 5
        assert run(uri, "cluster", "nuke").out == f"there is no cluster at {uri}\n"

    def test_another_root_than_is_meant_is_left_alone(self, uri: str) -> None:
        cluster = make(uri, ledgers=0)
        root = uri.removeprefix("sqlite://")
        for words in (
            ("cluster", "nuke", "--root", "/ledgers", "--yes"),
            ("compat", "nukeexistingcluster", "-p", "/ledgers", "-f"),
        ):
            other = run(uri, *words, ok=False)
            assert (other.status, f"has the root {root}, not /ledgers" in other.err) == (7, True)
        assert run(uri, "cluster", "instance-id").out == f"{cluster}\n"
        run(uri, "compat", "nukeexistingcluster", "-p", root, "-i", cluster)
        assert run(uri, "cluster", "info", ok=False).status == 5

    def test_typing_it_is_one_too(self, uri: str) -> None:
        cluster = make(uri, ledgers=0)
        assert run(uri, "cluster", "nuke", typed="y\n", tty=True, ok=False).status == 4
        said = run(uri, "cluster", "nuke", typed=f"{cluster}\n", tty=True)
        assert said.out == f"cluster {cluster} removed (0 ledgers gone)\n"

    def test_a_dry_run_removes_nothing(self, uri: str) -> None:
        cluster = make(uri)
        before = dump(uri)
        assert (
            f"would remove the cluster {cluster}"
            in run(uri, "cluster", "nuke", "--dry-run", ok=False).out
        )
        assert dump(uri) == before


def test_a_root_that_lost_its_layout_is_not_taken_for_an_empty_one() -> None:
    world = World(0)
    store = world.client().store
    world.run(store.create_ledger(LedgerId(1), metadata()))
    world.metadata.delete("/LAYOUT")
    with pytest.raises(ConflictError, match="has no LAYOUT, and is not empty: /00"):
        world.run(read_contents(world.client().store))


def test_an_init_that_was_cut_short_can_be_formatted() -> None:
    world = World(0)
    world.metadata.delete("/LAYOUT")
    found = world.run(read_contents(world.client().store))
    assert found is not None
    assert (found.ledgers, found.registered) == (0, ())
    assert found.instance_id is not None


def test_the_cluster_says_how_its_autorecovery_stands(uri: str) -> None:
    make(uri)
    found = run(uri, "cluster", "info", "--json").json
    assert (found["autorecovery"], found["auditor"], found["underreplicated"]) == (True, None, True)
