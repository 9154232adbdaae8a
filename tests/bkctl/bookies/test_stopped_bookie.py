"""The commands that change a stopped bookie's directories, as a user runs them."""

from __future__ import annotations

import json
import os
import shutil
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from bkclient.blocking import with_store
from bkctl.cli.root import cli
from bkctl.commands.local.ports import free_port
from bookied.directories.lock import DirectoryLocks
from bookied.directories.roots import CURRENT, VERSION
from tests.bkclient.metadata.values import metadata
from tests.bkctl.support.disk import Result, snapshot
from tests.bkctl.support.terminal import FakeHost
from tests.bookied.worlds.golden import DIRECTORY
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment
from wire.records.cookie import Cookie, encode_cookie


@attrs.frozen
class Bookie:
    """A stopped bookie below a directory, with a cluster of its own in SQLite."""

    base: Path
    bookie_id: str

    @property
    def conf(self) -> Path:
        return self.base / "bk.conf"

    @property
    def ledgers(self) -> Path:
        return self.base / "ledgers"

    @property
    def journal(self) -> Path:
        return self.base / "journal"

    def run(
        self, *words: object, ok: bool = True, typed: str = "", tty: bool = False, uri: str = ""
    ) -> Result:
        cluster = ["-u", uri] if uri else []
        fake = FakeHost(typed, tty=tty, environ={"PAGER": ""}, sees_processes=False)
        with closing(fake) as host:
            status = cli.run([*cluster, *map(str, words), "-c", str(self.conf)], host)
        result = Result(status, host.out.data.decode(), host.err.text)
        assert not ok or status == 0, (words, result)
        return result


@pytest.fixture
def bookie(tmp_path: Path) -> Bookie:
    """A bookie whose directories hold what a Java bookie left at a clean stop, and no cookie."""
    port = free_port()
    made = Bookie(tmp_path, f"127.0.0.1:{port}")
    golden = DIRECTORY / "sorted" / "clean"
    shutil.copytree(golden / "journal", made.journal)
    shutil.copytree(golden / "ledgers", made.ledgers)
    uri = f"sqlite://{tmp_path}/metadata.db"
    made.conf.write_text(
        f"metadataServiceUri={uri}\nbookiePort={port}\nadvertisedAddress=127.0.0.1\n"
        f"allowLoopback=true\njournalDirectories={made.journal}\n"
        f"ledgerDirectories={made.ledgers}\nextraServerComponents=org.example.Java\n"
    )
    made.run("cluster", "init")
    return made


def to_layout_1(bookie: Bookie) -> None:
    for root in (bookie.journal, bookie.ledgers):
        for path in (root / CURRENT).iterdir():
            path.rename(root / path.name)
        (root / CURRENT).rmdir()


def create_alone(bookie: Bookie, ledger_id: int) -> None:
    """Create the metadata of a ledger whose only bookie is this one."""
    alone = metadata(
        ensemble_size=1, write_quorum=1, ack_quorum=1,
        fragments=(Fragment(EntryId(0), (BookieId(bookie.bookie_id),)),),
    )  # fmt: skip

    async def create(store: Any) -> None:
        await store.create_ledger(LedgerId(ledger_id), alone)

    with_store(f"sqlite://{bookie.base}/metadata.db", create)


