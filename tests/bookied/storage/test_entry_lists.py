"""A list of a ledger's entries misses none, whatever its thread is interrupted by."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from bookied.storage.index.ledger_pages import LedgerChange
from bookied.storage.ledger_storage.storage import LedgerStorage
from bookied.storage.replay import do_now, run_now
from tests.bookied.worlds.storage_world import World
from tests.support.stored_entries import stored_entries

MODULES = "reads.py", "unflushed_locations.py", "ledger_pages.py"
ENTRIES = [0, 1, 5, 2000]


class Moves:
    """A storage of DbLedgerStorage whose checkpoint has taken some new locations."""

    def __init__(self, entries: list[int]) -> None:
        self.world = World(1, db=True)
        for entry_id in entries:
            self.world.add(1, entry_id, 0)
        self.storage: LedgerStorage = self.world.storages.of(1)
        self.pages = self.storage._pages

    def take(self) -> list[LedgerChange]:
        (changes,) = self.pages.take([1], pages_max=100)
        return changes


def taken(moves: Moves) -> Callable[[], object]:
    return moves.take


def written(moves: Moves) -> Callable[[], object]:
    changes = moves.take()

    def write() -> None:
        moves.storage._index.write(changes)
        moves.pages.written(changes)

    return write


def put_back(moves: Moves) -> Callable[[], object]:
    changes = moves.take()
    return lambda: moves.pages.put_back(changes)


def joined(moves: Moves) -> Callable[[], object]:
    # As ``page_for_write`` does with many; a list of those would take long to interrupt everywhere.
    return partial(moves.pages.make_dirty, moves.storage.hot[1], 0)


def evicted(moves: Moves) -> Callable[[], object]:
    run_now(moves.storage.flush(do_now))

    def evict() -> None:
        for ledger_id in (2, 3, 4):
            moves.world.add(ledger_id, 0, 0)
        moves.storage.drop_idle()

    return evict


def interrupted(function: Callable[[], object], at: int, act: Callable[[], object]) -> int:
    """Call a function and act before its bytecode ``at``; return how many it has less than that."""
    left, before = at, sys.gettrace()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(MODULES):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                act()
        return trace

    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return left


@pytest.mark.parametrize("begin", [taken, written, put_back, joined, evicted])
@pytest.mark.parametrize("is_list_cut", [True, False], ids=["list-interrupted", "move-interrupted"])
def test_a_list_of_entries_misses_none_that_moves_meanwhile(
    begin: Callable[[Moves], Callable[[], object]], *, is_list_cut: bool
) -> None:
    at = left = 0
    while left <= 0:
        at += 1
        moves = Moves(ENTRIES)
        move = begin(moves)
        wanted, lists = sorted(moves.world.model[1].packets), list[list[int]]()
        look = partial(_look, moves.storage, lists)
        left = interrupted(look, at, move) if is_list_cut else interrupted(move, at, look)
        assert lists in ([wanted], []), f"at bytecode {at}"
    assert at > 20


def _look(storage: LedgerStorage, lists: list[list[int]]) -> None:
    lists.append(stored_entries(storage, 1))
