from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from bookied.server.rules.deleted_ledgers import DeletedLedgersFile, FencedDeletions
from tests.sim.world.disk import SimFiles
from wire.ids import LedgerId

ROOT = Path("/root")
L1, L2 = LedgerId(1), LedgerId(2)


class Kept:
    """What a bookie remembers, with its file; ``turns`` are writes that wait for the disk."""

    def __init__(self, files: SimFiles) -> None:
        self.deletions = FencedDeletions(Clock())
        self.waits = False
        self.turns: list[Callable[[], object]] = []
        self.part = DeletedLedgersFile(self.deletions, files, ROOT, self._run)

    def _run(self, action: Callable[[], Any]) -> Deferred[Any]:
        if not self.waits:
            return succeed(None).addCallback(lambda _: action())
        waiting: Deferred[Any] = Deferred()
        self.turns.append(lambda: waiting.callback(None))
        return waiting.addCallback(lambda _: action())


def started(coroutine: Coroutine[Deferred[Any], Any, None]) -> list[object]:
    """Return a list that holds the outcome as soon as there is one."""
    outcome: list[object] = []
    Deferred.fromCoroutine(coroutine).addBoth(outcome.append)
    return outcome


@pytest.fixture
def files() -> SimFiles:
    found = SimFiles(Random(1))
    found.make_durable(ROOT)
    return found


def test_what_was_kept_is_restored(files: SimFiles) -> None:
    before, after = Kept(files), Kept(files)
    assert started(after.part.restore()) == [None], "no file is nothing to remember"
    before.deletions.remember(L1)
    assert started(before.part.keep()) == [None]
    files.crash()
    assert started(after.part.restore()) == [None]
    assert L1 in after.deletions


def test_nothing_new_writes_nothing(files: SimFiles) -> None:
    kept = Kept(files)
    operations = files.operations
    assert started(kept.part.keep()) == [None]
    assert files.operations == operations


def test_a_write_that_failed_is_made_again(files: SimFiles) -> None:
    kept = Kept(files)
    kept.deletions.remember(L1)
    files.fault = lambda _operation, path: OSError(5, "no", str(path))
    assert "OSError" in repr(started(kept.part.keep()))
    files.fault = None
    assert started(kept.part.keep()) == [None]
    after = Kept(files)
    started(after.part.restore())
    assert L1 in after.deletions


def test_a_later_write_waits_for_the_one_before_and_has_all(files: SimFiles) -> None:
    kept = Kept(files)
    kept.waits = True
    kept.deletions.remember(L1)
    first = started(kept.part.keep())
    kept.deletions.remember(L2)
    second = started(kept.part.keep())
    assert len(kept.turns) == 1
    kept.turns[0]()
    assert (first, second, len(kept.turns)) == ([None], [], 2)
    kept.turns[1]()
    assert second == [None]
    after = Kept(files)
    started(after.part.restore())
    assert L1 in after.deletions
    assert L2 in after.deletions