class TestFormat:
    def test_it_shows_what_goes_and_wants_the_bookies_id(self, bookie: Bookie) -> None:
        before = snapshot(bookie.ledgers)
        wrong = bookie.run("disk", "format", ok=False, typed="yes\n", tty=True)
        assert wrong.status == 4
        assert "7 ledgers with 25 entries" in wrong.err
        assert f"To confirm, type {bookie.bookie_id}" in wrong.err
        assert {k: v for k, v in snapshot(bookie.ledgers).items() if "lock" not in k} == before
        bookie.run("disk", "format", typed=f"{bookie.bookie_id}\n", tty=True)
        assert [path.name for path in bookie.ledgers.iterdir()] == ["bookied.lock"]
        assert [path.name for path in bookie.journal.iterdir()] == ["bookied.lock"]

    def test_javas_options_mean_what_they_mean_there(self, bookie: Bookie) -> None:
        refused = bookie.run("bookieformat", "-nonInteractive", ok=False, tty=True)
        assert refused.status == 4
        assert (bookie.ledgers / CURRENT / "0.log").exists()
        done = bookie.run("bookieformat", "-n", "-f", "--json").json
        assert (done["ledgers"], done["cookie_removed"]) == (7, False)
        assert not (bookie.ledgers / CURRENT).exists()

    def test_full_ledger_directories_beside_an_empty_journal_count_too(
        self, bookie: Bookie
    ) -> None:
        """Java's asks only where a journal directory has files."""
        shutil.rmtree(bookie.journal / CURRENT)
        assert bookie.run("bookieformat", "-n", ok=False).status == 4
        assert (bookie.ledgers / CURRENT / "0.log").exists()

    def test_a_dry_run_and_an_empty_bookie_ask_nothing(self, bookie: Bookie) -> None:
        before = snapshot(bookie.base)
        told = bookie.run("disk", "format", "--dry-run", "--delete-cookie").out
        assert "7 ledgers" in told
        assert "stored cookie" not in told, "none is stored"
        assert snapshot(bookie.ledgers) == {
            name.removeprefix("ledgers/"): data
            for name, data in before.items()
            if name.startswith("ledgers/")
        }
        bookie.run("disk", "format", "--yes")
        assert "0 files and 0 ledgers removed" in bookie.run("disk", "format").out

    def test_the_cookie_goes_only_when_asked(self, bookie: Bookie) -> None:
        bookie.run("disk", "format", "--yes")
        bookie.run("disk", "init", "--write")
        assert bookie.run("disk", "format", "--yes", "--json").json["cookie_removed"] is False
        assert "has a cookie" in bookie.run("disk", "init", ok=False).err
        done = bookie.run("disk", "format", "--yes", "--delete-cookie", "--json").json
        assert done["cookie_removed"] is True
        again = bookie.run("disk", "format", "--yes", "--delete-cookie").out
        assert "no cookie of it is stored any more" in again
        assert "a new bookie can begin here" in bookie.run("disk", "init").out

    def test_a_bookie_that_runs_is_refused(self, bookie: Bookie) -> None:
        locks = DirectoryLocks()
        locks.take([bookie.ledgers])
        try:
            refused = bookie.run("disk", "format", "--yes", ok=False)
        finally:
            locks.release()
        assert refused.status == 4
        assert "is in use by" in refused.err
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", int(bookie.bookie_id.rpartition(":")[2])))
            other.listen()
            refused = bookie.run("disk", "format", "--yes", ok=False)
        assert (refused.status, "is taken" in refused.err) == (4, True)
        assert (bookie.ledgers / CURRENT / "0.log").exists()

    def test_a_metadata_service_out_of_reach_is_no_permission(self, bookie: Bookie) -> None:
        (bookie.base / "metadata.db").unlink()
        assert bookie.run("disk", "format", "--yes", ok=False).status in {1, 5}
        assert (bookie.ledgers / CURRENT / "0.log").exists()
        bookie.run("disk", "format", "--yes", "--force", "metadata")
        assert not (bookie.ledgers / CURRENT).exists()

    def test_another_cluster_is_not_asked_about_it(self, bookie: Bookie) -> None:
        """It would know neither the bookie nor its ledgers, and have nothing against it."""
        bookie.run("disk", "format", "--yes")
        bookie.run("disk", "init", "--write")
        other = f"sqlite://{bookie.base}/other.db"
        bookie.run("cluster", "init", uri=other)
        for words in (["--yes"], ["--dry-run"]):
            refused = bookie.run("disk", "format", *words, ok=False, uri=other)
            assert (refused.status, "belongs to cluster" in refused.err) == (4, True)
        assert (bookie.ledgers / CURRENT / "VERSION").exists()
        assert bookie.run("disk", "format", "--yes").status == 0

    def test_a_bookies_own_keys_are_known_whatever_names_the_cluster(self, bookie: Bookie) -> None:
        uri = f"sqlite://{bookie.base}/metadata.db"
        told = bookie.run("disk", "format", "--dry-run", uri=uri)
        assert "unknown key" not in told.err

    def test_one_of_anything_is_told_as_one(self, bookie: Bookie) -> None:
        for path in list(bookie.ledgers.rglob("*.idx"))[1:]:
            path.unlink()
        assert "1 ledger with" in bookie.run("disk", "format", "--dry-run").out

    def test_entries_that_only_a_journal_has_are_counted_and_kept(self, bookie: Bookie) -> None:
        """The ledger directory was emptied; no other bookie has a copy of ledger 3."""
        create_alone(bookie, 3)
        shutil.rmtree(bookie.ledgers / CURRENT)
        told = bookie.run("disk", "format", "--dry-run", ok=False)
        assert told.status == 4
        assert "would remove 4 entries of 1 ledger that are only in the journals: 3" in told.out
        assert "refused without --force only-copies" in told.err
        assert "1 ledger will lack copies until" in told.err
        for options in (["--yes"], ["--yes", "--force", "metadata"]):
            refused = bookie.run("disk", "format", *options, ok=False)
            assert refused.status == 4
            assert "bkctl disk salvage" in refused.err
            assert "--force only-copies" in refused.err
        java = bookie.run("bookieformat", "-n", "-f", ok=False)
        assert (java.status, "--override only-copies" in java.err) == (4, True)
        assert bookie.run("disk", "salvage", 3, "--out", bookie.base / "out").status == 0
        bookie.run("disk", "format", "--yes", "--force", "only-copies")
        assert "0 ledgers" in bookie.run("disk", "format", "--dry-run").out

    def test_entries_that_no_index_lists_are_counted_and_kept(self, bookie: Bookie) -> None:
        """The index was lost, as `disk check` says; no other bookie has a copy of ledger 3."""
        create_alone(bookie, 3)
        for path in bookie.ledgers.rglob("*.idx"):
            path.unlink()
        for path in bookie.journal.rglob("*.txn"):
            path.unlink()
        for options in (["--dry-run"], ["--yes"], ["--yes", "--force", "metadata"]):
            refused = bookie.run("disk", "format", *options, ok=False)
            assert refused.status == 4
            assert "--force only-copies" in refused.err
            assert "bkctl disk salvage" in refused.err
        told = bookie.run("disk", "format", "--dry-run", ok=False)
        assert "entries of 1 ledger in entry logs that no index lists: 3" in told.out
        assert bookie.run("disk", "salvage", 3, "--out", bookie.base / "out").status == 0
        bookie.run("disk", "format", "--yes", "--force", "only-copies")

    def test_a_damaged_log_may_have_the_only_copies(self, bookie: Bookie) -> None:
        create_alone(bookie, 3)
        for path in (*bookie.ledgers.rglob("*.idx"), *bookie.journal.rglob("*.txn")):
            path.unlink()
        for path in (bookie.ledgers / CURRENT).glob("*.log"):
            path.write_bytes(b"XXXX" + path.read_bytes()[4:])
        refused = bookie.run("disk", "format", "--yes", ok=False)
        assert (refused.status, "not readable: " in refused.err) == (4, True)
        assert "another copy of entries of 1 ledger: 3" in refused.err

    def test_a_damaged_journal_is_said(self, bookie: Bookie) -> None:
        """It may have more entries than are counted."""
        last = max((bookie.journal / CURRENT).glob("*.txn"))
        last.write_bytes(b"XXXX" + last.read_bytes()[4:])
        assert "not readable: " in bookie.run("disk", "format", "--dry-run").err

    def test_entries_of_moved_and_deleted_ledgers_are_not_counted(self, bookie: Bookie) -> None:
        shutil.rmtree(bookie.ledgers / CURRENT)
        told = bookie.run("disk", "format", "--dry-run")
        assert "only in the journals" not in told.out


