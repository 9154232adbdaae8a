"""`cookie verify`, `cookie repair` and `cookie rename`: a stopped bookie's cookies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkclient.metadata import open_metadata
from bkclient.metadata.api import ANY
from bookied.directories.roots import VERSION
from tests.bkclient.metadata.values import info
from tests.bkctl.support.stopped_bookie import Bookie, new_bookie
from tests.support import reactor


@pytest.fixture
def bookie(tmp_path: Path) -> Bookie:
    """A bookie that has something in each directory."""
    made = new_bookie(tmp_path)
    for version in made.base.rglob(VERSION):
        (version.parent / "0.log").write_bytes(b"entries")
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
    assert {one["field"] for one in stored} == {"ledger directories", "index directories"}
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
