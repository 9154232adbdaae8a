"""`cookie verify`, `cookie repair` and `cookie rename`: a stopped bookie's cookies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bkclient.metadata import open_metadata
from bkclient.metadata.versions_and_watches import ANY
from bookied.directories.emptied_directories import ContentsNotes
from bookied.directories.root_paths import note_paths
from bookied.directories.roots import CURRENT, VERSION, Directories
from bookied.storage.files.files import RealFiles
from tests.bkclient.metadata.values import info
from tests.bkctl.support.stopped_bookie import Bookie, new_bookie
from tests.support import reactor


@pytest.fixture
def bookie(tmp_path: Path) -> Bookie:
    """A bookie that has something in each directory."""
    made = new_bookie(tmp_path)
    (made.base / "ledgers" / CURRENT / "0.log").write_bytes(b"entries")
    (made.base / "journal" / CURRENT / "0.txn").write_bytes(b"entries")
    return made


def remove_stored(bookie: Bookie) -> None:
    async def remove(store: Any) -> None:
        await store.remove_cookie(bookie.old, ANY)

    bookie.store(remove)


def fits(bookie: Bookie) -> bool:
    return bookie.run("cookie", "verify", ok=False).status == 0


def test_cookies_that_fit_are_no_problem(bookie: Bookie) -> None:
    said = bookie.run("cookie", "verify")
    assert said.out == ""
    assert f"3 cookies of {bookie.old}, all as the settings say" in said.err
    assert "is correct" in bookie.run("cookie", "repair").out


def test_each_field_that_differs_is_told_with_both_values_and_where(bookie: Bookie) -> None:
    bookie.settings["ledgerDirectories"] += f",{bookie.base}/more"
    found = bookie.run("cookie", "verify", "--json", ok=False)
    assert found.status == 10
    problems = found.json["problems"]
    stored = [one for one in problems if one["place"] == "metadata service"]
    assert [one["field"] for one in stored] == ["ledger directories"]
    assert str(bookie.base / "more") in stored[0]["configured"]
    assert str(bookie.base / "more") not in stored[0]["found"]
    (lost,) = [one for one in problems if "/more/" in one["place"]]
    assert (lost["field"], lost["found"]) == ("cookie", "none")


def test_lost_and_damaged_cookies_are_written_anew_from_one_that_is_left(bookie: Bookie) -> None:
    first, second = sorted(bookie.base.rglob(VERSION))
    was = first.read_bytes()
    first.unlink()
    remove_stored(bookie)
    planned = bookie.run("cookie", "repair", "--dry-run").out.splitlines()
    assert planned == [
        f"would write the cookie of {bookie.old} to metadata service",
        f"would write the cookie of {bookie.old} to {first}",
    ]
    refused = bookie.run("cookie", "repair", typed="n\n", tty=True, ok=False)
    assert (refused.status, fits(bookie)) == (4, False)
    assert str(first) in bookie.run("cookie", "repair", "--yes").out
    assert fits(bookie)
    assert first.read_bytes() == was
    second.write_bytes(b"garbage")
    bookie.run("cookie", "repair", "--yes")
    assert fits(bookie)
    assert second.read_bytes() == was


def test_where_nothing_says_whose_directories_they_are_nothing_is_written(bookie: Bookie) -> None:
    for version in bookie.base.rglob(VERSION):
        version.unlink()
    remove_stored(bookie)
    refused = bookie.run("cookie", "repair", "--yes", ok=False)
    assert (refused.status, "no cookie is left" in refused.err) == (4, True)
    assert not list(bookie.base.rglob(VERSION))


def test_exchanged_directories_get_no_cookie(bookie: Bookie) -> None:
    base = bookie.base
    note_paths(RealFiles(), Directories((base / "journal",), (base / "ledgers",), ()))
    for old, new in (("journal", "x"), ("ledgers", "journal"), ("x", "ledgers")):
        (base / old).rename(base / new)
    (base / "ledgers" / CURRENT / VERSION).unlink()
    refused = bookie.run("cookie", "repair", ok=False)
    assert "were exchanged" in refused.err
    assert not (base / "ledgers" / CURRENT / VERSION).exists()


def test_an_empty_directory_gets_no_cookie(bookie: Bookie) -> None:
    first, _ = sorted(bookie.base.rglob(VERSION))
    for path in first.parent.iterdir():
        path.unlink()
    refused = bookie.run("cookie", "repair", "--yes", ok=False)
    assert (refused.status, "is empty: its data is lost" in refused.err) == (4, True)
    assert not first.exists()


def test_another_bookies_cookie_and_other_directories_are_no_damage(bookie: Bookie) -> None:
    bookie.settings["bookieId"] = "another"
    other = bookie.run("cookie", "repair", "--yes", ok=False)
    assert (other.status, "`bkctl bookie rename`" in other.err) == (7, True)
    del bookie.settings["bookieId"]
    bookie.settings["ledgerDirectories"] += f",{bookie.base}/more"
    more = bookie.run("cookie", "repair", "--yes", ok=False)
    assert (more.status, "`bkctl disk expand`" in more.err) == (7, True)


def test_a_bookie_that_runs_keeps_its_cookies(bookie: Bookie) -> None:
    min(bookie.base.rglob(VERSION)).unlink()

    store = open_metadata(bookie.uri, reactor=reactor.the_reactor())
    reactor.run(store.connect())
    reactor.run(store.register(bookie.old, info(bookie.old), read_only=False))
    refused = bookie.run("cookie", "repair", "--yes", ok=False)
    reactor.run(store.close())
    assert (refused.status, "it runs" in refused.err) == (4, True)


def test_cookies_are_renamed_without_the_ledgers(bookie: Bookie) -> None:
    bookie.settings["bookieId"] = "bookie-one"
    planned = bookie.run("cookie", "rename", "--dry-run").out
    assert "rename it in" not in planned
    bookie.run("cookie", "rename", "--yes")
    assert bookie.cookies() == bookie.versions() == {"bookie-one"}
    assert fits(bookie)


class TestMovedDirectories:
    """`cookie repair` after a directory was moved to another path on the same machine."""

    def test_the_cookies_follow_and_the_notes_too(self, bookie: Bookie) -> None:
        use(bookie)
        moved = move(bookie, "ledgers")
        named = bookie.run("cookie", "verify", ok=False)
        assert "`bkctl cookie repair` writes lost cookies again, and follows moved" in named.err
        checked = bookie.run("disk", "check", ok=False)
        assert checked.status == 10
        assert "the bookie does not start with these settings" in checked.out
        assert "index directories" not in checked.out
        where = ("--journal-dir", bookie.base / "journal", "--ledger-dir", moved)
        of_a_copy = bookie.run("disk", "check", *where, ok=False).out
        assert "warning: ledger directories are" in of_a_copy
        assert "the bookie does not start with these settings" not in of_a_copy
        planned = bookie.run("cookie", "repair", "--dry-run")
        assert planned.out.splitlines()[-1].endswith("to metadata service")
        assert f"{bookie.base}/ledgers is {moved} now" in planned.err
        assert not fits(bookie)
        bookie.run("cookie", "repair", "--yes")
        assert fits(bookie)
        assert f"entries:{moved}" in (bookie.base / "journal" / "bookied.held").read_text()
        assert "already has all its directories" in bookie.run("disk", "expand").out

    def test_a_move_that_was_cut_short_is_ended_by_the_next(self, bookie: Bookie) -> None:
        move(bookie, "ledgers")
        text = bookie.run("cookie", "generate").out
        (bookie.base / "journal" / CURRENT / VERSION).write_text(text)
        bookie.run("cookie", "repair", "--yes")
        assert fits(bookie)

    def test_a_cookie_that_was_stored_by_hand_before_is_no_obstacle(self, bookie: Bookie) -> None:
        move(bookie, "ledgers")
        new = bookie.base / "new"
        bookie.run("cookie", "generate", "--out", new)
        bookie.run("cookie", "update", bookie.old, "--file", new, "--yes")
        bookie.run("cookie", "repair", "--yes")
        assert fits(bookie)

    def test_all_directories_may_move_at_once(self, bookie: Bookie) -> None:
        use(bookie)
        move(bookie, "ledgers")
        move(bookie, "journal")
        bookie.run("cookie", "repair", "--yes")
        assert fits(bookie)

    def test_a_directory_without_its_cookie_was_not_moved(self, bookie: Bookie) -> None:
        (move(bookie, "ledgers") / CURRENT / VERSION).unlink()
        refused = bookie.run("cookie", "repair", "--yes", ok=False)
        assert (refused.status, "with all its files" in refused.err) == (7, True)

    def test_a_bookie_without_a_stored_cookie_was_not_moved(self, bookie: Bookie) -> None:
        move(bookie, "ledgers")
        remove_stored(bookie)
        assert bookie.run("cookie", "repair", "--yes", ok=False).status == 7

    def test_a_new_directory_with_only_the_old_cookie_is_refused(self, bookie: Bookie) -> None:
        use(bookie)
        moved = move(bookie, "ledgers")
        shutil.rmtree(moved)
        (moved / CURRENT).mkdir(parents=True)
        shutil.copy(bookie.base / "journal" / CURRENT / VERSION, moved / CURRENT)
        refused = bookie.run("cookie", "repair", "--yes", ok=False)
        assert (refused.status, "was emptied" in refused.err) == (4, True)
        assert not fits(bookie)

    def test_an_incomplete_copy_is_refused_while_the_old_directory_exists(
        self, bookie: Bookie
    ) -> None:
        moved = move(bookie, "ledgers")
        shutil.copytree(moved, bookie.base / "ledgers")
        (moved / CURRENT / "0.log").write_bytes(b"ent")
        refused = bookie.run("cookie", "repair", "--dry-run", ok=False)
        assert (refused.status, "current/0.log is missing or differs" in refused.err) == (4, True)
        shutil.copy(bookie.base / "ledgers" / CURRENT / "0.log", moved / CURRENT)
        bookie.run("cookie", "repair", "--yes")
        assert fits(bookie)

    def test_a_journal_in_the_place_of_a_ledger_directory_is_refused(self, bookie: Bookie) -> None:
        journal, ledgers = move(bookie, "journal"), move(bookie, "ledgers")
        bookie.settings["journalDirectories"] = str(ledgers)
        bookie.settings["ledgerDirectories"] = str(journal)
        refused = bookie.run("cookie", "repair", "--yes", ok=False)
        assert (refused.status, "name it for other data" in refused.err) == (4, True)

    def test_a_directory_on_the_former_path_of_another_is_refused(self, bookie: Bookie) -> None:
        paths = bookie.settings["journalDirectories"], bookie.settings["ledgerDirectories"]
        bookie.settings["ledgerDirectories"], bookie.settings["journalDirectories"] = paths
        refused = bookie.run("cookie", "repair", "--yes", ok=False)
        assert (refused.status, "was another directory of this" in refused.err) == (4, True)

    @pytest.mark.parametrize(("storage", "status"), [("DbLedgerStorage", 4), ("Sorted", 0)])
    def test_directories_with_numbers_move_one_at_a_time(
        self, bookie: Bookie, storage: str, status: int
    ) -> None:
        bookie.settings["ledgerDirectories"] += f",{bookie.base}/more"
        bookie.run("disk", "expand")
        if storage == "DbLedgerStorage":
            bookie.settings["ledgerStorageClass"] = (
                "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
            )
        move(bookie, "ledgers")
        move(bookie, "more")
        assert bookie.run("cookie", "repair", "--yes", ok=False).status == status


def use(bookie: Bookie) -> None:
    """Write the notes of what the directories hold, as a running bookie does."""
    bases = (bookie.base / "journal",), (bookie.base / "ledgers",)
    ContentsNotes(RealFiles(), Directories(*bases, bases[1])).update()


def move(bookie: Bookie, name: str) -> Path:
    """Move a directory of the bookie, and change the settings."""
    moved = bookie.base / "elsewhere" / name
    moved.parent.mkdir(exist_ok=True)
    (bookie.base / name).rename(moved)
    for key, text in bookie.settings.items():
        bookie.settings[key] = text.replace(f"{bookie.base}/{name}", str(moved))
    return moved
