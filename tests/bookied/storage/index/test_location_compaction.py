"""Databases are compacted one after the other, each once, whatever becomes of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookied.errors import StorageError
from bookied.storage.index.location_compaction import LocationCompaction


class Desk:
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.under_way: Deferred[Any] = Deferred()
        names = ("a", "b", "c")
        self.compaction = LocationCompaction(
            {name: lambda name=name: self.begun.append(name) for name in names},  # type: ignore[misc]
            self.run,
        )

    def run(self, function: Callable[[], None]) -> Deferred[Any]:
        function()
        self.under_way = Deferred()
        return self.under_way

    def busy(self) -> list[str]:
        return [name for name, is_busy in self.compaction.status().items() if is_busy]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_one_goes_after_the_other_and_what_is_asked_twice_is_done_once(desk: Desk) -> None:
    desk.compaction.begin(["a", "c"])
    desk.compaction.begin(["c", "b", "elsewhere"])
    assert (desk.begun, desk.busy()) == (["a"], ["a", "b", "c"])
    for done in (["a", "c"], ["a", "c", "b"], ["a", "c", "b"]):
        desk.under_way.callback(None)
        assert desk.begun == done
    assert desk.busy() == []


@pytest.mark.parametrize("error", [StorageError("closed"), OSError("broken"), ZeroDivisionError()])
def test_one_that_fails_does_not_keep_the_next_from_it(desk: Desk, error: Exception) -> None:
    desk.compaction.begin(["a", "b"])
    desk.under_way.errback(error)
    assert (desk.begun, desk.busy()) == (["a", "b"], ["b"])


def test_after_a_stop_nothing_is_begun(desk: Desk) -> None:
    desk.compaction.begin(["a", "b", "c"])
    desk.compaction.stop()
    desk.under_way.callback(None)
    assert (desk.begun, desk.busy()) == (["a"], [])
