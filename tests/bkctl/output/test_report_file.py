"""``--report FILE``: what was done can be read later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bkctl.exit_status import ExitStatus
from tests.bkclient.worlds import World
from tests.bkctl.commands.bookie.test_bookie import written
from tests.bkctl.support.schema import check
from tests.bkctl.support.world import run_in


def _kept(path: Path) -> list[Any]:
    return [check(json.loads(line)) for line in path.read_text().splitlines()]


def test_what_is_printed_in_any_form_is_kept_as_json_lines(tmp_path: Path) -> None:
    world, path = World(3), tmp_path / "report.jsonl"
    for _ in range(2):
        written(world)
    for form in ("table", "id", "json"):
        out = run_in(world, "ledger", "list", "-o", form, "--report", path).out
        assert [one["ledger_id"] for one in _kept(path)] == ["0", "1"]
    (one,) = json.loads(out)["ledgers"][:1]
    assert _kept(path)[0] == {"schema": 1, **one}


def test_what_is_left_out_is_left_out_and_a_drawing_is_kept_too(tmp_path: Path) -> None:
    world, path = World(3), tmp_path / "report.jsonl"
    for _ in range(2):
        written(world)
    run_in(world, "ledger", "list", "--filter", "ledger_id=1", "--report", path)
    assert [one["ledger_id"] for one in _kept(path)] == ["1"]
    run_in(world, "ledger", "map", "1", "--report", path)
    assert [one["ledger_id"] for one in _kept(path)] == ["1"]


def test_what_ended_the_command_comes_last(tmp_path: Path) -> None:
    world, path = World(3), tmp_path / "report.jsonl"
    written(world)
    partly = run_in(world, "ledger", "close", "0", "9", "--report", path, ok=False)
    done, error = _kept(path)
    assert (partly.status, done["ledger_id"], error["code"]) == (ExitStatus.PARTLY, "0", 8)
    assert "ledger 9" in error["error"]


def test_a_report_that_cannot_be_kept_keeps_the_command_from_being_done(tmp_path: Path) -> None:
    world, path = World(3), tmp_path / "no" / "report"
    written(world)
    said = run_in(world, "ledger", "delete", "0", "-y", "--report", path, ok=False)
    assert said.status == ExitStatus.NOT_FOUND
    assert run_in(world, "ledger", "list", "-o", "id").out == "0\n"
    assert not path.exists()
