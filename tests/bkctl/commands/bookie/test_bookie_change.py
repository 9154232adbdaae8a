"""`bookie rename` and `disk expand`: a stopped bookie's name and directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkclient.metadata.errors import CookieNotFoundError
from bkclient.metadata.versions_and_watches import NEW
from bkctl.commands.bookie.rename import IdChange
from bookied.directories.roots import CURRENT, RENAMING, Directories, prepare
from bookied.errors import DirectoryError
from bookied.storage.files.files import RealFiles
from tests.bkclient.metadata.values import info, metadata
from tests.bkctl.support.runner import Result
from tests.bkctl.support.stopped_bookie import Bookie, new_bookie
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment
from wire.records.cookie import decode_cookie


@pytest.fixture
def bookie(tmp_path: Path) -> Bookie:
    return new_bookie(tmp_path)


def add_ledgers(bookie: Bookie, *ensembles: tuple[str, ...]) -> None:
    async def add(store: Any) -> None:
        for number, ensemble in enumerate(ensembles):
            fragment = Fragment(EntryId(0), tuple(map(BookieId, ensemble)))
            await store.create_ledger(LedgerId(number), metadata(fragments=(fragment,)))

    bookie.store(add)


def ensembles(bookie: Bookie) -> list[tuple[str, ...]]:
    async def read(store: Any) -> list[tuple[str, ...]]:
        ids = [i async for some in store.ledger_ranges() for i in some]
        return [(await store.read_ledger(i)).value.ensemble for i in ids]

    return bookie.store(read)


class TestFlipId:
    def test_cookies_files_and_ledgers_get_the_id_of_the_settings(self, bookie: Bookie) -> None:
        add_ledgers(bookie, (bookie.old, "b:1"), ("a:1", "b:1"))
        bookie.settings["bookieId"] = "bookie-one"
        asked = bookie.run("bookie", "flip-id", typed="n\n", tty=True, ok=False)
        assert asked.status == 4
        assert "rename it in 1 ledger" in asked.err
        assert bookie.cookies() == bookie.versions() == {bookie.old}
        said = bookie.run("bookie", "flip-id", typed="y\n", tty=True).out
        assert said == (
            f"bookie {bookie.old} is bookie-one now: renamed in 1 ledger; it can be started\n"
        )
        assert bookie.cookies() == bookie.versions() == {"bookie-one"}
        assert ensembles(bookie) == [("bookie-one", "b:1"), ("a:1", "b:1")]
        again = bookie.run("bookie", "flip-id", "--yes", ok=False)
        assert (again.status, "in its files and its settings" in again.err) == (4, True)

    def test_a_ledger_that_came_while_the_question_waited_gets_the_id_too(
        self, bookie: Bookie
    ) -> None:
        bookie.settings["bookieId"] = "bookie-one"
        bookie.run(
            *("bookie", "flip-id"),
            typed="y\n",
            tty=True,
            while_asked=lambda: add_ledgers(bookie, (bookie.old, "b:1")),
        )
        assert ensembles(bookie) == [("bookie-one", "b:1")]

    def test_the_stored_cookie_is_the_one_the_bookie_starts_with(self, bookie: Bookie) -> None:
        bookie.settings["bookieId"] = "bookie-one"
        bookie.run("bookie", "flip-id", "--yes")
        stored = bookie.run("cookie", "get", "bookie-one").out.encode()
        assert {path.read_bytes() for path in bookie.base.rglob("VERSION")} == {stored}
        # What the daemon checks at its start: every cookie fits.
        assert "has all its directories" in bookie.run("bookie", "expand-storage").out

    @pytest.mark.parametrize("steps", range(5))
    def test_a_flip_that_was_cut_short_is_ended_by_the_next(
        self, bookie: Bookie, steps: int
    ) -> None:
        """As after ``steps`` steps: marker, new cookie, one VERSION, both, old cookie removed."""
        add_ledgers(bookie, (bookie.old, "b:1"))
        bookie.settings["bookieId"] = "bookie-one"
        new = bookie.run("cookie", "generate").out.encode()
        marker = bookie.base / "journal" / RENAMING
        marker.write_bytes(IdChange(bookie.old, BookieId("bookie-one")).encode())

        async def begin(store: Any) -> None:
            if steps > 0:
                await store.write_cookie(BookieId("bookie-one"), new, NEW)
            if steps > 3:
                await store.remove_cookie(bookie.old)

        bookie.store(begin)
        for name in ("journal", "ledgers")[: max(0, steps - 1)]:
            (bookie.base / name / CURRENT / "VERSION").write_bytes(new)
        roots = (bookie.base / "journal",), (bookie.base / "ledgers",)
        found = Directories(*roots, roots[1])
        with pytest.raises(DirectoryError, match="to bookie-one was interrupted"):
            prepare(RealFiles(), found)
        bookie.run("bookie", "flip-id", "--yes")
        prepare(RealFiles(), found)
        assert bookie.cookies() == bookie.versions() == {"bookie-one"}
        assert ensembles(bookie) == [("bookie-one", "b:1")]
        assert not marker.exists()

    def test_one_that_was_begun_is_ended_before_another_begins(self, bookie: Bookie) -> None:
        marker = bookie.base / "journal" / RENAMING
        marker.write_bytes(IdChange(bookie.old, BookieId("bookie-one")).encode())
        bookie.settings["bookieId"] = "bookie-two"
        refused = bookie.run("bookie", "flip-id", "--yes", ok=False)
        assert (refused.status, "to bookie-one has begun" in refused.err) == (7, True)

    def test_another_bookies_id_is_refused_though_its_directories_are_called_alike(
        self, bookie: Bookie
    ) -> None:
        bookie.settings["bookieId"] = "bookie-one"
        theirs = bookie.run("cookie", "generate").out.encode()

        async def another(store: Any) -> None:
            await store.write_cookie(BookieId("bookie-one"), theirs, NEW)

        bookie.store(another)
        refused = bookie.run("bookie", "flip-id", "--yes", ok=False)
        assert (refused.status, "a bookie bookie-one already" in refused.err) == (4, True)
        assert bookie.versions() == {bookie.old}

    def test_nothing_but_the_id_may_change(self, bookie: Bookie) -> None:
        bookie.settings["bookieId"] = "bookie-one"
        bookie.settings["ledgerDirectories"] += f",{bookie.base}/ledgers/../ledgers"
        refused = bookie.run("bookie", "flip-id", "--yes", ok=False)
        assert refused.status == 4
        assert "differs in ledger directories" in refused.err
        assert bookie.cookies() == bookie.versions() == {bookie.old}

    def test_a_dry_run_and_java_s_argument(self, bookie: Bookie) -> None:
        bookie.settings["bookieId"] = "bookie-one"
        planned = bookie.run("bookie", "flip-id", "--dry-run").out.splitlines()
        assert planned[0] == "would store a cookie of bookie-one"
        assert planned[-1] == f"would remove the cookie of {bookie.old}"
        refused = bookie.run("bookie", "flip-id", "hostname", "--yes", ok=False)
        assert (refused.status, "useHostNameAsBookieID=true" in refused.err) == (2, True)
        assert bookie.cookies() == bookie.versions() == {bookie.old}

    def test_a_ledger_that_lists_both_ids_stops_it_before_the_files(self, bookie: Bookie) -> None:
        add_ledgers(bookie, (bookie.old, "bookie-one"))
        bookie.settings["bookieId"] = "bookie-one"
        partly = bookie.run("bookie", "flip-id", "--yes", ok=False)
        assert partly.status == 8
        assert "lists both ids" in partly.err
        assert bookie.versions() == {bookie.old}
        assert bookie.old in bookie.cookies()

    def test_a_bookie_that_runs_is_left_alone(self, bookie: Bookie) -> None:
        from twisted.internet import threads

        bookie.settings["bookieId"] = "bookie-one"

        async def try_it(store: Any) -> Result:
            await store.register(bookie.old, info(bookie.old), read_only=True)
            return await threads.deferToThread(bookie.run, "bookie", "flip-id", "--yes", ok=False)

        refused = bookie.store(try_it)
        assert (refused.status, "it runs" in refused.err) == (4, True)


class TestExpandStorage:
    def test_new_empty_directories_get_the_cookie(self, bookie: Bookie) -> None:
        more = f"{bookie.base}/more"
        bookie.settings["ledgerDirectories"] += f",{more}"
        assert bookie.run("bookie", "expand-storage", "--dry-run").out == f"would add {more}\n"
        assert not Path(more).exists()
        assert f"may use {more} too" in bookie.run("bookie", "expand-storage").out
        stored = bookie.run("cookie", "get", bookie.old).out.encode()
        assert (Path(more) / CURRENT / "VERSION").read_bytes() == stored
        assert decode_cookie(stored).ledger_dirs == (f"{bookie.base}/ledgers", more)

    def test_a_directory_with_data_is_refused(self, bookie: Bookie) -> None:
        full = bookie.base / "full"
        (full / CURRENT).mkdir(parents=True)
        (full / CURRENT / "0.log").touch()
        bookie.settings["ledgerDirectories"] += f",{full}"
        for words in (["--dry-run"], []):
            refused = bookie.run("bookie", "expand-storage", *words, ok=False)
            assert refused.status == 4
            assert "has data but no cookie" in refused.err

    def test_a_dry_run_refuses_moved_directories_as_the_command_does(self, bookie: Bookie) -> None:
        moved = f"{bookie.base}/moved"
        Path(bookie.settings["ledgerDirectories"]).rename(moved)
        bookie.settings["ledgerDirectories"] = moved
        dry, real = (
            bookie.run("disk", "expand", *words, ok=False) for words in (["--dry-run"], [])
        )
        assert (dry.status, dry.err, dry.out) == (real.status, real.err, "")
        assert real.status == 4
        assert real.err.count("ledger directories is") == 1
        assert "index directories is" not in real.err
        assert "bkctl cookie repair -c FILE" in real.err

    def test_a_directory_that_was_in_use_and_is_empty_now_is_refused(self, bookie: Bookie) -> None:
        (bookie.base / "ledgers" / CURRENT / "VERSION").unlink()
        refused = bookie.run("bookie", "expand-storage", ok=False)
        assert refused.status == 4
        assert "was in use before" in refused.err

    def test_a_bookie_without_a_cookie_is_not_expanded_but_started(self, bookie: Bookie) -> None:
        async def forget(store: Any) -> None:
            try:
                await store.remove_cookie(bookie.old)
            except CookieNotFoundError:
                return

        bookie.store(forget)
        assert bookie.run("bookie", "expand-storage", ok=False).status == 3
