"""What pages say of the code, against the code: a writer's states, and the tests they name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from bkclient.quorum.add_rules import AddQuorum, AddState
from bkclient.quorum.pending_adds import Event

ROOT = Path(__file__).parents[2]
INTERNALS = ROOT / "docs" / "internals.md"
PROOF = ROOT / "docs" / "proof.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
BUGS = {1066, 2612, 2908, 3005, 3302, 4097, 4105, 4404, 4459, 4596, 4651, 4789, 4812}
"""Bugs of BookKeeper that docs/proof.md has a row for."""


def test_the_writers_table_has_every_pair_and_no_other() -> None:
    rows = {
        cells[0]: cells[1:]
        for line in INTERNALS.read_text().splitlines()
        if (cells := [cell.strip() for cell in line.strip("|").split("|")])
        and cells[0] in {kind.__name__ for kind in get_args(Event)}
    }
    assert set(rows) == {kind.__name__ for kind in get_args(Event)}
    for kind in get_args(Event):
        for state, text in zip(AddState, rows[kind.__name__], strict=True):
            assert (text != "-") == ((state, kind) in AddQuorum.TRANSITIONS), (kind, state)


def test_every_known_bug_has_a_row_with_tests_that_exist() -> None:
    rows = [line for line in PROOF.read_text().splitlines() if line.startswith("| #")]
    bugs = {int(number) for row in rows for number in re.findall(r"#(\d+)", row.split("|")[1])}
    assert bugs >= BUGS
    for row in rows:
        named = NAMED.findall(row)
        assert named, row
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(), (path, name)
