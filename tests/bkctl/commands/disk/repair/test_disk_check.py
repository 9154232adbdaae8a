"""``bkctl disk check``: what it prints, what it exits with, what it says to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bkctl.exit_status import ExitStatus
from bookied.directories.lock import DirectoryLocks
from tests.bkclient.metadata.values import metadata
from tests.bkclient.worlds import World
from tests.bkctl.support.disk import copy_of, dirs, run, snapshot
from tests.bkctl.support.world import run_in
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment


def damaged(tmp_path: Path) -> list[str]:
    words = copy_of("sorted/clean", tmp_path)
    current = tmp_path / "bookie/ledgers/current"
    (current / "0.log").unlink()
    path = current / "0/1/1.idx"
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    return words


def test_sound_directories_pass_with_a_summary() -> None:
    found = run("check", "--deep", *dirs("interleaved/rotated"))
    assert (
        "checked 6 ledgers, 58 entries, 50 digests, 6 entry logs, 1 journal: 2 notes" in found.err
    )
    assert "8 entries of ledgers with a digest that needs the password" in found.err
    assert "were not read" not in found.err
    plain = run("check", *dirs("interleaved/rotated"))
    assert "(payloads, and journals that no start replays, were not read; --deep" in plain.err


def test_problems_are_named_with_place_and_next_command_and_status_10(tmp_path: Path) -> None:
    words = damaged(tmp_path)
    before = snapshot(tmp_path)
    found = run("check", *words, ok=False)
    assert found.status == ExitStatus.PROBLEMS
    index = tmp_path / "bookie/ledgers/current/0/1/1.idx"
    assert (
        "problem: ledger 1: b'XXXX'; expected b'BKLE'\n"
        f"    in {index} at 0\n    -> bkctl disk rebuild-index 1\n"
    ) in found.out
    assert "ledger 0 (5 entries, 0 to 4): no such log" in found.out
    assert "problems found; --repair-plan says what to do" in found.err
    assert snapshot(tmp_path) == before


def test_it_says_whether_the_files_stop_a_start(tmp_path: Path) -> None:
    words = damaged(tmp_path)
    found = run("check", *words, ok=False)
    assert "cookies, marks and journals do not stop a start of the bookie" in found.err
    (tmp_path / "bookie/ledgers/current/VERSION").write_text("no cookie")
    found = run("check", *words, ok=False)
    assert "1 problem with cookies, marks or journals: the bookie does not start" in found.err


def test_a_relative_path_is_the_same_directory_and_warnings_alone_end_with_9(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_of("sorted/clean", tmp_path)
    monkeypatch.chdir(tmp_path)
    bookie = tmp_path / "bookie"
    cookie = f'5\nbookieHost: "b"\njournalDir: "{bookie}/journal"\nledgerDirs: "1\\t{{}}"\n'
    for place, status in ((f"{bookie}/ledgers", ExitStatus.DONE), ("/gone", ExitStatus.WARNINGS)):
        for root in ("journal", "ledgers"):
            (bookie / root / "current/VERSION").write_text(cookie.format(place))
        found = [run("check", path, "-o", "jsonl", ok=False) for path in (bookie, "bookie")]
        assert [one.status for one in found] == [status, status], found
        assert found[0].rows == found[1].rows
    assert "1 warning, and no problem" in found[0].err


def test_programs_get_one_object_a_finding(tmp_path: Path) -> None:
    rows = run("check", *damaged(tmp_path), "-o", "jsonl", ok=False).rows
    found = {(row["kind"], row["ledger"]): row for row in rows if row["severity"] == "problem"}
    assert found["index-format", "1"]["offset"] == 0
    assert found["missing-log", "0"]["entry"] == 0
    assert found["missing-log", "0"]["last_entry"] == 4
    assert found["missing-log", "0"]["entries"] == 5
    listed = run("check", *damaged(tmp_path / "again"), "--json", ok=False).json
    assert len(listed["problems"]) == len(rows)


def test_the_repair_plan_has_each_step_once_and_the_exit_status_stays(tmp_path: Path) -> None:
    found = run("check", "--repair-plan", *damaged(tmp_path), "-o", "jsonl", ok=False)
    assert "--repair-plan" not in found.err
    assert found.status == ExitStatus.PROBLEMS
    steps = [row["step"] for row in found.rows]
    assert len(set(steps)) == len(steps)
    by_step = {row["step"]: row for row in found.rows}
    assert by_step["bkctl disk rebuild-index 1"]["ledgers"] == ["1"]
    (copied,) = (row for step, row in by_step.items() if "--ledger 0 " in step)
    assert (copied["ledgers"], copied["entries"]) == (["0"], 5)
    said = run("check", "--repair-plan", *damaged(tmp_path / "again"), ok=False).out
    assert "    against 1 problem, of ledger 0 with 5 entries: missing-log\n" in said
    assert all(row["severity"] == "problem" for row in found.rows)


def test_what_a_ledger_lacks_that_has_moved_to_other_bookies_is_no_problem(
    tmp_path: Path,
) -> None:
    world = World(3)
    words = damaged(tmp_path)
    instance_id = world.run(world.client().store.instance_id())
    _write_cookies(tmp_path, instance_id)

    def check() -> dict[str, tuple[str, str]]:
        found = run_in(world, "disk", "check", *words, "-o", "jsonl", ok=False)
        rows = [json.loads(line) for line in found.out.splitlines()]
        return {row["ledger_id"]: (row["severity"], row["fix"]) for row in rows if row["ledger_id"]}

    gone = ("note", "none needed: garbage collection frees its space here")
    assert {one: check()[one] for one in "01"} == {"0": gone, "1": gone}, "both are deleted"
    _store(world, 0, "b2", "b3")
    _store(world, 1, "b1", "b2")
    found = check()
    assert (found["0"], found["1"]) == (gone, ("problem", "bkctl disk rebuild-index 1"))
    _write_cookies(tmp_path, "another cluster")
    assert check()["0"][0] == "problem"
    said = run_in(world, "disk", "check", *words, ok=False).err
    assert "is unknown: sqlite:///not/opened.db is another cluster than that of the cookies" in said


def _write_cookies(tmp_path: Path, instance_id: str) -> None:
    for root in ("journal", "ledgers"):
        (tmp_path / "bookie" / root / "current/VERSION").write_text(
            f'5\nbookieHost: "b1"\njournalDir: "{tmp_path}/bookie/journal"\n'
            f'ledgerDirs: "1\\t{tmp_path}/bookie/ledgers"\ninstanceId: "{instance_id}"\n'
        )


def _store(world: World, ledger_id: int, *ensemble: str) -> None:
    made = metadata(
        ensemble_size=len(ensemble),
        write_quorum=len(ensemble),
        ack_quorum=len(ensemble),
        fragments=(Fragment(EntryId(0), tuple(map(BookieId, ensemble))),),
    )
    world.run(world.client().store.create_ledger(LedgerId(ledger_id), made))


def test_beside_a_running_bookie_what_the_index_lacks_may_come_yet(tmp_path: Path) -> None:
    words = copy_of("sorted/clean", tmp_path)
    path = tmp_path / "bookie/ledgers/current/0/0/0.idx"
    data = bytearray(path.read_bytes())
    data[1024 + 8 : 1024 + 16] = bytes(8)
    path.write_bytes(data)
    stopped = run("check", "--deep", *words, "-o", "jsonl", ok=False)
    assert stopped.status == ExitStatus.PROBLEMS
    locks = DirectoryLocks()
    locks.take([tmp_path / "bookie/ledgers"])
    try:
        found = run("check", "--deep", *words, "-o", "jsonl")
    finally:
        locks.release()
    (row,) = (row for row in found.rows if row["kind"] == "unindexed")
    assert (row["severity"], row["fix"]) == ("note", "check again once it is stopped")


def test_databases_alone_can_be_asked_for_only_where_there_are_some() -> None:
    found = run("check", "--db", *dirs("sorted/clean"), ok=False)
    assert found.status == ExitStatus.NOT_FOUND
    assert "there is no RocksDB index here; leave --db out" in found.err
