"""The table of a writer's states in docs/internals.md against the code."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from bkclient.quorum.add import AddQuorum, Event, State

INTERNALS = Path(__file__).parents[2] / "docs" / "internals.md"


def test_the_writers_table_has_every_pair_and_no_other() -> None:
    rows = {
        cells[0]: cells[1:]
        for line in INTERNALS.read_text().splitlines()
        if (cells := [cell.strip() for cell in line.strip("|").split("|")])
        and cells[0] in {kind.__name__ for kind in get_args(Event)}
    }
    assert set(rows) == {kind.__name__ for kind in get_args(Event)}
    for kind in get_args(Event):
        for state, text in zip(State, rows[kind.__name__], strict=True):
            assert (text != "-") == ((state, kind) in AddQuorum.TRANSITIONS), (kind, state)