class TestInit:
    def test_full_directories_are_refused(self, bookie: Bookie) -> None:
        refused = bookie.run("disk", "init", ok=False)
        assert (refused.status, "current is not empty" in refused.err) == (4, True)

    def test_a_new_bookie_gets_directories_and_cookie(self, bookie: Bookie) -> None:
        bookie.run("disk", "format", "--yes")
        assert "would write" in bookie.run("disk", "init", "--write", "--dry-run").out
        assert not (bookie.ledgers / CURRENT).exists()
        assert bookie.run("disk", "init", "--write", "--json").json["written"] is True
        cookie = (bookie.ledgers / CURRENT / "VERSION").read_text()
        assert bookie.bookie_id in cookie
        assert "instanceId" in cookie


class TestUpgrade:
    def test_the_whole_way_there_and_back(self, bookie: Bookie) -> None:
        to_layout_1(bookie)
        old = bookie.run("disk", "upgrade", "--check", "--json", ok=False)
        assert (old.status, {row["state"] for row in old.json["directories"]}) == (10, {"old"})
        before = snapshot(bookie.ledgers)
        plan = bookie.run("upgrade", "--upgrade", "--dry-run").out
        assert "store the cookie" in plan
        assert {k: v for k, v in snapshot(bookie.ledgers).items() if "lock" not in k} == before
        done = bookie.run("upgrade", "--upgrade", "--json").json
        assert (done["changed"], done["files"]) == (True, 13)
        assert bookie.run("upgrade", "--check").status == 0
        assert "nothing to upgrade" in bookie.run("upgrade", "--upgrade").out
        assert "would change nothing" in bookie.run("upgrade", "--upgrade", "--dry-run").out
        early = bookie.run("upgrade", "--finalize", "--yes", ok=False)
        assert (early.status, "no bookie has started" in early.err) == (4, True)
        refused = bookie.run("upgrade", "--rollback", ok=False)
        assert (refused.status, "Add --yes" in refused.err) == (4, True)
        bookie.run("upgrade", "--rollback", tty=True, typed=f"{bookie.bookie_id}\n")
        assert {k: v for k, v in snapshot(bookie.ledgers).items() if "lock" not in k} == before

    def test_old_data_goes_once_a_bookie_has_started(self, bookie: Bookie) -> None:
        to_layout_1(bookie)
        bookie.run("upgrade", "--upgrade")
        (bookie.journal / CURRENT / "1a1fc679000.txn").write_bytes(b"")
        asked = bookie.run("upgrade", "--finalize", tty=True, typed="n\n", ok=False)
        assert (asked.status, "13 files of the old layout will go" in asked.err) == (4, True)
        bookie.run("upgrade", "--finalize", "--yes")
        assert not (bookie.ledgers / "0.log").exists()
        assert (bookie.ledgers / CURRENT / "0.log").exists()
        refused = bookie.run("upgrade", "--rollback", "--yes", ok=False)
        assert (refused.status, "no data of layout 1 or 2" in refused.err) == (4, True)
        assert (bookie.ledgers / CURRENT / "0.log").exists()

    def test_one_action_is_needed(self, bookie: Bookie) -> None:
        assert bookie.run("upgrade", ok=False).status == 2

    def test_two_actions_are_none(self, bookie: Bookie) -> None:
        """The last of them would have its way, and one of them removes data."""
        to_layout_1(bookie)
        bookie.run("upgrade", "--upgrade")
        refused = bookie.run("upgrade", "--upgrade", "--rollback", "--yes", ok=False)
        assert (refused.status, "only one of" in refused.err) == (2, True)
        assert (bookie.ledgers / CURRENT / "0.log").exists()

    def test_an_old_layout_is_named_where_today_s_is_needed(self, bookie: Bookie) -> None:
        to_layout_1(bookie)
        for words in (["flush"], ["rebuild-index", "--all"], ["salvage", 1, "--out", "x"]):
            refused = bookie.run("disk", *words, ok=False)
            assert refused.status == 3
            assert "`bkctl upgrade --check`" in refused.err


