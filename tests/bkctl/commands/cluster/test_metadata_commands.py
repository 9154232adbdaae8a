"""`cluster tree`, `get`, `backup`, `restore` and `watch`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import attrs
import pytest

from bkclient.blocking import with_store
from bkclient.client import Client
from bkclient.errors import LedgerIdOverflowError
from bkclient.metadata import zk_paths
from bkclient.metadata.errors import NotInitializedError
from bkclient.metadata.versions_and_watches import NEW
from bkctl.cli.root import cli
from bkctl.commands.cluster import nodes, watch
from bkctl.commands.cluster.backup import backup_file, restore
from bkctl.commands.cluster.backup.backup_file import BackupDamagedError
from bkctl.commands.cluster.nodes import MetadataNode
from bkctl.commands.cluster.watch import ClusterEvent, ClusterSnapshot, changes
from bkctl.exit_status import ExitStatus
from bkctl.output.charts import Canvas
from tests.bkclient.worlds import Fate, Running, World
from tests.bkctl.commands.bookie.test_bookie import written
from tests.bkctl.support.drawings import WIDTHS, check_drawing
from tests.bkctl.support.runner import Result
from tests.bkctl.support.terminal import FakeHost, Stream
from tests.bkctl.support.world import WorldHost, run_in
from tests.support.memory_zookeeper import TreeOperation
from wire.ids import BookieId, LedgerId
from wire.messages import Request
from wire.records.cookie import Cookie, encode_cookie


@pytest.fixture
def world() -> World:
    """A cluster with a bit of everything: ledgers, cookies, marks, a log, a strange node."""
    world = World(3)
    store = world.client().store
    for name in ("b1", "b2"):
        cookie = encode_cookie(Cookie(name, "/j", ("/l",), None, "cluster"))
        world.run(store.write_cookie(BookieId(name), cookie, NEW))
    for _ in range(3):
        written(world)
    world.run(world.client().create_ledger(password=b"hush"))
    world.run(store.mark_underreplicated(LedgerId(1), (BookieId("b9"),)))
    world.run(store.set_replication_enabled(enabled=False))
    run_in(world, "log", "create", "orders")
    world.metadata.create("/strange", b"\x1b[31mbytes")
    return world


_FORCED = ("--force", "open-ledgers", "--force", "only-copies")


def at(uri: str, *words: object, typed: str = "", tty: bool = False, ok: bool = True) -> Result:
    """Run a command on a cluster in a file."""
    with closing(FakeHost(typed, tty=tty, environ={"PAGER": ""})) as host:
        status = cli.run(["-u", uri, *map(str, words)], host)
    result = Result(status, host.out.text, host.err.text)
    assert not ok or status == 0, (words, result)
    return result


class TestTree:
    @pytest.mark.parametrize("width", WIDTHS)
    def test_every_known_node_is_decoded(self, world: World, width: int) -> None:
        async def everything() -> list[MetadataNode]:
            return [n async for n in nodes.nodes(world.client(), "", 9, secrets=False)]

        found = world.run(everything())
        check_drawing("cluster-tree", nodes.drawing(found, "", Canvas(width)), width)

    def test_what_is_deeper_is_told_by_its_number(self, world: World) -> None:
        drawn = run_in(world, "cluster", "tree", "--depth", 1).out
        assert "cookies (2 below)  cookies" in drawn
        assert "cookie of b1" not in drawn
        below = run_in(world, "cluster", "tree", "cookies/").out
        assert below.splitlines()[0] == "/cookies  cookies"
        assert "└─ b2  cookie of b2" in below

    def test_it_can_be_filtered(self, world: World) -> None:
        shown = run_in(world, "cluster", "tree", "--filter", "kind=cookie").out
        assert [line.split()[0] for line in shown.splitlines()] == [
            "PATH",
            "/cookies/b1",
            "/cookies/b2",
        ]
        assert "no nodes" in run_in(world, "cluster", "tree", "--filter", "kind=nothing").err

    def test_a_limit_is_kept_and_told(self, world: World) -> None:
        said = run_in(world, "cluster", "tree", "--limit", 3, "-o", "id")
        assert len(said.out.splitlines()) == 3
        assert "more than 3 nodes" in said.err

    def test_programs_get_a_line_a_node(self, world: World) -> None:
        said = run_in(world, "cluster", "tree", "--depth", 9, "-o", "jsonl").out
        found = {one["path"]: one for one in map(json.loads, said.splitlines())}
        assert found["/cookies/b1"]["decoded"]["journal_dirs"] == "/j"
        assert found["/available/b1"]["ephemeral"] is True
        assert found["/strange"]["kind"] == "unknown"
        assert found["/00/0000/L0000"]["kind"] == "ledger"
        assert found["/00/0000/L0000"]["version"] == 1

    def test_a_node_that_is_not_there_is_status_3(self, world: World) -> None:
        for command in ("tree", "get"):
            said = run_in(world, "cluster", command, "/nowhere", ok=False)
            assert (said.status, "no node /nowhere" in said.err) == (3, True)

    @pytest.mark.parametrize("path", ["..", "/./cookies", "/cookies/../cookies"])
    def test_a_path_names_each_node_on_the_way(self, world: World, path: str) -> None:
        for command in ("tree", "get"):
            said = run_in(world, "cluster", command, path, ok=False)
            assert (said.status, f"{path}: '.' and '..' are not valid names" in said.err) == (
                2,
                True,
            )

    @pytest.mark.parametrize(
        ("path", "meant", "see"),
        [
            ("/nowhere", "", "`bkctl cluster tree / --depth 1`"),
            ("/cookis/b1", "; did you mean /cookies?", "`bkctl cluster tree / --depth 1`"),
            ("/cookies/b11", "; did you mean /cookies/b1?", "`bkctl cluster tree /cookies --"),
            ("/00/0000/L9999/x", "", "`bkctl cluster tree /00/0000 --depth 1`"),
            ("/ledgers/cookies/b1", "; did you mean /cookies/b1?", "below the cluster's root"),
            (".logs/order", "; did you mean .logs/orders?", "`bkctl cluster tree .logs --depth 1`"),
            (".log", "; did you mean .logs?", "`bkctl cluster tree / --depth 1`"),
        ],
    )
    def test_the_nearest_node_there_is_and_what_was_meant_are_told(
        self, world: World, path: str, meant: str, see: str
    ) -> None:
        for command in ("tree", "get"):
            said = run_in(world, "cluster", command, path, ok=False)
            assert said.status == 3
            assert f"{path}{meant}" in said.err
            assert ("did you mean" in said.err) == bool(meant)
            assert see in said.err


class TestGet:
    def test_a_ledger_is_shown_without_its_password(self, world: World) -> None:
        path = "/00/0000/L0003"
        shown = run_in(world, "cluster", "get", path, "--json")
        assert shown.json["decoded"]["state"] == "OPEN"
        assert "password" not in shown.json["decoded"]
        assert shown.json["value_b64"] is None
        assert base64.b64encode(b"hush").decode() not in shown.out
        secret = run_in(world, "cluster", "get", path, "--json", "--show-secrets").json
        assert secret["decoded"]["password"] == "hush"
        assert b"hush" in base64.b64decode(secret["value_b64"])

    def test_a_log_is_shown_without_its_password(self, world: World) -> None:
        shown = run_in(world, "cluster", "get", ".logs/orders", "--json").json
        assert shown["kind"] == "log"
        assert "password" not in shown["decoded"]["options"]

    def test_the_root_is_one_node_also_where_there_are_logs(self, world: World) -> None:
        assert run_in(world, "cluster", "get", "/", "-o", "id").out == "/\n"

    def test_what_a_terminal_would_obey_is_escaped(self, world: World) -> None:
        assert "\x1b" not in run_in(world, "cluster", "get", "strange").out

    def test_a_value_that_cannot_be_read_says_why(self, world: World) -> None:
        world.metadata.set("/cookies/b1", b"rubbish")
        shown = run_in(world, "cluster", "get", "/cookies/b1", "--json").json
        assert "not with its version" in shown["problem"]
        assert shown["decoded"] is None

    @pytest.mark.parametrize("mark", ["n", "\u00e9"])
    def test_a_name_of_thousands_of_characters_is_cut_in_messages(
        self, world: World, mark: str
    ) -> None:
        refused = run_in(world, "cluster", "get", f"/{mark * 3000}/end", ok=False)
        assert refused.status == 3
        assert len(refused.err) < 700
        assert f"there is no node /{mark * 100}" in refused.err
        assert f"...{mark * 40}" in refused.err


class TestBackup:
    def test_a_backup_has_everything_that_lasts(self, world: World, tmp_path: Path) -> None:
        file = tmp_path / "b.jsonl"
        said = run_in(world, "cluster", "backup", file).out
        assert "(4 ledgers, 2 cookies, 1 mark, 1 log)" in said
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        paths = [line["path"] for line in lines[1:-1]]
        assert lines[0]["bkctl-backup"] == 1
        assert lines[-1]["nodes"] == len(paths)
        assert "/strange" in paths
        assert ".logs/orders" in paths
        assert not any(path.startswith("/available/b") for path in paths)
        assert file.stat().st_mode & 0o777 == 0o600
        assert [one.name for one in tmp_path.iterdir()] == ["b.jsonl"]

    def test_a_backup_to_stdout_makes_no_file(
        self, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        said = run_in(world, "cluster", "backup", "-").out
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "b.jsonl").write_text(said)
        assert backup_file.read(tmp_path / "b.jsonl").kinds["ledger"] == 4
        refused = run_in(world, "cluster", "backup", "-", tty=True, ok=False)
        assert (refused.status, "passwords" in refused.err, refused.out) == (4, True, "")

    def test_no_file_is_replaced(self, world: World, tmp_path: Path) -> None:
        file = tmp_path / "b.jsonl"
        run_in(world, "cluster", "backup", file)
        before = file.read_bytes()
        refused = run_in(world, "cluster", "backup", file, ok=False)
        assert (refused.status, "exists already" in refused.err) == (7, True)
        assert file.read_bytes() == before
        missing = run_in(world, "cluster", "backup", tmp_path / "no" / "b.jsonl", ok=False)
        assert missing.status == 3

    @pytest.mark.parametrize(
        ("damage", "says"),
        [
            (
                lambda text: text[: len(text) // 2].rpartition("\n")[0] + "\n",
                "the file is truncated",
            ),
            (lambda text: text[: len(text) // 2], "is not a node"),
            (lambda text: text.replace('"version": 1', '"version": 2', 1), "checksum"),
            (lambda text: text + text.splitlines()[1] + "\n", "more follows"),
            (lambda text: text.replace('"bkctl-backup": 1', '"bkctl-backup": 9'), "version 9"),
            (lambda _text: "", "does not begin"),
        ],
    )
    def test_a_damaged_one_is_noticed(
        self, world: World, tmp_path: Path, damage: object, says: str
    ) -> None:
        file = tmp_path / "b.jsonl"
        run_in(world, "cluster", "backup", file)
        assert callable(damage)
        file.write_text(damage(file.read_text()))
        with pytest.raises(BackupDamagedError, match=says):
            backup_file.read(file)
        target = f"sqlite://{tmp_path}/new.db"
        assert at(target, "cluster", "restore", file, "--yes", ok=False).status == 1
        missing = at(target, "cluster", "restore", "none", "--yes", ok=False)
        assert missing.status == 3
        assert "give a file that `bkctl cluster backup FILE` has written" in missing.err
        assert not (tmp_path / "new.db").exists()


ODD_NUMBERS = (
    *("Infinity", "-Infinity", "NaN", "1e400", "1e30", "1.5", "-1", str(2**63), "1" * 5000),
    *('"1"', "true", "null", "[]", "{}"),
)


def sealed(lines: list[str]) -> str:
    """Return a backup file of lines, with a checksum that fits."""
    *body, end = (f"{line}\n" for line in lines)
    digest = hashlib.sha256("".join(body).encode()).hexdigest()
    return "".join(body) + re.sub('(?<="sha256": ")[0-9a-f]+', digest, end)


class TestRestore:
    @pytest.fixture
    def file(self, world: World, tmp_path: Path) -> Path:
        world.metadata.delete("/strange")
        file = tmp_path / "b.jsonl"
        run_in(world, "cluster", "backup", file)
        return file

    def test_an_empty_root_gets_all_of_it(self, world: World, file: Path, tmp_path: Path) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        plan = at(target, "cluster", "restore", file, "--dry-run").out
        assert "4 ledgers, 2 cookies, 1 mark, 1 log" in plan
        assert not (tmp_path / "new.db").exists()
        newer = "ledgers that are newer than the backup will have no metadata"
        assert newer in at(target, "cluster", "restore", file, "--dry-run").err
        restored = at(target, "cluster", "restore", file, "--yes")
        said = restored.out
        assert "are reserved; new ledgers get higher ids" in restored.err
        assert said.startswith("restored cluster 00000000-")
        for words in (
            ("cluster", "id"), ("ledger", "list", "-o", "id"), ("cookie", "list", "-o", "id"),
            ("log", "list", "-o", "id"), ("autorecovery", "list", "-o", "id"),
        ):  # fmt: skip
            assert at(target, *words).out == run_in(world, *words).out, words
        assert at(target, "autorecovery", "status", "--json").json["enabled"] is False

    @pytest.mark.parametrize(
        ("line", "name", "text"),
        [
            *((0, "time_ms", text) for text in ODD_NUMBERS),
            *((0, name, text) for name in ("instance_id", "uri") for text in ("[1]", "7")),
            *((0, "layout", text) for text in ("[]", "null", '"none"')),
            *((1, name, text) for name in ("ctime_ms", "version") for text in ODD_NUMBERS),
            *((1, "path", text) for text in ("[]", "null", '"nowhere"', '"/a//b"', '"/../x"')),
            *((1, "value_b64", text) for text in ("[]", "7", '"="')),
            *((-1, "nodes", text) for text in ODD_NUMBERS),
        ],
    )
    def test_a_wrong_value_under_a_right_checksum_is_named(
        self, file: Path, tmp_path: Path, line: int, name: str, text: str
    ) -> None:
        lines = file.read_text().splitlines()
        fields = {key: json.dumps(value) for key, value in json.loads(lines[line]).items()}
        fields[name] = text
        lines[line] = "{" + ", ".join(f'"{key}": {value}' for key, value in fields.items()) + "}"
        file.write_text(sealed(lines))
        target = f"sqlite://{tmp_path}/new.db"
        refused = at(target, "cluster", "restore", file, "--yes", ok=False)
        assert (refused.status, refused.err.startswith("bkctl: ")) == (1, True), refused
        assert not (tmp_path / "new.db").exists()

    @pytest.mark.parametrize("ledger_id", [2**63 - 1, 2**63 - 1000, 2**62])
    def test_the_highest_ledgers_can_be_restored(
        self, file: Path, tmp_path: Path, ledger_id: int
    ) -> None:
        lines = file.read_text().splitlines()
        node = json.loads(next(line for line in lines if "/00/0000/L0001" in line))
        node["path"] = zk_paths.LAYOUTS["longhierarchical"].path_of(LedgerId(ledger_id))
        lines.insert(-1, json.dumps(node))
        lines[-1] = re.sub('(?<="nodes": )[0-9]+', str(len(lines) - 2), lines[-1])
        file.write_text(sealed(lines))
        target = f"sqlite://{tmp_path}/new.db"
        at(target, "cluster", "restore", file, "--yes")

    def test_no_cluster_is_left_that_would_give_out_ids_of_the_backup(self, file: Path) -> None:
        lines = file.read_text().replace("/00/0000/L0001", "/L2147000000").splitlines()
        lines[0] = lines[0].replace('"hierarchical"', '"flat"')
        lines = [line for line in lines if '"path": "/00' not in line]
        lines[-1] = re.sub('(?<="nodes": )[0-9]+', str(len(lines) - 2), lines[-1])
        file.write_text(sealed(lines))
        target = World(0)
        for path in (zk_paths.LAYOUT, zk_paths.INSTANCE_ID):
            target.metadata.delete(path)
        store = target.client().store
        with pytest.raises(LedgerIdOverflowError, match="more than 1000000 are refused"):
            target.run(restore._put(store, file, backup_file.read(file), Mock(), (), ()))
        with pytest.raises(NotInitializedError):
            target.run(store.layout())

    def test_ledgers_stay_as_old_as_they_were(self, file: Path, tmp_path: Path) -> None:
        old_ms, lines = 1_600_000_000_000, file.read_text().splitlines(keepends=True)
        lines[1:-1] = [
            line.replace('"version"', f'"ctime_ms": {old_ms}, "version"')
            if '"ctime_ms"' not in line
            else re.sub('(?<="ctime_ms": )[0-9]+', str(old_ms), line)
            for line in lines[1:-1]
        ]
        file.write_text(sealed("".join(lines).splitlines()))
        target = f"sqlite://{tmp_path}/new.db"
        at(target, "cluster", "restore", file, "--yes")
        created = [row["created"] for row in at(target, "ledger", "list", "--json").json["ledgers"]]
        assert {one[:10] for one in created} == {"2020-09-13"}
        at(target, "cluster", "backup", tmp_path / "again.jsonl")
        assert (tmp_path / "again.jsonl").read_text().count(f'"ctime_ms": {old_ms}') == 4

    def test_new_ledgers_get_ids_behind_those_of_the_backup(
        self, file: Path, tmp_path: Path
    ) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        at(target, "cluster", "restore", file, "--yes")
        made = with_store(target, lambda store: store.allocate_ledger_id())
        assert made == 3 + restore.IDS_SPARED + 1

    def test_a_living_cluster_goes_on_with_its_own_ids(self, file: Path, tmp_path: Path) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        at(target, "cluster", "restore", file, "--yes")

        def next_id() -> int:
            return with_store(target, lambda store: store.allocate_ledger_id())

        before = next_id()
        for words in (("--force", "root"), ("--ledger", 1)):
            said = at(target, "cluster", "restore", file, "--yes", *words)
            assert "reserved" not in said.err
        assert next_id() == before + 1  # Nothing was missing.
        at(target, "ledger", "delete", 1, "--yes", *_FORCED[:2])
        said = at(target, "cluster", "restore", file, "--yes", "--ledger", 1)
        assert (said.out.startswith("added 1 node"), "reserved" in said.err) == (True, False)
        assert before + 1 < next_id() <= before + 3

    def test_a_cluster_whose_counter_was_lost_gets_ids_behind_those_of_the_backup(
        self, file: Path, tmp_path: Path
    ) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        at(target, "cluster", "restore", file, "--yes")
        at(target, "ledger", "delete", 0, "--yes", *_FORCED[:2])
        with closing(sqlite3.connect(tmp_path / "new.db")) as connection, connection:
            connection.execute("UPDATE seq SET next = 2 WHERE name = 'ledger'")
        said = at(target, "cluster", "restore", file, "--yes", "--force", "root")
        assert "ledger ids up to 1003 are reserved" in said.err
        assert with_store(target, lambda store: store.allocate_ledger_id()) == 1004

    def test_it_asks_and_a_no_changes_nothing(self, file: Path, tmp_path: Path) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        refused = at(target, "cluster", "restore", file, typed="n\n", tty=True, ok=False)
        assert (refused.status, "Restore cluster" in refused.err) == (4, True)
        assert not (tmp_path / "new.db").exists()

    def test_a_root_that_is_not_empty_is_refused_and_only_completed_by_force(
        self, file: Path, tmp_path: Path
    ) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        at(target, "cluster", "restore", file, "--yes")
        again = at(target, "cluster", "restore", file, "--yes", ok=False)
        assert (again.status, again.err.count("--force root")) == (4, 1)
        assert "cluster nuke" not in again.err
        at(target, "ledger", "delete", 0, "--yes", "--force", "open-ledgers")
        at(target, "autorecovery", "enable")
        cookie = tmp_path / "cookie"
        cookie.write_bytes(encode_cookie(Cookie("b1", "/other", ("/l",), None, "cluster")))
        at(target, "cookie", "update", "b1", "--file", cookie, "--force", "content", "--yes")
        words = ("cluster", "restore", file, "--yes", "--force", "root")
        dry = at(target, *words, "--dry-run")
        assert "1 node differs and stays as it is: /cookies/b1" in dry.err
        plan = dry.out
        stay = "24 nodes exist and stay: 3 ledgers, 2 cookies, 1 mark, 1 log, 17 others"
        assert plan == f"would add 2 nodes: 1 ledger (0); {stay}\n"
        forced = at(target, *words, "--json")
        assert forced.json["added"] == 2  # Autorecovery was disabled at the time of the backup.
        assert forced.json["kept"] == ["/cookies/b1"]
        assert "1 node differs and stays as it is: /cookies/b1" in forced.err
        assert at(target, "ledger", "list", "-o", "id").out.split() == ["0", "1", "2", "3"]
        shown = at(target, "cookie", "get", "b1", "--json").json
        assert shown["journal_dirs"] == "/other"

    def test_a_dry_run_names_a_ledger_that_differs(self, file: Path, tmp_path: Path) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        at(target, "cluster", "restore", file, "--yes")
        nodes = {n.path: n.value for some in backup_file.stored_nodes(file) for n in some}
        open_one, closed = (
            base64.b64encode(nodes[f"/00/0000/L000{ledger_id}"]).decode() for ledger_id in (3, 2)
        )
        file.write_text(sealed(file.read_text().replace(open_one, closed).splitlines()))
        for words in (("--force", "root"), ("--ledger", 3)):
            for how in ("--dry-run", "--yes"):
                said = at(target, "cluster", "restore", file, *words, how)
                assert "1 node differs and stays as it is: /00/0000/L0003" in said.err, (words, how)

    def test_a_log_that_would_come_back_does_not_count_as_differing(
        self, world: World, file: Path
    ) -> None:
        run_in(world, "log", "delete", "orders", "--yes")
        existing = world.run(restore._existing(world.client().store, ()))
        assert zk_paths.log("orders") in existing
        assert not restore._missing(file, backup_file.read(file), existing).differing

    def test_a_pipe_is_refused_and_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        said = at(f"sqlite://{tmp_path}/m.db", "cluster", "restore", tmp_path / "pipe", ok=False)
        assert (said.status, "not a regular file" in said.err) == (ExitStatus.NOT_FOUND, True)

    def test_ledgers_that_the_backup_lacks_are_named_before_a_restore(
        self, file: Path, tmp_path: Path
    ) -> None:
        target, older = f"sqlite://{tmp_path}/new.db", tmp_path / "older.jsonl"
        at(target, "cluster", "restore", file, "--yes")
        words = ("cluster", "restore", "--force", "root", "--dry-run")
        assert "not in the backup" not in at(target, *words, file).out
        at(target, "ledger", "delete", 0, "--yes", *_FORCED[:2])
        at(target, "cluster", "backup", older)
        at(target, "cluster", "restore", file, "--ledger", 0, "--yes")
        plan = at(target, *words, older).out
        assert plan.endswith("; 1 ledger is not in the backup and stays: 0\n")

    def test_one_ledger_is_restored_alone(self, file: Path, tmp_path: Path) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        words = ("cluster", "restore", file, "--yes", "--ledger", "1")
        early = at(target, *words, ok=False)
        assert (early.status, "has no cluster" in early.err) == (7, True)
        at(target, "cluster", "restore", file, "--yes")
        for ledger_id in (0, 1):
            at(target, "ledger", "delete", ledger_id, "--yes", *_FORCED[:2])
        at(target, "cookie", "delete", "b2", "--yes", *_FORCED)
        at(target, "autorecovery", "enable")
        plan = at(target, *words, "--dry-run").out
        stay = "2 nodes exist and stay: parents of ledgers"
        assert plan == f"would add 1 node: 1 ledger (1); {stay}\n"
        added = at(target, *words)
        assert added.out.startswith("added 1 node: 1 ledger (1) to ")
        unasked = at(target, "cluster", "restore", file, "--ledger", 1)
        assert unasked.out.startswith("added 0 nodes to ")
        assert at(target, "ledger", "list", "-o", "id").out.split() == ["1", "2", "3"]
        assert at(target, "cookie", "list", "-o", "id").out.split() == ["b1"]
        assert at(target, "autorecovery", "status", "--json").json["enabled"] is True
        absent = at(target, *words, "--ledger", "77", ok=False)
        assert (absent.status, "does not have 1 ledger: 77" in absent.err) == (3, True)

    def test_the_ids_of_chosen_ledgers_are_reserved_before_the_ledgers_are_added(
        self, file: Path
    ) -> None:
        target, made = World(0), list[str]()

        def note(operation: TreeOperation) -> float:
            if operation.name == "create":
                made.append(operation.path)
            return 0.0

        store = target.client().store
        info = backup_file.read(file)
        only = restore._paths_of([LedgerId(1)], info)
        target.metadata.delay_s = note
        target.run(
            restore._put(
                store,
                file,
                attrs.evolve(info, highest_ledger=LedgerId(1)),
                Mock(),
                only,
                [LedgerId(1)],
            )
        )
        ledger = made.index(zk_paths.LAYOUTS["hierarchical"].path_of(LedgerId(1)))
        assert sum(zk_paths.ID_PREFIX in path for path in made[:ledger]) > restore.IDS_SPARED
        assert target.run(store.allocate_ledger_id()) > 1 + restore.IDS_SPARED

    def test_versions_of_logs_go_on_where_it_replaces_a_formatted_cluster(self) -> None:
        target = World(0)
        store = target.client().store
        before = target.run(store.create_log("events", b"first"))
        instance_id = target.run(store.format())
        target.run(restore._remove_empty(store, instance_id))
        assert target.run(store.create_log("events", b"second")) > before

    def test_the_question_about_one_ledger_says_that_it_was_chosen(
        self, file: Path, tmp_path: Path
    ) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        at(target, "cluster", "restore", file, "--yes")
        at(target, "ledger", "delete", 1, "--yes", *_FORCED[:2])
        refused = at(target, "cluster", "restore", file, "--ledger", "1", ok=False)
        assert "Chosen from the backup of " in refused.err
        assert ": 1 ledger." in refused.err

    def test_one_ledger_is_not_added_to_another_cluster(self, file: Path, tmp_path: Path) -> None:
        target = f"sqlite://{tmp_path}/other.db"
        at(target, "cluster", "init")
        words = ("cluster", "restore", file, "--yes", "--ledger", "1")
        mixed = at(target, *words, ok=False)
        assert (mixed.status, "the backup is of" in mixed.err) == (7, True)
        assert at(target, "ledger", "list", "-o", "id").out == ""

    def test_one_ledger_of_a_cluster_without_id_is_not_added_to_an_empty_root(
        self, file: Path, tmp_path: Path
    ) -> None:
        lines = file.read_text().splitlines()
        lines[0] = json.dumps(json.loads(lines[0]) | {"instance_id": None})
        file.write_text(sealed(lines))
        target = f"sqlite://{tmp_path}/new.db"
        words = ("cluster", "restore", file, "--yes", "--ledger", "1")
        early = at(target, *words, ok=False)
        assert (early.status, "has no cluster" in early.err) == (7, True)

    def test_bookies_that_are_not_in_service_are_named(self, file: Path, tmp_path: Path) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        warned = at(target, "cluster", "restore", file, "--yes").err
        assert "restored ledgers list 3 bookies not in service: b1, b2, b3." in warned

    def test_ledgers_whose_entries_are_gone_are_status_8(
        self, world: World, file: Path, tmp_path: Path
    ) -> None:
        for bookie in world.bookies.values():
            bookie.ledgers.pop(LedgerId(1), None)
        with closing(WorldHost(world, "", tty=False)) as host:
            words = ("cluster", "restore", str(file), "--yes")
            status = cli.run(["-u", f"sqlite://{tmp_path}/new.db", *words], host)
        assert (status, "1 restored ledger without entries: 1." in host.err.text) == (8, True)
        assert host.out.text.startswith("restored cluster ")

    def test_what_was_added_is_what_was_missing_after_the_answer(
        self, file: Path, tmp_path: Path
    ) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        at(target, "cluster", "restore", file, "--yes")
        at(target, "ledger", "delete", 0, "--yes", *_FORCED[:2])
        at(target, "cookie", "delete", "b2", "--yes", *_FORCED)

        class Slow(Stream):
            """A person: another deletes a ledger before the answer."""

            def readline(self, _size: int | None = -1) -> str:
                at(target, "ledger", "delete", 2, "--yes", *_FORCED[:2])
                return "y\n"

        class SlowHost(FakeHost):
            stdin = Slow(tty=True)

        with closing(SlowHost(tty=True, environ={"PAGER": ""})) as host:
            words = ("cluster", "restore", str(file), "--force", "root")
            assert cli.run(["-u", target, *words], host) == 0
        assert (
            "Missing: 2 nodes: 1 ledger (0), 1 cookie (b2); 24 nodes exist and stay: 3 ledgers, "
            in host.err.text
        )
        assert "also ledgers that were deleted on purpose" in host.err.text
        assert host.out.text.startswith("added 3 nodes: 2 ledgers (0, 2), 1 cookie (b2) to ")

    def test_an_interrupt_while_entries_are_looked_for_leaves_nothing_to_go_on_with(
        self, world: World, file: Path, tmp_path: Path
    ) -> None:
        def interrupting(_request: Request) -> Fate:
            signal.raise_signal(signal.SIGINT)
            return Fate.SERVE

        for bookie in world.bookies.values():
            bookie.policy = interrupting
        with closing(WorldHost(world, "", tty=False)) as host:
            words = ("cluster", "restore", str(file), "--yes")
            status = cli.run(["-u", f"sqlite://{tmp_path}/new.db", *words], host)
        assert status == ExitStatus.INTERRUPTED
        assert host.out.text.startswith("restored cluster ")
        assert "continues" not in host.err.text

    def test_one_that_broke_off_is_no_cluster_and_can_be_gone_on_with(
        self, file: Path, tmp_path: Path
    ) -> None:
        target = f"sqlite://{tmp_path}/new.db"
        some = [n for ns in backup_file.stored_nodes(file) for n in ns if "LAYOUT" not in n.path]
        with_store(target, lambda store: store.add_nodes(some[:-3], "hierarchical"))
        assert at(target, "ledger", "list", ok=False).status != 0
        at(target, "cluster", "restore", file, "--yes", "--force", "root")
        assert at(target, "ledger", "list", "-o", "id").out.split() == ["0", "1", "2", "3"]

    def test_another_cluster_is_never_mixed_in(self, file: Path, tmp_path: Path) -> None:
        target = f"sqlite://{tmp_path}/other.db"
        at(target, "cluster", "init")
        cookie = tmp_path / "cookie"
        cookie.write_bytes(encode_cookie(Cookie("b9", "/other", ("/l",), None, "cluster")))
        at(target, "cookie", "create", "b9", "--file", cookie, "--force", "content")
        mixed = at(target, "cluster", "restore", file, "--yes", "--force", "root", ok=False)
        assert (mixed.status, "the backup is of" in mixed.err) == (7, True)


class TestWatch:
    def test_it_begins_with_how_things_are(self, world: World) -> None:
        said = run_in(world, "cluster", "watch", "--for", "1s", "-o", "jsonl").out
        found = [json.loads(line) for line in said.splitlines()]
        assert [(one["event"], one["bookie_id"], one["now"]) for one in found] == [
            ("bookie", "b1", "writable"), ("bookie", "b2", "writable"),
            ("bookie", "b3", "writable"), ("auditor", None, "none"),
            ("autorecovery", None, "disabled"), ("under-replicated", None, "1"),
        ]  # fmt: skip
        people = run_in(world, "cluster", "watch", "--for", "1s").out
        assert "bookie b1: writable" in people

    def _watch(self, world: World, client: Client) -> tuple[list[ClusterEvent], Running[None]]:
        """Return the events so far, which more will follow, and what ends with the watch."""
        found: list[ClusterEvent] = []

        async def collect() -> None:
            async for event in watch.events(client, 5.0, 60.0):
                found.append(event)  # noqa: PERF401 -- told while it goes on

        running = world.start(collect())
        world.settle(1.0)
        return found, running

    def test_what_happens_is_told_as_it_happens(self, world: World) -> None:
        client = world.client()
        found, running = self._watch(world, client)
        begun = len(found)
        world.kill("b3")
        world.settle(0.1)
        world.kill("b2")
        world.settle(0.1)
        world.restart("b3")
        world.settle(0.1)
        assert [(e.bookie_id, e.was, e.now) for e in found[begun:]] == [
            ("b3", "writable", "gone"), ("b2", "writable", "down"), ("b3", None, "writable"),
        ]  # fmt: skip
        begun = len(found)
        world.run(client.store.mark_underreplicated(LedgerId(2), (BookieId("b2"),)))
        running.finish()
        assert [(e.event, e.was, e.now) for e in found[begun:]] == [("under-replicated", "1", "2")]

    def test_the_switch_of_autorecovery_is_watched(self, world: World) -> None:
        client = world.client()
        found, running = self._watch(world, client)
        begun = len(found)
        for enabled in (True, False):
            world.run(client.store.set_replication_enabled(enabled=enabled))
            world.settle(0.1)
        assert [(e.event, e.was, e.now) for e in found[begun:]] == [
            ("autorecovery", "disabled", "enabled"), ("autorecovery", "enabled", "disabled"),
        ]  # fmt: skip
        running.finish()

    def test_only_what_differs_is_a_change(self) -> None:
        before = ClusterSnapshot(
            bookies={BookieId("b1"): "writable"}, auditor=None, enabled=True, marks=0
        )
        assert not list(changes(before, before, 1))
        now = ClusterSnapshot(
            bookies={BookieId("b1"): "read-only"},
            auditor=BookieId("b1"),
            enabled=False,
            marks=3,
        )
        assert [(e.event, e.was, e.now) for e in changes(before, now, 1)] == [
            ("bookie", "writable", "read-only"), ("auditor", "none", "b1"),
            ("autorecovery", "enabled", "disabled"), ("under-replicated", "0", "3"),
        ]  # fmt: skip