class TestRepairs:
    def test_deleted_indexes_are_made_anew(self, bookie: Bookie) -> None:
        for path in bookie.ledgers.rglob("*.idx"):
            path.unlink()
        plan = bookie.run("disk", "rebuild-index", "--all", "--dry-run", "-o", "jsonl").rows
        assert [row["written"] for row in plan] == [False] * 7
        rebuilt = bookie.run("disk", "rebuild-index", "--all", "-o", "jsonl")
        assert "fenced on this bookie" not in rebuilt.err, "no note beside JSON"
        rows = rebuilt.rows
        assert sum(row["entries"] for row in rows) == 25
        assert {row["key_from"] for row in rows} == {"journal"}
        assert len(list(bookie.ledgers.rglob("*.idx"))) == 7
        next(bookie.ledgers.rglob("*.idx")).unlink()
        assert "fenced on this bookie" in bookie.run("disk", "rebuild-index", "--all").err

    def test_a_key_nobody_knows_is_asked_for(self, bookie: Bookie, tmp_path: Path) -> None:
        shutil.rmtree(bookie.ledgers / CURRENT / "0" / "3")
        for path in bookie.journal.rglob("*.txn"):
            path.unlink()
        partly = bookie.run("disk", "rebuild-index", 3, ok=False)
        assert (partly.status, "--password-file" in partly.err) == (8, True)
        (tmp_path / "password").write_text("secret\n")
        row = bookie.run(
            "disk", "rebuild-index", 3, "--password-file", tmp_path / "password", "-o", "jsonl"
        ).rows[0]
        assert (row["key_from"], row["entries"], row["written"]) == ("password", 4, True)

    def test_a_ledger_that_is_nowhere_is_not_found(self, bookie: Bookie) -> None:
        assert bookie.run("disk", "rebuild-index", 77, ok=False).status == 3
        assert bookie.run("disk", "salvage", 77, "--out", bookie.base, ok=False).status == 3
        assert bookie.run("disk", "rebuild-index", ok=False).status == 2

    def test_a_salvaged_ledger_can_be_written_again(self, bookie: Bookie) -> None:
        out = bookie.base / "saved"
        bookie.run("disk", "salvage", 3, "--out", out, "--dry-run")
        assert not out.exists()
        found = bookie.run("disk", "salvage", 3, "--out", out, "--json").json
        assert (found["entries"], found["missing"], found["digest"]) == (4, 0, "crc32c")
        assert Path(found["payloads"]).stat().st_size == found["size"] + 4 * 4
        lines = [json.loads(line) for line in Path(found["list"]).read_text().splitlines()]
        assert [line["entry"] for line in lines] == [0, 1, 2, 3]

    def test_entries_that_another_bookie_had_are_not_replaced(self, bookie: Bookie) -> None:
        out = bookie.base / "saved"
        bookie.run("disk", "salvage", 3, "--out", out)
        listing = out / "ledger-3.jsonl"
        more = {"entry": 9, "length": 1}
        listing.write_text(f"{listing.read_text()}{json.dumps(more)}\n")
        saved = snapshot(out)
        refused = bookie.run("disk", "salvage", 3, "--out", out, ok=False)
        assert (refused.status, "these directories lack, first entry 9" in refused.err) == (7, True)
        assert "name the directories of all bookies in one command" in refused.err
        assert snapshot(out) == saved

    def test_a_wrong_password_leaves_what_was_saved_before(
        self, bookie: Bookie, tmp_path: Path
    ) -> None:
        """All is refused then: nothing is there to take the place of the entries."""
        out = tmp_path / "saved"
        (tmp_path / "password").write_text("wrong\n")
        ledgers = bookie.run("disk", "ledgers", "-o", "id").out.split()
        macs = [
            one
            for one in ledgers
            if bookie.run("disk", "salvage", one, "--out", out, "--json").json["digest"] == "mac"
        ]
        saved = snapshot(out)
        for one in macs[:1]:
            refused = bookie.run(
                "disk", "salvage", one, "--out", out, "--password-file", tmp_path / "password",
                ok=False,
            )  # fmt: skip
            assert (refused.status, "right password" in refused.err) == (8, True)
            assert snapshot(out)[f"ledger-{one}.entries"] == saved[f"ledger-{one}.entries"]
        assert macs

    def test_a_killed_bookie_is_flushed(self, bookie: Bookie) -> None:
        shutil.rmtree(bookie.base / "ledgers")
        shutil.rmtree(bookie.base / "journal")
        shutil.copytree(DIRECTORY / "sorted" / "crash" / "ledgers", bookie.ledgers)
        shutil.copytree(DIRECTORY / "sorted" / "crash" / "journal", bookie.journal)
        assert "would replay" in bookie.run("disk", "flush", "--dry-run").out
        assert bookie.run("disk", "flush", "--json").json["entries"] == 26
        assert "replayed 0 entries (0 B) of 1 journal;" in bookie.run("disk", "flush").out
        assert len(list(bookie.ledgers.rglob("*.idx"))) == 7

    def test_a_bookie_that_runs_is_left_alone(self, bookie: Bookie) -> None:
        locks = DirectoryLocks()
        locks.take([bookie.journal])
        try:
            for words in (["flush"], ["flush", "--dry-run"], ["rebuild-index", "--all"]):
                assert bookie.run("disk", *words, ok=False).status == 4
        finally:
            locks.release()

    def test_directories_that_are_needed_are_asked_for(self, bookie: Bookie) -> None:
        """Without its journals nothing can be said to be in the logs."""
        before = snapshot(bookie.base)
        journal = ["--journal-dir", bookie.journal]
        for words, missing in (
            (["flush", "--ledger-dir", bookie.ledgers], "--journal-dir"),
            (["flush", *journal], "--ledger-dir"),
            (["convert", "--to", "db", "--ledger-dir", bookie.ledgers], "--journal-dir"),
            (["convert", "--to", "db", *journal], "--ledger-dir"),
            (["rebuild-index", "--all", *journal], "--ledger-dir"),
            (["rebuild-db", "--ledgers", *journal], "--ledger-dir"),
        ):
            host = FakeHost(environ={})
            assert cli.run(["disk", *map(str, words)], host) == 2, words
            assert missing in host.err.text
        assert snapshot(bookie.base) == before

    def test_exchanged_directories_are_refused(self, bookie: Bookie) -> None:
        """Their cookies are the same, and the names are those of the settings."""
        for root, other in ((bookie.journal, bookie.ledgers), (bookie.ledgers, bookie.journal)):
            (root / CURRENT / VERSION).write_text("4\n")
            (root / "bookied.path").write_text(f"{other}\n")
        for words in (
            ["flush"],
            ["convert", "--to", "db"],
            ["rebuild-index", "--all"],
            ["rebuild-db", "--ledgers"],
        ):
            refused = bookie.run("disk", *words, ok=False)
            assert (refused.status, "they were exchanged" in refused.err) == (4, True), words

    def test_some_of_the_directories_or_another_order_are_refused(self, bookie: Bookie) -> None:
        """What is in the others would be taken for lost; DbLedgerStorage goes by the order."""
        other = bookie.base / "another"
        (other / CURRENT).mkdir(parents=True)
        names = (str(bookie.ledgers), str(other))
        cookie = encode_cookie(Cookie(bookie.bookie_id, str(bookie.journal), names))
        for root in (bookie.journal, bookie.ledgers, other):
            (root / CURRENT / VERSION).write_bytes(cookie)
        before = snapshot(bookie.base)
        one, two = ["--ledger-dir", bookie.ledgers], ["--ledger-dir", other]
        journal = ["--journal-dir", bookie.journal]
        for words in (
            ["flush", *journal, *one],
            ["flush", bookie.base],  # By name `another` would come first.
            ["rebuild-index", "--all", *two],
            ["rebuild-db", "--ledgers", *two, *one],
            ["convert", "--to", "db", *journal, *one, *two, "--index-dir", bookie.ledgers],
        ):
            host = FakeHost(environ={})
            assert cli.run(["disk", *map(str, words)], host) == 4, words
            assert "not all directories" in host.err.text
        assert snapshot(bookie.base) == before
        all_of_them = ["disk", "flush", *journal, *one, *two]
        assert cli.run([*map(str, all_of_them)], FakeHost(environ={})) == 0

    def test_salvage_needs_a_directory_to_write_to(self, bookie: Bookie) -> None:
        refused = bookie.run("disk", "salvage", 3, "--out", bookie.conf, ok=False)
        assert (refused.status, "is not a directory" in refused.err) == (2, True)

    def test_a_plan_s_steps_are_lines_of_the_shortest_form(self, bookie: Bookie) -> None:
        lines = bookie.run("disk", "flush", "--dry-run", "-o", "id").out.splitlines()
        assert lines[-1] == "write entry logs, indexes and marks"

    def test_an_option_that_is_missing_is_told_in_one_line(
        self, bookie: Bookie, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert bookie.run("disk", "convert", ok=False).status == 2
        assert len(capsys.readouterr().err.splitlines()) == 1

    def test_named_directories_do_without_settings(self, bookie: Bookie) -> None:
        words = ["disk", "flush", "--journal-dir", bookie.journal, "--ledger-dir", bookie.ledgers]
        host = FakeHost(environ={})
        assert cli.run(list(map(str, words)), host) == 0, host.err.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_leaves_another_user_s_directories_alone(bookie: Bookie) -> None:
    os.chown(bookie.ledgers / CURRENT, 12345, 12345)
    for words in (["disk", "flush"], ["disk", "format", "--yes"], ["upgrade", "--upgrade"]):
        refused = bookie.run(*words, ok=False)
        assert (refused.status, "belongs to user #12345" in refused.err) == (4, True)


class TestDatabases:
    def test_the_index_goes_to_databases_and_back(self, bookie: Bookie) -> None:
        assert "would remove the index files" in bookie.run(
            "disk", "convert", "--to", "db", "--dry-run"
        ).out.replace("\n", " ")
        done = bookie.run("disk", "convert", "--to", "db", "--json").json
        assert (done["ledgers"], done["entries"], done["changed"]) == (7, 25, True)
        assert list(bookie.ledgers.rglob("*.idx")) == []
        assert "nothing to convert" in bookie.run("disk", "convert", "--to", "db").out
        assert "7 ledgers with 25 entries" in bookie.run("disk", "format", "--dry-run").out
        wrong = bookie.run("disk", "flush", ok=False)
        assert (wrong.status, "set ledgerStorageClass=" in wrong.err) == (7, True)
        with bookie.conf.open("a") as conf:
            conf.write(
                "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage\n"
            )
        bookie.run("disk", "flush")
        refused = bookie.run("disk", "rebuild-index", "--all", ok=False)
        assert (refused.status, "rebuild-db --ledgers --locations" in refused.err) == (2, True)
        done = bookie.run("disk", "convert", "--to", "interleaved", "--json").json
        assert (done["ledgers"], done["entries"]) == (7, 25)
        assert len(list(bookie.ledgers.rglob("*.idx"))) == 7
        assert (bookie.ledgers / CURRENT / "locations.backup").is_dir()

    def test_databases_are_made_anew(self, bookie: Bookie) -> None:
        bookie.run("disk", "convert", "--to", "db")
        shutil.rmtree(bookie.ledgers / CURRENT / "locations")
        shutil.rmtree(bookie.ledgers / CURRENT / "ledgers")
        refused = bookie.run("disk", "rebuild-db", "--locations", ok=False)
        assert (refused.status, "rebuild-db --ledgers" in refused.err) == (4, True)
        rows = bookie.run("disk", "rebuild-db", "--ledgers", "--locations", "-o", "jsonl").rows
        assert [(row["database"], row["ledgers"]) for row in rows] == [
            ("ledgers", 7),
            ("locations", 7),
        ]
        assert (rows[1]["entries"], rows[0]["keyless"]) == (25, [])
        again = bookie.run("disk", "rebuild-db", "--locations", "--dry-run", "-o", "jsonl").rows
        assert (again[0]["entries"], again[0]["backup"]) == (25, None)
        assert bookie.run("disk", "rebuild-db", ok=False).status == 2

    def test_index_files_are_not_joined_by_databases(self, bookie: Bookie) -> None:
        """No bookie starts on both, and which of them is right nobody could say."""
        before = snapshot(bookie.ledgers)
        for words in (["--ledgers"], ["--locations"], ["--ledgers", "--dry-run"]):
            refused = bookie.run("disk", "rebuild-db", *words, ok=False)
            assert (refused.status, "`bkctl disk rebuild-index`" in refused.err) == (7, True)
        assert {k: v for k, v in snapshot(bookie.ledgers).items() if "lock" not in k} == before

    def test_lost_databases_are_not_replaced_by_index_files(self, bookie: Bookie) -> None:
        bookie.run("disk", "convert", "--to", "db")
        shutil.rmtree(bookie.ledgers / CURRENT / "locations")
        shutil.rmtree(bookie.ledgers / CURRENT / "ledgers")
        with bookie.conf.open("a") as conf:
            conf.write(
                "ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage\n"
            )
        refused = bookie.run("disk", "rebuild-index", "--all", ok=False)
        assert (refused.status, "rebuild-db --ledgers --locations" in refused.err) == (7, True)
        assert list(bookie.ledgers.rglob("*.idx")) == []

    def test_nothing_to_convert_is_said_by_a_dry_run_too(self, bookie: Bookie) -> None:
        told = bookie.run("disk", "convert", "--to", "interleaved", "--dry-run").out
        assert "would change nothing" in told

    def test_both_databases_can_be_shown_before_they_are_made(self, bookie: Bookie) -> None:
        bookie.run("disk", "convert", "--to", "db")
        shutil.rmtree(bookie.ledgers / CURRENT / "locations")
        shutil.rmtree(bookie.ledgers / CURRENT / "ledgers")
        words = ("disk", "rebuild-db", "--ledgers", "--locations", "--dry-run", "-o", "jsonl")
        rows = bookie.run(*words).rows
        assert [(row["database"], row["ledgers"]) for row in rows] == [("ledgers", 7)]
